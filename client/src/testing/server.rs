//! The sockets of the fake server.
//!
//! One thread with a small runtime. A connection answers requests in the order in which they come;
//! a delayed answer does not hold up the others.

use super::engine::{Engine, PARTITION_COUNT};
use super::feed::{Consumers, Subscription};
use super::script::{Fault, Script};
use crate::ClientBuilder;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;
use stockade_protocol::wire::{
    BODY_BYTES_MAX, ErrorCode, PREFACE, PROTOCOL_VERSION, Request, RequestError, Response,
    ShardPort, Welcome, decode_request, encode_response, split,
};
use stockade_protocol::{Lsn, OrderId, PartitionId, SalePatch};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};

/// A request that a fake server has seen.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// Connections are counted from 1, HELLO included.
    pub connection: u64,
    /// It came on a shard's own port.
    pub on_shard_port: bool,
    /// The client's number for it.
    pub correlation: u64,
    /// What was asked.
    pub request: Request,
}

/// How new connections are met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Greeting {
    /// With WELCOME.
    #[default]
    Welcome,
    /// With silence.
    Silence,
    /// They are closed at once.
    Close,
}

struct State {
    greeting: Greeting,
    engine: Engine,
    consumers: Consumers,
    script: Script,
    seen: Vec<Seen>,
    connections: u64,
    epoch: u64,
    shard_ports: Vec<u16>,
    in_flight_max: u32,
    reading: bool,
    /// Pushes whose first LSN is told one too high.
    holes: u32,
}

struct Shared {
    state: Mutex<State>,
    /// Something was appended to the log, or may be read again.
    changed: Notify,
    /// Counted up to cut the connections of before.
    generation: watch::Sender<u64>,
    /// The same for those with subscriptions.
    feeds: watch::Sender<u64>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See [the module](crate::testing).
pub struct FakeServer {
    shared: Arc<Shared>,
    handle: Handle,
    port: u16,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl std::fmt::Debug for FakeServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FakeServer").field("address", &self.address()).finish()
    }
}

