//! From a data directory to a running log: read everything, check that nothing is missing, hand out
//! images and entries, and begin a new epoch on empty segments.

use crate::api::{Config, Durability, Fold};
use crate::archive::{Archive, Archiver, decode};
use crate::consumers::Consumers;
use crate::directory::Directory;
use crate::error::OpenError;
use crate::files::{damaged, failed, sync_dir};
use crate::floor::Floor;
use crate::journal::Journal;
use crate::journal::frame::SegmentId;
use crate::journal::recover::{self, Journals};
use crate::journal::segment::Segment;
use crate::log::Log;
use crate::runs::{Run, by_partition, tail};
use crate::shared::Shared;
use crate::snapshot::{self, Image};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak, mpsc};
use std::time::Duration;
use stockade_protocol::entry::peek;
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::image::{CatalogImage, PartitionImage};
use stockade_protocol::{Entry, Lsn, PartitionId};

/// A directory that was read and not yet written to.
pub struct Recovery {
    config: Config,
    fold: Arc<dyn Fold>,
    directory: Directory,
    floor: Floor,
    archive: Archive,
    consumers: Consumers,
    images: BTreeMap<PartitionId, Image>,
    /// Entries that are only in journals, by partition.
    pending: BTreeMap<PartitionId, Vec<Run>>,
    /// The last LSN of the archive by partition.
    archived: BTreeMap<PartitionId, Lsn>,
    segments: Vec<PathBuf>,
    newest_at: TimestampMs,
    warnings: Vec<String>,
}

/// Takes the directory, reads floor, snapshots, archive and journals, and checks that nothing is
/// missing.
///
/// # Errors
/// See [`OpenError`].
pub fn open(config: Config, fold: Arc<dyn Fold>) -> Result<Recovery, OpenError> {
    let directory = Directory::take(&config.dir, config.partitions)?;
    read(config, fold, directory)
}

/// As [`open`], for a directory that is already taken.
pub(crate) fn read(
    config: Config,
    fold: Arc<dyn Fold>,
    directory: Directory,
) -> Result<Recovery, OpenError> {
    let floor = Floor::read(&directory.path.join("floor"))?;
    let mut consumers = Consumers::read(&directory.path.join("consumers"))?;
    for (partition, floor) in &floor.partitions {
        for name in consumers.names() {
            // Trimming relied on a cursor that may not have reached the file.
            let _ = consumers.ack(&name, *partition, floor.acked);
        }
    }
    let mut images = BTreeMap::new();
    for (partition, floor) in &floor.partitions {
        if floor.snapshot > Lsn::NONE {
            let image = snapshot::read(&directory.snapshots(), *partition, floor.snapshot)?;
            images.insert(*partition, image);
        }
    }
    let archive = Archive::open(&directory.archive(), floor.volume_first)?;
    let Journals { frames, files, warnings } = recover::read(&directory.journal())?;
    let mut recovery = Recovery {
        archived: BTreeMap::new(),
        pending: BTreeMap::new(),
        segments: files,
        newest_at: TimestampMs::NONE,
        config,
        fold,
        directory,
        floor,
        archive,
        consumers,
        images,
        warnings,
    };
    recovery.find_archived()?;
    for frame in frames.into_values().flatten() {
        let runs = by_partition(&frame.body)
            .map_err(|error| damaged(&frame.file, frame.offset, error.to_string()))?;
        for (partition, run) in runs {
            recovery.add(partition, run)?;
        }
    }
    recovery.find_newest()?;
    Ok(recovery)
}

impl Recovery {
    pub(crate) fn partitions(&self) -> impl Iterator<Item = PartitionId> + use<> {
        (0..self.directory.partitions).map(PartitionId::new).chain([PartitionId::CATALOG])
    }

    pub(crate) fn floor(&self) -> &Floor {
        &self.floor
    }

    /// The run that holds `lsn`, wherever it is.
    pub(crate) fn run(&self, partition: PartitionId, lsn: Lsn) -> Result<Option<Run>, OpenError> {
        let pending = self.pending.get(&partition).into_iter().flatten();
        if let Some(run) = pending.clone().find(|run| run.first <= lsn && lsn <= run.last) {
            return Ok(Some(run.clone()));
        }
        self.archive.find(partition, lsn)
    }

    /// What the archive holds, and that it is at least what the floor says.
    fn find_archived(&mut self) -> Result<(), OpenError> {
        for partition in self.partitions() {
            let floor = self.floor.of(partition);
            let from = floor.first_kept.max(Lsn::FIRST);
            let last = self.archive.contiguous_last(partition, from);
            if last < floor.archived {
                return Err(self.missing(partition, last.next(), floor.archived));
            }
            self.archived.insert(partition, last);
        }
        Ok(())
    }

