//! When holds run out: a heap in the order (deadline, order), the same for the same inputs.
//!
//! A hold that ends or moves leaves its timer behind; the heap counts such stale timers and is
//! swept when they outnumber the others, so that each costs a constant share and none pile up.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;
use stockade_protocol::OrderId;
use stockade_protocol::ids::TimestampMs;

/// Below this many stale timers a sweep is not worth it.
const STALE_MIN: usize = 1024;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(TimestampMs, OrderId)>>,
    /// How many of them are stale; more may be (those of archived sales).
    stale: usize,
}

impl Timers {
    pub(crate) fn push(&mut self, at: TimestampMs, order: OrderId) {
        self.heap.push(Reverse((at, order)));
    }

    /// A timer in the heap is stale from now on.
    pub(crate) fn went_stale(&mut self) {
        self.stale += 1;
    }

    pub(crate) fn peek(&self) -> Option<(TimestampMs, OrderId)> {
        self.heap.peek().map(|Reverse(timer)| *timer)
    }

    /// Drops the first timer, whose hold has ended or moved.
    pub(crate) fn pop_stale(&mut self) {
        self.heap.pop();
        self.stale = self.stale.saturating_sub(1);
    }

    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    pub(crate) fn wants_sweep(&self) -> bool {
        self.stale >= STALE_MIN && self.stale > self.heap.len() / 2
    }

    /// Drops the timers that are not live any more.
    pub(crate) fn sweep(&mut self, is_live: impl Fn(OrderId, TimestampMs) -> bool) {
        self.heap.retain(|Reverse((at, order))| is_live(*order, *at));
        if self.heap.capacity() > 4 * self.heap.len() + STALE_MIN {
            self.heap.shrink_to(2 * self.heap.len());
        }
        self.stale = 0;
    }
}