impl FakeServer {
    /// Starts one with two shards on free ports.
    ///
    /// # Errors
    /// No thread or no port.
    pub fn start() -> io::Result<Self> {
        let state = State {
            greeting: Greeting::Welcome,
            engine: Engine::default(),
            consumers: Consumers::default(),
            script: Script::default(),
            seen: Vec::new(),
            connections: 0,
            epoch: 1,
            shard_ports: Vec::new(),
            in_flight_max: 1024,
            reading: true,
            holes: 0,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Notify::new(),
            generation: watch::Sender::new(0),
            feeds: watch::Sender::new(0),
        });
        let (ready_in, ready) = mpsc::channel();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (common, state) = (bind()?, shared.clone());
        let port = common.local_addr()?.port();
        let run = move || {
            let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let Ok(runtime) = built else { return };
            runtime.block_on(async {
                let started = listen(common, false, &state).and_then(|()| listen_shards(&state));
                let _ = ready_in.send(started.map(|()| Handle::current()));
                let _ = stopped.await;
            });
        };
        let thread = std::thread::Builder::new().name("fake-stockade".into()).spawn(run)?;
        let handle = ready.recv().map_err(io::Error::other)??;
        Ok(Self { shared, handle, port, stop: Some(stop), thread: Some(thread) })
    }

    /// The common address.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Settings of a client for it.
    pub fn settings(&self) -> ClientBuilder {
        ClientBuilder::new(self.address())
    }

    /// Creates a sale or merges with it.
    ///
    /// # Panics
    /// If the fake engine refuses it.
    pub fn put(&self, patch: &SalePatch) {
        let reply = self.shared.lock().engine.put(patch);
        assert!(!reply.outcome.is_rejection(), "the sale is refused: {}", reply.why);
        self.shared.changed.notify_waiters();
    }

    /// The next commands that decide something take these faults in turn; `None`: none.
    pub fn on_verbs(&self, faults: impl IntoIterator<Item = Option<Fault>>) {
        self.shared.lock().script.verbs(faults);
    }

    /// The next commands of any kind take these faults in turn.
    pub fn on_commands(&self, faults: impl IntoIterator<Item = Option<Fault>>) {
        self.shared.lock().script.commands(faults);
    }

    /// The next `Subscribe`, `Ack` and `Consumers` take these faults in turn.
    pub fn on_feed(&self, faults: impl IntoIterator<Item = Option<Fault>>) {
        self.shared.lock().script.feed(faults);
    }

    /// Everything that was asked so far, HELLO included.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.lock().seen.clone()
    }

    /// Connections that were taken so far.
    pub fn connections(&self) -> u64 {
        self.shared.lock().connections
    }

    /// How connections are met from now on.
    pub fn greet(&self, greeting: Greeting) {
        self.shared.lock().greeting = greeting;
    }

    /// Requests in flight that new connections are told they may have.
    pub fn in_flight_max(&self, count: u32) {
        self.shared.lock().in_flight_max = count;
    }

    /// False: nothing more is read from any connection, so that requests pile up.
    pub fn read(&self, reading: bool) {
        self.shared.lock().reading = reading;
        self.shared.changed.notify_waiters();
    }

    /// Ends a held order as its timer would; false if it is not held.
    pub fn expire(&self, order: OrderId) -> bool {
        let expired = self.shared.lock().engine.expire(order);
        self.shared.changed.notify_waiters();
        expired
    }

    /// Moves the server's clock ahead.
    pub fn advance(&self, by: Duration) {
        self.shared.lock().engine.ahead_ms += by.as_millis() as u64;
    }

    /// Drops log entries below an LSN; readers that are behind are told of a gap.
    pub fn trim(&self, partition: PartitionId, first_kept: Lsn) {
        self.shared.lock().consumers.first_kept.insert(partition, first_kept);
        self.shared.changed.notify_waiters();
    }

    /// The next so many pushes leave their first entry out without a word.
    pub fn leave_out(&self, pushes: u32) {
        self.shared.lock().holes = pushes;
    }

    /// Closes all connections.
    pub fn cut(&self) {
        self.shared.generation.send_modify(|generation| *generation += 1);
    }

    /// Closes the connections that have subscriptions.
    pub fn cut_feeds(&self) {
        self.shared.feeds.send_modify(|generation| *generation += 1);
    }

    /// As a restart looks to clients: connections are closed, the epoch counts up, the shards have
    /// other ports. What was decided stays.
    ///
    /// # Errors
    /// No port.
    pub fn restart(&self) -> io::Result<()> {
        self.shared.lock().epoch += 1;
        self.cut();
        let (shared, (done_in, done)) = (self.shared.clone(), mpsc::channel());
        self.handle.spawn(async move {
            let _ = done_in.send(listen_shards(&shared));
        });
        done.recv().map_err(io::Error::other)?
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn bind() -> io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Two shards on new ports; the listeners of before end with their generation.
fn listen_shards(shared: &Arc<Shared>) -> io::Result<()> {
    let mut ports = Vec::new();
    for _ in 0..2 {
        let listener = bind()?;
        ports.push(listener.local_addr()?.port());
        listen(listener, true, shared)?;
    }
    shared.lock().shard_ports = ports;
    Ok(())
}

fn listen(listener: std::net::TcpListener, shard: bool, shared: &Arc<Shared>) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let shared = shared.clone();
    // Taken here, before a restart can count it up.
    let epoch = shared.lock().epoch;
    let mut generation = shared.generation.subscribe();
    tokio::spawn(async move {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = generation.changed() => {
                    if shard && shared.lock().epoch != epoch {
                        return;
                    }
                    continue;
                }
            };
            let Ok((stream, _)) = accepted else { return };
            let id = {
                let mut state = shared.lock();
                state.connections += 1;
                state.connections
            };
            let connection = Connection { id, shard, shared: shared.clone(), subscription: None };
            tokio::spawn(connection.serve(stream));
        }
    });
    Ok(())
}

