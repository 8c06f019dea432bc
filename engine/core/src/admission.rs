//! Admission by rate: the generic cell rate algorithm (a token bucket that is one number).
//!
//! A bucket holds the moment at which it would be full again, in ns since the epoch. A reserve is
//! let through if that moment is not further away than the burst allows, and then moves it one
//! interval on. The clock ticks in ms, so a tick's worth of the rate may always come together.
//! Buckets are volatile: a restart begins with full ones.

use crate::hash::FixedMap;
use crate::sync::{AtomicU64, Ordering};
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::{SaleId, UserId};

const NS_PER_MS: u64 = 1_000_000;
const NS_PER_S: u64 = 1_000_000_000;
/// Users' buckets are looked through for full ones when there are this many more than last time.
const SWEEP_USERS: usize = 1024;

/// A rate with its burst.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rate {
    interval_ns: u64,
    /// How far ahead the bucket's moment may be.
    ahead_ns: u64,
}

impl Rate {
    /// `None` for a rate of 0: no limit. A burst of 0 is a tenth of a second's worth, at least 1.
    pub(crate) fn new(rate_per_s: u32, burst: u32) -> Option<Self> {
        if rate_per_s == 0 {
            return None;
        }
        let burst = if burst == 0 { (rate_per_s / 10).max(1) } else { burst };
        let interval_ns = NS_PER_S.div_ceil(u64::from(rate_per_s));
        // At most 10^9 * (2^32 - 1), which fits 63 bits.
        let ahead_ns = interval_ns * u64::from(burst - 1) + (NS_PER_MS - 1);
        Some(Self { interval_ns, ahead_ns })
    }

    /// The bucket's next moment, or in how many ms a retry makes sense.
    fn step(self, moment_ns: u64, now: TimestampMs) -> Result<u64, u32> {
        let now_ns = now.get().saturating_mul(NS_PER_MS);
        let ahead = moment_ns.saturating_sub(now_ns);
        if ahead > self.ahead_ns {
            let wait_ms = (ahead - self.ahead_ns).div_ceil(NS_PER_MS);
            return Err(u32::try_from(wait_ms).unwrap_or(u32::MAX));
        }
        Ok(moment_ns.max(now_ns).saturating_add(self.interval_ns))
    }
}

/// The bucket of a sale, shared by all shards.
#[derive(Debug, Default)]
pub struct Bucket(AtomicU64);

impl Bucket {
    /// Would a reserve be let through now? If not: in how many ms.
    pub(crate) fn peek(&self, rate: Rate, now: TimestampMs) -> Result<(), u32> {
        rate.step(self.0.load(Ordering::Relaxed), now).map(|_| ())
    }

    /// Takes one, or says in how many ms there may be one.
    pub(crate) fn take(&self, rate: Rate, now: TimestampMs) -> Result<(), u32> {
        let mut moment = self.0.load(Ordering::Relaxed);
        loop {
            let next = rate.step(moment, now)?;
            let order = Ordering::Relaxed;
            match self.0.compare_exchange_weak(moment, next, order, order) {
                Ok(_) => return Ok(()),
                Err(other) => moment = other,
            }
        }
    }
}

/// The buckets of the users of one shard. A full bucket is the same as none, so full ones are
/// dropped whenever the table has doubled.
#[derive(Debug, Default)]
pub(crate) struct UserBuckets {
    moments: FixedMap<(SaleId, UserId), u64>,
    sweep_at: usize,
}

impl UserBuckets {
    /// See [`Bucket::peek`].
    pub(crate) fn peek(
        &self,
        key: (SaleId, UserId),
        rate: Rate,
        now: TimestampMs,
    ) -> Result<(), u32> {
        let moment = self.moments.get(&key).copied().unwrap_or(0);
        rate.step(moment, now).map(|_| ())
    }

    /// See [`Bucket::take`].
    pub(crate) fn take(
        &mut self,
        key: (SaleId, UserId),
        rate: Rate,
        now: TimestampMs,
    ) -> Result<(), u32> {
        if self.moments.len() >= self.sweep_at.max(SWEEP_USERS) {
            let now_ns = now.get().saturating_mul(NS_PER_MS);
            self.moments.retain(|_, moment| *moment > now_ns);
            self.sweep_at = self.moments.len() * 2 + SWEEP_USERS;
        }
        let moment = self.moments.entry(key).or_insert(0);
        *moment = rate.step(*moment, now)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `tries` reserves at each of these times are let through.
    fn passed(rate: Rate, tries: usize, times_ms: &[u64]) -> Vec<usize> {
        let bucket = Bucket::default();
        let at = |ms| TimestampMs::new(1_700_000_000_000 + ms);
        let count = |ms: &u64| (0..tries).filter(|_| bucket.take(rate, at(*ms)).is_ok()).count();
        times_ms.iter().map(count).collect()
    }

    #[test]
    fn a_bucket_lets_the_burst_through_and_then_the_rate() {
        let rate = |per_s, burst| Rate::new(per_s, burst).expect("not 0");
        assert_eq!(passed(rate(1, 1), 3, &[0, 999, 1000, 1001, 5000]), [1, 0, 1, 0, 1]);
        assert_eq!(passed(rate(10, 3), 9, &[0, 50, 100, 1000]), [3, 0, 1, 3]);
        assert_eq!(passed(rate(100, 0), 99, &[0, 10, 1000]), [10, 1, 10]);
        assert_eq!(passed(rate(2000, 1), 9, &[0, 1, 2]), [2, 2, 2]);
        assert!(Rate::new(0, 5).is_none());
    }

    #[test]
    fn a_refusal_says_when_to_come_back() {
        let rate = Rate::new(2, 1).expect("not 0");
        let bucket = Bucket::default();
        let at = |ms| TimestampMs::new(1_700_000_000_000 + ms);
        assert_eq!(bucket.take(rate, at(0)), Ok(()));
        let wait = bucket.take(rate, at(100)).expect_err("one is out");
        assert!(bucket.take(rate, at(100 + u64::from(wait) - 1)).is_err());
        assert_eq!(bucket.take(rate, at(100 + u64::from(wait))), Ok(()));
    }

    #[test]
    fn full_user_buckets_are_dropped() {
        let rate = Rate::new(10, 1).expect("not 0");
        let sale = SaleId::new(1).expect("in range");
        let mut buckets = UserBuckets::default();
        for n in 1..100_000u64 {
            let user = UserId::new(n).expect("in range");
            buckets.take((sale, user), rate, TimestampMs::new(n)).expect("the first");
        }
        assert!(buckets.moments.len() < 4096, "{}", buckets.moments.len());
    }
}
