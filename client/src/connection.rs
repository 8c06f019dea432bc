//! One connection: a task that writes and a task that reads, so that a server which waits for its
//! answers to be read never deadlocks with a client that waits for its requests to be read.
//!
//! A request is *handed* in the moment in which its bytes join those of the next write; before that
//! it can be taken back, and then it never was. A caller that goes away after it leaves an orphan:
//! its slot is given back with its answer, or with the connection, which is replaced when it has
//! too many of them.

use crate::builder::ClientBuilder;
use crate::feed::PushQueue;
use crate::jitter::Jitter;
use crate::session::Session;
use bytes::BytesMut;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use stockade_protocol::wire::{HEADER_BYTES, Request, Response, Welcome};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, TryAcquireError, mpsc, oneshot};
use tokio::time::Instant;

/// A connection on which nothing was sent for so long is asked whether it lives.
const SILENCE: Duration = Duration::from_secs(10);
/// A connection on which nothing came for so long is given up.
const SILENCE_MAX: Duration = Duration::from_secs(25);
/// Bytes that are gathered for one write.
const WRITE_BYTES: usize = 64 << 10;

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// It never left.
    Unsent(String),
    /// It may have reached the server.
    Sent(String),
    /// It never left: the server does not take so much.
    TooLarge { bytes: usize, bytes_max: u32 },
}

/// Why a request could not be queued.
#[derive(Debug)]
pub(crate) enum NotStarted {
    /// No room, and the caller does not wait.
    Full,
    /// The connection takes no more requests.
    Gone(String),
}

struct Outgoing {
    request: Request,
    answer: oneshot::Sender<Result<Response, Lost>>,
    phase: Arc<Mutex<Phase>>,
    permit: OwnedSemaphorePermit,
}

/// How far a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Queued,
    Cancelled,
    Handed(u64),
}

struct Waiting {
    answer: oneshot::Sender<Result<Response, Lost>>,
    orphan: bool,
    _permit: OwnedSemaphorePermit,
}

struct InFlight {
    waiting: HashMap<u64, Waiting>,
    orphans: usize,
    /// Why the connection ended.
    ended: Option<String>,
    /// It takes no new requests; those in flight are still answered.
    retired: bool,
    /// The server sends its clients away; when to come back.
    come_back: Option<Instant>,
    received: Instant,
}

struct Shared {
    in_flight: Mutex<InFlight>,
    /// Bounds requests that are queued or wait for answers; closed when no more are taken.
    permits: Arc<Semaphore>,
    orphans_max: usize,
    /// Each task ends when the other has.
    writer_over: Notify,
    reader_over: Notify,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, InFlight> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No new requests; callers that wait for room go elsewhere.
    fn retire(&self, in_flight: &mut InFlight, why: &str) {
        if !in_flight.retired {
            tracing::debug!(why, "a connection takes no more requests");
        }
        in_flight.retired = true;
        self.permits.close();
    }

    /// Everything that waits is in doubt.
    fn end(&self, why: &str) {
        let mut in_flight = self.lock();
        if in_flight.ended.is_some() {
            return;
        }
        in_flight.ended = Some(why.into());
        self.retire(&mut in_flight, why);
        in_flight.orphans = 0;
        for (_, waiting) in in_flight.waiting.drain() {
            let _ = waiting.answer.send(Err(Lost::Sent(why.into())));
        }
        self.writer_over.notify_one();
        self.reader_over.notify_one();
    }

    fn orphan(&self, number: u64) {
        let mut in_flight = self.lock();
        let Some(waiting) = in_flight.waiting.get_mut(&number) else { return };
        waiting.orphan = true;
        in_flight.orphans += 1;
        if in_flight.orphans > self.orphans_max {
            self.retire(&mut in_flight, "too many of its requests were given up unanswered");
        }
    }

    fn answer(&self, number: u64, response: Response) {
        let mut in_flight = self.lock();
        if let Some(waiting) = in_flight.waiting.remove(&number) {
            in_flight.orphans -= usize::from(waiting.orphan);
            let _ = waiting.answer.send(Ok(response));
        }
    }
}