struct Connection {
    id: u64,
    shard: bool,
    shared: Arc<Shared>,
    subscription: Option<Subscription>,
}

/// What a request leads to.
enum Then {
    Go,
    /// Close at once.
    Cut,
    /// These bytes later.
    Later(Duration, u64, Box<Later>),
}

enum Later {
    Say(Response),
    Decide(Request),
}

impl Connection {
    async fn serve(mut self, mut stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        let mut generation = self.shared.generation.subscribe();
        let mut feeds = self.shared.feeds.subscribe();
        let (mut input, mut out) = (Vec::new(), Vec::new());
        let mut greeted = false;
        let greeting = self.shared.lock().greeting;
        if greeting == Greeting::Close {
            return;
        }
        let (later_in, mut later) = tokio::sync::mpsc::unbounded_channel::<(u64, Later)>();
        loop {
            let shared = self.shared.clone();
            let changed = shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            self.push(&mut out);
            if !out.is_empty() {
                if stream.write_all(&out).await.is_err() {
                    return;
                }
                out.clear();
            }
            let reading = self.shared.lock().reading || !greeted;
            tokio::select! {
                _ = generation.changed() => return,
                _ = feeds.changed(), if self.subscription.is_some() => return,
                () = &mut changed => continue,
                Some((number, what)) = later.recv() => {
                    let response = match what {
                        Later::Say(response) => response,
                        Later::Decide(request) => self.decide(request),
                    };
                    encode_response(&response, number, &mut out);
                    continue;
                }
                read = stream.read_buf(&mut input), if reading => match read {
                    Ok(count) if count > 0 => {}
                    _ => return,
                },
            }
            if !greeted {
                if greeting == Greeting::Silence || input.len() < PREFACE.len() {
                    continue;
                }
                if input[..PREFACE.len()] != PREFACE {
                    return;
                }
                input.drain(..PREFACE.len());
                greeted = true;
            }
            while let Ok(Some((header, body, taken))) = split(&input, BODY_BYTES_MAX) {
                let request = decode_request(&header, body);
                let number = header.correlation;
                input.drain(..taken);
                match self.take(number, request, &mut out) {
                    Then::Go => {}
                    Then::Cut => return,
                    Then::Later(wait, number, what) => {
                        let later = later_in.clone();
                        tokio::spawn(async move {
                            tokio::time::sleep(wait).await;
                            let _ = later.send((number, *what));
                        });
                    }
                }
            }
        }
    }

    fn take(
        &mut self,
        number: u64,
        request: Result<Request, RequestError>,
        out: &mut Vec<u8>,
    ) -> Then {
        let request = match request {
            Ok(request) => request,
            Err(RequestError::Rejected(reply)) => {
                encode_response(&Response::Reply(reply), number, out);
                return Then::Go;
            }
            Err(RequestError::Error { code, message }) => {
                encode_response(&error(code, message), number, out);
                return Then::Go;
            }
        };
        let fault = {
            let mut state = self.shared.lock();
            let (connection, on_shard_port) = (self.id, self.shard);
            let seen = Seen { connection, on_shard_port, correlation: number, request };
            state.seen.push(seen.clone());
            (state.script.take(&seen.request), seen.request)
        };
        let (fault, request) = fault;
        match fault {
            None => {
                // Credit has no answer.
                if let Request::Credit { bytes } = request {
                    if let Some(subscription) = &mut self.subscription {
                        subscription.credit += i64::from(bytes);
                    }
                    return Then::Go;
                }
                let response = self.decide(request);
                encode_response(&response, number, out);
                Then::Go
            }
            Some(fault) => self.fail(fault, number, request, out),
        }
    }

