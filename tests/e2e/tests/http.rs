//! The HTTP contract against the real server: routes, codes, shapes, and one identity of a user
//! over fronts.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;
use stockade_e2e::http::{Response, request};
use stockade_e2e::{Server, cli};

const SALE: &str = r#"{"sale":1,"name":"web","opens_at":"now","hold_ms":600000,"skus":[
{"sku":1001,"stock":5,"limit_per_user":2,"max_per_order":2}]}"#;

fn post(server: &Server, path: &str, key: Option<&str>, body: &str) -> Response {
    let mut headers = vec![("Content-Type", "application/json")];
    if let Some(key) = key {
        headers.push(("Idempotency-Key", key));
    }
    request(server.http(), "POST", path, &headers, body).unwrap()
}

fn get(server: &Server, path: &str) -> Response {
    request(server.http(), "GET", path, &[], "").unwrap()
}

#[test]
fn an_order_over_http_from_reserve_to_payment() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &["--shards", "2"]);
    let mut resp = server.resp();
    resp.call(&["STOCK.SALE.PUT", SALE]).unwrap();
    let one = r#"{"user":"7","lines":[{"sku":"1001","qty":1}]}"#;
    let first = post(&server, "/v1/sales/1/orders", Some("k1"), one);
    assert_eq!(first.status, 201, "{first:?}");
    let order = first.json()["order"].as_str().unwrap().to_owned();
    assert_eq!(first.json()["outcome"], "held");
    assert_eq!(first.json()["left"], 1);
    assert!(first.json()["expires_at_ms"].is_u64());
    let again = post(&server, "/v1/sales/1/orders", Some("k1"), one);
    assert_eq!((again.status, again.json()["order"].as_str()), (200, Some(order.as_str())));
    let over_resp = resp.call(&["STOCK.RESERVE", "1", "7", "k1", "1001", "1"]).unwrap();
    assert_eq!(over_resp.items()[1].text(), order, "one identity over RESP and HTTP");

    let table = [
        (Some("k1"), r#"{"user":"7","lines":[{"sku":"1001","qty":2}]}"#, 409, "id_conflict"),
        (Some("k2"), r#"{"user":"7","lines":[{"sku":"1001","qty":2}]}"#, 409, "limit"),
        (Some("k3"), r#"{"user":"8","lines":[{"sku":"1001","qty":3}]}"#, 422, "bad_quantity"),
        (Some("k3"), r#"{"user":"8","lines":[{"sku":"9","qty":1}]}"#, 404, "unknown_sku"),
        (Some("k3"), r#"{"user":"8","lines":[{"sku":"1001","qty":0}]}"#, 400, "bad_request"),
        (Some("k3"), r#"{"user":"0","lines":[{"sku":"1001","qty":1}]}"#, 400, "bad_request"),
        (Some("k3"), "{", 400, "bad_request"),
        (None, one, 400, "bad_request"),
    ];
    for (key, body, status, outcome) in table {
        let answer = post(&server, "/v1/sales/1/orders", key, body);
        assert_eq!((answer.status, answer.json()["outcome"].as_str()), (status, Some(outcome)));
        assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{body}");
    }
    let unknown = post(&server, "/v1/sales/2/orders", Some("k"), one);
    assert_eq!((unknown.status, unknown.json()["outcome"].as_str()), (404, Some("unknown_sale")));

    let path = format!("/v1/orders/{order}");
    let view = get(&server, &path);
    assert_eq!(view.status, 200);
    assert_eq!(view.json()["state"], "held");
    assert_eq!(view.json()["lines"][0]["sku"], "1001");
    assert_eq!(view.json()["lines"][0]["returned"], 0);
    let paid = post(&server, &format!("{path}/confirm"), None, r#"{"payment":"p1"}"#);
    assert_eq!((paid.status, paid.json()["outcome"].as_str()), (200, Some("confirmed")));
    let late = post(&server, &format!("{path}/cancel"), None, r#"{"reason":"no"}"#);
    assert_eq!((late.status, late.json()["outcome"].as_str()), (409, Some("too_late")));
    assert_eq!(get(&server, "/v1/orders/12345").status, 404);
    let shown = cli(&server, &["--json", "order", "show", &order]);
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(shown["state"], "confirmed");
}

#[test]
fn status_pages_are_cacheable_and_healthy() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    server.resp().call(&["STOCK.SALE.PUT", SALE]).unwrap();
    let sale = get(&server, "/v1/sales/1");
    assert_eq!((sale.status, sale.json()["state"].as_str()), (200, Some("live")));
    assert!(sale.header("cache-control").is_some());
    let tag = sale.header("etag").unwrap().to_owned();
    let same = request(server.http(), "GET", "/v1/sales/1", &[("If-None-Match", &tag)], "");
    assert_eq!(same.unwrap().status, 304);
    assert_eq!(get(&server, "/v1/sales/9").status, 404);
    for path in ["/healthz", "/readyz", "/metrics", "/"] {
        assert_eq!(get(&server, path).status, 200, "{path}");
    }
    assert!(get(&server, "/metrics").body.contains("stockade_"));
    assert_eq!(get(&server, "/nowhere").status, 404);
}

/// Reads the stream until it says `word`.
fn read_until(stream: &mut BufReader<TcpStream>, word: &str) -> String {
    let mut seen = String::new();
    while !seen.contains(word) {
        assert!(stream.read_line(&mut seen).unwrap() > 0, "the stream ended: {seen}");
    }
    seen
}

#[test]
fn a_sale_can_be_watched() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &["--shards", "2"]);
    let mut resp = server.resp();
    resp.call(&["STOCK.SALE.PUT", SALE]).unwrap();
    let mut stream = TcpStream::connect(server.http()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(b"GET /v1/sales/1/events HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut stream = BufReader::new(stream);
    let head = read_until(&mut stream, "\"state\":\"live\"}");
    assert!(head.contains("content-type: text/event-stream"), "{head}");
    assert!(head.contains("event: sale"), "{head}");
    resp.call(&["STOCK.SALE.PAUSE", "1"]).unwrap();
    read_until(&mut stream, "\"state\":\"paused\"}");
    resp.call(&["STOCK.SALE.RESUME", "1"]).unwrap();
    read_until(&mut stream, "\"state\":\"live\"}");
    assert_eq!(get(&server, "/v1/sales/9/events").status, 404);
}
