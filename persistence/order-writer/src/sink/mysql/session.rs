//! The writing half of a connection to MariaDB or MySQL.

use super::Kind;
use super::classify::classify;
use super::text::{self, Statement};
use crate::catalog_json;
use crate::layout::Layout;
use crate::pipeline::Advance;
use crate::rows::{
    CatalogChange, CursorRow, LateRow, OrderChange, OrderRow, RefusedRow, RefusedState,
    SaleRowState,
};
use crate::sink::error::{SinkError, from_micros, line_missing, micros, now_us};
use crate::sink::remote::{self, STATEMENT_MAX};
use crate::sink::{Found, Sink, civil};
use crate::stored::number;
use serde_json::{Value, json};
use sqlx::mysql::{MySqlConnection, MySqlQueryResult};
use sqlx::{AssertSqlSafe, Executor};
use std::collections::HashSet;
use stockade_protocol::{Lsn, OrderId, PartitionId, SaleDefinition};
use tokio::runtime::Runtime;

/// What `JSON_TABLE` makes of the changes of orders.
const CHANGES: &str = "JSON_TABLE(?, '$[*]' COLUMNS (order_id BIGINT PATH '$.i', \
    state SMALLINT PATH '$.s', payment_ref VARCHAR(512) PATH '$.p', \
    expires_at DATETIME(6) PATH '$.e', lsn BIGINT PATH '$.l', updated_at DATETIME(6) PATH '$.u')) \
    AS v";

/// The statements of one pair of tables.
#[derive(Debug)]
pub(super) struct TableSql {
    insert_orders: String,
    insert_lines: String,
    update_orders: String,
    /// Which orders `update_orders` will hit.
    eligible: String,
    update_lines: String,
    pub(super) suffix: String,
}