    fn fail(&mut self, fault: Fault, number: u64, request: Request, out: &mut Vec<u8>) -> Then {
        match fault {
            Fault::CutBefore => return Then::Cut,
            Fault::CutAfter => {
                self.decide(request);
                return Then::Cut;
            }
            Fault::Ignore => {}
            Fault::LoseAnswer => {
                self.decide(request);
            }
            Fault::DelayAnswer(wait) => {
                let response = self.decide(request);
                return Then::Later(wait, number, Box::new(Later::Say(response)));
            }
            Fault::DelayDecision(wait) => {
                return Then::Later(wait, number, Box::new(Later::Decide(request)));
            }
            Fault::Error(code) => {
                encode_response(&error(code, "the script says so"), number, out);
            }
            Fault::Answer(reply) => encode_response(&Response::Reply(reply), number, out),
            Fault::GoAway { reconnect_after_ms } => {
                encode_response(&Response::GoAway { reconnect_after_ms }, 0, out);
                let response = self.decide(request);
                encode_response(&response, number, out);
            }
            Fault::Garbage => {
                self.decide(request);
                out.extend_from_slice(&[0xff; 32]);
            }
            Fault::WrongNumber => {
                let response = self.decide(request);
                encode_response(&response, number + 1_000_000, out);
                encode_response(&response, number, out);
            }
        }
        Then::Go
    }

    fn decide(&mut self, request: Request) -> Response {
        let shared = self.shared.clone();
        let mut state = shared.lock();
        let state = &mut *state;
        let response = match request {
            Request::Hello(_) => Response::Welcome(Welcome {
                version: PROTOCOL_VERSION,
                features: 0,
                body_bytes_max: BODY_BYTES_MAX,
                in_flight_max: state.in_flight_max,
                durability: 0,
                epoch: state.epoch,
                server_time: state.engine.now(),
                partition_count: PARTITION_COUNT,
                shards: state.shard_ports.iter().map(|port| ShardPort { port: *port }).collect(),
                server: "fake-stockade".into(),
            }),
            Request::Ping => Response::Pong { server_time: state.engine.now() },
            Request::Command(command) => Response::Reply(state.engine.decide(command)),
            Request::ReserveMany(reserves) => {
                let malformed = stockade_protocol::reply::ReserveReply::rejected(
                    stockade_protocol::Outcome::BadRequest,
                    stockade_protocol::reply::RETRY_NEVER,
                );
                let reserve = |reserve: Option<_>| match reserve {
                    Some(reserve) => state.engine.reserve(&reserve),
                    None => malformed,
                };
                Response::ReserveMany(reserves.into_iter().map(reserve).collect())
            }
            Request::Subscribe(subscribe) => {
                match state.consumers.subscribe(&state.engine, &subscribe) {
                    Ok(subscription) => {
                        self.subscription = Some(subscription);
                        Response::Done
                    }
                    Err(refused) => refused,
                }
            }
            Request::Credit { .. } => Response::Done,
            Request::Ack { consumer, cursors } => state.consumers.ack(&consumer, &cursors),
            Request::Unsubscribe => {
                self.subscription = None;
                Response::Done
            }
            Request::Consumers => state.consumers.list(&state.engine),
            Request::ConsumerDrop(name) => state.consumers.drop_one(&name),
        };
        shared.changed.notify_waiters();
        response
    }

    fn push(&mut self, out: &mut Vec<u8>) {
        let Some(subscription) = &mut self.subscription else { return };
        let mut state = self.shared.lock();
        let state = &mut *state;
        for mut run in state.consumers.runs(&state.engine, subscription) {
            if let Response::Entries { first, .. } = &mut run
                && state.holes > 0
            {
                state.holes -= 1;
                *first = first.next();
            }
            encode_response(&run, 0, out);
        }
    }
}

fn error(code: ErrorCode, message: &str) -> Response {
    Response::Error { code, message: message.into() }
}
