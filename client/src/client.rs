//! The handle: which connection a command takes, and how it is asked again within its deadline.

use crate::builder::{ClientBuilder, WhenFull};
use crate::connection::Connection;
use crate::error::{Error, InDoubt};
use crate::jitter::Backoff;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use stockade_protocol::command::Route;
use stockade_protocol::routing::partition_of;
use stockade_protocol::wire::{Request, Response, Welcome};
use stockade_protocol::{Command, Reply};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::Instrument;

/// What the client knows of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Counts up with every start of the engine.
    pub epoch: u64,
    /// Partitions of users.
    pub partition_count: u16,
    /// The shards' own ports.
    pub shard_ports: Vec<u16>,
    /// Name and version.
    pub server: String,
    /// Answers come after fdatasync (`group`), not only after the write (`async`).
    pub durable: bool,
}

impl Topology {
    fn of(welcome: &Welcome) -> Self {
        Self {
            epoch: welcome.epoch,
            partition_count: welcome.partition_count,
            shard_ports: welcome.shards.iter().map(|shard| shard.port).collect(),
            server: welcome.server.clone(),
            durable: welcome.durability == 0,
        }
    }

    /// The shard that decides a command.
    fn shard(&self, route: Route) -> usize {
        let partition = match route {
            Route::User(user) => partition_of(user, self.partition_count.max(1)),
            Route::Order(order) => order.partition(),
            Route::Catalog | Route::All => return 0,
        };
        usize::from(partition.get()) % self.shard_ports.len().max(1)
    }
}

struct Shared {
    settings: ClientBuilder,
    host: String,
    topology: RwLock<Arc<Topology>>,
    /// By shard, then by connection.
    slots: RwLock<Vec<Arc<Mutex<Option<Connection>>>>>,
    turn: AtomicUsize,
    closed: AtomicBool,
}

/// A client; clones share their connections.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("address", &self.shared.settings.address).finish()
    }
}

impl Client {
    /// Settings for a server's common address (`host:port`).
    pub fn builder(address: impl Into<String>) -> ClientBuilder {
        ClientBuilder::new(address)
    }

