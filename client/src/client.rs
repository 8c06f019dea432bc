//! The handle: has commands decided, each asked again within its deadline by the rules of
//! [`crate::exchange`]. This is the driver of that machine: connections, clocks and waiting.

use crate::builder::{ClientBuilder, WhenBusy, WhenFull};
use crate::connection::{Lost, NotStarted, Pending};
use crate::error::{Error, InDoubt};
use crate::exchange::{After, End, Exchange, Input, Pick, Step};
use crate::jitter::Backoff;
use crate::register::{Call, Register, ShutdownReport};
use crate::sale_cache::{self, SaleCache};
use crate::slots::Slots;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use stockade_protocol::command::Route;
use stockade_protocol::routing::partition_of;
use stockade_protocol::wire::{Request, Response, Welcome};
use stockade_protocol::{Command, Reply};
use tokio::time::Instant;
use tracing::Instrument;

/// What the client knows of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// Where the shards' ports are.
    pub host: String,
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
    pub(crate) fn of(welcome: &Welcome, host: &str) -> Self {
        Self {
            host: host.to_owned(),
            epoch: welcome.epoch,
            partition_count: welcome.partition_count,
            shard_ports: welcome.shards.iter().map(|shard| shard.port).collect(),
            server: welcome.server.clone(),
            durable: welcome.durability == 0,
        }
    }

    /// The shard that decides a command.
    pub(crate) fn shard(&self, route: Route) -> usize {
        let partition = match route {
            Route::User(user) => partition_of(user, self.partition_count.max(1)),
            Route::Order(order) => order.partition(),
            Route::Catalog | Route::All => return 0,
        };
        usize::from(partition.get()) % self.shard_ports.len().max(1)
    }
}

struct Shared {
    slots: Slots,
    register: Arc<Register>,
    cache: Option<Arc<Mutex<SaleCache>>>,
}

/// A client; clones share their connections.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("addresses", &self.settings().addresses).finish()
    }
}

/// An attempt without an answer.
struct Attempt {
    number: u32,
    pending: Pending,
    since: Instant,
}

/// One call's driver.
struct Driver<'a> {
    client: &'a Client,
    call: &'a Call,
    shard: usize,
    request: &'a Request,
    deadline: Instant,
    backoff: Backoff,
    open: Vec<Attempt>,
    attempts: u32,
    last: Pick,
}

impl Client {
    /// Settings for a server's common address (`host:port`).
    pub fn builder(address: impl Into<String>) -> ClientBuilder {
        ClientBuilder::new(address)
    }

    pub(crate) async fn connect(settings: ClientBuilder) -> Result<Self, Error> {
        let within = settings.request_timeout;
        let deadline = Instant::now() + within;
        let slots = Slots::new(settings);
        let mut backoff = slots.backoff();
        loop {
            let error = match tokio::time::timeout_at(deadline, slots.common()).await {
                Ok(Ok(_)) => break,
                Ok(Err(error)) => error.to_string(),
                Err(_) => "no answer in time".into(),
            };
            let wait = backoff.next_wait();
            if Instant::now() + wait >= deadline {
                let address = slots.settings().addresses.join(", ");
                return Err(Error::NotReached { address, within, why: error });
            }
            tokio::time::sleep(wait).await;
        }
        let ttl = slots.settings().sale_cache;
        let cache = ttl.map(|ttl| Arc::new(Mutex::new(SaleCache::new(ttl))));
        let listening = cache.as_ref().map(|cache| {
            let slots = Slots::new(slots.settings().clone());
            let shared = Shared { slots, register: Register::new(), cache: None };
            sale_cache::listen(Self { shared: Arc::new(shared) }, Arc::downgrade(cache))
        });
        if let Some(listening) = listening {
            tokio::spawn(listening);
        }
        Ok(Self { shared: Arc::new(Shared { slots, register: Register::new(), cache }) })
    }

    pub(crate) fn cache(&self) -> Option<&Mutex<SaleCache>> {
        self.shared.cache.as_deref()
    }

    /// What is known of the server now.
    pub fn topology(&self) -> Arc<Topology> {
        self.shared.slots.topology()
    }

    pub(crate) fn settings(&self) -> &ClientBuilder {
        self.shared.slots.settings()
    }

    pub(crate) fn slots(&self) -> &Slots {
        &self.shared.slots
    }

    /// Has a command decided. Within the request timeout it is asked again on lost and on silent
    /// connections.
    ///
    /// # Errors
    /// See [`Error`]; [`Error::InDoubt`] where it may have been decided.
    pub async fn call(&self, command: Command) -> Result<Reply, Error> {
        let shard = self.topology().shard(command.route());
        let doubts = Vec::from_iter(InDoubt::of(&command));
        let span = tracing::debug_span!(
            "call",
            verb = verb_of(&command),
            shard_id = shard,
            subject = doubts.first().map(tracing::field::display),
            attempt = tracing::field::Empty,
        );
        let work = self.exchange(shard, Request::Command(command), doubts);
        match work.instrument(span).await? {
            Answer::Settled(Response::Reply(reply)) => Ok(reply),
            other => Err(Error::Protocol(format!("{other:?} as the answer to a command"))),
        }
    }

