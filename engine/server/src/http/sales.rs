//! Sales as everybody may see them: pages that caches can keep, and a stream of their changes.

use super::app::{App, Shared, ask, body_json, busy, number, unexpected};
use super::cache::Page;
use super::events;
use super::problem::rejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::json as forms;
use stockade_protocol::reply::{SaleView, SkuView};
use stockade_protocol::routing::mix;
use stockade_protocol::{Command, Outcome, Reply, SaleId};

pub(super) async fn sales(State(app): Shared) -> Response {
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

/// The page as it was a moment ago at most; `None` without an answer.
pub(super) async fn look(app: &App, sale: SaleId) -> Option<Page> {
    if let Some(page) = app.pages.get(sale) {
        return Some(page);
    }
    let page = match app.decide(Command::SaleGet(sale)).await? {
        Reply::Sale(Some(view)) => page(&view),
        Reply::Sale(None) => Page { found: false, body: String::new(), tag: String::new() },
        _ => return None,
    };
    app.pages.put(sale, page.clone());
    Some(page)
}

pub(super) async fn sale(
    State(app): Shared,
    Path(sale): Path<String>,
    headers: HeaderMap,
) -> Response {
    let Some(id) = number(&sale).and_then(SaleId::new) else { return unknown_sale() };
    match look(&app, id).await {
        Some(page) => shown(page, &headers),
        None => busy(1_000),
    }
}

/// The page now and whenever it changes, as server-sent events.
pub(super) async fn watch(State(app): Shared, Path(sale): Path<String>) -> Response {
    let Some(id) = number(&sale).and_then(SaleId::new) else { return unknown_sale() };
    match look(&app, id).await {
        Some(page) if page.found => events::stream_of(&app, id, page),
        Some(_) => unknown_sale(),
        None => busy(1_000),
    }
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
