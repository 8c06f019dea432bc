//! A RESP connection as a pure machine. Requests are taken as they come; answers wait in a queue
//! until everything before them is answered. As in Redis a command that blocks (a pull of the feed)
//! blocks its connection: what is behind it stays in the socket, so that answers which are made
//! early cannot pile up behind one that waits.

use super::commands::{self, Parsed};
use super::handshake::{Connection, Effect};
use super::parser::parse;
use super::writer::Writer;
use crate::session::{Action, FeedAnswer, FeedRequest, Received, ServerInfo, Session};
use std::collections::VecDeque;
use std::sync::Arc;
use stockade_protocol::Reply;
use stockade_protocol::ids::TimestampMs;

/// Requests of one connection that wait for answers: an aggressive pipeline, bounded.
const IN_FLIGHT_MAX: usize = 16 * 1024;
/// Bytes of answers that wait for one before them; while there are more nothing is taken.
const QUEUE_BYTES_MAX: usize = 256 << 10;

/// See the module.
#[derive(Debug)]
pub struct RespSession {
    info: Arc<ServerInfo>,
    connection: Connection,
    /// Answers in the order of their requests; `None` is still to come.
    queue: VecDeque<Option<Vec<u8>>>,
    /// The tag of the queue's front.
    front: u64,
    /// Bytes of answers in the queue.
    queue_bytes: usize,
    /// The tag of the pull of the feed that has the connection.
    pull: Option<u64>,
    /// Nothing more is taken.
    closing: bool,
}

impl RespSession {
    /// A connection that has sent nothing yet.
    pub fn new(info: Arc<ServerInfo>) -> Self {
        let connection = Connection::new(&info);
        Self {
            info,
            connection,
            queue: VecDeque::new(),
            front: 1,
            queue_bytes: 0,
            pull: None,
            closing: false,
        }
    }

    /// Another command may be taken.
    fn has_room(&self) -> bool {
        !self.closing
            && self.pull.is_none()
            && self.queue.len() < IN_FLIGHT_MAX
            && self.queue_bytes <= QUEUE_BYTES_MAX
    }

    fn tag_next(&self) -> u64 {
        self.front + self.queue.len() as u64
    }

    /// An answer is there: it goes out, with those behind it that waited for it.
    fn answered(&mut self, tag: u64, bytes: Vec<u8>, out: &mut Vec<u8>) {
        let at = tag.checked_sub(self.front).and_then(|at| usize::try_from(at).ok());
        if let Some(slot) = at.and_then(|at| self.queue.get_mut(at)) {
            self.queue_bytes += bytes.len();
            *slot = Some(bytes);
        }
        while let Some(Some(_)) = self.queue.front() {
            if let Some(Some(bytes)) = self.queue.pop_front() {
                self.queue_bytes -= bytes.len();
                out.extend_from_slice(&bytes);
                self.front += 1;
            }
        }
    }

