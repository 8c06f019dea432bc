//! One connection: a task that writes and a task that reads, so that a server which waits for its
//! answers to be read never deadlocks with a client that waits for its requests to be read.

use crate::builder::ClientBuilder;
use crate::session::Session;
use bytes::BytesMut;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use stockade_protocol::wire::{Request, Response, Welcome};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

/// A silent connection is asked whether it lives after this long, and given up after twice as long.
const SILENCE: Duration = Duration::from_secs(10);

/// Why a request has no answer.
#[derive(Debug)]
pub(crate) struct Lost {
    /// It may have reached the server.
    pub sent: bool,
    pub why: String,
}

struct Outgoing {
    request: Request,
    answer: oneshot::Sender<Result<Response, Lost>>,
    permit: OwnedSemaphorePermit,
}

struct Waiting {
    answer: oneshot::Sender<Result<Response, Lost>>,
    _permit: OwnedSemaphorePermit,
}

#[derive(Default)]
struct InFlight {
    waiting: HashMap<u64, Waiting>,
    /// Why the connection ended.
    ended: Option<String>,
    going_away: bool,
}

type SharedInFlight = Arc<Mutex<InFlight>>;

fn lock(in_flight: &SharedInFlight) -> MutexGuard<'_, InFlight> {
    in_flight.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A handle; the connection ends when the last one goes.
#[derive(Clone)]
pub(crate) struct Connection {
    outgoing: mpsc::Sender<Outgoing>,
    in_flight: SharedInFlight,
    permits: Arc<Semaphore>,
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
        pushes: Option<mpsc::UnboundedSender<Response>>,
    ) -> io::Result<Self> {
        let work = Self::open_now(address, settings, pushes);
        let timed = tokio::time::timeout(settings.connect_timeout, work).await;
        timed.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer")))
    }

    async fn open_now(
        address: &str,
        settings: &ClientBuilder,
        pushes: Option<mpsc::UnboundedSender<Response>>,
    ) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (mut read, mut write) = stream.into_split();
        let (mut session, mut out) = (Session::default(), Vec::new());
        session.hello(&settings.name, &settings.token, &mut out);
        write.write_all(&out).await?;
        let welcome = read_welcome(&mut read, &mut session).await?;
        let in_flight_max = settings.in_flight_max.min(welcome.in_flight_max.max(1) as usize);
        let in_flight = SharedInFlight::default();
        let (outgoing, requests) = mpsc::channel(in_flight_max.min(1024));
        // The session is split: numbers are given by the writer, bytes are taken by the reader.
        let reader = std::mem::take(&mut session);
        tokio::spawn(read_loop(read, reader, in_flight.clone(), pushes));
        tokio::spawn(write_loop(write, requests, in_flight.clone()));
        let permits = Arc::new(Semaphore::new(in_flight_max));
        Ok(Self { outgoing, in_flight, permits, welcome: Arc::new(welcome) })
    }

    /// True while requests can be sent.
    pub fn is_open(&self) -> bool {
        let in_flight = lock(&self.in_flight);
        in_flight.ended.is_none() && !in_flight.going_away
    }

    /// True if no further request fits.
    pub fn is_full(&self) -> bool {
        self.permits.available_permits() == 0
    }

    /// Calls that wait for answers.
    pub fn waiting(&self) -> usize {
        lock(&self.in_flight).waiting.len()
    }

    /// Sends a request and waits for its answer. Dropping the future leaves the request running.
    pub async fn request(&self, request: Request) -> Result<Response, Lost> {
        let lost = |why: &str| Lost { sent: false, why: why.into() };
        let permit = self.permits.clone().acquire_owned().await;
        let permit = permit.map_err(|_| lost("the connection is closed"))?;
        let (answer, answered) = oneshot::channel();
        let outgoing = Outgoing { request, answer, permit };
        self.outgoing.send(outgoing).await.map_err(|_| lost("the connection is closed"))?;
        match answered.await {
            Ok(result) => result,
            Err(_) => Err(Lost { sent: true, why: "the connection ended".into() }),
        }
    }

    /// Sends a request that has no answer.
    pub async fn tell(&self, request: Request) -> Result<(), Lost> {
        let lost = || Lost { sent: false, why: "the connection is closed".into() };
        let permit = self.permits.clone().acquire_owned().await.map_err(|_| lost())?;
        let (answer, _) = oneshot::channel();
        self.outgoing.send(Outgoing { request, answer, permit }).await.map_err(|_| lost())
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
    mut requests: mpsc::Receiver<Outgoing>,
    in_flight: SharedInFlight,
) {
    // HELLO was number 1 of the session that shook hands.
    let mut session = Session::default();
    session.send(&Request::Ping, &mut Vec::new());
    let mut out = Vec::new();
    loop {
        let first = match tokio::time::timeout(SILENCE, requests.recv()).await {
            Ok(Some(first)) => Some(first),
            Ok(None) => break,
            Err(_) => {
                session.send(&Request::Ping, &mut out);
                None
            }
        };
        let mut next = first;
        while let Some(outgoing) = next {
            let number = session.send(&outgoing.request, &mut out);
            let answered = !matches!(outgoing.request, Request::Credit { .. });
            let mut shared = lock(&in_flight);
            if let Some(why) = shared.ended.clone() {
                let _ = outgoing.answer.send(Err(Lost { sent: false, why }));
            } else if answered {
                let waiting = Waiting { answer: outgoing.answer, _permit: outgoing.permit };
                shared.waiting.insert(number, waiting);
            }
            drop(shared);
            next = if out.len() < 64 << 10 { requests.try_recv().ok() } else { None };
        }
        if write.write_all(&out).await.is_err() {
            break;
        }
        out.clear();
        if lock(&in_flight).ended.is_some() {
            break;
        }
    }
    requests.close();
    while let Ok(outgoing) = requests.try_recv() {
        let lost = Lost { sent: false, why: "the connection is closed".into() };
        let _ = outgoing.answer.send(Err(lost));
    }
    let _ = write.shutdown().await;
}