/// A request on its way. Dropping it takes the request back if it has not left, and else leaves an
/// orphan.
pub(crate) struct Pending {
    answer: oneshot::Receiver<Result<Response, Lost>>,
    phase: Arc<Mutex<Phase>>,
    // The whole handle: the connection must not end while somebody waits for its answer.
    connection: Connection,
    done: bool,
}

fn phase_of(phase: &Mutex<Phase>) -> MutexGuard<'_, Phase> {
    phase.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pending {
    /// Of the server that has it.
    pub fn epoch(&self) -> u64 {
        self.connection.welcome.epoch
    }

    /// The answer.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response, Lost>> {
        let polled = std::pin::Pin::new(&mut self.answer).poll(cx);
        polled.map(|result| {
            self.done = true;
            // The tasks always say how it ended; if they could not, it may have been sent.
            result.unwrap_or_else(|_| Err(Lost::Sent("the connection ended".into())))
        })
    }

    /// Takes the request back; true if it never left and never will.
    pub fn take_back(&self) -> bool {
        let mut phase = phase_of(&self.phase);
        if *phase == Phase::Queued {
            *phase = Phase::Cancelled;
        }
        *phase == Phase::Cancelled
    }

    /// The server has said nothing at all since then: its connection is not to be trusted.
    pub fn retire_if_silent_since(&self, since: Instant) {
        let shared = &self.connection.shared;
        let mut in_flight = shared.lock();
        if in_flight.received <= since {
            shared.retire(&mut in_flight, "the server has said nothing for an attempt's time");
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.done || self.take_back() {
            return;
        }
        let phase = *phase_of(&self.phase);
        if let Phase::Handed(number) = phase {
            self.connection.shared.orphan(number);
        }
    }
}

/// A handle; the connection ends when the last one goes.
#[derive(Clone)]
pub(crate) struct Connection {
    // Bounded by the permits: each queued request holds one.
    outgoing: mpsc::UnboundedSender<Outgoing>,
    shared: Arc<Shared>,
    pub welcome: Arc<Welcome>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("server", &self.welcome.server).finish_non_exhaustive()
    }
}

impl Connection {
    /// Connects and shakes hands. Pushes go to `pushes`.
    pub async fn open(
        address: &str,
        settings: &ClientBuilder,
        pushes: Option<Arc<PushQueue>>,
    ) -> io::Result<Self> {
        let work = Self::open_now(address, settings, pushes);
        let timed = tokio::time::timeout(settings.connect_timeout, work).await;
        let opened =
            timed.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer")));
        match &opened {
            Ok(connection) => {
                tracing::debug!(address, epoch = connection.welcome.epoch, "connected");
            }
            Err(error) => tracing::warn!(address, %error, "not connected"),
        }
        opened
    }

