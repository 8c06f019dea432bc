//! Pushes between a connection and the feed's reader. Bounded by the credit that the reader gave: a
//! server that pushes more is cut.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use stockade_protocol::entry::ENTRY_HEADER_BYTES;
use stockade_protocol::wire::Response;
use tokio::sync::Notify;

/// Pushes without bytes (gaps) that may wait besides those with entries: two a partition.
const GAPS_MAX: usize = 2 * 1025;

struct Pushes {
    queue: VecDeque<Response>,
    /// Bytes that may still be pushed; below 0 after an entry larger than the window.
    credit: i64,
    /// The most credit there ever was.
    window: i64,
    ended: Option<String>,
}

/// See the module.
pub(crate) struct PushQueue {
    pushes: Mutex<Pushes>,
    arrived: Notify,
}

impl PushQueue {
    pub fn new(credit_bytes: u32) -> Self {
        let credit = i64::from(credit_bytes);
        let pushes = Pushes { queue: VecDeque::new(), credit, window: credit, ended: None };
        Self { pushes: Mutex::new(pushes), arrived: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Pushes> {
        self.pushes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// More may be pushed. Called before the server is told.
    pub fn grant(&self, bytes: u32) {
        let mut pushes = self.lock();
        pushes.credit += i64::from(bytes);
        pushes.window = pushes.window.max(pushes.credit);
    }

    /// Takes a push; an error says why the connection cannot go on.
    pub fn push(&self, push: Response) -> Result<(), String> {
        let mut pushes = self.lock();
        if let Response::Entries { bytes, .. } = &push {
            let bytes = bytes.len() as i64;
            // One entry larger than the window may come when all of it was granted again.
            if bytes > pushes.credit && pushes.credit < pushes.window {
                return Err(format!("{bytes} bytes of entries for {} of credit", pushes.credit));
            }
            pushes.credit -= bytes;
        }
        // An entry is never smaller than its header, so credit bounds the pushes with entries.
        let most = pushes.window.max(0) as usize / ENTRY_HEADER_BYTES + GAPS_MAX;
        if pushes.queue.len() >= most {
            return Err("more pushes than there can be".into());
        }
        pushes.queue.push_back(push);
        self.arrived.notify_one();
        Ok(())
    }

    /// Nothing more comes; what is there is still read. The first reason counts.
    pub fn end(&self, why: String) {
        self.lock().ended.get_or_insert(why);
        self.arrived.notify_one();
    }

    /// The next push, or why there is none. A dropped future loses nothing. For one reader.
    pub async fn next(&self) -> Result<Response, String> {
        loop {
            {
                let mut pushes = self.lock();
                if let Some(push) = pushes.queue.pop_front() {
                    return Ok(push);
                }
                if let Some(why) = &pushes.ended {
                    return Err(why.clone());
                }
            }
            self.arrived.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stockade_protocol::{Lsn, PartitionId};

    fn entries(bytes: usize) -> Response {
        let (partition, lsn) = (PartitionId::new(1), Lsn::FIRST);
        Response::Entries { partition, first: lsn, last: lsn, bytes: vec![0; bytes] }
    }

    #[test]
    fn a_server_that_pushes_beyond_the_credit_is_cut() {
        let table: [(&[usize], bool); 5] = [
            (&[100], true),
            (&[60, 40], true),
            (&[60, 41], false),
            // An entry larger than the window goes alone, and only when nothing else is out.
            (&[500], true),
            (&[500, 1], false),
        ];
        for (pushes, allowed) in table {
            let queue = PushQueue::new(100);
            let took = pushes.iter().try_for_each(|bytes| queue.push(entries(*bytes)));
            assert_eq!(took.is_ok(), allowed, "{pushes:?}");
        }
        let queue = PushQueue::new(100);
        queue.push(entries(100)).unwrap();
        queue.grant(50);
        assert!(queue.push(entries(50)).is_ok() && queue.push(entries(1)).is_err());
    }

    #[test]
    fn gaps_take_no_credit_but_are_bounded() {
        let queue = PushQueue::new(0);
        let gap =
            || Response::Gap { partition: PartitionId::new(1), from: Lsn::FIRST, to: Lsn::FIRST };
        assert!((0..GAPS_MAX).all(|_| queue.push(gap()).is_ok()));
        assert!(queue.push(gap()).is_err());
    }
}
