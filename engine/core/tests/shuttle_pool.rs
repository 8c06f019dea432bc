//! The pool under shuttle, where loom cannot reach: three shards and the catalog with longer
//! stories of baskets, cancels, recalls and restocks, in a fixed number of random orders of steps.
//! Run by `tests/run.sh`:
//!
//! ```sh
//! RUSTFLAGS="--cfg shuttle" cargo test -p stockade-core --release --test shuttle_pool
//! ```
//!
//! A failure prints the schedule; `shuttle::replay` runs it again.

#![cfg(shuttle)]
#![allow(clippy::unwrap_used, reason = "tests")]

mod pool_model;

use pool_model::{Bell, Market, adjusted};
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread::{spawn, yield_now};
use stockade_core::pool::model::{Fault, switch_on};

/// Orders of steps that one test tries.
const SCHEDULES: usize = 20_000;

/// Schedules are fair: whoever waits may just try again.
#[derive(Clone)]
struct Retry;

impl Bell for Retry {
    fn wait(&self, _: usize) {
        yield_now();
    }

    fn ring(&self) {}
}

fn number(below: u32) -> u32 {
    thread_rng().gen_range(0..below)
}

/// Each shard buys baskets and gives some back; the catalog takes units away and adds some.
fn a_busy_sale() {
    let mut market = Market::new(3, [3, 2], Retry);
    let sell = |n: usize| {
        let mut shard = market.shard(n);
        move || {
            for _ in 0..4 {
                let (a, b) = ((10, 1 + number(2)), (11, 1));
                let lines = [vec![a], vec![b], vec![a, b], vec![b, a]];
                let order = shard.reserve(&lines[number(4) as usize]);
                if let (Some(order), 0..2) = (order, number(3)) {
                    shard.cancel(order);
                }
            }
            shard.done()
        }
    };
    let threads: Vec<_> = (0..3).map(|n| spawn(sell(n))).collect();
    let moved = (1..=3).map(|n| market.adjust([-2, -1, 1, 2][number(4) as usize], n)).sum();
    let mut done: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    done.push(adjusted(moved));
    market.audit(done);
}

#[test]
fn a_busy_sale_keeps_its_units() {
    shuttle::check_random(a_busy_sale, SCHEDULES);
    shuttle::check_pct(a_busy_sale, SCHEDULES, 4);
}

/// The same story finds every fault that loom finds.
#[test]
fn every_fault_is_found() {
    use Fault::{
        AsideOverlooked, BlindStore, GivenBackTwice, SettleInTwoSteps, TwoLoads, UnusedKept,
        UnusedLost,
    };
    let faults = [
        AsideOverlooked,
        BlindStore,
        GivenBackTwice,
        SettleInTwoSteps,
        TwoLoads,
        UnusedKept,
        UnusedLost,
    ];
    for fault in faults {
        let run = move || {
            switch_on(fault);
            shuttle::check_random(a_busy_sale, SCHEDULES);
        };
        // A thread each: a switch stays on, and a failed model leaves its thread's state behind.
        assert!(std::thread::spawn(run).join().is_err(), "{fault:?} was not found");
    }
}
