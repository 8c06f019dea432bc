//! The free units of a SKU: one lock-free word per SKU and node, shared by all shards.
//!
//! The word holds `free` (units in no order and with no shard) and `aside` (units that some shard
//! has taken for its present turn, in no order yet). It is volatile: recovery computes free = total
//! - held - confirmed.
//!
//! Invariant: free, aside, units in orders (durable or not) and units whose give-back is not
//! durable add up to the total. Every arithmetic step is checked, in release too: a word that could
//! not follow a step means that units were counted twice, and the engine must stop.
//!
//! Only taking units is a loop, and it repeats only because another shard moved some; putting units
//! back and settling is one addition. So a shard that waits for another one's turn, and tries again
//! and again, cannot keep that turn from ending. The protocol is checked with loom and shuttle.

#[cfg(any(loom, shuttle))]
pub mod model;

use crate::sync::{AtomicU64, Ordering, hint};
use crossbeam_utils::CachePadded;
use stockade_protocol::ids::TimestampMs;

/// One load of a stock word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stock {
    /// Units anybody may take.
    pub free: u32,
    /// Units that a shard has taken for its turn.
    pub aside: u32,
}

impl Stock {
    const fn from_bits(bits: u64) -> Self {
        Self { free: bits as u32, aside: (bits >> 32) as u32 }
    }

    const fn to_bits(self) -> u64 {
        (self.aside as u64) << 32 | self.free as u64
    }
}

/// The word of one SKU, and when its units were last held.
#[derive(Debug)]
pub struct StockWord {
    units: CachePadded<AtomicU64>,
    held: CachePadded<HeldMeter>,
    #[cfg(any(loom, shuttle))]
    truth: model::Truth,
}

impl StockWord {
    /// A word with these free units and nothing aside.
    pub fn new(free: u32) -> Self {
        let stock = Stock { free, aside: 0 };
        Self {
            units: CachePadded::new(AtomicU64::new(stock.to_bits())),
            held: CachePadded::new(HeldMeter::new()),
            #[cfg(any(loom, shuttle))]
            truth: model::Truth::new(free),
        }
    }

    /// The two numbers at one instant.
    pub fn load(&self) -> Stock {
        #[cfg(any(loom, shuttle))]
        if let Some(stock) = self.load_wrongly() {
            return stock;
        }
        Stock::from_bits(self.units.load(Ordering::Acquire))
    }

    /// Moves up to `asked` units from free to aside; says how many.
    pub fn set_aside(&self, asked: u32) -> u32 {
        let mut bits = self.units.load(Ordering::Acquire);
        loop {
            let stock = Stock::from_bits(bits);
            let taken = stock.free.min(asked);
            if taken == 0 {
                return 0;
            }
            let aside = stock.aside.checked_add(taken).expect("free + aside is at most the total");
            let next = Stock { free: stock.free - taken, aside }.to_bits();
            #[cfg(any(loom, shuttle))]
            if self.store_wrongly(next) {
                return taken;
            }
            let swap =
                self.units.compare_exchange_weak(bits, next, Ordering::AcqRel, Ordering::Acquire);
            match swap {
                Ok(_) => return taken,
                Err(now) => bits = now,
            }
        }
    }

    /// Ends a turn: `granted` units leave aside into orders (or, of an adjust, the sale), `unused`
    /// go back to free. One step that cannot fail: whoever waits for these units cannot hinder it.
    ///
    /// # Panics
    /// Fewer units are aside: somebody settled what was not set aside.
    pub fn settle(&self, granted: u32, unused: u32) {
        #[cfg(any(loom, shuttle))]
        {
            self.truth.outside(-i64::from(granted));
            if self.settle_wrongly(granted, unused) {
                return;
            }
        }
        let both = granted.checked_add(unused).expect("an allotment is at most the total");
        let change = u64::from(unused).wrapping_sub(u64::from(both) << 32);
        let stock = Stock::from_bits(self.units.fetch_add(change, Ordering::AcqRel));
        assert!(stock.aside >= both, "only what is aside is settled");
        assert!(stock.free.checked_add(unused).is_some(), "free is at most the total");
        #[cfg(any(loom, shuttle))]
        self.truth.moved();
    }