impl TableSql {
    fn new(suffix: String) -> Self {
        let rows = format!(
            "{CHANGES} STRAIGHT_JOIN orders{suffix} o ON o.order_id = v.order_id \
             LEFT JOIN refused_orders r ON r.order_id = v.order_id AND r.class <> 'late_payment'"
        );
        let which = "WHERE o.lsn < v.lsn AND r.order_id IS NULL";
        Self {
            insert_orders: format!(
                "INSERT INTO orders{suffix} (order_id, sale_id, user_id, state, request_id, \
                 payment_ref, data, partition_id, lsn, created_at, expires_at, updated_at) VALUES "
            ),
            insert_lines: format!(
                "INSERT INTO order_lines{suffix} (order_id, sku_id, qty, returned_qty) VALUES "
            ),
            update_orders: format!(
                "UPDATE {rows} SET o.state = coalesce(v.state, o.state), \
                 o.payment_ref = coalesce(v.payment_ref, o.payment_ref), \
                 o.expires_at = coalesce(v.expires_at, o.expires_at), \
                 o.lsn = v.lsn, o.updated_at = v.updated_at {which}"
            ),
            eligible: format!("SELECT o.order_id FROM {rows} {which}"),
            update_lines: format!(
                "UPDATE JSON_TABLE(?, '$[*]' COLUMNS (order_id BIGINT PATH '$.i', \
                 sku_id BIGINT PATH '$.k', units BIGINT PATH '$.n')) AS v \
                 STRAIGHT_JOIN order_lines{suffix} l \
                 ON l.order_id = v.order_id AND l.sku_id = v.sku_id \
                 SET l.returned_qty = l.returned_qty + v.units"
            ),
            suffix,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct MysqlSession {
    connection: MySqlConnection,
    runtime: Runtime,
    kind: Kind,
    pub(super) layout: Layout,
    pub(super) tables: Vec<TableSql>,
}

impl MysqlSession {
    pub(super) fn new(
        runtime: Runtime,
        connection: MySqlConnection,
        kind: Kind,
        layout: Layout,
    ) -> Self {
        let tables = (0..layout.tables).map(|table| TableSql::new(layout.suffix(table))).collect();
        Self { connection, runtime, kind, layout, tables }
    }

    /// Waits for work on the connection.
    pub(super) fn wait<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut MySqlConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, SinkError> {
        remote::wait(&self.runtime, STATEMENT_MAX, classify, work(&mut self.connection))
    }

    /// A statement without values, as text.
    pub(super) fn plain(&mut self, sql: impl Into<String>) -> Result<MySqlQueryResult, SinkError> {
        let sql = AssertSqlSafe(sql.into());
        self.wait(async |connection| connection.execute(sqlx::raw_sql(sql)).await)
    }

    /// Statements of many rows; a refused one is named where the database can tell.
    fn put(&mut self, statements: Vec<Statement>) -> Result<(), SinkError> {
        for Statement { sql, places } in statements {
            match self.plain(sql) {
                Ok(_) => {}
                Err(SinkError::Refused { code, message, .. }) => {
                    let row = self.failed_row();
                    let at = row.and_then(|row| places.get(row.checked_sub(1)?).copied());
                    return Err(SinkError::Refused { at, code, message });
                }
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    /// The row of the last statement that failed, from 1: MariaDB 10.7 and later tell.
    fn failed_row(&mut self) -> Option<usize> {
        if self.kind != Kind::Mariadb {
            return None;
        }
        self.plain("GET DIAGNOSTICS CONDITION 1 @stockade_row = ROW_NUMBER").ok()?;
        let sql = "SELECT CAST(@stockade_row AS SIGNED)";
        let row: Option<i64> = self
            .wait(async |connection| sqlx::query_scalar(sql).fetch_one(connection).await)
            .ok()?;
        row.and_then(|row| usize::try_from(row).ok())
    }

    /// Which of the changes will hit a row.
    fn eligible(&mut self, table: u16, json: &str) -> Result<HashSet<i64>, SinkError> {
        let sql = AssertSqlSafe(self.tables[usize::from(table)].eligible.clone());
        let ids: Vec<i64> = self.wait(async |connection| {
            sqlx::query_scalar(sql).bind(json).fetch_all(connection).await
        })?;
        Ok(ids.into_iter().collect())
    }

    fn put_sale(&mut self, definition: &SaleDefinition) -> Result<(), SinkError> {
        let sale = number(definition.sale.get());
        let text = catalog_json::definition(definition);
        let opens = civil::text(micros(definition.opens_at));
        let closes = definition.closes_at.map(|at| civil::text(micros(at)));
        self.wait(async |connection| {
            let sql = "UPDATE sales SET name = ?, opens_at = ?, closes_at = ?, definition = ? \
                       WHERE sale_id = ?";
            let query = sqlx::query(sql).bind(&definition.name).bind(&opens).bind(&closes);
            let done = query.bind(&text).bind(sale).execute(&mut *connection).await?;
            if done.rows_affected() == 0 {
                let sql = "INSERT INTO sales (name, opens_at, closes_at, definition, sale_id, \
                           state) VALUES (?, ?, ?, ?, ?, ?)";
                let query = sqlx::query(sql).bind(&definition.name).bind(&opens).bind(&closes);
                let query = query.bind(&text).bind(sale).bind(SaleRowState::Live as i16);
                query.execute(&mut *connection).await?;
            }
            for sku in &definition.skus {
                let labels = catalog_json::labels(&sku.labels).to_string();
                let id = number(sku.sku.get());
                let sql = "UPDATE skus SET labels = ? WHERE sale_id = ? AND sku_id = ?";
                let query = sqlx::query(sql).bind(&labels).bind(sale).bind(id);
                if query.execute(&mut *connection).await?.rows_affected() == 0 {
                    let sql =
                        "INSERT INTO skus (labels, sale_id, sku_id, total) VALUES (?, ?, ?, ?)";
                    let query = sqlx::query(sql).bind(&labels).bind(sale).bind(id);
                    query.bind(i64::from(sku.stock)).execute(&mut *connection).await?;
                }
            }
            Ok(())
        })
    }

    /// The lines of an order as the JSON text of `refused_orders`.
    fn lines_json(&mut self, table: u16, order: i64) -> Result<String, SinkError> {
        let suffix = &self.tables[usize::from(table)].suffix;
        let sql = AssertSqlSafe(format!(
            "SELECT sku_id, qty FROM order_lines{suffix} WHERE order_id = ? ORDER BY sku_id"
        ));
        let lines: Vec<(i64, i64)> = self
            .wait(async |connection| sqlx::query_as(sql).bind(order).fetch_all(connection).await)?;
        Ok(catalog_json::stored_lines(&lines))
    }
}

impl Sink for MysqlSession {
    /// The rows are locked before the highest epoch is read: of two that claim at once, one waits
    /// and sees what the other wrote.
    fn claim(&mut self, owner: &str) -> Result<u64, SinkError> {
        self.begin()?;
        let epoch = self.wait(async |connection| {
            let sql = "SELECT epoch FROM cursors ORDER BY partition_id FOR UPDATE";
            let epochs: Vec<i64> = sqlx::query_scalar(sql).fetch_all(&mut *connection).await?;
            let epoch = 1 + epochs.into_iter().max().unwrap_or_default();
            let sql = "UPDATE cursors SET epoch = ?, owner = ?";
            sqlx::query(sql).bind(epoch).bind(owner).execute(connection).await?;
            Ok(epoch)
        })?;
        self.commit()?;
        Ok(epoch.unsigned_abs())
    }

    fn cursors(&mut self) -> Result<Vec<CursorRow>, SinkError> {
        let sql = "SELECT partition_id, epoch, lsn, \
                   TIMESTAMPDIFF(MICROSECOND, '1970-01-01', event_at) \
                   FROM cursors ORDER BY partition_id";
        let rows: Vec<(i32, i64, i64, i64)> =
            self.wait(async |connection| sqlx::query_as(sql).fetch_all(connection).await)?;
        let row = |(partition, epoch, lsn, at): (i32, i64, i64, i64)| CursorRow {
            partition: PartitionId::new(partition as u16),
            epoch: epoch.unsigned_abs(),
            lsn: Lsn::new(lsn.unsigned_abs()),
            event_at: from_micros(civil::from_text_us(at)),
        };
        Ok(rows.into_iter().map(row).collect())
    }

    fn begin(&mut self) -> Result<(), SinkError> {
        self.plain("START TRANSACTION").map(drop)
    }

    fn commit(&mut self) -> Result<(), SinkError> {
        self.plain("COMMIT").map(drop)
    }

    fn rollback(&mut self) -> Result<(), SinkError> {
        self.plain("ROLLBACK").map(drop)
    }

    fn savepoint(&mut self) -> Result<(), SinkError> {
        self.plain("SAVEPOINT part").map(drop)
    }

    fn release(&mut self, keep: bool) -> Result<(), SinkError> {
        if !keep {
            self.plain("ROLLBACK TO SAVEPOINT part")?;
        }
        self.plain("RELEASE SAVEPOINT part").map(drop)
    }

    fn guard(&mut self, advances: &[Advance], epoch: u64) -> Result<bool, SinkError> {
        let row = |advance: &Advance| {
            json!({
                "p": advance.partition.get(),
                "f": number(advance.from.get()),
                "t": number(advance.to.get()),
                "a": civil::text(micros(advance.at)),
            })
        };
        let rows = Value::Array(advances.iter().map(row).collect()).to_string();
        let sql = "UPDATE JSON_TABLE(?, '$[*]' COLUMNS (partition_id INT PATH '$.p', \
                   before_lsn BIGINT PATH '$.f', next_lsn BIGINT PATH '$.t', \
                   at DATETIME(6) PATH '$.a')) AS v \
                   STRAIGHT_JOIN cursors c ON c.partition_id = v.partition_id \
                   SET c.lsn = v.next_lsn, c.event_at = v.at, c.updated_at = ? \
                   WHERE c.lsn = v.before_lsn AND c.epoch = ?";
        let done = self.wait(async |connection| {
            let query = sqlx::query(sql).bind(rows).bind(civil::text(now_us()));
            query.bind(number(epoch)).execute(connection).await
        })?;
        Ok(done.rows_affected() == advances.len() as u64)
    }

    /// The driver counts rows that were found. Where that is fewer than changes, the statement is
    /// undone and the rows that it will hit are read first: afterwards they look like those that
    /// had the change before.
    fn update(&mut self, table: u16, changes: &[OrderChange]) -> Result<Vec<usize>, SinkError> {
        let sql = &self.tables[usize::from(table)];
        let (orders, lines) = (sql.update_orders.clone(), sql.update_lines.clone());
        let json = text::changes(changes);
        self.plain("SAVEPOINT changes")?;
        let run = async |connection: &mut MySqlConnection| {
            sqlx::query(AssertSqlSafe(orders.clone())).bind(&json).execute(connection).await
        };
        let done = self.wait(run)?;
        let mut hit: Option<HashSet<i64>> = None;
        if done.rows_affected() != changes.len() as u64 {
            self.plain("ROLLBACK TO SAVEPOINT changes")?;
            hit = Some(self.eligible(table, &json)?);
            let run = async |connection: &mut MySqlConnection| {
                sqlx::query(AssertSqlSafe(orders.clone())).bind(&json).execute(connection).await
            };
            self.wait(run)?;
        }
        let is_hit = |change: &OrderChange| {
            hit.as_ref().is_none_or(|hit| hit.contains(&number(change.key.order.get())))
        };
        let (json, due) = text::returned(changes.iter().filter(|change| is_hit(change)));
        if due > 0 {
            let done = self.wait(async |connection| {
                sqlx::query(AssertSqlSafe(lines)).bind(json).execute(connection).await
            })?;
            if done.rows_affected() != due {
                return Err(line_missing());
            }
        }
        let missed = changes.iter().enumerate().filter(|(_, change)| !is_hit(change));
        Ok(missed.map(|(place, _)| place).collect())
    }

    fn insert(&mut self, table: u16, rows: &[OrderRow]) -> Result<(), SinkError> {
        let sql = &self.tables[usize::from(table)];
        let orders = text::orders(&sql.insert_orders, rows);
        let lines = text::lines(&sql.insert_lines, rows);
        self.put(orders)?;
        self.put(lines)
    }

    fn find(&mut self, table: u16, order: OrderId) -> Result<Found, SinkError> {
        let suffix = &self.tables[usize::from(table)].suffix;
        let sql = AssertSqlSafe(format!(
            "SELECT (SELECT count(*) FROM refused_orders WHERE order_id = ? \
             AND class <> 'late_payment'), (SELECT lsn FROM orders{suffix} WHERE order_id = ?)"
        ));
        let id = number(order.get());
        let found: (i64, Option<i64>) = self.wait(async |connection| {
            sqlx::query_as(sql).bind(id).bind(id).fetch_one(connection).await
        })?;
        Ok(match found {
            (0, None) => Found::Nothing,
            (0, Some(lsn)) => Found::Row(Lsn::new(lsn.unsigned_abs())),
            _ => Found::Refused,
        })
    }

    fn late(&mut self, rows: &[LateRow]) -> Result<(), SinkError> {
        for (place, row) in rows.iter().enumerate() {
            let (order, payment) = (number(row.order.get()), row.payment.as_str());
            self.wait(async |connection| {
                let sql = "SELECT count(*) FROM late_payments \
                           WHERE order_id = ? AND payment_ref = ?";
                let query = sqlx::query_scalar(sql).bind(order).bind(payment);
                let found: i64 = query.fetch_one(&mut *connection).await?;
                if found == 0 {
                    let sql = "INSERT INTO late_payments (order_id, payment_ref, reason, at) \
                               VALUES (?, ?, ?, ?)";
                    let query = sqlx::query(sql).bind(order).bind(payment);
                    let query = query.bind(row.reason.word()).bind(civil::text(micros(row.at)));
                    query.execute(connection).await?;
                }
                Ok(())
            })
            .map_err(|error| error.at(place))?;
        }
        Ok(())
    }

    fn catalog(&mut self, changes: &[CatalogChange]) -> Result<(), SinkError> {
        for change in changes {
            match change {
                CatalogChange::Put(definition) => self.put_sale(definition)?,
                CatalogChange::State(sale, state) => self.wait(async |connection| {
                    let sql = "UPDATE sales SET state = ? WHERE sale_id = ?";
                    let query = sqlx::query(sql).bind(*state as i16).bind(number(sale.get()));
                    query.execute(connection).await.map(drop)
                })?,
                CatalogChange::Adjust(sale, sku, applied) => self.wait(async |connection| {
                    let sql = "UPDATE skus SET total = total + ? \
                               WHERE sale_id = ? AND sku_id = ?";
                    let query = sqlx::query(sql).bind(*applied).bind(number(sale.get()));
                    query.bind(number(sku.get())).execute(connection).await.map(drop)
                })?,
            }
        }
        Ok(())
    }

    fn refuse(&mut self, table: u16, row: &RefusedRow) -> Result<(), SinkError> {
        let order = number(row.order.get());
        let lines = match &row.lines {
            Some(lines) => catalog_json::lines(lines),
            None => self.lines_json(table, order)?,
        };
        let at = civil::text(micros(row.at));
        self.wait(async |connection| {
            let sql = "SELECT count(*) FROM refused_orders WHERE order_id = ? FOR UPDATE";
            let found: i64 =
                sqlx::query_scalar(sql).bind(order).fetch_one(&mut *connection).await?;
            if found > 0 && row.class == crate::rows::CLASS_LATE_PAYMENT {
                return Ok(());
            }
            if found > 0 {
                let sql = "UPDATE refused_orders SET `lines` = ?, class = ?, code = ?, \
                           message = ?, state = ?, at = ? WHERE order_id = ?";
                let query = sqlx::query(sql).bind(&lines).bind(row.class).bind(&row.code);
                let query = query.bind(&row.message).bind(row.state.word()).bind(&at).bind(order);
                return query.execute(connection).await.map(drop);
            }
            let sql = "INSERT INTO refused_orders (order_id, sale_id, user_id, `lines`, class, \
                       code, message, state, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)";
            sqlx::query(sql)
                .bind(order)
                .bind(row.sale.map(|sale| number(sale.get())))
                .bind(row.user.map(|user| number(user.get())))
                .bind(&lines)
                .bind(row.class)
                .bind(&row.code)
                .bind(&row.message)
                .bind(row.state.word())
                .bind(&at)
                .execute(connection)
                .await
                .map(drop)
        })
    }

    fn refused_mark(
        &mut self,
        order: OrderId,
        from: &[RefusedState],
        to: RefusedState,
    ) -> Result<bool, SinkError> {
        let sql = "UPDATE refused_orders SET state = ? WHERE order_id = ? AND state = ?";
        for state in from {
            let done = self.wait(async |connection| {
                let query = sqlx::query(sql).bind(to.word()).bind(number(order.get()));
                query.bind(state.word()).execute(connection).await
            })?;
            if done.rows_affected() == 1 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn refused_open(&mut self, count_max: usize) -> Result<Vec<OrderId>, SinkError> {
        let limit = i64::try_from(count_max).unwrap_or(i64::MAX);
        let sql = "SELECT order_id FROM refused_orders WHERE state = 'open' \
                   AND class <> 'late_payment' ORDER BY at, order_id LIMIT ?";
        let ids: Vec<i64> = self.wait(async |connection| {
            sqlx::query_scalar(sql).bind(limit).fetch_all(connection).await
        })?;
        Ok(ids.into_iter().filter_map(|id| OrderId::new(id.unsigned_abs())).collect())
    }
}
