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

/// Settings; [`Self::connect`] makes the client.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until connect"]
pub struct ClientBuilder {
    pub(crate) address: String,
    pub(crate) token: String,
    pub(crate) name: String,
    pub(crate) connect_timeout: Duration,
    pub(crate) request_timeout: Duration,
    pub(crate) in_flight_max: usize,
    pub(crate) when_full: WhenFull,
    pub(crate) connections_per_shard: usize,
}

impl ClientBuilder {
    /// Settings for a server's common address (`host:port`).
    pub fn new(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            token: String::new(),
            name: "stockade-client".into(),
            connect_timeout: Duration::from_secs(1),
            request_timeout: Duration::from_secs(5),
            in_flight_max: 1024,
            when_full: WhenFull::Wait,
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

    /// Calls in flight on one connection. Default: 1024.
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
