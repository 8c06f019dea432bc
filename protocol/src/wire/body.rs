//! From frames to requests and responses, and back: the dispatch over kinds.

use super::frame::{begin, end};
use super::{ErrorCode, Header, Request, RequestError, Response, command, feed, reply};
use crate::ids::{Lsn, PartitionId, SaleId};
use crate::le::{Malformed, Reader, Writer};
use crate::outcome::Outcome;
use crate::reply::{AdjustReply, OrderReply, RETRY_NEVER, Reply, ReserveReply, SalePutReply};
use crate::state::OrderState;
use alloc::string::String;
use alloc::vec::Vec;

const HELLO: u16 = 0x01;
const PING: u16 = 0x02;
const SUBSCRIBE: u16 = 0x40;
const CREDIT: u16 = 0x41;
const ACK: u16 = 0x42;
const UNSUBSCRIBE: u16 = 0x43;
const CONSUMERS: u16 = 0x44;
const CONSUMER_DROP: u16 = 0x45;

const WELCOME: u16 = 0x8001;
const PONG: u16 = 0x8002;
const DONE: u16 = 0x8040;
const CONSUMERS_REPLY: u16 = 0x8044;
const ERROR: u16 = 0xFFFF;
const ENTRIES: u16 = 0x4000;
const GAP: u16 = 0x4001;
const GO_AWAY: u16 = 0x4002;

/// Appends a request as a frame.
pub fn encode_request(request: &Request, correlation: u64, out: &mut Vec<u8>) {
    let kind = match request {
        Request::Hello(_) => HELLO,
        Request::Ping => PING,
        Request::Command(command) => command::kind_of(command),
        Request::ReserveMany(_) => command::kind::RESERVE_MANY,
        Request::Subscribe(_) => SUBSCRIBE,
        Request::Credit { .. } => CREDIT,
        Request::Ack { .. } => ACK,
        Request::Unsubscribe => UNSUBSCRIBE,
        Request::Consumers => CONSUMERS,
        Request::ConsumerDrop(_) => CONSUMER_DROP,
    };
    let start = begin(out, kind, correlation);
    match request {
        Request::Hello(hello) => feed::put_hello(hello, out),
        Request::Command(command) => command::put(command, out),
        Request::ReserveMany(reserves) => command::put_many(reserves, out),
        Request::Subscribe(subscribe) => feed::put_subscribe(subscribe, out),
        Request::Credit { bytes } => out.put_u32(*bytes),
        Request::Ack { consumer, cursors } => {
            feed::put_consumer(consumer, out);
            feed::put_cursors(cursors, out);
        }
        Request::ConsumerDrop(name) => feed::put_consumer(name, out),
        Request::Ping | Request::Unsubscribe | Request::Consumers => {}
    }
    end(out, start);
}

/// Reads a request's body. Bytes behind the last known field are ignored: later versions append.
///
/// # Errors
/// See [`RequestError`].
pub fn decode_request(header: &Header, body: &[u8]) -> Result<Request, RequestError> {
    let kind = header.kind;
    take_request(kind, &mut Reader::new(body))
        .map_err(|malformed| refuse(kind, malformed, body))?
        .ok_or(RequestError::Error {
            code: ErrorCode::UnknownKind,
            message: "the request's kind is not known",
        })
}

fn take_request(kind: u16, r: &mut Reader<'_>) -> Result<Option<Request>, Malformed> {
    Ok(Some(match kind {
        HELLO => Request::Hello(feed::take_hello(r)?),
        PING => Request::Ping,
        command::kind::RESERVE_MANY => Request::ReserveMany(command::take_many(r)?),
        SUBSCRIBE => Request::Subscribe(feed::take_subscribe(r)?),
        CREDIT => Request::Credit { bytes: r.u32()? },
        ACK => {
            let consumer = feed::take_consumer(r)?;
            Request::Ack { consumer, cursors: feed::take_cursors(r)? }
        }
        UNSUBSCRIBE => Request::Unsubscribe,
        CONSUMERS => Request::Consumers,
        CONSUMER_DROP => Request::ConsumerDrop(feed::take_consumer(r)?),
        _ => return Ok(command::take(kind, r)?.map(Request::Command)),
    }))
}

/// A body too short breaks the protocol. A value out of range is a `bad_request` where the command
/// has an outcome to say so, and an error about the argument where it has none.
fn refuse(kind: u16, malformed: Malformed, body: &[u8]) -> RequestError {
    if malformed == Malformed::Short {
        let message = "the body ends too early";
        return RequestError::Error { code: ErrorCode::Protocol, message };
    }
    use command::kind as k;
    let outcome = Outcome::BadRequest;
    match kind {
        k::RESERVE => {
            RequestError::Rejected(Reply::Reserve(ReserveReply::rejected(outcome, RETRY_NEVER)))
        }
        k::CONFIRM | k::CANCEL | k::WITHDRAW | k::EXTEND | k::RETURN => {
            let state = OrderState::Unknown;
            RequestError::Rejected(Reply::Order(OrderReply { outcome, order: None, state }))
        }
        k::SALE_PUT => RequestError::Rejected(Reply::SalePut(SalePutReply {
            outcome,
            sale: Reader::new(body).u64().ok().and_then(SaleId::new),
            why: String::from("a value is out of range"),
        })),
        k::ADJUST => RequestError::Rejected(Reply::Adjust(AdjustReply {
            outcome,
            applied: 0,
            total: 0,
            free: 0,
        })),
        HELLO | k::RESERVE_MANY => RequestError::Error {
            code: ErrorCode::Protocol,
            message: "a field of the body is out of range",
        },
        _ => RequestError::Error {
            code: ErrorCode::Argument,
            message: "an argument is out of range",
        },
    }
}

