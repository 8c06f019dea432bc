//! Everything a shard owns, and how commands, turns, commits and answers move through it.
//!
//! Nothing here waits. Commands of this shard's users stand in a bounded queue; a turn decides some
//! of them; answers rest in the commit ring until what they rest on is durable, and then go to
//! connections here, to other shards in batches, or to the threads that asked. Invariant: every
//! command taken gets exactly one answer, unless a commit failed.

use super::catalog::CatalogDriver;
use super::gather::Gathers;
use crate::busy;
use crate::commit::{Batch, CommitRing};
use crate::connection::Connections;
use crate::hub::{Hub, Message, Origin};
use crate::routing::{CATALOG_SHARD, Target};
use crossbeam::channel::Sender;
use slab::Slab;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stockade_core::effects::{Effects, Position, Request};
use stockade_core::gather::Part;
use stockade_core::shard::ShardMachine;
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::{Command, Reply};

/// Requests of one turn.
const TURN_REQUESTS_MAX: usize = 1024;
/// Holds that expire in one turn.
const TURN_EXPIRIES_MAX: usize = 256;
/// While so many bytes wait for the batch in flight no further turn is taken: the queue fills, and
/// then says `busy`.
const PENDING_BYTES_MAX: usize = 8 << 20;

/// What waits for a commit.
pub(super) enum Resting {
    /// An answer.
    Answer(Origin, Reply),
    /// A part of a gathered answer.
    Part { shard: u16, gather: u64, part: Part },
    /// The catalog's entry under way.
    CatalogEntry,
}

/// What the shard needs next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// A message, a request or a deadline.
    Idle,
    /// Another turn as soon as others had a chance.
    Turn,
    /// Units that another shard's turn has: a short pause, then another turn.
    Pause,
}

/// See the module.
pub struct Shard {
    pub(super) index: u16,
    pub(super) hub: Arc<Hub>,
    pub(super) machine: ShardMachine,
    pub(super) ring: CommitRing<Resting>,
    pub(super) gathers: Gathers,
    pub(super) catalog: Option<CatalogDriver>,
    pub(super) draining: bool,
    pub(super) failed: bool,
    /// This shard's connections.
    pub connections: Connections,
    effects: Effects,
    queue: VecDeque<Request>,
    /// Requests that waited for units; they go first.
    waiting: Vec<Request>,
    turn: Vec<Request>,
    tickets: Slab<Origin>,
    released: Vec<Resting>,
    outbox: Vec<Vec<Message>>,
    batches: Option<Sender<Batch>>,
    expiries_due: bool,
    told_drained: bool,
    exiting: bool,
}

impl Shard {
    /// The shard around a recovered machine.
    pub fn new(
        index: u16,
        hub: Arc<Hub>,
        machine: ShardMachine,
        catalog: Option<CatalogDriver>,
        batches: Sender<Batch>,
    ) -> Self {
        assert_eq!(catalog.is_some(), index == CATALOG_SHARD, "shard 0 has the catalog");
        let outbox = (0..hub.routing.shard_count).map(|_| Vec::new()).collect();
        Self {
            index,
            hub,
            machine,
            ring: CommitRing::default(),
            gathers: Gathers::default(),
            catalog,
            draining: false,
            failed: false,
            connections: Connections::default(),
            effects: Effects::default(),
            queue: VecDeque::new(),
            waiting: Vec::new(),
            turn: Vec::new(),
            tickets: Slab::new(),
            released: Vec::new(),
            outbox,
            batches: Some(batches),
            expiries_due: false,
            told_drained: false,
            exiting: false,
        }
    }

    /// What all threads share.
    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// The machine that decides, to look at.
    pub fn machine(&self) -> &ShardMachine {
        &self.machine
    }

    /// Its number.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// The server stops, or can acknowledge nothing any more.
    pub fn is_closing(&self) -> bool {
        self.draining || self.failed
    }

    /// Everything was finished and the tasks may end.
    pub fn is_exiting(&self) -> bool {
        self.exiting
    }

    /// Recovery is over: gives grace to holds that ran out meanwhile.
    pub fn begin(&mut self, grace_ms: u64) {
        let now = self.hub.clock.now();
        self.machine.start(now, grace_ms, &mut self.effects);
        self.absorb();
        self.ship();
    }

