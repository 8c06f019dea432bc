//! SQLite as a sink: a file in WAL mode, `synchronous=FULL`, one connection and one writer.
//!
//! rusqlite with the bundled library, on the lane's own thread: row by row through prepared
//! statements it is as fast as statements of many rows, and a refused row names itself. A
//! checkpoint waits for 20,000 pages: the random pages of the (user, created) index would otherwise
//! be copied back again and again.

mod classify;
mod ledger;
mod schema;
mod session;

use super::error::{SetupError, SinkError};
use super::{Database, Session};
use crate::layout::Layout;
use classify::classify;
use rusqlite::{Connection, OpenFlags};
use std::path::PathBuf;
use std::time::Duration;

/// How long a lock of another connection is waited for.
const BUSY_MS: u64 = 5_000;
/// Pages of the WAL before it is copied back: 80 MB.
const CHECKPOINT_PAGES: i64 = 20_000;
/// Page cache of one connection, in KiB.
const CACHE_KIB: i64 = 128 << 10;
/// Prepared statements kept; one table needs five.
const STATEMENTS_MAX: usize = 1024;

/// A database file.
#[derive(Clone, Debug)]
pub struct SqliteDatabase {
    path: PathBuf,
}

impl SqliteDatabase {
    /// The database in this file; it is made when it is prepared.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    fn connect(&self, create: bool) -> Result<Connection, SinkError> {
        let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        if create {
            flags |= OpenFlags::SQLITE_OPEN_CREATE;
        }
        let open = || -> rusqlite::Result<Connection> {
            let connection = Connection::open_with_flags(&self.path, flags)?;
            connection.busy_timeout(Duration::from_millis(BUSY_MS))?;
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.pragma_update(None, "synchronous", "FULL")?;
            connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
            connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
            connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
            Ok(connection)
        };
        open().map_err(classify)
    }

    fn failed(&self, source: SinkError) -> SetupError {
        SetupError::Sink { name: self.name(), source }
    }
}

impl Database for SqliteDatabase {
    fn name(&self) -> String {
        format!("sqlite://{}", self.path.display())
    }

    fn prepare(&self, layout: &Layout, index: u16) -> Result<(), SetupError> {
        let mut connection = self.connect(true).map_err(|source| self.failed(source))?;
        schema::migrate(&mut connection, layout, index, &self.name())
    }

    fn layout(&self) -> Result<Option<(Layout, u16)>, SetupError> {
        if !self.path.exists() {
            return Ok(None);
        }
        let connection = self.connect(false).map_err(|source| self.failed(source))?;
        schema::layout(&connection).map_err(|error| self.failed(classify(error)))
    }

    fn open(&self, layout: &Layout) -> Result<Box<dyn Session>, SinkError> {
        let connection = self.connect(false)?;
        Ok(Box::new(session::SqliteSession::new(connection, *layout)))
    }

    fn reader(&self, layout: &Layout) -> Result<Box<dyn Session>, SinkError> {
        let connection = self.connect(false)?;
        connection.pragma_update(None, "query_only", true).map_err(classify)?;
        Ok(Box::new(session::SqliteSession::new(connection, *layout)))
    }

    fn ddl(&self, layout: &Layout, index: u16) -> Vec<String> {
        schema::ddl(layout, index)
    }
}

/// The statements that make the schema, without a file.
pub fn ddl(layout: &Layout, index: u16) -> Vec<String> {
    schema::ddl(layout, index)
}
