//! The circuit breaker: a refused row gives a customer's order back, so refusals by the thousand
//! are a broken migration and not customers.
//!
//! It trips before anything is written or cancelled. Pure: the time comes from outside.

use std::collections::VecDeque;
use stockade_protocol::ids::TimestampMs;

/// How many refusals are still believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BreakerLimits {
    /// Refused orders of one batch, in percent of its orders.
    pub batch_percent_max: u32,
    /// The percentage only counts above this many refused orders of one batch.
    pub batch_free_max: usize,
    /// Refused orders within a minute.
    pub minute_max: usize,
}

impl Default for BreakerLimits {
    fn default() -> Self {
        Self { batch_percent_max: 10, batch_free_max: 20, minute_max: 200 }
    }
}

/// More refusals than are believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{refused} of {orders} orders of a batch are refused ({minute} within a minute): this looks \
     like a changed schema, not like customers; nothing was written or cancelled"
)]
pub struct Tripped {
    /// Refused in this batch.
    pub refused: usize,
    /// Orders of this batch.
    pub orders: usize,
    /// Refused within a minute, these included.
    pub minute: usize,
}

const MINUTE_MS: u64 = 60_000;

/// See the module.
#[derive(Debug)]
pub struct Breaker {
    limits: BreakerLimits,
    /// When and how many; at most one element a batch with refusals, so at most `minute_max` of
    /// them.
    recent: VecDeque<(TimestampMs, usize)>,
}

impl Breaker {
    /// A closed breaker.
    pub const fn new(limits: BreakerLimits) -> Self {
        Self { limits, recent: VecDeque::new() }
    }

    /// May a batch of `orders` with `refused` of them be committed?
    ///
    /// # Errors
    /// No: see [`Tripped`].
    pub fn check(&self, now: TimestampMs, refused: usize, orders: usize) -> Result<(), Tripped> {
        let within = |at: TimestampMs| now.since(at) < MINUTE_MS;
        let before: usize = self.recent.iter().filter(|(at, _)| within(*at)).map(|(_, n)| n).sum();
        let minute = before + refused;
        let share = refused as u64 * 100 > orders as u64 * u64::from(self.limits.batch_percent_max);
        let many = refused > self.limits.batch_free_max && share;
        if refused > 0 && (many || minute > self.limits.minute_max) {
            return Err(Tripped { refused, orders, minute });
        }
        Ok(())
    }

    /// True if something was refused within a minute: the next batch may have more of it.
    pub fn is_recent(&self, now: TimestampMs) -> bool {
        self.recent.back().is_some_and(|(at, _)| now.since(*at) < MINUTE_MS)
    }

    /// A batch was committed.
    pub fn record(&mut self, now: TimestampMs, refused: usize) {
        self.recent.retain(|(at, _)| now.since(*at) < MINUTE_MS);
        if refused > 0 {
            self.recent.push_back((now, refused));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breaker_trips_on_share_of_a_batch_and_on_a_minutes_sum() {
        let limits = BreakerLimits { batch_percent_max: 10, batch_free_max: 5, minute_max: 30 };
        let cases = [
            // refused, orders, refused before, trips
            (0, 0, 0, false),
            (5, 5, 0, false),
            (6, 6, 0, true),
            (6, 60, 0, false),
            (7, 60, 0, true),
            (1, 1000, 29, false),
            (1, 1000, 30, true),
            (0, 1000, 500, false),
        ];
        for (refused, orders, before, trips) in cases {
            let mut breaker = Breaker::new(limits);
            breaker.record(TimestampMs::new(1_000), before);
            let answer = breaker.check(TimestampMs::new(60_999), refused, orders);
            assert_eq!(answer.is_err(), trips, "{refused} of {orders} after {before}");
        }
        let mut breaker = Breaker::new(limits);
        breaker.record(TimestampMs::new(1_000), 30);
        assert!(breaker.check(TimestampMs::new(61_000), 1, 1000).is_ok(), "a minute later");
    }
}
