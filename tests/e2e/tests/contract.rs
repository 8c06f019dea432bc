//! The RESP contract to the letter: every command, answer shape, outcome word and filler, against
//! the real server. `$1`, `$2`... stand for orders in the sequence they were made; `_` for any
//! value.

#![allow(clippy::unwrap_used, reason = "tests")]

use stockade_e2e::{Resp, Server, Value};

/// Runs a script: `COMMAND arguments -> expected` line by line. An expected answer is written as
/// `[a, b, ...]` with integers as `:n`, strings bare, `nil`, `-prefix` for an error, `_` for
/// anything.
fn run(resp: &mut Resp, script: &str) {
    let mut orders: Vec<String> = Vec::new();
    for line in script.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
        let (call, expected) = line.split_once(" -> ").unwrap_or_else(|| panic!("no -> in {line}"));
        let arguments: Vec<String> = call.split_whitespace().map(|w| insert(w, &orders)).collect();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let answer = resp.call(&arguments).unwrap_or_else(|error| panic!("{line}: {error}"));
        if let ("STOCK.RESERVE", Value::Array(items)) = (arguments[0], &answer) {
            let order = items[1].text().to_owned();
            if order != "0" && !orders.contains(&order) {
                orders.push(order);
            }
        }
        let shown = show(&answer);
        let expected = insert(expected, &orders);
        assert!(matches(&shown, &expected), "{line}\n  got      {shown}\n  expected {expected}");
    }
}

fn insert(text: &str, orders: &[String]) -> String {
    let mut text = text.to_owned();
    for (i, order) in orders.iter().enumerate().rev() {
        text = text.replace(&format!("${}", i + 1), order);
    }
    text
}

fn show(value: &Value) -> String {
    match value {
        Value::Simple(text) => format!("+{text}"),
        Value::Error(text) => format!("-{text}"),
        Value::Integer(number) => format!(":{number}"),
        Value::Bulk(text) if text.is_empty() => "''".into(),
        Value::Bulk(text) => text.clone(),
        Value::Null => "nil".into(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(show).collect();
            format!("[{}]", items.join(", "))
        }
    }
}

