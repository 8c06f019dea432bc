//! Settings of a client.

use crate::client::Client;
use crate::error::Error;
use std::time::Duration;

/// What a call does when its connection has `in_flight_max` calls already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// Wait, within the deadline.
    Wait,
    /// Fail with [`Error::Full`]; nothing was sent.
    FailFast,
}

/// What a call does when the answer is `busy` or `throttled`: nothing was done, and the answer says
/// when to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenBusy {
    /// Give that answer to the caller.
    Answer,
    /// Ask again after the hint as long as the deadline allows; then give the last such answer.
    Retry,
}

/// Settings; [`Self::connect`] makes the client.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until connect"]
pub struct ClientBuilder {
    /// At least one.
    pub(crate) addresses: Vec<String>,
    pub(crate) token: String,
    pub(crate) name: String,
    pub(crate) connect_timeout: Duration,
    pub(crate) request_timeout: Duration,
    pub(crate) attempt_timeout: Duration,
    pub(crate) in_flight_max: usize,
    pub(crate) orphans_max: usize,
    pub(crate) when_full: WhenFull,
    pub(crate) when_busy: WhenBusy,
    pub(crate) backoff_base: Duration,
    pub(crate) backoff_cap: Duration,
    pub(crate) frame_crc: bool,
    pub(crate) sale_cache: Option<Duration>,
    pub(crate) connections_per_shard: usize,
}

impl ClientBuilder {
    /// Settings for a server's common address (`host:port`).
    pub fn new(address: impl Into<String>) -> Self {
        Self {
            addresses: vec![address.into()],
            token: String::new(),
            name: "stockade-client".into(),
            connect_timeout: Duration::from_secs(1),
            request_timeout: Duration::from_secs(5),
            attempt_timeout: Duration::from_millis(1500),
            in_flight_max: 1024,
            orphans_max: 256,
            when_full: WhenFull::Wait,
            when_busy: WhenBusy::Answer,
            backoff_base: Duration::from_millis(10),
            backoff_cap: Duration::from_secs(1),
            frame_crc: false,
            sale_cache: None,
            connections_per_shard: 1,
        }
    }

    /// The token, where the server asks for one.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = token.into();
        self
    }

    /// The program's name, for the server's log.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Another address of the same engine (a second name, a proxy), tried when the ones before it
    /// are not reached.
    pub fn also(mut self, address: impl Into<String>) -> Self {
        self.addresses.push(address.into());
        self
    }

    /// How long one attempt to connect may take. Default: 1 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long a call may take in all, retries included. Default: 5 s.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// How long a request may be without an answer before it is asked again, with the same request
    /// id and on another connection. The first answer counts. Default: 1.5 s.
    pub fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.attempt_timeout = timeout.max(Duration::from_millis(1));
        self
    }

    /// The waits between attempts on lost connections, and between attempts to connect: evenly
    /// spread below a bound that begins with `base` and doubles up to `cap`. Default: 10 ms, 1 s.
    pub fn backoff(mut self, base: Duration, cap: Duration) -> Self {
        self.backoff_base = base.max(Duration::from_millis(1));
        self.backoff_cap = cap.max(self.backoff_base);
        self
    }

    /// What to do when the engine has no time now. Default: give the answer.
    pub fn when_busy(mut self, when_busy: WhenBusy) -> Self {
        self.when_busy = when_busy;
        self
    }

    /// Requests on one connection that were given up unanswered (their futures were dropped, or
    /// their deadlines passed). Each takes a place in flight until its answer comes; a connection
    /// with more of them is replaced. Never more than `in_flight_max - 1`. Default: 256.
    pub fn orphans_max(mut self, count: usize) -> Self {
        self.orphans_max = count;
        self
    }

    /// Remembers for so long (2 s at most) that a sale has not started, is paused or over, or a SKU
    /// sold out, and lets [`Client::reserve_new`] answer from that without a packet. Changes of the
    /// catalog and of stock are pushed and reopen it at once; units of cancelled and expired orders
    /// are seen when the time is over. Default: no.
    pub fn sale_cache(mut self, ttl: Duration) -> Self {
        self.sale_cache = Some(ttl.min(crate::sale_cache::TTL_MAX));
        self
    }

    /// A CRC-32C on every frame to the server, for networks that are not to be trusted with
    /// checksums of their own. Default: no.
    pub fn frame_crc(mut self, crc: bool) -> Self {
        self.frame_crc = crc;
        self
    }

    /// Calls in flight on one connection, those that were given up included. The server's own
    /// bound holds too. Default: 1024.
    pub fn in_flight_max(mut self, count: usize) -> Self {
        self.in_flight_max = count.max(1);
        self
    }

    /// What to do at that bound. Default: wait.
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.when_full = when_full;
        self
    }

    /// Connections to each shard. Default: 1.
    pub fn connections_per_shard(mut self, count: usize) -> Self {
        self.connections_per_shard = count.clamp(1, 64);
        self
    }

    /// Connects to the server and learns its shards.
    ///
    /// # Errors
    /// Not reached within the request timeout, or refused.
    pub async fn connect(self) -> Result<Client, Error> {
        Client::connect(self).await
    }
}
