//! Orders: reserve, read, confirm, cancel.

use super::app::{Shared, ask, bad_request, body_json, id, number, unexpected, whole};
use super::problem::{rejection, status_of};
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use stockade_protocol::command::{Line, Lines, Reserve};
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::json as forms;
use stockade_protocol::reply::{OrderReply, ReserveReply};
use stockade_protocol::text::{OrderData, PaymentRef, Reason};
use stockade_protocol::{
    Command, OrderId, OrderState, Outcome, PartitionId, Reply, RequestId, SaleId, SkuId, UserId,
};

/// An object with these keys and no others.
fn object(body: &Bytes, keys: &[&str]) -> Result<Map<String, Value>, String> {
    let value = serde_json::from_slice(body).map_err(|error| format!("not JSON: {error}"))?;
    let Value::Object(object) = value else { return Err("the body must be an object".into()) };
    match object.keys().find(|key| !keys.contains(&key.as_str())) {
        Some(key) => Err(format!("unknown key {key:?}; known are {}", keys.join(", "))),
        None => Ok(object),
    }
}

fn read_reserve(sale: &str, headers: &HeaderMap, body: &Bytes) -> Result<Reserve, String> {
    let key = headers.get("idempotency-key").ok_or("the header Idempotency-Key is missing")?;
    let request = RequestId::parse(key.as_bytes()).map_err(|error| error.to_string())?;
    let object = object(body, &["user", "lines", "data", "not_after_ms"])?;
    let lines = object.get("lines").and_then(Value::as_array).ok_or("lines must be a list")?;
    let mut read = Lines::new();
    for line in lines {
        let line = line.as_object().ok_or("a line must be an object")?;
        if let Some(key) = line.keys().find(|key| *key != "sku" && *key != "qty") {
            return Err(format!("unknown key {key:?} in a line"));
        }
        let sku = id(line.get("sku")).and_then(SkuId::new).ok_or("sku is out of range")?;
        let quantity = id(line.get("qty")).and_then(|quantity| u32::try_from(quantity).ok());
        read.push(Line { sku, quantity: quantity.ok_or("qty is out of range")? });
    }
    let data = match object.get("data") {
        None | Some(Value::Null) => Some(OrderData::default()),
        Some(Value::String(text)) => OrderData::new(text.as_bytes()),
        Some(_) => None,
    };
    let not_after = match object.get("not_after_ms") {
        None | Some(Value::Null) => None,
        Some(value) => Some(whole(value).ok_or("not_after_ms is no whole number")?),
    };
    Ok(Reserve {
        sale: number(sale).and_then(SaleId::new).ok_or("sale is out of range")?,
        user: id(object.get("user")).and_then(UserId::new).ok_or("user is out of range")?,
        request,
        lines: read,
        data: data.ok_or("data must be a text of at most 512 bytes")?,
        not_after: not_after.map(TimestampMs::new),
    })
}

pub(super) async fn reserve(
    State(app): Shared,
    Path(sale): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let reserve = match read_reserve(&sale, &headers, &body) {
        Ok(reserve) => reserve,
        Err(why) => return bad_request(&why),
    };
    ask(&app, Command::Reserve(reserve), |reply| match reply {
        Reply::Reserve(reply) => reserved(&reply),
        other => unexpected(&other),
    })
    .await
}

fn reserved(reply: &ReserveReply) -> Response {
    let granted = matches!(
        reply.outcome,
        Outcome::Held
            | Outcome::Confirmed
            | Outcome::Cancelled
            | Outcome::Expired
            | Outcome::Returned
    );
    if granted {
        let status = if reply.again { StatusCode::OK } else { StatusCode::CREATED };
        return (status, body_json(&forms::reserve_reply(reply))).into_response();
    }
    let mut further = json!({"left": reply.left, "retry_after_ms": reply.retry_after_ms});
    if let Some(order) = reply.order {
        further["order"] = json!(order.to_string());
    }
    rejection(reply.outcome, reply.retry_after_ms, "", further)
}

fn order_id(text: &str) -> Option<OrderId> {
    let order = OrderId::new(number(text)?)?;
    Some(order).filter(|order| order.partition().get() < PartitionId::COUNT_MAX)
}

fn unknown_order() -> Response {
    rejection(Outcome::UnknownOrder, -1, "there is no such order", Value::Null)
}

pub(super) async fn order(State(app): Shared, Path(order): Path<String>) -> Response {
    let Some(order) = order_id(&order) else { return unknown_order() };
    ask(&app, Command::OrderGet(order), |reply| match reply {
        Reply::OrderView(view) if view.state == OrderState::Unknown => unknown_order(),
        Reply::OrderView(view) => body_json(&forms::order_view(&view)),
        other => unexpected(&other),
    })
    .await
}

pub(super) async fn confirm(
    State(app): Shared,
    Path(order): Path<String>,
    body: Bytes,
) -> Response {
    let payment = object(&body, &["payment"]).and_then(|object| {
        let text = object.get("payment").and_then(Value::as_str).ok_or("payment is missing")?;
        PaymentRef::new(text.as_bytes()).map_err(|error| error.to_string())
    });
    match (order_id(&order), payment) {
        (None, _) => unknown_order(),
        (_, Err(why)) => bad_request(&why),
        (Some(order), Ok(payment)) => ask(&app, Command::Confirm { order, payment }, decided).await,
    }
}

pub(super) async fn cancel(State(app): Shared, Path(order): Path<String>, body: Bytes) -> Response {
    let reason = if body.is_empty() {
        Ok(Reason::none())
    } else {
        object(&body, &["reason"]).and_then(|object| {
            let text = object.get("reason").map_or(Some(""), Value::as_str);
            let text = text.ok_or("reason must be a text")?;
            Reason::new(text.as_bytes()).map_err(|error| error.to_string())
        })
    };
    match (order_id(&order), reason) {
        (None, _) => unknown_order(),
        (_, Err(why)) => bad_request(&why),
        (Some(order), Ok(reason)) => ask(&app, Command::Cancel { order, reason }, decided).await,
    }
}

fn decided(reply: Reply) -> Response {
    match reply {
        Reply::Order(reply) => order_reply(&reply),
        other => unexpected(&other),
    }
}

fn order_reply(reply: &OrderReply) -> Response {
    if !reply.outcome.is_rejection() {
        return body_json(&forms::order_reply(reply));
    }
    debug_assert!(status_of(reply.outcome).is_client_error() || reply.outcome == Outcome::Busy);
    let order = reply.order.map_or(0, OrderId::get).to_string();
    let further = json!({"order": order, "state": reply.state.word()});
    let retry = if reply.outcome == Outcome::Busy { 1000 } else { -1 };
    rejection(reply.outcome, retry, "", further)
}
