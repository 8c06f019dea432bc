//! When holds run out, in the order (deadline, order): the same for the same inputs.
//!
//! Deadlines that are far stand in buckets of 64 ms, which hold order ids only; a bucket whose time
//! has come moves into a heap and drains from there. A hold that ends or moves leaves its timer
//! behind; each bucket counts the others and is swept on its own when most of it is stale, so that
//! none pile up and no step is long. What is stale in the heap is gone when its time has passed.

use alloc::collections::{BTreeMap, BinaryHeap};
use alloc::vec::Vec;
use core::cmp::Reverse;
use stockade_protocol::OrderId;
use stockade_protocol::ids::TimestampMs;

/// Milliseconds of one bucket: at 100,000 holds a second it has some thousand orders.
const BUCKET_MS: u64 = 64;
/// A bucket with fewer stale timers than this is not worth a sweep.
const STALE_MIN: usize = 16;

#[derive(Debug, Default)]
struct Bucket {
    orders: Vec<OrderId>,
    /// How many of them are held until a moment of this bucket; at most too high.
    live: usize,
    /// It is to be swept.
    unswept: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    /// Deadlines of buckets up to `near_last`.
    near: BinaryHeap<Reverse<(TimestampMs, OrderId)>>,
    near_last: Option<u64>,
    far: BTreeMap<u64, Bucket>,
    /// Buckets to sweep.
    unswept: Vec<u64>,
}

const fn bucket_of(at: TimestampMs) -> u64 {
    at.get() / BUCKET_MS
}

impl Timers {
    fn is_near(&self, bucket: u64) -> bool {
        self.near_last.is_some_and(|last| bucket <= last)
    }

    pub(crate) fn push(&mut self, at: TimestampMs, order: OrderId) {
        let bucket = bucket_of(at);
        if self.is_near(bucket) {
            self.near.push(Reverse((at, order)));
        } else {
            let bucket = self.far.entry(bucket).or_default();
            bucket.orders.push(order);
            bucket.live += 1;
        }
    }

    /// The order is not held until then any more.
    pub(crate) fn went_stale(&mut self, at: TimestampMs) {
        let key = bucket_of(at);
        if self.is_near(key) {
            return;
        }
        let bucket = self.far.get_mut(&key).expect("a held order has a timer");
        bucket.live = bucket.live.checked_sub(1).expect("a held order has a timer");
        let stale = bucket.orders.len().saturating_sub(bucket.live);
        if bucket.live == 0 {
            self.far.remove(&key);
        } else if !bucket.unswept && stale >= STALE_MIN && stale > bucket.live {
            bucket.unswept = true;
            self.unswept.push(key);
        }
    }

    /// The first timer that may be due at `now`: its hold may have ended or moved.
    /// `deadline_of` says until when an order is held.
    pub(crate) fn due(
        &mut self,
        now: TimestampMs,
        deadline_of: impl Fn(OrderId) -> Option<TimestampMs>,
    ) -> Option<(TimestampMs, OrderId)> {
        loop {
            if let Some(Reverse(timer)) = self.near.peek() {
                return (timer.0 < now).then_some(*timer);
            }
            let entry = self.far.first_entry()?;
            if *entry.key() > bucket_of(now) {
                return None;
            }
            let (key, bucket) = entry.remove_entry();
            self.near_last = Some(key);
            let live = bucket.orders.into_iter().filter_map(|order| {
                let at = deadline_of(order).filter(|at| bucket_of(*at) == key)?;
                Some(Reverse((at, order)))
            });
            self.near.extend(live);
        }
    }

    /// Drops the timer that [`Self::due`] named.
    pub(crate) fn pop(&mut self) {
        self.near.pop();
    }

    /// The earliest moment at which [`Self::due`] may name one.
    pub(crate) fn next(&self) -> Option<TimestampMs> {
        // The deadline itself still belongs to the hold.
        let near = self.near.peek().map(|Reverse((at, _))| at.after_ms(1));
        let far = || self.far.keys().next().map(|key| TimestampMs::new(key * BUCKET_MS + 1));
        near.or_else(far)
    }

    pub(crate) fn len(&self) -> usize {
        self.near.len() + self.far.values().map(|bucket| bucket.orders.len()).sum::<usize>()
    }

    /// Sweeps the buckets that need it.
    pub(crate) fn sweep(&mut self, deadline_of: impl Fn(OrderId) -> Option<TimestampMs>) {
        while let Some(key) = self.unswept.pop() {
            let Some(bucket) = self.far.get_mut(&key) else { continue };
            bucket
                .orders
                .retain(|order| deadline_of(*order).is_some_and(|at| bucket_of(at) == key));
            // An order that moved within the bucket stands in it twice.
            bucket.orders.sort_unstable();
            bucket.orders.dedup();
            bucket.orders.shrink_to(2 * bucket.orders.len());
            bucket.live = bucket.orders.len();
            bucket.unswept = false;
        }
    }
}
