//! The commit side of a journal: one batch becomes one frame, one write and one fdatasync.
//!
//! One frame is in flight at a time. After a failed write or sync the journal is poisoned: nothing
//! later can be committed, because what was acknowledged behind a hole would be lost.

use super::ahead::Ahead;
use super::frame::{BODY_BYTES_MAX, FrameHeader, SEGMENT_HEADER_BYTES, SegmentId, padded, salt};
use super::segment::Segment;
use crate::api::Durability;
use crate::crash;
use crate::error::CommitError;
use crate::runs::{Run, by_partition};
use crate::shared::Shared;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use stockade_protocol::PartitionId;

/// One shard's commit journal; owned by its commit thread.
#[derive(Debug)]
pub struct Journal {
    shared: Arc<Shared>,
    segment: Arc<Segment>,
    /// Where the next frame goes.
    at: u64,
    counter: u64,
    previous: u32,
    salt: u32,
    ahead: Arc<Ahead>,
    /// Makes segments ahead.
    maker: Option<JoinHandle<()>>,
    frame: Vec<u8>,
    poisoned: bool,
}

impl Journal {
    /// A journal that begins on an empty segment, the first of its run.
    pub(crate) fn new(shared: Arc<Shared>, segment: Segment, ahead: Arc<Ahead>) -> Self {
        let segment = Arc::new(segment);
        shared.segment_opened(&segment);
        let journal = Self {
            at: SEGMENT_HEADER_BYTES,
            counter: 0,
            previous: 0,
            salt: salt(shared.directory.id),
            ahead,
            maker: None,
            frame: Vec::new(),
            poisoned: false,
            shared,
            segment,
        };
        journal.ahead.want(journal.segment.id.number + 1);
        journal
    }

    /// The thread that makes its segments; it ends with the journal.
    pub(crate) fn set_maker(&mut self, maker: JoinHandle<()>) {
        self.maker = Some(maker);
    }

    /// Appends one batch (encoded entries) as one frame and makes it as durable as the mode says.
    /// Entries of each partition must follow on the last one's LSN. An empty batch does nothing.
    ///
    /// # Errors
    /// The write or flush failed; every further call fails too.
    ///
    /// # Panics
    /// The batch is no run of entries that follow: a bug of the caller, which must reach neither
    /// disk nor readers.
    pub fn commit(&mut self, batch: &[u8]) -> Result<(), CommitError> {
        if batch.is_empty() {
            return Ok(());
        }
        let runs = self.checked(batch);
        crash::point("before_write");
        self.append(batch, false)?;
        self.shared.committed(&self.segment, runs);
        Ok(())
    }

    /// The batch by partition.
    fn checked(&self, batch: &[u8]) -> BTreeMap<PartitionId, Run> {
        let runs = by_partition(batch).expect("the engine encodes whole entries in order");
        for (partition, run) in &runs {
            let committed = self.shared.committed_lsn(*partition);
            assert_eq!(committed.next(), run.first, "partition {partition}: lsns follow");
        }
        runs
    }

    /// Writes the end frame of a clean stop.
    ///
    /// # Errors
    /// The write or flush failed.
    pub fn close(mut self) -> Result<(), CommitError> {
        self.append(&[], true)?;
        let segment = self.segment.clone();
        segment.sync().map_err(|source| self.poison("sync", source))
    }

    fn append(&mut self, body: &[u8], end: bool) -> Result<(), CommitError> {
        if self.poisoned || self.shared.flush_failed.load(Ordering::Acquire) {
            let source = io::Error::other("the journal failed before");
            return Err(CommitError { doing: "write", path: self.segment.path.clone(), source });
        }
        assert!(body.len() <= BODY_BYTES_MAX, "the driver bounds its batches");
        let header = FrameHeader {
            shard: self.segment.id.shard,
            epoch: self.segment.id.epoch,
            counter: self.counter + 1,
            body_len: body.len() as u32,
            end,
            deferred: self.shared.config.durability != Durability::Group,
            previous: self.previous,
            body_crc: crc32c::crc32c(body),
        };
        if self.at + header.frame_bytes() > self.segment.size {
            self.roll(header.frame_bytes()).map_err(|source| self.poison("make", source))?;
        }
        self.frame.clear();
        let chain = header.encode(self.salt, &mut self.frame);
        self.frame.extend_from_slice(body);
        self.frame.resize(padded(self.frame.len() as u64) as usize, 0);
        let written = self.segment.write(&self.frame, self.at);
        written.map_err(|source| self.poison("write", source))?;
        crash::point("after_write");
        let group = self.shared.config.durability == Durability::Group;
        #[cfg(feature = "mutations")]
        let group = group
            && !stockade_protocol::mutation::is(
                stockade_protocol::mutation::Mutation::AnswerBeforeSync,
            );
        if group {
            self.segment.sync().map_err(|source| self.poison("sync", source))?;
        }
        crash::point("after_sync");
        self.at += header.frame_bytes();
        self.counter = header.counter;
        self.previous = chain;
        Ok(())
    }

    /// Goes on in the next segment: the one made ahead, or one made now where the frame needs more
    /// room or none is ready.
    fn roll(&mut self, frame_bytes: u64) -> io::Result<()> {
        self.segment.sync()?;
        let number = self.segment.id.number + 1;
        let size = self.shared.config.segment_bytes.max(SEGMENT_HEADER_BYTES + frame_bytes);
        let next = match self.ahead.take().filter(|next| next.size >= size) {
            Some(next) => next,
            None => {
                let id = SegmentId { number, ..self.segment.id };
                let directory = &self.shared.directory;
                match directory.disk().remove_file(&directory.journal().join(id.file_name())) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
                Segment::create(directory, id, size)?
            }
        };
        crash::point("in_roll");
        self.segment = Arc::new(next);
        self.shared.segment_opened(&self.segment);
        self.at = SEGMENT_HEADER_BYTES;
        self.ahead.want(number + 1);
        Ok(())
    }

    fn poison(&mut self, doing: &'static str, source: io::Error) -> CommitError {
        self.poisoned = true;
        let path: PathBuf = self.segment.path.clone();
        CommitError { doing, path, source }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.ahead.close();
        if let Some(maker) = self.maker.take() {
            // Whoever takes the directory next must not meet a segment that is still being made.
            let _ = maker.join();
        }
    }
}
