//! The writing half of a PostgreSQL connection.

use super::classify::classify;
use super::copy;
use super::moment::Moment;
use crate::catalog_json;
use crate::layout::Layout;
use crate::pipeline::Advance;
use crate::rows::{
    CatalogChange, CursorRow, LateRow, OrderChange, OrderRow, RefusedRow, RefusedState,
    SaleRowState,
};
use crate::sink::error::{SinkError, from_micros, micros, micros_or_none, now_us};
use crate::sink::remote::{self, STATEMENT_MAX};
use crate::sink::{Found, Sink};
use crate::stored::number;
use sqlx::postgres::{PgConnection, PgQueryResult};
use sqlx::{AssertSqlSafe, Executor};
use std::collections::HashSet;
use stockade_protocol::{Lsn, OrderId, PartitionId, SaleDefinition};
use tokio::runtime::Runtime;

/// The statements of one pair of tables.
#[derive(Debug)]
pub(super) struct TableSql {
    copy_orders: String,
    copy_lines: String,
    update_orders: String,
    update_lines: String,
    pub(super) suffix: String,
}

impl TableSql {
    fn new(suffix: String) -> Self {
        Self {
            copy_orders: format!(
                "COPY orders{suffix} (order_id, sale_id, user_id, state, request_id, payment_ref, \
                 data, partition_id, lsn, created_at, expires_at, updated_at) \
                 FROM STDIN (FORMAT binary)"
            ),
            copy_lines: format!(
                "COPY order_lines{suffix} (order_id, sku_id, qty, returned_qty) \
                 FROM STDIN (FORMAT binary)"
            ),
            update_orders: format!(
                "UPDATE orders{suffix} o SET state = coalesce(v.state, o.state), \
                 payment_ref = coalesce(v.payment_ref, o.payment_ref), \
                 expires_at = coalesce(v.expires_at, o.expires_at), \
                 lsn = v.lsn, updated_at = v.updated_at \
                 FROM unnest($1::bigint[], $2::smallint[], $3::text[], $4::timestamptz[], \
                 $5::bigint[], $6::timestamptz[]) \
                 AS v (order_id, state, payment_ref, expires_at, lsn, updated_at) \
                 WHERE o.order_id = v.order_id AND o.lsn < v.lsn AND NOT EXISTS \
                 (SELECT 1 FROM refused_orders r WHERE r.order_id = v.order_id \
                 AND r.class <> 'late_payment') RETURNING o.order_id"
            ),
            update_lines: format!(
                "UPDATE order_lines{suffix} l SET returned_qty = l.returned_qty + v.units \
                 FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) \
                 AS v (order_id, sku_id, units) \
                 WHERE l.order_id = v.order_id AND l.sku_id = v.sku_id"
            ),
            suffix,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct PostgresSession {
    connection: PgConnection,
    runtime: Runtime,
    pub(super) layout: Layout,
    pub(super) tables: Vec<TableSql>,
}

impl PostgresSession {
    pub(super) fn new(runtime: Runtime, connection: PgConnection, layout: Layout) -> Self {
        let tables = (0..layout.tables).map(|table| TableSql::new(layout.suffix(table))).collect();
        Self { connection, runtime, layout, tables }
    }

    /// Waits for work on the connection.
    pub(super) fn wait<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut PgConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, SinkError> {
        remote::wait(&self.runtime, STATEMENT_MAX, classify, work(&mut self.connection))
    }

    /// Statements without values.
    pub(super) fn plain(&mut self, sql: impl Into<String>) -> Result<PgQueryResult, SinkError> {
        let sql = AssertSqlSafe(sql.into());
        self.wait(async |connection| connection.execute(sqlx::raw_sql(sql)).await)
    }

    fn copy(&mut self, sql: String, bytes: Vec<u8>) -> Result<(), SinkError> {
        self.wait(async |connection| {
            let mut copy = connection.copy_in_raw(&sql).await?;
            copy.send(bytes).await?;
            copy.finish().await.map(drop)
        })
    }

    fn put_sale(&mut self, definition: &SaleDefinition) -> Result<(), SinkError> {
        let sale = number(definition.sale.get());
        let text = catalog_json::definition(definition);
        self.wait(async |connection| {
            let sql = "INSERT INTO sales (sale_id, name, opens_at, closes_at, state, definition) \
                       VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (sale_id) DO UPDATE SET \
                       name = excluded.name, opens_at = excluded.opens_at, \
                       closes_at = excluded.closes_at, definition = excluded.definition";
            sqlx::query(sql)
                .bind(sale)
                .bind(&definition.name)
                .bind(Moment(micros(definition.opens_at)))
                .bind(definition.closes_at.map(|at| Moment(micros(at))))
                .bind(SaleRowState::Live as i16)
                .bind(text)
                .execute(&mut *connection)
                .await?;
            let sql = "INSERT INTO skus (sale_id, sku_id, total, labels) VALUES ($1, $2, $3, $4) \
                       ON CONFLICT (sale_id, sku_id) DO UPDATE SET labels = excluded.labels";
            for sku in &definition.skus {
                sqlx::query(sql)
                    .bind(sale)
                    .bind(number(sku.sku.get()))
                    .bind(i64::from(sku.stock))
                    .bind(catalog_json::labels(&sku.labels).to_string())
                    .execute(&mut *connection)
                    .await?;
            }
            Ok(())
        })
    }

    /// The lines of an order as the JSON text of `refused_orders`.
    fn lines_json(&mut self, table: u16, order: i64) -> Result<String, SinkError> {
        let suffix = &self.tables[usize::from(table)].suffix;
        let sql = AssertSqlSafe(format!(
            "SELECT sku_id, qty FROM order_lines{suffix} WHERE order_id = $1 ORDER BY sku_id"
        ));
        let lines: Vec<(i64, i64)> = self
            .wait(async |connection| sqlx::query_as(sql).bind(order).fetch_all(connection).await)?;
        Ok(catalog_json::stored_lines(&lines))
    }
}

/// The columns of changes.
#[derive(Default)]
struct Changes {
    orders: Vec<i64>,
    states: Vec<Option<i16>>,
    payments: Vec<Option<String>>,
    expires: Vec<Option<Moment>>,
    lsns: Vec<i64>,
    updated: Vec<Moment>,
}

impl Changes {
    fn of(changes: &[OrderChange]) -> Self {
        let mut out = Self::default();
        for change in changes {
            out.orders.push(number(change.key.order.get()));
            out.states.push(change.state.map(|state| i16::from(state.number())));
            out.payments.push(change.payment.as_ref().map(|payment| payment.as_str().into()));
            out.expires.push(change.expires_at.and_then(micros_or_none).map(Moment));
            out.lsns.push(number(change.lsn.get()));
            out.updated.push(Moment(micros(change.updated_at)));
        }
        out
    }
}

impl Sink for PostgresSession {
    /// The rows are locked before the highest epoch is read: of two that claim at once, one waits
    /// and sees what the other wrote.
    fn claim(&mut self, owner: &str) -> Result<u64, SinkError> {
        self.begin()?;
        let epoch = self.wait(async |connection| {
            let sql = "SELECT epoch FROM cursors ORDER BY partition_id FOR UPDATE";
            let epochs: Vec<i64> = sqlx::query_scalar(sql).fetch_all(&mut *connection).await?;
            let epoch = 1 + epochs.into_iter().max().unwrap_or_default();
            let sql = "UPDATE cursors SET epoch = $1, owner = $2";
            sqlx::query(sql).bind(epoch).bind(owner).execute(connection).await?;
            Ok(epoch)
        })?;
        self.commit()?;
        Ok(epoch.unsigned_abs())
    }

    fn cursors(&mut self) -> Result<Vec<CursorRow>, SinkError> {
        let sql = "SELECT partition_id, epoch, lsn, event_at FROM cursors ORDER BY partition_id";
        let rows: Vec<(i32, i64, i64, Moment)> =
            self.wait(async |connection| sqlx::query_as(sql).fetch_all(connection).await)?;
        let row = |(partition, epoch, lsn, at): (i32, i64, i64, Moment)| CursorRow {
            partition: PartitionId::new(partition as u16),
            epoch: epoch.unsigned_abs(),
            lsn: Lsn::new(lsn.unsigned_abs()),
            event_at: from_micros(at.0),
        };
        Ok(rows.into_iter().map(row).collect())
    }

    fn begin(&mut self) -> Result<(), SinkError> {
        self.plain("BEGIN ISOLATION LEVEL READ COMMITTED").map(drop)
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
        let undo = "ROLLBACK TO SAVEPOINT part; RELEASE SAVEPOINT part";
        self.plain(if keep { "RELEASE SAVEPOINT part" } else { undo }).map(drop)
    }

    fn guard(&mut self, advances: &[Advance], epoch: u64) -> Result<bool, SinkError> {
        let column = |value: fn(&Advance) -> i64| advances.iter().map(value).collect::<Vec<i64>>();
        let partitions = column(|advance| i64::from(advance.partition.get()));
        let from = column(|advance| number(advance.from.get()));
        let to = column(|advance| number(advance.to.get()));
        let at: Vec<Moment> = advances.iter().map(|advance| Moment(micros(advance.at))).collect();
        let sql = "UPDATE cursors c SET lsn = v.next, event_at = v.at, updated_at = $6 \
                   FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::timestamptz[]) \
                   AS v (partition_id, before, next, at) \
                   WHERE c.partition_id = v.partition_id AND c.lsn = v.before AND c.epoch = $5";
        let done = self.wait(async |connection| {
            let query = sqlx::query(sql).bind(partitions).bind(from).bind(to).bind(at);
            query.bind(number(epoch)).bind(Moment(now_us())).execute(connection).await
        })?;
        Ok(done.rows_affected() == advances.len() as u64)
    }

    fn update(&mut self, table: u16, changes: &[OrderChange]) -> Result<Vec<usize>, SinkError> {
        let sql = &self.tables[usize::from(table)];
        let (orders, lines) = (sql.update_orders.clone(), sql.update_lines.clone());
        let columns = Changes::of(changes);
        let hit: Vec<i64> = self.wait(async |connection| {
            sqlx::query_scalar(AssertSqlSafe(orders))
                .bind(columns.orders)
                .bind(columns.states)
                .bind(columns.payments)
                .bind(columns.expires)
                .bind(columns.lsns)
                .bind(columns.updated)
                .fetch_all(connection)
                .await
        })?;
        let hit: HashSet<i64> = hit.into_iter().collect();
        let is_hit = |change: &OrderChange| hit.contains(&number(change.key.order.get()));
        let (mut ids, mut skus, mut units) = (Vec::new(), Vec::new(), Vec::new());
        for change in changes.iter().filter(|change| is_hit(change)) {
            for (sku, count) in &change.returned {
                ids.push(number(change.key.order.get()));
                skus.push(number(sku.get()));
                units.push(number(*count));
            }
        }
        let due = ids.len() as u64;
        if due > 0 {
            let done = self.wait(async |connection| {
                let query = sqlx::query(AssertSqlSafe(lines)).bind(ids).bind(skus).bind(units);
                query.execute(connection).await
            })?;
            if done.rows_affected() != due {
                return Err(crate::sink::error::line_missing());
            }
        }
        let missed = changes.iter().enumerate().filter(|(_, change)| !is_hit(change));
        Ok(missed.map(|(place, _)| place).collect())
    }

    fn insert(&mut self, table: u16, rows: &[OrderRow]) -> Result<(), SinkError> {
        let sql = &self.tables[usize::from(table)];
        let (copy_orders, copy_lines) = (sql.copy_orders.clone(), sql.copy_lines.clone());
        self.copy(copy_orders, copy::orders(rows))?;
        let (bytes, places) = copy::lines(rows);
        self.copy(copy_lines, bytes).map_err(|error| match error {
            SinkError::Refused { at: Some(line), code, message } => {
                SinkError::Refused { at: places.get(line).copied(), code, message }
            }
            other => other,
        })
    }

    fn find(&mut self, table: u16, order: OrderId) -> Result<Found, SinkError> {
        let suffix = &self.tables[usize::from(table)].suffix;
        let sql = AssertSqlSafe(format!(
            "SELECT EXISTS (SELECT 1 FROM refused_orders WHERE order_id = $1 \
             AND class <> 'late_payment'), (SELECT lsn FROM orders{suffix} WHERE order_id = $1)"
        ));
        let found: (bool, Option<i64>) = self.wait(async |connection| {
            sqlx::query_as(sql).bind(number(order.get())).fetch_one(connection).await
        })?;
        Ok(match found {
            (true, _) => Found::Refused,
            (false, Some(lsn)) => Found::Row(Lsn::new(lsn.unsigned_abs())),
            (false, None) => Found::Nothing,
        })
    }

    fn late(&mut self, rows: &[LateRow]) -> Result<(), SinkError> {
        let orders: Vec<i64> = rows.iter().map(|row| number(row.order.get())).collect();
        let payments: Vec<String> = rows.iter().map(|row| row.payment.as_str().into()).collect();
        let reasons: Vec<String> = rows.iter().map(|row| row.reason.word().into()).collect();
        let at: Vec<Moment> = rows.iter().map(|row| Moment(micros(row.at))).collect();
        let sql = "INSERT INTO late_payments (order_id, payment_ref, reason, at) \
                   SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::timestamptz[]) \
                   ON CONFLICT (order_id, payment_ref) DO NOTHING";
        self.wait(async |connection| {
            let query = sqlx::query(sql).bind(orders).bind(payments).bind(reasons).bind(at);
            query.execute(connection).await.map(drop)
        })
    }

    fn catalog(&mut self, changes: &[CatalogChange]) -> Result<(), SinkError> {
        for change in changes {
            match change {
                CatalogChange::Put(definition) => self.put_sale(definition)?,
                CatalogChange::State(sale, state) => self.wait(async |connection| {
                    let sql = "UPDATE sales SET state = $2 WHERE sale_id = $1";
                    let query = sqlx::query(sql).bind(number(sale.get())).bind(*state as i16);
                    query.execute(connection).await.map(drop)
                })?,
                CatalogChange::Adjust(sale, sku, applied) => self.wait(async |connection| {
                    let sql = "UPDATE skus SET total = total + $3 \
                               WHERE sale_id = $1 AND sku_id = $2";
                    let query = sqlx::query(sql).bind(number(sale.get())).bind(number(sku.get()));
                    query.bind(*applied).execute(connection).await.map(drop)
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
        let sql = "INSERT INTO refused_orders AS r (order_id, sale_id, user_id, lines, class, \
                   code, message, state, at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) \
                   ON CONFLICT (order_id) DO UPDATE SET lines = excluded.lines, \
                   class = excluded.class, code = excluded.code, message = excluded.message, \
                   state = excluded.state, at = excluded.at \
                   WHERE excluded.class <> 'late_payment'";
        self.wait(async |connection| {
            sqlx::query(sql)
                .bind(order)
                .bind(row.sale.map(|sale| number(sale.get())))
                .bind(row.user.map(|user| number(user.get())))
                .bind(lines)
                .bind(row.class)
                .bind(&row.code)
                .bind(&row.message)
                .bind(row.state.word())
                .bind(Moment(micros(row.at)))
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
        let from: Vec<String> = from.iter().map(|state| state.word().into()).collect();
        let sql = "UPDATE refused_orders SET state = $3 WHERE order_id = $1 AND state = ANY($2)";
        let done = self.wait(async |connection| {
            let query = sqlx::query(sql).bind(number(order.get())).bind(from).bind(to.word());
            query.execute(connection).await
        })?;
        Ok(done.rows_affected() == 1)
    }

    fn refused_open(&mut self, count_max: usize) -> Result<Vec<OrderId>, SinkError> {
        let limit = i64::try_from(count_max).unwrap_or(i64::MAX);
        let sql = "SELECT order_id FROM refused_orders WHERE state = 'open' \
                   AND class <> 'late_payment' ORDER BY at, order_id LIMIT $1";
        let ids: Vec<i64> = self.wait(async |connection| {
            sqlx::query_scalar(sql).bind(limit).fetch_all(connection).await
        })?;
        Ok(ids.into_iter().filter_map(|id| OrderId::new(id.unsigned_abs())).collect())
    }
}
