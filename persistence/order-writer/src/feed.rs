//! The engine as the writer uses it: connections of its binary protocol with one subscription each.
//!
//! Every lane has a connection of its own, on its own thread, so reads block and nothing is shared.
//! What is pushed and not taken yet is bounded by the credit of the subscription.

mod connection;

use crate::lane::Stop;
use crate::source::{Connect, Source, SourceError};
use connection::{CREDIT_BYTES, Connection};
use std::collections::BTreeMap;
use stockade_protocol::text::{ConsumerName, TextError};
use stockade_protocol::wire::{FeedFrom, Request, Response, Subscribe};
use stockade_protocol::{Lsn, PartitionId};

/// Where an engine is, and as whom the writer reads its feed.
#[derive(Clone, Debug)]
pub struct Engine {
    server: String,
    token: String,
    consumer: ConsumerName,
}

impl Engine {
    /// The engine at an address; nothing is connected yet. An empty token is none.
    ///
    /// # Errors
    /// The consumer's name is malformed.
    pub fn new(server: &str, token: &str, consumer: &str) -> Result<Self, TextError> {
        let consumer = ConsumerName::new(consumer.as_bytes())?;
        Ok(Self { server: server.into(), token: token.into(), consumer })
    }

    fn open(&self) -> Result<Connection, SourceError> {
        Connection::open(&self.server, &self.token, &self.consumer)
    }

    /// How many partitions of users the engine has.
    ///
    /// # Errors
    /// It is away, or refuses.
    pub fn partitions(&self) -> Result<u16, SourceError> {
        Ok(self.open()?.welcome.partition_count)
    }

    /// What is committed in each partition, as far as any consumer is registered.
    ///
    /// # Errors
    /// It is away, or refuses.
    pub fn committed(&self) -> Result<BTreeMap<PartitionId, Lsn>, SourceError> {
        self.open()?.committed()
    }

    /// Connections that read as the consumer: what it did not acknowledge is kept for it.
    pub fn follower(&self) -> Reader {
        Reader { engine: self.clone(), registers: true }
    }

    /// Connections that read without a name.
    pub fn reader(&self) -> Reader {
        Reader { engine: self.clone(), registers: false }
    }

    /// Sets `stop` at SIGTERM and SIGINT, from a thread that lives as long as the process.
    ///
    /// # Errors
    /// The signals cannot be caught.
    pub fn stop_on_signals(stop: &Stop) -> std::io::Result<()> {
        use tokio::signal::unix::{SignalKind, signal};
        let stop = stop.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let guard = runtime.enter();
        let (mut term, mut int) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        drop(guard);
        let wait = move || {
            runtime.block_on(async {
                tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
            });
            stop.set();
        };
        std::thread::Builder::new().name("signals".into()).spawn(wait).map(drop)
    }
}

/// Makes connections with a subscription.
#[derive(Clone, Debug)]
pub struct Reader {
    engine: Engine,
    registers: bool,
}

impl Connect for Reader {
    fn connect(&mut self, from: &[(PartitionId, Lsn)]) -> Result<Box<dyn Source>, SourceError> {
        let mut connection = self.engine.open()?;
        let count = connection.welcome.partition_count;
        let known = |p: &PartitionId| p.get() < count || *p == PartitionId::CATALOG;
        if let Some((unknown, _)) = from.iter().find(|(partition, _)| !known(partition)) {
            return Err(SourceError::Wrong(format!(
                "the engine has {count} partitions, the databases follow partition {unknown} too: \
                 it is another engine"
            )));
        }
        let subscribe = Subscribe {
            consumer: self.registers.then(|| self.engine.consumer.clone()),
            partitions: from.iter().map(|(partition, _)| *partition).collect(),
            from: FeedFrom::Lsns(from.to_vec()),
            credit_bytes: CREDIT_BYTES,
        };
        match connection.ask(&Request::Subscribe(subscribe))? {
            Response::Done => Ok(Box::new(connection)),
            other => Err(SourceError::Away(format!("unexpected answer to subscribe: {other:?}"))),
        }
    }
}
