//! The archiver: off the commit path it moves committed entries into volumes, makes them durable,
//! moves the floor, lets journal segments go, folds snapshots and trims.
//!
//! The order of one round is the invariant: put, sync, write the floor, and only then delete what
//! the floor made superfluous. A step that fails does not keep the later ones from what they can
//! do: on a full disk it is they who give space back.

use crate::api::Fold;
use crate::crash;
use crate::error::OpenError;
use crate::files::{failed, replace};
use crate::floor::Floor;
use crate::pressure::Reason;
use crate::runs::{Run, tail};
use crate::shared::{Shared, lock};
use crate::snapshot::{self, Image};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
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
/// Bytes of an entry, for what is not counted.
const ENTRY_BYTES_ABOUT: u64 = 96;
/// Snapshots at a stop are worth it from this many bytes on.
const STOP_SNAPSHOT_BYTES: u64 = 256 << 10;

/// What the archiver knows of cursors at a moment, for `keep_after_ack`.
#[derive(Debug)]
pub(super) struct AckSample {
    pub at: Duration,
    pub acked: BTreeMap<PartitionId, Lsn>,
}

/// See the module. Times are since some moment before the first round.
pub(crate) struct Archiver {
    pub(super) shared: Arc<Shared>,
    fold: Arc<dyn Fold>,
    stop: Arc<AtomicBool>,
    /// Bytes archived since a partition's newest snapshot.
    since_snapshot: BTreeMap<PartitionId, u64>,
    pub(super) samples: VecDeque<AckSample>,
    housekept: Duration,
    /// Partitions whose snapshots cannot be made any more.
    unfoldable: BTreeSet<PartitionId>,
    /// Partitions that keep a volume from being trimmed, only because their snapshot is too old.
    pub(super) blocking: BTreeSet<PartitionId>,
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
        // What earlier runs archived behind a snapshot, by a guess of its size.
        let floor = lock(&shared.floor);
        let since = |p: PartitionId| {
            let of = floor.of(p);
            (p, of.archived.get().saturating_sub(of.snapshot.get()) * ENTRY_BYTES_ABOUT)
        };
        let since_snapshot = shared.partitions().map(since).filter(|(_, bytes)| *bytes > 0);
        let since_snapshot = since_snapshot.collect();
        drop(floor);
        Self {
            shared,
            fold,
            stop: Arc::default(),
            since_snapshot,
            samples: VecDeque::new(),
            housekept: Duration::ZERO,
            unfoldable: BTreeSet::new(),
            blocking: BTreeSet::new(),
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
        let begun = Instant::now();
        let mut seen = 0;
        loop {
            let stopping = self.stop.load(Ordering::Acquire);
            match self.round(begun.elapsed(), stopping) {
                Ok(()) => {}
                Err(error) if stopping => return Err(error),
                Err(error) => {
                    // The journal keeps everything; reserves are stopped until it works again.
                    tracing::error!(%error, "archiving failed; reserves are answered busy");
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

    /// Does what there is to do. The first error is given; the log is under pressure until a round
    /// has none.
    pub fn round(&mut self, now: Duration, stopping: bool) -> Result<(), OpenError> {
        let mut steps = vec![self.write_consumers()];
        steps.push(self.archive());
        steps.push(self.let_segments_go());
        steps.push(self.snapshots(stopping));
        if now.saturating_sub(self.housekept) >= HOUSEKEEPING {
            self.housekept = now;
            steps.push(self.trim(now));
            self.count_bytes();
        }
        let done = steps.into_iter().collect::<Result<(), _>>();
        self.shared.pressure.set(Reason::ArchiverFails, done.is_err());
        done
    }

    fn count_bytes(&self) {
        let bytes = self.shared.directory.disk().bytes_below(&self.shared.directory.path);
        self.shared.disk_bytes.store(bytes, Ordering::Relaxed);
        let cap = self.shared.config.disk_bytes_max;
        self.shared.pressure.set(Reason::DiskCap, cap > 0 && bytes > cap);
    }

    fn write_consumers(&self) -> Result<(), OpenError> {
        let directory = &self.shared.directory;
        let path = directory.consumers();
        let bytes = {
            let mut consumers = lock(&self.shared.consumers);
            if !consumers.take_changed() {
                return Ok(());
            }
            consumers.encode(directory.id)
        };
        let written = replace(directory.disk(), &path, &bytes);
        if written.is_err() {
            lock(&self.shared.consumers).set_changed();
        }
        written.map_err(failed("write", &path))
    }

    /// Moves everything committed behind the last contiguous LSN of the archive into it, and makes
    /// it durable.
    fn archive(&mut self) -> Result<(), OpenError> {
        let put = self.put_committed();
        crash::point("in_archive");
        // What was put before something failed counts all the same; and a floor that could not be
        // written in the round before is written now.
        if self.is_ahead_of_floor() {
            self.make_durable()?;
        }
        put
    }

    fn is_ahead_of_floor(&self) -> bool {
        let archived = |p: PartitionId| lock(&self.shared.floor).of(p).archived;
        lock(&self.shared.archive).is_dirty()
            || self.shared.partitions().any(|p| self.archive_last(p) > archived(p))
    }

    fn put_committed(&mut self) -> Result<(), OpenError> {
        for partition in self.shared.partitions() {
            let until = self.shared.committed_lsn(partition);
            let mut next = self.archive_last(partition).next();
            while next <= until {
                let Some(batch) = self.gather(partition, next, until) else { break };
                next = batch.last.next();
                let floor = lock(&self.shared.floor).clone();
                lock(&self.shared.archive).put(
                    &self.shared.directory,
                    &floor,
                    self.shared.config.volume_bytes,
                    (partition, &batch),
                )?;
                *self.since_snapshot.entry(partition).or_default() += batch.bytes.len() as u64;
            }
        }
        Ok(())
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

    /// Syncs what was put and moves the floor; then the tail may forget.
    fn make_durable(&self) -> Result<(), OpenError> {
        let floor = lock(&self.shared.floor).clone();
        lock(&self.shared.archive).sync(&floor)?;
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

    pub(super) fn change_floor(&self, change: impl FnOnce(&mut Floor)) -> Result<(), OpenError> {
        let directory = &self.shared.directory;
        let path = directory.floor();
        let mut floor = lock(&self.shared.floor).clone();
        change(&mut floor);
        let written = floor.write(directory.disk(), &path, directory.id);
        written.map_err(failed("write", &path))?;
        *lock(&self.shared.floor) = floor;
        Ok(())
    }

    /// Folds a new snapshot: of a partition that keeps a volume from being trimmed, else of the one
    /// that needs it most; at a stop, of every one worth it.
    fn snapshots(&mut self, stopping: bool) -> Result<(), OpenError> {
        let worth = if stopping { STOP_SNAPSHOT_BYTES } else { self.shared.config.snapshot_bytes };
        loop {
            let most = self.since_snapshot.iter().max_by_key(|(_, bytes)| **bytes);
            let most = most.filter(|(_, bytes)| **bytes >= worth).map(|(partition, _)| *partition);
            let Some(partition) = self.blocking.first().copied().or(most) else { return Ok(()) };
            self.snapshot(partition)?;
            self.blocking.remove(&partition);
            self.since_snapshot.remove(&partition);
            if !stopping {
                return Ok(());
            }
        }
    }

    fn snapshot(&mut self, partition: PartitionId) -> Result<(), OpenError> {
        if self.unfoldable.contains(&partition) {
            return Ok(());
        }
        let directory = &self.shared.directory;
        let dir = directory.snapshots();
        let floor = lock(&self.shared.floor).of(partition);
        let image = match floor.snapshot {
            Lsn::NONE => Ok(Image::empty(partition)),
            lsn => snapshot::read(directory, partition, lsn),
        };
        let image = match image {
            Ok(image) => self.fold(partition, image, floor.archived)?,
            Err(error @ OpenError::Io { .. }) => return Err(error),
            Err(error) => Err(error.to_string()),
        };
        let image = match image {
            Ok(image) => image,
            Err(why) => {
                // Nothing is lost: the entries stay, and replay is longer.
                tracing::error!(partition_id = partition.get(), why, "no more snapshots");
                self.unfoldable.insert(partition);
                return Ok(());
            }
        };
        snapshot::write(directory, partition, &image).map_err(failed("write", &dir))?;
        crash::point("in_snapshot");
        let lsn = image.lsn();
        self.change_floor(|floor| {
            #[cfg(feature = "mutations")]
            let lsn = if stockade_protocol::mutation::is(
                stockade_protocol::mutation::Mutation::SnapshotAhead,
            ) {
                lsn.next()
            } else {
                lsn
            };
            floor.partitions.entry(partition).or_default().snapshot = lsn;
        })?;
        let floor = lock(&self.shared.floor).clone();
        let kept = |partition| floor.of(partition).snapshot;
        snapshot::delete_others(directory.disk(), &dir, kept).map_err(failed("clean", &dir))
    }

    /// The image after all entries up to `until`, folded batch by batch; or why the rules do not
    /// follow.
    fn fold(
        &self,
        partition: PartitionId,
        mut image: Image,
        until: Lsn,
    ) -> Result<Result<Image, String>, OpenError> {
        while image.lsn() < until {
            let next = image.lsn().next();
            let found = lock(&self.shared.archive).find(partition, next)?;
            let Some(run) = found else { return Ok(Err(format!("lsn {next} is not archived"))) };
            let mut entries = match decode(&run, next) {
                Ok(entries) => entries,
                Err(why) => return Ok(Err(why)),
            };
            entries.retain(|entry| entry.lsn <= until);
            let folded = match image {
                Image::Partition(image) => {
                    self.fold.partition(partition, image, &entries).map(Image::Partition)
                }
                Image::Catalog(image) => self.fold.catalog(image, &entries).map(Image::Catalog),
            };
            match folded {
                Ok(folded) if folded.lsn() == run.last.min(until) => image = folded,
                Ok(_) => return Ok(Err("the fold lost its place".into())),
                Err(why) => return Ok(Err(why)),
            }
        }
        Ok(Ok(image))
    }

    fn let_segments_go(&self) -> Result<(), OpenError> {
        let journal = self.shared.directory.journal();
        self.shared.delete_archived_segments().map_err(failed("delete", &journal))
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
