//! The seeds that every build runs, and what must hold of them all.

#![allow(clippy::unwrap_used, reason = "tests")]

use stockade_sim::faults::Counts;
use stockade_sim::run::{random_seed, report, run};
use stockade_sim::world::Plan;

/// Seeds of every build.
const SEEDS: u64 = 120;
/// Commands of each.
const STEPS: u64 = 3_000;

#[test]
fn every_promise_holds_on_the_fixed_seeds_and_every_fault_happens() {
    let (mut counts, mut decisions) = (Counts::default(), 0);
    for seed in 1..=SEEDS {
        let plan = Plan::new(seed, STEPS);
        let outcome = run(&plan);
        assert!(outcome.fault.is_none(), "\n{}", report(&plan));
        decisions += outcome.decisions;
        counts.add(&outcome.counts);
    }
    assert!(decisions > SEEDS * STEPS / 2, "most commands are answered: {decisions}");
    assert_eq!(counts.missing(), [] as [&str; 0], "kinds of faults that never happened");
}

#[test]
fn a_random_seed_holds_too() {
    let plan = Plan::new(random_seed(), 10_000);
    println!("seed {}", plan.seed);
    assert!(run(&plan).fault.is_none(), "\n{}", report(&plan));
}

#[test]
fn the_same_seed_gives_the_same_digest_and_another_one_does_not() {
    let digest = |seed| {
        let outcome = run(&Plan::new(seed, 2_000));
        (outcome.digest, outcome.decisions)
    };
    for seed in [1, 2, 77] {
        assert_eq!(digest(seed), digest(seed));
        assert_ne!(digest(seed), digest(seed + 1));
    }
}
