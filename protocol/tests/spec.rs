//! SPEC.md and the code say the same.
#![allow(clippy::unwrap_used, reason = "tests")]

use stockade_protocol::Outcome;
use stockade_protocol::wire::{ErrorCode, PREFACE};

const SPEC: &str = include_str!("../SPEC.md");

#[test]
fn every_outcome_stands_in_the_specification() {
    for outcome in Outcome::ALL {
        let row = format!("| {} | `{}` |", outcome.number(), outcome.word());
        assert!(SPEC.contains(&row), "{row}");
    }
}

#[test]
fn every_error_code_stands_in_the_specification() {
    for code in ErrorCode::ALL {
        let line = SPEC.lines().find(|line| line.starts_with(&format!("| {} |", code as u16)));
        let closes = SPEC
            .lines()
            .filter(|line| line.starts_with(&format!("| {} |", code as u16)))
            .any(|line| line.ends_with(if code.closes() { "closes |" } else { "stays |" }));
        assert!(line.is_some() && closes, "{code:?}");
    }
}

#[test]
fn the_preface_stands_in_the_specification() {
    let hex: Vec<String> = PREFACE.iter().map(|byte| format!("{byte:02X}")).collect();
    assert!(SPEC.contains(&hex.join(" ")));
}
