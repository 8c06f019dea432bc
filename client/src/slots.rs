//! The places for connections: which one a call takes, and when a lost one is made anew.
//!
//! Each shard has `connections_per_shard` places for connections to its own port, and one spare for
//! requests that are asked again while their first connection is silent; the spare goes to the
//! common port, so that it does not share a fate with the others. A place makes one attempt to
//! connect at a time, with waits that grow and are spread, however many calls wait for it.

use crate::builder::ClientBuilder;
use crate::client::Topology;
use crate::connection::Connection;
use crate::exchange::Pick;
use crate::jitter::Backoff;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::Mutex;
use tokio::time::Instant;

struct Slot {
    connection: Option<Connection>,
    backoff: Backoff,
    /// No attempt to connect before.
    not_before: Option<Instant>,
}

type SharedSlot = Arc<Mutex<Slot>>;

/// See the module.
pub(crate) struct Slots {
    settings: ClientBuilder,
    slots: RwLock<Vec<SharedSlot>>,
    turn: AtomicUsize,
    /// The address that was reached last.
    address: AtomicUsize,
    topology: RwLock<Arc<Topology>>,
}

impl Slots {
    pub fn new(settings: ClientBuilder) -> Self {
        Self {
            settings,
            slots: RwLock::default(),
            turn: AtomicUsize::new(0),
            address: AtomicUsize::new(0),
            topology: RwLock::default(),
        }
    }

    pub fn settings(&self) -> &ClientBuilder {
        &self.settings
    }

    /// What is known of the server now.
    pub fn topology(&self) -> Arc<Topology> {
        self.topology.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn learn(&self, connection: &Connection, address: &str) {
        let host = address.rsplit_once(':').map_or("127.0.0.1", |(host, _)| host);
        let topology = Topology::of(&connection.welcome, host);
        let mut known = self.topology.write().unwrap_or_else(PoisonError::into_inner);
        if known.epoch != topology.epoch {
            tracing::debug!(epoch = topology.epoch, ports = ?topology.shard_ports, "topology");
        }
        *known = Arc::new(topology);
    }

    fn slot(&self, shard: usize, pick: Pick) -> (SharedSlot, bool) {
        let per_shard = self.settings.connections_per_shard;
        let spare = pick == Pick::Other;
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % per_shard;
        let at = shard * (per_shard + 1) + if spare { per_shard } else { turn };
        if let Some(slot) = self.slots.read().unwrap_or_else(PoisonError::into_inner).get(at) {
            return (slot.clone(), spare);
        }
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        while slots.len() <= at {
            slots.push(Arc::new(Mutex::new(Slot {
                connection: None,
                backoff: self.backoff(),
                not_before: None,
            })));
        }
        (slots[at].clone(), spare)
    }

    pub fn backoff(&self) -> Backoff {
        Backoff::new(self.settings.backoff_base, self.settings.backoff_cap)
    }

    /// An open connection for a shard. Waits while its place is backing off.
    pub async fn connection(&self, shard: usize, pick: Pick) -> std::io::Result<Connection> {
        let (slot, spare) = self.slot(shard, pick);
        let mut slot = slot.lock().await;
        if let Some(connection) = &slot.connection {
            if connection.is_open() {
                return Ok(connection.clone());
            }
            slot.not_before = slot.not_before.max(connection.come_back());
            slot.connection = None;
        }
        if let Some(not_before) = slot.not_before {
            tokio::time::sleep_until(not_before).await;
        }
        match if spare { self.common().await } else { self.direct(shard).await } {
            Ok(connection) => {
                slot.backoff.reset();
                slot.not_before = None;
                slot.connection = Some(connection.clone());
                Ok(connection)
            }
            Err(error) => {
                let wait = slot.backoff.next_wait();
                slot.not_before = Some(Instant::now() + wait);
                Err(error)
            }
        }
    }

    /// To the shard's own port, or to the common one where that is not reached: a request at the
    /// wrong shard is forwarded.
    async fn direct(&self, shard: usize) -> std::io::Result<Connection> {
        let own = |topology: &Topology| {
            topology.shard_ports.get(shard).map(|port| format!("{}:{port}", topology.host))
        };
        let before = own(&self.topology());
        if let Some(address) = &before
            && let Ok(connection) = Connection::open(address, &self.settings, None).await
        {
            self.learn(&connection, address);
            return Ok(connection);
        }
        // The shards' ports change with a restart; the common one says where they are.
        let connection = self.common().await?;
        if let Some(address) = own(&self.topology()).filter(|now| Some(now) != before.as_ref())
            && let Ok(direct) = Connection::open(&address, &self.settings, None).await
        {
            return Ok(direct);
        }
        Ok(connection)
    }

    /// To a common port: the one that was reached last, or the next.
    pub async fn common(&self) -> std::io::Result<Connection> {
        self.common_with(None).await
    }

    pub async fn common_with(
        &self,
        pushes: Option<Arc<crate::feed::PushQueue>>,
    ) -> std::io::Result<Connection> {
        let addresses = &self.settings.addresses;
        let first = self.address.load(Ordering::Relaxed);
        let mut failure = std::io::Error::other("there is no address");
        for step in 0..addresses.len() {
            let at = (first + step) % addresses.len();
            match Connection::open(&addresses[at], &self.settings, pushes.clone()).await {
                Ok(connection) => {
                    self.address.store(at, Ordering::Relaxed);
                    self.learn(&connection, &addresses[at]);
                    return Ok(connection);
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Gives every connection up; each ends when nobody waits for an answer on it.
    pub async fn clear(&self) {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner).clone();
        for slot in slots {
            // A place that is connecting at this moment is given up by the call that does it.
            if let Ok(mut slot) = slot.try_lock() {
                slot.connection = None;
            }
        }
    }
}
