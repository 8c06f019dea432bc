//! The tables, and how they come to be: numbered steps, each in its own transaction, each run once.
//!
//! `schema_version` says which steps were taken; `layout` says for which counts. Cursor rows are
//! made here and nowhere else, so that a writer can treat a missing one as damage.

use super::classify::classify;
use crate::layout::Layout;
use crate::sink::error::SetupError;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

/// The newest step.
const VERSION: i64 = 1;

/// The statements of a step.
fn step(version: i64, layout: &Layout, index: u16) -> Vec<String> {
    match version {
        1 => first(layout, index),
        _ => Vec::new(),
    }
}

fn first(layout: &Layout, index: u16) -> Vec<String> {
    let mut out = Vec::new();
    for table in 0..layout.tables {
        let suffix = layout.suffix(table);
        out.push(format!(
            "CREATE TABLE orders{suffix} (
  order_id INTEGER PRIMARY KEY,
  sale_id INTEGER NOT NULL,
  user_id INTEGER NOT NULL,
  state INTEGER NOT NULL CHECK (state BETWEEN 1 AND 5),
  request_id TEXT NOT NULL,
  payment_ref TEXT,
  data BLOB,
  partition_id INTEGER NOT NULL,
  lsn INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  expires_at INTEGER,
  updated_at INTEGER NOT NULL
) STRICT"
        ));
        out.push(format!(
            "CREATE INDEX orders{suffix}_user_created ON orders{suffix} (user_id, created_at)"
        ));
        out.push(format!(
            "CREATE INDEX orders{suffix}_sale_state ON orders{suffix} (sale_id, state)"
        ));
        out.push(format!(
            "CREATE TABLE order_lines{suffix} (
  order_id INTEGER NOT NULL,
  sku_id INTEGER NOT NULL,
  qty INTEGER NOT NULL CHECK (qty > 0),
  returned_qty INTEGER NOT NULL CHECK (returned_qty BETWEEN 0 AND qty),
  PRIMARY KEY (order_id, sku_id)
) STRICT, WITHOUT ROWID"
        ));
    }
    let shared = [
        "CREATE TABLE late_payments (
  order_id INTEGER NOT NULL,
  payment_ref TEXT NOT NULL,
  reason TEXT NOT NULL,
  at INTEGER NOT NULL,
  PRIMARY KEY (order_id, payment_ref)
) STRICT, WITHOUT ROWID",
        "CREATE TABLE refused_orders (
  order_id INTEGER PRIMARY KEY,
  sale_id INTEGER,
  user_id INTEGER,
  lines TEXT NOT NULL,
  class TEXT NOT NULL,
  code TEXT NOT NULL,
  message TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('open', 'sent', 'done', 'reviewed')),
  at INTEGER NOT NULL
) STRICT",
        "CREATE INDEX refused_orders_state ON refused_orders (state, at)",
        "CREATE TABLE sales (
  sale_id INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  opens_at INTEGER NOT NULL,
  closes_at INTEGER,
  state INTEGER NOT NULL CHECK (state BETWEEN 1 AND 5),
  definition TEXT NOT NULL
) STRICT",
        "CREATE TABLE skus (
  sale_id INTEGER NOT NULL,
  sku_id INTEGER NOT NULL,
  total INTEGER NOT NULL,
  labels TEXT NOT NULL,
  PRIMARY KEY (sale_id, sku_id)
) STRICT, WITHOUT ROWID",
        "CREATE TABLE cursors (
  partition_id INTEGER PRIMARY KEY,
  epoch INTEGER NOT NULL,
  lsn INTEGER NOT NULL,
  owner TEXT NOT NULL,
  event_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL
) STRICT",
        "CREATE TABLE repairs (
  at INTEGER NOT NULL,
  reason TEXT NOT NULL,
  what TEXT NOT NULL
) STRICT",
        "CREATE TABLE layout (
  database_index INTEGER PRIMARY KEY,
  databases INTEGER NOT NULL,
  tables INTEGER NOT NULL,
  partitions INTEGER NOT NULL
) STRICT",
    ];
    out.extend(shared.map(String::from));
    out.push(format!(
        "INSERT INTO layout VALUES ({index}, {}, {}, {})",
        layout.databases, layout.tables, layout.partitions
    ));
    for partition in layout.partitions_of(index) {
        out.push(format!("INSERT INTO cursors VALUES ({partition}, 0, 0, '', 0, 0)"));
    }
    out
}

const VERSION_TABLE: &str = "CREATE TABLE IF NOT EXISTS schema_version (
  version INTEGER PRIMARY KEY,
  applied_at INTEGER NOT NULL
) STRICT";

fn version_row(version: i64) -> String {
    format!("INSERT INTO schema_version VALUES ({version}, unixepoch() * 1000000)")
}

/// All statements, in order, for those who run them by hand.
pub fn ddl(layout: &Layout, index: u16) -> Vec<String> {
    let mut out = vec![VERSION_TABLE.to_owned()];
    for version in 1..=VERSION {
        out.extend(step(version, layout, index));
        out.push(version_row(version));
    }
    out
}

/// Takes the missing steps, then checks the layout.
pub fn migrate(
    connection: &mut Connection,
    layout: &Layout,
    index: u16,
    name: &str,
) -> Result<(), SetupError> {
    let failed = |error| SetupError::Sink { name: name.into(), source: classify(error) };
    loop {
        let version = one_step(connection, layout, index).map_err(failed)?;
        if version > VERSION {
            return Err(SetupError::Newer { name: name.into(), found: version, known: VERSION });
        }
        if version == VERSION {
            break;
        }
    }
    match self::layout(connection).map_err(failed)? {
        Some(found) if found == (*layout, index) => Ok(()),
        Some((found, found_index)) => {
            Err(SetupError::layout(name.into(), &found, found_index, layout, index))
        }
        None => Err(SetupError::Empty(name.into())),
    }
}

/// Takes the next step, if there is one; returns the version before it.
fn one_step(connection: &mut Connection, layout: &Layout, index: u16) -> rusqlite::Result<i64> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute(VERSION_TABLE, [])?;
    let sql = "SELECT coalesce(max(version), 0) FROM schema_version";
    let version: i64 = transaction.query_row(sql, [], |row| row.get(0))?;
    if version < VERSION {
        for statement in step(version + 1, layout, index) {
            transaction.execute(&statement, [])?;
        }
        transaction.execute(&version_row(version + 1), [])?;
    }
    transaction.commit()?;
    Ok(version)
}

/// The layout that the data was written with; `None` in an empty database.
pub fn layout(connection: &Connection) -> rusqlite::Result<Option<(Layout, u16)>> {
    let sql = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'layout'";
    let tables: i64 = connection.query_row(sql, [], |row| row.get(0))?;
    if tables == 0 {
        return Ok(None);
    }
    let sql = "SELECT databases, tables, partitions, database_index FROM layout";
    connection
        .query_row(sql, [], |row| {
            let layout =
                Layout { databases: row.get(0)?, tables: row.get(1)?, partitions: row.get(2)? };
            Ok((layout, row.get(3)?))
        })
        .optional()
}
