//! The pool under loom: real shard machines and the real catalog over the real stock words, with
//! every order in which the steps on the words can happen (and every value that the memory model
//! lets a load see). Run by `tests/run.sh`:
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" cargo test -p stockade-core --release --test loom_pool
//! ```
//!
//! Two shards are explored exhaustively where that ends in seconds; the longer stories with a bound
//! on preemptions. That the models can fail is itself tested: each step of the word that is done
//! wrongly must be found.
//!
//! What the models found: two crossing baskets that took each other's units turn after turn until
//! both were told `busy` (`crossing_baskets`), and a waiting shard whose tries kept the other one's
//! compare-and-swap from ever ending its turn (`a_recall_and_a_restock_against_a_reserve`).

#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "tests")]

mod pool_model;

use loom::sync::Notify;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread::{spawn, yield_now};
use pool_model::{Bell, Market, adjusted};
use std::sync::Arc;
use stockade_core::pool::model::{Fault, switch_on};

/// A bell for each shard, and who waits for it.
#[derive(Clone)]
struct Bells(Arc<([Notify; 3], std::sync::Mutex<[bool; 3]>)>);

impl Bells {
    fn new() -> Self {
        Self(Arc::new(([(); 3].map(|()| Notify::new()), Default::default())))
    }
}

impl Bell for Bells {
    fn wait(&self, shard: usize) {
        self.0.1.lock().unwrap()[shard] = true;
        self.0.0[shard].wait();
        self.0.1.lock().unwrap()[shard] = false;
    }

    fn ring(&self) {
        let waiting = std::mem::take(&mut *self.0.1.lock().unwrap());
        for (bell, waiting) in self.0.0.iter().zip(waiting) {
            if waiting {
                bell.notify();
            }
        }
    }
}

/// `None`: exhaustively.
fn explore(preemptions_max: Option<usize>, model: fn()) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions_max;
    builder.max_branches = 20_000;
    builder.check(model);
}

/// Every buyer is a shard of its own and wants one basket; says how many were held.
fn buyers(stock: [u32; 2], baskets: &'static [&'static [(u64, u32)]]) -> usize {
    let market = Market::new(baskets.len(), stock, Bells::new());
    let buy = |n: usize| {
        let mut shard = market.shard(n);
        move || {
            let held = shard.reserve(baskets[n]).is_some();
            (held, shard.done())
        }
    };
    let threads: Vec<_> = (1..baskets.len()).map(|n| spawn(buy(n))).collect();
    let mut all = vec![buy(0)()];
    all.extend(threads.into_iter().map(|thread| thread.join().unwrap()));
    let held = all.iter().filter(|(held, _)| *held).count();
    market.audit(all.into_iter().map(|(_, done)| done).collect());
    held
}

fn the_last_unit() {
    assert_eq!(buyers([1, 0], &[&[(10, 1)], &[(10, 1)]]), 1);
}

fn enough_for_both() {
    assert_eq!(buyers([3, 0], &[&[(10, 2)], &[(10, 1)]]), 2);
}

/// Each basket needs both units. If both shards take what they can at the same time, again and
/// again, neither gets there.
fn crossing_baskets() {
    assert_eq!(buyers([1, 1], &[&[(10, 1), (11, 1)], &[(11, 1), (10, 1)]]), 1);
}

#[test]
fn two_shards_and_the_last_unit() {
    explore(None, the_last_unit);
}

#[test]
fn two_shards_and_enough_for_both() {
    explore(None, enough_for_both);
}

#[test]
fn two_baskets_in_opposite_order() {
    explore(Some(3), crossing_baskets);
}

#[test]
fn a_basket_against_a_single_line() {
    explore(None, || {
        let held = buyers([1, 1], &[&[(10, 1), (11, 1)], &[(11, 1)]]);
        assert_eq!(held, 1);
    });
}

