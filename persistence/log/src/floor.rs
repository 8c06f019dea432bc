//! The floor: what is durable below the journal, partition by partition. Written after sled's files
//! were synced and before anything that it replaces is deleted.

use crate::disk::Disk;
use crate::error::OpenError;
use crate::files::{damaged, failed, read_optional, replace};
use crate::sealed::{HEADER_BYTES, Kind, seal, unseal};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use stockade_protocol::le::{Malformed, Reader, Writer};
use stockade_protocol::{Lsn, PartitionId};

const KIND: Kind = Kind { magic: b"STKFLOOR", version: 1 };

/// What the floor says of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionFloor {
    /// The oldest entry in the archive; the one after `archived` if there is none.
    pub first_kept: Lsn,
    /// The last entry that is durable in the archive.
    pub archived: Lsn,
    /// What the newest durable snapshot contains; `Lsn::NONE` without one.
    pub snapshot: Lsn,
    /// The cursors that trimming relied on: no consumer was below this.
    pub acked: Lsn,
}

impl Default for PartitionFloor {
    fn default() -> Self {
        Self { first_kept: Lsn::FIRST, archived: Lsn::NONE, snapshot: Lsn::NONE, acked: Lsn::NONE }
    }
}

/// The whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Floor {
    /// The run that wrote it.
    pub epoch: u64,
    /// Volumes older than this may be deleted.
    pub volume_first: u64,
    /// Partitions with entries.
    pub partitions: BTreeMap<PartitionId, PartitionFloor>,
}

impl Floor {
    /// Reads the floor of a directory; `None` if there is none.
    ///
    /// # Errors
    /// Damage, or the operating system refused.
    pub fn read(disk: &dyn Disk, path: &Path, directory: u64) -> Result<Option<Self>, OpenError> {
        let Some(bytes) = read_optional(disk, path).map_err(failed("read", path))? else {
            return Ok(None);
        };
        let body = unseal(path, KIND, directory, &bytes)?;
        let floor = Self::decode(body);
        floor.map(Some).map_err(|e| damaged(path, HEADER_BYTES as u64, e.to_string()))
    }

    fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let mut r = Reader::new(body);
        let (epoch, volume_first, count) = (r.u64()?, r.u64()?, r.u32()?);
        let mut partitions = BTreeMap::new();
        for _ in 0..count {
            let partition = PartitionId::new(r.u16()?);
            let floor = PartitionFloor {
                first_kept: Lsn::new(r.u64()?),
                archived: Lsn::new(r.u64()?),
                snapshot: Lsn::new(r.u64()?),
                acked: Lsn::new(r.u64()?),
            };
            partitions.insert(partition, floor);
        }
        if !r.rest().is_empty() {
            return Err(Malformed::Range("length"));
        }
        Ok(Self { epoch, volume_first, partitions })
    }

    /// Writes it durably.
    ///
    /// # Errors
    /// The operating system refused.
    pub fn write(&self, disk: &dyn Disk, path: &Path, directory: u64) -> io::Result<()> {
        replace(disk, path, &self.encode(directory))
    }

    /// The file's bytes.
    pub fn encode(&self, directory: u64) -> Vec<u8> {
        let mut body = Vec::new();
        body.put_u64(self.epoch);
        body.put_u64(self.volume_first);
        body.put_u32(self.partitions.len() as u32);
        for (partition, floor) in &self.partitions {
            body.put_u16(partition.get());
            body.put_u64(floor.first_kept.get());
            body.put_u64(floor.archived.get());
            body.put_u64(floor.snapshot.get());
            body.put_u64(floor.acked.get());
        }
        seal(KIND, directory, &body)
    }

    /// What it says of a partition.
    pub fn of(&self, partition: PartitionId) -> PartitionFloor {
        self.partitions.get(&partition).copied().unwrap_or_default()
    }
}
