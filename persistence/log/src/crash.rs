//! Named points at which tests let the process die.
//!
//! Compiled in only with the feature `crash-points`: `STOCKADE_CRASH_AT=after_sync` aborts at the
//! first time, `STOCKADE_CRASH_AT=after_sync:17` at the 17th. Points: `before_write`,
//! `after_write`, `after_sync`, `in_roll` (commit), `in_archive`, `in_snapshot`, `in_trim`
//! (archiver: between what was made durable and what that makes superfluous), `in_recovery` (a
//! start: between archiving and the floor, and between the floor and the deletions).

/// Dies here if the environment says so.
#[cfg(not(feature = "crash-points"))]
#[inline(always)]
pub fn point(_name: &'static str) {}

/// Dies here if the environment says so.
#[cfg(feature = "crash-points")]
pub fn point(name: &'static str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    static WANTED: OnceLock<Option<(String, u64)>> = OnceLock::new();
    static LEFT: AtomicU64 = AtomicU64::new(0);
    let wanted = WANTED.get_or_init(|| {
        let value = std::env::var("STOCKADE_CRASH_AT").ok()?;
        let (name, count) = value.split_once(':').unwrap_or((&value, "1"));
        let count = count.parse().expect("STOCKADE_CRASH_AT is NAME or NAME:COUNT");
        LEFT.store(count, Ordering::Relaxed);
        Some((name.to_owned(), count))
    });
    if wanted.as_ref().is_some_and(|(wanted, _)| wanted == name)
        && LEFT.fetch_sub(1, Ordering::AcqRel) == 1
    {
        eprintln!("crash point {name}");
        std::process::abort();
    }
}