    pub(crate) async fn connect(settings: ClientBuilder) -> Result<Self, Error> {
        let deadline = Instant::now() + settings.request_timeout;
        let mut backoff = Backoff::new();
        let connection = loop {
            match Connection::open(&settings.address, &settings, None).await {
                Ok(connection) => break connection,
                Err(error) => {
                    let wait = backoff.next_wait();
                    if Instant::now() + wait >= deadline {
                        return Err(Error::NotReached {
                            address: settings.address,
                            within: settings.request_timeout,
                            why: error.to_string(),
                        });
                    }
                    tokio::time::sleep(wait).await;
                }
            }
        };
        let host = settings.address.rsplit_once(':').map_or("127.0.0.1", |(host, _)| host);
        let topology = Topology::of(&connection.welcome);
        let shared = Shared {
            host: host.to_owned(),
            slots: RwLock::default(),
            topology: RwLock::new(Arc::new(topology)),
            turn: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            settings,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// What is known of the server now.
    pub fn topology(&self) -> Arc<Topology> {
        self.shared.topology.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn settings(&self) -> &ClientBuilder {
        &self.shared.settings
    }

    fn learn(&self, welcome: &Welcome) {
        let topology = Arc::new(Topology::of(welcome));
        *self.shared.topology.write().unwrap_or_else(PoisonError::into_inner) = topology;
    }

    fn slot(&self, shard: usize) -> Arc<Mutex<Option<Connection>>> {
        let per_shard = self.shared.settings.connections_per_shard;
        let turn = self.shared.turn.fetch_add(1, Ordering::Relaxed) % per_shard;
        let at = shard * per_shard + turn;
        if let Some(slot) = self.shared.slots.read().unwrap_or_else(PoisonError::into_inner).get(at)
        {
            return slot.clone();
        }
        let mut slots = self.shared.slots.write().unwrap_or_else(PoisonError::into_inner);
        while slots.len() <= at {
            slots.push(Arc::default());
        }
        slots[at].clone()
    }

    /// An open connection to the shard, or to any shard where its own port is not reached.
    async fn connection(&self, shard: usize) -> std::io::Result<Connection> {
        let slot = self.slot(shard);
        let mut slot = slot.lock().await;
        if let Some(connection) = slot.as_ref().filter(|connection| connection.is_open()) {
            return Ok(connection.clone());
        }
        let own = |topology: &Topology| {
            topology.shard_ports.get(shard).map(|port| format!("{}:{port}", self.shared.host))
        };
        let settings = &self.shared.settings;
        let before = own(&self.topology());
        if let Some(address) = &before
            && let Ok(connection) = Connection::open(address, settings, None).await
        {
            self.learn(&connection.welcome);
            *slot = Some(connection.clone());
            return Ok(connection);
        }
        // The shards' ports change with a restart; the common one says where they are.
        let mut connection = Connection::open(&settings.address, settings, None).await?;
        self.learn(&connection.welcome);
        if let Some(address) = own(&self.topology()).filter(|now| Some(now) != before.as_ref())
            && let Ok(direct) = Connection::open(&address, settings, None).await
        {
            connection = direct;
        }
        *slot = Some(connection.clone());
        Ok(connection)
    }

    /// Has a command decided. Within the request timeout it is asked again on lost connections.
    ///
    /// # Errors
    /// See [`Error`]; [`Error::InDoubt`] where it may have been decided.
    pub async fn call(&self, command: Command) -> Result<Reply, Error> {
        let shard = self.topology().shard(command.route());
        let doubt = InDoubt::of(&command);
        let span = tracing::debug_span!("call", shard_id = shard);
        let response = self.exchange(shard, Request::Command(command), doubt);
        match response.instrument(span).await? {
            Response::Reply(reply) => Ok(reply),
            other => Err(Error::Protocol(format!("{other:?} as the answer to a command"))),
        }
    }

    /// Sends a request until it is answered or the deadline is over.
    pub(crate) async fn exchange(
        &self,
        shard: usize,
        request: Request,
        doubt: Option<InDoubt>,
    ) -> Result<Response, Error> {
        let settings = &self.shared.settings;
        let within = settings.request_timeout;
        let deadline = Instant::now() + within;
        let (mut sent, mut backoff) = (false, Backoff::new());
        let why = loop {
            if self.shared.closed.load(Ordering::Acquire) {
                return Err(Error::Closed);
            }
            let attempt = async {
                let connection = match self.connection(shard).await {
                    Ok(connection) => connection,
                    Err(error) => return Ok(Err((false, error.to_string()))),
                };
                if settings.when_full == WhenFull::FailFast && connection.is_full() {
                    return Err(Error::Full);
                }
                let answer = connection.request(request.clone()).await;
                Ok(answer.map_err(|lost| (lost.sent, lost.why)))
            };
            let why = match tokio::time::timeout_at(deadline, attempt).await {
                Ok(Err(error)) => return Err(error),
                Ok(Ok(Ok(Response::Error { code, message }))) => {
                    return Err(Error::Server { code, message });
                }
                Ok(Ok(Ok(response))) => return Ok(response),
                Ok(Ok(Err((was_sent, reason)))) => {
                    sent |= was_sent;
                    reason
                }
                // Nobody can say how far it came.
                Err(_) => {
                    sent = true;
                    "no answer in time".into()
                }
            };
            let wait = backoff.next_wait();
            if Instant::now() + wait >= deadline {
                break why;
            }
            tokio::time::sleep(wait).await;
        };
        match (sent, doubt) {
            (true, Some(doubt)) => Err(Error::InDoubt(doubt)),
            (true, None) => Err(Error::NoAnswer(within)),
            (false, _) => {
                let address = settings.address.clone();
                Err(Error::NotReached { address, within, why })
            }
        }
    }

    /// Takes no new calls, waits up to `grace` for those in flight, and gives how many were left in
    /// doubt.
    pub async fn shutdown(&self, grace: Duration) -> usize {
        self.shared.closed.store(true, Ordering::Release);
        let deadline = Instant::now() + grace;
        loop {
            let waiting = self.waiting().await;
            if waiting == 0 || Instant::now() >= deadline {
                let slots = self.all_slots();
                for slot in slots {
                    slot.lock().await.take();
                }
                return waiting;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn all_slots(&self) -> Vec<Arc<Mutex<Option<Connection>>>> {
        self.shared.slots.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn waiting(&self) -> usize {
        let mut waiting = 0;
        for slot in self.all_slots() {
            waiting += slot.lock().await.as_ref().map_or(0, Connection::waiting);
        }
        waiting
    }
}
