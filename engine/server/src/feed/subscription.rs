//! Cursors, credit and runs: what a subscription or a pull gets next, without threads or sockets.
//!
//! A subscription is never pushed more bytes of entries than its credit. The one exception: an
//! entry larger than everything the client ever granted is pushed alone when all earlier pushes
//! were granted again; otherwise such a client would wait for ever.

use super::source::Source;
use crate::session::FeedRun;
use stockade_log::{LogError, ReadOutcome};
use stockade_protocol::entry::peek;
use stockade_protocol::{Lsn, PartitionId};

/// Bytes of one run.
const RUN_BYTES_MAX: usize = 256 << 10;
/// Pushed bytes that may wait in a connection before they are written.
const PIPED_BYTES_MAX: u64 = 1 << 20;

/// See the module.
#[derive(Debug)]
pub struct Subscription {
    /// The session's number for it.
    pub tag: u64,
    /// Next LSN by partition.
    cursors: Vec<(PartitionId, Lsn)>,
    /// Bytes that may still be pushed; below 0 after an entry larger than the window.
    credit: i64,
    /// The most credit there ever was: when it is back, the client has taken everything.
    window: i64,
    /// Bytes pushed and not written to the socket yet.
    piped: u64,
    /// The partition that is first in the next round.
    first: usize,
}

impl Subscription {
    /// A subscription from these LSNs on (inclusive).
    pub fn new(tag: u64, cursors: Vec<(PartitionId, Lsn)>, credit_bytes: u32) -> Self {
        let credit = i64::from(credit_bytes);
        Self { tag, cursors, credit, window: credit, piped: 0, first: 0 }
    }

    /// The client grants more.
    pub fn grant(&mut self, bytes: u32) {
        self.credit = self.credit.saturating_add(i64::from(bytes));
        self.window = self.window.max(self.credit);
    }

    /// Pushes left the connection.
    pub fn flushed(&mut self, bytes: u64) {
        self.piped = self.piped.saturating_sub(bytes);
    }

    /// One round over the partitions: the runs that may be pushed now. Empty: nothing until more is
    /// committed, granted or flushed.
    ///
    /// # Errors
    /// The log failed.
    pub fn round(&mut self, source: &dyn Source) -> Result<Vec<FeedRun>, LogError> {
        let mut runs = Vec::new();
        let count = self.cursors.len();
        for step in 0..count {
            if self.credit <= 0 || self.piped >= PIPED_BYTES_MAX {
                break;
            }
            let at = (self.first + step) % count;
            let (partition, next) = self.cursors[at];
            if source.committed(partition) < next {
                continue;
            }
            let whole = self.credit == self.window;
            // Not negative: checked above.
            let bytes_max = RUN_BYTES_MAX.min(self.credit as usize);
            let run = next_run(source, partition, next, bytes_max, u32::MAX, whole)?;
            if let Some((run, next)) = run {
                let bytes = crate::connection::run_bytes(&run);
                self.credit -= bytes as i64;
                self.piped += bytes;
                self.cursors[at].1 = next;
                runs.push(run);
            }
        }
        if count > 0 {
            self.first = (self.first + 1) % count;
        }
        Ok(runs)
    }
}

/// Entries behind cursors: at most `count` entries of at most `bytes_max` bytes (but at least one
/// entry).
///
/// # Errors
/// The log failed.
pub fn pull(
    source: &dyn Source,
    cursors: &[(PartitionId, Lsn)],
    count: u32,
    bytes_max: usize,
) -> Result<Vec<FeedRun>, LogError> {
    let (mut runs, mut entries, mut bytes) = (Vec::new(), count, bytes_max);
    for (partition, mut next) in cursors.iter().copied() {
        while entries > 0 && bytes > 0 && source.committed(partition) >= next {
            let most = RUN_BYTES_MAX.min(bytes);
            let whole = runs.is_empty();
            let Some((run, after)) = next_run(source, partition, next, most, entries, whole)?
            else {
                break;
            };
            if let FeedRun::Entries { first, last, bytes: run, .. } = &run {
                entries -= (last.get() - first.get() + 1) as u32;
                bytes = bytes.saturating_sub(run.len());
            }
            next = after;
            runs.push(run);
        }
    }
    Ok(runs)
}

/// The run at `from`, cut to the bounds at the edge of an entry, and the LSN behind it. `alone`:
/// the first entry goes even if it is larger.
fn next_run(
    source: &dyn Source,
    partition: PartitionId,
    from: Lsn,
    bytes_max: usize,
    entries_max: u32,
    alone: bool,
) -> Result<Option<(FeedRun, Lsn)>, LogError> {
    match source.read(partition, from, bytes_max)? {
        ReadOutcome::End => Ok(None),
        ReadOutcome::Gap { first_kept } => {
            let to = Lsn::new(first_kept.get().saturating_sub(1));
            Ok(Some((FeedRun::Gap { partition, from, to }, first_kept)))
        }
        ReadOutcome::Entries { mut bytes, .. } => {
            let mut prefix = cut(&bytes, bytes_max, entries_max);
            if prefix.is_none() && alone {
                prefix = cut(&bytes, usize::MAX, 1);
            }
            let Some((length, last)) = prefix else { return Ok(None) };
            bytes.truncate(length);
            let next = last.next();
            #[cfg(feature = "mutations")]
            let next = if stockade_protocol::mutation::is(
                stockade_protocol::mutation::Mutation::FeedTwice,
            ) {
                last
            } else {
                next
            };
            #[cfg(feature = "mutations")]
            let next = if stockade_protocol::mutation::is(
                stockade_protocol::mutation::Mutation::FeedSkips,
            ) {
                next.next()
            } else {
                next
            };
            Ok(Some((FeedRun::Entries { partition, first: from, last, bytes }, next)))
        }
    }
}

