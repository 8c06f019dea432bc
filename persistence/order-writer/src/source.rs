//! What a lane needs of the engine: the feed from its cursors on, acknowledgements, and commands
//! for orders that SQL refused. The real one is in `feed`; tests bring their own.

use std::collections::BTreeMap;
use std::time::Duration;
use stockade_protocol::{Command, Entry, Lsn, PartitionId, Reply};

/// What the feed gives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Run {
    /// Entries of one partition, in order.
    Entries(Vec<Entry>),
    /// These are gone.
    Gap {
        /// The partition.
        partition: PartitionId,
        /// First missing.
        from: Lsn,
        /// Last missing.
        to: Lsn,
    },
}

/// The engine could not be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SourceError {
    /// It cannot be reached, or the connection broke: connect again.
    #[error("engine away: {0}")]
    Away(String),
    /// It is not the engine that these databases follow, or sent what cannot be read.
    #[error("{0}")]
    Wrong(String),
}

/// A connection to the engine with one subscription.
pub trait Source: Send {
    /// The next run; `None` where nothing came within `wait`.
    ///
    /// # Errors
    /// See [`SourceError`].
    fn next(&mut self, wait: Duration) -> Result<Option<Run>, SourceError>;

    /// Everything up to these LSNs is in SQL for good.
    ///
    /// # Errors
    /// See [`SourceError`].
    fn ack(&mut self, cursors: &[(PartitionId, Lsn)]) -> Result<(), SourceError>;

    /// Has a command decided.
    ///
    /// # Errors
    /// See [`SourceError`].
    fn call(&mut self, command: Command) -> Result<Reply, SourceError>;

    /// Per partition, what is committed now.
    ///
    /// # Errors
    /// See [`SourceError`].
    fn committed(&mut self) -> Result<BTreeMap<PartitionId, Lsn>, SourceError>;
}

/// Makes connections.
pub trait Connect: Send {
    /// Connects and subscribes from these LSNs (inclusive).
    ///
    /// # Errors
    /// See [`SourceError`].
    fn connect(&mut self, from: &[(PartitionId, Lsn)]) -> Result<Box<dyn Source>, SourceError>;
}
