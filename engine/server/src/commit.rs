//! Group commit: what waits for the journal, as a pure machine, and the thread that writes.
//!
//! A shard's entries gather in the pending batch while the batch before is being made durable.
//! Answers rest on entries: they are kept with the batch in flight or with the pending one and are
//! released when it is committed, never before.

use crossbeam::channel::Receiver;
use std::time::{Duration, Instant};
use stockade_core::effects::Position;
use stockade_log::{CommitError, Journal};

/// See the module. `T` is what waits.
#[derive(Debug)]
pub struct CommitRing<T> {
    pending: Vec<u8>,
    pending_waiting: Vec<T>,
    /// After the last entry appended.
    appended: Position,
    flight: Option<Position>,
    flight_waiting: Vec<T>,
    committed: Position,
    spare: Vec<u8>,
}

impl<T> Default for CommitRing<T> {
    fn default() -> Self {
        Self {
            pending: Vec::new(),
            pending_waiting: Vec::new(),
            appended: Position::NONE,
            flight: None,
            flight_waiting: Vec::new(),
            committed: Position::NONE,
            spare: Vec::new(),
        }
    }
}

impl<T> CommitRing<T> {
    /// Adds entries to the pending batch and leaves `log` empty; `position` is that after the last
    /// one.
    pub fn append(&mut self, log: &mut Vec<u8>, position: Position) {
        assert!(position >= self.appended, "positions never go back");
        if self.pending.is_empty() {
            std::mem::swap(&mut self.pending, log);
        } else {
            self.pending.append(log);
        }
        self.appended = position;
    }

    /// Something that may leave once `position` is committed: given back if it may leave now.
    #[must_use]
    pub fn rest(&mut self, position: Position, item: T) -> Option<T> {
        assert!(position <= self.appended, "an answer rests on entries that were appended");
        if position <= self.committed {
            return Some(item);
        }
        match self.flight {
            Some(flight) if position <= flight => self.flight_waiting.push(item),
            _ => self.pending_waiting.push(item),
        }
        None
    }

    /// Something that waits for all entries appended so far; the last one has no position of its
    /// own.
    pub fn rest_on_last(&mut self, item: T) {
        assert!(!self.pending.is_empty(), "the entry was just appended");
        self.pending_waiting.push(item);
    }

    /// The next batch, if none is in flight and there is one.
    pub fn batch(&mut self) -> Option<Batch> {
        if self.flight.is_some() || self.pending.is_empty() {
            return None;
        }
        self.flight = Some(self.appended);
        std::mem::swap(&mut self.flight_waiting, &mut self.pending_waiting);
        let bytes = std::mem::replace(&mut self.pending, std::mem::take(&mut self.spare));
        #[cfg(feature = "mutations")]
        let bytes =
            if stockade_protocol::mutation::is(stockade_protocol::mutation::Mutation::BatchDropped)
            {
                Vec::new()
            } else {
                bytes
            };
        Some(Batch { bytes, position: self.appended })
    }

    /// The batch in flight is durable: the position that is committed now. What waited for it goes
    /// into `released`.
    pub fn committed(&mut self, mut buffer: Vec<u8>, released: &mut Vec<T>) -> Position {
        let position = self.flight.take().expect("only a batch in flight is committed");
        self.committed = position;
        released.append(&mut self.flight_waiting);
        buffer.clear();
        if buffer.capacity() <= SPARE_BYTES_MAX {
            self.spare = buffer;
        }
        position
    }

    /// Bytes that wait for the batch in flight.
    pub fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    /// Nothing is in flight or waits.
    pub fn is_idle(&self) -> bool {
        self.flight.is_none() && self.pending.is_empty()
    }
}

/// A buffer larger than this is not kept for the next batch.
const SPARE_BYTES_MAX: usize = 4 << 20;

/// Entries on their way to the journal.
#[derive(Debug)]
pub struct Batch {
    /// Encoded entries.
    pub bytes: Vec<u8>,
    /// The shard's position after them.
    pub position: Position,
}

/// What became of a batch.
#[derive(Debug)]
pub struct Committed {
    /// The batch's buffer, for reuse.
    pub buffer: Vec<u8>,
    /// How long write and flush took.
    pub took: Duration,
}

/// Makes batches durable until the channel closes, then closes the journal with its end frame.
///
/// # Errors
/// A write or flush failed: nothing in or behind that batch may be acknowledged.
pub fn run(
    mut journal: Journal,
    batches: &Receiver<Batch>,
    mut done: impl FnMut(Committed),
) -> Result<(), CommitError> {
    while let Ok(batch) = batches.recv() {
        let begun = Instant::now();
        journal.commit(&batch.bytes)?;
        done(Committed { buffer: batch.bytes, took: begun.elapsed() });
    }
    journal.close()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(position: u64) -> Position {
        Position(position)
    }

    #[test]
    fn an_answer_leaves_when_its_batch_is_committed_and_not_before() {
        let mut ring = CommitRing::default();
        assert_eq!(ring.rest(Position::NONE, "at once"), Some("at once"));
        ring.append(&mut vec![1], at(1));
        assert_eq!(ring.rest(at(1), "one"), None);
        let first = ring.batch().unwrap();
        assert_eq!((first.bytes, first.position), (vec![1], at(1)));
        ring.append(&mut vec![2], at(2));
        assert_eq!(ring.rest(at(2), "two"), None);
        assert_eq!(ring.rest(at(1), "reads one"), None);
        assert!(ring.batch().is_none(), "one batch in flight");
        let mut released = Vec::new();
        assert_eq!(ring.committed(Vec::new(), &mut released), at(1));
        assert_eq!(released, ["one", "reads one"]);
        assert_eq!(ring.rest(at(1), "later"), Some("later"));
        released.clear();
        assert_eq!(ring.batch().unwrap().position, at(2));
        ring.committed(Vec::new(), &mut released);
        assert_eq!(released, ["two"]);
        assert!(ring.is_idle());
    }

    #[test]
    fn an_entry_without_a_position_waits_for_its_own_batch() {
        let mut ring = CommitRing::default();
        ring.append(&mut vec![1], at(1));
        let _flight = ring.batch().unwrap();
        ring.append(&mut vec![9], at(1));
        ring.rest_on_last("catalog");
        let mut released = Vec::new();
        ring.committed(Vec::new(), &mut released);
        assert!(released.is_empty());
        assert_eq!(ring.batch().unwrap().bytes, [9]);
        ring.committed(Vec::new(), &mut released);
        assert_eq!(released, ["catalog"]);
    }

    #[test]
    #[should_panic(expected = "rests on entries that were appended")]
    fn an_answer_cannot_rest_on_the_future() {
        let _ = CommitRing::default().rest(at(1), ());
    }
}