    /// Units given back by a durable entry join free. One step that cannot fail.
    ///
    /// # Panics
    /// More than 2^32 - 1 units would be free: units were given back twice.
    pub fn give_back(&self, units: u32) {
        let stock = Stock::from_bits(self.units.fetch_add(u64::from(units), Ordering::AcqRel));
        assert!(stock.free.checked_add(units).is_some(), "free is at most the total");
        #[cfg(any(loom, shuttle))]
        {
            self.truth.outside(i64::from(units));
            self.give_back_wrongly(units);
            self.truth.moved();
        }
    }

    /// Recovery: this many units are free, none aside, `held` in held orders.
    pub(crate) fn reset(&self, free: u32, held: u64) {
        self.units.store(Stock { free, aside: 0 }.to_bits(), Ordering::Release);
        self.held.units.store(held, Ordering::Relaxed);
    }

    /// When units of the SKU were held.
    pub(crate) fn held(&self) -> &HeldMeter {
        &self.held
    }
}

/// How many units are held on the node, and when some were held last: what tells a buyer whether a
/// retry after `sold_out` makes sense. A hint: no promise rests on it.
#[derive(Debug)]
pub(crate) struct HeldMeter {
    units: hint::AtomicU64,
    seen_ms: hint::AtomicU64,
}

impl HeldMeter {
    const fn new() -> Self {
        Self { units: hint::AtomicU64::new(0), seen_ms: hint::AtomicU64::new(0) }
    }

    /// A shard's held units changed by this much. The sum of all shards never falls below 0.
    pub(crate) fn change(&self, delta: i64, now: TimestampMs) {
        if delta < 0 {
            self.seen_ms.fetch_max(now.get(), Ordering::Relaxed);
        }
        self.units.fetch_add(delta as u64, Ordering::Relaxed);
    }

    /// Units are held, or were up to `within_ms` ago.
    pub(crate) fn recently(&self, now: TimestampMs, within_ms: u64) -> bool {
        self.units.load(Ordering::Relaxed) > 0 || {
            let seen = TimestampMs::new(self.seen_ms.load(Ordering::Relaxed));
            seen != TimestampMs::NONE && now.since(seen) <= within_ms
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_only_move_between_free_and_aside() {
        let word = StockWord::new(10);
        assert_eq!(word.set_aside(4), 4);
        assert_eq!(word.set_aside(100), 6);
        assert_eq!(word.set_aside(1), 0);
        assert_eq!(word.load(), Stock { free: 0, aside: 10 });
        word.settle(3, 7);
        assert_eq!(word.load(), Stock { free: 7, aside: 0 });
        word.give_back(3);
        assert_eq!(word.load(), Stock { free: 10, aside: 0 });
    }

    #[test]
    fn the_largest_stock_fits() {
        let word = StockWord::new(u32::MAX);
        assert_eq!(word.set_aside(u32::MAX), u32::MAX);
        assert_eq!(word.load(), Stock { free: 0, aside: u32::MAX });
        word.settle(1, u32::MAX - 1);
        assert_eq!(word.load(), Stock { free: u32::MAX - 1, aside: 0 });
    }

    #[test]
    #[should_panic(expected = "only what is aside is settled")]
    fn settling_what_is_not_aside_stops_the_engine() {
        StockWord::new(5).settle(1, 0);
    }

    #[test]
    #[should_panic(expected = "free is at most the total")]
    fn giving_back_twice_past_the_bound_stops_the_engine() {
        StockWord::new(u32::MAX).give_back(1);
    }

    #[test]
    fn units_held_up_to_the_window_ago_are_told() {
        let word = StockWord::new(1);
        let at = TimestampMs::new;
        assert!(!word.held().recently(at(1000), 100));
        word.held().change(1, at(1000));
        assert!(word.held().recently(at(9000), 100));
        word.held().change(-1, at(9000));
        assert!(word.held().recently(at(9100), 100));
        assert!(!word.held().recently(at(9101), 100));
    }
}
