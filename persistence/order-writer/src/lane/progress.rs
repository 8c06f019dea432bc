//! What a lane did, for the log: a line every ten seconds of work.

use crate::pipeline::Batch;
use crate::sink::transaction::Applied;
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug)]
pub(super) struct Progress {
    database: String,
    since: Instant,
    entries: usize,
    orders: usize,
    batches: usize,
    writing: Duration,
    entries_all: u64,
}

impl Progress {
    pub(super) fn new(database: String) -> Self {
        Self {
            database,
            since: Instant::now(),
            entries: 0,
            orders: 0,
            batches: 0,
            writing: Duration::ZERO,
            entries_all: 0,
        }
    }

    /// A batch was committed.
    pub(super) fn wrote(&mut self, batch: &Batch, applied: &Applied, started: Instant) {
        if applied.stale > 0 {
            tracing::warn!(rows = applied.stale, "changes were in their rows already");
        }
        self.entries += batch.events;
        self.orders += applied.orders;
        self.batches += 1;
        self.writing += started.elapsed();
        self.entries_all += batch.events as u64;
        if self.since.elapsed() >= EVERY {
            self.say();
        }
    }

    /// Nothing to do now.
    pub(super) fn idle(&mut self) {
        if self.batches == 0 {
            self.since = Instant::now();
        } else if self.since.elapsed() >= EVERY {
            self.say();
        }
    }

    /// The lane ends.
    pub(super) fn finish(&mut self) {
        if self.batches > 0 {
            self.say();
        }
    }

    fn say(&mut self) {
        let writing = self.writing.as_secs_f64().max(1e-9);
        tracing::info!(
            database = self.database,
            entries = self.entries,
            entries_all = self.entries_all,
            orders = self.orders,
            batches = self.batches,
            orders_per_s_of_writing = (self.orders as f64 / writing) as u64,
            seconds = self.since.elapsed().as_secs(),
            "written"
        );
        (self.entries, self.orders, self.batches) = (0, 0, 0);
        (self.writing, self.since) = (Duration::ZERO, Instant::now());
    }
}
