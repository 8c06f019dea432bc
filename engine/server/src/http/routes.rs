//! The routes, who may take them, and bounds on what they are sent.

use super::app::{App, Shared, plain};
use super::cache::Pages;
use super::events::Watched;
use super::{orders, sales};
use crate::session::Gateway;
use crate::token;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a request's body.
const BODY_BYTES_MAX: usize = 64 << 10;
/// How long a request's body may take to come.
const BODY_MAX: Duration = Duration::from_secs(10);
/// The routes for programs, as OpenAPI 3.1 describes them.
const OPENAPI: &str = include_str!("openapi.json");

/// Everything that is served.
pub fn router(gateway: Arc<dyn Gateway>) -> Router {
    let app = Arc::new(App { gateway, pages: Pages::default(), watched: Watched::default() });
    let guarded = Router::new()
        .route("/v1/sales", get(sales::sales))
        .route("/v1/sales/{sale}", get(sales::sale))
        .route("/v1/sales/{sale}/events", get(sales::watch))
        .route("/v1/sales/{sale}/orders", post(orders::reserve))
        .route("/v1/orders/{order}", get(orders::order))
        .route("/v1/orders/{order}/confirm", post(orders::confirm))
        .route("/v1/orders/{order}/cancel", post(orders::cancel))
        .route_layer(middleware::from_fn_with_state(app.clone(), authorise));
    Router::new()
        .route("/", get(|| async { Html(include_str!("dashboard.html")) }))
        .route("/openapi.json", get(openapi))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .merge(guarded)
        .fallback(|| async { plain(StatusCode::NOT_FOUND, "not_found", "there is no such path") })
        .method_not_allowed_fallback(|| async {
            let why = "this path does not take this method";
            plain(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", why)
        })
        .layer(middleware::from_fn(whole))
        .with_state(app)
}

async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI).into_response()
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
