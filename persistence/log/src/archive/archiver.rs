//! The archiver: a thread off the commit path that moves committed entries into sled, makes them
//! durable, moves the floor, lets journal segments go, folds snapshots and trims.
//!
//! The order of one round is the invariant: put, sync sled's files, write the floor, and only then
//! delete what the floor made superfluous.

use crate::api::Fold;
use crate::error::OpenError;
use crate::files::{disk_bytes, failed, replace};
use crate::runs::{Run, tail};
use crate::shared::{Shared, lock};
use crate::snapshot::{self, Image};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use stockade_protocol::entry::peek;
use stockade_protocol::{Entry, Lsn, PartitionId};

/// Entries are archived at the latest after this long.
const ROUND: Duration = Duration::from_millis(200);
/// How often the bytes on disk are counted and trimming is looked at.
const HOUSEKEEPING: Duration = Duration::from_secs(2);
/// Bytes of a batch, unless one entry alone is larger.
const BATCH_BYTES_MAX: usize = 128 << 10;
/// Snapshots at a stop are worth it from this many bytes on.
const STOP_SNAPSHOT_BYTES: u64 = 256 << 10;

/// What the archiver knows of cursors at a moment, for `keep_after_ack`.
#[derive(Debug)]
struct AckSample {
    at: Instant,
    acked: BTreeMap<PartitionId, Lsn>,
}

/// See the module.
pub(crate) struct Archiver {
    shared: Arc<Shared>,
    fold: Arc<dyn Fold>,
    stop: Arc<AtomicBool>,
    /// Bytes archived since a partition's newest snapshot.
    since_snapshot: BTreeMap<PartitionId, u64>,
    samples: VecDeque<AckSample>,
    housekept: Instant,
    fold_failed: bool,
}

/// A running archiver.
#[derive(Debug)]
pub(crate) struct Task {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Result<(), OpenError>>,
}

impl Task {
    /// Ends it after everything committed is archived.
    pub fn finish(self, shared: &Shared) -> Result<(), OpenError> {
        self.stop.store(true, Ordering::Release);
        shared.wake();
        match self.thread.join() {
            Ok(result) => result,
            Err(_) => Err(OpenError::Archive {
                path: shared.directory.archive(),
                what: "the archiver panicked".into(),
            }),
        }
    }
}

impl Archiver {
    pub fn new(shared: Arc<Shared>, fold: Arc<dyn Fold>) -> Self {
        Self {
            shared,
            fold,
            stop: Arc::default(),
            since_snapshot: BTreeMap::new(),
            samples: VecDeque::new(),
            housekept: Instant::now(),
            fold_failed: false,
        }
    }

    /// Starts the thread.
    pub fn spawn(mut self) -> std::io::Result<Task> {
        let stop = self.stop.clone();
        let run = move || self.run();
        let thread = std::thread::Builder::new().name("archiver".into()).spawn(run)?;
        Ok(Task { stop, thread })
    }

