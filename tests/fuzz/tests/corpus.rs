//! Runs every fuzz target's body on the committed corpus, on every seed cut short and with flipped
//! bits, and on seeded random mutations; and holds what one input may allocate.
//!
//! `STOCKADE_WRITE_CORPUS=1` writes the seeds to `corpus/`; `STOCKADE_FUZZ_TRIES=N` multiplies the
//! random inputs, `STOCKADE_FUZZ_TARGET=NAME` runs one target alone. A failure prints the input as
//! hex; it belongs into `corpus/` once it is mended.

#![allow(clippy::unwrap_used, reason = "tests")]

use cap::Cap;
use std::alloc::System;
use std::fs;
use std::path::PathBuf;
use stockade_fuzz::mutate::{Random, mutate};
use stockade_fuzz::{TARGETS, Target, seeds};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// Bytes of a seed up to which it is cut at every byte and flipped in every byte.
const WHOLE_MAX: usize = 400;

fn corpus(target: &Target) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name)
}

/// Runs one input; gives the bytes that were allocated at the same time.
fn check(target: &Target, input: &[u8]) {
    let before = ALLOCATOR.allocated();
    ALLOCATOR.set_limit(before + target.bytes_max + target.per_byte * input.len()).unwrap();
    let hold = Printer(target.name, input);
    (target.body)(input);
    std::mem::forget(hold);
    ALLOCATOR.set_limit(usize::MAX).unwrap();
}

/// Prints the input when a body panics.
struct Printer<'a>(&'static str, &'a [u8]);

impl Drop for Printer<'_> {
    fn drop(&mut self) {
        let _ = ALLOCATOR.set_limit(usize::MAX);
        let hex: String = self.1.iter().map(|byte| format!("{byte:02x}")).collect();
        eprintln!("input of {}: {hex}", self.0);
    }
}

fn run(target: &Target) {
    let seeds = seeds::of(target.name);
    let dir = corpus(target);
    if std::env::var_os("STOCKADE_WRITE_CORPUS").is_some() {
        fs::create_dir_all(&dir).unwrap();
        for (name, bytes) in &seeds {
            fs::write(dir.join(name), bytes).unwrap();
        }
    }
    let mut inputs = Vec::new();
    for file in fs::read_dir(&dir).unwrap() {
        inputs.push(fs::read(file.unwrap().path()).unwrap());
    }
    assert!(inputs.len() >= seeds.len(), "the corpus of {} is not whole", target.name);
    inputs.sort();
    for input in &inputs {
        check(target, input);
        let step = if target.tries > 10_000 && input.len() <= WHOLE_MAX { 1 } else { 37 };
        for cut in (0..input.len()).step_by(step) {
            check(target, &input[..cut]);
            let mut flipped = input.clone();
            flipped[cut] ^= 1 << (cut % 8);
            check(target, &flipped);
        }
    }
    let tries = std::env::var("STOCKADE_FUZZ_TRIES").map_or(1, |n| n.parse().unwrap());
    for seed in 0..(target.tries * tries) as u64 {
        check(target, &mutate(&inputs, &mut Random::new(seed)));
    }
}

/// One test, because the allocator is everybody's.
#[test]
fn bodies_hold_on_the_corpus_and_its_mutations() {
    let only = std::env::var("STOCKADE_FUZZ_TARGET").ok();
    assert!(only.is_none() || TARGETS.iter().any(|target| Some(target.name) == only.as_deref()));
    for target in TARGETS {
        if only.as_deref().is_some_and(|only| only != target.name) {
            continue;
        }
        let began = std::time::Instant::now();
        run(target);
        println!("{}: {:?}", target.name, began.elapsed());
    }
}

/// The stories reach every kind of entry, so that the corpus of entries is whole.
#[test]
fn stories_leave_every_kind_of_entry() {
    let seeds = seeds::of("entry");
    let kinds: Vec<&str> = seeds.keys().map(String::as_str).collect();
    let numbers = (1..=10).chain(32..=37);
    let all: Vec<String> = numbers.map(|kind| format!("kind-{kind:02}")).collect();
    assert_eq!(kinds, all);
}
