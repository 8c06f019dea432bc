//! Feed events as JSON: the keys that apply, and no others.

use super::sale_file::sale_definition_to_value;
use crate::command::{Line, Lines};
use crate::entry::{Entry, Event, OrderKey, Placed};
use crate::ids::{Lsn, PartitionId, SaleId, TimestampMs, UserId};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde_json::{Map, Value, json};

/// A feed event as JSON text.
pub fn entry_to_json(entry: &Entry) -> String {
    entry_to_value(entry).to_string()
}

/// Entries that are gone.
pub fn gap_to_json(partition: PartitionId, from: Lsn, to: Lsn) -> String {
    json!({"kind": "gap", "partition": partition.get(), "from": from.get(), "to": to.get()})
        .to_string()
}

/// A feed event as a JSON object.
pub fn entry_to_value(entry: &Entry) -> Value {
    let mut object = Map::new();
    object.insert("partition".into(), json!(entry.partition.get()));
    object.insert("lsn".into(), json!(entry.lsn.get()));
    object.insert("at_ms".into(), json!(entry.at.get()));
    object.insert("kind".into(), json!(entry.event.word()));
    let mut put = |name: &str, value: Value| {
        object.insert(name.into(), value);
    };
    match &entry.event {
        Event::Held(placed) | Event::BornConfirmed(placed) => put_placed(placed, &mut put),
        Event::Confirmed { key, payment } => {
            put_key(key, &mut put);
            put("payment", json!(payment.as_str()));
        }
        Event::Revived { key, payment, lines } => {
            put_key(key, &mut put);
            put("payment", json!(payment.as_str()));
            put("lines", lines_value(lines));
        }
        Event::Cancelled { key, reason } => {
            put_key(key, &mut put);
            put("reason", json!(reason.as_str()));
        }
        Event::Expired { key } => put_key(key, &mut put),
        Event::Extended { key, expires_at } => {
            put_key(key, &mut put);
            put("expires_at_ms", json!(expires_at.get()));
        }
        Event::Returned { key, request, lines, restock, right, whole: _ } => {
            put_key(key, &mut put);
            put("request", json!(request.to_text()));
            put("lines", lines_value(lines));
            put("restock", json!(restock));
            put("right", json!(right));
        }
        Event::LatePayment { key, payment, reason } => {
            put_key(key, &mut put);
            put("payment", json!(payment.as_str()));
            put("reason", json!(reason.word()));
        }
        Event::Withdrawn { sale, user, request } => {
            put("sale", json!(sale.get()));
            put("user", json!(user.to_string()));
            put("request", json!(request.to_text()));
        }
        Event::SalePut(definition) => {
            put("sale", json!(definition.sale.get()));
            put("definition", sale_definition_to_value(definition));
        }
        Event::SalePaused(sale)
        | Event::SaleResumed(sale)
        | Event::SaleClosed(sale)
        | Event::SaleArchived(sale) => put("sale", json!(sale.get())),
        Event::Adjusted { sale, sku, request, delta: _, applied, total } => {
            put("sale", json!(sale.get()));
            put("request", json!(request.to_text()));
            put("lines", json!([[sku.to_string(), applied.unsigned_abs()]]));
            put("applied", json!(applied));
            put("total", json!(total));
        }
    }
    Value::Object(object)
}

fn put_placed(placed: &Placed, put: &mut impl FnMut(&str, Value)) {
    put("sale", json!(placed.sale.get()));
    put("order", json!(placed.order.to_string()));
    put("user", json!(placed.user.to_string()));
    put("request", json!(placed.request.to_text()));
    put("lines", lines_value(&placed.lines));
    if placed.expires_at != TimestampMs::NONE {
        put("expires_at_ms", json!(placed.expires_at.get()));
    }
    let data = placed.data.as_bytes();
    if !data.is_empty() {
        match core::str::from_utf8(data) {
            Ok(text) => put("data", json!(text)),
            Err(_) => put("data_hex", json!(hex(data))),
        }
    }
}

fn put_key(key: &OrderKey, put: &mut impl FnMut(&str, Value)) {
    put("sale", json!(key.sale.map_or(0, SaleId::get)));
    put("order", json!(key.order.to_string()));
    put("user", json!(key.user.map_or(0, UserId::get).to_string()));
}

fn lines_value(lines: &Lines) -> Value {
    let pair = |line: &Line| json!([line.sku.to_string(), line.quantity]);
    Value::Array(lines.iter().map(pair).collect::<Vec<_>>())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
