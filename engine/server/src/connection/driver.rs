//! Moves the bytes of one connection between its socket and its session.
//!
//! One task a connection. Work of one poll is bounded, then others run. The session's bytes are not
//! read while too much of it is in flight or not written; a peer that lets its answers pile up past
//! `OUT_BYTES_MAX` is cut.

use super::Connection;
use crate::feed::{FeedIn, FeedKind};
use crate::hub::{Hub, Origin};
use crate::session::Action;
use crate::shard::Shard;
use crate::shard::run::TurnWake;
use futures_lite::{AsyncRead, AsyncWrite};
use glommio::net::TcpStream;
use std::cell::RefCell;
use std::future::poll_fn;
use std::net::Shutdown;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use stockade_protocol::wire::{BODY_BYTES_MAX, HEADER_BYTES};

/// Bytes taken from the socket at once, and given to the session at once.
pub const READ_BYTES: usize = 64 << 10;
/// Bytes written or taken in one poll; then others run.
const POLL_BYTES_MAX: usize = 256 << 10;
/// While more than this waits to be written nothing is read.
const OUT_BYTES_SOFT: usize = 256 << 10;
/// More than this waiting to be written cuts the connection.
const OUT_BYTES_MAX: usize = 64 << 20;
/// The largest request that a session may leave in the buffer, with room for one read behind it.
const INPUT_BYTES_MAX: usize = BODY_BYTES_MAX as usize + HEADER_BYTES + 2 * READ_BYTES;
/// A written-out buffer larger than this is not kept.
const SPARE_BYTES_MAX: usize = 64 << 10;

/// What the tasks of a shard share.
#[derive(Clone)]
pub struct Surroundings {
    /// The shard.
    pub shard: Rc<RefCell<Shard>>,
    /// Wakes the shard's turn.
    pub turn: Rc<TurnWake>,
    /// Where sockets are read into; never kept over a poll.
    pub scratch: Rc<RefCell<Vec<u8>>>,
    /// What all threads share.
    pub hub: Arc<Hub>,
    /// The shard's number.
    pub index: u16,
}

/// How a step went.
enum Step {
    /// Something moved.
    Moved,
    /// Nothing to do until a wake.
    Blocked,
    /// The connection is over.
    Over,
}

struct Driver {
    stream: TcpStream,
    connection: Rc<Connection>,
    around: Surroundings,
    input: Vec<u8>,
    /// The input at hand makes no request yet.
    partial: bool,
    sending: Vec<u8>,
    sent: usize,
    eof: bool,
    close: bool,
    actions: Vec<Action>,
}

/// Serves the connection until it is over, and takes it out of the shard's table.
pub async fn serve(stream: TcpStream, connection: Rc<Connection>, around: Surroundings) {
    let mut driver = Driver {
        stream,
        connection,
        around,
        input: Vec::new(),
        partial: false,
        sending: Vec::new(),
        sent: 0,
        eof: false,
        close: false,
        actions: Vec::new(),
    };
    poll_fn(|cx| driver.poll(cx)).await;
    let Driver { stream, connection, around, .. } = driver;
    if !connection.cut.get() {
        let _ = stream.shutdown(Shutdown::Write).await;
    }
    around.shard.borrow_mut().connections.remove(connection.id);
    if connection.feed_used.get() {
        let kind = FeedKind::Closed;
        let id = connection.id;
        around.hub.feed.push_closed(FeedIn { shard: around.index, connection: id, kind });
    }
}

