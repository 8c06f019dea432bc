//! The reading and repairing half of a connection to MariaDB or MySQL.

use super::session::MysqlSession;
use crate::layout::Layout;
use crate::rows::RefusedState;
use crate::sink::error::{SinkError, from_micros, now_us};
use crate::sink::{Ledger, civil};
use crate::stored::{
    BUCKET_BITS, CatalogStored, Digests, LatePayments, LateStored, OrderStored, RefusedStored,
    SaleStored, SkuStored, UnitsStored, digests, order_range,
};
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, FromRow, Row};
use std::collections::BTreeMap;
use stockade_protocol::{Lsn, PartitionId};

/// A column of moments, as microseconds since 1970.
fn us(column: &str) -> String {
    format!("TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {column})")
}

struct Order(OrderStored);

impl FromRow<'_, MySqlRow> for Order {
    fn from_row(row: &MySqlRow) -> Result<Self, sqlx::Error> {
        let us = civil::from_text_us;
        Ok(Self(OrderStored {
            order: row.try_get(0)?,
            sale: row.try_get(1)?,
            user: row.try_get(2)?,
            state: row.try_get(3)?,
            request: row.try_get(4)?,
            payment: row.try_get(5)?,
            data: row.try_get::<Option<Vec<u8>>, _>(6)?.unwrap_or_default(),
            partition: row.try_get(7)?,
            lsn: row.try_get(8)?,
            created_us: us(row.try_get(9)?),
            expires_us: row.try_get::<Option<i64>, _>(10)?.map(us),
            updated_us: us(row.try_get(11)?),
            lines: BTreeMap::new(),
        }))
    }
}

struct Refused(RefusedStored);

impl FromRow<'_, MySqlRow> for Refused {
    fn from_row(row: &MySqlRow) -> Result<Self, sqlx::Error> {
        let state: String = row.try_get(7)?;
        Ok(Self(RefusedStored {
            order: row.try_get(0)?,
            sale: row.try_get(1)?,
            user: row.try_get(2)?,
            lines: row.try_get(3)?,
            class: row.try_get(4)?,
            code: row.try_get(5)?,
            message: row.try_get(6)?,
            state: RefusedState::from_word(&state).unwrap_or(RefusedState::Open),
            at: from_micros(civil::from_text_us(row.try_get(8)?)),
        }))
    }
}

impl MysqlSession {
    /// All rows of a query with numbers as values.
    fn rows<T>(&mut self, sql: String, values: &[i64]) -> Result<Vec<T>, SinkError>
    where
        T: for<'r> FromRow<'r, MySqlRow> + Send + Unpin,
    {
        self.wait(async |connection| {
            let mut query = sqlx::query_as(AssertSqlSafe(sql));
            for value in values {
                query = query.bind(*value);
            }
            query.fetch_all(connection).await
        })
    }

    fn delete(&mut self, sql: String, order: i64) -> Result<u64, SinkError> {
        self.wait(async |connection| {
            let done = sqlx::query(AssertSqlSafe(sql)).bind(order).execute(connection).await?;
            Ok(done.rows_affected())
        })
    }
}

/// The statements of [`Ledger::digests`]; the texts are those of `recon/digest.rs`.
fn digest_sql(suffix: &str) -> [String; 2] {
    let us = |column: &str| {
        let us = us(column);
        format!("CASE WHEN {us} = {} THEN {} ELSE {us} END", civil::END_US, i64::MAX)
    };
    let [created, expires, updated] = ["created_at", "expires_at", "updated_at"].map(us);
    let order = format!(
        "CONCAT_WS('|', order_id, sale_id, user_id, state, request_id, \
         COALESCE(CONCAT('=', payment_ref), '-'), LOWER(HEX(COALESCE(data, ''))), partition_id, \
         lsn, {created}, COALESCE({expires}, '-'), {updated})"
    );
    let line = "CONCAT_WS('|', order_id, sku_id, qty, returned_qty)".to_owned();
    [("orders", order), ("order_lines", line)].map(|(table, text)| {
        format!(
            "SELECT CAST(order_id >> {BUCKET_BITS} AS SIGNED) AS bucket, COUNT(*), \
             CAST(SUM(CAST(CONV(LEFT(MD5({text}), 12), 16, 10) AS UNSIGNED)) AS CHAR) \
             FROM {table}{suffix} t WHERE order_id BETWEEN ? AND ? AND NOT EXISTS \
             (SELECT 1 FROM refused_orders r WHERE r.order_id = t.order_id) GROUP BY bucket"
        )
    })
}

