//! The log in tables: a series of volumes, and the thread that fills them.

mod archiver;
pub(crate) mod sled_table;
pub(crate) mod table;
mod trim;
pub(crate) mod volume;

pub(crate) use archiver::{Archiver, Task, decode};

use crate::directory::Directory;
use crate::error::OpenError;
use crate::files::failed;
use crate::floor::Floor;
use crate::runs::Run;
use std::path::PathBuf;
use stockade_protocol::{Lsn, PartitionId};
use volume::Volume;

/// All volumes of a directory, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    pub volumes: Vec<Volume>,
    /// Left-overs of a trim, and volumes that were being made.
    pub left_overs: Vec<PathBuf>,
}

impl Archive {
    /// Opens the volumes that the floor keeps. Changes nothing.
    pub fn open(directory: &Directory, floor: &Floor) -> Result<Self, OpenError> {
        let dir = directory.archive();
        let archived = |partition| floor.of(partition).archived;
        let mut archive = Self::default();
        for path in directory.disk().list(&dir).map_err(failed("list", &dir))? {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let number = name.strip_prefix('v').and_then(|number| number.parse::<u64>().ok());
            let Some(number) = number.filter(|n| volume::directory_name(*n) == name) else {
                let what = "no volume has such a name".into();
                return Err(OpenError::Foreign { file: path, what });
            };
            let kept = number >= floor.volume_first;
            match if kept { Volume::open(directory, number, &archived)? } else { None } {
                Some(volume) => archive.volumes.push(volume),
                None => archive.left_overs.push(path),
            }
        }
        Ok(archive)
    }

    /// The last LSN that the archive holds without a hole from `from` on (`from - 1` if it has
    /// none).
    pub fn contiguous_last(&self, partition: PartitionId, from: Lsn) -> Lsn {
        let mut last = Lsn::new(from.get().saturating_sub(1));
        for volume in &self.volumes {
            if let Some((first, end)) = volume.spans.get(&partition)
                && *first <= last.next()
                && *end > last
            {
                last = *end;
            }
        }
        last
    }

    /// The batch that holds `lsn`. The newest volume that has it counts: an older one may hold it
    /// from a time when it could not be made durable.
    pub fn find(&self, partition: PartitionId, lsn: Lsn) -> Result<Option<Run>, OpenError> {
        for volume in self.volumes.iter().rev() {
            if let Some(run) = volume.find(partition, lsn)? {
                return Ok(Some(run));
            }
        }
        Ok(None)
    }

    /// Puts a batch into the newest volume, or into a new one where that is full or closed. A
    /// volume that refuses takes nothing more.
    pub fn put(
        &mut self,
        directory: &Directory,
        floor: &Floor,
        volume_bytes: u64,
        (partition, run): (PartitionId, &Run),
    ) -> Result<(), OpenError> {
        let full = |volume: &Volume| volume.closed || volume.bytes >= volume_bytes;
        if self.volumes.last().is_none_or(full) {
            let before = self.volumes.last().map_or(0, |volume| volume.number);
            let number = (before + 1).max(floor.volume_first);
            let made = Volume::create(directory, number)?;
            // It may have the name of one that was being made when the engine died: what is in it
            // now is no left-over.
            self.left_overs.retain(|path| *path != made.path);
            self.volumes.push(made);
        }
        let volume = self.volumes.last_mut().expect("one was just made");
        let put = volume.put(partition, run);
        if put.is_err() {
            volume.close(&|partition| floor.of(partition).archived);
        }
        put
    }

    /// Makes everything that was put durable. Where a volume refuses, none that has something
    /// beyond the floor takes more: all of that is put again, in order, into a new one.
    pub fn sync(&mut self, floor: &Floor) -> Result<(), OpenError> {
        let mut dirty = self.volumes.iter_mut().filter(|volume| volume.dirty);
        let failed = dirty.find_map(|volume| Some((volume.path.clone(), volume.sync().err()?)));
        let Some((path, source)) = failed else { return Ok(()) };
        let archived = |partition| floor.of(partition).archived;
        let beyond =
            |volume: &Volume| volume.spans.iter().any(|(p, (_, last))| *last > archived(*p));
        for volume in self.volumes.iter_mut().filter(|volume| volume.dirty || beyond(volume)) {
            volume.close(&archived);
        }
        Err(OpenError::Io { doing: "sync", path, source })
    }

    /// Something was put that is not durable.
    pub fn is_dirty(&self) -> bool {
        self.volumes.iter().any(|volume| volume.dirty)
    }
}
