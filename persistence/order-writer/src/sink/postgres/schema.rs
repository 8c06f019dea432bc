//! The tables, and how they come to be: numbered steps, each in its own transaction, each run once,
//! one migrator at a time.

use super::classify::classify;
use crate::layout::Layout;
use crate::sink::error::{SetupError, SinkError};
use crate::sink::remote::{self, STATEMENT_MAX};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Executor};
use tokio::runtime::Runtime;

/// The newest step.
const VERSION: i64 = 1;
/// The advisory lock of migrators: "stockade" in bytes.
const LOCK: i64 = 0x7374_6f63_6b61_6465;

/// The statements of a step.
fn step(version: i64, layout: &Layout, index: u16) -> Vec<String> {
    match version {
        1 => first(layout, index),
        _ => Vec::new(),
    }
}

fn tables(suffix: &str) -> [String; 4] {
    [
        format!(
            "CREATE TABLE orders{suffix} (
  order_id bigint PRIMARY KEY,
  sale_id bigint NOT NULL,
  user_id bigint NOT NULL,
  state smallint NOT NULL CHECK (state BETWEEN 1 AND 5),
  request_id text NOT NULL,
  payment_ref text,
  data bytea,
  partition_id integer NOT NULL,
  lsn bigint NOT NULL,
  created_at timestamptz NOT NULL,
  expires_at timestamptz,
  updated_at timestamptz NOT NULL
)"
        ),
        format!("CREATE INDEX orders{suffix}_user_created ON orders{suffix} (user_id, created_at)"),
        format!("CREATE INDEX orders{suffix}_sale_state ON orders{suffix} (sale_id, state)"),
        format!(
            "CREATE TABLE order_lines{suffix} (
  order_id bigint NOT NULL,
  sku_id bigint NOT NULL,
  qty bigint NOT NULL CHECK (qty > 0),
  returned_qty bigint NOT NULL CHECK (returned_qty BETWEEN 0 AND qty),
  PRIMARY KEY (order_id, sku_id)
)"
        ),
    ]
}

fn first(layout: &Layout, index: u16) -> Vec<String> {
    let suffixes = (0..layout.tables).map(|table| layout.suffix(table));
    let mut out: Vec<String> = suffixes.flat_map(|suffix| tables(&suffix)).collect();
    let shared = [
        "CREATE TABLE late_payments (
  order_id bigint NOT NULL,
  payment_ref text NOT NULL,
  reason text NOT NULL,
  at timestamptz NOT NULL,
  PRIMARY KEY (order_id, payment_ref)
)",
        "CREATE TABLE refused_orders (
  order_id bigint PRIMARY KEY,
  sale_id bigint,
  user_id bigint,
  lines text NOT NULL,
  class text NOT NULL,
  code text NOT NULL,
  message text NOT NULL,
  state text NOT NULL CHECK (state IN ('open', 'sent', 'done', 'reviewed')),
  at timestamptz NOT NULL
)",
        "CREATE INDEX refused_orders_state ON refused_orders (state, at)",
        "CREATE TABLE sales (
  sale_id bigint PRIMARY KEY,
  name text NOT NULL,
  opens_at timestamptz NOT NULL,
  closes_at timestamptz,
  state smallint NOT NULL CHECK (state BETWEEN 1 AND 5),
  definition text NOT NULL
)",
        "CREATE TABLE skus (
  sale_id bigint NOT NULL,
  sku_id bigint NOT NULL,
  total bigint NOT NULL,
  labels text NOT NULL,
  PRIMARY KEY (sale_id, sku_id)
)",
        "CREATE TABLE cursors (
  partition_id integer PRIMARY KEY,
  epoch bigint NOT NULL,
  lsn bigint NOT NULL,
  owner text NOT NULL,
  event_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL
) WITH (fillfactor = 50)",
        "CREATE TABLE repairs (
  at timestamptz NOT NULL,
  reason text NOT NULL,
  what text NOT NULL
)",
        "CREATE TABLE layout (
  database_index integer PRIMARY KEY,
  databases integer NOT NULL,
  tables integer NOT NULL,
  partitions integer NOT NULL
)",
    ];
    out.extend(shared.map(String::from));
    out.push(format!(
        "INSERT INTO layout VALUES ({index}, {}, {}, {})",
        layout.databases, layout.tables, layout.partitions
    ));
    let rows = layout.partitions_of(index).into_iter();
    let rows = rows.map(|partition| format!("({partition}, 0, 0, '', 'epoch', 'epoch')"));
    out.push(format!("INSERT INTO cursors VALUES {}", rows.collect::<Vec<_>>().join(", ")));
    out
}

