//! A log without threads: what they would do is done step by step, at times that the caller names.
//! For simulation and tests; the code that runs is the engine's own.

use crate::archive::Archiver;
use crate::error::OpenError;
use crate::journal::Journal;
use crate::journal::ahead::Maker;
use crate::log::Log;
use crate::shared::Shared;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// A running log whose side work waits to be done.
#[derive(Debug)]
pub struct Stepped {
    /// The shared side.
    pub log: Arc<Log>,
    /// One per shard.
    pub journals: Vec<Journal>,
    /// What threads do in the engine.
    pub side: SideWork,
}

/// Archiving, snapshots, trimming, segments made ahead, and flushing in mode `async`.
pub struct SideWork {
    shared: Arc<Shared>,
    archiver: Archiver,
    makers: Vec<Maker>,
}

impl std::fmt::Debug for SideWork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SideWork").finish_non_exhaustive()
    }
}

impl SideWork {
    pub(crate) fn new(shared: Arc<Shared>, archiver: Archiver, makers: Vec<Maker>) -> Self {
        Self { shared, archiver, makers }
    }

    /// One round of the archiver: cursors, archive, floor, segments, at most one snapshot; and
    /// where two seconds went by since the last time, trimming and the count of bytes.
    ///
    /// # Errors
    /// A step failed; the others were done, and the next round tries again.
    pub fn round(&mut self, now: Duration) -> Result<(), OpenError> {
        self.archiver.round(now, false)
    }

    /// Makes the next segment of each journal that wants one.
    ///
    /// # Errors
    /// No space, or the device refused; the log is under pressure until it succeeds.
    pub fn make_segments(&mut self) -> io::Result<()> {
        self.makers.iter_mut().try_for_each(|maker| maker.attempt().map(|_| ()))
    }

    /// Mode `async`: what was committed is made durable. After an error no commit succeeds.
    ///
    /// # Errors
    /// The device refused.
    pub fn flush(&mut self) -> io::Result<()> {
        self.shared.flush()
    }

    /// The last round of a clean stop, after all journals closed.
    ///
    /// # Errors
    /// As [`Self::round`].
    pub fn finish(mut self, now: Duration) -> Result<(), OpenError> {
        self.archiver.round(now, true)
    }
}