/// Appends a response as a frame.
pub fn encode_response(response: &Response, correlation: u64, out: &mut Vec<u8>) {
    let kind = match response {
        Response::Welcome(_) => WELCOME,
        Response::Pong { .. } => PONG,
        Response::Reply(reply) => reply::kind_of(reply),
        Response::ReserveMany(_) => reply::kind::RESERVE_MANY,
        Response::Done => DONE,
        Response::Consumers(_) => CONSUMERS_REPLY,
        Response::Error { .. } => ERROR,
        Response::Entries { .. } => ENTRIES,
        Response::Gap { .. } => GAP,
        Response::GoAway { .. } => GO_AWAY,
    };
    let start = begin(out, kind, correlation);
    match response {
        Response::Welcome(welcome) => feed::put_welcome(welcome, out),
        Response::Pong { server_time } => out.put_u64(server_time.get()),
        Response::Reply(reply) => reply::put(reply, out),
        Response::ReserveMany(replies) => reply::put_many(replies, out),
        Response::Done => {}
        Response::Consumers(consumers) => feed::put_consumers(consumers, out),
        Response::Error { code, message } => {
            out.put_u16(*code as u16);
            out.put_text(message);
        }
        Response::Entries { partition, first, last, bytes } => {
            put_run(*partition, *first, *last, out);
            out.put_u32(bytes.len() as u32);
            out.put_u32(0);
            out.extend_from_slice(bytes);
        }
        Response::Gap { partition, from, to } => put_run(*partition, *from, *to, out),
        Response::GoAway { reconnect_after_ms } => out.put_u32(*reconnect_after_ms),
    }
    end(out, start);
}

/// Reads a response's body. Bytes behind the last known field are ignored.
///
/// # Errors
/// The body is malformed or of an unknown kind.
pub fn decode_response(header: &Header, body: &[u8]) -> Result<Response, Malformed> {
    let r = &mut Reader::new(body);
    Ok(match header.kind {
        WELCOME => Response::Welcome(feed::take_welcome(r)?),
        PONG => Response::Pong { server_time: r.timestamp()? },
        reply::kind::RESERVE_MANY => Response::ReserveMany(reply::take_many(r)?),
        DONE => Response::Done,
        CONSUMERS_REPLY => Response::Consumers(feed::take_consumers(r)?),
        ERROR => {
            let code = ErrorCode::from_number(r.u16()?).ok_or(Malformed::Range("error code"))?;
            Response::Error { code, message: String::from(r.text("message")?) }
        }
        ENTRIES => {
            let (partition, first, last) = take_run(r)?;
            let length = r.u32()? as usize;
            r.u32()?;
            Response::Entries { partition, first, last, bytes: Vec::from(r.take(length)?) }
        }
        GAP => {
            let (partition, from, to) = take_run(r)?;
            Response::Gap { partition, from, to }
        }
        GO_AWAY => Response::GoAway { reconnect_after_ms: r.u32()? },
        kind => Response::Reply(reply::take(kind, r)?.ok_or(Malformed::Range("kind"))?),
    })
}

fn put_run(partition: PartitionId, first: Lsn, last: Lsn, out: &mut Vec<u8>) {
    out.put_u16(partition.get());
    out.put_u16(0);
    out.put_u32(0);
    out.put_u64(first.get());
    out.put_u64(last.get());
}

fn take_run(r: &mut Reader<'_>) -> Result<(PartitionId, Lsn, Lsn), Malformed> {
    let partition = PartitionId::new(r.u16()?);
    r.take(6)?;
    Ok((partition, Lsn::new(r.u64()?), Lsn::new(r.u64()?)))
}

impl ErrorCode {
    /// All codes, by number.
    pub const ALL: [Self; 10] = [
        Self::Protocol,
        Self::UnknownKind,
        Self::TooLarge,
        Self::Handshake,
        Self::Argument,
        Self::UnknownConsumer,
        Self::TooMany,
        Self::Failed,
        Self::TooManyConnections,
        Self::Authentication,
    ];

    /// The code of this number.
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// True if the connection closes after it.
    pub const fn closes(self) -> bool {
        matches!(
            self,
            Self::Protocol
                | Self::TooLarge
                | Self::Handshake
                | Self::TooManyConnections
                | Self::Authentication
        )
    }
}
