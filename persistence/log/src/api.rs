//! Settings, and the values that go in and out of a log.

use std::path::PathBuf;
use std::time::Duration;
use stockade_protocol::image::{CatalogImage, PartitionImage};
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
    /// At so many segments not yet archived, over all shards, `Log::pressure` is true.
    pub segments_unarchived_max: u32,
    /// `Log::pressure` is also true when the directory is larger than this; 0: no cap.
    pub disk_bytes_max: u64,
    /// How long entries are kept after every consumer has acknowledged them. Without consumers
    /// nothing is trimmed.
    pub keep_after_ack: Duration,
    /// Bytes of one volume of the archive, about.
    pub volume_bytes: u64,
    /// Bytes of a partition's new entries after which it gets a new snapshot.
    pub snapshot_bytes: u64,
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
            segments_unarchived_max: 16,
            disk_bytes_max: 0,
            keep_after_ack: Duration::from_secs(3600),
            volume_bytes: 256 << 20,
            snapshot_bytes: 4 << 20,
        }
    }
}

/// How images follow from entries; the server passes the core's rules in, so that the log need not
/// know them. An error is one plain sentence; it stops snapshots (not commits) and is logged.
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
