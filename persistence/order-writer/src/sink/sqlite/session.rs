//! The writing half of a SQLite connection.

use super::classify::classify;
use crate::catalog_json;
use crate::layout::Layout;
use crate::pipeline::Advance;
use crate::rows::{
    CatalogChange, CursorRow, LateRow, OrderChange, OrderRow, RefusedRow, RefusedState,
    SaleRowState,
};
use crate::sink::error::{SinkError, from_micros, micros, micros_or_none, now_us};
use crate::sink::{Found, Sink};
use crate::stored::number;
use rusqlite::{Connection, OptionalExtension, Params, params};
use stockade_protocol::{Lsn, OrderId, PartitionId, SaleDefinition};

/// The statements of one pair of tables.
#[derive(Debug)]
pub(super) struct TableSql {
    insert_order: String,
    insert_line: String,
    update_order: String,
    update_line: String,
    find: String,
    pub(super) lines_json: String,
    pub(super) suffix: String,
}

impl TableSql {
    fn new(suffix: String) -> Self {
        Self {
            insert_order: format!(
                "INSERT INTO orders{suffix} (order_id, sale_id, user_id, state, request_id, \
                 payment_ref, data, partition_id, lsn, created_at, expires_at, updated_at) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)"
            ),
            insert_line: format!(
                "INSERT INTO order_lines{suffix} (order_id, sku_id, qty, returned_qty) \
                 VALUES (?1, ?2, ?3, ?4)"
            ),
            update_order: format!(
                "UPDATE orders{suffix} SET state = coalesce(?2, state), \
                 payment_ref = coalesce(?3, payment_ref), expires_at = coalesce(?4, expires_at), \
                 lsn = ?5, updated_at = ?6 WHERE order_id = ?1 AND lsn < ?5 AND NOT EXISTS \
                 (SELECT 1 FROM refused_orders r WHERE r.order_id = ?1 \
                 AND r.class <> 'late_payment')"
            ),
            update_line: format!(
                "UPDATE order_lines{suffix} SET returned_qty = returned_qty + ?3 \
                 WHERE order_id = ?1 AND sku_id = ?2"
            ),
            find: format!("SELECT lsn FROM orders{suffix} WHERE order_id = ?1"),
            lines_json: format!(
                "SELECT coalesce(json_group_array(json_array(CAST(sku_id AS TEXT), qty)), '[]') \
                 FROM order_lines{suffix} WHERE order_id = ?1"
            ),
            suffix,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct SqliteSession {
    pub(super) connection: Connection,
    pub(super) layout: Layout,
    pub(super) tables: Vec<TableSql>,
}

impl SqliteSession {
    /// A session on an open connection.
    pub fn new(connection: Connection, layout: Layout) -> Self {
        let tables = (0..layout.tables).map(|table| TableSql::new(layout.suffix(table))).collect();
        Self { connection, layout, tables }
    }

    pub(super) fn execute(&self, sql: &str, values: impl Params) -> Result<usize, SinkError> {
        let mut statement = self.connection.prepare_cached(sql).map_err(classify)?;
        statement.execute(values).map_err(classify)
    }

    fn insert_order(&self, sql: &TableSql, row: &OrderRow) -> Result<(), SinkError> {
        let data = Some(row.data.as_bytes()).filter(|data| !data.is_empty());
        let values = params![
            number(row.order.get()),
            number(row.sale.get()),
            number(row.user.get()),
            row.state.number(),
            row.request,
            row.payment.as_ref().map(|payment| payment.as_str()),
            data,
            row.order.partition().get(),
            number(row.lsn.get()),
            micros(row.created_at),
            micros_or_none(row.expires_at),
            micros(row.updated_at),
        ];
        self.execute(&sql.insert_order, values)?;
        for line in &row.lines {
            let values = params![
                number(row.order.get()),
                number(line.sku.get()),
                number(line.quantity),
                number(line.returned)
            ];
            self.execute(&sql.insert_line, values)?;
        }
        Ok(())
    }

    /// False if no row was hit.
    fn update_order(&self, sql: &TableSql, change: &OrderChange) -> Result<bool, SinkError> {
        let order = number(change.key.order.get());
        let values = params![
            order,
            change.state.map(|state| state.number()),
            change.payment.as_ref().map(|payment| payment.as_str()),
            change.expires_at.map(micros),
            number(change.lsn.get()),
            micros(change.updated_at),
        ];
        if self.execute(&sql.update_order, values)? == 0 {
            return Ok(false);
        }
        for (sku, units) in &change.returned {
            let values = params![order, number(sku.get()), number(*units)];
            if self.execute(&sql.update_line, values)? != 1 {
                return Err(SinkError::bug(format!(
                    "order {order} has no line of SKU {sku} in SQL; `stockade-writer recon fix` \
                     puts it back"
                )));
            }
        }
        Ok(true)
    }

    fn put_sale(&self, definition: &SaleDefinition) -> Result<(), SinkError> {
        let sale = number(definition.sale.get());
        let sql = "INSERT INTO sales (sale_id, name, opens_at, closes_at, state, definition) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (sale_id) DO UPDATE SET \
                   name = excluded.name, opens_at = excluded.opens_at, \
                   closes_at = excluded.closes_at, definition = excluded.definition";
        let values = params![
            sale,
            definition.name,
            micros(definition.opens_at),
            definition.closes_at.map(micros),
            SaleRowState::Live as i64,
            catalog_json::definition(definition),
        ];
        self.execute(sql, values)?;
        let sql = "INSERT INTO skus (sale_id, sku_id, total, labels) VALUES (?1, ?2, ?3, ?4) \
                   ON CONFLICT (sale_id, sku_id) DO UPDATE SET labels = excluded.labels";
        for sku in &definition.skus {
            let labels = catalog_json::labels(&sku.labels).to_string();
            self.execute(sql, params![sale, number(sku.sku.get()), sku.stock, labels])?;
        }
        Ok(())
    }
}

impl Sink for SqliteSession {
    fn claim(&mut self, owner: &str) -> Result<u64, SinkError> {
        self.begin()?;
        let sql = "UPDATE cursors SET epoch = 1 + (SELECT max(epoch) FROM cursors), owner = ?1";
        self.execute(sql, [owner])?;
        let sql = "SELECT max(epoch) FROM cursors";
        let epoch: i64 = self.connection.query_row(sql, [], |row| row.get(0)).map_err(classify)?;
        self.commit()?;
        Ok(epoch.unsigned_abs())
    }

    fn cursors(&mut self) -> Result<Vec<CursorRow>, SinkError> {
        let sql = "SELECT partition_id, epoch, lsn, event_at FROM cursors ORDER BY partition_id";
        let mut statement = self.connection.prepare_cached(sql).map_err(classify)?;
        let rows = statement.query_map([], |row| {
            Ok(CursorRow {
                partition: PartitionId::new(row.get(0)?),
                epoch: row.get::<_, i64>(1)?.unsigned_abs(),
                lsn: Lsn::new(row.get::<_, i64>(2)?.unsigned_abs()),
                event_at: from_micros(row.get(3)?),
            })
        });
        rows.and_then(Iterator::collect).map_err(classify)
    }

    fn begin(&mut self) -> Result<(), SinkError> {
        self.execute("BEGIN IMMEDIATE", []).map(drop)
    }

    fn commit(&mut self) -> Result<(), SinkError> {
        self.execute("COMMIT", []).map(drop)
    }

    fn rollback(&mut self) -> Result<(), SinkError> {
        if self.connection.is_autocommit() {
            return Ok(());
        }
        self.execute("ROLLBACK", []).map(drop)
    }

    fn savepoint(&mut self) -> Result<(), SinkError> {
        self.execute("SAVEPOINT part", []).map(drop)
    }

    fn release(&mut self, keep: bool) -> Result<(), SinkError> {
        if self.connection.is_autocommit() {
            return Err(SinkError::bug(
                "a trigger rolled the whole transaction back; it must use RAISE(ABORT, ...)",
            ));
        }
        if !keep {
            self.execute("ROLLBACK TO part", [])?;
        }
        self.execute("RELEASE part", []).map(drop)
    }

    fn guard(&mut self, advances: &[Advance], epoch: u64) -> Result<bool, SinkError> {
        let sql = "UPDATE cursors SET lsn = ?1, event_at = ?2, updated_at = ?3 \
                   WHERE partition_id = ?4 AND epoch = ?5 AND lsn = ?6";
        for advance in advances {
            let values = params![
                number(advance.to.get()),
                micros(advance.at),
                now_us(),
                advance.partition.get(),
                number(epoch),
                number(advance.from.get()),
            ];
            if self.execute(sql, values)? != 1 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn update(&mut self, table: u16, changes: &[OrderChange]) -> Result<Vec<usize>, SinkError> {
        let sql = &self.tables[usize::from(table)];
        let mut missed = Vec::new();
        for (place, change) in changes.iter().enumerate() {
            if !self.update_order(sql, change).map_err(|error| error.at(place))? {
                missed.push(place);
            }
        }
        Ok(missed)
    }

    fn insert(&mut self, table: u16, rows: &[OrderRow]) -> Result<(), SinkError> {
        let sql = &self.tables[usize::from(table)];
        for (place, row) in rows.iter().enumerate() {
            self.insert_order(sql, row).map_err(|error| error.at(place))?;
        }
        Ok(())
    }

    fn find(&mut self, table: u16, order: OrderId) -> Result<Found, SinkError> {
        let order = number(order.get());
        let sql = "SELECT 1 FROM refused_orders WHERE order_id = ?1 AND class <> 'late_payment'";
        let one = |sql: &str| -> Result<Option<i64>, SinkError> {
            let mut statement = self.connection.prepare_cached(sql).map_err(classify)?;
            statement.query_row([order], |row| row.get(0)).optional().map_err(classify)
        };
        if one(sql)?.is_some() {
            return Ok(Found::Refused);
        }
        let lsn = one(&self.tables[usize::from(table)].find)?;
        Ok(lsn.map_or(Found::Nothing, |lsn| Found::Row(Lsn::new(lsn.unsigned_abs()))))
    }

    fn late(&mut self, rows: &[LateRow]) -> Result<(), SinkError> {
        let sql = "INSERT INTO late_payments (order_id, payment_ref, reason, at) \
                   VALUES (?1, ?2, ?3, ?4) ON CONFLICT (order_id, payment_ref) DO NOTHING";
        for (place, row) in rows.iter().enumerate() {
            let values = params![
                number(row.order.get()),
                row.payment.as_str(),
                row.reason.word(),
                micros(row.at)
            ];
            self.execute(sql, values).map_err(|error| error.at(place))?;
        }
        Ok(())
    }

    fn catalog(&mut self, changes: &[CatalogChange]) -> Result<(), SinkError> {
        for change in changes {
            match change {
                CatalogChange::Put(definition) => self.put_sale(definition)?,
                CatalogChange::State(sale, state) => {
                    let sql = "UPDATE sales SET state = ?2 WHERE sale_id = ?1";
                    self.execute(sql, params![number(sale.get()), *state as i64])?;
                }
                CatalogChange::Adjust(sale, sku, applied) => {
                    let sql = "UPDATE skus SET total = total + ?3 \
                               WHERE sale_id = ?1 AND sku_id = ?2";
                    let values = params![number(sale.get()), number(sku.get()), applied];
                    self.execute(sql, values)?;
                }
            }
        }
        Ok(())
    }

    fn refuse(&mut self, table: u16, row: &RefusedRow) -> Result<(), SinkError> {
        let order = number(row.order.get());
        let lines = match &row.lines {
            Some(lines) => catalog_json::lines(lines),
            None => self
                .connection
                .query_row(&self.tables[usize::from(table)].lines_json, [order], |row| row.get(0))
                .map_err(classify)?,
        };
        let sql = "INSERT INTO refused_orders (order_id, sale_id, user_id, lines, class, code, \
                   message, state, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) \
                   ON CONFLICT (order_id) DO UPDATE SET lines = excluded.lines, \
                   class = excluded.class, code = excluded.code, message = excluded.message, \
                   state = excluded.state, at = excluded.at WHERE excluded.class <> 'late_payment'";
        let values = params![
            order,
            row.sale.map(|sale| number(sale.get())),
            row.user.map(|user| number(user.get())),
            lines,
            row.class,
            row.code,
            row.message,
            row.state.word(),
            micros(row.at),
        ];
        self.execute(sql, values).map(drop)
    }

    fn refused_mark(
        &mut self,
        order: OrderId,
        from: &[RefusedState],
        to: RefusedState,
    ) -> Result<bool, SinkError> {
        let sql = "UPDATE refused_orders SET state = ?3 WHERE order_id = ?1 AND state = ?2";
        for state in from {
            let values = params![number(order.get()), state.word(), to.word()];
            if self.execute(sql, values)? == 1 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn refused_open(&mut self, count_max: usize) -> Result<Vec<OrderId>, SinkError> {
        let sql = "SELECT order_id FROM refused_orders WHERE state = 'open' \
                   AND class <> 'late_payment' ORDER BY at, order_id LIMIT ?1";
        let mut statement = self.connection.prepare_cached(sql).map_err(classify)?;
        let limit = i64::try_from(count_max).unwrap_or(i64::MAX);
        let rows = statement.query_map([limit], |row| row.get::<_, i64>(0));
        let ids: Vec<i64> = rows.and_then(Iterator::collect).map_err(classify)?;
        Ok(ids.into_iter().filter_map(|id| OrderId::new(id.unsigned_abs())).collect())
    }
}
