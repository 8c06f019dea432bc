//! Rejections and errors as problem+json (RFC 9457), with the codes of the contract.

use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use stockade_protocol::Outcome;

/// The status of a rejection.
pub fn status_of(outcome: Outcome) -> StatusCode {
    match outcome {
        Outcome::BadRequest => StatusCode::BAD_REQUEST,
        Outcome::UnknownSale | Outcome::UnknownSku | Outcome::UnknownOrder => StatusCode::NOT_FOUND,
        Outcome::BadQuantity => StatusCode::UNPROCESSABLE_ENTITY,
        Outcome::Throttled => StatusCode::TOO_MANY_REQUESTS,
        Outcome::Busy => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::CONFLICT,
    }
}

/// A rejection; `further` are members beside the usual ones. Retry-After wherever a retry may win.
pub fn rejection(outcome: Outcome, retry_after_ms: i64, detail: &str, further: Value) -> Response {
    let seconds = match u64::try_from(retry_after_ms) {
        Ok(ms) if ms > 0 || outcome.may_win_later() => Some(ms.div_ceil(1000).max(1)),
        _ => None,
    };
    problem(status_of(outcome), outcome.word(), detail, seconds, further)
}

/// Any problem.
pub fn problem(
    status: StatusCode,
    outcome: &str,
    detail: &str,
    retry_after_s: Option<u64>,
    further: Value,
) -> Response {
    let mut body = json!({
        "type": format!("urn:stockade:{outcome}"),
        "title": outcome.replace('_', " "),
        "status": status.as_u16(),
        "outcome": outcome,
    });
    if !detail.is_empty() {
        body["detail"] = json!(detail);
    }
    if let (Some(object), Value::Object(further)) = (body.as_object_mut(), further) {
        object.extend(further);
    }
    let mut response = (status, body.to_string()).into_response();
    let mut set = |name: HeaderName, value: String| {
        if let Ok(value) = value.parse() {
            response.headers_mut().insert(name, value);
        }
    };
    set(header::CONTENT_TYPE, "application/problem+json".into());
    if let Some(seconds) = retry_after_s {
        set(header::RETRY_AFTER, seconds.to_string());
    }
    response
}
