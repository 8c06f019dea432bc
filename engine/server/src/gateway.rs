//! The way from other threads (HTTP) to the shards.

use crate::busy;
use crate::hub::{Hub, Message, Origin};
use crate::metrics::{Gauges, render};
use crate::routing::{CATALOG_SHARD, Target};
use crate::session::{Gateway, ServerInfo};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::{Command, Reply};

/// See the module.
pub struct HubGateway {
    hub: Arc<Hub>,
    /// The shard that gathers the next answer of all shards.
    next: AtomicU16,
}

impl HubGateway {
    /// A way into the shards of this hub.
    pub fn new(hub: Arc<Hub>) -> Self {
        Self { hub, next: AtomicU16::new(0) }
    }
}

impl Gateway for HubGateway {
    fn submit(&self, command: Command, done: Box<dyn FnOnce(Reply) + Send>) {
        let shard = match self.hub.routing.target(&command) {
            Target::Shard(shard) => shard,
            Target::Catalog => CATALOG_SHARD,
            Target::All => self.next.fetch_add(1, Ordering::Relaxed) % self.hub.routing.shard_count,
        };
        let mailed = &self.hub.metrics[usize::from(shard)].mailed;
        if !self.is_ready() || mailed.load(Ordering::Relaxed) >= self.hub.limits.queue_max {
            return done(busy::reply(&command));
        }
        mailed.fetch_add(1, Ordering::Relaxed);
        let origin = Origin::Gateway(done);
        self.hub.mailboxes[usize::from(shard)].push(Message::Command { origin, command });
    }

    fn info(&self) -> Arc<ServerInfo> {
        self.hub.info.clone()
    }

    fn now(&self) -> TimestampMs {
        self.hub.clock.now()
    }

    fn metrics(&self) -> String {
        let log = &self.hub.log;
        let lag = |name: &stockade_protocol::text::ConsumerName| {
            let cursors = log.consumer_cursors(name).ok()?;
            let behind =
                |c: &stockade_log::ConsumerCursor| c.committed.get().saturating_sub(c.acked.get());
            Some((name.as_str().to_owned(), cursors.iter().map(behind).sum()))
        };
        let gauges = Gauges {
            feed_lag: log.consumers().iter().filter_map(lag).collect(),
            disk_bytes: log.disk_bytes(),
            pressure: log.pressure(),
            clock_steps: self.hub.clock.steps(),
            clock_ms: self.hub.clock.now().get(),
        };
        render(&self.hub.metrics, &gauges)
    }

    fn is_ready(&self) -> bool {
        self.hub.ready.load(Ordering::Acquire)
    }
}
