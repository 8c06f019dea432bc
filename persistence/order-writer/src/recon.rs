//! Reconciliation: SQL against the log, row by row, at one vector of LSNs.
//!
//! The vector is the cursors of the databases, read in the same transaction as the rows; the log is
//! read up to it and folded, one partition at a time. Databases over a network compute checksums of
//! ranges of orders, and only ranges that differ from the log's are read row by row. The log wins.
//! Orders in `refused_orders` are left out: they are the agreed difference.

pub mod books;
pub mod compare;
pub mod diff;
mod digest;
pub mod fix;
pub mod live;
pub mod log;
pub mod report;
pub mod tally;

use crate::layout::Layout;
use crate::sink::{Database, SinkError};
use crate::source::{Connect, SourceError};
use std::sync::Arc;

/// What reconciliation works on.
pub struct Recon<'a> {
    /// How the databases were written.
    pub layout: Layout,
    /// The databases, in the order of the layout.
    pub databases: &'a [Arc<dyn Database>],
    /// The way to the engine, as a reader without a name.
    pub connect: &'a mut dyn Connect,
    /// Count units by SKU and state in SQL as well, for a report.
    pub tally: bool,
}

impl std::fmt::Debug for Recon<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recon").field("layout", &self.layout).finish_non_exhaustive()
    }
}

/// Why it could not be compared or repaired.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReconError {
    /// The database.
    #[error("{name}: {source}")]
    Sink {
        /// Which.
        name: String,
        /// How.
        source: SinkError,
    },
    /// The engine.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A partition's cursor moved each time; stop the writer and try again.
    #[error("partition {0} does not hold still; stop the writer for the repair")]
    Moving(stockade_protocol::PartitionId),
}

impl ReconError {
    fn sink(database: &dyn Database) -> impl Fn(SinkError) -> Self + '_ {
        move |source| Self::Sink { name: database.name(), source }
    }
}