/// Whole entries at the front within the bounds: their bytes, and the last one's LSN.
fn cut(bytes: &[u8], bytes_max: usize, entries_max: u32) -> Option<(usize, Lsn)> {
    let (mut length, mut last) = (0, None);
    for _ in 0..entries_max {
        let Ok(header) = peek(&bytes[length..]) else { break };
        if length + header.len > bytes_max {
            break;
        }
        length += header.len;
        last = Some(header.lsn);
    }
    last.map(|last| (length, last))
}

#[cfg(test)]
mod tests {
    use super::super::source::fake::MemoryLog;
    use super::*;

    fn from_first(partitions: &[u16]) -> Vec<(PartitionId, Lsn)> {
        partitions.iter().map(|p| (PartitionId::new(*p), Lsn::FIRST)).collect()
    }

    fn spans(runs: &[FeedRun]) -> Vec<(u16, u64, u64)> {
        let span = |run: &FeedRun| match run {
            FeedRun::Entries { partition, first, last, .. } => {
                (partition.get(), first.get(), last.get())
            }
            FeedRun::Gap { .. } => panic!("a gap"),
        };
        runs.iter().map(span).collect()
    }

    fn log_of(entries: &[(u16, usize)]) -> MemoryLog {
        let log = MemoryLog::default();
        for (partition, count) in entries {
            (0..*count).for_each(|_| log.append(*partition));
        }
        log
    }

    #[test]
    fn never_more_than_the_credit_is_pushed() {
        let log = log_of(&[(1, 10), (2, 10)]);
        let entry = log.entry_bytes() as u32;
        let mut subscription = Subscription::new(0, from_first(&[1, 2]), 3 * entry + 1);
        assert_eq!(spans(&subscription.round(&log).unwrap()), [(1, 1, 3)]);
        assert!(subscription.round(&log).unwrap().is_empty(), "a byte is no credit for an entry");
        subscription.grant(2 * entry);
        assert_eq!(spans(&subscription.round(&log).unwrap()), [(1, 4, 5)]);
        subscription.grant(entry);
        assert_eq!(spans(&subscription.round(&log).unwrap()), [(2, 1, 1)], "partitions take turns");
    }

    #[test]
    fn an_entry_larger_than_the_window_goes_alone_when_everything_was_granted_again() {
        let log = log_of(&[(1, 3)]);
        let entry = log.entry_bytes() as u32;
        let mut subscription = Subscription::new(0, from_first(&[1]), entry - 8);
        assert_eq!(spans(&subscription.round(&log).unwrap()), [(1, 1, 1)]);
        assert!(subscription.round(&log).unwrap().is_empty());
        subscription.grant(entry - 8);
        assert!(subscription.round(&log).unwrap().is_empty(), "8 bytes are still owed");
        subscription.grant(8);
        assert_eq!(spans(&subscription.round(&log).unwrap()), [(1, 2, 2)]);
    }

    #[test]
    fn trimmed_entries_are_a_gap_and_the_feed_goes_on_behind_it() {
        let log = log_of(&[(1, 5)]);
        log.trim(1, 3);
        let mut subscription = Subscription::new(0, from_first(&[1]), 1 << 20);
        let gap = subscription.round(&log).unwrap();
        let (partition, from, to) = (PartitionId::new(1), Lsn::new(1), Lsn::new(3));
        assert_eq!(gap, [FeedRun::Gap { partition, from, to }]);
        assert_eq!(spans(&subscription.round(&log).unwrap()), [(1, 4, 5)]);
        assert!(subscription.round(&log).unwrap().is_empty());
        log.append(1);
        assert_eq!(spans(&subscription.round(&log).unwrap()), [(1, 6, 6)]);
    }

    #[test]
    fn a_connection_that_is_not_read_is_not_pushed_to() {
        let log = log_of(&[(1, 80_000)]);
        let mut subscription = Subscription::new(0, from_first(&[1]), u32::MAX);
        let mut pushed = 0;
        loop {
            let runs = subscription.round(&log).unwrap();
            if runs.is_empty() {
                break;
            }
            pushed += runs.iter().map(crate::connection::run_bytes).sum::<u64>();
        }
        assert!((PIPED_BYTES_MAX..PIPED_BYTES_MAX + RUN_BYTES_MAX as u64).contains(&pushed));
        subscription.flushed(pushed);
        assert!(!subscription.round(&log).unwrap().is_empty());
    }

    #[test]
    fn a_pull_takes_at_most_the_count_over_all_partitions() {
        let log = log_of(&[(1, 2), (2, 5)]);
        let runs = pull(&log, &from_first(&[1, 2]), 4, 1 << 20).unwrap();
        assert_eq!(spans(&runs), [(1, 1, 2), (2, 1, 2)]);
        assert!(pull(&log, &[(PartitionId::new(1), Lsn::new(3))], 4, 1 << 20).unwrap().is_empty());
        let one = pull(&log, &from_first(&[1, 2]), 4, 1).unwrap();
        assert_eq!(spans(&one), [(1, 1, 1)], "at least one entry");
    }
}
