//! The way into the feed thread: requests from connections, and the bell that rings when something
//! was committed.

use crate::session::FeedRequest;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Requests that wait for the feed thread; a connection that asks beyond it is cut.
const REQUESTS_MAX: usize = 100_000;

/// Something for the feed thread.
#[derive(Debug)]
pub struct FeedIn {
    /// The connection's shard.
    pub shard: u16,
    /// The connection.
    pub connection: u64,
    /// What.
    pub kind: FeedKind,
}

/// See [`FeedIn`].
#[derive(Debug)]
pub enum FeedKind {
    /// A session asks.
    Request {
        /// The session's number for it.
        tag: u64,
        /// What it asks.
        request: FeedRequest,
    },
    /// Pushes of so many bytes have left the connection.
    Flushed {
        /// Bytes of entries.
        bytes: u64,
    },
    /// The connection is gone.
    Closed,
}

#[derive(Debug, Default)]
struct Inner {
    requests: Vec<FeedIn>,
    committed: bool,
    /// Somebody waits for commits.
    interested: bool,
    stopped: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub struct FeedInbox {
    inner: Mutex<Inner>,
    bell: Condvar,
    /// For the watcher of commits.
    interest: Condvar,
}

/// Why the feed thread wakes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wake {
    /// The server stops.
    pub stopped: bool,
}

impl FeedInbox {
    /// Puts a request in; false if there is no room.
    pub fn push(&self, request: FeedIn) -> bool {
        let mut inner = self.lock();
        if inner.requests.len() >= REQUESTS_MAX {
            return false;
        }
        inner.requests.push(request);
        self.bell.notify_one();
        true
    }

    /// A connection is gone; bounded by the number of connections.
    pub fn push_closed(&self, closed: FeedIn) {
        self.lock().requests.push(closed);
        self.bell.notify_one();
    }

    /// Something was committed.
    pub fn ring(&self) {
        self.lock().committed = true;
        self.bell.notify_one();
    }

    /// The server stops: both threads end.
    pub fn stop(&self) {
        self.lock().stopped = true;
        self.bell.notify_all();
        self.interest.notify_all();
    }

    /// Waits until there is a request, a commit (if `interested`), a stop or the deadline; takes
    /// the requests.
    pub fn wait(
        &self,
        interested: bool,
        deadline: Option<Instant>,
        requests: &mut Vec<FeedIn>,
    ) -> Wake {
        let mut inner = self.lock();
        inner.interested = interested;
        if interested {
            self.interest.notify_all();
        }
        loop {
            if inner.stopped || !inner.requests.is_empty() || (interested && inner.committed) {
                break;
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                break;
            }
            inner = match left {
                Some(left) => {
                    self.bell.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.bell.wait(inner).unwrap_or_else(PoisonError::into_inner),
            };
        }
        inner.committed = false;
        requests.append(&mut inner.requests);
        Wake { stopped: inner.stopped }
    }

    /// For the watcher: waits until somebody is interested in commits; false at the stop.
    pub fn wait_interest(&self) -> bool {
        let mut inner = self.lock();
        while !inner.stopped && !inner.interested {
            inner = self.interest.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
        !inner.stopped
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Between two rings there is at least this, so that a busy log does not wake the feed for each
/// commit.
const RING_EVERY: Duration = Duration::from_millis(1);
/// How long the watcher waits for a commit before it looks whether the server stops.
const WATCH: Duration = Duration::from_millis(500);

/// The watcher's thread: rings when the log has committed something and somebody waits for it.
pub fn watch(log: &stockade_log::Log, inbox: &FeedInbox) {
    let mut seen = log.commit_count();
    while inbox.wait_interest() {
        let count = log.wait_commit(seen, WATCH);
        if count != seen {
            seen = count;
            inbox.ring();
            std::thread::sleep(RING_EVERY);
        }
    }
}