    async fn open_now(
        address: &str,
        settings: &ClientBuilder,
        pushes: Option<Arc<PushQueue>>,
    ) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (mut read, mut write) = stream.into_split();
        let mut session = Session::default().with_crc(settings.frame_crc);
        let mut out = Vec::new();
        session.hello(&settings.name, &settings.token, &mut out);
        write.write_all(&out).await?;
        let welcome = Arc::new(read_welcome(&mut read, &mut session).await?);
        let in_flight_max = settings.in_flight_max.min(welcome.in_flight_max.max(1) as usize);
        let shared = Arc::new(Shared {
            in_flight: Mutex::new(InFlight {
                waiting: HashMap::new(),
                orphans: 0,
                ended: None,
                retired: false,
                come_back: None,
                received: Instant::now(),
            }),
            permits: Arc::new(Semaphore::new(in_flight_max)),
            // Orphans alone must never fill the connection.
            orphans_max: settings.orphans_max.min(in_flight_max - 1),
            writer_over: Notify::new(),
            reader_over: Notify::new(),
        });
        let (outgoing, requests) = mpsc::unbounded_channel();
        // The session is split: numbers are given by the writer, bytes are taken by the reader.
        let (writer, reader) = session.split();
        tokio::spawn(read_loop(read, reader, shared.clone(), pushes));
        let bytes_max = welcome.body_bytes_max;
        tokio::spawn(write_loop(write, writer, requests, shared.clone(), bytes_max));
        Ok(Self { outgoing, shared, welcome })
    }

    /// True while requests can be sent.
    pub fn is_open(&self) -> bool {
        !self.shared.lock().retired
    }

    /// When to come back to a server that sent its clients away.
    pub fn come_back(&self) -> Option<Instant> {
        self.shared.lock().come_back
    }

    /// Queues a request; waits for room where there is none, or not.
    pub async fn start(&self, request: Request, wait: bool) -> Result<Pending, NotStarted> {
        if !wait {
            return self.start_now(request);
        }
        let permit = self.shared.permits.clone().acquire_owned().await;
        self.queue(request, permit.map_err(|_| self.gone())?)
    }

    fn start_now(&self, request: Request) -> Result<Pending, NotStarted> {
        match self.shared.permits.clone().try_acquire_owned() {
            Ok(permit) => self.queue(request, permit),
            Err(TryAcquireError::NoPermits) => Err(NotStarted::Full),
            Err(TryAcquireError::Closed) => Err(self.gone()),
        }
    }

    fn queue(&self, request: Request, permit: OwnedSemaphorePermit) -> Result<Pending, NotStarted> {
        let (answer_in, answer) = oneshot::channel();
        let phase = Arc::new(Mutex::new(Phase::Queued));
        let outgoing = Outgoing { request, answer: answer_in, phase: phase.clone(), permit };
        self.outgoing.send(outgoing).map_err(|_| self.gone())?;
        Ok(Pending { answer, phase, connection: self.clone(), done: false })
    }

    fn gone(&self) -> NotStarted {
        let why = self.shared.lock().ended.clone();
        NotStarted::Gone(why.unwrap_or_else(|| "the connection takes no more requests".into()))
    }

    /// Sends a request and waits for its answer.
    pub async fn request(&self, request: Request) -> Result<Response, Lost> {
        match self.start(request, true).await {
            Ok(mut pending) => std::future::poll_fn(|cx| pending.poll(cx)).await,
            Err(NotStarted::Full) => Err(Lost::Unsent("no room".into())),
            Err(NotStarted::Gone(why)) => Err(Lost::Unsent(why)),
        }
    }

    /// Queues a request that has no answer; does not wait.
    pub fn tell(&self, request: Request) -> Result<(), NotStarted> {
        let mut pending = self.start_now(request)?;
        // Nobody waits for it, and nobody takes it back.
        pending.done = true;
        Ok(())
    }
}

async fn read_welcome(read: &mut OwnedReadHalf, session: &mut Session) -> io::Result<Welcome> {
    let mut buffer = [0; 4096];
    loop {
        if let Some((_, response)) = session.next_response().map_err(io::Error::other)? {
            return match response {
                Response::Welcome(welcome) => Ok(welcome),
                Response::Error { message, .. } => Err(io::Error::other(message)),
                other => Err(io::Error::other(format!("no welcome but {other:?}"))),
            };
        }
        match read.read(&mut buffer).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => session.receive(&buffer[..count]),
        }
    }
}

async fn write_loop(
    mut write: OwnedWriteHalf,
    mut session: Session,
    mut requests: mpsc::UnboundedReceiver<Outgoing>,
    shared: Arc<Shared>,
    bytes_max: u32,
) {
    let mut out = Vec::new();
    loop {
        let mut next = tokio::select! {
            first = requests.recv() => match first {
                None => break,
                first => first,
            },
            () = shared.writer_over.notified() => break,
            () = tokio::time::sleep(SILENCE) => {
                session.send(&Request::Ping, &mut out);
                None
            }
        };
        while let Some(outgoing) = next {
            hand(outgoing, &mut session, &mut out, &shared, bytes_max);
            next = if out.len() < WRITE_BYTES { requests.try_recv().ok() } else { None };
        }
        let written = tokio::select! {
            written = write.write_all(&out) => written,
            () = shared.writer_over.notified() => break,
        };
        if let Err(error) = written {
            shared.end(&error.to_string());
            break;
        }
        out.clear();
    }
    requests.close();
    let why = shared.lock().ended.clone().unwrap_or_else(|| "the connection is closed".into());
    while let Ok(outgoing) = requests.try_recv() {
        let _ = outgoing.answer.send(Err(Lost::Unsent(why.clone())));
    }
    let _ = write.shutdown().await;
}

