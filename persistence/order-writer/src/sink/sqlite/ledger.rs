//! The reading and repairing half of a SQLite connection.

use super::classify::classify;
use super::session::SqliteSession;
use crate::rows::RefusedState;
use crate::sink::Ledger;
use crate::sink::error::{SinkError, from_micros, now_us};
use crate::stored::{
    CatalogStored, LatePayments, LateStored, OrderStored, RefusedStored, SaleStored, SkuStored,
    UnitsStored, order_range,
};
use rusqlite::{OptionalExtension, Params, Row, params};
use std::collections::BTreeMap;
use stockade_protocol::{Lsn, PartitionId};

impl SqliteSession {
    fn rows<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, SinkError> {
        let mut statement = self.connection.prepare_cached(sql).map_err(classify)?;
        let rows = statement.query_map(values, read);
        rows.and_then(Iterator::collect).map_err(classify)
    }
}

fn order(row: &Row<'_>) -> rusqlite::Result<OrderStored> {
    Ok(OrderStored {
        order: row.get(0)?,
        sale: row.get(1)?,
        user: row.get(2)?,
        state: row.get(3)?,
        request: row.get(4)?,
        payment: row.get(5)?,
        data: row.get::<_, Option<Vec<u8>>>(6)?.unwrap_or_default(),
        partition: row.get(7)?,
        lsn: row.get(8)?,
        created_us: row.get(9)?,
        expires_us: row.get(10)?,
        updated_us: row.get(11)?,
        lines: BTreeMap::new(),
    })
}

impl Ledger for SqliteSession {
    fn begin_read(&mut self) -> Result<(), SinkError> {
        self.execute("BEGIN DEFERRED", []).map(drop)
    }

    /// `BEGIN IMMEDIATE` keeps every other writer out already.
    fn lock(&mut self, partition: PartitionId) -> Result<Lsn, SinkError> {
        let sql = "SELECT lsn FROM cursors WHERE partition_id = ?1";
        let mut statement = self.connection.prepare_cached(sql).map_err(classify)?;
        let lsn = statement.query_row([partition.get()], |row| row.get::<_, i64>(0)).optional();
        Ok(Lsn::new(lsn.map_err(classify)?.unwrap_or_default().unsigned_abs()))
    }

    fn orders(
        &mut self,
        table: u16,
        (first, last): (i64, i64),
    ) -> Result<BTreeMap<i64, OrderStored>, SinkError> {
        let suffix = &self.tables[usize::from(table)].suffix;
        let sql = format!(
            "SELECT order_id, sale_id, user_id, state, request_id, payment_ref, data, \
             partition_id, lsn, created_at, expires_at, updated_at FROM orders{suffix} \
             WHERE order_id BETWEEN ?1 AND ?2"
        );
        let rows = self.rows(&sql, [first, last], order)?;
        let mut orders: BTreeMap<i64, OrderStored> =
            rows.into_iter().map(|row| (row.order, row)).collect();
        let sql = format!(
            "SELECT order_id, sku_id, qty, returned_qty FROM order_lines{suffix} \
             WHERE order_id BETWEEN ?1 AND ?2"
        );
        let lines = self.rows(&sql, [first, last], |row| {
            Ok((row.get::<_, i64>(0)?, row.get(1)?, (row.get(2)?, row.get(3)?)))
        })?;
        for (id, sku, units) in lines {
            if let Some(order) = orders.get_mut(&id) {
                order.lines.insert(sku, units);
            }
        }
        Ok(orders)
    }

    fn units(&mut self, table: u16) -> Result<Vec<UnitsStored>, SinkError> {
        let suffix = &self.tables[usize::from(table)].suffix;
        let sql = format!(
            "SELECT o.sale_id, l.sku_id, o.state, sum(l.qty), sum(l.returned_qty) \
             FROM orders{suffix} o JOIN order_lines{suffix} l ON l.order_id = o.order_id \
             WHERE NOT EXISTS (SELECT 1 FROM refused_orders r WHERE r.order_id = o.order_id) \
             GROUP BY o.sale_id, l.sku_id, o.state"
        );
        self.rows(&sql, [], |row| {
            Ok(UnitsStored {
                sale: row.get(0)?,
                sku: row.get(1)?,
                state: row.get(2)?,
                ordered: row.get(3)?,
                returned: row.get(4)?,
            })
        })
    }

