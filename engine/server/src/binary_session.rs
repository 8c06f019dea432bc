//! The binary protocol on one connection: frames in, actions out; answers in, frames out.
//!
//! The preface and HELLO come first and together (a peer that shows only one of them has no
//! handshake). After that requests are answered in any order, each with its correlation id. What
//! breaks the protocol is told once and closes.

use crate::session::{Action, FeedAnswer, FeedRequest, FeedRun, Received, ServerInfo, Session};
use slab::Slab;
use std::sync::Arc;
use stockade_protocol::command::Reserve;
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::reply::{RETRY_NEVER, ReserveReply};
use stockade_protocol::wire::{
    BODY_BYTES_BEFORE_HELLO_MAX, BODY_BYTES_MAX, ErrorCode, FrameError, Hello, PREFACE,
    PROTOCOL_VERSION, Request, RequestError, Response, ShardPort, Subscribe, Welcome,
    decode_request, encode_response, split,
};
use stockade_protocol::{Command, Outcome, Reply};

/// Frames taken in one call.
const FRAMES_MAX: usize = 1024;

/// What an answer belongs to; the slot is the action's tag.
#[derive(Debug)]
enum Pending {
    /// One request.
    One { correlation: u64 },
    /// One reserve of a batch.
    OfMany { many: usize, at: usize },
    /// The subscription; it stays as long as the connection.
    Subscription { correlation: u64, answered: bool },
}

/// A `ReserveMany` whose answers come one by one.
#[derive(Debug)]
struct Many {
    correlation: u64,
    replies: Vec<ReserveReply>,
    missing: usize,
}

/// See the module.
#[derive(Debug)]
pub struct BinarySession {
    info: Arc<ServerInfo>,
    greeted: bool,
    pending: Slab<Pending>,
    many: Slab<Many>,
    in_flight: usize,
}

/// How the session goes on after a frame.
#[derive(PartialEq, Eq)]
enum Next {
    Go,
    Close,
}

impl BinarySession {
    /// A session before its handshake.
    pub fn new(info: Arc<ServerInfo>) -> Self {
        Self { info, greeted: false, pending: Slab::new(), many: Slab::new(), in_flight: 0 }
    }

