//! From a data directory to a running log: read everything, check that nothing is missing, hand out
//! images and entries, and begin a new epoch on empty segments.

use crate::api::{Config, Durability, Fold};
use crate::archive::{Archive, Archiver, decode};
use crate::consumers::Consumers;
use crate::crash;
use crate::directory::Directory;
use crate::error::OpenError;
use crate::files::{damaged, failed, remove_asides, replace};
use crate::floor::{Floor, PartitionFloor};
use crate::journal::Journal;
use crate::journal::ahead::{Ahead, Maker};
use crate::journal::frame::SegmentId;
use crate::journal::recover::{self, Journals};
use crate::journal::segment::Segment;
use crate::log::Log;
use crate::runs::{Run, by_partition, tail};
use crate::shared::Shared;
use crate::snapshot::{self, Image};
use crate::stepped::{SideWork, Stepped};
use crate::storage::Storage;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
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
    open_on(Storage::local(), config, fold)
}

/// As [`open`], on other files than the operating system's.
///
/// # Errors
/// See [`OpenError`].
pub fn open_on(
    storage: Storage,
    config: Config,
    fold: Arc<dyn Fold>,
) -> Result<Recovery, OpenError> {
    let directory = Directory::take(storage, &config.dir, config.partitions)?;
    read(config, fold, directory)
}

/// As [`open`], for a directory that is already taken. Changes nothing in it.
pub(crate) fn read(
    config: Config,
    fold: Arc<dyn Fold>,
    directory: Directory,
) -> Result<Recovery, OpenError> {
    let (mut floor, consumers) = read_floor(&directory)?;
    let mut warnings = Vec::new();
    let mut images = BTreeMap::new();
    for (partition, floor) in &mut floor.partitions {
        if let Some(image) = read_snapshot(&directory, *partition, floor, &mut warnings)? {
            images.insert(*partition, image);
        }
    }
    let archive = Archive::open(&directory, &floor)?;
    let journals = recover::read(&directory, floor.epoch)?;
    let Journals { frames, files, warnings: torn } = journals;
    warnings.extend(torn);
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
    recovery.limit_cursors();
    recovery.find_newest()?;
    Ok(recovery)
}

/// Floor and consumers. Both are there from the first start on, before there is any data.
fn read_floor(directory: &Directory) -> Result<(Floor, Consumers), OpenError> {
    let (disk, path) = (directory.disk(), directory.floor());
    let Some(floor) = Floor::read(disk, &path, directory.id)? else {
        for dir in [directory.journal(), directory.archive(), directory.snapshots()] {
            if !disk.list(&dir).map_err(failed("list", &dir))?.is_empty() {
                let what = "the file is missing although the directory holds data";
                return Err(damaged(&path, 0, what));
            }
        }
        return Ok((Floor::default(), Consumers::default()));
    };
    let path = directory.consumers();
    let consumers = Consumers::read(disk, &path, directory.id)?;
    let mut consumers = consumers.ok_or_else(|| damaged(&path, 0, "the file is missing"))?;
    for (partition, floor) in &floor.partitions {
        for name in consumers.names() {
            // Trimming relied on a cursor that may not have reached the file. (Not on more than
            // what is gone: a consumer that came later may be before the others.)
            let trimmed = Lsn::new(floor.first_kept.get().saturating_sub(1));
            let _ = consumers.ack(&name, *partition, floor.acked.min(trimmed));
        }
    }
    Ok((floor, consumers))
}

