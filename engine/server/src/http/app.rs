//! What the routes share: the way to the shards, and answers that are the same everywhere.

use super::cache::Pages;
use super::events::Watched;
use super::problem::{problem, rejection};
use crate::session::Gateway;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use stockade_protocol::{Command, Outcome, Reply};

/// How long the shards may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// What the routes share.
pub(super) struct App {
    pub(super) gateway: Arc<dyn Gateway>,
    pub(super) pages: Pages,
    pub(super) watched: Watched,
}

/// As the routes get it.
pub(super) type Shared = State<Arc<App>>;

impl App {
    /// Has a command decided; `None` without an answer in time.
    pub(super) async fn decide(&self, command: Command) -> Option<Reply> {
        let (answer, answered) = tokio::sync::oneshot::channel();
        let done = Box::new(move |reply| {
            let _ = answer.send(reply);
        });
        self.gateway.submit(command, done);
        tokio::time::timeout(ANSWER_MAX, answered).await.ok()?.ok()
    }
}

/// Has a command decided, and says the decision. Without an answer in time it may have been decided
/// all the same.
pub(super) async fn ask(
    app: &App,
    command: Command,
    say: impl FnOnce(Reply) -> Response,
) -> Response {
    let reads = matches!(
        command,
        Command::OrderGet(_) | Command::SaleGet(_) | Command::SaleList | Command::SkuGet { .. }
    );
    match app.decide(command).await {
        Some(reply) => say(reply),
        None if reads => busy(1_000),
        None => in_doubt(),
    }
}

/// Nobody can say whether it was decided.
pub(super) fn in_doubt() -> Response {
    let why = "no answer in time: it may or may not have been decided; ask the same again, an order \
               with the same Idempotency-Key, and the answer is the decision";
    problem(StatusCode::GATEWAY_TIMEOUT, "in_doubt", why, Some(1), Value::Null)
}

/// Nothing was decided.
pub(super) fn busy(retry_after_ms: u32) -> Response {
    rejection(Outcome::Busy, i64::from(retry_after_ms), "try again later", Value::Null)
}

/// Busy, or an answer of another kind than was asked for.
pub(super) fn unexpected(reply: &Reply) -> Response {
    match reply {
        Reply::Busy { retry_after_ms } => busy(*retry_after_ms),
        _ => plain(StatusCode::INTERNAL_SERVER_ERROR, "failed", "an unexpected answer"),
    }
}

/// What was sent makes no sense.
pub(super) fn bad_request(detail: &str) -> Response {
    rejection(Outcome::BadRequest, -1, detail, Value::Null)
}

/// A JSON body with status 200.
pub(super) fn body_json(value: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

/// A problem without further members.
pub(super) fn plain(status: StatusCode, outcome: &str, detail: &str) -> Response {
    problem(status, outcome, detail, None, Value::Null)
}

/// A decimal without sign and leading zeros.
pub(super) fn number(text: &str) -> Option<u64> {
    crate::resp::decimal(text.as_bytes())
}

/// A number without a fraction; JSON makes no difference between 5 and 5.0.
pub(super) fn whole(value: &Value) -> Option<u64> {
    /// Beyond it a fraction may have been lost on the way.
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    let exact = |number: &f64| number.fract() == 0.0 && (0.0..EXACT_MAX).contains(number);
    value.as_u64().or_else(|| value.as_f64().filter(exact).map(|number| number as u64))
}

/// An id as a number or as text.
pub(super) fn id(value: Option<&Value>) -> Option<u64> {
    match value? {
        Value::String(text) => number(text),
        other => whole(other),
    }
}
