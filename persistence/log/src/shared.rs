//! What commit threads, archiver and readers share: committed positions, the tail of entries that
//! are not archived yet, open segments, consumers.
//!
//! Invariant: for each partition the tail holds exactly the runs from `archived + 1` to
//! `committed`, so that every committed entry is in the tail or in the archive. Reading goes to the
//! tail first. The tail is in memory; `segments_unarchived_max` bounds it, because reserves stop
//! when the archiver is that far behind.

use crate::api::Config;
use crate::archive::Archive;
use crate::consumers::Consumers;
use crate::directory::Directory;
use crate::floor::Floor;
use crate::journal::segment::Segment;
use crate::runs::{Run, by_partition};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use stockade_protocol::{Lsn, PartitionId};

/// A segment with entries that may not be archived yet.
#[derive(Debug)]
struct OpenSegment {
    segment: Arc<Segment>,
    /// The last LSN by partition in it.
    lasts: BTreeMap<PartitionId, Lsn>,
}

/// See the module.
#[derive(Debug)]
pub struct Shared {
    pub config: Config,
    pub directory: Directory,
    pub archive: Mutex<Archive>,
    pub floor: Mutex<Floor>,
    pub consumers: Mutex<Consumers>,
    /// The archiver or the preparation of segments is behind.
    pub pressure: AtomicBool,
    pub disk_bytes: AtomicU64,
    /// A background flush failed (mode `async`): nothing more may be committed.
    pub flush_failed: AtomicBool,
    committed: Vec<AtomicU64>,
    tail: Vec<Mutex<VecDeque<Run>>>,
    segments: Mutex<Vec<OpenSegment>>,
    commits: Mutex<u64>,
    commit_signal: Condvar,
}

/// A lock whose holder panicked holds sound data all the same: every critical section here is a few
/// assignments. (In release builds a panic ends the process.)
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// At the start of a run: everything committed is archived.
    pub fn new(
        config: Config,
        directory: Directory,
        archive: Archive,
        floor: Floor,
        consumers: Consumers,
    ) -> Self {
        let slots = usize::from(directory.partitions) + 1;
        let shared = Self {
            archive: Mutex::new(archive),
            consumers: Mutex::new(consumers),
            pressure: AtomicBool::new(false),
            disk_bytes: AtomicU64::new(0),
            flush_failed: AtomicBool::new(false),
            committed: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            tail: (0..slots).map(|_| Mutex::default()).collect(),
            segments: Mutex::default(),
            commits: Mutex::new(0),
            commit_signal: Condvar::new(),
            floor: Mutex::new(floor),
            config,
            directory,
        };
        for (partition, floor) in &lock(&shared.floor).partitions {
            if let Some(slot) = shared.slot(*partition) {
                shared.committed[slot].store(floor.archived.get(), Ordering::Release);
            }
        }
        shared
    }

    /// The index of a partition's slot; the catalog's is the last.
    fn slot(&self, partition: PartitionId) -> Option<usize> {
        let last = self.committed.len() - 1;
        let slot = usize::from(partition.get());
        if partition == PartitionId::CATALOG {
            Some(last)
        } else {
            Some(slot).filter(|s| *s < last)
        }
    }

    /// All partitions, the catalog's last.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionId> + use<> {
        (0..self.directory.partitions).map(PartitionId::new).chain([PartitionId::CATALOG])
    }

    /// The last committed LSN of a partition.
    pub fn committed_lsn(&self, partition: PartitionId) -> Lsn {
        let slot = self.slot(partition);
        Lsn::new(slot.map_or(0, |slot| self.committed[slot].load(Ordering::Acquire)))
    }

    /// A segment takes frames from now on.
    pub fn segment_opened(&self, segment: &Arc<Segment>) {
        let open = OpenSegment { segment: segment.clone(), lasts: BTreeMap::new() };
        lock(&self.segments).push(open);
    }

    /// A batch is committed: readers see it, answers may go.
    ///
    /// # Panics
    /// The batch is no run of entries that follow: a bug of the caller, which must not reach
    /// readers.
    pub fn committed(&self, segment: &Arc<Segment>, batch: &[u8]) {
        let runs = by_partition(batch).expect("the engine encodes whole entries in order");
        let mut segments = lock(&self.segments);
        if let Some(open) = segments.iter_mut().find(|open| open.segment.id == segment.id) {
            open.lasts.extend(runs.iter().map(|(partition, run)| (*partition, run.last)));
        }
        drop(segments);
        for (partition, run) in runs {
            let slot = self.slot(partition).expect("the engine uses its own partitions");
            let before = self.committed[slot].load(Ordering::Acquire);
            assert_eq!(before + 1, run.first.get(), "partition {partition}: lsns follow");
            let last = run.last.get();
            lock(&self.tail[slot]).push_back(run);
            self.committed[slot].store(last, Ordering::Release);
        }
        self.wake();
    }

    /// How many commits there were.
    pub fn commit_count(&self) -> u64 {
        *lock(&self.commits)
    }

    /// Waits until there were more commits than `seen`, or the time is over.
    pub fn wait_commit(&self, seen: u64, timeout: Duration) -> u64 {
        let commits = lock(&self.commits);
        let waited =
            self.commit_signal.wait_timeout_while(commits, timeout, |commits| *commits <= seen);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Wakes those who wait for commits.
    pub fn wake(&self) {
        *lock(&self.commits) += 1;
        self.commit_signal.notify_all();
    }

    /// The un-archived run that holds `from`.
    pub fn tail_run(&self, partition: PartitionId, from: Lsn) -> Option<Run> {
        let runs = lock(&self.tail[self.slot(partition)?]);
        let at = runs.partition_point(|run| run.last < from);
        runs.get(at).filter(|run| run.first <= from).cloned()
    }

    /// Entries up to `lsn` are durable in the archive: the tail lets them go.
    pub fn archived(&self, partition: PartitionId, lsn: Lsn) {
        let Some(slot) = self.slot(partition) else { return };
        let mut tail = lock(&self.tail[slot]);
        while tail.front().is_some_and(|run| run.last <= lsn) {
            tail.pop_front();
        }
    }

    /// Deletes segments all of whose entries are archived by `archived`; the newest of each shard
    /// stays. Gives how many are left.
    ///
    /// # Errors
    /// The operating system refused.
    pub fn delete_archived_segments(
        &self,
        archived: impl Fn(PartitionId) -> Lsn,
    ) -> io::Result<usize> {
        let mut segments = lock(&self.segments);
        let newest = |open: &OpenSegment, all: &[OpenSegment]| {
            !all.iter().any(|other| {
                other.segment.id.shard == open.segment.id.shard
                    && other.segment.id.number > open.segment.id.number
            })
        };
        let done: Vec<bool> = segments
            .iter()
            .map(|open| {
                let covered = open.lasts.iter().all(|(p, last)| archived(*p) >= *last);
                covered && !newest(open, &segments)
            })
            .collect();
        let mut flags = done.iter();
        let mut paths = Vec::new();
        segments.retain(|open| {
            let keep = !flags.next().copied().unwrap_or(false);
            if !keep {
                paths.push(open.segment.path.clone());
            }
            keep
        });
        let left = segments.len();
        drop(segments);
        for path in paths {
            std::fs::remove_file(&path)?;
        }
        Ok(left)
    }

    /// Makes all open segments durable (mode `async`, and at the end).
    ///
    /// # Errors
    /// The operating system refused.
    pub fn sync_segments(&self) -> io::Result<()> {
        let open: Vec<_> = lock(&self.segments).iter().map(|o| o.segment.clone()).collect();
        open.iter().try_for_each(|segment| segment.sync())
    }
}
