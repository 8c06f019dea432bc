//! Frames of the binary protocol: a 16-byte header and a fixed little-endian body. Specified in
//! `protocol/SPEC.md`; the golden bytes are in `protocol/vectors/`.
//!
//! Decoding never trusts a length: a frame is checked against the limit before it is buffered, and
//! every body is read through [`crate::le::Reader`].

mod body;
mod command;
mod feed;
mod frame;
mod reply;

pub use body::{decode_request, decode_response, encode_request, encode_response};
pub use command::fits_many;
pub use frame::{CRC_FLAG, Split, add_crc, split};

use crate::command::{Command, Reserve};
use crate::ids::{Lsn, PartitionId, TimestampMs};
use crate::reply::{Reply, ReserveReply};
use crate::text::ConsumerName;
use alloc::string::String;
use alloc::vec::Vec;

/// What a client sends first: it tells this protocol from RESP (`*`), TLS (0x16) and HTTP
/// (letters).
pub const PREFACE: [u8; 8] = *b"\x93STK\r\n\0\x01";
/// Bytes of a header.
pub const HEADER_BYTES: usize = 16;
/// The protocol version of this build.
pub const PROTOCOL_VERSION: u16 = 1;
/// Largest body that the server takes; announced in WELCOME.
pub const BODY_BYTES_MAX: u32 = 4 << 20;
/// Largest body before HELLO.
pub const BODY_BYTES_BEFORE_HELLO_MAX: u32 = 4 << 10;
/// Reserves of one `ReserveMany`.
pub const RESERVE_MANY_MAX: usize = 4096;

/// The header of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Body bytes after the header, a multiple of 8.
    pub len: u32,
    /// What the body is.
    pub kind: u16,
    /// Version of the body.
    pub version: u8,
    /// Bit 0: a CRC32C trailer. Others must be 0.
    pub flags: u8,
    /// The client's number for the request, echoed in the answer; 0 in pushes.
    pub correlation: u64,
}

/// Who is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// Lowest protocol version the client speaks.
    pub version_min: u16,
    /// Highest.
    pub version_max: u16,
    /// Features the client wants, as bits; none are defined yet.
    pub features: u64,
    /// For logs: the program's name.
    pub name: String,
    /// The token, where the server has tokens configured; else empty.
    pub token: String,
}

/// One shard as clients reach it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShardPort {
    /// The shard's own TCP port, at the address the client connected to.
    pub port: u16,
}

/// The server's side of the handshake.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Welcome {
    /// The version both speak.
    pub version: u16,
    /// Features in force.
    pub features: u64,
    /// Largest body the server takes.
    pub body_bytes_max: u32,
    /// Requests of one connection in flight; beyond it the server stops reading.
    pub in_flight_max: u32,
    /// 0 `group`, 1 `async`.
    pub durability: u8,
    /// Counts up with every start of the engine.
    pub epoch: u64,
    /// The engine's clock.
    pub server_time: TimestampMs,
    /// How many partitions of users.
    pub partition_count: u16,
    /// The shards' own ports; a partition is owned by shard `partition mod shards.len()`.
    pub shards: Vec<ShardPort>,
    /// For logs: name and version of the server.
    pub server: String,
}

/// Where a subscription begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FeedFrom {
    /// At the consumer's stored cursors (a new one: at the oldest entry).
    Stored,
    /// At the oldest entry there is.
    Oldest,
    /// Behind the newest committed entry.
    Newest,
    /// At these LSNs (inclusive); partitions not named: at the oldest.
    Lsns(Vec<(PartitionId, Lsn)>),
}

/// Asks for the feed on this connection (one subscription a connection).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subscribe {
    /// `None` tails without a name: nothing is stored and trimming is not held back.
    pub consumer: Option<ConsumerName>,
    /// Empty: all partitions, 65535 too.
    pub partitions: Vec<PartitionId>,
    /// Where to begin.
    pub from: FeedFrom,
    /// Bytes of entries that may be pushed before more credit comes.
    pub credit_bytes: u32,
}