    /// Preface and HELLO at the front of `input`.
    fn greet(&mut self, input: &[u8], now: TimestampMs, out: &mut Vec<u8>) -> Received {
        let close = |out: &mut Vec<u8>, code, correlation, message: &str| {
            let message = String::from(message);
            encode_response(&Response::Error { code, message }, correlation, out);
            Received { consumed: input.len(), close: true }
        };
        let shown = input.len().min(PREFACE.len());
        if input[..shown] != PREFACE[..shown] {
            return close(out, ErrorCode::Handshake, 0, "this port speaks the Stockade protocol");
        }
        let Some(frame) = input.get(PREFACE.len()..) else {
            return Received { consumed: 0, close: false };
        };
        let (header, body, taken) = match split(frame, BODY_BYTES_BEFORE_HELLO_MAX) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Received { consumed: 0, close: false },
            Err(error) => return close(out, code_of(&error), 0, &error.to_string()),
        };
        let correlation = header.correlation;
        let hello = match decode_request(&header, body) {
            Ok(Request::Hello(hello)) => hello,
            Err(RequestError::Error { message, .. }) => {
                return close(out, ErrorCode::Handshake, correlation, message);
            }
            _ => return close(out, ErrorCode::Handshake, correlation, "HELLO comes first"),
        };
        if let Err((code, message)) = self.check_hello(&hello) {
            return close(out, code, correlation, message);
        }
        self.greeted = true;
        encode_response(&Response::Welcome(self.welcome(now)), correlation, out);
        Received { consumed: PREFACE.len() + taken, close: false }
    }

    fn check_hello(&self, hello: &Hello) -> Result<(), (ErrorCode, &'static str)> {
        if hello.version_min > PROTOCOL_VERSION || hello.version_max < PROTOCOL_VERSION {
            return Err((ErrorCode::Handshake, "this server speaks protocol version 1 only"));
        }
        if !crate::token::is_allowed(&self.info.tokens, hello.token.as_bytes()) {
            return Err((ErrorCode::Authentication, "the token is missing or wrong"));
        }
        Ok(())
    }

    fn welcome(&self, now: TimestampMs) -> Welcome {
        Welcome {
            version: PROTOCOL_VERSION,
            features: 0,
            body_bytes_max: BODY_BYTES_MAX,
            in_flight_max: self.info.in_flight_max,
            durability: u8::from(self.info.durability == "async"),
            epoch: self.info.epoch,
            server_time: now,
            partition_count: self.info.partition_count,
            shards: self.info.shard_ports.iter().map(|port| ShardPort { port: *port }).collect(),
            server: self.info.version.clone(),
        }
    }

    fn request(
        &mut self,
        request: Request,
        correlation: u64,
        now: TimestampMs,
        out: &mut Vec<u8>,
        actions: &mut Vec<Action>,
    ) -> Next {
        match request {
            Request::Hello(_) => {
                error(out, correlation, ErrorCode::Protocol, "HELLO comes only once");
                return Next::Close;
            }
            Request::Ping => {
                encode_response(&Response::Pong { server_time: now }, correlation, out);
            }
            Request::Command(command) => {
                let tag = self.open(Pending::One { correlation });
                actions.push(Action::Command { tag, command });
            }
            Request::ReserveMany(reserves) => {
                self.reserve_many(reserves, correlation, out, actions)
            }
            Request::Subscribe(subscribe) => self.subscribe(subscribe, correlation, out, actions),
            Request::Credit { bytes } => {
                actions.push(Action::Feed { tag: 0, request: FeedRequest::Credit { bytes } });
            }
            Request::Ack { consumer, cursors } => {
                self.ask_feed(FeedRequest::Ack { consumer, cursors }, correlation, actions);
            }
            Request::Unsubscribe => self.ask_feed(FeedRequest::Unsubscribe, correlation, actions),
            Request::Consumers => self.ask_feed(FeedRequest::Consumers, correlation, actions),
            Request::ConsumerDrop(name) => {
                self.ask_feed(FeedRequest::Drop(name), correlation, actions);
            }
        }
        Next::Go
    }

    fn open(&mut self, pending: Pending) -> u64 {
        self.in_flight += 1;
        self.pending.insert(pending) as u64
    }

    fn ask_feed(&mut self, request: FeedRequest, correlation: u64, actions: &mut Vec<Action>) {
        let tag = self.open(Pending::One { correlation });
        actions.push(Action::Feed { tag, request });
    }

    fn subscribe(
        &mut self,
        subscribe: Subscribe,
        correlation: u64,
        out: &mut Vec<u8>,
        actions: &mut Vec<Action>,
    ) {
        // A failed one leaves no slot, so an occupied one is in force or about to be.
        let has = |pending: &Pending| matches!(pending, Pending::Subscription { .. });
        if self.pending.iter().any(|(_, pending)| has(pending)) {
            let message = "this connection has a subscription already";
            return error(out, correlation, ErrorCode::TooMany, message);
        }
        let tag = self.open(Pending::Subscription { correlation, answered: false });
        actions.push(Action::Feed { tag, request: FeedRequest::Subscribe(subscribe) });
    }

    fn reserve_many(
        &mut self,
        reserves: Vec<Option<Reserve>>,
        correlation: u64,
        out: &mut Vec<u8>,
        actions: &mut Vec<Action>,
    ) {
        let malformed = ReserveReply::rejected(Outcome::BadRequest, RETRY_NEVER);
        let replies = vec![malformed; reserves.len()];
        let missing = reserves.iter().flatten().count();
        if missing == 0 {
            return encode_response(&Response::ReserveMany(replies), correlation, out);
        }
        let many = self.many.insert(Many { correlation, replies, missing });
        for (at, reserve) in reserves.into_iter().enumerate() {
            if let Some(reserve) = reserve {
                let tag = self.open(Pending::OfMany { many, at });
                actions.push(Action::Command { tag, command: Command::Reserve(reserve) });
            }
        }
    }

    fn reply_of_many(&mut self, slot: usize, at: usize, reply: Reply, out: &mut Vec<u8>) {
        let many = &mut self.many[slot];
        many.replies[at] = match reply {
            Reply::Reserve(reply) => reply,
            _ => ReserveReply::rejected(Outcome::Busy, i64::from(crate::busy::RETRY_AFTER_MS)),
        };
        many.missing -= 1;
        if many.missing == 0 {
            let Many { correlation, replies, .. } = self.many.remove(slot);
            encode_response(&Response::ReserveMany(replies), correlation, out);
        }
    }

    /// The answer to a `Subscribe`, or a push.
    fn subscription(
        &mut self,
        tag: usize,
        correlation: u64,
        answered: bool,
        answer: FeedAnswer,
        out: &mut Vec<u8>,
    ) {
        if !answered {
            self.in_flight -= 1;
        }
        let failed = matches!(answer, FeedAnswer::Failed { .. });
        if failed {
            self.pending.remove(tag);
        } else {
            self.pending[tag] = Pending::Subscription { correlation, answered: true };
        }
        // A subscription that fails later tells it as a push.
        let correlation = if answered { 0 } else { correlation };
        feed_response(answer, correlation, out);
    }
}

