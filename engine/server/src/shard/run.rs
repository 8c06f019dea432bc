//! A shard's executor and its tasks: the turn, the acceptors and the connections.
//!
//! Rules of the runtime that hold here: foreign wakes are seen at the preempt timer at the latest,
//! so it is short; no task wakes itself without end; an accept that fails sleeps; every task is
//! ended and awaited before the executor returns, or its sockets would stay open.

use super::state::{Next, Shard};
use crate::binary_session::{self, BinarySession};
use crate::commit::Batch;
use crate::connection::driver::{READ_BYTES, Surroundings, serve};
use crate::hub::{Hub, Message};
use crate::listen::ShardSockets;
use crate::os;
use crate::session::Session;
use crate::shard::catalog::CatalogDriver;
use crossbeam::channel::Sender;
use futures_lite::{AsyncWriteExt, FutureExt, future};
use glommio::net::{TcpListener, TcpStream};
use glommio::task::JoinHandle;
use glommio::{ExecutorJoinHandle, LocalExecutorBuilder, Placement, spawn_local, timer};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Poll, Waker};
use std::time::Duration;
use stockade_core::shard::ShardMachine;

/// Registered memory of one executor; files do not go through it.
const IO_MEMORY_BYTES: usize = 64 << 10;
/// Entries of the rings; connections beyond it are polled in several rounds.
const RING_DEPTH: usize = 1024;
/// How late a wake from another thread may be seen while tasks run.
const PREEMPT: Duration = Duration::from_micros(500);
/// Without any work the shard looks at its deadlines this often.
const TICK: Duration = Duration::from_millis(1_000);
/// A pause while another shard's turn, or an adjust, has the units.
const PAUSE: Duration = Duration::from_micros(100);
/// A pause after an accept that failed (no file descriptor left, say).
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
/// How long connections may take to write their last bytes at the end.
const CLOSE_MS_MAX: u64 = 1_000;

/// Everything that a shard's thread starts with.
pub struct Start {
    /// Its number.
    pub index: u16,
    /// The core it is pinned to, if it is.
    pub core: Option<usize>,
    /// Its recovered machine.
    pub machine: ShardMachine,
    /// On shard 0: the catalog.
    pub catalog: Option<CatalogDriver>,
    /// The way to its commit thread.
    pub batches: Sender<Batch>,
    /// Its sockets.
    pub sockets: ShardSockets,
    /// Holds that ran out while the engine was down get so long.
    pub grace_ms: u64,
    /// What all threads share.
    pub hub: Arc<Hub>,
    /// Told once when the shard can answer.
    pub ready: Sender<()>,
}

/// Wakes the turn from tasks of the same shard.
#[derive(Default)]
pub struct TurnWake {
    asked: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl TurnWake {
    /// There is something to decide.
    pub fn wake(&self) {
        if !self.asked.replace(true)
            && let Some(waker) = self.waker.borrow().as_ref()
        {
            waker.wake_by_ref();
        }
    }
}

/// Starts the shard's thread.
///
/// # Errors
/// The executor could not be made.
pub fn spawn(start: Start) -> Result<ExecutorJoinHandle<()>, String> {
    let index = start.index;
    let placement = start.core.map_or(Placement::Unbound, Placement::Fixed);
    LocalExecutorBuilder::new(placement)
        .name(&format!("shard-{index}"))
        .io_memory(IO_MEMORY_BYTES)
        .ring_depth(RING_DEPTH)
        .preempt_timer(PREEMPT)
        .spawn(move || run(start))
        .map_err(|error| format!("cannot start shard {index}: {error}"))
}

async fn run(start: Start) {
    // In builds that unwind, a panic would leave the ports open behind a dead shard.
    let _guard = AbortOnPanic;
    let Start { index, machine, catalog, batches, sockets, grace_ms, hub, ready, .. } = start;
    let shard = Shard::new(index, hub.clone(), machine, catalog, batches);
    let around = Surroundings {
        shard: Rc::new(RefCell::new(shard)),
        turn: Rc::new(TurnWake::default()),
        scratch: Rc::new(RefCell::new(vec![0; READ_BYTES])),
        hub,
        index,
    };
    around.shard.borrow_mut().begin(grace_ms);
    // The first sleep of an executor is late, and now and then it never ended when nothing else
    // woke the executor: it happens beside the way to readiness, not on it.
    drop(spawn_local(timer::sleep(Duration::from_micros(1))).detach());
    let acceptors = [
        (sockets.common, Front::Binary),
        (sockets.own, Front::Binary),
        (sockets.resp, Front::Resp),
    ]
    .map(|(socket, front)| {
        spawn_local(accept(os::listener(socket), front, around.clone())).detach()
    });
    let mut acceptors = Some(acceptors);
    let _ = ready.send(());
    turns(&around, &mut acceptors).await;
    end(&around).await;
}

/// Ends the process when its thread unwinds.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("a shard panicked; the engine stops");
            std::process::abort();
        }
    }
}

