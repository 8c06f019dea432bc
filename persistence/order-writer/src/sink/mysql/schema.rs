//! The tables, and how they come to be: numbered steps, one migrator at a time.
//!
//! A DDL statement commits by itself here, so a step is a list of statements that can be repeated;
//! the step's row in `schema_version` comes last. Whoever died in the middle is continued.

use super::Kind;
use super::classify::classify;
use crate::layout::Layout;
use crate::sink::error::{SetupError, SinkError};
use crate::sink::remote::{self, STATEMENT_MAX};
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Executor};
use tokio::runtime::Runtime;

/// The newest step.
const VERSION: i64 = 1;

/// The statements of a step.
fn step(version: i64, kind: Kind, layout: &Layout, index: u16) -> Vec<String> {
    match version {
        1 => first(kind, layout, index),
        _ => Vec::new(),
    }
}

fn tables(suffix: &str, end: &str) -> [String; 2] {
    [
        format!(
            "CREATE TABLE IF NOT EXISTS orders{suffix} (
  order_id BIGINT PRIMARY KEY,
  sale_id BIGINT NOT NULL,
  user_id BIGINT NOT NULL,
  state SMALLINT NOT NULL,
  request_id VARCHAR(64) NOT NULL,
  payment_ref VARCHAR(128),
  data VARBINARY(512),
  partition_id INT NOT NULL,
  lsn BIGINT NOT NULL,
  created_at DATETIME(6) NOT NULL,
  expires_at DATETIME(6),
  updated_at DATETIME(6) NOT NULL,
  KEY orders_user_created (user_id, created_at),
  KEY orders_sale_state (sale_id, state),
  CONSTRAINT orders{suffix}_state CHECK (state BETWEEN 1 AND 5)
){end}"
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS order_lines{suffix} (
  order_id BIGINT NOT NULL,
  sku_id BIGINT NOT NULL,
  qty BIGINT NOT NULL,
  returned_qty BIGINT NOT NULL,
  PRIMARY KEY (order_id, sku_id),
  CONSTRAINT order_lines{suffix}_qty CHECK (qty > 0),
  CONSTRAINT order_lines{suffix}_back CHECK (returned_qty BETWEEN 0 AND qty)
){end}"
        ),
    ]
}

const SHARED: [&str; 7] = [
    "late_payments (
  order_id BIGINT NOT NULL,
  payment_ref VARCHAR(128) NOT NULL,
  reason VARCHAR(32) NOT NULL,
  at DATETIME(6) NOT NULL,
  PRIMARY KEY (order_id, payment_ref)
)",
    "refused_orders (
  order_id BIGINT PRIMARY KEY,
  sale_id BIGINT,
  user_id BIGINT,
  `lines` MEDIUMTEXT NOT NULL,
  class VARCHAR(32) NOT NULL,
  code VARCHAR(32) NOT NULL,
  message TEXT NOT NULL,
  state VARCHAR(16) NOT NULL,
  at DATETIME(6) NOT NULL,
  KEY refused_orders_state (state, at),
  CONSTRAINT refused_orders_states CHECK (state IN ('open', 'sent', 'done', 'reviewed'))
)",
    "sales (
  sale_id BIGINT PRIMARY KEY,
  name VARCHAR(512) NOT NULL,
  opens_at DATETIME(6) NOT NULL,
  closes_at DATETIME(6),
  state SMALLINT NOT NULL,
  definition LONGTEXT NOT NULL,
  CONSTRAINT sales_state CHECK (state BETWEEN 1 AND 5)
)",
    "skus (
  sale_id BIGINT NOT NULL,
  sku_id BIGINT NOT NULL,
  total BIGINT NOT NULL,
  labels MEDIUMTEXT NOT NULL,
  PRIMARY KEY (sale_id, sku_id)
)",
    "cursors (
  partition_id INT PRIMARY KEY,
  epoch BIGINT NOT NULL,
  lsn BIGINT NOT NULL,
  owner VARCHAR(128) NOT NULL,
  event_at DATETIME(6) NOT NULL,
  updated_at DATETIME(6) NOT NULL
)",
    "repairs (
  id BIGINT AUTO_INCREMENT PRIMARY KEY,
  at DATETIME(6) NOT NULL,
  reason TEXT NOT NULL,
  what TEXT NOT NULL
)",
    "layout (
  database_index INT PRIMARY KEY,
  `databases` INT NOT NULL,
  `tables` INT NOT NULL,
  `partitions` INT NOT NULL
)",
];

