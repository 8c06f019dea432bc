//! What the feed needs of the log; the log itself, and a small one in memory for tests.

use stockade_log::{Log, LogError, ReadOutcome};
use stockade_protocol::{Lsn, PartitionId};

/// Committed entries by partition.
pub trait Source {
    /// The last committed LSN.
    fn committed(&self, partition: PartitionId) -> Lsn;
    /// The oldest LSN there is.
    fn first_kept(&self, partition: PartitionId) -> Lsn;
    /// Entries from an LSN on; at least one if there is one.
    ///
    /// # Errors
    /// The log failed.
    fn read(
        &self,
        partition: PartitionId,
        from: Lsn,
        bytes_max: usize,
    ) -> Result<ReadOutcome, LogError>;
}

impl Source for Log {
    fn committed(&self, partition: PartitionId) -> Lsn {
        Log::committed(self, partition)
    }

    fn first_kept(&self, partition: PartitionId) -> Lsn {
        Log::first_kept(self, partition)
    }

    fn read(
        &self,
        partition: PartitionId,
        from: Lsn,
        bytes_max: usize,
    ) -> Result<ReadOutcome, LogError> {
        Log::read(self, partition, from, bytes_max)
    }
}

#[cfg(test)]
pub(crate) mod fake {
    use super::*;
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use stockade_protocol::entry::peek;
    use stockade_protocol::ids::TimestampMs;
    use stockade_protocol::{Entry, Event, SaleId};

    /// First LSN and encoded entries.
    type Kept = (u64, Vec<Vec<u8>>);

    /// Entries in memory, from a first LSN on.
    #[derive(Default)]
    pub(crate) struct MemoryLog(RefCell<BTreeMap<u16, Kept>>);

    impl MemoryLog {
        /// Appends an entry of the smallest kind.
        pub(crate) fn append(&self, partition: u16) {
            let mut map = self.0.borrow_mut();
            let (first, entries) = map.entry(partition).or_insert((1, Vec::new()));
            let entry = Entry {
                partition: PartitionId::new(partition),
                lsn: Lsn::new(*first + entries.len() as u64),
                at: TimestampMs::new(1),
                event: Event::SalePaused(SaleId::new(1).unwrap()),
            };
            let mut bytes = Vec::new();
            entry.encode(&mut bytes);
            entries.push(bytes);
        }

        /// Drops the oldest entries.
        pub(crate) fn trim(&self, partition: u16, count: usize) {
            let mut map = self.0.borrow_mut();
            let (first, entries) = map.get_mut(&partition).unwrap();
            entries.drain(..count);
            *first += count as u64;
        }

        /// Bytes of one entry.
        pub(crate) fn entry_bytes(&self) -> usize {
            let map = self.0.borrow();
            peek(&map.values().next().unwrap().1[0]).unwrap().len
        }
    }

    impl Source for MemoryLog {
        fn committed(&self, partition: PartitionId) -> Lsn {
            let map = self.0.borrow();
            let last =
                |(first, entries): &(u64, Vec<_>)| Lsn::new(first + entries.len() as u64 - 1);
            map.get(&partition.get()).map_or(Lsn::NONE, last)
        }

        fn first_kept(&self, partition: PartitionId) -> Lsn {
            let map = self.0.borrow();
            map.get(&partition.get()).map_or(Lsn::FIRST, |(first, _)| Lsn::new(*first))
        }

        fn read(
            &self,
            partition: PartitionId,
            from: Lsn,
            bytes_max: usize,
        ) -> Result<ReadOutcome, LogError> {
            let map = self.0.borrow();
            let Some((first, entries)) = map.get(&partition.get()) else {
                return Ok(ReadOutcome::End);
            };
            if from.get() < *first {
                return Ok(ReadOutcome::Gap { first_kept: Lsn::new(*first) });
            }
            let (mut bytes, mut last) = (Vec::new(), from);
            for (at, entry) in entries.iter().enumerate().skip((from.get() - first) as usize) {
                if !bytes.is_empty() && bytes.len() + entry.len() > bytes_max {
                    break;
                }
                bytes.extend_from_slice(entry);
                last = Lsn::new(first + at as u64);
            }
            if bytes.is_empty() {
                Ok(ReadOutcome::End)
            } else {
                Ok(ReadOutcome::Entries { bytes, last })
            }
        }
    }
}