impl Ledger for MysqlSession {
    fn begin_read(&mut self) -> Result<(), SinkError> {
        self.plain("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")?;
        self.plain("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY").map(drop)
    }

    fn lock(&mut self, partition: PartitionId) -> Result<Lsn, SinkError> {
        let sql = "SELECT lsn FROM cursors WHERE partition_id = ? FOR UPDATE";
        let found: Vec<(i64,)> = self.rows(sql.into(), &[i64::from(partition.get())])?;
        Ok(Lsn::new(found.first().map(|(lsn,)| *lsn).unwrap_or_default().unsigned_abs()))
    }

    fn orders(
        &mut self,
        table: u16,
        (first, last): (i64, i64),
    ) -> Result<BTreeMap<i64, OrderStored>, SinkError> {
        let suffix = self.tables[usize::from(table)].suffix.clone();
        let [created, expires, updated] = ["created_at", "expires_at", "updated_at"].map(us);
        let sql = format!(
            "SELECT order_id, sale_id, user_id, state, request_id, payment_ref, data, \
             partition_id, lsn, {created}, {expires}, {updated} FROM orders{suffix} \
             WHERE order_id BETWEEN ? AND ?"
        );
        let rows: Vec<Order> = self.rows(sql, &[first, last])?;
        let mut orders: BTreeMap<i64, OrderStored> =
            rows.into_iter().map(|Order(row)| (row.order, row)).collect();
        let sql = format!(
            "SELECT order_id, sku_id, qty, returned_qty FROM order_lines{suffix} \
             WHERE order_id BETWEEN ? AND ?"
        );
        let lines: Vec<(i64, i64, i64, i64)> = self.rows(sql, &[first, last])?;
        for (id, sku, quantity, returned) in lines {
            if let Some(order) = orders.get_mut(&id) {
                order.lines.insert(sku, (quantity, returned));
            }
        }
        Ok(orders)
    }

    fn digests(&mut self, table: u16, range: (i64, i64)) -> Result<Option<Digests>, SinkError> {
        let suffix = self.tables[usize::from(table)].suffix.clone();
        let [orders, lines] = digest_sql(&suffix);
        let values = [range.0, range.1];
        let orders = self.rows(orders, &values)?;
        let lines = self.rows(lines, &values)?;
        Ok(Some(digests(orders, lines)))
    }

    fn units(&mut self, table: u16) -> Result<Vec<UnitsStored>, SinkError> {
        let suffix = self.tables[usize::from(table)].suffix.clone();
        let sql = format!(
            "SELECT o.sale_id, l.sku_id, o.state, CAST(sum(l.qty) AS SIGNED), CAST(sum(l.returned_qty) AS SIGNED) \
             FROM orders{suffix} o JOIN order_lines{suffix} l ON l.order_id = o.order_id \
             WHERE NOT EXISTS (SELECT 1 FROM refused_orders r WHERE r.order_id = o.order_id) \
             GROUP BY o.sale_id, l.sku_id, o.state"
        );
        let rows: Vec<(i64, i64, i64, i64, i64)> = self.rows(sql, &[])?;
        let row = |(sale, sku, state, ordered, returned)| UnitsStored {
            sale,
            sku,
            state,
            ordered,
            returned,
        };
        Ok(rows.into_iter().map(row).collect())
    }

    /// Negative numbers are told apart first: shifting makes them large positive ones here.
    fn strays(&mut self, table: u16) -> Result<Vec<i64>, SinkError> {
        let suffix = &self.tables[usize::from(table)].suffix;
        let sql = format!(
            "SELECT o.order_id FROM orders{suffix} o, layout y WHERE o.order_id <= 0 \
             OR (o.order_id >> 53) >= ? OR (o.order_id >> 53) % ? <> y.database_index \
             OR ((o.order_id >> 53) DIV ?) % ? <> ? \
             UNION SELECT l.order_id FROM order_lines{suffix} l \
             WHERE NOT EXISTS (SELECT 1 FROM orders{suffix} o WHERE o.order_id = l.order_id)"
        );
        let Layout { databases, tables, partitions } = self.layout;
        let values = [partitions, databases, databases, tables, table].map(i64::from);
        let found: Vec<(i64,)> = self.rows(sql, &values)?;
        Ok(found.into_iter().map(|(order,)| order).collect())
    }

