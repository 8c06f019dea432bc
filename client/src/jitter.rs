//! Waiting times that spread: full jitter, so that clients which lost a server together do not come
//! back together.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use stockade_protocol::routing::mix;

/// Told apart within a process: two generators made at the same instant differ.
static SERIAL: AtomicU64 = AtomicU64::new(0);

/// A small generator for waiting times; nothing else may rest on it.
#[derive(Debug)]
pub(crate) struct Jitter(u64);

impl Jitter {
    /// One with its own seed.
    pub fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let process = u64::from(std::process::id()) << 32;
        let serial = mix(SERIAL.fetch_add(1, Ordering::Relaxed));
        Self(now.as_nanos() as u64 ^ process ^ serial)
    }

    /// Evenly spread below `most`.
    pub fn below(&mut self, most: Duration) -> Duration {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        most.mul_f64((mix(self.0) >> 11) as f64 / (1u64 << 53) as f64)
    }

    /// When to come back to a server that says "in so many ms": not before, and spread over twice
    /// that time, so that the clients of one server do not come in the same instant.
    pub fn come_back(&mut self, hint: Duration) -> Duration {
        hint + self.below(hint * 2)
    }
}

/// Exponential back-off with full jitter, also at the cap.
#[derive(Debug)]
pub(crate) struct Backoff {
    base: Duration,
    cap: Duration,
    jitter: Jitter,
    failures: u32,
}

impl Backoff {
    /// The first wait is below `base`, each next below twice as much, none above `cap`.
    pub fn new(base: Duration, cap: Duration) -> Self {
        Self { base, cap, jitter: Jitter::new(), failures: 0 }
    }

    /// How long to wait after one more failure.
    pub fn next_wait(&mut self) -> Duration {
        let most = self.base.saturating_mul(1 << self.failures.min(20)).min(self.cap);
        self.failures = self.failures.saturating_add(1);
        self.jitter.below(most)
    }

    /// It worked.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Duration = Duration::from_millis(10);
    const CAP: Duration = Duration::from_secs(1);

    #[test]
    fn waits_are_spread_below_a_growing_bound() {
        let mut backoff = Backoff::new(BASE, CAP);
        let waits: Vec<Duration> = (0..200).map(|_| backoff.next_wait()).collect();
        assert!(waits[0] < BASE && waits.iter().all(|wait| *wait < CAP));
        let late = &waits[100..];
        assert!(late.iter().any(|wait| *wait < CAP / 2) && late.iter().any(|w| *w > CAP / 2));
        backoff.reset();
        assert!(backoff.next_wait() < BASE);
    }

    /// Ten thousand clients that lost one server: no tenth of a second sees more than one in
    /// sixteen of them come back, neither at the cap nor after a GOAWAY that says "in a second".
    #[test]
    fn clients_that_lost_a_server_together_do_not_come_back_together() {
        let most_in_a_bucket = |waits: &[Duration]| {
            let mut buckets = std::collections::BTreeMap::new();
            for wait in waits {
                *buckets.entry(wait.as_millis() / 100).or_insert(0usize) += 1;
            }
            buckets.into_values().max().unwrap_or(0)
        };
        let hint = Duration::from_secs(1);
        let told: Vec<Duration> = (0..10_000).map(|_| Jitter::new().come_back(hint)).collect();
        assert!(told.iter().all(|wait| (hint..hint * 3).contains(wait)));
        assert!(most_in_a_bucket(&told) < 625, "{}", most_in_a_bucket(&told));
        let mut lost = Vec::new();
        for _ in 0..10_000 {
            let mut backoff = Backoff::new(BASE, CAP * 2);
            for _ in 0..20 {
                backoff.next_wait();
            }
            lost.push(backoff.next_wait());
        }
        assert!(most_in_a_bucket(&lost) < 625, "{}", most_in_a_bucket(&lost));
    }
}
