//! What time it is for a lane: the system's, or that of a simulation.

use std::time::{Duration, Instant};
use stockade_protocol::ids::TimestampMs;

/// See the module.
pub struct LaneClock {
    /// For spans: never runs back.
    pub now: Box<dyn Fn() -> Instant + Send>,
    /// For rows: the wall clock.
    pub wall: Box<dyn Fn() -> TimestampMs + Send>,
}

impl LaneClock {
    /// The system's clocks.
    pub fn system() -> Self {
        Self { now: Box::new(Instant::now), wall: Box::new(super::now) }
    }

    pub(super) fn now(&self) -> Instant {
        (self.now)()
    }

    pub(super) fn wall(&self) -> TimestampMs {
        (self.wall)()
    }

    /// How long ago that was.
    pub(super) fn since(&self, then: Instant) -> Duration {
        self.now().saturating_duration_since(then)
    }
}

impl std::fmt::Debug for LaneClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LaneClock")
    }
}