impl Session for BinarySession {
    fn receive(
        &mut self,
        input: &[u8],
        now: TimestampMs,
        out: &mut Vec<u8>,
        actions: &mut Vec<Action>,
    ) -> Received {
        let mut consumed = 0;
        if !self.greeted {
            let received = self.greet(input, now, out);
            if received.close || !self.greeted {
                return received;
            }
            consumed = received.consumed;
        }
        for _ in 0..FRAMES_MAX {
            if self.in_flight >= self.info.in_flight_max as usize {
                break;
            }
            let (header, body, taken) = match split(&input[consumed..], BODY_BYTES_MAX) {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(broken) => {
                    error(out, 0, code_of(&broken), &broken.to_string());
                    return Received { consumed: input.len(), close: true };
                }
            };
            let correlation = header.correlation;
            let next = match decode_request(&header, body) {
                Ok(request) => self.request(request, correlation, now, out, actions),
                Err(RequestError::Rejected(reply)) => {
                    encode_response(&Response::Reply(reply), correlation, out);
                    Next::Go
                }
                Err(RequestError::Error { code, message }) => {
                    error(out, correlation, code, message);
                    if code.closes() { Next::Close } else { Next::Go }
                }
            };
            consumed += taken;
            if next == Next::Close {
                return Received { consumed: input.len(), close: true };
            }
        }
        Received { consumed, close: false }
    }

    fn reply(&mut self, tag: u64, reply: Reply, out: &mut Vec<u8>) {
        self.in_flight -= 1;
        match self.pending.remove(tag as usize) {
            Pending::One { correlation } => {
                encode_response(&Response::Reply(reply), correlation, out);
            }
            Pending::OfMany { many, at } => self.reply_of_many(many, at, reply, out),
            Pending::Subscription { .. } => panic!("a subscription is no command"),
        }
    }

    fn feed(&mut self, tag: u64, answer: FeedAnswer, out: &mut Vec<u8>) {
        let slot = tag as usize;
        match self.pending.get(slot) {
            Some(Pending::Subscription { correlation, answered }) => {
                let (correlation, answered) = (*correlation, *answered);
                self.subscription(slot, correlation, answered, answer, out);
            }
            Some(Pending::One { correlation }) => {
                let correlation = *correlation;
                self.pending.remove(slot);
                self.in_flight -= 1;
                feed_response(answer, correlation, out);
            }
            // A push that crossed the end of its subscription.
            Some(Pending::OfMany { .. }) | None => {}
        }
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn go_away(&mut self, reconnect_after_ms: u32, out: &mut Vec<u8>) {
        if self.greeted {
            encode_response(&Response::GoAway { reconnect_after_ms }, 0, out);
        }
    }
}

fn error(out: &mut Vec<u8>, correlation: u64, code: ErrorCode, message: &str) {
    encode_response(&Response::Error { code, message: String::from(message) }, correlation, out);
}

fn code_of(broken: &FrameError) -> ErrorCode {
    match broken {
        FrameError::TooLarge { .. } => ErrorCode::TooLarge,
        FrameError::Header(_) => ErrorCode::Protocol,
    }
}

fn feed_response(answer: FeedAnswer, correlation: u64, out: &mut Vec<u8>) {
    let response = match answer {
        FeedAnswer::Done => Response::Done,
        FeedAnswer::Consumers(consumers) => Response::Consumers(consumers),
        FeedAnswer::Failed { code, message } => Response::Error { code, message },
        FeedAnswer::Pushed(run) => return push(run, out),
        // Only RESP pulls; the binary protocol subscribes.
        FeedAnswer::Pulled(runs) => return runs.into_iter().for_each(|run| push(run, out)),
    };
    encode_response(&response, correlation, out);
}

fn push(run: FeedRun, out: &mut Vec<u8>) {
    let response = match run {
        FeedRun::Entries { partition, first, last, bytes } => {
            Response::Entries { partition, first, last, bytes }
        }
        FeedRun::Gap { partition, from, to } => Response::Gap { partition, from, to },
    };
    encode_response(&response, 0, out);
}

/// What a client that comes when there is no room is told.
pub fn refusal() -> Vec<u8> {
    let mut out = Vec::new();
    error(&mut out, 0, ErrorCode::TooManyConnections, "the server takes no more connections");
    out
}