    fn strays(&mut self, table: u16) -> Result<Vec<i64>, SinkError> {
        let suffix = &self.tables[usize::from(table)].suffix;
        let sql = format!(
            "SELECT order_id FROM orders{suffix} WHERE order_id <= 0 \
             OR (order_id >> 53) >= ?1 OR (order_id >> 53) % ?2 <> ?3 \
             OR ((order_id >> 53) / ?2) % ?4 <> ?5 \
             UNION SELECT l.order_id FROM order_lines{suffix} l \
             WHERE NOT EXISTS (SELECT 1 FROM orders{suffix} o WHERE o.order_id = l.order_id)"
        );
        let index = "SELECT database_index FROM layout";
        let index: i64 = self.connection.query_row(index, [], |r| r.get(0)).map_err(classify)?;
        let layout = &self.layout;
        let values = params![layout.partitions, layout.databases, index, layout.tables, table];
        self.rows(&sql, values, |row| row.get(0))
    }

    fn late_payments(&mut self, partition: PartitionId) -> Result<LatePayments, SinkError> {
        let (first, last) = order_range(partition);
        let sql = "SELECT order_id, payment_ref, reason, at FROM late_payments \
                   WHERE order_id BETWEEN ?1 AND ?2";
        let rows = self.rows(sql, [first, last], |row| {
            let stored = LateStored { reason: row.get(2)?, at_us: row.get(3)? };
            Ok(((row.get(0)?, row.get(1)?), stored))
        })?;
        Ok(rows.into_iter().collect())
    }

    fn refused(&mut self) -> Result<Vec<RefusedStored>, SinkError> {
        let sql = "SELECT order_id, sale_id, user_id, lines, class, code, message, state, at \
                   FROM refused_orders ORDER BY order_id";
        self.rows(sql, [], |row| {
            let state: String = row.get(7)?;
            Ok(RefusedStored {
                order: row.get(0)?,
                sale: row.get(1)?,
                user: row.get(2)?,
                lines: row.get(3)?,
                class: row.get(4)?,
                code: row.get(5)?,
                message: row.get(6)?,
                state: RefusedState::from_word(&state).unwrap_or(RefusedState::Open),
                at: from_micros(row.get(8)?),
            })
        })
    }

    fn sales(&mut self) -> Result<CatalogStored, SinkError> {
        let sql = "SELECT sale_id, name, opens_at, closes_at, state, definition FROM sales";
        let sales = self.rows(sql, [], |row| {
            let stored = SaleStored {
                name: row.get(1)?,
                opens_us: row.get(2)?,
                closes_us: row.get(3)?,
                state: row.get(4)?,
                definition: row.get(5)?,
            };
            Ok((row.get(0)?, stored))
        })?;
        let sql = "SELECT sale_id, sku_id, total, labels FROM skus";
        let skus = self.rows(sql, [], |row| {
            Ok(((row.get(0)?, row.get(1)?), SkuStored { total: row.get(2)?, labels: row.get(3)? }))
        })?;
        Ok(CatalogStored { sales: sales.into_iter().collect(), skus: skus.into_iter().collect() })
    }

    fn delete_order(&mut self, table: u16, order: i64) -> Result<(), SinkError> {
        let suffix = &self.tables[usize::from(table)].suffix;
        let lines = format!("DELETE FROM order_lines{suffix} WHERE order_id = ?1");
        let orders = format!("DELETE FROM orders{suffix} WHERE order_id = ?1");
        self.execute(&lines, [order])?;
        self.execute(&orders, [order]).map(drop)
    }

    fn delete_late(&mut self, order: i64, payment: &str) -> Result<(), SinkError> {
        let sql = "DELETE FROM late_payments WHERE order_id = ?1 AND payment_ref = ?2";
        self.execute(sql, params![order, payment]).map(drop)
    }

    fn delete_sales(&mut self) -> Result<(), SinkError> {
        self.execute("DELETE FROM skus", [])?;
        self.execute("DELETE FROM sales", []).map(drop)
    }

    fn delete_refused(&mut self, order: i64) -> Result<bool, SinkError> {
        let sql = "DELETE FROM refused_orders WHERE order_id = ?1";
        Ok(self.execute(sql, [order])? == 1)
    }

    fn record_repair(&mut self, reason: &str, what: &str) -> Result<(), SinkError> {
        let sql = "INSERT INTO repairs (at, reason, what) VALUES (?1, ?2, ?3)";
        self.execute(sql, params![now_us(), reason, what]).map(drop)
    }
}
