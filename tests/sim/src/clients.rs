//! Clients: connections with the client's own codec, requests in flight, answers that never come,
//! and retries of the same request on another connection.

use crate::rng::Map;
use std::rc::Rc;
use stockade_client::Session;
use stockade_engine::connection::Connection;
use stockade_protocol::wire::{Request, Response};
use stockade_protocol::{Command, Reply};

/// A request without an answer.
#[derive(Clone, Debug)]
pub struct Sent {
    /// What was asked.
    pub command: Command,
    /// When, us.
    pub at_us: u64,
    /// How often before.
    pub tries: u8,
}

/// A connection of some client to one shard, with both its ends.
pub struct Link {
    /// The shard's number.
    pub shard: u16,
    /// Counts up with each connection of this link: what is on its way for an older one is lost.
    pub life: u32,
    /// The server's end.
    pub server: Option<Rc<Connection>>,
    /// Bytes the server has not used up.
    pub input: Vec<u8>,
    session: Session,
    in_flight: Map<u64, Sent>,
    /// Bytes of one direction arrive in order: not before these moments, us.
    pub arrives_us: [u64; 2],
    /// The client does not read until then, us.
    pub deaf_until_us: u64,
    /// What came while it did not.
    pub unread: Vec<u8>,
}

impl Default for Link {
    /// A link that is not connected.
    fn default() -> Self {
        Self {
            shard: 0,
            life: 0,
            server: None,
            input: Vec::new(),
            session: Session::default(),
            in_flight: Map::default(),
            arrives_us: [0; 2],
            deaf_until_us: 0,
            unread: Vec::new(),
        }
    }
}

impl Link {
    /// Connects: the first bytes for the server.
    pub fn open(&mut self, shard: u16, server: Rc<Connection>) -> Vec<u8> {
        self.shard = shard;
        self.server = Some(server);
        self.session = Session::default();
        self.arrives_us = [0; 2];
        let mut out = Vec::new();
        self.session.hello("simulated", "", &mut out);
        out
    }

    /// The connection is gone: gives what is in doubt, oldest first.
    pub fn close(&mut self) -> Vec<Sent> {
        self.life += 1;
        self.server = None;
        self.input.clear();
        self.unread.clear();
        self.deaf_until_us = 0;
        let mut lost: Vec<(u64, Sent)> = self.in_flight.drain().collect();
        lost.sort_unstable_by_key(|(number, _)| *number);
        lost.into_iter().map(|(_, sent)| sent).collect()
    }

    /// Requests without an answer.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// When the oldest of them was sent, us.
    pub fn oldest_us(&self) -> Option<u64> {
        self.in_flight.values().map(|sent| sent.at_us).min()
    }

    /// Puts a request into bytes.
    pub fn send(&mut self, sent: Sent, out: &mut Vec<u8>) {
        let number = self.session.send(&Request::Command(sent.command.clone()), out);
        self.in_flight.insert(number, sent);
    }

    /// Takes bytes from the server: the answers in them.
    ///
    /// # Errors
    /// The server sent what the client cannot read.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Vec<(Sent, Reply)>, String> {
        self.session.receive(bytes);
        let mut answers = Vec::new();
        while let Some((number, response)) =
            self.session.next_response().map_err(|error| format!("P10: {error}"))?
        {
            match response {
                Response::Reply(reply) => {
                    let sent = self.in_flight.remove(&number);
                    let sent = sent.ok_or_else(|| format!("P10: two answers to {number}"))?;
                    answers.push((sent, reply));
                }
                Response::Welcome(_) | Response::GoAway { .. } => {}
                other => return Err(format!("P10: a client is told {other:?}")),
            }
        }
        Ok(answers)
    }
}