    fn missing(&self, partition: PartitionId, from: Lsn, to: Lsn) -> OpenError {
        OpenError::Missing {
            path: self.directory.path.clone(),
            partition: partition.get(),
            from: from.get(),
            to: to.get(),
        }
    }

    /// The last LSN known so far.
    fn last(&self, partition: PartitionId) -> Lsn {
        let pending = self.pending.get(&partition).and_then(|runs| runs.last());
        let archived = self.archived.get(&partition).copied().unwrap_or_default();
        pending.map_or(archived, |run| run.last)
    }

    /// A run out of a journal: what the archive has already is skipped; a hole is refused.
    fn add(&mut self, partition: PartitionId, mut run: Run) -> Result<(), OpenError> {
        let Some(last) = self.archived.contains_key(&partition).then(|| self.last(partition))
        else {
            let path = self.directory.journal();
            return Err(damaged(
                &path,
                0,
                format!("partition {partition} is not of this directory"),
            ));
        };
        if run.last <= last {
            return Ok(());
        }
        if run.first > last.next() {
            return Err(self.missing(partition, last.next(), Lsn::new(run.first.get() - 1)));
        }
        if run.first <= last {
            run.bytes = tail(run.first, &run.bytes, last.next()).unwrap_or(&[]).to_vec();
            run.first = last.next();
        }
        self.pending.entry(partition).or_default().push(run);
        Ok(())
    }

    fn find_newest(&mut self) -> Result<(), OpenError> {
        let mut newest = TimestampMs::NONE;
        for image in self.images.values() {
            newest = newest.max(match image {
                Image::Partition(image) => image.at,
                Image::Catalog(image) => image.at,
            });
        }
        let mut look = |run: &Run| {
            let last = tail(run.first, &run.bytes, run.last);
            if let Some(header) = last.and_then(|bytes| peek(bytes).ok()) {
                newest = newest.max(header.at);
            }
        };
        for partition in self.partitions() {
            if let Some(run) = self.pending.get(&partition).and_then(|runs| runs.last()) {
                look(run);
            } else if let Some(last) = self.archived.get(&partition).filter(|l| **l > Lsn::NONE)
                && let Some(run) = self.archive.find(partition, *last)?
            {
                look(&run);
            }
        }
        self.newest_at = newest;
        Ok(())
    }

    /// The catalog's snapshot (empty if there is none).
    pub fn catalog(&self) -> CatalogImage {
        match self.images.get(&PartitionId::CATALOG) {
            Some(Image::Catalog(image)) => image.clone(),
            _ => CatalogImage::default(),
        }
    }

    /// The partitions' snapshots; partitions without one are missing.
    pub fn take_images(&mut self) -> BTreeMap<PartitionId, PartitionImage> {
        let mut taken = BTreeMap::new();
        for (partition, image) in &mut self.images {
            if let Image::Partition(image) = image {
                // The LSN stays: replay begins behind it.
                let left = PartitionImage { lsn: image.lsn, ..PartitionImage::default() };
                taken.insert(*partition, std::mem::replace(image, left));
            }
        }
        taken
    }

    /// Calls `apply` for every entry behind the partition's snapshot, in LSN order.
    ///
    /// # Errors
    /// Damage found on the way, or `apply` refused an entry.
    pub fn replay(
        &self,
        partition: PartitionId,
        apply: &mut dyn FnMut(Entry) -> Result<(), String>,
    ) -> Result<(), OpenError> {
        let snapshot = self.images.get(&partition).map_or(Lsn::NONE, Image::lsn);
        let archived = self.archived.get(&partition).copied().unwrap_or_default();
        let fail = |what: String| OpenError::Archive { path: self.directory.path.clone(), what };
        let mut next = snapshot.next();
        while next <= archived {
            let run = self.archive.find(partition, next)?;
            let run = run.ok_or_else(|| self.missing(partition, next, archived))?;
            for entry in decode(&run, next).map_err(fail)? {
                apply(entry).map_err(fail)?;
            }
            next = run.last.next();
        }
        for run in self.pending.get(&partition).into_iter().flatten() {
            for entry in decode(run, run.first).map_err(fail)? {
                apply(entry).map_err(fail)?;
            }
        }
        Ok(())
    }

    /// The last LSN of a partition.
    pub fn last_lsn(&self, partition: PartitionId) -> Lsn {
        self.last(partition)
    }

    /// The latest timestamp in the log; `TimestampMs::NONE` if it is empty.
    pub fn newest_at(&self) -> TimestampMs {
        self.newest_at
    }

