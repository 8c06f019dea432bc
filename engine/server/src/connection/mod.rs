//! Connections of a shard: their table, and what a connection shares with the rest of the shard.
//!
//! [`driver`] moves the bytes of one connection; [`watch`] says when one is cut.

pub mod driver;
pub mod watch;

use crate::hub::Hub;
use crate::session::{FeedAnswer, FeedRun, Session};
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::{Context, Waker};
use stockade_protocol::Reply;
use stockade_protocol::ids::TimestampMs;
use watch::Watch;

/// When clients should come back after a stop, ms.
const RECONNECT_AFTER_MS: u32 = 1_000;

/// What a connection's task shares with the shard.
pub struct Connection {
    /// Unique in the shard's life: a serial number above the slot in the table.
    pub id: u64,
    /// The protocol.
    pub session: RefCell<Box<dyn Session>>,
    /// What is to be written.
    pub out: RefCell<Vec<u8>>,
    /// Bytes of feed pushes since the last time that everything was written.
    pub feed_bytes: Cell<u64>,
    /// The feed thread knows of it.
    pub feed_used: Cell<bool>,
    /// Deadlines.
    pub watch: RefCell<Watch>,
    /// Close without ceremony: it broke a bound.
    pub cut: Cell<bool>,
    /// Close when everything is written.
    pub closing: Cell<bool>,
    /// Something was said since the input at hand was last looked at.
    pub again: Cell<bool>,
    dirty: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Connection {
    /// The task is woken by the next `Self::wake`.
    pub fn register(&self, cx: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }
}

/// The connections of one shard.
#[derive(Default)]
pub struct Connections {
    table: Slab<Rc<Connection>>,
    serial: u64,
    dirty: Vec<u64>,
}

impl Connections {
    /// A new connection. `needs_handshake`: a peer that says nothing at first is cut.
    pub fn insert(
        &mut self,
        session: Box<dyn Session>,
        needs_handshake: bool,
        now: TimestampMs,
    ) -> Rc<Connection> {
        self.serial += 1;
        let entry = self.table.vacant_entry();
        // Slots are bounded by the file descriptors of a process, far below 2^32.
        let id = self.serial << 32 | entry.key() as u64;
        let connection = Rc::new(Connection {
            id,
            session: RefCell::new(session),
            out: RefCell::default(),
            feed_bytes: Cell::new(0),
            feed_used: Cell::new(false),
            watch: RefCell::new(Watch::new(needs_handshake, now)),
            cut: Cell::new(false),
            closing: Cell::new(false),
            again: Cell::new(false),
            dirty: Cell::new(false),
            waker: RefCell::default(),
        });
        entry.insert(connection.clone());
        connection
    }

    /// The connection is gone.
    pub fn remove(&mut self, id: u64) {
        if self.get(id).is_some() {
            self.table.remove(slot(id));
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    fn get(&self, id: u64) -> Option<&Rc<Connection>> {
        self.table.get(slot(id)).filter(|connection| connection.id == id)
    }

    /// The answer to a command; nothing if the connection is gone.
    pub fn reply(&mut self, id: u64, tag: u64, reply: Reply) {
        self.say(id, |session, out| session.reply(tag, reply, out));
    }

    /// The feed thread says something; nothing if the connection is gone.
    pub fn feed(&mut self, id: u64, tag: u64, answer: FeedAnswer) {
        if let (FeedAnswer::Pushed(run), Some(connection)) = (&answer, self.get(id)) {
            let bytes = connection.feed_bytes.get() + run_bytes(run);
            connection.feed_bytes.set(bytes);
        }
        self.say(id, |session, out| session.feed(tag, answer, out));
    }

    fn say(&mut self, id: u64, say: impl FnOnce(&mut dyn Session, &mut Vec<u8>)) {
        let Some(connection) = self.get(id).cloned() else { return };
        say(connection.session.borrow_mut().as_mut(), &mut connection.out.borrow_mut());
        self.mark(&connection);
    }

    fn mark(&mut self, connection: &Connection) {
        connection.again.set(true);
        if !connection.dirty.replace(true) {
            self.dirty.push(connection.id);
        }
    }

    /// Wakes every connection that was said something: one write each.
    pub fn wake_dirty(&mut self) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for id in dirty.drain(..) {
            if let Some(connection) = self.get(id) {
                connection.dirty.set(false);
                connection.wake();
            }
        }
        self.dirty = dirty;
    }

    /// Tells every peer that the server drains.
    pub fn go_away(&mut self) {
        let all: Vec<Rc<Connection>> = self.all();
        for connection in all {
            let mut session = connection.session.borrow_mut();
            session.go_away(RECONNECT_AFTER_MS, &mut connection.out.borrow_mut());
            self.mark(&connection);
        }
    }

    /// Every connection ends when what it has to say is written.
    pub fn close_all(&mut self) {
        for connection in self.all() {
            connection.closing.set(true);
            self.mark(&connection);
        }
    }

    /// Every connection ends now.
    pub fn cut_all(&mut self) {
        for connection in self.all() {
            connection.cut.set(true);
            connection.wake();
        }
    }

    /// Cuts those that broke a deadline.
    pub fn sweep(&mut self, hub: &Hub, shard: u16, now: TimestampMs) {
        for connection in self.all() {
            let late = connection.watch.borrow().late(now);
            if let Some(why) = late.filter(|_| !connection.cut.get()) {
                tracing::debug!(shard, connection = connection.id, why, "connection is cut");
                hub.metrics[usize::from(shard)].cut.fetch_add(1, Ordering::Relaxed);
                connection.cut.set(true);
                self.mark(&connection);
            }
        }
    }

    fn all(&self) -> Vec<Rc<Connection>> {
        self.table.iter().map(|(_, connection)| connection.clone()).collect()
    }
}

const fn slot(id: u64) -> usize {
    (id & 0xFFFF_FFFF) as usize
}

/// What a run counts against credit and buffers.
pub fn run_bytes(run: &FeedRun) -> u64 {
    match run {
        FeedRun::Entries { bytes, .. } => bytes.len() as u64,
        FeedRun::Gap { .. } => 0,
    }
}
