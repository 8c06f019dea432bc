//! Telling the engine what is in SQL for good.
//!
//! A user partition belongs to one lane, which acknowledges it. The catalog is in every database:
//! its cursor is the lowest of all lanes', and a lane that has not begun holds it at nothing.

use super::Lane;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use stockade_protocol::{Lsn, PartitionId};

/// Under load the engine is told at most this often.
const ACK_EVERY: Duration = Duration::from_millis(100);

/// Where the catalog stands in each database; shared by all lanes.
#[derive(Clone, Debug)]
pub struct CatalogAcks(Arc<Mutex<Vec<Lsn>>>);

impl CatalogAcks {
    /// For this many lanes, none of which has begun.
    pub fn new(lanes: usize) -> Self {
        Self(Arc::new(Mutex::new(vec![Lsn::NONE; lanes])))
    }

    /// A lane's database has the catalog up to here; returns up to where all have it.
    fn reached(&self, lane: u16, lsn: Lsn) -> Lsn {
        let mut lanes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lanes[usize::from(lane)] = lsn;
        lanes.iter().copied().min().unwrap_or_default()
    }
}

/// When the engine was told last.
#[derive(Debug)]
pub(super) struct AckClock(Option<Instant>);

impl AckClock {
    pub(super) const fn new() -> Self {
        Self(None)
    }
}

impl Lane {
    /// Tells the engine, unless it was told a moment ago.
    pub(super) fn ack_when_due(&mut self) {
        if self.ack_clock.0.is_none_or(|at| self.clock.since(at) >= ACK_EVERY) {
            self.ack();
        }
    }

    /// Tells the engine everything that it does not know yet. A failure is found by the next read.
    pub(super) fn ack(&mut self) {
        let mut cursors: Vec<(PartitionId, Lsn)> = Vec::new();
        for (partition, lsn) in &self.committed {
            let lsn = match *partition {
                PartitionId::CATALOG => self.acks.reached(self.index, *lsn),
                _ => *lsn,
            };
            if self.acked.get(partition).copied().unwrap_or_default() < lsn {
                cursors.push((*partition, lsn));
            }
        }
        let Some(source) = self.source.as_mut().filter(|_| !cursors.is_empty()) else { return };
        self.ack_clock.0 = Some(self.clock.now());
        match source.ack(&cursors) {
            Ok(()) => self.acked.extend(cursors),
            Err(error) => {
                tracing::warn!(%error, "the engine was not told");
                self.source = None;
            }
        }
    }
}