    /// A question that is no command.
    pub(crate) async fn ask(&self, request: Request) -> Result<Response, Error> {
        match self.exchange(0, request, Vec::new()).await? {
            Answer::Settled(response) | Answer::Mixed(response) => Ok(response),
        }
    }

    /// Sends a request until it is answered or the deadline is over. `doubts` is what it leaves in
    /// doubt; nothing for questions.
    pub(crate) async fn exchange(
        &self,
        shard: usize,
        request: Request,
        doubts: Vec<InDoubt>,
    ) -> Result<Answer, Error> {
        let settings = self.settings();
        let within = settings.request_timeout;
        let guard = self.shared.register.begin(doubts)?;
        let retry_busy = settings.when_busy == WhenBusy::Retry;
        let machine = Exchange::new(!guard.0.doubts.is_empty(), retry_busy);
        let driver = Driver {
            client: self,
            call: &guard.0,
            shard,
            request: &request,
            deadline: Instant::now() + within,
            backoff: self.shared.slots.backoff(),
            open: Vec::new(),
            attempts: 0,
            last: Pick::Other,
        };
        let end = driver.run(machine).await?;
        if matches!(end, End::InDoubt | End::NoAnswer | End::NotReached(_) | End::Closed) {
            self.shared.register.ended(&guard.0, end == End::InDoubt);
        }
        match end {
            End::Answer(response) => Ok(Answer::Settled(response)),
            End::Mixed(response) => Ok(Answer::Mixed(response)),
            End::InDoubt => match guard.0.doubts.first() {
                Some(doubt) => Err(Error::InDoubt(doubt.clone())),
                None => Err(Error::NoAnswer(within)),
            },
            End::Server { code, message } => Err(Error::Server { code, message }),
            End::NoAnswer => Err(Error::NoAnswer(within)),
            End::NotReached(why) => {
                let address = settings.addresses.join(", ");
                Err(Error::NotReached { address, within, why })
            }
            End::Full => Err(Error::Full),
            End::Closed => Err(Error::Closed),
        }
    }

    /// Takes no new calls, waits up to `grace` for those that run, ends the rest, and says what is
    /// left in doubt.
    pub async fn shutdown(&self, grace: Duration) -> ShutdownReport {
        let report = self.shared.register.close(grace).await;
        self.shared.slots.clear().await;
        report
    }
}

/// How a call was answered.
#[derive(Debug)]
pub(crate) enum Answer {
    Settled(Response),
    /// To many reserves: what is rejected may be contradicted by an attempt that is lost.
    Mixed(Response),
}

