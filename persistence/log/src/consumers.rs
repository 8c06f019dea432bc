//! Named consumers and their cursors: in memory, written to a small file by the archiver.

use crate::disk::Disk;
use crate::error::{LogError, OpenError};
use crate::files::{damaged, failed, read_optional};
use crate::sealed::{HEADER_BYTES, Kind, seal, unseal};
use std::collections::BTreeMap;
use std::path::Path;
use stockade_protocol::le::{Malformed, Reader, Writer};
use stockade_protocol::limits::CONSUMERS_MAX;
use stockade_protocol::text::ConsumerName;
use stockade_protocol::{Lsn, PartitionId};

const KIND: Kind = Kind { magic: b"STKCONS\0", version: 1 };

/// Last acknowledged LSN by partition.
pub type Cursors = BTreeMap<PartitionId, Lsn>;

/// All consumers.
#[derive(Clone, Debug, Default)]
pub struct Consumers {
    by_name: BTreeMap<ConsumerName, Cursors>,
    /// Changed since the last [`Self::take_changed`].
    changed: bool,
}

impl Consumers {
    /// Reads the file; `None` if there is none.
    ///
    /// # Errors
    /// Damage, or the operating system refused.
    pub fn read(disk: &dyn Disk, path: &Path, directory: u64) -> Result<Option<Self>, OpenError> {
        let Some(bytes) = read_optional(disk, path).map_err(failed("read", path))? else {
            return Ok(None);
        };
        let body = unseal(path, KIND, directory, &bytes)?;
        let by_name = Self::decode(body)
            .map_err(|error| damaged(path, HEADER_BYTES as u64, error.to_string()))?;
        Ok(Some(Self { by_name, changed: false }))
    }

    fn decode(body: &[u8]) -> Result<BTreeMap<ConsumerName, Cursors>, Malformed> {
        let mut r = Reader::new(body);
        let mut by_name = BTreeMap::new();
        for _ in 0..r.u32()? {
            let name = ConsumerName::new(r.text("consumer")?.as_bytes());
            let name = name.map_err(|_| Malformed::Range("consumer"))?;
            let mut cursors = Cursors::new();
            for _ in 0..r.u32()? {
                cursors.insert(PartitionId::new(r.u16()?), Lsn::new(r.u64()?));
            }
            by_name.insert(name, cursors);
        }
        if !r.rest().is_empty() {
            return Err(Malformed::Range("length"));
        }
        Ok(by_name)
    }

    /// The file's bytes.
    pub fn encode(&self, directory: u64) -> Vec<u8> {
        let mut body = Vec::new();
        body.put_u32(self.by_name.len() as u32);
        for (name, cursors) in &self.by_name {
            body.put_text(name.as_str());
            body.put_u32(cursors.len() as u32);
            for (partition, lsn) in cursors {
                body.put_u16(partition.get());
                body.put_u64(lsn.get());
            }
        }
        seal(KIND, directory, &body)
    }

    /// True once after changes.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// They could not be written: they count as changed again.
    pub fn set_changed(&mut self) {
        self.changed = true;
    }

    /// Names, ascending.
    pub fn names(&self) -> Vec<ConsumerName> {
        self.by_name.keys().cloned().collect()
    }

    /// Adds one at the given cursors, if it is new.
    ///
    /// # Errors
    /// There are too many.
    pub fn register(
        &mut self,
        name: &ConsumerName,
        cursors: impl FnOnce() -> Cursors,
    ) -> Result<(), LogError> {
        if self.by_name.contains_key(name) {
            return Ok(());
        }
        if self.by_name.len() >= CONSUMERS_MAX {
            return Err(LogError::TooManyConsumers);
        }
        self.by_name.insert(name.clone(), cursors());
        self.changed = true;
        Ok(())
    }

    /// Where one is.
    ///
    /// # Errors
    /// No such consumer.
    pub fn cursors(&self, name: &ConsumerName) -> Result<&Cursors, LogError> {
        self.by_name.get(name).ok_or(LogError::UnknownConsumer)
    }

    /// Moves a cursor forward; an LSN that is not further changes nothing.
    ///
    /// # Errors
    /// No such consumer.
    pub fn ack(
        &mut self,
        name: &ConsumerName,
        partition: PartitionId,
        lsn: Lsn,
    ) -> Result<(), LogError> {
        let cursors = self.by_name.get_mut(name).ok_or(LogError::UnknownConsumer)?;
        let cursor = cursors.entry(partition).or_default();
        if lsn > *cursor {
            *cursor = lsn;
            self.changed = true;
        }
        Ok(())
    }

    /// No cursor of a partition is beyond `last`: true if one was. (Mode `async`: entries that a
    /// consumer had seen went with the power.)
    pub fn limit(&mut self, partition: PartitionId, last: Lsn) -> bool {
        let cursors = self.by_name.values_mut().filter_map(|c| c.get_mut(&partition));
        let mut any = false;
        for cursor in cursors.filter(|cursor| **cursor > last) {
            *cursor = last;
            any = true;
        }
        self.changed |= any;
        any
    }

    /// Ends one.
    ///
    /// # Errors
    /// No such consumer.
    pub fn remove(&mut self, name: &ConsumerName) -> Result<(), LogError> {
        self.by_name.remove(name).ok_or(LogError::UnknownConsumer)?;
        self.changed = true;
        Ok(())
    }

    /// The furthest-behind cursor of a partition; `None` without consumers.
    pub fn acked_by_all(&self, partition: PartitionId) -> Option<Lsn> {
        let cursor = |cursors: &Cursors| cursors.get(&partition).copied().unwrap_or_default();
        self.by_name.values().map(cursor).min()
    }
}