/// A consumer and its distance from the end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConsumerInfo {
    /// Its name.
    pub name: ConsumerName,
    /// Per partition: acknowledged, committed.
    pub cursors: Vec<(PartitionId, Lsn, Lsn)>,
}

/// Everything a client can send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// Must be the first frame.
    Hello(Hello),
    /// Are you there?
    Ping,
    /// A command.
    Command(Command),
    /// Many reserves in one frame; entries that are malformed are `None` and get `bad_request`.
    ReserveMany(Vec<Option<Reserve>>),
    /// Begin the feed.
    Subscribe(Subscribe),
    /// More bytes may be pushed. Not answered.
    Credit {
        /// Added to what is left.
        bytes: u32,
    },
    /// Everything up to the LSNs is processed.
    Ack {
        /// Whose cursor.
        consumer: ConsumerName,
        /// Which LSNs, inclusive.
        cursors: Vec<(PartitionId, Lsn)>,
    },
    /// End the feed on this connection.
    Unsubscribe,
    /// List the consumers.
    Consumers,
    /// End a consumer.
    ConsumerDrop(ConsumerName),
}

/// Why a frame or request failed (not a rejection: those are replies).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum ErrorCode {
    /// The bytes break the protocol; the connection closes.
    Protocol = 1,
    /// The kind is not known; the connection stays.
    UnknownKind = 2,
    /// The body is larger than announced; the connection closes.
    TooLarge = 3,
    /// HELLO did not come first, or no version in common; the connection closes.
    Handshake = 4,
    /// An argument of a feed request is out of range; the connection stays.
    Argument = 5,
    /// No such consumer; the connection stays.
    UnknownConsumer = 6,
    /// Too many of something; the connection stays.
    TooMany = 7,
    /// The engine could not do it; the connection stays.
    Failed = 8,
    /// The server takes no more connections; it closes.
    TooManyConnections = 9,
    /// The token is missing or wrong; it closes.
    Authentication = 10,
}

/// Everything a server can send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Response {
    /// To HELLO.
    Welcome(Welcome),
    /// To `Ping`.
    Pong {
        /// The engine's clock.
        server_time: TimestampMs,
    },
    /// To a command.
    Reply(Reply),
    /// To `ReserveMany`, in its order.
    ReserveMany(Vec<ReserveReply>),
    /// To `Subscribe`, `Ack` and `Unsubscribe`, and to `ConsumerDrop` of a known consumer.
    Done,
    /// To `Consumers`.
    Consumers(Vec<ConsumerInfo>),
    /// Something failed.
    Error {
        /// What kind of failure.
        code: ErrorCode,
        /// One plain sentence.
        message: String,
    },
    /// Pushed: committed entries of one partition, contiguous.
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
    /// Pushed: these entries are gone; the feed goes on behind them.
    Gap {
        /// The partition.
        partition: PartitionId,
        /// First missing.
        from: Lsn,
        /// Last missing.
        to: Lsn,
    },
    /// Pushed: no new requests please; those in flight are still answered.
    GoAway {
        /// When to come back.
        reconnect_after_ms: u32,
    },
}

/// Bytes that are no frame; the connection cannot go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// The body is larger than the limit.
    #[error("frame body of {len} bytes is larger than {limit}")]
    TooLarge {
        /// Announced.
        len: u32,
        /// Allowed.
        limit: u32,
    },
    /// Unknown flags, a length that is no multiple of 8, or a wrong checksum.
    #[error("frame header is malformed: {0}")]
    Header(&'static str),
}

/// A body that could not be turned into a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RequestError {
    /// Well-formed bytes with an id, text or number out of range: answer this reply
    /// (`bad_request`).
    Rejected(Reply),
    /// Answer this error; the connection closes where the code says so.
    Error {
        /// What kind of failure.
        code: ErrorCode,
        /// One plain sentence.
        message: &'static str,
    },
}
