//! Answers as JSON: the shapes that HTTP and the command line share.

use super::sale_file::sale_definition_to_value;
use crate::ids::{OrderId, SaleId, TimestampMs, UserId};
use crate::reply::{OrderReply, OrderView, ReserveReply, SaleSummary, SaleView, SkuView, UserView};
use crate::text::PaymentRef;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde_json::{Value, json};

fn order_text(order: Option<OrderId>) -> String {
    order.map_or(0, OrderId::get).to_string()
}

/// `{"outcome","order","expires_at_ms","retry_after_ms","left"}`.
pub fn reserve_reply(reply: &ReserveReply) -> Value {
    json!({
        "outcome": reply.outcome.word(),
        "order": order_text(reply.order),
        "expires_at_ms": reply.expires_at.get(),
        "retry_after_ms": reply.retry_after_ms,
        "left": reply.left,
    })
}

/// `{"outcome","order","state"}`.
pub fn order_reply(reply: &OrderReply) -> Value {
    json!({
        "outcome": reply.outcome.word(),
        "order": order_text(reply.order),
        "state": reply.state.word(),
    })
}

/// `{"order","state","sale","user","expires_at_ms","payment","lines":[{"sku","qty","returned"}]}`.
pub fn order_view(view: &OrderView) -> Value {
    let lines: Vec<Value> = view
        .lines
        .iter()
        .map(|line| {
            let returned = view.returned.iter().find(|back| back.sku == line.sku);
            json!({
                "sku": line.sku.to_string(),
                "qty": line.quantity,
                "returned": returned.map_or(0, |back| back.quantity),
            })
        })
        .collect();
    json!({
        "order": order_text(view.order),
        "state": view.state.word(),
        "sale": view.sale.map_or(0, SaleId::get),
        "user": view.user.map_or(0, UserId::get).to_string(),
        "expires_at_ms": view.expires_at.get(),
        "payment": view.payment.as_ref().map_or("", PaymentRef::as_str),
        "lines": lines,
    })
}

/// `{"sku","total","free","held","confirmed","state"}`.
pub fn sku_view(view: &SkuView) -> Value {
    json!({
        "sku": view.sku.to_string(),
        "total": view.total,
        "free": view.free,
        "held": view.held,
        "confirmed": view.confirmed,
        "state": view.state.word(),
    })
}

/// `{"skus":[{"sku","units","left"}],"orders":[...]}`.
pub fn user_view(view: &UserView) -> Value {
    let skus: Vec<Value> = view
        .skus
        .iter()
        .map(|sku| json!({"sku": sku.sku.to_string(), "units": sku.units, "left": sku.left}))
        .collect();
    let orders: Vec<String> = view.orders.iter().map(ToString::to_string).collect();
    json!({"skus": skus, "orders": orders})
}

/// One sale of the list.
pub fn sale_summary(sale: &SaleSummary) -> Value {
    json!({
        "sale": sale.sale.get(),
        "name": sale.name,
        "state": sale.state.word(),
        "opens_at": sale.opens_at.get(),
        "closes_at": sale.closes_at.map(TimestampMs::get),
        "skus": sale.sku_count,
    })
}

/// The keys of put, `state`, `server_time_ms`, and per SKU its figures.
pub fn sale_view(view: &SaleView) -> Value {
    let mut value = sale_definition_to_value(&view.definition);
    value["state"] = json!(view.state.word());
    value["server_time_ms"] = json!(view.server_time.get());
    if let Some(skus) = value["skus"].as_array_mut() {
        for (sku, figures) in skus.iter_mut().zip(&view.skus) {
            sku["total"] = json!(figures.total);
            sku["free"] = json!(figures.free);
            sku["held"] = json!(figures.held);
            sku["confirmed"] = json!(figures.confirmed);
            sku["state"] = json!(figures.state.word());
        }
    }
    value
}

/// [`sale_view`] as text: the answer of `STOCK.SALE`.
pub fn sale_view_to_json(view: &SaleView) -> String {
    sale_view(view).to_string()
}
