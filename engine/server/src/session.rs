//! A connection's protocol as a pure machine: bytes in, actions out; answers in, bytes out.
//!
//! The binary protocol and RESP both implement [`Session`]; one driver (`connection.rs`) moves the
//! bytes. A session never waits, never reads a clock and owns no socket. It bounds what it buffers:
//! the driver stops reading while [`Session::in_flight`] is at the limit.

use crate::resp::scripts::Scripts;
use std::sync::Arc;
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::text::ConsumerName;
use stockade_protocol::wire::{ConsumerInfo, ErrorCode, Subscribe};
use stockade_protocol::{Command, Lsn, PartitionId, Reply};

/// What a session wants done.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// Decide this; the answer comes back to [`Session::reply`] with the tag, in any order.
    Command {
        /// The session's own number for it.
        tag: u64,
        /// What is asked.
        command: Command,
    },
    /// For the feed thread; the answer comes back to [`Session::feed`] with the tag.
    Feed {
        /// The session's own number for it.
        tag: u64,
        /// What is asked.
        request: FeedRequest,
    },
}

/// What the feed thread can be asked.
#[derive(Clone, PartialEq, Debug)]
pub enum FeedRequest {
    /// Push entries to this connection; the tag comes with each push. Answered by `Done`.
    Subscribe(Subscribe),
    /// More bytes may be pushed. Not answered.
    Credit {
        /// Added to what is left.
        bytes: u32,
    },
    /// End the subscription of this connection.
    Unsubscribe,
    /// Entries behind the consumer's cursors, at most `count`; waits up to `block_ms` for the first
    /// one. Registers the consumer. Answered by `Pulled`.
    Pull {
        /// Who asks.
        consumer: ConsumerName,
        /// Most entries, 1..=10000.
        count: u32,
        /// How long to wait where there is none; 0: not at all.
        block_ms: u64,
    },
    /// Everything up to the LSNs is processed.
    Ack {
        /// Whose cursor.
        consumer: ConsumerName,
        /// Which LSNs, inclusive.
        cursors: Vec<(PartitionId, Lsn)>,
    },
    /// List the consumers.
    Consumers,
    /// End a consumer.
    Drop(ConsumerName),
}

/// A run of the feed: entries of one partition, or a hole.
#[derive(Clone, PartialEq, Debug)]
pub enum FeedRun {
    /// Committed entries, contiguous.
    Entries {
        /// The partition.
        partition: PartitionId,
        /// First LSN.
        first: Lsn,
        /// Last LSN.
        last: Lsn,
        /// Encoded entries.
        bytes: Vec<u8>,
    },
    /// These entries are gone.
    Gap {
        /// The partition.
        partition: PartitionId,
        /// First missing.
        from: Lsn,
        /// Last missing.
        to: Lsn,
    },
}

/// What the feed thread says.
#[derive(Clone, PartialEq, Debug)]
pub enum FeedAnswer {
    /// It is done.
    Done,
    /// To `Consumers`.
    Consumers(Vec<ConsumerInfo>),
    /// To `Pull`; may be empty.
    Pulled(Vec<FeedRun>),
    /// A push of a subscription (its tag is that of `Subscribe`).
    Pushed(FeedRun),
    /// It failed.
    Failed {
        /// What kind of failure.
        code: ErrorCode,
        /// One plain sentence.
        message: String,
    },
}

/// What became of received bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// Bytes that were used up; the rest comes again with more behind it.
    pub consumed: usize,
    /// Write what is in `out`, then close: the peer broke the protocol or asked for the end.
    pub close: bool,
}

/// What a session may know of the server.
#[derive(Clone, PartialEq, Debug)]
pub struct ServerInfo {
    /// Name and version, `stockade 0.1.0`.
    pub version: String,
    /// `group` or `async`.
    pub durability: &'static str,
    /// Counts up with every start.
    pub epoch: u64,
    /// Partitions of users.
    pub partition_count: u16,
    /// The shards' own ports, by shard.
    pub shard_ports: Vec<u16>,
    /// The common ports: binary, RESP, HTTP.
    pub ports: [u16; 3],
    /// When the server started.
    pub started_at: TimestampMs,
    /// Tokens that clients must show; empty: none needed.
    pub tokens: Vec<String>,
    /// Requests of one connection in flight at most.
    pub in_flight_max: u32,
    /// Scripts that stand for commands, over RESP.
    pub scripts: Scripts,
}

/// See the module.
pub trait Session {
    /// Takes what it can from the front of `input`. Work of one call is bounded by the caller
    /// through the length of `input`.
    fn receive(
        &mut self,
        input: &[u8],
        now: TimestampMs,
        out: &mut Vec<u8>,
        actions: &mut Vec<Action>,
    ) -> Received;

    /// The answer to [`Action::Command`].
    fn reply(&mut self, tag: u64, reply: Reply, out: &mut Vec<u8>);

    /// The answer to [`Action::Feed`], or a push.
    fn feed(&mut self, tag: u64, answer: FeedAnswer, out: &mut Vec<u8>);

    /// Requests taken and not answered yet.
    fn in_flight(&self) -> usize;

    /// The server drains: say so where the protocol can.
    fn go_away(&mut self, reconnect_after_ms: u32, out: &mut Vec<u8>);
}

/// The way from other threads (HTTP) to the shards.
pub trait Gateway: Send + Sync + 'static {
    /// Has the command decided; `done` is called once, on some shard's thread, and must not block.
    fn submit(&self, command: Command, done: Box<dyn FnOnce(Reply) + Send>);
    /// What may be known of the server.
    fn info(&self) -> Arc<ServerInfo>;
    /// The engine's clock.
    fn now(&self) -> TimestampMs;
    /// Prometheus text.
    fn metrics(&self) -> String;
    /// Takes requests: started, and not draining.
    fn is_ready(&self) -> bool;
}
