//! What Redis clients send when they connect, answered as Redis does, so that every client takes us
//! for one.

use super::writer::Writer;
use crate::session::ServerInfo;
use crate::token;
use std::fmt::Write as _;
use stockade_protocol::ids::TimestampMs;

/// The version that clients see; some turn features on by it.
const REDIS_VERSION: &str = "7.2.0";

/// What the connection is to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// As it is.
    None,
    /// Closes after the answer.
    Close,
}

/// What a connection remembers.
#[derive(Debug)]
pub struct Connection {
    /// RESP3.
    pub three: bool,
    /// A token was shown, or none is needed.
    pub allowed: bool,
    name: Vec<u8>,
}

impl Connection {
    /// A new one.
    pub fn new(info: &ServerInfo) -> Self {
        Self { three: false, allowed: info.tokens.is_empty(), name: Vec::new() }
    }

    /// Answers a command that is none of the engine's; `None`: it is not known here either.
    pub fn answer(
        &mut self,
        name: &str,
        a: &[&[u8]],
        info: &ServerInfo,
        now: TimestampMs,
        out: &mut Vec<u8>,
    ) -> Option<Effect> {
        let mut w = Writer { out, three: self.three };
        match (name, a.len()) {
            ("HELLO", _) => self.hello(a, info, out),
            ("AUTH", 1 | 2) => self.auth(a, info, &mut w),
            ("QUIT", _) => {
                w.simple("OK");
                return Some(Effect::Close);
            }
            ("RESET", 0) => {
                *self = Self::new(info);
                w.simple("RESET");
            }
            (
                "PING" | "ECHO" | "SELECT" | "CLIENT" | "INFO" | "COMMAND" | "CONFIG" | "READONLY",
                _,
            ) if !self.allowed => {
                w.error("NOAUTH Authentication required.");
            }
            ("PING", 0) => w.simple("PONG"),
            ("PING" | "ECHO", 1) => w.bulk(a[0]),
            ("SELECT", 1) if a[0] == b"0" => w.simple("OK"),
            ("SELECT", 1) => w.error("ERR DB index is out of range"),
            ("CLIENT", 1..) => self.client(a, &mut w),
            ("INFO", _) => w.text(&info_text(info, now)),
            ("COMMAND", 1) if a[0].eq_ignore_ascii_case(b"COUNT") => w.integer(0),
            ("COMMAND", _) => w.array(0),
            ("CONFIG", 2..) if a[0].eq_ignore_ascii_case(b"GET") => w.map(0),
            ("CONFIG", _) => w.error("ERR unknown subcommand of CONFIG"),
            ("READONLY" | "READWRITE", 0) => w.simple("OK"),
            ("PING" | "ECHO" | "SELECT" | "AUTH" | "CLIENT" | "RESET" | "READONLY", _) => {
                let name = name.to_lowercase();
                w.error(&format!("ERR wrong number of arguments for '{name}' command"));
            }
            _ => return None,
        }
        Some(Effect::None)
    }

    fn auth(&mut self, a: &[&[u8]], info: &ServerInfo, w: &mut Writer<'_>) {
        if info.tokens.is_empty() {
            w.error(
                "ERR AUTH <password> called without any password configured for the default user. \
                 Are you sure your configuration is correct?",
            );
        } else if token::is_allowed(&info.tokens, a[a.len() - 1]) {
            self.allowed = true;
            w.simple("OK");
        } else {
            w.error("WRONGPASS invalid username-password pair or user is disabled.");
        }
    }

    fn hello(&mut self, a: &[&[u8]], info: &ServerInfo, out: &mut Vec<u8>) {
        let mut three = self.three;
        let mut w = Writer { out, three };
        match a.first().copied() {
            None => {}
            Some(b"2") => three = false,
            Some(b"3") => three = true,
            Some(_) => return w.error("NOPROTO unsupported protocol version"),
        }
        let mut at = 1;
        while at < a.len() {
            if a[at].eq_ignore_ascii_case(b"AUTH") && at + 2 < a.len() {
                let shown = a[at + 2];
                if !info.tokens.is_empty() && !token::is_allowed(&info.tokens, shown) {
                    let why = "WRONGPASS invalid username-password pair or user is disabled.";
                    return w.error(why);
                }
                self.allowed = true;
                at += 3;
            } else if a[at].eq_ignore_ascii_case(b"SETNAME") && at + 1 < a.len() {
                self.name = a[at + 1].to_vec();
                at += 2;
            } else {
                return w.error("ERR Syntax error in HELLO");
            }
        }
        if !self.allowed {
            return w.error("NOAUTH HELLO must be called with the client already authenticated");
        }
        self.three = three;
        let mut w = Writer { out, three };
        w.map(7);
        for (key, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
            w.text(key);
            w.text(value);
        }
        w.text("proto");
        w.integer(if three { 3 } else { 2 });
        w.text("id");
        w.integer(1);
        for (key, value) in [("mode", "standalone"), ("role", "master")] {
            w.text(key);
            w.text(value);
        }
        w.text("modules");
        w.array(0);
    }

    fn client(&mut self, a: &[&[u8]], w: &mut Writer<'_>) {
        if a[0].eq_ignore_ascii_case(b"ID") {
            w.integer(1);
        } else if a[0].eq_ignore_ascii_case(b"GETNAME") {
            w.bulk(&self.name);
        } else if a[0].eq_ignore_ascii_case(b"INFO") || a[0].eq_ignore_ascii_case(b"LIST") {
            w.text("id=1 db=0");
        } else {
            if a[0].eq_ignore_ascii_case(b"SETNAME")
                && let Some(name) = a.get(1)
            {
                self.name = name[..name.len().min(64)].to_vec();
            }
            w.simple("OK");
        }
    }
}

fn info_text(info: &ServerInfo, now: TimestampMs) -> String {
    let mut text = String::new();
    let [listen, resp, http] = info.ports;
    let _ = write!(
        text,
        "# Server\r\nredis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\nprocess_id:{}\r\n\
         tcp_port:{resp}\r\nuptime_in_seconds:{}\r\n\
         # Persistence\r\nloading:0\r\n\
         # Replication\r\nrole:master\r\n\
         # Stockade\r\nstockade_version:{}\r\nstockade_durability:{}\r\nstockade_epoch:{}\r\n\
         stockade_partitions:{}\r\nstockade_shards:{}\r\nstockade_listen_port:{listen}\r\n\
         stockade_http_port:{http}\r\n",
        std::process::id(),
        now.since(info.started_at) / 1000,
        info.version.trim_start_matches("stockade "),
        info.durability,
        info.epoch,
        info.partition_count,
        info.shard_ports.len(),
    );
    text
}
