//! Statements of many rows as text, and changes as JSON.
//!
//! Values that come from buyers are written as plain literals only where they are harmless in every
//! SQL mode, else as hexadecimal ones.

use crate::rows::{OrderChange, OrderRow};
use crate::sink::civil;
use crate::sink::error::{micros, micros_or_none};
use crate::stored::number;
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// One statement ends at about this size: far below the smallest usual `max_allowed_packet`.
const STATEMENT_BYTES_MAX: usize = 1 << 20;

/// A statement, and which order each of its rows belongs to.
#[derive(Debug, Default)]
pub(super) struct Statement {
    pub(super) sql: String,
    pub(super) places: Vec<usize>,
}

/// Statements that grow until they are full.
struct Statements<'a> {
    head: &'a str,
    out: Vec<Statement>,
}

impl<'a> Statements<'a> {
    const fn new(head: &'a str) -> Self {
        Self { head, out: Vec::new() }
    }

    /// The text to write the next row into.
    fn row(&mut self, place: usize) -> &mut String {
        let full = |statement: &Statement| statement.sql.len() > STATEMENT_BYTES_MAX;
        if self.out.last().is_none_or(full) {
            let mut sql = String::with_capacity(64 << 10);
            sql.push_str(self.head);
            self.out.push(Statement { sql, places: Vec::new() });
        } else if let Some(last) = self.out.last_mut() {
            last.sql.push(',');
        }
        let last = self.out.last_mut().expect("one was pushed where there was none");
        last.places.push(place);
        &mut last.sql
    }
}

/// The rows of `orders`, behind `INSERT INTO ... VALUES `.
pub(super) fn orders(head: &str, rows: &[OrderRow]) -> Vec<Statement> {
    let mut statements = Statements::new(head);
    for (place, row) in rows.iter().enumerate() {
        let sql = statements.row(place);
        let (order, partition) = (number(row.order.get()), row.order.partition());
        let (sale, user, state) =
            (number(row.sale.get()), number(row.user.get()), row.state.number());
        let _ = write!(sql, "({order},{sale},{user},{state},");
        text(sql, &row.request);
        sql.push(',');
        match &row.payment {
            Some(payment) => text(sql, payment.as_str()),
            None => sql.push_str("NULL"),
        }
        sql.push(',');
        match row.data.as_bytes() {
            [] => sql.push_str("NULL"),
            data => hex(sql, data),
        }
        let (lsn, created) = (number(row.lsn.get()), civil::text(micros(row.created_at)));
        let _ = write!(sql, ",{partition},{lsn},'{created}',");
        match micros_or_none(row.expires_at) {
            Some(us) => drop(write!(sql, "'{}'", civil::text(us))),
            None => sql.push_str("NULL"),
        }
        let _ = write!(sql, ",'{}')", civil::text(micros(row.updated_at)));
    }
    statements.out
}

/// The rows of `order_lines`.
pub(super) fn lines(head: &str, rows: &[OrderRow]) -> Vec<Statement> {
    let mut statements = Statements::new(head);
    for (place, row) in rows.iter().enumerate() {
        for line in &row.lines {
            let (order, sku) = (number(row.order.get()), number(line.sku.get()));
            let (quantity, returned) = (line.quantity, line.returned);
            let sql = statements.row(place);
            let _ = write!(sql, "({order},{sku},{quantity},{returned})");
        }
    }
    statements.out
}

/// A text literal.
fn text(sql: &mut String, value: &str) {
    let plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.' | b':');
    if value.bytes().all(plain) {
        let _ = write!(sql, "'{value}'");
    } else {
        sql.push_str("_utf8mb4 ");
        hex(sql, value.as_bytes());
    }
}

fn hex(sql: &mut String, bytes: &[u8]) {
    sql.push_str("x'");
    for byte in bytes {
        let _ = write!(sql, "{byte:02x}");
    }
    sql.push('\'');
}

/// Changes for `JSON_TABLE`; what did not change is absent.
pub(super) fn changes(changes: &[OrderChange]) -> String {
    let object = |change: &OrderChange| {
        let mut object = Map::new();
        object.insert("i".into(), number(change.key.order.get()).into());
        object.insert("l".into(), number(change.lsn.get()).into());
        object.insert("u".into(), civil::text(micros(change.updated_at)).into());
        if let Some(state) = change.state {
            object.insert("s".into(), state.number().into());
        }
        if let Some(payment) = &change.payment {
            object.insert("p".into(), payment.as_str().into());
        }
        if let Some(us) = change.expires_at.and_then(micros_or_none) {
            object.insert("e".into(), civil::text(us).into());
        }
        Value::Object(object)
    };
    Value::Array(changes.iter().map(object).collect()).to_string()
}

/// Units that came back, for `JSON_TABLE`, and how many rows they are.
pub(super) fn returned<'a>(changes: impl Iterator<Item = &'a OrderChange>) -> (String, u64) {
    let mut rows = Vec::new();
    for change in changes {
        for (sku, units) in &change.returned {
            let order = number(change.key.order.get());
            rows.push(json!({ "i": order, "k": number(sku.get()), "n": units }));
        }
    }
    let count = rows.len() as u64;
    (Value::Array(rows).to_string(), count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_buyers_cannot_leave_their_literal() {
        for (value, expected) in [
            ("pay-7_a.b:c", "'pay-7_a.b:c'"),
            ("it's", "_utf8mb4 x'69742773'"),
            ("a\\", "_utf8mb4 x'615c'"),
            ("\u{fc}", "_utf8mb4 x'c3bc'"),
            ("", "''"),
        ] {
            let mut sql = String::new();
            text(&mut sql, value);
            assert_eq!(sql, expected);
        }
    }

    #[test]
    fn statements_end_at_their_size_and_know_their_rows() {
        let mut statements = Statements::new("VALUES ");
        for place in 0..3 {
            statements.row(place).push_str(&"x".repeat(STATEMENT_BYTES_MAX / 2 + 1));
        }
        let places: Vec<Vec<usize>> =
            statements.out.iter().map(|statement| statement.places.clone()).collect();
        assert_eq!(places, [vec![0, 1], vec![2]]);
    }
}