const VERSION_TABLE: &str = "CREATE TABLE schema_version (
  version bigint PRIMARY KEY,
  applied_at timestamptz NOT NULL
)";

fn version_row(version: i64) -> String {
    format!("INSERT INTO schema_version VALUES ({version}, now())")
}

/// All statements, in order, for those who run them by hand.
pub(super) fn ddl(layout: &Layout, index: u16) -> Vec<String> {
    let mut out = vec![VERSION_TABLE.to_owned()];
    for version in 1..=VERSION {
        out.extend(step(version, layout, index));
        out.push(version_row(version));
    }
    out
}

async fn exists(connection: &mut PgConnection, table: &'static str) -> Result<bool, sqlx::Error> {
    let sql = "SELECT to_regclass($1) IS NOT NULL";
    sqlx::query_scalar(sql).bind(table).fetch_one(connection).await
}

/// Takes the missing steps, then checks the layout. A schema that is up to date needs no right to
/// create anything.
pub(super) fn migrate(
    runtime: &Runtime,
    connection: &mut PgConnection,
    layout: &Layout,
    index: u16,
    name: &str,
) -> Result<(), SetupError> {
    let failed = |source| SetupError::Sink { name: name.into(), source };
    loop {
        let step = one_step(connection, layout, index);
        let version = remote::wait(runtime, STATEMENT_MAX, classify, step).map_err(failed)?;
        if version > VERSION {
            return Err(SetupError::Newer { name: name.into(), found: version, known: VERSION });
        }
        if version == VERSION {
            break;
        }
    }
    match self::layout(runtime, connection).map_err(failed)? {
        Some(found) if found == (*layout, index) => Ok(()),
        Some((found, found_index)) => {
            Err(SetupError::layout(name.into(), &found, found_index, layout, index))
        }
        None => Err(SetupError::Empty(name.into())),
    }
}

/// Takes the next step, if there is one; returns the version before it.
async fn one_step(
    connection: &mut PgConnection,
    layout: &Layout,
    index: u16,
) -> Result<i64, sqlx::Error> {
    connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED").await?;
    let sql = "SELECT pg_advisory_xact_lock($1)";
    sqlx::query(sql).bind(LOCK).execute(&mut *connection).await?;
    let mut version: i64 = 0;
    if exists(connection, "schema_version").await? {
        let sql = "SELECT coalesce(max(version), 0) FROM schema_version";
        version = sqlx::query_scalar(sql).fetch_one(&mut *connection).await?;
    } else {
        connection.execute(VERSION_TABLE).await?;
    }
    if version < VERSION {
        for statement in step(version + 1, layout, index) {
            connection.execute(AssertSqlSafe(statement)).await?;
        }
        connection.execute(AssertSqlSafe(version_row(version + 1))).await?;
    }
    connection.execute("COMMIT").await?;
    Ok(version)
}

/// The layout that the data was written with; `None` in an empty database.
pub(super) fn layout(
    runtime: &Runtime,
    connection: &mut PgConnection,
) -> Result<Option<(Layout, u16)>, SinkError> {
    remote::wait(runtime, STATEMENT_MAX, classify, async {
        if !exists(connection, "layout").await? {
            return Ok(None);
        }
        let sql = "SELECT databases, tables, partitions, database_index FROM layout";
        let row: Option<(i32, i32, i32, i32)> =
            sqlx::query_as(sql).fetch_optional(connection).await?;
        Ok(row.map(|(databases, tables, partitions, index)| {
            let layout = Layout {
                databases: databases as u16,
                tables: tables as u16,
                partitions: partitions as u16,
            };
            (layout, index as u16)
        }))
    })
}
