//! Encoded entries by partition: how frames are taken apart, with the check that LSNs follow one
//! another.

use std::collections::BTreeMap;
use stockade_protocol::entry::{EntryError, peek};
use stockade_protocol::{Lsn, PartitionId};

/// Contiguous entries of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first entry's place.
    pub first: Lsn,
    /// The last entry's place.
    pub last: Lsn,
    /// The entries, one behind the other.
    pub bytes: Vec<u8>,
}

/// Bytes that are no entries, or entries that do not follow one another.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// No entry.
    #[error("at byte {at}: {source}")]
    Entry {
        /// Where.
        at: usize,
        /// What.
        source: EntryError,
    },
    /// A hole or a step back.
    #[error("partition {partition}: lsn {found} where {expected} must follow")]
    Order {
        /// The partition.
        partition: PartitionId,
        /// What was found.
        found: Lsn,
        /// What must come.
        expected: Lsn,
    },
}

/// Takes a frame's body apart by partition.
///
/// # Errors
/// See [`RunError`].
pub fn by_partition(body: &[u8]) -> Result<BTreeMap<PartitionId, Run>, RunError> {
    let mut runs = BTreeMap::<PartitionId, Run>::new();
    let mut at = 0;
    while at < body.len() {
        let header = peek(&body[at..]).map_err(|source| RunError::Entry { at, source })?;
        let bytes = &body[at..at + header.len];
        match runs.get_mut(&header.partition) {
            None => {
                let run = Run { first: header.lsn, last: header.lsn, bytes: bytes.into() };
                runs.insert(header.partition, run);
            }
            Some(run) => {
                let expected = run.last.next();
                if header.lsn != expected {
                    let (partition, found) = (header.partition, header.lsn);
                    return Err(RunError::Order { partition, found, expected });
                }
                run.last = header.lsn;
                run.bytes.extend_from_slice(bytes);
            }
        }
        at += header.len;
    }
    Ok(runs)
}

/// The part of a run from `from` on; `None` if the run ends before it.
pub fn tail(run_first: Lsn, bytes: &[u8], from: Lsn) -> Option<&[u8]> {
    let (mut at, mut lsn) = (0, run_first);
    while lsn < from {
        at += peek(bytes.get(at..)?).ok()?.len;
        lsn = lsn.next();
    }
    bytes.get(at..).filter(|rest| !rest.is_empty())
}

/// The front of a run with about `bytes_max` bytes, at least one entry; and its last LSN.
pub fn front(first: Lsn, bytes: &[u8], bytes_max: usize) -> (&[u8], Lsn) {
    let (mut at, mut lsn) = (0, first);
    while let Ok(header) = peek(&bytes[at..]) {
        at += header.len;
        lsn = header.lsn;
        if at >= bytes_max || at >= bytes.len() {
            break;
        }
    }
    (&bytes[..at], lsn)
}
