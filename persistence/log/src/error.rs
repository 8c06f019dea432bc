//! What can go wrong, with the place where it did.

use std::path::PathBuf;

/// The data directory cannot be used. Each message is one plain sentence and says what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has the directory.
    #[error("{path} is in use by another process; stop it first, or give another --data-dir")]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// Bytes are not what they must be; nothing was changed.
    #[error("{file} is damaged at byte {offset}: {what}; restore the directory from a backup")]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Where in it.
        offset: u64,
        /// What was found.
        what: String,
    },
    /// A file that this directory did not make, or not under this name.
    #[error("{file} does not belong here: {what}; move it away, or restore the directory")]
    Foreign {
        /// The file.
        file: PathBuf,
        /// What tells.
        what: String,
    },
    /// A file of a version that this release does not read.
    #[error(
        "{file} has version {found}, this release reads version {known}; use one that reads it"
    )]
    Version {
        /// The file.
        file: PathBuf,
        /// The file's version.
        found: u32,
        /// The version that is read.
        known: u32,
    },
    /// The directory was made with other settings.
    #[error("{path} was made with {what} {made}, not {asked}; start with --{what} {made}")]
    Settings {
        /// The directory.
        path: PathBuf,
        /// The setting.
        what: &'static str,
        /// Its value in the directory.
        made: String,
        /// Its value asked for.
        asked: String,
    },
    /// Journal and archive together do not cover what the floor file promises.
    #[error("{path}: entries {from}..={to} of partition {partition} are missing; restore a backup")]
    Missing {
        /// The directory.
        path: PathBuf,
        /// The partition.
        partition: u16,
        /// First missing LSN.
        from: u64,
        /// Last missing LSN.
        to: u64,
    },
    /// The operating system refused.
    #[error("cannot {doing} {path}: {source}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The archive could not be opened or read.
    #[error("archive {path}: {what}")]
    Archive {
        /// The archive's directory.
        path: PathBuf,
        /// What it said.
        what: String,
    },
}

/// A commit did not become durable: the engine stops. Nothing is acknowledged later as if nothing
/// had happened.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {path}: {source}")]
pub struct CommitError {
    /// What was tried.
    pub doing: &'static str,
    /// On which file.
    pub path: PathBuf,
    /// Why it failed.
    pub source: std::io::Error,
}

/// Reading, cursors, trimming.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// More consumers than `CONSUMERS_MAX`.
    #[error("there are 64 consumers already; drop one with `feed drop NAME`")]
    TooManyConsumers,
    /// No consumer of this name.
    #[error("there is no consumer of this name")]
    UnknownConsumer,
    /// A cursor beyond what is committed, or before what it was.
    #[error("cursor {lsn} of partition {partition} is not between {from} and {to}")]
    Cursor {
        /// The partition.
        partition: u16,
        /// What was asked.
        lsn: u64,
        /// Least.
        from: u64,
        /// Most.
        to: u64,
    },
    /// The operating system or the archive failed.
    #[error("{0}")]
    Failed(String),
}
