//! Reading a partition's log from the engine, up to an LSN.

use super::books::Books;
use crate::source::{Connect, Run, SourceError};
use std::time::{Duration, Instant};
use stockade_protocol::{Entry, Lsn, PartitionId};

/// How long the engine may send nothing although entries are due.
const SILENCE_MAX: Duration = Duration::from_secs(30);
const WAIT: Duration = Duration::from_millis(200);

/// Applies the partition's entries behind `books.lsn` up to and including `to`. Entries that the
/// engine no longer has are passed over; `books.first` tells.
///
/// # Errors
/// The engine is away, silent, or sends what cannot follow.
pub fn read(
    connect: &mut dyn Connect,
    partition: PartitionId,
    to: Lsn,
    books: &mut Books,
) -> Result<(), SourceError> {
    let from = books.lsn.next();
    let gap = read_each(connect, partition, from, to, &mut |entry| books.apply(entry))?;
    books.trimmed |= gap;
    Ok(())
}

/// Hands out the partition's entries `from..=to`, but for those that are gone; true if any are.
///
/// # Errors
/// See [`read`].
pub fn read_each(
    connect: &mut dyn Connect,
    partition: PartitionId,
    from: Lsn,
    to: Lsn,
    each: &mut dyn FnMut(&Entry),
) -> Result<bool, SourceError> {
    if to < from {
        return Ok(false);
    }
    let mut source = connect.connect(&[(partition, from)])?;
    let (mut next, mut heard, mut gap) = (from, Instant::now(), false);
    while next <= to {
        match source.next(WAIT)? {
            Some(Run::Entries(entries)) => {
                for entry in entries.iter().filter(|entry| entry.partition == partition) {
                    if next > to {
                        break;
                    }
                    if entry.lsn > next {
                        return Err(SourceError::Wrong(format!(
                            "partition {partition}: entry {} came where {next} was due",
                            entry.lsn
                        )));
                    }
                    if entry.lsn == next {
                        each(entry);
                        next = next.next();
                    }
                }
                heard = Instant::now();
            }
            Some(Run::Gap { partition: of, to: gone, .. }) if of == partition => {
                gap |= gone >= next;
                next = next.max(gone.next());
                heard = Instant::now();
            }
            Some(Run::Gap { .. }) => {}
            None if heard.elapsed() > SILENCE_MAX => {
                return Err(SourceError::Away(format!(
                    "partition {partition}: entry {next} does not come"
                )));
            }
            None => {}
        }
    }
    Ok(gap)
}