impl Driver {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.connection.register(cx);
        let mut budget = POLL_BYTES_MAX;
        loop {
            if self.connection.cut.get() {
                return Poll::Ready(());
            }
            let wrote = match self.write(cx, &mut budget) {
                Step::Over => return Poll::Ready(()),
                step => matches!(step, Step::Moved),
            };
            if self.is_over() {
                return Poll::Ready(());
            }
            let read = match self.read(cx, &mut budget) {
                Step::Over => return Poll::Ready(()),
                step => matches!(step, Step::Moved),
            };
            if !wrote && !read && !self.has_output() {
                return Poll::Pending;
            }
            if !wrote && !read {
                // The socket is full; its readiness wakes.
                return Poll::Pending;
            }
            if budget == 0 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    fn has_output(&self) -> bool {
        self.sent < self.sending.len() || !self.connection.out.borrow().is_empty()
    }

    fn is_over(&self) -> bool {
        if self.has_output() {
            return false;
        }
        if self.connection.closing.get() {
            return true;
        }
        // What was taken is answered before the end, also after QUIT and a breach of the protocol.
        let idle = self.connection.session.borrow().in_flight() == 0;
        let used_up = self.input.is_empty() || self.partial;
        idle && (self.close || (self.eof && used_up))
    }

    /// Writes what is there; more is taken from the session's output when the last is out.
    fn write(&mut self, cx: &mut Context<'_>, budget: &mut usize) -> Step {
        let mut moved = false;
        loop {
            if self.sent == self.sending.len() {
                self.refill();
                if self.sending.is_empty() {
                    break;
                }
            }
            if *budget == 0 {
                break;
            }
            let end = self.sending.len().min(self.sent + *budget);
            match Pin::new(&mut self.stream).poll_write(cx, &self.sending[self.sent..end]) {
                Poll::Ready(Ok(0) | Err(_)) => return Step::Over,
                Poll::Ready(Ok(count)) => {
                    self.sent += count;
                    *budget -= count;
                    moved = true;
                }
                Poll::Pending => break,
            }
        }
        let unread = self.has_output();
        if moved || unread {
            let now = self.around.hub.clock.now();
            self.connection.watch.borrow_mut().written(moved, unread, now);
        }
        if self.connection.out.borrow().len() > OUT_BYTES_MAX {
            self.around.hub.metrics[usize::from(self.around.index)]
                .cut
                .fetch_add(1, Ordering::Relaxed);
            self.connection.cut.set(true);
            return Step::Over;
        }
        if moved { Step::Moved } else { Step::Blocked }
    }

    /// The buffer is out: the next one, and word to the feed thread that its pushes left.
    fn refill(&mut self) {
        self.sent = 0;
        self.sending.clear();
        if self.sending.capacity() > SPARE_BYTES_MAX {
            self.sending = Vec::new();
        }
        std::mem::swap(&mut self.sending, &mut self.connection.out.borrow_mut());
        let bytes = self.connection.feed_bytes.get();
        if self.sending.is_empty() && bytes > 0 {
            self.connection.feed_bytes.set(0);
            self.feed(FeedKind::Flushed { bytes });
        }
    }

    /// Takes bytes from the socket and requests from the bytes.
    fn read(&mut self, cx: &mut Context<'_>, budget: &mut usize) -> Step {
        let in_flight_max = self.around.hub.limits.in_flight_max as usize;
        let full = self.connection.session.borrow().in_flight() >= in_flight_max
            || self.connection.out.borrow().len() > OUT_BYTES_SOFT;
        if self.close || self.connection.closing.get() || full || *budget == 0 {
            return Step::Blocked;
        }
        if self.connection.again.take() {
            self.partial = false;
        }
        if !self.input.is_empty() && !self.partial {
            let input = std::mem::take(&mut self.input);
            let used = self.receive(&input);
            *budget = budget.saturating_sub(used.max(1));
            self.input = input;
            self.input.drain(..used);
            return Step::Moved;
        }
        if self.eof {
            return Step::Blocked;
        }
        let scratch = self.around.scratch.clone();
        let mut scratch = scratch.borrow_mut();
        match Pin::new(&mut self.stream).poll_read(cx, &mut scratch) {
            Poll::Pending => Step::Blocked,
            Poll::Ready(Err(_)) => Step::Over,
            Poll::Ready(Ok(0)) => {
                self.eof = true;
                Step::Moved
            }
            Poll::Ready(Ok(count)) => {
                *budget = budget.saturating_sub(count);
                self.took(&scratch[..count])
            }
        }
    }

    /// Bytes came in. They are kept only if the session does not use them up.
    fn took(&mut self, bytes: &[u8]) -> Step {
        if self.input.is_empty() {
            let used = self.receive(bytes);
            self.input.extend_from_slice(&bytes[used..]);
            return Step::Moved;
        }
        if self.input.len() + bytes.len() > INPUT_BYTES_MAX {
            self.connection.cut.set(true);
            return Step::Over;
        }
        self.input.extend_from_slice(bytes);
        self.partial = false;
        Step::Moved
    }

    /// Gives bytes to the session and its actions to where they go; how many it used up.
    fn receive(&mut self, bytes: &[u8]) -> usize {
        let now = self.around.hub.clock.now();
        let mut actions = std::mem::take(&mut self.actions);
        // A piece at a time; all of it if a piece alone makes no request.
        let piece = &bytes[..bytes.len().min(READ_BYTES)];
        let mut received = self.session_receive(piece, &mut actions);
        if received.consumed == 0 && !received.close && piece.len() < bytes.len() {
            received = self.session_receive(bytes, &mut actions);
        }
        let consumed = received.consumed;
        self.close |= received.close;
        // Nothing was used: the bytes make no request yet, or the session waits for answers.
        self.partial = consumed == 0;
        let idle = self.connection.session.borrow().in_flight() == 0;
        let late = self.partial && idle && !self.close;
        let mut watch = self.connection.watch.borrow_mut();
        watch.received(consumed > 0, late, now);
        if self.close {
            watch.ends(now);
        }
        drop(watch);
        self.act(&mut actions);
        self.actions = actions;
        consumed
    }

    fn session_receive(&self, bytes: &[u8], actions: &mut Vec<Action>) -> crate::session::Received {
        let now = self.around.hub.clock.now();
        let mut out = self.connection.out.borrow_mut();
        self.connection.session.borrow_mut().receive(bytes, now, &mut out, actions)
    }

    fn act(&mut self, actions: &mut Vec<Action>) {
        if actions.is_empty() {
            return;
        }
        let mut commands = false;
        let shard = self.around.shard.clone();
        let mut shard = shard.borrow_mut();
        for action in actions.drain(..) {
            match action {
                Action::Command { tag, command } => {
                    commands = true;
                    let connection = self.connection.id;
                    let origin = Origin::Connection { shard: self.around.index, connection, tag };
                    if let Err((_, reply)) = shard.submit(origin, command) {
                        let mut out = self.connection.out.borrow_mut();
                        self.connection.session.borrow_mut().reply(tag, reply, &mut out);
                    }
                }
                Action::Feed { tag, request } => {
                    self.connection.feed_used.set(true);
                    self.feed(FeedKind::Request { tag, request });
                }
            }
        }
        drop(shard);
        if commands {
            self.around.turn.wake();
        }
    }

    fn feed(&self, kind: FeedKind) {
        let (shard, connection) = (self.around.index, self.connection.id);
        if !self.around.hub.feed.push(FeedIn { shard, connection, kind }) {
            // The feed thread is far behind: this connection asked for too much at once.
            self.connection.cut.set(true);
        }
    }
}