async fn read_loop(
    mut read: OwnedReadHalf,
    mut session: Session,
    in_flight: SharedInFlight,
    pushes: Option<mpsc::UnboundedSender<Response>>,
) {
    let mut buffer = BytesMut::with_capacity(64 << 10);
    let why = loop {
        loop {
            match session.next_response() {
                Ok(Some((0, Response::GoAway { .. }))) => lock(&in_flight).going_away = true,
                Ok(Some((0, push))) => {
                    if let Some(pushes) = &pushes {
                        // Bounded by the credit that the subscriber gave.
                        let _ = pushes.send(push);
                    }
                }
                Ok(Some((number, response))) => {
                    let waiting = lock(&in_flight).waiting.remove(&number);
                    if let Some(waiting) = waiting {
                        let _ = waiting.answer.send(Ok(response));
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    end(&in_flight, &format!("the server sent {error}"));
                    return;
                }
            }
        }
        buffer.clear();
        match tokio::time::timeout(2 * SILENCE + SILENCE / 2, read.read_buf(&mut buffer)).await {
            Ok(Ok(0)) => break "the server closed the connection".to_owned(),
            Ok(Ok(_)) => session.receive(&buffer),
            Ok(Err(error)) => break error.to_string(),
            Err(_) => break "the server is silent".to_owned(),
        }
    };
    end(&in_flight, &why);
}

/// Everything that waits is in doubt.
fn end(in_flight: &SharedInFlight, why: &str) {
    let mut shared = lock(in_flight);
    shared.ended = Some(why.into());
    for (_, waiting) in shared.waiting.drain() {
        let _ = waiting.answer.send(Err(Lost { sent: true, why: why.into() }));
    }
}