impl Driver<'_> {
    async fn run(mut self, mut machine: Exchange) -> Result<End, Error> {
        let mut stop = self.client.shared.register.stopped();
        let mut step = Step::Attempt { pick: Pick::Usual, after: After::Now };
        loop {
            let (pick, at) = match step {
                Step::End(end) => return Ok(end),
                Step::Wait => (None, Instant::now()),
                Step::Attempt { pick, after } => (Some(pick), self.when(after)),
            };
            // There is no time for it, and nothing else to wait for.
            if at >= self.deadline && self.open.is_empty() {
                step = machine.on(Input::Deadline);
                continue;
            }
            let Self { client, shard, request, deadline, last, .. } = self;
            let open = &mut self.open;
            let attempt_timeout = client.settings().attempt_timeout;
            let silent_at = open.last().map_or(deadline, |attempt| attempt.since + attempt_timeout);
            let work = async {
                match pick {
                    Some(pick) => {
                        tokio::time::sleep_until(at).await;
                        let pick = if pick == Pick::Other { other(last) } else { pick };
                        Done::Began(pick, begin(client, shard, pick, request).await)
                    }
                    None => {
                        tokio::time::sleep_until(silent_at).await;
                        Done::Silent
                    }
                }
            };
            let done = tokio::select! {
                biased;
                done = std::future::poll_fn(|cx| poll_open(open, cx)) => done,
                _ = stop.wait_for(|stop| *stop) => Done::Closed,
                () = tokio::time::sleep_until(deadline) => Done::Deadline,
                done = work => done,
            };
            step = self.take(done, &mut machine)?;
            if machine.in_doubt() {
                self.call.set_handed();
            }
        }
    }

    fn when(&mut self, after: After) -> Instant {
        let wait = match after {
            After::Now => Duration::ZERO,
            After::Backoff => self.backoff.next_wait(),
            After::Hint(hint) => hint + crate::jitter::Jitter::new().below(hint / 4),
        };
        Instant::now() + wait
    }

    /// Tells the machine what happened.
    fn take(&mut self, done: Done, machine: &mut Exchange) -> Result<Step, Error> {
        let input = match done {
            Done::Began(pick, Ok(pending)) => {
                self.attempts += 1;
                self.last = pick;
                let (number, since) = (self.attempts, Instant::now());
                tracing::Span::current().record("attempt", number);
                if number > 1 {
                    tracing::debug!(attempt = number, ?pick, "asked again");
                }
                let epoch = pending.epoch();
                self.open.push(Attempt { number, pending, since });
                Input::Started { attempt: number, epoch }
            }
            Done::Began(_, Err(NotBegan::NotConnected(why))) => Input::NotConnected(why),
            Done::Began(_, Err(NotBegan::Full)) => return Ok(self.finish(Input::Full, machine)),
            Done::Answered(attempt, epoch, Ok(response)) => {
                Input::Answered { attempt, epoch, response }
            }
            Done::Answered(attempt, _, Err(Lost::Unsent(why))) => Input::Unsent { attempt, why },
            Done::Answered(attempt, _, Err(Lost::Sent(why))) => {
                tracing::warn!(attempt, why, "a connection was lost with a request on it");
                Input::Lost { attempt, why }
            }
            Done::Answered(_, _, Err(Lost::TooLarge { bytes, bytes_max })) => {
                return Err(Error::TooLarge { bytes, bytes_max });
            }
            Done::Silent => return Ok(self.silent(machine)),
            Done::Closed => return Ok(self.finish(Input::Closed, machine)),
            Done::Deadline => return Ok(self.finish(Input::Deadline, machine)),
        };
        Ok(machine.on(input))
    }

    /// The newest attempt has no answer.
    fn silent(&mut self, machine: &mut Exchange) -> Step {
        let timeout = self.client.settings().attempt_timeout;
        if let Some(attempt) = self.open.last_mut() {
            tracing::warn!(attempt = attempt.number, ?timeout, "no answer");
            attempt.pending.retire_if_silent_since(attempt.since);
            // Where the machine only waits, it looks again after as long.
            attempt.since = Instant::now();
        }
        if let Some(step) = self.take_back(machine) {
            return step;
        }
        machine.on(Input::Silent)
    }

    /// The call ends: what is still queued never leaves.
    fn finish(&mut self, input: Input, machine: &mut Exchange) -> Step {
        match self.take_back(machine) {
            Some(end) => end,
            None => machine.on(input),
        }
    }

    /// Takes attempts back that have not left. Gives the end of the call if that decides it.
    fn take_back(&mut self, machine: &mut Exchange) -> Option<Step> {
        let mut at = 0;
        while at < self.open.len() {
            if !self.open[at].pending.take_back() {
                at += 1;
                continue;
            }
            let attempt = self.open.remove(at).number;
            let why = "the server does not take requests in time".into();
            if let end @ Step::End(_) = machine.on(Input::Unsent { attempt, why }) {
                return Some(end);
            }
        }
        None
    }
}

/// What a driver waited for.
enum Done {
    Began(Pick, Result<Pending, NotBegan>),
    Answered(u32, u64, Result<Response, Lost>),
    Silent,
    Closed,
    Deadline,
}

enum NotBegan {
    NotConnected(String),
    Full,
}

const fn other(last: Pick) -> Pick {
    match last {
        Pick::Usual => Pick::Other,
        Pick::Other => Pick::Usual,
    }
}

async fn begin(
    client: &Client,
    shard: usize,
    pick: Pick,
    request: &Request,
) -> Result<Pending, NotBegan> {
    let connection = client.shared.slots.connection(shard, pick).await;
    let connection = connection.map_err(|error| NotBegan::NotConnected(error.to_string()))?;
    let wait = client.settings().when_full == WhenFull::Wait;
    match connection.start(request.clone(), wait).await {
        Ok(pending) => Ok(pending),
        Err(NotStarted::Full) => Err(NotBegan::Full),
        Err(NotStarted::Gone(why)) => Err(NotBegan::NotConnected(why)),
    }
}

/// The first answer of any open attempt.
fn poll_open(open: &mut Vec<Attempt>, cx: &mut Context<'_>) -> Poll<Done> {
    for at in 0..open.len() {
        if let Poll::Ready(result) = open[at].pending.poll(cx) {
            let Attempt { number, pending, .. } = open.remove(at);
            return Poll::Ready(Done::Answered(number, pending.epoch(), result));
        }
    }
    Poll::Pending
}

fn verb_of(command: &Command) -> &'static str {
    match command {
        Command::Reserve(_) => "reserve",
        Command::Confirm { .. } => "confirm",
        Command::Cancel { .. } => "cancel",
        Command::Withdraw { .. } => "withdraw",
        Command::Extend { .. } => "extend",
        Command::Return(_) => "return",
        Command::OrderGet(_) => "order",
        Command::Status { .. } => "status",
        Command::UserGet { .. } => "user",
        Command::OrderList(_) => "orders",
        Command::SkuGet { .. } => "sku",
        Command::SaleGet(_) => "sale",
        Command::SaleList => "sales",
        Command::SalePut(_) => "sale_put",
        Command::SalePause(_) => "sale_pause",
        Command::SaleResume(_) => "sale_resume",
        Command::SaleClose(_) => "sale_close",
        Command::Adjust(_) => "adjust",
    }
}