fn first(kind: Kind, layout: &Layout, index: u16) -> Vec<String> {
    let end = format!(" ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {}", kind.collation());
    let suffixes = (0..layout.tables).map(|table| layout.suffix(table));
    let mut out: Vec<String> = suffixes.flat_map(|suffix| tables(&suffix, &end)).collect();
    out.extend(SHARED.map(|table| format!("CREATE TABLE IF NOT EXISTS {table}{end}")));
    let Layout { databases, tables, partitions } = layout;
    out.push(format!(
        "INSERT INTO layout SELECT {index}, {databases}, {tables}, {partitions} FROM \
         (SELECT 1) one WHERE NOT EXISTS (SELECT 1 FROM layout)"
    ));
    let rows = layout.partitions_of(index).into_iter();
    let rows = rows.map(|partition| format!("SELECT {partition} AS p")).collect::<Vec<_>>();
    out.push(format!(
        "INSERT INTO cursors SELECT n.p, 0, 0, '', '1970-01-01', '1970-01-01' FROM ({}) n \
         WHERE NOT EXISTS (SELECT 1 FROM cursors)",
        rows.join(" UNION ALL ")
    ));
    out
}

const VERSION_TABLE: &str = "CREATE TABLE IF NOT EXISTS schema_version (
  version BIGINT PRIMARY KEY,
  applied_at DATETIME(6) NOT NULL
) ENGINE=InnoDB";

fn version_row(version: i64) -> String {
    format!("INSERT INTO schema_version VALUES ({version}, UTC_TIMESTAMP(6))")
}

/// All statements, in order, for those who run them by hand.
pub(super) fn ddl(kind: Kind, layout: &Layout, index: u16) -> Vec<String> {
    let mut out = vec![VERSION_TABLE.to_owned()];
    for version in 1..=VERSION {
        out.extend(step(version, kind, layout, index));
        out.push(version_row(version));
    }
    out
}

async fn exists(connection: &mut MySqlConnection, table: &str) -> Result<bool, sqlx::Error> {
    let sql = "SELECT count(*) FROM information_schema.tables \
               WHERE table_schema = DATABASE() AND table_name = ?";
    let count: i64 = sqlx::query_scalar(sql).bind(table).fetch_one(connection).await?;
    Ok(count > 0)
}

/// Takes the missing steps, then checks the layout. A schema that is up to date needs no right to
/// create anything.
pub(super) fn migrate(
    runtime: &Runtime,
    connection: &mut MySqlConnection,
    kind: Kind,
    layout: &Layout,
    index: u16,
    name: &str,
) -> Result<(), SetupError> {
    let failed = |source| SetupError::Sink { name: name.into(), source };
    let check = |found: Option<(Layout, u16)>| match found {
        Some((found, at)) if (found, at) != (*layout, index) => {
            Err(SetupError::layout(name.into(), &found, at, layout, index))
        }
        found => Ok(found),
    };
    // Another layout's tables are not made before the counts are known to be the same.
    check(self::layout(runtime, connection).map_err(failed)?)?;
    let steps = steps(connection, kind, layout, index);
    let version = remote::wait(runtime, STATEMENT_MAX, classify, steps).map_err(failed)?;
    if version > VERSION {
        return Err(SetupError::Newer { name: name.into(), found: version, known: VERSION });
    }
    match check(self::layout(runtime, connection).map_err(failed)?)? {
        Some(_) => Ok(()),
        None => Err(SetupError::Empty(name.into())),
    }
}

/// Takes the missing steps under a lock; returns the version after them. The lock goes with the
/// connection.
async fn steps(
    connection: &mut MySqlConnection,
    kind: Kind,
    layout: &Layout,
    index: u16,
) -> Result<i64, sqlx::Error> {
    let lock = "SELECT GET_LOCK(CONCAT(LEFT(DATABASE(), 40), '.stockade'), 60)";
    let locked: Option<i64> = sqlx::query_scalar(lock).fetch_one(&mut *connection).await?;
    if locked != Some(1) {
        return Err(sqlx::Error::Protocol("another migration is under way".into()));
    }
    let mut version: i64 = 0;
    if exists(connection, "schema_version").await? {
        let sql = "SELECT coalesce(max(version), 0) FROM schema_version";
        version = sqlx::query_scalar(sql).fetch_one(&mut *connection).await?;
    } else {
        connection.execute(VERSION_TABLE).await?;
    }
    while version < VERSION {
        version += 1;
        for statement in step(version, kind, layout, index) {
            connection.execute(sqlx::raw_sql(AssertSqlSafe(statement))).await?;
        }
        connection.execute(sqlx::raw_sql(AssertSqlSafe(version_row(version)))).await?;
    }
    Ok(version)
}

/// The layout that the data was written with; `None` in an empty database.
pub(super) fn layout(
    runtime: &Runtime,
    connection: &mut MySqlConnection,
) -> Result<Option<(Layout, u16)>, SinkError> {
    remote::wait(runtime, STATEMENT_MAX, classify, async {
        if !exists(connection, "layout").await? {
            return Ok(None);
        }
        let sql = "SELECT `databases`, `tables`, `partitions`, database_index FROM layout";
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