    fn late_payments(&mut self, partition: PartitionId) -> Result<LatePayments, SinkError> {
        let (first, last) = order_range(partition);
        let sql = format!(
            "SELECT order_id, payment_ref, reason, {} FROM late_payments \
             WHERE order_id BETWEEN ? AND ?",
            us("at")
        );
        let rows: Vec<(i64, String, String, i64)> = self.rows(sql, &[first, last])?;
        let row = |(order, payment, reason, at): (i64, String, String, i64)| {
            ((order, payment), LateStored { reason, at_us: civil::from_text_us(at) })
        };
        Ok(rows.into_iter().map(row).collect())
    }

    fn refused(&mut self) -> Result<Vec<RefusedStored>, SinkError> {
        let sql = format!(
            "SELECT order_id, sale_id, user_id, `lines`, class, code, message, state, {} \
             FROM refused_orders ORDER BY order_id",
            us("at")
        );
        let rows: Vec<Refused> = self.rows(sql, &[])?;
        Ok(rows.into_iter().map(|Refused(row)| row).collect())
    }

    fn sales(&mut self) -> Result<CatalogStored, SinkError> {
        type Sale = (i64, String, i64, Option<i64>, i64, String);
        let [opens, closes] = ["opens_at", "closes_at"].map(us);
        let sql = format!("SELECT sale_id, name, {opens}, {closes}, state, definition FROM sales");
        let sales: Vec<Sale> = self.rows(sql, &[])?;
        let sale = |(sale, name, opens, closes, state, definition): Sale| {
            let opens_us = civil::from_text_us(opens);
            let closes_us = closes.map(civil::from_text_us);
            (sale, SaleStored { name, opens_us, closes_us, state, definition })
        };
        let sql = "SELECT sale_id, sku_id, total, labels FROM skus";
        let skus: Vec<(i64, i64, i64, String)> = self.rows(sql.into(), &[])?;
        let sku = |(sale, sku, total, labels): (i64, i64, i64, String)| {
            ((sale, sku), SkuStored { total, labels })
        };
        Ok(CatalogStored {
            sales: sales.into_iter().map(sale).collect(),
            skus: skus.into_iter().map(sku).collect(),
        })
    }

    fn delete_order(&mut self, table: u16, order: i64) -> Result<(), SinkError> {
        let suffix = self.tables[usize::from(table)].suffix.clone();
        self.delete(format!("DELETE FROM order_lines{suffix} WHERE order_id = ?"), order)?;
        self.delete(format!("DELETE FROM orders{suffix} WHERE order_id = ?"), order).map(drop)
    }

    fn delete_late(&mut self, order: i64, payment: &str) -> Result<(), SinkError> {
        let sql = "DELETE FROM late_payments WHERE order_id = ? AND payment_ref = ?";
        self.wait(async |connection| {
            sqlx::query(sql).bind(order).bind(payment).execute(connection).await.map(drop)
        })
    }

    fn delete_sales(&mut self) -> Result<(), SinkError> {
        self.plain("DELETE FROM skus")?;
        self.plain("DELETE FROM sales").map(drop)
    }

    fn delete_refused(&mut self, order: i64) -> Result<bool, SinkError> {
        Ok(self.delete("DELETE FROM refused_orders WHERE order_id = ?".into(), order)? == 1)
    }

    fn record_repair(&mut self, reason: &str, what: &str) -> Result<(), SinkError> {
        let sql = "INSERT INTO repairs (at, reason, what) VALUES (?, ?, ?)";
        self.wait(async |connection| {
            let query = sqlx::query(sql).bind(civil::text(now_us())).bind(reason).bind(what);
            query.execute(connection).await.map(drop)
        })
    }
}