/// The snapshot that the floor names. One that is damaged is done without where the archive still
/// has every entry.
fn read_snapshot(
    directory: &Directory,
    partition: PartitionId,
    floor: &mut PartitionFloor,
    warnings: &mut Vec<String>,
) -> Result<Option<Image>, OpenError> {
    if floor.snapshot == Lsn::NONE {
        return Ok(None);
    }
    if floor.snapshot > floor.archived {
        let what = format!("partition {partition}: the snapshot is ahead of the log");
        return Err(damaged(&directory.floor(), 0, what));
    }
    match snapshot::read(directory, partition, floor.snapshot) {
        Ok(image) => Ok(Some(image)),
        Err(error @ (OpenError::Damaged { .. } | OpenError::Foreign { .. }))
            if floor.first_kept == Lsn::FIRST =>
        {
            warnings.push(format!("{error} (done without: the log has every entry)"));
            floor.snapshot = Lsn::NONE;
            Ok(None)
        }
        Err(error) => Err(error),
    }
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

    /// That the archive holds what the floor says; what it holds beyond does not count.
    fn find_archived(&mut self) -> Result<(), OpenError> {
        for partition in self.partitions() {
            let floor = self.floor.of(partition);
            let last = self.archive.contiguous_last(partition, floor.first_kept);
            if last < floor.archived {
                return Err(self.missing(partition, last.next(), floor.archived));
            }
            self.archived.insert(partition, floor.archived);
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

    /// Consumers go on where the log does: new entries take the places of those that were lost.
    fn limit_cursors(&mut self) {
        for partition in self.partitions() {
            let last = self.last(partition);
            if self.consumers.limit(partition, last) {
                self.warnings.push(format!(
                    "a consumer had seen entries of partition {partition} behind {last} that were \
                     lost with the power (durability async); it goes on from there"
                ));
            }
        }
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

    /// Partitions of users that the directory was made with.
    pub fn partition_count(&self) -> u16 {
        self.directory.partitions
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
    pub fn start(self) -> Result<(Arc<Log>, Vec<Journal>), OpenError> {
        let Started { shared, fold, mut journals, makers } = self.begin(false)?;
        let dir = shared.directory.journal();
        let thread = |name: String| std::thread::Builder::new().name(name);
        for (shard, (journal, maker)) in journals.iter_mut().zip(makers).enumerate() {
            let handle = thread(format!("prepare-{shard}")).spawn(move || maker.run());
            journal.set_maker(handle.map_err(failed("start a thread for", &dir))?);
        }
        if let Durability::Async { flush_every } = shared.config.durability {
            let shared = Arc::downgrade(&shared);
            thread("flush".into())
                .spawn(move || flush(&shared, flush_every))
                .map_err(failed("start a thread for", &dir))?;
        }
        let archiver = Archiver::new(shared.clone(), fold).spawn();
        let archiver = archiver.map_err(failed("start a thread for", &dir))?;
        Ok((Arc::new(Log::new(shared, Some(archiver))), journals))
    }

    /// As [`Self::start`], without threads: a test does the side work step by step.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn start_stepped(self) -> Result<Stepped, OpenError> {
        let Started { shared, fold, journals, makers } = self.begin(true)?;
        let archiver = Archiver::new(shared.clone(), fold);
        let log = Arc::new(Log::new(shared.clone(), None));
        Ok(Stepped { log, journals, side: SideWork::new(shared, archiver, makers) })
    }

    /// The order is the invariant: entries durable in the archive, then the floor with the new
    /// epoch, and only then the old segments go and new ones come.
    fn begin(mut self, stepped: bool) -> Result<Started, OpenError> {
        self.archive_pending()?;
        crash::point("in_recovery");
        self.floor.epoch += 1;
        let epoch = self.floor.epoch;
        for partition in self.partitions() {
            let last = self.last(partition);
            if last > Lsn::NONE {
                self.floor.partitions.entry(partition).or_default().archived = last;
            }
        }
        let Self { config, fold, directory, floor, archive, consumers, segments, .. } = self;
        let disk = directory.disk();
        let path = directory.consumers();
        let written = replace(disk, &path, &consumers.encode(directory.id));
        written.map_err(failed("write", &path))?;
        let path = directory.floor();
        let written = floor.write(disk, &path, directory.id);
        written.map_err(failed("write", &path))?;
        crash::point("in_recovery");
        for segment in &segments {
            disk.remove_file(segment).map_err(failed("delete", segment))?;
        }
        let dir = directory.snapshots();
        remove_asides(disk, &dir).map_err(failed("clean", &dir))?;
        let journal_dir = directory.journal();
        disk.sync_dir(&journal_dir).map_err(failed("sync", &journal_dir))?;
        let shards = config.shards;
        let shared = Arc::new(Shared::new(config, directory, archive, floor, consumers));
        let (mut journals, mut makers) = (Vec::new(), Vec::new());
        for shard in 0..shards {
            let id = SegmentId { epoch, shard, number: 1 };
            let size = shared.config.segment_bytes;
            let segment = Segment::create(&shared.directory, id, size);
            let segment = segment.map_err(failed("make a segment in", &journal_dir))?;
            let ahead = Arc::new(Ahead::new(stepped));
            makers.push(Maker::new(shared.clone(), ahead.clone(), id));
            journals.push(Journal::new(shared.clone(), segment, ahead));
        }
        Ok(Started { shared, fold, journals, makers })
    }

    /// Puts into the archive what the journals hold, and makes it durable.
    fn archive_pending(&mut self) -> Result<(), OpenError> {
        // They do not count, and a new volume may take the name of one that was being made.
        for left_over in std::mem::take(&mut self.archive.left_overs) {
            let removed = self.directory.disk().remove_dir_all(&left_over);
            removed.map_err(failed("delete", &left_over))?;
        }
        for (partition, runs) in &self.pending {
            for batch in merge(runs) {
                let batch = (*partition, &batch);
                let bytes = self.config.volume_bytes;
                self.archive.put(&self.directory, &self.floor, bytes, batch)?;
            }
        }
        self.archive.sync(&self.floor)?;
        // A volume that the run before made may have a name in the page cache only.
        let dir = self.directory.archive();
        self.directory.disk().sync_dir(&dir).map_err(failed("sync", &dir))
    }
}

/// What a start made, before its threads.
struct Started {
    shared: Arc<Shared>,
    fold: Arc<dyn Fold>,
    journals: Vec<Journal>,
    makers: Vec<Maker>,
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

/// Syncs the segments every so often (mode `async`) until the log is gone.
fn flush(shared: &Weak<Shared>, every: Duration) {
    loop {
        std::thread::sleep(every);
        let Some(shared) = shared.upgrade() else { return };
        if let Err(error) = shared.flush() {
            tracing::error!(%error, "a flush failed; nothing more is committed");
            return;
        }
    }
}
