//! The free units of a SKU: one lock-free word per SKU and node, shared by all shards.
//!
//! The word holds `free` (units in no order and with no shard) and `aside` (units that some shard has
//! taken for its present turn, in no order yet). It is volatile: recovery computes
//! free = total - held - confirmed. Invariant: free + aside + (units in orders, durable or not, and
//! units whose give-back is not durable) = total.

use core::sync::atomic::AtomicU64;
use crossbeam_utils::CachePadded;

/// One load of a stock word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stock {
    /// Units anybody may take.
    pub free: u32,
    /// Units that a shard has taken for its turn.
    pub aside: u32,
}

/// The word of one SKU.
#[derive(Debug)]
pub struct StockWord(CachePadded<AtomicU64>);

impl StockWord {
    /// A word with these free units and nothing aside.
    pub fn new(free: u32) -> Self {
        Self(CachePadded::new(AtomicU64::new(u64::from(free))))
    }

    /// The two numbers at one instant.
    pub fn load(&self) -> Stock {
        todo!()
    }

    /// Moves up to `asked` units from free to aside; says how many.
    pub fn set_aside(&self, asked: u32) -> u32 {
        let _ = asked;
        todo!()
    }

    /// Ends a turn: `granted` units leave aside into orders, `unused` go back to free.
    pub fn settle(&self, granted: u32, unused: u32) {
        let _ = (granted, unused);
        todo!()
    }

    /// Units given back by a durable entry join free.
    pub fn give_back(&self, units: u32) {
        let _ = units;
        todo!()
    }
}
