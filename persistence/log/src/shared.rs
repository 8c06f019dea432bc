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
use crate::journal::frame::SegmentId;
use crate::journal::segment::Segment;
use crate::pressure::{Pressure, Reason};
use crate::runs::Run;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::PathBuf;
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
    /// Why reserves must be answered `busy`.
    pub pressure: Pressure,
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
            pressure: Pressure::default(),
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
        let mut segments = lock(&self.segments);
        segments.push(open);
        self.judge(&segments);
    }

    /// Whether the archiver is behind: segments with entries that are not archived, but for the one
    /// that each shard writes to (so that the bound does not depend on the shards).
    fn judge(&self, segments: &[OpenSegment]) {
        let floor = lock(&self.floor);
        let mut newer = BTreeSet::new();
        let behind = segments.iter().rev().filter(|open| {
            let written_to = newer.insert(open.segment.id.shard);
            !written_to && open.lasts.iter().any(|(p, last)| floor.of(*p).archived < *last)
        });
        let behind = behind.count() > self.config.segments_unarchived_max as usize;
        self.pressure.set(Reason::ArchiverBehind, behind);
    }

    /// A batch is committed: readers see it, answers may go. Its runs follow on what is committed.
    pub fn committed(&self, segment: &Arc<Segment>, runs: BTreeMap<PartitionId, Run>) {
        let mut segments = lock(&self.segments);
        if let Some(open) = segments.iter_mut().find(|open| open.segment.id == segment.id) {
            open.lasts.extend(runs.iter().map(|(partition, run)| (*partition, run.last)));
        }
        drop(segments);
        for (partition, run) in runs {
            let slot = self.slot(partition).expect("the engine uses its own partitions");
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

    /// Deletes segments all of whose entries are archived durably, oldest first. Of each shard
    /// the newest one with frames stays, so that a start can tell a deleted segment from one that
    /// is missing.
    ///
    /// # Errors
    /// The operating system refused; what is left is tried again next time.
    pub fn delete_archived_segments(&self) -> io::Result<()> {
        let mut deleted = Ok(());
        let gone = self.archived_segments();
        if !gone.is_empty() {
            // Mode `async`: the frames in the one that stays must be there after a power loss too.
            self.sync_segments()?;
        }
        for (id, path) in gone {
            deleted = match self.directory.disk().remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
            if deleted.is_err() {
                break;
            }
            lock(&self.segments).retain(|open| open.segment.id != id);
        }
        self.judge(&lock(&self.segments));
        deleted
    }

    /// Of each shard the oldest ones, up to the first with entries that are not archived: what is
    /// left has no hole.
    fn archived_segments(&self) -> Vec<(SegmentId, PathBuf)> {
        let segments = lock(&self.segments);
        let floor = lock(&self.floor);
        let used = segments.iter().filter(|open| !open.lasts.is_empty());
        let newest: BTreeMap<u16, u64> =
            used.map(|open| (open.segment.id.shard, open.segment.id.number)).collect();
        let (mut held, mut gone) = (BTreeSet::new(), Vec::new());
        // Of each shard the list is in order.
        for open in segments.iter() {
            let id = open.segment.id;
            let covered = open.lasts.iter().all(|(p, last)| floor.of(*p).archived >= *last);
            let older = newest.get(&id.shard).is_some_and(|newest| id.number < *newest);
            #[cfg(feature = "mutations")]
            let covered = covered
                || stockade_protocol::mutation::is(
                    stockade_protocol::mutation::Mutation::SegmentRecycledEarly,
                );
            if covered && older && !held.contains(&id.shard) {
                gone.push((id, open.segment.path.clone()));
            } else {
                held.insert(id.shard);
            }
        }
        gone
    }

    /// As [`Self::sync_segments`]; after an error nothing more is committed.
    pub fn flush(&self) -> io::Result<()> {
        let flushed = self.sync_segments();
        if flushed.is_err() {
            self.flush_failed.store(true, Ordering::Release);
        }
        flushed
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