    fn run(&mut self) -> Result<(), OpenError> {
        let mut seen = 0;
        loop {
            let stopping = self.stop.load(Ordering::Acquire);
            match self.round(stopping) {
                Ok(()) => {}
                Err(error) if stopping => return Err(error),
                Err(error) => {
                    // The journal keeps everything; reserves are stopped until it works again.
                    tracing::error!(%error, "archiving failed; reserves are answered busy");
                    self.shared.pressure.store(true, Ordering::Release);
                    std::thread::sleep(Duration::from_secs(1));
                }
            }
            if stopping {
                return Ok(());
            }
            seen = self.shared.wait_commit(seen, Duration::from_millis(500));
            let until = Instant::now() + ROUND;
            while !self.stop.load(Ordering::Acquire) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    fn round(&mut self, stopping: bool) -> Result<(), OpenError> {
        self.write_consumers()?;
        let moved = self.put_committed()?;
        if moved {
            self.make_durable()?;
        }
        self.snapshots(stopping)?;
        if self.housekept.elapsed() >= HOUSEKEEPING {
            self.housekept = Instant::now();
            self.trim()?;
            let bytes = disk_bytes(&self.shared.directory.path);
            self.shared.disk_bytes.store(bytes, Ordering::Relaxed);
        }
        self.let_segments_go()
    }

    fn write_consumers(&self) -> Result<(), OpenError> {
        let path = self.shared.directory.path.join("consumers");
        let bytes = {
            let mut consumers = lock(&self.shared.consumers);
            if !consumers.take_changed() {
                return Ok(());
            }
            consumers.encode()
        };
        let written = replace(&path, &bytes);
        if written.is_err() {
            lock(&self.shared.consumers).set_changed();
        }
        written.map_err(failed("write", &path))
    }

    /// Puts everything committed behind the last contiguous LSN of the archive; true if there was
    /// something.
    fn put_committed(&mut self) -> Result<bool, OpenError> {
        let mut moved = false;
        for partition in self.shared.partitions() {
            let until = self.shared.committed_lsn(partition);
            let mut next = self.archive_last(partition).next();
            while next <= until {
                let Some(batch) = self.gather(partition, next, until) else { break };
                next = batch.last.next();
                *self.since_snapshot.entry(partition).or_default() += batch.bytes.len() as u64;
                let dir = self.shared.directory.archive();
                let mut archive = lock(&self.shared.archive);
                let volume = archive.current(&dir, self.shared.config.volume_bytes)?;
                volume.put(partition, &batch)?;
                moved = true;
            }
        }
        Ok(moved)
    }

    fn archive_last(&self, partition: PartitionId) -> Lsn {
        let from = lock(&self.shared.floor).of(partition).archived.next();
        lock(&self.shared.archive).contiguous_last(partition, from)
    }

    /// Up to a batch's worth of entries from `from` on, out of the tail.
    fn gather(&self, partition: PartitionId, from: Lsn, until: Lsn) -> Option<Run> {
        let mut batch: Option<Run> = None;
        let mut next = from;
        while next <= until {
            let Some(run) = self.shared.tail_run(partition, next) else { break };
            let Some(bytes) = tail(run.first, &run.bytes, next) else { break };
            let batch = batch.get_or_insert(Run { first: next, last: next, bytes: Vec::new() });
            let mut at = 0;
            while let Ok(header) = peek(&bytes[at..]) {
                let full = batch.bytes.len() + header.len > BATCH_BYTES_MAX;
                if full && !batch.bytes.is_empty() {
                    return Some(batch.clone());
                }
                batch.bytes.extend_from_slice(&bytes[at..at + header.len]);
                batch.last = header.lsn;
                at += header.len;
                if at >= bytes.len() {
                    break;
                }
            }
            next = batch.last.next();
        }
        batch
    }

    /// Syncs sled's files and moves the floor; then the tail may forget.
    fn make_durable(&self) -> Result<(), OpenError> {
        {
            let archive = lock(&self.shared.archive);
            if let Some(volume) = archive.volumes.last() {
                let synced = volume.sync();
                synced.map_err(failed("sync", &volume.path))?;
            }
            // A volume that was full before the newest was made was synced in the round that filled
            // it only if that round ended; the one before the newest is synced again.
            if let Some(volume) = archive.volumes.iter().rev().nth(1) {
                volume.sync().map_err(failed("sync", &volume.path))?;
            }
        }
        let lasts: Vec<(PartitionId, Lsn)> =
            self.shared.partitions().map(|p| (p, self.archive_last(p))).collect();
        self.change_floor(|floor| {
            for (partition, last) in &lasts {
                if *last > Lsn::NONE {
                    floor.partitions.entry(*partition).or_default().archived = *last;
                }
            }
        })?;
        for (partition, last) in lasts {
            self.shared.archived(partition, last);
        }
        Ok(())
    }

    fn change_floor(&self, change: impl FnOnce(&mut crate::floor::Floor)) -> Result<(), OpenError> {
        let path = self.shared.directory.path.join("floor");
        let mut floor = lock(&self.shared.floor).clone();
        change(&mut floor);
        floor.write(&path).map_err(failed("write", &path))?;
        *lock(&self.shared.floor) = floor;
        Ok(())
    }

    /// Folds a new snapshot of the partition that needs it most; at a stop, of every one worth it.
    fn snapshots(&mut self, stopping: bool) -> Result<(), OpenError> {
        let worth = if stopping { STOP_SNAPSHOT_BYTES } else { self.shared.config.snapshot_bytes };
        while !self.fold_failed {
            let most = self.since_snapshot.iter().max_by_key(|(_, bytes)| **bytes);
            let Some((partition, bytes)) = most.map(|(p, b)| (*p, *b)) else { return Ok(()) };
            if bytes < worth {
                return Ok(());
            }
            self.snapshot(partition)?;
            self.since_snapshot.remove(&partition);
            if !stopping {
                return Ok(());
            }
        }
        Ok(())
    }

    fn snapshot(&mut self, partition: PartitionId) -> Result<(), OpenError> {
        let dir = self.shared.directory.snapshots();
        let floor = lock(&self.shared.floor).of(partition);
        let image = match floor.snapshot {
            Lsn::NONE => Image::empty(partition),
            lsn => snapshot::read(&dir, partition, lsn)?,
        };
        let Some(image) = self.fold(partition, image, floor.archived)? else { return Ok(()) };
        snapshot::write(&dir, partition, &image).map_err(failed("write", &dir))?;
        let lsn = image.lsn();
        self.change_floor(|floor| {
            floor.partitions.entry(partition).or_default().snapshot = lsn;
        })?;
        let floor = lock(&self.shared.floor).clone();
        snapshot::delete_others(&dir, |partition| floor.of(partition).snapshot)
            .map_err(failed("clean", &dir))
    }

    /// The image after all archived entries, folded batch by batch; `None` if the rules do not
    /// follow.
    fn fold(
        &mut self,
        partition: PartitionId,
        mut image: Image,
        until: Lsn,
    ) -> Result<Option<Image>, OpenError> {
        while image.lsn() < until {
            let next = image.lsn().next();
            let found = lock(&self.shared.archive).find(partition, next)?;
            let Some(run) = found else { return Ok(None) };
            let entries = decode(&run, next).map_err(|what| OpenError::Archive {
                path: self.shared.directory.archive(),
                what,
            })?;
            let folded = match image {
                Image::Partition(image) => {
                    self.fold.partition(partition, image, &entries).map(Image::Partition)
                }
                Image::Catalog(image) => self.fold.catalog(image, &entries).map(Image::Catalog),
            };
            match folded {
                Ok(folded) if folded.lsn() == run.last => image = folded,
                other => {
                    self.fold_failed = true;
                    let why = other.err().unwrap_or_else(|| "the fold lost its place".into());
                    tracing::error!(partition_id = partition.get(), why, "no more snapshots");
                    return Ok(None);
                }
            }
        }
        Ok(Some(image))
    }

    /// Deletes volumes whose entries nobody needs: below the newest snapshot, and below what every
    /// consumer acknowledged `keep_after_ack` ago.
    fn trim(&mut self) -> Result<(), OpenError> {
        let Some(acked) = self.acked_long_ago() else { return Ok(()) };
        let floor = lock(&self.shared.floor).clone();
        let needed = |partition: PartitionId| {
            let acked = acked.get(&partition).copied().unwrap_or_default();
            floor.of(partition).snapshot.min(acked)
        };
        let (mut gone, mut kept_from) = (Vec::new(), BTreeMap::new());
        {
            let archive = lock(&self.shared.archive);
            let count = archive.volumes.len();
            for volume in archive.volumes.iter().take(count.saturating_sub(1)) {
                if !volume.spans.iter().all(|(p, (_, last))| *last <= needed(*p)) {
                    break;
                }
                gone.push((volume.number, volume.path.clone()));
                kept_from.extend(volume.spans.iter().map(|(p, (_, last))| (*p, last.next())));
            }
        }
        let Some((last_number, _)) = gone.last() else { return Ok(()) };
        let volume_first = last_number + 1;
        self.change_floor(|floor| {
            floor.volume_first = volume_first;
            for (partition, first) in &kept_from {
                let of = floor.partitions.entry(*partition).or_default();
                of.first_kept = *first;
                of.acked = acked.get(partition).copied().unwrap_or_default();
            }
        })?;
        lock(&self.shared.archive).volumes.retain(|volume| volume.number >= volume_first);
        for (_, path) in gone {
            std::fs::remove_dir_all(&path).map_err(failed("delete", &path))?;
        }
        Ok(())
    }

    /// Cursors as they were at least `keep_after_ack` ago; `None` without consumers or too early.
    fn acked_long_ago(&mut self) -> Option<BTreeMap<PartitionId, Lsn>> {
        let keep = self.shared.config.keep_after_ack;
        let now = Instant::now();
        let acked: Option<BTreeMap<_, _>> = {
            let consumers = lock(&self.shared.consumers);
            self.shared.partitions().map(|p| Some((p, consumers.acked_by_all(p)?))).collect()
        };
        let Some(acked) = acked else {
            self.samples.clear();
            return None;
        };
        // A consumer that joined since may be behind every sample.
        for sample in &mut self.samples {
            for (partition, lsn) in &mut sample.acked {
                *lsn = (*lsn).min(acked.get(partition).copied().unwrap_or_default());
            }
        }
        if self.samples.back().is_none_or(|sample| now - sample.at >= keep / 16) {
            self.samples.push_back(AckSample { at: now, acked });
        }
        let mut found = None;
        while self.samples.front().is_some_and(|sample| now - sample.at >= keep) {
            found = self.samples.pop_front().map(|sample| sample.acked);
        }
        found
    }

    fn let_segments_go(&self) -> Result<(), OpenError> {
        let floor = lock(&self.shared.floor).clone();
        let journal = self.shared.directory.journal();
        let left = self
            .shared
            .delete_archived_segments(|partition| floor.of(partition).archived)
            .map_err(failed("delete", &journal))?;
        let config = &self.shared.config;
        let cap = config.disk_bytes_max;
        let full = cap > 0 && self.shared.disk_bytes.load(Ordering::Relaxed) > cap;
        let behind = left > config.segments_unarchived_max as usize;
        self.shared.pressure.store(full || behind, Ordering::Release);
        Ok(())
    }
}

/// Decoded entries of a run from `from` on.
pub(crate) fn decode(run: &Run, from: Lsn) -> Result<Vec<Entry>, String> {
    let mut bytes = tail(run.first, &run.bytes, from).unwrap_or(&[]);
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let (entry, taken) = Entry::decode(bytes).map_err(|error| error.to_string())?;
        entries.push(entry);
        bytes = &bytes[taken..];
    }
    Ok(entries)
}
