//! The surface that the server builds on.

use crate::error::{CommitError, LogError, OpenError};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::image::{CatalogImage, PartitionImage};
use stockade_protocol::text::ConsumerName;
use stockade_protocol::{Entry, Lsn, PartitionId};

/// When a batch counts as committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// After fdatasync.
    Group,
    /// After the write; flushed every so often. kill -9 loses nothing, power loss may.
    Async {
        /// How often.
        flush_every: Duration,
    },
}

/// Settings of a log.
#[derive(Clone, Debug)]
pub struct Config {
    /// The data directory; made if it is not there.
    pub dir: PathBuf,
    /// Journals (one per shard) of this run; may differ from run to run.
    pub shards: u16,
    /// Partitions of users; fixed when the directory is made.
    pub partitions: u16,
    /// When a batch counts as committed.
    pub durability: Durability,
    /// Bytes of one journal segment.
    pub segment_bytes: u64,
    /// At so many segments not yet archived, over all shards, [`Log::pressure`] is true.
    pub segments_unarchived_max: u32,
    /// [`Log::pressure`] is also true when the directory is larger than this; 0: no cap.
    pub disk_bytes_max: u64,
    /// How long entries are kept after every consumer has acknowledged them.
    pub keep_after_ack: Duration,
}

impl Config {
    /// The defaults for a directory.
    pub fn new(dir: impl Into<PathBuf>, shards: u16, partitions: u16) -> Self {
        Self {
            dir: dir.into(),
            shards,
            partitions,
            durability: Durability::Group,
            segment_bytes: 64 << 20,
            segments_unarchived_max: 64,
            disk_bytes_max: 0,
            keep_after_ack: Duration::from_secs(3600),
        }
    }
}

/// How images follow from entries; the server passes the core's rules in, so that the log need not know
/// them. An error is one plain sentence; it stops snapshots (not commits) and is logged.
pub trait Fold: Send + Sync + 'static {
    /// The partition after these entries.
    fn partition(
        &self,
        partition: PartitionId,
        image: PartitionImage,
        entries: &[Entry],
    ) -> Result<PartitionImage, String>;
    /// The catalog after these entries.
    fn catalog(&self, image: CatalogImage, entries: &[Entry]) -> Result<CatalogImage, String>;
}

/// Takes the directory, reads floor, snapshots, archive and journals, and checks that nothing is missing.
///
/// # Errors
/// See [`OpenError`].
pub fn open(config: Config, fold: Arc<dyn Fold>) -> Result<Recovery, OpenError> {
    let _ = (config, fold);
    todo!()
}

/// A directory that was read and not yet written to (but for a torn tail that was noted).
pub struct Recovery {}

impl Recovery {
    /// The catalog's snapshot (empty if there is none).
    pub fn catalog(&self) -> CatalogImage {
        todo!()
    }

    /// The partitions' snapshots; partitions without one are missing.
    pub fn take_images(&mut self) -> BTreeMap<PartitionId, PartitionImage> {
        todo!()
    }

    /// Calls `apply` for every entry behind the partition's snapshot, in LSN order.
    ///
    /// # Errors
    /// Damage found on the way.
    pub fn replay(
        &self,
        partition: PartitionId,
        apply: &mut dyn FnMut(Entry) -> Result<(), String>,
    ) -> Result<(), OpenError> {
        let _ = (partition, apply);
        todo!()
    }

    /// The latest timestamp in the log; `TimestampMs::NONE` if it is empty.
    pub fn newest_at(&self) -> TimestampMs {
        todo!()
    }

    /// Plain sentences for the operator (a torn tail that was cut, say).
    pub fn warnings(&self) -> &[String] {
        todo!()
    }

    /// Moves what is only in journals into the archive, makes it durable, writes the floor, and begins
    /// a new epoch on empty segments: one journal per shard.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn start(self) -> Result<(Arc<Log>, Vec<Journal>), OpenError> {
        todo!()
    }
}

/// One shard's commit journal; owned by its commit thread.
pub struct Journal {}

impl Journal {
    /// Appends one batch (encoded entries, see `stockade_protocol::entry`) as one frame and makes it as
    /// durable as the mode says. Entries of each partition must follow on the last one's LSN.
    /// After an error the journal is poisoned and every further call fails.
    ///
    /// # Errors
    /// The write or flush failed.
    pub fn commit(&mut self, batch: &[u8]) -> Result<(), CommitError> {
        let _ = batch;
        todo!()
    }

