//! What can go wrong with a database, in classes that the lane acts on.
//!
//! | class | what the lane does |
//! | --- | --- |
//! | away | drops the connection, waits, opens another, reads the cursors again; for ever |
//! | retry | the same, without a long wait |
//! | refused | finds the row, moves it to `refused_orders`, goes on |
//! | bug | stops and raises an alarm; no order is touched |

use crate::layout::Layout;
use std::time::{SystemTime, UNIX_EPOCH};
use stockade_protocol::ids::TimestampMs;

/// An error of a session.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SinkError {
    /// The database cannot be reached or cannot write now.
    #[error("database away: {code}: {message}")]
    Away {
        /// The database's code.
        code: String,
        /// Its words.
        message: String,
    },
    /// The transaction lost against another; it can be tried again at once.
    #[error("transaction must be tried again: {code}: {message}")]
    Retry {
        /// The database's code.
        code: String,
        /// Its words.
        message: String,
    },
    /// The database refuses a row.
    #[error("row refused: {code}: {message}")]
    Refused {
        /// Its place in the slice that was given, where the dialect can tell.
        at: Option<usize>,
        /// The database's code.
        code: String,
        /// Its words.
        message: String,
    },
    /// The schema, or the writer, is not what it should be.
    #[error("{code}: {message}")]
    Bug {
        /// The database's code, or `writer`.
        code: String,
        /// Its words.
        message: String,
    },
}

impl SinkError {
    /// A bug that the writer found itself.
    pub fn bug(message: impl Into<String>) -> Self {
        Self::Bug { code: "writer".into(), message: message.into() }
    }

    /// Names the row that was refused.
    #[must_use]
    pub fn at(self, place: usize) -> Self {
        match self {
            Self::Refused { code, message, .. } => Self::Refused { at: Some(place), code, message },
            other => other,
        }
    }
}

/// Units came back of a line that is not in SQL.
pub fn line_missing() -> SinkError {
    SinkError::bug(
        "units came back of an order's line that is not in SQL; `stockade-writer recon fix` puts \
         it back",
    )
}

/// Why a database cannot be used as asked. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SetupError {
    /// The address cannot be read.
    #[error("{0}")]
    Url(String),
    /// The data was written with other counts, or the databases come in another order.
    #[error(
        "{name} was written as database {found_index} of {found_databases} with {found_tables} \
         tables \
         and {found_partitions} partitions, not as {index} of {databases} with {tables} and \
         {partitions}; give --db {found_databases} times in the old order and --tables \
         {found_tables}, or write into new empty databases (the log \
         is read again from its oldest entry)"
    )]
    Layout {
        /// The database.
        name: String,
        /// As written.
        found_index: u16,
        /// As written.
        found_databases: u16,
        /// As written.
        found_tables: u16,
        /// As written.
        found_partitions: u16,
        /// As asked.
        index: u16,
        /// As asked.
        databases: u16,
        /// As asked.
        tables: u16,
        /// As asked.
        partitions: u16,
    },
    /// Never prepared.
    #[error("{0} holds no Stockade tables; start `stockade-writer run` on it first")]
    Empty(String),
    /// Made by a later version.
    #[error("{name} has schema version {found}, this program knows {known}: use the newer program")]
    Newer {
        /// The database.
        name: String,
        /// Its version.
        found: i64,
        /// Ours.
        known: i64,
    },
    /// The database failed.
    #[error("{name}: {source}")]
    Sink {
        /// The database.
        name: String,
        /// How.
        source: SinkError,
    },
}

impl SetupError {
    /// The refusal of other counts, or of another place, than the data was written with. Indexes
    /// count from 0.
    pub fn layout(
        name: String,
        found: &Layout,
        found_index: u16,
        asked: &Layout,
        index: u16,
    ) -> Self {
        Self::Layout {
            name,
            found_index: found_index + 1,
            found_databases: found.databases,
            found_tables: found.tables,
            found_partitions: found.partitions,
            index: index + 1,
            databases: asked.databases,
            tables: asked.tables,
            partitions: asked.partitions,
        }
    }
}

/// The last moment that every dialect can hold: 9999-12-31T23:59:59.999Z.
const MS_MAX: u64 = 253_402_300_799_999;

/// A moment in microseconds; what lies behind the year 9999 is the end of time, `i64::MAX`.
pub fn micros(at: TimestampMs) -> i64 {
    let ms = i64::try_from(at.get()).ok().filter(|_| at.get() <= MS_MAX);
    ms.map_or(i64::MAX, |ms| ms * 1000)
}

/// The wall clock, for columns that say when a row was written.
pub fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// A moment that may be none.
pub fn micros_or_none(at: TimestampMs) -> Option<i64> {
    (at != TimestampMs::NONE).then(|| micros(at))
}

/// Back from microseconds; negative ones become none.
pub fn from_micros(us: i64) -> TimestampMs {
    TimestampMs::new(u64::try_from(us).unwrap_or(0) / 1000)
}
