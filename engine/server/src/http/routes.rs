//! The routes.

use super::cache::{Page, Pages};
use super::problem::{problem, rejection, status_of};
use crate::session::Gateway;
use crate::token;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;
use stockade_protocol::command::{Line, Lines, Reserve};
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::json as forms;
use stockade_protocol::reply::{OrderReply, ReserveReply, SaleView, SkuView};
use stockade_protocol::routing::mix;
use stockade_protocol::text::{OrderData, PaymentRef, Reason};
use stockade_protocol::{
    Command, OrderId, OrderState, Outcome, PartitionId, Reply, RequestId, SaleId, SkuId, UserId,
};

/// Bytes of a request's body.
const BODY_BYTES_MAX: usize = 64 << 10;
/// How long a request's body may take to come.
const BODY_MAX: Duration = Duration::from_secs(10);
/// How long the shards may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

struct App {
    gateway: Arc<dyn Gateway>,
    pages: Pages,
}

type Shared = State<Arc<App>>;

/// Everything that is served.
pub fn router(gateway: Arc<dyn Gateway>) -> Router {
    let app = Arc::new(App { gateway, pages: Pages::default() });
    let guarded = Router::new()
        .route("/v1/sales", get(sales))
        .route("/v1/sales/{sale}", get(sale))
        .route("/v1/sales/{sale}/orders", post(reserve))
        .route("/v1/orders/{order}", get(order))
        .route("/v1/orders/{order}/confirm", post(confirm))
        .route("/v1/orders/{order}/cancel", post(cancel))
        .route_layer(middleware::from_fn_with_state(app.clone(), authorise));
    Router::new()
        .route("/", get(|| async { Html(include_str!("dashboard.html")) }))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .merge(guarded)
        .fallback(|| async { plain(StatusCode::NOT_FOUND, "not_found", "there is no such path") })
        .method_not_allowed_fallback(|| async {
            let why = "this path does not take this method";
            plain(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", why)
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn(whole))
        .with_state(app)
}

fn plain(status: StatusCode, outcome: &str, detail: &str) -> Response {
    problem(status, outcome, detail, None, Value::Null)
}

/// Waits for the whole body first, so that what takes long behind it is the shards' answer.
async fn whole(request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let read = axum::body::to_bytes(body, BODY_BYTES_MAX);
    match tokio::time::timeout(BODY_MAX, read).await {
        Ok(Ok(body)) => next.run(Request::from_parts(parts, body.into())).await,
        Ok(Err(_)) => {
            let why = format!("the body broke off or has more than {BODY_BYTES_MAX} bytes");
            plain(StatusCode::PAYLOAD_TOO_LARGE, "too_large", &why)
        }
        Err(_) => plain(StatusCode::REQUEST_TIMEOUT, "timeout", "the body did not come in time"),
    }
}

async fn authorise(State(app): Shared, request: Request, next: Next) -> Response {
    let info = app.gateway.info();
    let shown = request.headers().get(header::AUTHORIZATION);
    let shown = shown.and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    if token::is_allowed(&info.tokens, shown.unwrap_or_default()) {
        return next.run(request).await;
    }
    plain(StatusCode::UNAUTHORIZED, "unauthorized", "a bearer token is needed")
}

async fn ready(State(app): Shared) -> Response {
    if app.gateway.is_ready() {
        "ready\n".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n").into_response()
    }
}

async fn metrics(State(app): Shared) -> Response {
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];
    (kind, app.gateway.metrics()).into_response()
}

/// Has a command decided, and says the decision. Without an answer in time it may have been decided
/// all the same.
async fn ask(app: &App, command: Command, say: impl FnOnce(Reply) -> Response) -> Response {
    let (answer, answered) = tokio::sync::oneshot::channel();
    let done = Box::new(move |reply| {
        let _ = answer.send(reply);
    });
    let reads = matches!(
        command,
        Command::OrderGet(_) | Command::SaleGet(_) | Command::SaleList | Command::SkuGet { .. }
    );
    app.gateway.submit(command, done);
    match tokio::time::timeout(ANSWER_MAX, answered).await {
        Ok(Ok(reply)) => say(reply),
        _ if reads => busy(1_000),
        _ => in_doubt(),
    }
}

fn in_doubt() -> Response {
    let why = "no answer in time: it may or may not have been decided; ask the same again, an order \
               with the same Idempotency-Key, and the answer is the decision";
    problem(StatusCode::GATEWAY_TIMEOUT, "in_doubt", why, Some(1), Value::Null)
}

fn busy(retry_after_ms: u32) -> Response {
    rejection(Outcome::Busy, i64::from(retry_after_ms), "try again later", Value::Null)
}

fn unexpected(reply: &Reply) -> Response {
    match reply {
        Reply::Busy { retry_after_ms } => busy(*retry_after_ms),
        _ => plain(StatusCode::INTERNAL_SERVER_ERROR, "failed", "an unexpected answer"),
    }
}

fn bad_request(detail: &str) -> Response {
    rejection(Outcome::BadRequest, -1, detail, Value::Null)
}

fn body_json(value: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

async fn sales(State(app): Shared) -> Response {
    ask(&app, Command::SaleList, |reply| match reply {
        Reply::Sales(sales) => {
            let sales: Vec<Value> = sales.iter().map(forms::sale_summary).collect();
            body_json(&json!({"sales": sales, "server_time_ms": app.gateway.now().get()}))
        }
        other => unexpected(&other),
    })
    .await
}

/// How much there is, coarsely: a page that tells exact numbers is never the same twice.
fn band(sku: &SkuView) -> &'static str {
    match (sku.free, sku.free.saturating_mul(100) / sku.total.max(1)) {
        (0, _) => "none",
        (1..=9, _) | (_, 0..=9) => "few",
        (_, 10..=49) => "some",
        _ => "many",
    }
}

fn page(view: &SaleView) -> Page {
    let skus: Vec<Value> = view
        .skus
        .iter()
        .map(|sku| {
            json!({"sku": sku.sku.to_string(), "state": sku.state.word(), "stock": band(sku)})
        })
        .collect();
    let definition = &view.definition;
    let mut value = json!({
        "sale": definition.sale.get(),
        "name": definition.name,
        "state": view.state.word(),
        "opens_at": definition.opens_at.get(),
        "closes_at": definition.closes_at.map(TimestampMs::get),
        "skus": skus,
    });
    let seen = value.to_string();
    let tag = seen.bytes().fold(0u64, |hash, byte| mix(hash ^ u64::from(byte)));
    value["server_time_ms"] = json!(view.server_time.get());
    Page { found: true, body: value.to_string(), tag: format!("\"{tag:016x}\"") }
}

fn unknown_sale() -> Response {
    rejection(Outcome::UnknownSale, -1, "there is no such sale", Value::Null)
}

async fn sale(State(app): Shared, Path(sale): Path<String>, headers: HeaderMap) -> Response {
    let Some(id) = number(&sale).and_then(SaleId::new) else { return unknown_sale() };
    if let Some(page) = app.pages.get(id) {
        return shown(page, &headers);
    }
    ask(&app, Command::SaleGet(id), |reply| {
        let page = match reply {
            Reply::Sale(Some(view)) => page(&view),
            Reply::Sale(None) => Page { found: false, body: String::new(), tag: String::new() },
            other => return unexpected(&other),
        };
        app.pages.put(id, page.clone());
        shown(page, &headers)
    })
    .await
}

/// The page, or word that it is the one the asker has.
fn shown(page: Page, headers: &HeaderMap) -> Response {
    if !page.found {
        return unknown_sale();
    }
    let tags = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let same = tags.is_some_and(|tags| tags.split(',').any(|tag| tag.trim() == page.tag));
    let kind = [
        (header::CONTENT_TYPE, "application/json".to_owned()),
        (header::CACHE_CONTROL, "public, max-age=1".to_owned()),
        (header::ETAG, page.tag.clone()),
    ];
    if same {
        return (StatusCode::NOT_MODIFIED, kind).into_response();
    }
    (kind, page.body).into_response()
}

/// A decimal without sign and leading zeros.
fn number(text: &str) -> Option<u64> {
    crate::resp::decimal(text.as_bytes())
}

fn id(value: Option<&Value>) -> Option<u64> {
    match value? {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => number(text),
        _ => None,
    }
}

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
        Some(value) => Some(value.as_u64().ok_or("not_after_ms is no whole number")?),
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

async fn reserve(
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

async fn order(State(app): Shared, Path(order): Path<String>) -> Response {
    let Some(order) = order_id(&order) else { return unknown_order() };
    ask(&app, Command::OrderGet(order), |reply| match reply {
        Reply::OrderView(view) if view.state == OrderState::Unknown => unknown_order(),
        Reply::OrderView(view) => body_json(&forms::order_view(&view)),
        other => unexpected(&other),
    })
    .await
}

async fn confirm(State(app): Shared, Path(order): Path<String>, body: Bytes) -> Response {
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

async fn cancel(State(app): Shared, Path(order): Path<String>, body: Bytes) -> Response {
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
