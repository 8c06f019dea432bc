//! The JSON texts of columns: definitions of sales, labels, lines of refused orders.
//!
//! The keys are those of a sale file. Ids of SKUs are strings: they pass 2^53, where JavaScript
//! loses them.

use crate::rows::LineRow;
use serde_json::{Value, json};
use stockade_protocol::SaleDefinition;
use stockade_protocol::sale::Labels;

/// A sale's definition, as its sale file would say it; times are Unix milliseconds.
pub fn definition(sale: &SaleDefinition) -> String {
    let skus: Vec<Value> = sale
        .skus
        .iter()
        .map(|sku| {
            json!({
                "sku": sku.sku.to_string(),
                "stock": sku.stock,
                "limit_per_user": sku.limit_per_user,
                "max_per_order": sku.max_per_order,
                "labels": labels(&sku.labels),
            })
        })
        .collect();
    json!({
        "sale": sale.sale.get(),
        "name": sale.name,
        "opens_at": sale.opens_at.get(),
        "closes_at": sale.closes_at.map(|at| at.get()),
        "hold_ms": sale.hold_ms,
        "extend_max_ms": sale.extend_max_ms,
        "grace_ms": sale.grace_ms,
        "limit_per_user": sale.limit_per_user,
        "rate_per_s": sale.rate_per_s,
        "burst": sale.burst,
        "user_rate_per_s": sale.user_rate_per_s,
        "revive": sale.revive,
        "skus": skus,
    })
    .to_string()
}

/// A SKU's labels as an object.
pub fn labels(labels: &Labels) -> Value {
    labels.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect()
}

/// Lines as `[["sku", units], ...]`.
pub fn lines(lines: &[LineRow]) -> String {
    let lines = lines.iter().map(|line| json!([line.sku.to_string(), line.quantity]));
    Value::Array(lines.collect()).to_string()
}

/// The same of rows as they stand in a database: (SKU, units).
pub fn stored_lines(lines: &[(i64, i64)]) -> String {
    let lines = lines.iter().map(|(sku, units)| json!([sku.to_string(), units]));
    Value::Array(lines.collect()).to_string()
}
