//! What all threads of the server share: the shards' mailboxes, the clock, counters and settings;
//! and the messages that go between them.

use crate::clock::Clock;
use crate::commit::Committed;
use crate::feed::FeedInbox;
use crate::mailbox::Mailbox;
use crate::metrics::ShardMetrics;
use crate::routing::RoutingTable;
use crate::session::{FeedAnswer, ServerInfo};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;
use stockade_core::catalog::CatalogChange;
use stockade_core::gather::Part;
use stockade_log::Log;
use stockade_protocol::{Command, Reply, SaleId};

/// Called once with the answer, on a shard's thread; must not block.
pub type Done = Box<dyn FnOnce(Reply) + Send>;

/// Who gets an answer.
pub enum Origin {
    /// A connection.
    Connection {
        /// The shard that has it.
        shard: u16,
        /// Its id there.
        connection: u64,
        /// The session's number for the request.
        tag: u64,
    },
    /// Another thread.
    Gateway(Done),
}

/// What comes into a shard's mailbox.
pub enum Message {
    /// Decide this. Counted in `ShardMetrics::mailed` until it is taken.
    Command {
        /// Who asks.
        origin: Origin,
        /// What.
        command: Command,
    },
    /// The answer to a command that was forwarded.
    Reply {
        /// The connection.
        connection: u64,
        /// Its number for the request.
        tag: u64,
        /// What to say.
        reply: Reply,
    },
    /// From the feed thread.
    Feed {
        /// The connection.
        connection: u64,
        /// Its number for the request.
        tag: u64,
        /// What to say.
        answer: FeedAnswer,
    },
    /// The batch in flight is durable.
    Committed(Committed),
    /// A catalog change takes force; shard 0 waits for `Applied`.
    Apply(CatalogChange),
    /// To shard 0: a shard applied the last change.
    Applied,
    /// Give your part of a gathered answer.
    PartAsk {
        /// Who gathers.
        shard: u16,
        /// The gatherer's number.
        gather: u64,
        /// The question.
        command: Command,
    },
    /// A part that rests on nothing any more.
    Part {
        /// The gatherer's number.
        gather: u64,
        /// The part.
        part: Part,
    },
    /// How many held orders has this sale? To be told to shard 0.
    HeldAsk(SaleId),
    /// To shard 0: so many.
    Held(u64),
    /// Take no new work, finish what was begun, then say so.
    Drain,
    /// Close everything and end.
    Exit,
    /// Some commit failed: say `busy` to what is undecided and nothing to the rest.
    Fail,
}

/// Bounds of the server's queues and connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Open connections of the whole process; beyond it they are refused.
    pub connections_max: usize,
    /// Requests of one connection in flight; beyond it its bytes are not read.
    pub in_flight_max: u32,
    /// Requests that wait in one shard; beyond it they are answered `busy`.
    pub queue_max: usize,
}

/// See the module.
pub struct Hub {
    /// Partitions and shards.
    pub routing: RoutingTable,
    /// The engine's clock.
    pub clock: Clock,
    /// One per shard.
    pub mailboxes: Vec<Mailbox<Message>>,
    /// One per shard.
    pub metrics: Vec<ShardMetrics>,
    /// The way to the feed thread.
    pub feed: FeedInbox,
    /// The log: pressure, consumers, reading.
    pub log: Arc<Log>,
    /// What sessions may know.
    pub info: Arc<ServerInfo>,
    /// Bounds.
    pub limits: Limits,
    /// Open connections of the process.
    pub connections: AtomicUsize,
    /// Takes requests: started, and not draining.
    pub ready: AtomicBool,
    /// Shards that have finished what was begun when the drain came.
    pub drained: AtomicUsize,
    /// A commit failed; nothing is acknowledged any more.
    pub failed: AtomicBool,
}

/// How long the last answers may take to leave after a failed commit.
const FAIL_FLUSH: Duration = Duration::from_millis(200);

impl Hub {
    /// A commit failed: no shard decides or acknowledges anything from here on.
    pub fn stop_deciding(&self) {
        self.ready.store(false, std::sync::atomic::Ordering::SeqCst);
        for mailbox in &self.mailboxes {
            mailbox.push(Message::Fail);
        }
    }

    /// Ends the process because the engine cannot go on: undecided requests get `busy`, those in or
    /// behind the failed commit get no answer, and the exit status tells the supervisor.
    pub fn fail(&self, why: &str) -> ! {
        use std::sync::atomic::Ordering;
        if self.failed.swap(true, Ordering::SeqCst) {
            // Another thread is at it already.
            loop {
                std::thread::park();
            }
        }
        tracing::error!(why, "the engine stops");
        eprintln!("{why}");
        self.stop_deciding();
        std::thread::sleep(FAIL_FLUSH);
        std::process::exit(1)
    }
}
