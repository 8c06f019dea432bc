//! What only the models of the pool see (`--cfg loom`, `--cfg shuttle`): the truth about the units
//! of a word, told by the steps that move them and not by the word's bits; and steps done wrongly
//! on purpose, which show that the models can fail.

use super::{Stock, StockWord};
use crate::sync::Ordering;
use crate::sync::thread::{self, ThreadId};
use std::cell::Cell;
use std::sync::{Mutex, MutexGuard};
use std::vec::Vec;

/// A step of the stock word that is left out or done wrongly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A change is written without looking whether the word is still what it was.
    BlindStore,
    /// The two numbers are read one after the other.
    TwoLoads,
    /// What other turns have aside is not looked at.
    AsideOverlooked,
    /// A turn ends with two steps: units are nowhere in between.
    SettleInTwoSteps,
    /// Units that a turn did not grant do not come back.
    UnusedLost,
    /// A turn that grants nothing keeps what it has aside.
    UnusedKept,
    /// Units are given back twice.
    GivenBackTwice,
}

std::thread_local! {
    /// A model runs all its threads on the one that the test runs on.
    static FAULT: Cell<Option<Fault>> = const { Cell::new(None) };
}

/// From now on models on this thread run with the fault.
pub fn switch_on(fault: Fault) {
    FAULT.set(Some(fault));
}

fn is_on(fault: Fault) -> bool {
    FAULT.get() == Some(fault)
}

/// How many units were outside orders at every instant so far (the last one is the present), and
/// whose steps let units leave `aside` or join `free`.
#[derive(Debug)]
pub(super) struct Truth(Mutex<(Vec<i64>, Vec<ThreadId>)>);

impl Truth {
    pub(super) fn new(units: u32) -> Self {
        Self(Mutex::new((std::vec![i64::from(units)], Vec::new())))
    }

    /// Units go into orders, or come out of them: not later than the word tells of the former, not
    /// earlier than it tells of the latter.
    pub(super) fn outside(&self, change: i64) {
        let outside = &mut self.lock().0;
        let now = outside.last().expect("never empty") + change;
        outside.push(now);
    }

    /// The word was changed.
    pub(super) fn moved(&self) {
        self.lock().1.push(thread::current().id());
    }

    fn lock(&self) -> MutexGuard<'_, (Vec<i64>, Vec<ThreadId>)> {
        self.0.lock().expect("nobody panics in here")
    }
}

impl StockWord {
    /// The present instant, for [`Self::outside_least`]: whoever asks knows what happened to the
    /// word before, as the sender of a request does.
    pub fn instant(&self) -> usize {
        self.units.fetch_add(0, Ordering::AcqRel);
        self.truth.lock().0.len() - 1
    }

    /// The fewest units that were outside orders since then.
    pub fn outside_least(&self, since: usize) -> i64 {
        *self.truth.lock().0[since..].iter().min().expect("never empty")
    }

    /// How often this thread, and other ones, let units leave `aside` or join `free` so far: a turn
    /// that could not have its units may have them after that.
    pub fn moves(&self) -> [usize; 2] {
        let (me, truth) = (thread::current().id(), self.truth.lock());
        let own = truth.1.iter().filter(|by| **by == me).count();
        [own, truth.1.len() - own]
    }

    pub(super) fn load_wrongly(&self) -> Option<Stock> {
        let load = || Stock::from_bits(self.units.load(Ordering::Acquire));
        if is_on(Fault::TwoLoads) {
            return Some(Stock { free: load().free, aside: load().aside });
        }
        is_on(Fault::AsideOverlooked).then(|| Stock { aside: 0, ..load() })
    }

    pub(super) fn store_wrongly(&self, bits: u64) -> bool {
        let on = is_on(Fault::BlindStore);
        if on {
            self.units.store(bits, Ordering::Release);
        }
        on
    }

    pub(super) fn settle_wrongly(&self, granted: u32, unused: u32) -> bool {
        let leave = |units: u32| self.units.fetch_sub(u64::from(units) << 32, Ordering::AcqRel);
        if is_on(Fault::UnusedKept) {
            return granted == 0;
        } else if is_on(Fault::UnusedLost) {
            leave(granted + unused);
        } else if is_on(Fault::SettleInTwoSteps) {
            leave(granted + unused);
            self.units.fetch_add(u64::from(unused), Ordering::AcqRel);
        } else {
            return false;
        }
        self.truth.moved();
        true
    }

    pub(super) fn give_back_wrongly(&self, units: u32) {
        if is_on(Fault::GivenBackTwice) {
            self.units.fetch_add(u64::from(units), Ordering::AcqRel);
        }
    }
}