    /// Plain sentences for the operator (a torn tail that was cut, say).
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Moves what is only in journals into the archive, makes it durable, writes the floor, and
    /// begins a new epoch on empty segments: one journal per shard.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn start(mut self) -> Result<(Arc<Log>, Vec<Journal>), OpenError> {
        self.archive_pending()?;
        let path = self.directory.path.join("floor");
        self.floor.epoch += 1;
        let epoch = self.floor.epoch;
        for partition in self.partitions() {
            let last = self.last(partition);
            if last > Lsn::NONE {
                self.floor.partitions.entry(partition).or_default().archived = last;
            }
        }
        self.floor.write(&path).map_err(failed("write", &path))?;
        for segment in &self.segments {
            std::fs::remove_file(segment).map_err(failed("delete", segment))?;
        }
        let journal_dir = self.directory.journal();
        sync_dir(&journal_dir).map_err(failed("sync", &journal_dir))?;
        let Self { config, fold, directory, floor, archive, consumers, .. } = self;
        let shards = config.shards;
        let shared = Arc::new(Shared::new(config, directory, archive, floor, consumers));
        let mut journals = Vec::new();
        for shard in 0..shards {
            let id = SegmentId { epoch, shard, number: 1 };
            let size = shared.config.segment_bytes;
            let segment = Segment::create(&journal_dir, id, size);
            let segment = segment.map_err(failed("make a segment in", &journal_dir))?;
            let (ready_in, ready) = mpsc::sync_channel(1);
            let (wanted, wanted_out) = mpsc::sync_channel(2);
            let preparing = shared.clone();
            let work = move || prepare(&preparing, id, &wanted_out, &ready_in);
            std::thread::Builder::new()
                .name(format!("prepare-{shard}"))
                .spawn(work)
                .map_err(failed("start a thread for", &journal_dir))?;
            journals.push(Journal::new(shared.clone(), segment, ready, wanted));
        }
        if let Durability::Async { flush_every } = shared.config.durability {
            let shared = Arc::downgrade(&shared);
            std::thread::Builder::new()
                .name("flush".into())
                .spawn(move || flush(&shared, flush_every))
                .map_err(failed("start a thread for", &journal_dir))?;
        }
        let archiver = Archiver::new(shared.clone(), fold).spawn();
        let archiver = archiver.map_err(failed("start a thread for", &journal_dir))?;
        Ok((Arc::new(Log::new(shared, archiver)), journals))
    }

    fn archive_pending(&mut self) -> Result<(), OpenError> {
        let dir = self.directory.archive();
        let mut touched = std::collections::BTreeSet::new();
        for (partition, runs) in &self.pending {
            for batch in merge(runs) {
                let volume = self.archive.current(&dir, self.config.volume_bytes)?;
                volume.put(*partition, &batch)?;
                touched.insert(volume.number);
            }
        }
        for volume in &self.archive.volumes {
            // What an earlier run put and did not sync is synced here too.
            let last = self.archive.volumes.last().map(|volume| volume.number);
            if touched.contains(&volume.number) || last == Some(volume.number) {
                volume.sync().map_err(failed("sync", &volume.path))?;
            }
        }
        sync_dir(&dir).map_err(failed("sync", &dir))
    }
}

/// Runs of a partition put together to batches of some 64 KiB.
fn merge(runs: &[Run]) -> Vec<Run> {
    let mut merged: Vec<Run> = Vec::new();
    for run in runs {
        match merged.last_mut() {
            Some(batch) if batch.bytes.len() + run.bytes.len() <= 64 << 10 => {
                batch.bytes.extend_from_slice(&run.bytes);
                batch.last = run.last;
            }
            _ => merged.push(run.clone()),
        }
    }
    merged
}

/// Makes a journal's segments ahead, so that a commit never waits for one.
fn prepare(
    shared: &Shared,
    id: SegmentId,
    wanted: &mpsc::Receiver<u64>,
    ready: &mpsc::SyncSender<Option<Segment>>,
) {
    const TRIES: u32 = 30;
    let dir = shared.directory.journal();
    while let Ok(number) = wanted.recv() {
        let mut made = None;
        for attempt in 0..TRIES {
            match Segment::create(&dir, SegmentId { number, ..id }, shared.config.segment_bytes) {
                Ok(segment) => {
                    made = Some(segment);
                    break;
                }
                Err(error) => {
                    // Reserves stop; what is left of the present segment is for payments and
                    // cancels.
                    shared.pressure.store(true, Ordering::Release);
                    tracing::error!(%error, attempt, "no space for the next journal segment");
                    std::thread::sleep(Duration::from_secs(1));
                }
            }
        }
        if ready.send(made).is_err() {
            return;
        }
    }
}

/// Syncs the segments every so often (mode `async`) until the log is gone.
fn flush(shared: &Weak<Shared>, every: Duration) {
    loop {
        std::thread::sleep(every);
        let Some(shared) = shared.upgrade() else { return };
        if let Err(error) = shared.sync_segments() {
            tracing::error!(%error, "a flush failed; nothing more is committed");
            shared.flush_failed.store(true, Ordering::Release);
            return;
        }
    }
}