/// A lone `_` matches anything; an expected error is a prefix.
fn matches(shown: &str, expected: &str) -> bool {
    if expected.starts_with('-') {
        return shown.starts_with(expected);
    }
    let lone = |at: usize| {
        let before = expected[..at].chars().next_back().is_none_or(|c| c == ' ' || c == '[');
        let after = expected[at + 1..].chars().next().is_none_or(|c| c == ',' || c == ']');
        before && after
    };
    let wild: Vec<usize> =
        expected.match_indices('_').map(|m| m.0).filter(|at| lone(*at)).collect();
    let (mut parts, mut from) = (Vec::new(), 0);
    for at in wild {
        parts.push(&expected[from..at]);
        from = at + 1;
    }
    let last = &expected[from..];
    if parts.is_empty() {
        return shown == expected;
    }
    let Some(mut rest) = shown.strip_prefix(parts[0]) else { return false };
    for part in &parts[1..] {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

fn server() -> (tempfile::TempDir, Server) {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &["--shards", "2", "--partitions", "8"]);
    (dir, server)
}

const SALE: &str = r#"{"sale":1,"name":"s","opens_at":"now","hold_ms":600000,"skus":[{"sku":1001,"stock":3,"limit_per_user":2,"max_per_order":2},{"sku":1002,"stock":10}]}"#;

fn put(resp: &mut Resp, json: &str) -> Value {
    resp.call(&["STOCK.SALE.PUT", json]).unwrap()
}

#[test]
fn orders_from_reserve_to_return() {
    let (_dir, server) = server();
    let mut resp = server.resp();
    assert_eq!(show(&put(&mut resp, SALE)), "[created, :1, '']");
    assert_eq!(show(&put(&mut resp, SALE)), "[unchanged, :1, '']");
    run(
        &mut resp,
        "
        # outcome, order, expires_at_ms, retry_after_ms, left
        STOCK.RESERVE 1 7 r1 1001 1 -> [held, $1, _, :0, :1]
        STOCK.RESERVE 1 7 r1 1001 1 -> [held, $1, _, :0, :1]
        STOCK.RESERVE 1 7 r1 1001 2 -> [id_conflict, $1, _, _, _]
        STOCK.RESERVE 1 7 r2 1001 2 -> [limit, $1, _, _, :1]
        STOCK.RESERVE 1 8 5 1001 3 -> [bad_quantity, 0, :0, :-1, _]
        STOCK.RESERVE 1 8 5 1001 1 1001 1 -> [held, $2, _, :0, :0]
        STOCK.RESERVE 1 9 5 1001 1 -> [sold_out, 0, :0, _, _]
        STOCK.RESERVE 1 9 0 1001 1 -> [bad_request, 0, :0, :-1, :-1]
        STOCK.RESERVE 1 9 6 1001 0 -> [bad_request, 0, :0, :-1, :-1]
        STOCK.RESERVE 1 9 6 1001 -1 -> [bad_request, 0, :0, :-1, :-1]
        STOCK.RESERVE 1 9 6 1001 +1 -> [bad_request, 0, :0, :-1, :-1]
        STOCK.RESERVE 1 9 6 1001 01 -> [bad_request, 0, :0, :-1, :-1]
        STOCK.RESERVE 0 9 6 1001 1 -> [bad_request, 0, :0, :-1, :-1]
        STOCK.RESERVE 1 9223372036854775808 6 1001 1 -> [bad_request, 0, :0, :-1, :-1]
        STOCK.RESERVE 2 9 6 1001 1 -> [unknown_sale, 0, :0, :-1, :-1]
        STOCK.RESERVE 1 9 6 1003 1 -> [unknown_sku, 0, :0, :-1, :-1]
        STOCK.RESERVE 1 9 6 1002 1 NOTAFTER 1000 -> [stale, 0, :0, :-1, :-1]
        STOCK.RESERVE 1 9 6 1002 4 DATA hello -> [held, $3, _, :0, :-1]
        STOCK.ORDER $1 -> [held, $1, :1, 7, _, '', [1001, :1], []]
        STOCK.CONFIRM $1 p1 -> [confirmed, $1, confirmed]
        STOCK.CONFIRM $1 p1 -> [already_confirmed, $1, confirmed]
        STOCK.CONFIRM $1 p2 -> [id_conflict, $1, confirmed]
        STOCK.CANCEL $1 -> [too_late, $1, confirmed]
        STOCK.CANCEL $2 reason -> [cancelled, $2, cancelled]
        STOCK.CANCEL $2 reason -> [already_cancelled, $2, cancelled]
        STOCK.CONFIRM $2 p3 -> [too_late, $2, cancelled]
        STOCK.EXTEND $3 99 -> [_, $3, held]
        STOCK.EXTEND $1 99 -> [too_late, $1, confirmed]
        STOCK.CONFIRM $3 p4 -> [confirmed, $3, confirmed]
        STOCK.RETURN $3 t1 RESTOCK yes RIGHT yes 1002 1 -> [returned, $3, confirmed]
        STOCK.RETURN $3 t1 RESTOCK yes RIGHT yes 1002 1 -> [already_returned, $3, confirmed]
        STOCK.RETURN $3 t1 RESTOCK yes RIGHT yes 1002 2 -> [id_conflict, $3, confirmed]
        STOCK.RETURN $3 t2 RESTOCK yes RIGHT yes 1002 9 -> [bad_quantity, $3, confirmed]
        STOCK.RETURN $3 t3 RESTOCK no RIGHT no 1002 1 -> [returned, $3, confirmed]
        STOCK.ORDER $3 -> [confirmed, $3, :1, 9, _, p4, [1002, :4], [1002, :2]]
        STOCK.SKU 1 1002 -> [:9, :7, :0, :2, live]
        STOCK.RETURN $3 t4 RESTOCK yes RIGHT yes -> [returned, $3, returned]
        STOCK.RETURN $3 t5 RESTOCK yes RIGHT yes -> [too_late, $3, returned]
        STOCK.SKU 1 1002 -> [:9, :9, :0, :0, live]
        STOCK.SKU 1 1001 -> [:3, :2, :0, :1, live]
        STOCK.SKU 1 9 -> [:0, :0, :0, :0, unknown]
        STOCK.CANCEL 77 -> [unknown_order, _, unknown]
        STOCK.ORDER 77 -> [unknown, 0, :0, 0, :0, '', [], []]
        STOCK.STATUS 1 7 r1 -> [confirmed, $1, :1, 7, _, p1, [1001, :1], []]
        STOCK.STATUS 1 7 nobody -> [unknown, 0, _, _, :0, '', [], []]
        STOCK.USER 1 7 -> [:1, [1001, :1, :1], [$1]]
        STOCK.WITHDRAW 1 7 w1 -> [withdrawn, 0, withdrawn]
        STOCK.WITHDRAW 1 7 w1 -> [withdrawn, 0, withdrawn]
        STOCK.RESERVE 1 7 w1 1001 1 -> [withdrawn, 0, :0, :-1, _]
        STOCK.STATUS 1 7 w1 -> [withdrawn, 0, _, _, :0, '', [], []]
        STOCK.WITHDRAW 1 7 r1 -> [too_late, $1, confirmed]
        STOCK.WITHDRAW 9 7 r1 -> [unknown_sale, 0, unknown]
        STOCK.RESERVE 1 30 x1 1002 1 -> [held, $4, _, :0, :-1]
        STOCK.WITHDRAW 1 30 x1 -> [cancelled, $4, cancelled]
        STOCK.WITHDRAW 1 30 x1 -> [already_cancelled, $4, cancelled]
        ",
    );
}

#[test]
fn catalog_and_stock_changes() {
    let (_dir, server) = server();
    let mut resp = server.resp();
    put(&mut resp, SALE);
    run(
        &mut resp,
        r#"
        STOCK.SALE.PUT {"sale":1,"skus":[{"sku":1001,"stock":4}]} -> [bad_request, :1, _]
        STOCK.SALE.PUT {"sale":1,"skus":[{"sku":1003,"stock":1}]} -> [changed, :1, '']
        STOCK.SALE.PUT {"sale":1,"sku":[]} -> [bad_request, _, _]
        STOCK.SALE.PUT nonsense -> [bad_request, :0, _]
        STOCK.ADJUST 1 1001 2 a1 -> [adjusted, :2, :5, :5]
        STOCK.ADJUST 1 1001 2 a1 -> [adjusted, :2, :5, :5]
        STOCK.ADJUST 1 1001 3 a1 -> [id_conflict, _, _, _]
        STOCK.ADJUST 1 1001 -100 a2 -> [adjusted, :-5, :0, :0]
        STOCK.ADJUST 1 1001 0 a3 -> [bad_request, :0, :0, :0]
        STOCK.ADJUST 1 9 1 a3 -> [unknown_sku, :0, :0, :0]
        STOCK.ADJUST 9 1 1 a3 -> [unknown_sale, :0, :0, :0]
        STOCK.SKU 1 1001 -> [:0, :0, :0, :0, sold_out]
        STOCK.ADJUST 1 1001 1 a4 -> [adjusted, :1, :1, :1]
        STOCK.RESERVE 1 5 q 1001 1 -> [held, $1, _, :0, :1]
        STOCK.SALE.PAUSE 1 -> [paused, :1]
        STOCK.SALE.PAUSE 1 -> [unchanged, :1]
        STOCK.RESERVE 1 6 q 1002 1 -> [paused, 0, :0, _, _]
        STOCK.SKU 1 1002 -> [:10, :10, :0, :0, paused]
        STOCK.SALE.RESUME 1 -> [resumed, :1]
        STOCK.SALE.CLOSE 1 -> [closed, :1]
        STOCK.SALE.CLOSE 1 -> [unchanged, :1]
        STOCK.SALE.CLOSE 8 -> [unknown_sale, :8]
        STOCK.RESERVE 1 6 q 1002 1 -> [ended, 0, :0, :-1, _]
        STOCK.CONFIRM $1 p -> [confirmed, $1, confirmed]
        STOCK.SKU 1 1002 -> [:10, :10, :0, :0, ended]
        STOCK.SALE 9 -> nil
        "#,
    );
    let sale = resp.call(&["STOCK.SALE", "1"]).unwrap();
    let sale: serde_json::Value = serde_json::from_str(sale.text()).unwrap();
    assert_eq!(sale["sale"], 1);
    assert_eq!(sale["state"], "ended");
    assert!(sale["server_time_ms"].is_u64() && sale["opens_at"].is_u64());
    assert_eq!(sale["skus"][0]["sku"], "1001");
    for key in ["total", "free", "held", "confirmed", "state"] {
        assert!(!sale["skus"][0][key].is_null(), "{key} in {sale}");
    }
}

#[test]
fn errors_are_for_misuse_of_the_protocol_only() {
    let (_dir, server) = server();
    let mut resp = server.resp();
    run(
        &mut resp,
        "
        PING -> +PONG
        ECHO hi -> hi
        SELECT 0 -> +OK
        CLIENT SETINFO LIB-NAME x -> +OK
        CONFIG GET save -> _
        STOCK.NOTHING 1 -> -ERR unknown command
        STOCK.RESERVE 1 -> -ERR wrong number of arguments
        STOCK.CONFIRM 1 -> -ERR wrong number of arguments
        STOCK.SKU x 1 -> -ERR
        STOCK.ORDER x -> -ERR
        STOCK.USER 1 0 -> -ERR
        STOCK.FEED bad/name COUNT 1 -> -ERR
        STOCK.FEED c COUNT 10001 -> -ERR
        STOCK.FEED.ACK nobody 0 99 -> -ERR
        STOCK.CONFIRM x p -> [bad_request, 0, unknown]
        STOCK.CANCEL 0 -> [bad_request, 0, unknown]
        STOCK.ADJUST 1 1 1.5 a -> [bad_request, :0, :0, :0]
        ",
    );
    let info = resp.call(&["INFO"]).unwrap();
    assert!(info.text().contains("stockade_durability:group"), "{info:?}");
}

#[test]
fn the_feed_is_gapless_and_comes_again_until_acknowledged() {
    let (_dir, server) = server();
    let mut resp = server.resp();
    put(&mut resp, SALE);
    run(
        &mut resp,
        "
        STOCK.RESERVE 1 7 r1 1002 2 DATA x -> [held, $1, _, :0, :-1]
        STOCK.CONFIRM $1 p1 -> [confirmed, $1, confirmed]
        STOCK.CONFIRM $1 p2 -> [id_conflict, $1, confirmed]
        ",
    );
    let read = |resp: &mut Resp| -> Vec<serde_json::Value> {
        let answer = resp.call(&["STOCK.FEED", "c1", "COUNT", "100", "BLOCK", "2000"]).unwrap();
        let items = answer.items();
        items.iter().map(|item| serde_json::from_str(item.text()).unwrap()).collect()
    };
    let events = read(&mut resp);
    let kinds = |events: &[serde_json::Value], of_users: bool| -> Vec<String> {
        let of = events.iter().filter(|e| (e["partition"] != 65535) == of_users);
        of.map(|e| e["kind"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(kinds(&events, false), ["sale_put"]);
    assert_eq!(kinds(&events, true), ["held", "confirmed", "late_payment"]);
    let held = events.iter().find(|e| e["kind"] == "held").unwrap();
    assert_eq!(held["lines"], serde_json::json!([["1002", 2]]));
    assert_eq!((held["user"].as_str(), held["request"].as_str()), (Some("7"), Some("r1")));
    assert_eq!(held["sale"], 1);
    assert!(held["expires_at_ms"].is_u64() && held["at_ms"].is_u64());
    let late = events.iter().find(|e| e["kind"] == "late_payment").unwrap();
    assert_eq!(
        (late["reason"].as_str(), late["payment"].as_str()),
        (Some("second_payment"), Some("p2"))
    );
    assert_eq!(read(&mut resp), events, "unacknowledged events come again");
    let partition = held["partition"].to_string();
    let answer = resp.call(&["STOCK.FEED.ACK", "c1", &partition, "1"]).unwrap();
    assert_eq!(show(&answer), "+OK");
    let again = read(&mut resp);
    assert_eq!(kinds(&again, true), ["confirmed", "late_payment"]);
}