    /// Writes the end frame of a clean stop.
    ///
    /// # Errors
    /// The write or flush failed.
    pub fn close(self) -> Result<(), CommitError> {
        todo!()
    }
}

/// What a read found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReadOutcome {
    /// Encoded entries, contiguous from the asked LSN on.
    Entries {
        /// The bytes, entry behind entry.
        bytes: Vec<u8>,
        /// The last entry's LSN.
        last: Lsn,
    },
    /// Nothing committed at or after the asked LSN yet.
    End,
    /// Entries before `first_kept` are gone.
    Gap {
        /// The oldest entry there is.
        first_kept: Lsn,
    },
}

/// A consumer's place in one partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConsumerCursor {
    /// The partition.
    pub partition: PartitionId,
    /// The last LSN it acknowledged; `Lsn::NONE` before the first.
    pub acked: Lsn,
    /// The last LSN that is committed.
    pub committed: Lsn,
}

/// The shared side of a running log: committed positions, reading, consumers.
pub struct Log {}

impl Log {
    /// The last committed LSN of a partition.
    pub fn committed(&self, partition: PartitionId) -> Lsn {
        let _ = partition;
        todo!()
    }

    /// The oldest LSN that can be read; the one after `committed` if none can.
    pub fn first_kept(&self, partition: PartitionId) -> Lsn {
        let _ = partition;
        todo!()
    }

    /// Counts up with every commit of any shard; for [`Self::wait_commit`].
    pub fn commit_count(&self) -> u64 {
        todo!()
    }

    /// Blocks the calling thread until `commit_count` is above `seen`, or the time is over.
    pub fn wait_commit(&self, seen: u64, timeout: Duration) -> u64 {
        let _ = (seen, timeout);
        todo!()
    }

    /// Committed entries from `from` on, at least one if there is one, else about `bytes_max` bytes.
    /// Blocking: file reads. Not for a shard's thread.
    ///
    /// # Errors
    /// The archive or a file failed.
    pub fn read(
        &self,
        partition: PartitionId,
        from: Lsn,
        bytes_max: usize,
    ) -> Result<ReadOutcome, LogError> {
        let _ = (partition, from, bytes_max);
        todo!()
    }

    /// Registers a consumer at the oldest entry, if it is not registered; from then on it holds trimming
    /// back.
    ///
    /// # Errors
    /// Too many consumers.
    pub fn consumer_register(&self, name: &ConsumerName) -> Result<(), LogError> {
        let _ = name;
        todo!()
    }

    /// Where a consumer is, partition by partition (65535 last).
    ///
    /// # Errors
    /// No such consumer.
    pub fn consumer_cursors(&self, name: &ConsumerName) -> Result<Vec<ConsumerCursor>, LogError> {
        let _ = name;
        todo!()
    }

    /// All consumers' names, ascending.
    pub fn consumers(&self) -> Vec<ConsumerName> {
        todo!()
    }

    /// A consumer has processed everything up to and including `lsn`; durable within a second. An LSN
    /// below the present cursor changes nothing.
    ///
    /// # Errors
    /// No such consumer, or beyond what is committed.
    pub fn consumer_ack(
        &self,
        name: &ConsumerName,
        partition: PartitionId,
        lsn: Lsn,
    ) -> Result<(), LogError> {
        let _ = (name, partition, lsn);
        todo!()
    }

    /// Ends a consumer.
    ///
    /// # Errors
    /// No such consumer.
    pub fn consumer_drop(&self, name: &ConsumerName) -> Result<(), LogError> {
        let _ = name;
        todo!()
    }

    /// True when reserves must be answered `busy`: the archiver or the disk is behind its bound.
    pub fn pressure(&self) -> bool {
        todo!()
    }

    /// Bytes on disk: journals, archive, snapshots.
    pub fn disk_bytes(&self) -> u64 {
        todo!()
    }

    /// Archives everything, writes cursors and floor, and stops the archiver. After all journals closed.
    ///
    /// # Errors
    /// The archive or a file failed.
    pub fn shutdown(&self) -> Result<(), LogError> {
        todo!()
    }
}
