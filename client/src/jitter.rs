//! Waiting times that spread: full jitter, so that clients which lost a server together do not come
//! back together.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const BASE: Duration = Duration::from_millis(10);
const MOST: Duration = Duration::from_secs(1);

/// Exponential back-off with full jitter, also at the cap.
#[derive(Debug)]
pub struct Backoff {
    state: u64,
    failures: u32,
}

impl Backoff {
    /// One with its own seed.
    pub fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seed = now.as_nanos() as u64 ^ u64::from(std::process::id()) << 32;
        Self { state: seed ^ std::ptr::from_ref(&now) as u64, failures: 0 }
    }

    /// How long to wait after one more failure.
    pub fn next_wait(&mut self) -> Duration {
        let most = BASE.saturating_mul(1 << self.failures.min(10)).min(MOST);
        self.failures += 1;
        self.state = stockade_protocol::routing::mix(self.state.wrapping_add(1));
        most.mul_f64((self.state >> 11) as f64 / (1u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_spread_below_a_growing_bound() {
        let mut backoff = Backoff::new();
        let waits: Vec<Duration> = (0..200).map(|_| backoff.next_wait()).collect();
        assert!(waits[0] < BASE && waits.iter().all(|wait| *wait < MOST));
        let late = &waits[100..];
        assert!(late.iter().any(|wait| *wait < MOST / 2) && late.iter().any(|w| *w > MOST / 2));
    }
}
