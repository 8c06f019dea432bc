//! A shop's life in the fast lane: many orders at once over one RESP connection, with everything
//! that becomes of orders, and the SQL rows that must come of it.

use crate::books::{Books, OrderRow};
use crate::database::DatabaseServer;
use crate::resp::{Resp, Value};
use crate::rng::Rng;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The sale that is traded; holds of 1.5 s, five SKUs, one of them short.
pub const SALE: &str = r#"{"sale":1,"name":"sql","opens_at":"now","hold_ms":1500,"skus":[
{"sku":1001,"stock":900000},{"sku":1002,"stock":900000},{"sku":1003,"stock":50},
{"sku":1004,"stock":900000},{"sku":1009,"stock":900000}]}"#;

/// Commands that are under way at once.
const PIPELINE: usize = 128;

/// Sends all commands and gives their answers, in order.
///
/// # Panics
/// The connection is gone.
pub fn pipelined(resp: &mut Resp, commands: &[Vec<String>]) -> Vec<Value> {
    let mut answers = Vec::with_capacity(commands.len());
    for part in commands.chunks(PIPELINE) {
        for command in part {
            let words: Vec<&str> = command.iter().map(String::as_str).collect();
            resp.send(&words).expect("the engine takes commands");
        }
        for _ in part {
            answers.push(resp.receive().expect("the engine answers"));
        }
    }
    answers
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// Places `count` orders and lets them live: paid, cancelled, paid too late, returned in part or
/// whole, left to expire. `first` counts on, so that every request id is new.
pub fn trade(resp: &mut Resp, rng: &mut Rng, first: u64, count: u64) {
    let reserves: Vec<Vec<String>> = (first..first + count)
        .map(|i| {
            let (user, sku, units) = (1 + rng.below(300), 1001 + rng.below(4), 1 + rng.below(3));
            words(&format!("STOCK.RESERVE 1 {user} r{i} {sku} {units} 1009 1 DATA d{i}"))
        })
        .collect();
    let answers = pipelined(resp, &reserves);
    let held: Vec<(u64, String)> = (first..)
        .zip(&answers)
        .filter(|(_, answer)| answer.items()[0].text() == "held")
        .map(|(i, answer)| (i, answer.items()[1].text().to_owned()))
        .collect();
    // One pass after the other: an order's commands must not overtake each other.
    let mut passes: [Vec<Vec<String>>; 2] = [Vec::new(), Vec::new()];
    for (i, order) in held {
        let [then, later] = &mut passes;
        match rng.below(8) {
            0 => then.push(words(&format!("STOCK.CANCEL {order} no"))),
            1 => {
                then.push(words(&format!("STOCK.CANCEL {order}")));
                later.push(words(&format!("STOCK.CONFIRM {order} p{i}")));
            }
            2 => {
                then.push(words(&format!("STOCK.CONFIRM {order} p{i}")));
                let part = format!("STOCK.RETURN {order} t1 RESTOCK yes RIGHT no 1009 1");
                later.push(words(&part));
            }
            3 => {
                then.push(words(&format!("STOCK.CONFIRM {order} p{i}")));
                later.push(words(&format!("STOCK.RETURN {order} t RESTOCK no RIGHT yes")));
            }
            4 => {}
            _ => then.push(words(&format!("STOCK.CONFIRM {order} p{i}"))),
        }
    }
    for pass in &passes {
        pipelined(resp, pass);
    }
}

/// Waits until nothing is held any more: the engine's own timer, without traffic.
///
/// # Panics
/// Holds do not expire.
pub fn wait_for_expiries(resp: &mut Resp) {
    let started = Instant::now();
    let mut held = || -> i64 {
        let of =
            |sku: &str| resp.call(&["STOCK.SKU", "1", sku]).expect("an answer").items()[2].number();
        ["1001", "1002", "1003", "1004"].map(of).iter().sum()
    };
    while held() > 0 {
        assert!(started.elapsed() < Duration::from_secs(60), "holds do not expire");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn number(text: &str) -> i64 {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is no number"))
}

/// The rows of a database with one table, in the form of the feed's fold.
///
/// # Panics
/// It cannot be read, or has lines without an order.
pub fn read_sql(server: &DatabaseServer, database: &str) -> Books {
    let mut books = Books::default();
    let sql = "SELECT order_id, user_id, state, payment_ref, lsn FROM orders";
    for row in server.rows(database, sql) {
        let order = OrderRow {
            user: row[1].clone(),
            state: number(&row[2]),
            payment: Some(row[3].clone()).filter(|text| text != "NULL"),
            lsn: number(&row[4]),
            lines: BTreeMap::new(),
        };
        assert!(books.orders.insert(row[0].clone(), order).is_none(), "one row an order");
    }
    let sql = "SELECT order_id, sku_id, qty, returned_qty FROM order_lines";
    for row in server.rows(database, sql) {
        let order = books.orders.get_mut(&row[0]).expect("lines have orders");
        order.lines.insert(row[1].clone(), (number(&row[2]), number(&row[3])));
    }
    for row in server.rows(database, "SELECT order_id, payment_ref, reason FROM late_payments") {
        books.late_payments.insert((row[0].clone(), row[1].clone()), row[2].clone());
    }
    books
}

/// Asserts P9: the rows are the fold of the feed.
///
/// # Panics
/// They are not.
pub fn assert_equal(sql: &Books, feed: &Books) {
    for (id, order) in &feed.orders {
        assert_eq!(sql.orders.get(id), Some(order), "P9: order {id}");
    }
    assert_eq!(sql.orders.len(), feed.orders.len(), "P9: no row too many");
    assert_eq!(sql.late_payments, feed.late_payments, "P9: late payments");
}
