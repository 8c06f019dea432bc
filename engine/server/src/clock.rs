//! The engine's clock: one a process, never runs back.
//!
//! It starts at the later of the wall clock and the newest timestamp in the log and goes on with
//! monotonic time. A wall clock that steps later is noticed and told, and moves nothing. A
//! simulation tells the clock how much time has passed ([`Clock::stepped`]); all else is the same.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use stockade_protocol::ids::TimestampMs;

/// How far the log may be ahead of the wall clock at start before it is worth a warning, ms.
const AHEAD_MS_MAX: u64 = 5_000;
/// A change of the wall clock against monotonic time of this much is a step, ms.
const STEP_MS_MIN: i64 = 1_000;

/// See the module.
#[derive(Debug)]
pub struct Clock {
    base: TimestampMs,
    elapsed: Elapsed,
    /// How far the wall clock was ahead of this one when last looked at, ms.
    ahead_ms: AtomicI64,
    steps: AtomicU64,
}

/// Where the time since the start comes from.
#[derive(Debug)]
enum Elapsed {
    Monotonic(Instant),
    /// Milliseconds, as told.
    Told(AtomicU64),
}

impl Clock {
    /// A clock that starts now; with a warning if the log is far ahead of the wall clock.
    pub fn start(wall: TimestampMs, newest: TimestampMs) -> (Self, Option<String>) {
        Self::make(wall, newest, Elapsed::Monotonic(Instant::now()))
    }

    /// As [`Self::start`], but time passes only by [`Self::tell_elapsed`].
    pub fn stepped(wall: TimestampMs, newest: TimestampMs) -> (Self, Option<String>) {
        Self::make(wall, newest, Elapsed::Told(AtomicU64::new(0)))
    }

    /// So much time has passed since the start of a stepped clock; it never goes back. A clock that
    /// runs by itself is not moved.
    pub fn tell_elapsed(&self, elapsed: Duration) {
        if let Elapsed::Told(told) = &self.elapsed {
            told.fetch_max(elapsed.as_millis() as u64, Ordering::Relaxed);
        }
    }

    fn make(wall: TimestampMs, newest: TimestampMs, elapsed: Elapsed) -> (Self, Option<String>) {
        let base = wall.max(newest);
        #[cfg(feature = "mutations")]
        let base = if stockade_protocol::mutation::is(
            stockade_protocol::mutation::Mutation::ClockForgetsLog,
        ) {
            wall
        } else {
            base
        };
        let behind_ms = newest.since(wall);
        let warning = (behind_ms > AHEAD_MS_MAX).then(|| {
            format!(
                "the wall clock is {behind_ms} ms behind the newest entry of the log; \
                 the engine goes on from the log's time"
            )
        });
        let clock = Self {
            base,
            elapsed,
            ahead_ms: AtomicI64::new(difference_ms(wall, base)),
            steps: AtomicU64::new(0),
        };
        (clock, warning)
    }

    /// The time now.
    pub fn now(&self) -> TimestampMs {
        match &self.elapsed {
            Elapsed::Monotonic(started) => self.at(started.elapsed()),
            Elapsed::Told(ms) => self.at(Duration::from_millis(ms.load(Ordering::Relaxed))),
        }
    }

    fn at(&self, elapsed: Duration) -> TimestampMs {
        // A process does not run for 2^64 ms.
        self.base.after_ms(elapsed.as_millis() as u64)
    }

    /// How long from `now` to `moment`; zero if it has come.
    pub fn until(&self, moment: TimestampMs) -> Duration {
        Duration::from_millis(moment.since(self.now()))
    }

    /// Compares with the wall clock; by how much it stepped since the last look, if it did.
    pub fn notice(&self, wall: TimestampMs) -> Option<i64> {
        self.notice_at(wall, self.now())
    }

    fn notice_at(&self, wall: TimestampMs, now: TimestampMs) -> Option<i64> {
        let ahead_ms = difference_ms(wall, now);
        let step_ms = ahead_ms - self.ahead_ms.load(Ordering::Relaxed);
        if step_ms.abs() < STEP_MS_MIN {
            return None;
        }
        self.ahead_ms.store(ahead_ms, Ordering::Relaxed);
        self.steps.fetch_add(1, Ordering::Relaxed);
        Some(step_ms)
    }

    /// Steps noticed since the start.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }
}

/// The operating system's clock.
pub fn wall() -> TimestampMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TimestampMs::new(since.as_millis() as u64)
}

fn difference_ms(a: TimestampMs, b: TimestampMs) -> i64 {
    // Both lie far below 2^62 ms.
    a.get() as i64 - b.get() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(value: u64) -> TimestampMs {
        TimestampMs::new(value)
    }

    #[test]
    fn the_later_of_wall_and_log_wins_and_far_ahead_warns() {
        for (wall, newest, base, warns) in [
            (10_000, 0, 10_000, false),
            (10_000, 9_000, 10_000, false),
            (10_000, 15_000, 15_000, false),
            (10_000, 15_001, 15_001, true),
        ] {
            let (clock, warning) = Clock::start(ms(wall), ms(newest));
            assert_eq!(clock.at(Duration::ZERO), ms(base));
            assert_eq!(warning.is_some(), warns, "{wall} {newest}");
        }
    }

    #[test]
    fn time_follows_monotonic_time_and_never_the_wall_clock() {
        let (clock, _) = Clock::start(ms(10_000), ms(0));
        assert_eq!(clock.at(Duration::from_millis(77)), ms(10_077));
        assert_eq!(clock.notice_at(ms(3_610_077), ms(10_077)), Some(3_600_000));
        assert_eq!(clock.at(Duration::from_millis(78)), ms(10_078));
    }

    #[test]
    fn a_stepped_clock_moves_only_when_told_and_never_back() {
        let (clock, _) = Clock::stepped(ms(10_000), ms(12_000));
        assert_eq!(clock.now(), ms(12_000));
        clock.tell_elapsed(Duration::from_millis(30));
        clock.tell_elapsed(Duration::from_millis(10));
        assert_eq!(clock.now(), ms(12_030));
    }

    #[test]
    fn a_step_of_the_wall_clock_is_noticed_once() {
        let (clock, _) = Clock::start(ms(10_000), ms(0));
        assert_eq!(clock.notice_at(ms(10_500), ms(10_100)), None);
        assert_eq!(clock.notice_at(ms(5_000), ms(10_100)), Some(-5_100));
        assert_eq!(clock.notice_at(ms(6_000), ms(11_100)), None);
        assert_eq!(clock.steps(), 1);
    }
}