    /// Takes a command from a connection here, from another shard or from another thread; what
    /// cannot be taken is given back with its answer.
    pub fn submit(&mut self, origin: Origin, command: Command) -> Result<(), (Origin, Reply)> {
        if self.failed {
            return Err((origin, busy::reply(&command)));
        }
        match self.hub.routing.target(&command) {
            Target::All => self.gather(origin, command),
            Target::Catalog if self.index == CATALOG_SHARD => self.catalog_submit(origin, command),
            Target::Catalog => self.forward(CATALOG_SHARD, origin, command),
            Target::Shard(owner) if owner == self.index => self.enqueue(origin, command),
            Target::Shard(owner) => self.forward(owner, origin, command),
        }
    }

    fn enqueue(&mut self, origin: Origin, command: Command) -> Result<(), (Origin, Reply)> {
        if self.draining || self.queue.len() >= self.hub.limits.queue_max {
            return Err((origin, busy::reply(&command)));
        }
        let ticket = self.tickets.insert(origin) as u64;
        self.queue.push_back(Request { ticket, command, waits: 0 });
        Ok(())
    }

    fn forward(
        &mut self,
        owner: u16,
        origin: Origin,
        command: Command,
    ) -> Result<(), (Origin, Reply)> {
        let mailed = self.hub.metrics[usize::from(owner)].mailed.load(Ordering::Relaxed);
        let waiting = self.outbox[usize::from(owner)].len();
        if self.draining || mailed + waiting >= self.hub.limits.queue_max {
            return Err((origin, busy::reply(&command)));
        }
        self.send(owner, Message::Command { origin, command });
        Ok(())
    }

    /// Takes a message from the mailbox.
    pub fn take(&mut self, message: Message) {
        match message {
            Message::Command { origin, command } => {
                let metrics = &self.hub.metrics[usize::from(self.index)];
                metrics.mailed.fetch_sub(1, Ordering::Relaxed);
                if let Err((origin, reply)) = self.submit(origin, command) {
                    self.answer(origin, reply);
                }
            }
            Message::Reply { connection, tag, reply } => {
                self.connections.reply(connection, tag, reply);
            }
            Message::Feed { connection, tag, answer } => {
                self.connections.feed(connection, tag, answer);
            }
            Message::Committed(done) => self.committed(done.buffer),
            Message::Apply(change) => {
                self.machine.apply(&change);
                self.send(CATALOG_SHARD, Message::Applied);
            }
            Message::Applied => self.catalog_applied(),
            Message::PartAsk { shard, gather, command } => {
                self.part_asked(shard, gather, &command);
            }
            Message::Part { gather, part } => self.part_came(gather, part),
            Message::HeldAsk(sale) => {
                let held = self.machine.held_orders(sale);
                self.send(CATALOG_SHARD, Message::Held(held));
            }
            Message::Held(count) => self.catalog_held(count),
            Message::Drain => {
                self.draining = true;
                self.refuse_undecided();
                self.connections.go_away();
            }
            Message::Exit => {
                self.exiting = true;
                self.batches = None;
                self.connections.close_all();
            }
            Message::Fail => {
                self.failed = true;
                self.refuse_undecided();
            }
        }
    }

    /// One turn: decides what waits, lets holds run out, hands the batch to the commit thread.
    pub fn turn(&mut self, now: TimestampMs) {
        if !self.failed && self.ring.pending_bytes() < PENDING_BYTES_MAX {
            self.pick();
            if !self.turn.is_empty() {
                let metrics = &self.hub.metrics[usize::from(self.index)];
                metrics.turn_requests.add(self.turn.len() as u64);
                metrics.queue_depth.store(self.queue.len(), Ordering::Relaxed);
                self.machine.turn(now, &mut self.turn, &mut self.effects);
                self.absorb();
            }
            self.expiries_due = self.machine.expire(now, TURN_EXPIRIES_MAX, &mut self.effects);
            self.absorb();
            self.catalog_tick(now);
            self.scan_step();
        }
        self.ship();
    }

    /// The requests of the next turn. While the log is behind its bounds reserves are not decided.
    fn pick(&mut self) {
        self.turn.append(&mut self.waiting);
        let room = TURN_REQUESTS_MAX.saturating_sub(self.turn.len()).min(self.queue.len());
        if room == 0 {
            return;
        }
        if !self.hub.log.pressure() {
            self.turn.extend(self.queue.drain(..room));
            return;
        }
        for _ in 0..room {
            let Some(request) = self.queue.pop_front() else { return };
            if matches!(request.command, Command::Reserve(_)) {
                let reply = busy::reply(&request.command);
                self.answer_ticket(request.ticket, reply);
            } else {
                self.turn.push(request);
            }
        }
    }

