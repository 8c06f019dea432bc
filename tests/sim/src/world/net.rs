//! The network between clients and the engine: bytes take time, connections break, messages are
//! lost, come twice or overtake each other; and what clients do about it.
//!
//! Within a connection bytes keep their order, as TCP keeps it; what is lost in one direction loses
//! everything behind it, and the client gives the connection up after a while.

use super::{Event, World};
use crate::clients::Sent;
use crate::faults::Fault;
use crate::model::Found;
use stockade_engine::routing::Target;
use stockade_protocol::{Command, OrderState, Outcome, Reply};

/// A client gives a connection up after this long without an answer, us.
const TIMEOUT_US: u64 = 400_000;
/// Requests in flight of one connection.
const IN_FLIGHT_MAX: usize = 40;
/// Retries of one command.
const TRIES_MAX: u8 = 6;
/// Commands that wait to be tried again.
const RETRIES_MAX: usize = 400;

impl World {
    /// A client acts: connects, gives up, or asks for something.
    pub(super) fn client(&mut self, link: usize) {
        let think_us = self.rng.range(1, 2 * self.weather.think_us);
        self.after(think_us, Event::Client { link });
        let late = self.links[link].oldest_us();
        if late.is_some_and(|at| self.now_us > at + TIMEOUT_US) {
            self.cut(link);
            return;
        }
        if self.engine.is_none() || self.stopping {
            return;
        }
        if self.links[link].server.is_none() {
            self.connect(link);
            return;
        }
        if self.links[link].in_flight() >= IN_FLIGHT_MAX {
            return;
        }
        let mut out = Vec::new();
        for _ in 0..self.rng.pick(&[1, 1, 2, 6]) {
            if let Some(sent) = self.next_command() {
                self.ask(link, sent, &mut out);
            }
        }
        self.send(link, 0, out);
    }

    /// A retry, or something new.
    fn next_command(&mut self) -> Option<Sent> {
        if !self.retries.is_empty() && (self.quiet || self.rng.below(2) == 0) {
            return self.retries.pop_front();
        }
        if self.quiet {
            return None;
        }
        let command = self.workload.next(self.model.now);
        self.sent += 1;
        let number = self.sent;
        let skipped = self.plan.skip.iter().any(|(from, to)| (*from..*to).contains(&number));
        (!skipped).then_some(Sent { command, at_us: 0, tries: 0 })
    }

    fn ask(&mut self, link: usize, mut sent: Sent, out: &mut Vec<u8>) {
        sent.at_us = self.now_us;
        let Some(engine) = &self.engine else { return };
        let target = engine.hub.routing.target(&sent.command);
        if let Target::Shard(owner) = target
            && owner != self.links[link].shard
        {
            self.counts.hit(Fault::WrongShard);
        }
        if self.may(Fault::Duplicate) && self.rng.per_mille(self.weather.network) {
            self.hit(Fault::Duplicate);
            self.retries.push_back(sent.clone());
        }
        let text = &sent.command;
        self.trace.say(self.now_us, || format!("client {link} asks {text:?}"));
        self.links[link].send(sent, out);
    }

    fn connect(&mut self, link: usize) {
        let Some(engine) = &mut self.engine else { return };
        let shard = self.rng.below(u64::from(engine.shard_count())) as u16;
        let server = engine.connect(shard);
        let hello = self.links[link].open(shard, server);
        self.send(link, 0, hello);
    }

    /// A connection breaks: what is in flight is in doubt and tried again.
    pub(super) fn cut(&mut self, link: usize) {
        let shard = self.links[link].shard;
        if let (Some(engine), Some(server)) = (&mut self.engine, &self.links[link].server) {
            engine.disconnect(shard, server.id);
            self.model.forget(shard, server.id);
        }
        let lost = self.links[link].close();
        self.trace.say(self.now_us, || format!("client {link} loses {} requests", lost.len()));
        for sent in lost {
            // Some clients never come back.
            if sent.tries < TRIES_MAX && self.retries.len() < RETRIES_MAX && self.rng.below(6) > 0 {
                self.retries.push_back(Sent { tries: sent.tries + 1, ..sent });
            }
        }
    }

