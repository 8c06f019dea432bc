//! How long to wait for what is away: 20 ms, doubling to 5 s, with jitter, for ever.

use std::fmt::Display;
use std::time::Duration;

const FIRST_MS: u64 = 20;
const MS_MAX: u64 = 5_000;

/// See the module.
#[derive(Debug)]
pub(super) struct Backoff {
    next_ms: u64,
    random: u64,
}

impl Backoff {
    /// Lanes with different seeds do not come back in step.
    pub(super) fn new(seed: u64) -> Self {
        Self { next_ms: FIRST_MS, random: seed.wrapping_add(u64::from(std::process::id())) }
    }

    /// It is there again.
    pub(super) const fn reset(&mut self) {
        self.next_ms = FIRST_MS;
    }

    /// The next wait: between half and all of the present step.
    pub(super) fn next(&mut self) -> Duration {
        let step = self.next_ms;
        self.next_ms = (step * 2).min(MS_MAX);
        self.random = stockade_protocol::routing::mix(self.random.wrapping_add(step));
        Duration::from_millis(step / 2 + self.random % (step / 2 + 1))
    }

    /// Says that something is away; loudly once the waits are long.
    pub(super) fn warn(&self, who: &str, error: &dyn Display) {
        if self.next_ms >= MS_MAX {
            tracing::error!(who, %error, "still away, trying again");
        } else {
            tracing::warn!(who, %error, "away, trying again");
        }
    }
}
