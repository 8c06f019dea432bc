//! Collecting a batch from the feed.

use super::{IDLE_WAIT, Lane, LaneEnd};
use crate::source::Run;
use std::time::{Duration, Instant};

/// Below this a batch waits for more entries, within the linger time.
const BATCH_EVENTS_SMALL: usize = 1_000;

impl Lane {
    /// Takes entries until the batch is full or no more come. False if the engine went away and
    /// nothing was gathered.
    pub(super) fn gather(&mut self) -> Result<bool, LaneEnd> {
        let mut until: Option<Instant> = None;
        loop {
            let events = self.batcher.events();
            if events >= self.options.batch_events_max || self.stop.is_set() {
                return Ok(true);
            }
            if let Some(entry) = self.carry.pop_front() {
                self.batcher.push(&entry)?;
                until.get_or_insert_with(|| self.clock.now() + self.options.linger);
                continue;
            }
            let wait = match until {
                None => IDLE_WAIT,
                Some(_) if events >= BATCH_EVENTS_SMALL => Duration::ZERO,
                Some(until) => until.saturating_duration_since(self.clock.now()),
            };
            let Some(source) = &mut self.source else { return Ok(false) };
            match source.next(wait) {
                Ok(Some(Run::Entries(entries))) => self.carry.extend(entries),
                Ok(Some(Run::Gap { partition, from, to })) => {
                    self.batcher.gap(partition, from, to)?;
                }
                Ok(None) => return Ok(true),
                Err(error) => {
                    self.engine_failed(&error)?;
                    return Ok(self.batcher.events() > 0);
                }
            }
        }
    }
}