    /// Bytes leave: to the server (0) or to the client (1).
    fn send(&mut self, link: usize, direction: usize, bytes: Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let chance = self.weather.network;
        let mut us = self.rng.range(10, 150);
        if self.may(Fault::Delay) && self.rng.per_mille(chance) {
            self.hit(Fault::Delay);
            us += self.rng.range(1_000, 100_000);
        }
        let lost = [Fault::LostRequest, Fault::LostAnswer][direction];
        if self.may(lost) && self.rng.per_mille(chance / 4) {
            self.hit(lost);
            // Everything behind it waits for it for ever.
            self.links[link].arrives_us[direction] = u64::MAX;
        }
        let before = self.links[link].arrives_us[direction];
        if before == u64::MAX {
            return;
        }
        let mut at = before.max(self.now_us + us);
        let mut rest = bytes;
        if self.may(Fault::Pieces) && rest.len() > 1 && self.rng.per_mille(10 + chance) {
            self.counts.hit(Fault::Pieces);
            let tail = rest.split_off(1 + self.rng.below(rest.len() as u64 - 1) as usize);
            self.deliver(link, direction, at, rest);
            at += self.rng.range(1, 400);
            rest = tail;
        }
        if at < self.arrival_last_us {
            self.counts.hit(Fault::Reorder);
        }
        self.arrival_last_us = at;
        self.links[link].arrives_us[direction] = at;
        self.deliver(link, direction, at, rest);
    }

    fn deliver(&mut self, link: usize, direction: usize, at: u64, bytes: Vec<u8>) {
        let life = self.links[link].life;
        let event = match direction {
            0 => Event::ToServer { link, life, bytes },
            _ => Event::ToClient { link, life, bytes },
        };
        self.at(at, event);
    }

    /// What the server wrote leaves.
    pub(super) fn flush(&mut self, link: usize) {
        let Some(server) = &self.links[link].server else { return };
        let bytes = std::mem::take(&mut *server.out.borrow_mut());
        self.send(link, 1, bytes);
    }

    pub(super) fn reach_server(&mut self, link: usize, life: u32, bytes: &[u8]) -> Found {
        let of = &mut self.links[link];
        if life != of.life {
            return Ok(());
        }
        of.input.extend_from_slice(bytes);
        self.feed_server(link)
    }

    /// The server reads what has come; while too much is in flight it does not.
    fn feed_server(&mut self, link: usize) -> Found {
        let of = &mut self.links[link];
        let (Some(engine), Some(server)) = (&mut self.engine, &of.server) else { return Ok(()) };
        let (shard, server) = (of.shard, server.clone());
        let open = engine.receive(shard, &server, &mut of.input, &mut self.model)?;
        if !open {
            return Err("P10: the server closes on a client that does nothing wrong".into());
        }
        let us = self.rng.range(1, 20);
        self.wake(shard, us);
        self.after_engine();
        Ok(())
    }

    pub(super) fn reach_client(&mut self, link: usize, life: u32, bytes: Vec<u8>) -> Found {
        let of = &mut self.links[link];
        if life != of.life {
            return Ok(());
        }
        of.unread.extend_from_slice(&bytes);
        if of.deaf_until_us > self.now_us {
            return Ok(());
        }
        self.hear(link, life)
    }

    /// The client reads what has come.
    pub(super) fn hear(&mut self, link: usize, life: u32) -> Found {
        if life != self.links[link].life {
            return Ok(());
        }
        let bytes = std::mem::take(&mut self.links[link].unread);
        let answers = self.links[link].receive(&bytes)?;
        let some = !answers.is_empty();
        for (sent, reply) in answers {
            self.trace.say(self.now_us, || format!("client {link} is told {reply:?}"));
            self.believe(&sent, &reply)?;
            if is_give_back(&sent.command) {
                self.writer.told(&sent.command, &reply);
            }
            self.workload.saw(&reply);
        }
        if some && !self.links[link].input.is_empty() {
            return self.feed_server(link);
        }
        Ok(())
    }

    /// What clients were told stays true, over all lives of the engine.
    fn believe(&mut self, sent: &Sent, reply: &Reply) -> Found {
        match (&sent.command, reply) {
            (Command::Reserve(asked), Reply::Reserve(told)) => {
                let Some(order) = told.order.filter(|_| told.outcome != Outcome::Limit) else {
                    return Ok(());
                };
                let key = (asked.sale, asked.user, asked.request.clone());
                let known = *self.promised.entry(key).or_insert(order);
                if known != order {
                    return Err(format!("P5: {asked:?} made order {known}, and now order {order}"));
                }
                Ok(())
            }
            (Command::Confirm { .. } | Command::Cancel { .. }, Reply::Order(told)) => {
                let end = match told.outcome {
                    Outcome::Confirmed => OrderState::Confirmed,
                    Outcome::Cancelled => OrderState::Cancelled,
                    _ => return Ok(()),
                };
                let Some(order) = told.order else { return Ok(()) };
                let known = *self.ended.entry(order).or_insert(end);
                if known != end {
                    return Err(format!("P6: order {order} is both {known:?} and {end:?}"));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// A command of the order writer, for an order that SQL refused.
fn is_give_back(command: &Command) -> bool {
    match command {
        Command::Cancel { reason, .. } => reason.as_str() == "refused by SQL",
        Command::Return(back) => back.request.text().is_some_and(|id| id.starts_with("refused-")),
        _ => false,
    }
}