/// Puts a request into the bytes of the next write, unless its caller took it back.
fn hand(
    outgoing: Outgoing,
    session: &mut Session,
    out: &mut Vec<u8>,
    shared: &Shared,
    bytes_max: u32,
) {
    let Outgoing { request, answer, phase, permit } = outgoing;
    let mut in_flight = shared.lock();
    let mut phase = phase_of(&phase);
    if *phase == Phase::Cancelled {
        return;
    }
    if let Some(why) = in_flight.ended.clone() {
        *phase = Phase::Cancelled;
        let _ = answer.send(Err(Lost::Unsent(why)));
        return;
    }
    let start = out.len();
    let number = session.send(&request, out);
    let bytes = out.len() - start - HEADER_BYTES;
    if bytes > bytes_max as usize {
        out.truncate(start);
        *phase = Phase::Cancelled;
        let _ = answer.send(Err(Lost::TooLarge { bytes, bytes_max }));
        return;
    }
    *phase = Phase::Handed(number);
    if matches!(request, Request::Credit { .. }) {
        // It has no answer; that it left is all there is to say.
        let _ = answer.send(Ok(Response::Done));
        return;
    }
    in_flight.waiting.insert(number, Waiting { answer, orphan: false, _permit: permit });
}

async fn read_loop(
    mut read: OwnedReadHalf,
    mut session: Session,
    shared: Arc<Shared>,
    pushes: Option<Arc<PushQueue>>,
) {
    let mut buffer = BytesMut::with_capacity(64 << 10);
    let mut said = None;
    let why = loop {
        match take_responses(&mut session, &shared, pushes.as_deref(), &mut said) {
            Ok(()) => {}
            Err(why) => break why,
        }
        buffer.clear();
        let count = tokio::select! {
            count = read.read_buf(&mut buffer) => count,
            () = shared.reader_over.notified() => break "the connection is over".into(),
            () = tokio::time::sleep(SILENCE_MAX) => break "the server is silent".into(),
        };
        match count {
            Ok(0) => break said.unwrap_or_else(|| "the server closed the connection".into()),
            Ok(_) => {
                shared.lock().received = Instant::now();
                session.receive(&buffer);
            }
            Err(error) => break said.unwrap_or_else(|| error.to_string()),
        }
    };
    shared.end(&why);
    if let Some(pushes) = pushes {
        pushes.end(why);
    }
}

/// Gives every whole response to whom it belongs. An error says why the connection cannot go on.
fn take_responses(
    session: &mut Session,
    shared: &Shared,
    pushes: Option<&PushQueue>,
    said: &mut Option<String>,
) -> Result<(), String> {
    loop {
        match session.next_response() {
            Ok(None) => return Ok(()),
            Ok(Some((0, Response::GoAway { reconnect_after_ms }))) => {
                let hint = Duration::from_millis(u64::from(reconnect_after_ms));
                let wait = Jitter::new().come_back(hint);
                let mut in_flight = shared.lock();
                in_flight.come_back = Some(Instant::now() + wait);
                shared.retire(&mut in_flight, "the server sends its clients away");
            }
            // Told to nobody in particular: why it will close.
            Ok(Some((0, Response::Error { message, .. }))) => {
                if let Some(pushes) = pushes {
                    pushes.end(message.clone());
                }
                *said = Some(message);
            }
            Ok(Some((0, push))) => {
                if let Some(pushes) = pushes {
                    pushes.push(push)?;
                }
            }
            Ok(Some((number, response))) => shared.answer(number, response),
            Err(error) => return Err(format!("the server sent {error}")),
        }
    }
}
