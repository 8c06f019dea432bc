//! The log in sled: a series of volumes, and the thread that fills them.

mod archiver;
pub(crate) mod volume;

pub(crate) use archiver::{Archiver, Task, decode};

use crate::error::OpenError;
use crate::files::{failed, list};
use crate::runs::Run;
use std::path::Path;
use stockade_protocol::{Lsn, PartitionId};
use volume::Volume;

/// All volumes of a directory, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    pub volumes: Vec<Volume>,
}

impl Archive {
    /// Opens the volumes from `first` on; older ones are left-overs of a trim and are deleted.
    pub fn open(dir: &Path, first: u64) -> Result<Self, OpenError> {
        let mut volumes = Vec::new();
        for path in list(dir).map_err(failed("list", dir))? {
            let name = path.file_name().and_then(|name| name.to_str());
            let number = name.and_then(|name| name.strip_prefix('v')?.parse::<u64>().ok());
            match number {
                Some(number) if number < first => {
                    std::fs::remove_dir_all(&path).map_err(failed("delete", &path))?;
                }
                Some(number) => volumes.push(Volume::open(dir, number)?),
                None => {}
            }
        }
        Ok(Self { volumes })
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

    /// The batch that holds `lsn`.
    pub fn find(&self, partition: PartitionId, lsn: Lsn) -> Result<Option<Run>, OpenError> {
        for volume in self.volumes.iter().rev() {
            if let Some(run) = volume.find(partition, lsn)? {
                return Ok(Some(run));
            }
        }
        Ok(None)
    }

    /// The volume that takes new batches; rolls to a new one at a size.
    pub fn current(&mut self, dir: &Path, volume_bytes: u64) -> Result<&mut Volume, OpenError> {
        let full = self.volumes.last().is_none_or(|volume| volume.bytes >= volume_bytes);
        if full {
            let number = self.volumes.last().map_or(1, |volume| volume.number + 1);
            self.volumes.push(Volume::open(dir, number)?);
            crate::files::sync_dir(dir).map_err(failed("sync", dir))?;
        }
        Ok(self.volumes.last_mut().expect("one was just made"))
    }
}