    /// Takes what a turn decided: entries into the pending batch, answers to where they rest.
    fn absorb(&mut self) {
        let position = self.effects.position;
        if !self.effects.log.is_empty() {
            self.ring.append(&mut self.effects.log, position);
        }
        let mut answers = std::mem::take(&mut self.effects.answers);
        let index = usize::from(self.index);
        for answer in answers.drain(..) {
            self.hub.metrics[index].decided(&answer.reply);
            let origin = self.tickets.remove(answer.ticket as usize);
            let resting = Resting::Answer(origin, answer.reply);
            if let Some(resting) = self.ring.rest(answer.rests_on, resting) {
                self.release(resting);
            }
        }
        self.effects.answers = answers;
        self.waiting.append(&mut self.effects.waiting);
        if self.draining {
            self.refuse_undecided();
        }
    }

    /// Hands the pending batch to the commit thread if none is in flight.
    fn ship(&mut self) {
        if self.failed {
            return;
        }
        let Some(batch) = self.ring.batch() else { return };
        let metrics = &self.hub.metrics[usize::from(self.index)];
        metrics.commit_bytes.add(batch.bytes.len() as u64);
        let sender = self.batches.as_ref().expect("a shard ends when nothing is to be committed");
        // The channel has room for one, and none is in flight. If the thread is gone the process
        // ends.
        let _ = sender.try_send(batch);
    }

    fn committed(&mut self, buffer: Vec<u8>) {
        if self.failed {
            return;
        }
        let mut released = std::mem::take(&mut self.released);
        let position: Position = self.ring.committed(buffer, &mut released);
        self.machine.committed(position);
        for resting in released.drain(..) {
            self.release(resting);
        }
        self.released = released;
    }

    /// What it rests on is durable.
    pub(super) fn release(&mut self, resting: Resting) {
        match resting {
            Resting::Answer(origin, reply) => self.answer(origin, reply),
            Resting::Part { shard, gather, part } if shard == self.index => {
                self.part_came(gather, part);
            }
            Resting::Part { shard, gather, part } => {
                self.send(shard, Message::Part { gather, part });
            }
            Resting::CatalogEntry => self.catalog_committed(),
        }
    }

    /// Says it to whoever asked.
    pub(super) fn answer(&mut self, origin: Origin, reply: Reply) {
        match origin {
            Origin::Connection { shard, connection, tag } if shard == self.index => {
                self.connections.reply(connection, tag, reply);
            }
            Origin::Connection { shard, connection, tag } => {
                self.send(shard, Message::Reply { connection, tag, reply });
            }
            Origin::Gateway(done) => done(reply),
        }
    }

    fn answer_ticket(&mut self, ticket: u64, reply: Reply) {
        self.hub.metrics[usize::from(self.index)].decided(&reply);
        let origin = self.tickets.remove(ticket as usize);
        self.answer(origin, reply);
    }

    fn refuse_undecided(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        let queue = std::mem::take(&mut self.queue);
        for request in waiting.into_iter().chain(queue) {
            let reply = busy::reply(&request.command);
            self.answer_ticket(request.ticket, reply);
        }
    }

    /// Puts a message into the batch for another shard.
    pub(super) fn send(&mut self, shard: u16, message: Message) {
        self.outbox[usize::from(shard)].push(message);
    }

    /// Sends the batches to the other shards and wakes the connections that have something to
    /// write.
    pub fn flush(&mut self) {
        for (shard, batch) in self.outbox.iter_mut().enumerate() {
            if batch.is_empty() {
                continue;
            }
            let commands = batch.iter().filter(|m| matches!(m, Message::Command { .. })).count();
            self.hub.metrics[shard].mailed.fetch_add(commands, Ordering::Relaxed);
            self.hub.mailboxes[shard].push_batch(batch);
        }
        self.connections.wake_dirty();
        // Told when the last messages are out, and once.
        if self.draining && !self.told_drained && self.is_finished() {
            self.told_drained = true;
            self.hub.drained.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn is_finished(&self) -> bool {
        self.tickets.is_empty()
            && self.ring.is_idle()
            && self.gathers.is_idle()
            && self.catalog.as_ref().is_none_or(CatalogDriver::is_idle)
    }

    /// What the shard needs next.
    pub fn next(&self) -> Next {
        let blocked = self.failed || self.ring.pending_bytes() >= PENDING_BYTES_MAX;
        if blocked {
            Next::Idle
        } else if !self.queue.is_empty() || self.expiries_due || self.gathers.is_scanning() {
            Next::Turn
        } else if self.waiting.is_empty() {
            Next::Idle
        } else {
            Next::Pause
        }
    }

    /// When something has to be done without a message.
    pub fn deadline(&self) -> Option<TimestampMs> {
        if self.failed { None } else { self.machine.deadline_next() }
    }
}