    /// An answer that needs nobody else.
    fn say(&mut self, out: &mut Vec<u8>, write: impl FnOnce(&mut Writer<'_>)) {
        let three = self.connection.three;
        if self.queue.is_empty() {
            self.front += 1;
            return write(&mut Writer { out, three });
        }
        let mut bytes = Vec::new();
        write(&mut Writer { out: &mut bytes, three });
        self.queue_bytes += bytes.len();
        self.queue.push_back(Some(bytes));
    }

    /// Takes one command; true if the connection ends after it.
    fn command(
        &mut self,
        arguments: &[&[u8]],
        now: TimestampMs,
        out: &mut Vec<u8>,
        actions: &mut Vec<Action>,
    ) -> bool {
        let Some((name, rest)) = arguments.split_first() else { return false };
        let name = String::from_utf8_lossy(name).to_uppercase();
        if name.starts_with("STOCK.") {
            self.stock(&name, rest, out, actions);
            return false;
        }
        let (info, mut bytes) = (self.info.clone(), Vec::new());
        let effect = self.connection.answer(&name, rest, &info, now, &mut bytes);
        match effect {
            Some(effect) => {
                self.say(out, |w| w.out.extend_from_slice(&bytes));
                effect == Effect::Close
            }
            None => {
                self.unknown(&name, out);
                false
            }
        }
    }

    fn unknown(&mut self, name: &str, out: &mut Vec<u8>) {
        let shown: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
        self.say(out, |w| w.error(&format!("ERR unknown command '{shown}'")));
    }

    fn stock(
        &mut self,
        name: &str,
        arguments: &[&[u8]],
        out: &mut Vec<u8>,
        actions: &mut Vec<Action>,
    ) {
        if !self.connection.allowed {
            return self.say(out, |w| w.error("NOAUTH Authentication required."));
        }
        let tag = self.tag_next();
        match commands::parse(name, arguments) {
            Parsed::Command(command) => {
                self.queue.push_back(None);
                actions.push(Action::Command { tag, command });
            }
            Parsed::Feed(request) => {
                self.queue.push_back(None);
                if matches!(request, FeedRequest::Pull { .. }) {
                    self.pull = Some(tag);
                }
                actions.push(Action::Feed { tag, request });
            }
            Parsed::Reply(reply) => self.say(out, |w| w.reply(&reply)),
            Parsed::Error(text) => self.say(out, |w| w.error(&text)),
            Parsed::Unknown => self.unknown(name, out),
        }
    }
}

impl Session for RespSession {
    fn receive(
        &mut self,
        input: &[u8],
        now: TimestampMs,
        out: &mut Vec<u8>,
        actions: &mut Vec<Action>,
    ) -> Received {
        let mut consumed = 0;
        while self.has_room() {
            match parse(&input[consumed..]) {
                Ok(None) => break,
                Ok(Some((arguments, taken))) => {
                    self.closing = self.command(&arguments, now, out, actions);
                    consumed += taken;
                }
                Err(error) => {
                    self.say(out, |w| w.error(&format!("ERR {error}")));
                    self.closing = true;
                }
            }
        }
        Received { consumed, close: self.closing }
    }

    fn reply(&mut self, tag: u64, reply: Reply, out: &mut Vec<u8>) {
        let mut bytes = Vec::new();
        Writer { out: &mut bytes, three: self.connection.three }.reply(&reply);
        self.answered(tag, bytes, out);
    }

    fn feed(&mut self, tag: u64, answer: FeedAnswer, out: &mut Vec<u8>) {
        let mut bytes = Vec::new();
        let mut w = Writer { out: &mut bytes, three: self.connection.three };
        match &answer {
            FeedAnswer::Done => w.simple("OK"),
            FeedAnswer::Pulled(runs) => w.feed(runs),
            FeedAnswer::Failed { message, .. } => w.error(&format!("ERR {message}")),
            // Nobody subscribes or lists over RESP.
            FeedAnswer::Consumers(_) | FeedAnswer::Pushed(_) => return,
        }
        if self.pull == Some(tag) {
            self.pull = None;
        }
        self.answered(tag, bytes, out);
    }

    fn in_flight(&self) -> usize {
        self.queue.len()
    }

