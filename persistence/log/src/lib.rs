//! The append-only log: a commit journal per shard (answers leave after its fdatasync), an archive
//! in sled that follows it, and snapshots folded from the archive.
//!
//! Public surface: [`open`] recovers a data directory, [`Recovery::start`] begins the new epoch,
//! and from then on each shard's commit thread owns a [`Journal`] while everybody else shares a
//! [`Log`]. The bytes on disk are specified in `persistence/log/FORMAT.md`.

mod api;
mod archive;
mod consumers;
mod crash;
mod directory;
mod disk;
mod error;
mod files;
#[cfg(test)]
mod fixtures;
mod floor;
mod journal;
mod log;
mod pressure;
mod recovery;
mod runs;
mod sealed;
mod shared;
mod snapshot;
mod stepped;
mod storage;
pub mod testing;
mod verify;

pub use api::{Config, ConsumerCursor, Durability, Fold, ReadOutcome};
pub use archive::table::{Pair, Table, Tables};
pub use disk::{Disk, DiskFile, DiskLock, LocalDisk, OpenHow};
pub use error::{CommitError, LogError, OpenError};
pub use journal::Journal;
pub use log::Log;
pub use recovery::{Recovery, open, open_on};
pub use stepped::{SideWork, Stepped};
pub use storage::Storage;
pub use verify::{Report, dump, verify};
