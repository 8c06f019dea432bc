//! Deliberate faults in core, server, log and writer, one at a time: the simulator must find each
//! within some seeds. `cargo test -p stockade-sim --features mutations`.

#![cfg(feature = "mutations")]

use stockade_protocol::mutation::{Mutation, choose};
use stockade_sim::run::run;
use stockade_sim::world::Plan;

/// Seeds that a fault may need.
const SEEDS: u64 = 150;
/// Commands of each.
const STEPS: u64 = 3_000;

/// The first words of what was found, and after how many seeds.
fn found(mutation: Mutation) -> Option<(u64, String)> {
    choose(Some(mutation));
    let found = (1..=SEEDS).find_map(|seed| {
        let fault = run(&Plan::new(seed, STEPS)).fault?;
        Some((seed, fault.lines().next().unwrap_or_default().chars().take(90).collect()))
    });
    choose(None);
    found
}

/// One test: the fault in force is the process's.
#[test]
fn every_deliberate_fault_is_found() {
    let mut missed = Vec::new();
    for mutation in Mutation::ALL {
        match found(*mutation) {
            Some((seed, words)) => println!("{mutation:?}: seed {seed}: {words}"),
            None => missed.push(format!("{mutation:?}")),
        }
    }
    assert_eq!(missed, [] as [String; 0], "faults that nobody noticed");
    assert!(Mutation::ALL.len() >= 20);
}