/// The first shard sells the only unit, takes it back, and only then the second one's buyer comes,
/// or comes whenever he likes.
fn a_unit_that_comes_back(wait: bool) {
    let market = Market::new(2, [1, 0], Bells::new());
    let (mut seller, mut buyer) = (market.shard(0), market.shard(1));
    let order = seller.reserve(&[(10, 1)]).unwrap();
    let told = Arc::new(AtomicBool::new(false));
    let tell = told.clone();
    let cancel = spawn(move || {
        seller.cancel(order);
        tell.store(true, Ordering::Release);
        seller.done()
    });
    if wait {
        while !told.load(Ordering::Acquire) {
            yield_now();
        }
    }
    let bought = buyer.reserve(&[(10, 1)]).is_some();
    assert!(bought || !wait, "the unit was back");
    market.audit(vec![cancel.join().unwrap(), buyer.done()]);
}

#[test]
fn a_cancelled_unit_is_sold_again() {
    explore(None, || a_unit_that_comes_back(true));
}

#[test]
fn a_cancel_against_a_reserve() {
    explore(None, || a_unit_that_comes_back(false));
}

/// One unit in an order that is cancelled, one that a recall wants, two buyers' worth of demand,
/// and a restock at the end.
fn everything_at_once(adjusts: &'static [i64]) {
    let mut market = Market::new(2, [2, 1], Bells::new());
    let (mut first, mut second) = (market.shard(0), market.shard(1));
    let order = first.reserve(&[(10, 1)]).unwrap();
    let cancelled = spawn(move || {
        first.cancel(order);
        first.reserve(&[(10, 1), (11, 1)]);
        first.done()
    });
    let bought = spawn(move || {
        second.reserve(&[(11, 1), (10, 1)]);
        second.done()
    });
    let numbered = adjusts.iter().zip(1..);
    let moved = numbered.map(|(delta, n)| market.adjust(*delta, n)).sum();
    let done = vec![cancelled.join().unwrap(), bought.join().unwrap(), adjusted(moved)];
    market.audit(done);
}

#[test]
fn a_recall_and_a_restock_against_a_reserve() {
    explore(None, || {
        let mut market = Market::new(1, [2, 0], Bells::new());
        let mut shard = market.shard(0);
        let buyer = spawn(move || {
            shard.reserve(&[(10, 2)]);
            shard.done()
        });
        let moved = market.adjust(-1, 1) + market.adjust(1, 2);
        market.audit(vec![buyer.join().unwrap(), adjusted(moved)]);
    });
}

#[test]
fn baskets_a_cancel_and_a_recall() {
    explore(Some(1), || everything_at_once(&[-2]));
}

#[test]
fn baskets_a_cancel_a_recall_and_a_restock() {
    explore(Some(1), || everything_at_once(&[-2, 1]));
}

#[test]
fn three_shards_and_two_units() {
    explore(Some(3), || assert_eq!(buyers([2, 0], &[&[(10, 1)], &[(10, 1)], &[(10, 1)]]), 2));
}

#[test]
fn three_shards_with_crossing_baskets() {
    explore(Some(1), || {
        let baskets: &[&[(u64, u32)]] = &[&[(10, 1), (11, 1)], &[(11, 1), (10, 1)], &[(10, 1)]];
        assert_eq!(buyers([1, 1], baskets), 1);
    });
}

/// The model must find the fault; its own report is not worth printing.
fn finds(fault: Fault, model: fn()) {
    switch_on(fault);
    let found = std::panic::catch_unwind(|| explore(Some(3), model));
    assert!(found.is_err(), "{fault:?} was not found");
}

#[test]
fn a_store_that_does_not_compare_is_found() {
    finds(Fault::BlindStore, the_last_unit);
}

#[test]
fn two_loads_in_place_of_one_are_found() {
    finds(Fault::TwoLoads, crossing_baskets);
}

#[test]
fn overlooking_units_aside_is_found() {
    finds(Fault::AsideOverlooked, crossing_baskets);
}

#[test]
fn settling_in_two_steps_is_found() {
    finds(Fault::SettleInTwoSteps, crossing_baskets);
}

#[test]
fn losing_unused_units_is_found() {
    finds(Fault::UnusedLost, crossing_baskets);
}

#[test]
fn keeping_unused_units_is_found() {
    finds(Fault::UnusedKept, crossing_baskets);
}

#[test]
fn giving_back_twice_is_found() {
    finds(Fault::GivenBackTwice, || a_unit_that_comes_back(true));
}
