//! A RESP connection as a pure machine. Requests are taken as they come; answers wait in a queue
//! until everything before them is answered. As in Redis a command that blocks (a pull of the feed)
//! blocks its connection: what is behind it stays in the socket, so that answers which are made
//! early cannot pile up behind one that waits.

use super::commands::{self, Parsed};
use super::handshake::{Connection, Effect};
use super::parser::parse;
use super::scripts::{Script, Value, sha1_of};
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

/// A request whose answer has not left.
#[derive(Debug)]
enum Slot {
    /// Its answer is still to come; a script's answer becomes the script's value.
    Waiting(Option<Arc<Script>>),
    /// Its answer waits for those before it.
    Ready(Vec<u8>),
}

/// See the module.
#[derive(Debug)]
pub struct RespSession {
    info: Arc<ServerInfo>,
    connection: Connection,
    /// In the order of the requests.
    queue: VecDeque<Slot>,
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

    fn slot(&mut self, tag: u64) -> Option<&mut Slot> {
        let at = usize::try_from(tag.checked_sub(self.front)?).ok()?;
        self.queue.get_mut(at)
    }

    /// An answer is there: it goes out, with those behind it that waited for it.
    fn answered(&mut self, tag: u64, bytes: Vec<u8>, out: &mut Vec<u8>) {
        let count = bytes.len();
        if let Some(slot) = self.slot(tag) {
            *slot = Slot::Ready(bytes);
            self.queue_bytes += count;
        }
        while let Some(Slot::Ready(_)) = self.queue.front() {
            if let Some(Slot::Ready(bytes)) = self.queue.pop_front() {
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
        self.queue.push_back(Slot::Ready(bytes));
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
        let is_script = matches!(name.as_str(), "EVALSHA" | "EVAL" | "SCRIPT");
        if is_script || name.starts_with("STOCK.") {
            if !self.connection.allowed {
                self.say(out, |w| w.error("NOAUTH Authentication required."));
            } else if is_script {
                self.script(&name, rest, out, actions);
            } else {
                self.stock(&name, rest, None, out, actions);
            }
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

    /// Has a command of the engine decided; with a script its answer is the script's value.
    fn stock(
        &mut self,
        name: &str,
        arguments: &[&[u8]],
        script: Option<Arc<Script>>,
        out: &mut Vec<u8>,
        actions: &mut Vec<Action>,
    ) {
        let tag = self.tag_next();
        match commands::parse(name, arguments) {
            Parsed::Command(command) => {
                self.queue.push_back(Slot::Waiting(script));
                actions.push(Action::Command { tag, command });
            }
            Parsed::Feed(request) => {
                self.queue.push_back(Slot::Waiting(None));
                if matches!(request, FeedRequest::Pull { .. }) {
                    self.pull = Some(tag);
                }
                actions.push(Action::Feed { tag, request });
            }
            Parsed::Reply(reply) => self.say(out, |w| write_reply(w, script.as_deref(), &reply)),
            Parsed::Error(text) => self.say(out, |w| w.error(&text)),
            Parsed::Unknown => self.unknown(name, out),
        }
    }

    /// `EVAL`, `EVALSHA` and `SCRIPT`: only registered scripts are known.
    fn script(
        &mut self,
        name: &str,
        arguments: &[&[u8]],
        out: &mut Vec<u8>,
        actions: &mut Vec<Action>,
    ) {
        match (name, arguments) {
            ("SCRIPT", [word, rest @ ..]) => self.script_verb(word, rest, out),
            ("EVALSHA" | "EVAL", [text, count, rest @ ..]) => {
                let sha1 = if name == "EVAL" { sha1_of(text).into_bytes() } else { text.to_vec() };
                let Some(script) = self.info.scripts.get(&sha1).cloned() else {
                    return self.unknown_script(name, &sha1, out);
                };
                let count = commands::decimal(count).and_then(|count| usize::try_from(count).ok());
                match count.filter(|count| *count <= rest.len()) {
                    Some(count) => self.run(script, rest.split_at(count), out, actions),
                    None => {
                        let why = "ERR Number of keys can't be greater than number of args";
                        self.say(out, |w| w.error(why));
                    }
                }
            }
            _ => {
                let name = name.to_lowercase();
                let why = format!("ERR wrong number of arguments for '{name}' command");
                self.say(out, |w| w.error(&why));
            }
        }
    }

    /// Clients answer `NOSCRIPT` with `EVAL` of the text: there it is said what to do.
    fn unknown_script(&mut self, name: &str, sha1: &[u8], out: &mut Vec<u8>) {
        if name == "EVALSHA" {
            return self.say(out, |w| w.error("NOSCRIPT No matching script. Please use EVAL."));
        }
        let sha1 = String::from_utf8_lossy(sha1);
        let why = format!(
            "ERR no Lua runs here, and script {sha1} is not registered: add it to [[scripts]] in \
             the server's config file"
        );
        self.say(out, |w| w.error(&why));
    }

    fn script_verb(&mut self, word: &[u8], rest: &[&[u8]], out: &mut Vec<u8>) {
        match (word.to_ascii_uppercase().as_slice(), rest) {
            (b"LOAD", [text]) => {
                let sha1 = sha1_of(text);
                if self.info.scripts.get(sha1.as_bytes()).is_none() {
                    return self.unknown_script("EVAL", sha1.as_bytes(), out);
                }
                self.say(out, |w| w.text(&sha1));
            }
            (b"EXISTS", [_, ..]) => {
                let scripts = &self.info.scripts;
                let known: Vec<bool> =
                    rest.iter().map(|sha1| scripts.get(sha1).is_some()).collect();
                self.say(out, |w| {
                    w.array(known.len());
                    known.iter().for_each(|known| w.integer(i64::from(*known)));
                });
            }
            // Registered scripts stay.
            (b"FLUSH", _) => self.say(out, |w| w.simple("OK")),
            _ => self.say(out, |w| w.error("ERR unknown subcommand of SCRIPT")),
        }
    }

    /// Has the command decided that a script stands for.
    fn run(
        &mut self,
        script: Arc<Script>,
        (keys, arguments): (&[&[u8]], &[&[u8]]),
        out: &mut Vec<u8>,
        actions: &mut Vec<Action>,
    ) {
        let words = script.command(keys, arguments);
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let name = String::from_utf8_lossy(words[0]).to_uppercase();
        self.stock(&name, &words[1..], Some(script), out, actions);
    }
}

/// The answer, or the value that a script has for it.
fn write_reply(w: &mut Writer<'_>, script: Option<&Script>, reply: &Reply) {
    let Some(script) = script else { return w.reply(reply) };
    match script.value(reply) {
        Some(Value::Number(number)) => w.integer(number),
        Some(Value::Text(text)) => w.text(&text),
        None => w.error("BUSY nothing was decided, try again"),
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
        let mut w = Writer { out: &mut bytes, three: self.connection.three };
        let script = match self.queue.get((tag - self.front) as usize) {
            Some(Slot::Waiting(script)) => script.as_deref(),
            _ => None,
        };
        write_reply(&mut w, script, &reply);
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
    use super::super::scripts::{ScriptSettings, Scripts};
    use super::*;
    use stockade_protocol::Outcome;
    use stockade_protocol::reply::{RETRY_NEVER, ReserveReply};

    fn session(tokens: &[&str]) -> RespSession {
        with_scripts(tokens, Scripts::default())
    }

    fn with_scripts(tokens: &[&str], scripts: Scripts) -> RespSession {
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
            scripts,
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
    fn a_registered_script_is_a_command_and_its_outcome_a_value() {
        #[derive(serde::Deserialize)]
        struct File {
            scripts: Vec<ScriptSettings>,
        }
        let file: File = toml::from_str(
            "[[scripts]]\nsha1 = \"e0e1f9fabfc9d4800c877a703b823ac0578ff8db\"\notherwise = -1\n\
             command = \"STOCK.RESERVE 1 {ARGV[1]} {ARGV[2]} {KEYS[1]#stock:} 1\"\n\
             returns = { held = 1, sold_out = 0 }\n",
        )
        .unwrap();
        let scripts = Scripts::new(&file.scripts, std::path::Path::new("")).unwrap();
        let sha1 = "E0E1F9FABFC9D4800C877A703B823AC0578FF8DB";
        let mut session = with_scripts(&[], scripts);
        let call = format!("EVALSHA {sha1} 1 stock:9 7 r1");
        let (out, actions, _) = send(&mut session, &call);
        assert!(out.is_empty() && format!("{actions:?}").contains("Reserve"), "{actions:?}");
        let mut out = Vec::new();
        let sold_out = ReserveReply::rejected(Outcome::SoldOut, RETRY_NEVER);
        session.reply(1, Reply::Reserve(sold_out), &mut out);
        assert_eq!(out, b":0\r\n");
        // A malformed argument is an outcome too, and is answered at once.
        assert_eq!(send(&mut session, &format!("EVALSHA {sha1} 1 stock:9 -7 r1")).0, ":-1\r\n");
        assert_eq!(
            send(&mut session, "*4\r\n$4\r\nEVAL\r\n$8\r\nreturn 1\r\n$1\r\n0\r\n$1\r\n7").0,
            ":-1\r\n"
        );
        let load = |text: &str| format!("*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n$8\r\n{text}");
        let loaded = format!("$40\r\n{}\r\n", sha1.to_lowercase());
        assert_eq!(send(&mut session, &load("return 1")).0, loaded);
        assert!(send(&mut session, &load("return 2")).0.starts_with("-ERR no Lua runs here"));
        assert_eq!(
            send(&mut session, &format!("SCRIPT EXISTS {sha1} abc")).0,
            "*2\r\n:1\r\n:0\r\n"
        );
        assert!(send(&mut session, "EVALSHA abc 0").0.starts_with("-NOSCRIPT"));
        assert!(send(&mut session, "EVAL x 0").0.starts_with("-ERR no Lua runs here"));
        assert!(send(&mut session, &format!("EVALSHA {sha1} 3 a")).0.starts_with("-ERR Number"));
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
