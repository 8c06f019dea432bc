//! Segments made ahead of their use, so that a commit never waits for one.
//!
//! A journal wants one number at a time; a thread of its own (or a test, step by step) makes it.
//! While that fails the log is under pressure, and only this maker takes its pressure away: when it
//! has made the segment, or when the journal is gone. It never gives up before.

use super::frame::SegmentId;
use super::segment::Segment;
use crate::pressure::Starving;
use crate::shared::{Shared, lock};
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How long a maker waits after a failure.
const RETRY: Duration = Duration::from_secs(1);
/// How long a commit waits for a segment that cannot be made, before it tries itself, once.
const ROLL_WAIT_MAX: Duration = Duration::from_secs(30);

/// See the module; shared by a journal and its maker.
#[derive(Debug, Default)]
pub struct Ahead {
    slot: Mutex<Slot>,
    changed: Condvar,
    /// Nobody makes segments on the side: a journal makes its own (tests, step by step).
    stepped: bool,
}

#[derive(Debug, Default)]
struct Slot {
    wanted: Option<u64>,
    made: Option<Segment>,
    closed: bool,
}

impl Ahead {
    /// `stepped`: a test calls [`Maker::attempt`].
    pub fn new(stepped: bool) -> Self {
        Self { stepped, ..Self::default() }
    }

    /// The journal will need this number next.
    pub fn want(&self, number: u64) {
        lock(&self.slot).wanted = Some(number);
        self.changed.notify_all();
    }

    /// The segment that was wanted, as soon as there is one; `None` if the journal must make it.
    pub fn take(&self) -> Option<Segment> {
        let slot = lock(&self.slot);
        let wait = if self.stepped { Duration::ZERO } else { ROLL_WAIT_MAX };
        let waiting = |slot: &mut Slot| slot.made.is_none();
        let waited = self.changed.wait_timeout_while(slot, wait, waiting);
        let mut slot = waited.unwrap_or_else(PoisonError::into_inner).0;
        // Whether it is there or not: the journal goes on to this number now.
        slot.wanted = None;
        slot.made.take()
    }

    /// The journal is gone.
    pub fn close(&self) {
        lock(&self.slot).closed = true;
        self.changed.notify_all();
    }
}

/// Makes the segments of one journal.
#[derive(Debug)]
pub struct Maker {
    shared: Arc<Shared>,
    ahead: Arc<Ahead>,
    /// The journal's first segment.
    id: SegmentId,
    starving: Option<Starving>,
}

impl Maker {
    pub fn new(shared: Arc<Shared>, ahead: Arc<Ahead>, id: SegmentId) -> Self {
        Self { shared, ahead, id, starving: None }
    }

    /// Makes what is wanted; true if nothing is wanted any more.
    ///
    /// # Errors
    /// No space, or the operating system refused; the log is under pressure until it succeeds.
    pub fn attempt(&mut self) -> io::Result<bool> {
        // The lock is held meanwhile: a journal that rolls waits for the segment, and never makes
        // the same number at the same time.
        let mut slot = lock(&self.ahead.slot);
        let Some(number) = slot.wanted else {
            self.starving = None;
            return Ok(true);
        };
        let id = SegmentId { number, ..self.id };
        let size = self.shared.config.segment_bytes;
        match Segment::create(&self.shared.directory, id, size) {
            Ok(segment) => {
                slot.made = Some(segment);
                slot.wanted = None;
                self.starving = None;
                drop(slot);
                self.ahead.changed.notify_all();
                Ok(true)
            }
            Err(error) => {
                // What is left of the present segment is for payments and cancels.
                self.starving.get_or_insert_with(|| self.shared.pressure.starve());
                Err(error)
            }
        }
    }

    /// Makes segments until the journal is gone.
    pub fn run(mut self) {
        loop {
            let failed = self.attempt().err();
            if let Some(error) = &failed {
                tracing::error!(%error, "no next journal segment; reserves are answered busy");
            }
            let slot = lock(&self.ahead.slot);
            if slot.closed {
                return;
            }
            let idle = |slot: &mut Slot| !slot.closed && slot.wanted.is_none();
            if failed.is_some() {
                let open = |slot: &mut Slot| !slot.closed;
                let waited = self.ahead.changed.wait_timeout_while(slot, RETRY, open);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
            } else {
                let waited = self.ahead.changed.wait_while(slot, idle);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
            }
        }
    }
}
