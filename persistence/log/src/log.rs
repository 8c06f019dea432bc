//! The shared side of a running log: committed positions, reading, consumers.

use crate::api::{ConsumerCursor, ReadOutcome};
use crate::archive::Task;
use crate::consumers::Cursors;
use crate::error::LogError;
use crate::runs::{Run, front, tail};
use crate::shared::{Shared, lock};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stockade_protocol::text::ConsumerName;
use stockade_protocol::{Lsn, PartitionId};

/// See the module.
#[derive(Debug)]
pub struct Log {
    shared: Arc<Shared>,
    archiver: Mutex<Option<Task>>,
}

impl Log {
    pub(crate) fn new(shared: Arc<Shared>, archiver: Option<Task>) -> Self {
        Self { shared, archiver: Mutex::new(archiver) }
    }

    /// Counts up with every start of the engine on this directory.
    pub fn epoch(&self) -> u64 {
        lock(&self.shared.floor).epoch
    }

    /// The last committed LSN of a partition.
    pub fn committed(&self, partition: PartitionId) -> Lsn {
        self.shared.committed_lsn(partition)
    }

    /// The oldest LSN that can be read; the one after `committed` if none can.
    pub fn first_kept(&self, partition: PartitionId) -> Lsn {
        lock(&self.shared.floor).of(partition).first_kept
    }

    /// Counts up with every commit of any shard; for [`Self::wait_commit`].
    pub fn commit_count(&self) -> u64 {
        self.shared.commit_count()
    }

    /// Blocks the calling thread until `commit_count` is above `seen`, or the time is over.
    pub fn wait_commit(&self, seen: u64, timeout: Duration) -> u64 {
        self.shared.wait_commit(seen, timeout)
    }

    /// Wakes those who wait for commits, without one.
    pub fn wake(&self) {
        self.shared.wake();
    }

    /// Committed entries from `from` on, at least one if there is one, else about `bytes_max`
    /// bytes. Blocking: file reads. Not for a shard's thread.
    ///
    /// # Errors
    /// The archive or a file failed.
    pub fn read(
        &self,
        partition: PartitionId,
        from: Lsn,
        bytes_max: usize,
    ) -> Result<ReadOutcome, LogError> {
        let first_kept = self.first_kept(partition);
        if from < first_kept {
            return Ok(ReadOutcome::Gap { first_kept });
        }
        let committed = self.committed(partition);
        let (mut bytes, mut next) = (Vec::new(), from);
        while next <= committed && (bytes.is_empty() || bytes.len() < bytes_max) {
            let Some(run) = self.run(partition, next)? else { break };
            let Some(rest) = tail(run.first, &run.bytes, next) else { break };
            let room = bytes_max.saturating_sub(bytes.len());
            let (part, last) = front(next, rest, room);
            bytes.extend_from_slice(part);
            next = last.next();
        }
        if bytes.is_empty() {
            if from <= committed {
                // Trimmed in this very moment, or the archive lost what it had.
                let first_kept = self.first_kept(partition);
                if from < first_kept {
                    return Ok(ReadOutcome::Gap { first_kept });
                }
                let lost = format!("partition {partition} lsn {from} cannot be read");
                return Err(LogError::Failed(lost));
            }
            return Ok(ReadOutcome::End);
        }
        Ok(ReadOutcome::Entries { bytes, last: Lsn::new(next.get() - 1) })
    }

    /// The run that holds `lsn`: from the tail, or from the archive, or (archived in this very
    /// moment) from the archive all the same.
    fn run(&self, partition: PartitionId, lsn: Lsn) -> Result<Option<Run>, LogError> {
        if let Some(run) = self.shared.tail_run(partition, lsn) {
            return Ok(Some(run));
        }
        let found = lock(&self.shared.archive).find(partition, lsn);
        found.map_err(|error| LogError::Failed(error.to_string()))
    }

    /// Registers a consumer at the oldest entry, if it is not registered; from then on it holds
    /// trimming back.
    ///
    /// # Errors
    /// Too many consumers.
    pub fn consumer_register(&self, name: &ConsumerName) -> Result<(), LogError> {
        let floor = lock(&self.shared.floor).clone();
        let oldest = || -> Cursors {
            let cursor = |p| (p, Lsn::new(floor.of(p).first_kept.get().saturating_sub(1)));
            self.shared.partitions().map(cursor).collect()
        };
        lock(&self.shared.consumers).register(name, oldest)?;
        self.shared.wake();
        Ok(())
    }

    /// Where a consumer is, partition by partition (65535 last).
    ///
    /// # Errors
    /// No such consumer.
    pub fn consumer_cursors(&self, name: &ConsumerName) -> Result<Vec<ConsumerCursor>, LogError> {
        let consumers = lock(&self.shared.consumers);
        let cursors = consumers.cursors(name)?;
        let cursor = |partition| ConsumerCursor {
            partition,
            acked: cursors.get(&partition).copied().unwrap_or_default(),
            committed: self.committed(partition),
        };
        Ok(self.shared.partitions().map(cursor).collect())
    }

    /// All consumers' names, ascending.
    pub fn consumers(&self) -> Vec<ConsumerName> {
        lock(&self.shared.consumers).names()
    }

    /// A consumer has processed everything up to and including `lsn`; durable within a second. An
    /// LSN below the present cursor changes nothing.
    ///
    /// # Errors
    /// No such consumer, or beyond what is committed.
    pub fn consumer_ack(
        &self,
        name: &ConsumerName,
        partition: PartitionId,
        lsn: Lsn,
    ) -> Result<(), LogError> {
        let committed = self.committed(partition);
        let mut consumers = lock(&self.shared.consumers);
        let acked = consumers.cursors(name)?.get(&partition).copied().unwrap_or_default();
        if lsn > committed {
            return Err(LogError::Cursor {
                partition: partition.get(),
                lsn: lsn.get(),
                from: acked.get(),
                to: committed.get(),
            });
        }
        consumers.ack(name, partition, lsn)
    }

    /// Ends a consumer.
    ///
    /// # Errors
    /// No such consumer.
    pub fn consumer_drop(&self, name: &ConsumerName) -> Result<(), LogError> {
        lock(&self.shared.consumers).remove(name)
    }

    /// True when reserves must be answered `busy`: the archiver or the disk is behind its bound.
    pub fn pressure(&self) -> bool {
        self.shared.pressure.any()
    }

    /// Why there is pressure, in words for people; empty if there is none.
    pub fn pressure_reasons(&self) -> Vec<&'static str> {
        self.shared.pressure.reasons()
    }

    /// Bytes on disk: journals, archive, snapshots; counted every two seconds.
    pub fn disk_bytes(&self) -> u64 {
        self.shared.disk_bytes.load(Ordering::Relaxed)
    }

    /// Archives everything, writes cursors and floor, and stops the archiver. After all journals
    /// closed.
    ///
    /// # Errors
    /// The archive or a file failed.
    pub fn shutdown(&self) -> Result<(), LogError> {
        let Some(task) = lock(&self.archiver).take() else { return Ok(()) };
        task.finish(&self.shared).map_err(|error| LogError::Failed(error.to_string()))
    }
}
