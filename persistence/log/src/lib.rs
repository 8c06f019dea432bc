//! The append-only log: a commit journal per shard (answers leave after its fdatasync), an archive in sled
//! that follows it, and snapshots folded from the archive.
//!
//! Public surface: [`open`] recovers a data directory, [`Recovery::start`] begins the new epoch, and from
//! then on each shard's commit thread owns a [`Journal`] while everybody else shares a [`Log`].
//! The bytes on disk are specified in `persistence/log/FORMAT.md`.

pub mod api;
pub mod error;

pub use api::{Config, ConsumerCursor, Durability, Fold, Journal, Log, ReadOutcome, Recovery, open};
pub use error::{CommitError, LogError, OpenError};