/// Takes messages and turns until the shard exits. Acceptors end as soon as the shard closes.
async fn turns(around: &Surroundings, acceptors: &mut Option<[JoinHandle<()>; 3]>) {
    let mailbox = &around.hub.mailboxes[usize::from(around.index)];
    let mut messages: Vec<Message> = Vec::new();
    let mut next = Next::Idle;
    let mut sweep_at = around.hub.clock.now();
    loop {
        match next {
            Next::Turn => future::yield_now().await,
            Next::Pause => timer::sleep(PAUSE).await,
            Next::Idle => wait(around).await,
        }
        around.turn.asked.set(false);
        mailbox.take(&mut messages);
        let now = around.hub.clock.now();
        let closing;
        {
            let mut shard = around.shard.borrow_mut();
            for message in messages.drain(..) {
                shard.take(message);
            }
            shard.turn(now);
            if now >= sweep_at {
                sweep_at = now.after_ms(TICK.as_millis() as u64);
                shard.connections.sweep(&around.hub, around.index, now);
                notice_wall_clock(around);
            }
            shard.flush();
            if shard.is_exiting() {
                return;
            }
            closing = shard.is_closing();
            next = shard.next();
        }
        if closing && let Some(acceptors) = acceptors.take() {
            for acceptor in &acceptors {
                acceptor.cancel();
            }
            for acceptor in acceptors {
                acceptor.await;
            }
        }
    }
}

fn notice_wall_clock(around: &Surroundings) {
    if around.index != 0 {
        return;
    }
    if let Some(step_ms) = around.hub.clock.notice(crate::clock::wall()) {
        tracing::warn!(step_ms, "the wall clock stepped; the engine's clock goes on");
    }
}

/// Waits for a message, a request or a deadline.
async fn wait(around: &Surroundings) {
    let mailbox = &around.hub.mailboxes[usize::from(around.index)];
    let work = |cx: &mut std::task::Context<'_>| {
        if around.turn.asked.get() {
            return Poll::Ready(());
        }
        let mut waker = around.turn.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        mailbox.poll(cx)
    };
    // Most of the time there is work already, and no timer is needed.
    if let Some(()) = future::poll_once(poll_fn(work)).await {
        return;
    }
    let deadline = around.shard.borrow().deadline();
    let left = deadline.map_or(TICK, |at| around.hub.clock.until(at).min(TICK));
    let sleep = async {
        timer::sleep(left).await;
    };
    poll_fn(work).or(sleep).await;
}

/// Which protocol a listener speaks.
#[derive(Clone, Copy)]
enum Front {
    Binary,
    Resp,
}

impl Front {
    fn session(self, hub: &Hub) -> Box<dyn Session> {
        match self {
            Self::Binary => Box::new(BinarySession::new(hub.info.clone())),
            Self::Resp => Box::new(crate::resp::RespSession::new(hub.info.clone())),
        }
    }

    fn refusal(self) -> Vec<u8> {
        match self {
            Self::Binary => binary_session::refusal(),
            Self::Resp => b"-ERR max number of clients reached\r\n".to_vec(),
        }
    }
}

async fn accept(listener: TcpListener, front: Front, around: Surroundings) {
    loop {
        match listener.accept().await {
            Err(error) => {
                tracing::warn!(shard = around.index, %error, "a connection could not be accepted");
                timer::sleep(ACCEPT_PAUSE).await;
            }
            Ok(stream) => take(stream, front, &around),
        }
    }
}

fn take(stream: TcpStream, front: Front, around: &Surroundings) {
    let metrics = &around.hub.metrics[usize::from(around.index)];
    if around.hub.connections.load(Ordering::Relaxed) >= around.hub.limits.connections_max {
        metrics.cut.fetch_add(1, Ordering::Relaxed);
        spawn_local(refuse(stream, front)).detach();
        return;
    }
    let _ = stream.set_nodelay(true);
    around.hub.connections.fetch_add(1, Ordering::Relaxed);
    metrics.accepted.fetch_add(1, Ordering::Relaxed);
    metrics.connections.fetch_add(1, Ordering::Relaxed);
    let needs_handshake = matches!(front, Front::Binary);
    let now = around.hub.clock.now();
    let session = front.session(&around.hub);
    let connection = around.shard.borrow_mut().connections.insert(session, needs_handshake, now);
    let around = around.clone();
    spawn_local(async move {
        let (hub, index) = (around.hub.clone(), usize::from(around.index));
        serve(stream, connection, around).await;
        hub.connections.fetch_sub(1, Ordering::Relaxed);
        hub.metrics[index].connections.fetch_sub(1, Ordering::Relaxed);
    })
    .detach();
}

/// Says why and closes; a fresh socket has room for it.
async fn refuse(mut stream: TcpStream, front: Front) {
    let _ = stream.write_all(&front.refusal()).await;
    let _ = stream.shutdown(std::net::Shutdown::Both).await;
}

/// Waits until the connections are gone, then cuts those that are left.
async fn end(around: &Surroundings) {
    let until = around.hub.clock.now().after_ms(CLOSE_MS_MAX);
    while !around.shard.borrow().connections.is_empty() && around.hub.clock.now() < until {
        timer::sleep(Duration::from_millis(1)).await;
    }
    around.shard.borrow_mut().connections.cut_all();
    while !around.shard.borrow().connections.is_empty() {
        timer::sleep(Duration::from_millis(1)).await;
    }
    // The cancelled accepts hold the listeners until the ring has seen it.
    timer::sleep(Duration::from_millis(1)).await;
}