    fn go_away(&mut self, _reconnect_after_ms: u32, _out: &mut Vec<u8>) {
        // RESP has no word for it: the connection closes when everything is answered.
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stockade_protocol::Outcome;
    use stockade_protocol::reply::{RETRY_NEVER, ReserveReply};

    fn session(tokens: &[&str]) -> RespSession {
        RespSession::new(Arc::new(ServerInfo {
            version: "stockade 0.1.0".into(),
            durability: "group",
            epoch: 3,
            partition_count: 64,
            shard_ports: vec![1, 2],
            ports: [1, 2, 3],
            started_at: TimestampMs::new(1),
            tokens: tokens.iter().map(|token| (*token).to_owned()).collect(),
            in_flight_max: 100,
        }))
    }

    fn send(session: &mut RespSession, text: &str) -> (String, Vec<Action>, bool) {
        let (mut out, mut actions) = (Vec::new(), Vec::new());
        let input = format!("{text}\r\n");
        let now = TimestampMs::new(5000);
        let received = session.receive(input.as_bytes(), now, &mut out, &mut actions);
        (String::from_utf8(out).unwrap(), actions, received.close)
    }

    #[test]
    fn answers_leave_in_the_order_of_their_requests() {
        let mut session = session(&[]);
        let (out, actions, _) = send(
            &mut session,
            "STOCK.RESERVE 1 7 a 1 1\r\nPING\r\nSTOCK.RESERVE 1 8 b 1 1\r\nECHO x",
        );
        assert_eq!((out.as_str(), actions.len(), session.in_flight()), ("", 2, 4));
        let reply = || Reply::Reserve(ReserveReply::rejected(Outcome::SoldOut, RETRY_NEVER));
        let mut out = Vec::new();
        session.reply(3, reply(), &mut out);
        assert!(out.is_empty(), "the second waits for the first");
        session.reply(1, reply(), &mut out);
        let text = String::from_utf8(out).unwrap();
        let one = "*5\r\n$8\r\nsold_out\r\n$1\r\n0\r\n:0\r\n:-1\r\n:-1\r\n";
        assert_eq!(text, format!("{one}+PONG\r\n{one}$1\r\nx\r\n"));
        assert_eq!(session.in_flight(), 0);
    }

    #[test]
    fn a_pull_of_the_feed_has_its_connection_to_itself() {
        let mut session = session(&[]);
        let text = "STOCK.SKU 1 1\r\nSTOCK.FEED w COUNT 5 BLOCK 1000\r\nPING\r\nPING\r\n";
        let (mut out, mut actions) = (Vec::new(), Vec::new());
        let now = TimestampMs::new(5000);
        let received = session.receive(text.as_bytes(), now, &mut out, &mut actions);
        assert_eq!(&text[received.consumed..], "PING\r\nPING\r\n");
        assert_eq!((actions.len(), session.in_flight()), (2, 2));
        let rest = text.as_bytes()[received.consumed..].to_vec();
        assert_eq!(session.receive(&rest, now, &mut out, &mut actions).consumed, 0);
        session.feed(2, FeedAnswer::Pulled(Vec::new()), &mut out);
        assert_eq!(session.receive(&rest, now, &mut out, &mut actions).consumed, rest.len());
        assert!(out.is_empty(), "the figures are still to come");
        session.reply(1, Reply::Busy { retry_after_ms: 20 }, &mut out);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "-BUSY try again in 20 ms\r\n*0\r\n+PONG\r\n+PONG\r\n");
    }

    #[test]
    fn answers_that_wait_for_one_before_them_are_bounded() {
        let mut session = session(&[]);
        send(&mut session, "STOCK.SKU 1 1");
        let echo = format!("ECHO {}\r\n", "x".repeat(1000)).repeat(1000);
        let (mut out, mut actions) = (Vec::new(), Vec::new());
        let now = TimestampMs::new(5000);
        let taken = session.receive(echo.as_bytes(), now, &mut out, &mut actions).consumed;
        assert!(taken < 2 * QUEUE_BYTES_MAX, "{taken} bytes were taken");
        session.reply(1, Reply::Busy { retry_after_ms: 20 }, &mut out);
        assert!(
            session.receive(&echo.as_bytes()[taken..], now, &mut out, &mut actions).consumed > 0
        );
    }

    #[test]
    fn tokens_are_asked_for_where_they_are_configured() {
        let mut open = session(&[]);
        assert!(send(&mut open, "AUTH x").0.starts_with("-ERR AUTH <password> called without"));
        let mut closed = session(&["secret"]);
        assert!(send(&mut closed, "PING").0.starts_with("-NOAUTH"));
        assert!(send(&mut closed, "STOCK.SKU 1 1").0.starts_with("-NOAUTH"));
        assert!(send(&mut closed, "AUTH wrong").0.starts_with("-WRONGPASS"));
        assert!(send(&mut closed, "HELLO 3").0.starts_with("-NOAUTH"));
        assert!(send(&mut closed, "HELLO 3 AUTH default secret").0.starts_with("%7\r\n"));
        assert_eq!(send(&mut closed, "STOCK.SKU 1 1").1.len(), 1);
    }

    #[test]
    fn misuse_of_the_protocol_is_an_error_and_closes() {
        let mut session = session(&[]);
        assert!(send(&mut session, "NOTHING 1").0.starts_with("-ERR unknown command 'NOTHING'"));
        assert!(send(&mut session, "HELLO 9").0.starts_with("-NOPROTO"));
        let (out, _, close) = send(&mut session, "*1\r\n+x");
        assert!(out.starts_with("-ERR Protocol error") && close);
    }
}
