//! Rows that a database refuses, against the real engine: exactly those are recorded, cancelled and
//! restocked, the rest is written; a broken schema stops the writer and cancels nothing.
//!
//! `STOCKADE_REFUSED_ORDERS` sets the orders of a case (default 6,000; measured figures are for
//! 60,000); the bad ones are 0, 13, 138 and 682 of 60,000.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use stockade_e2e::trade::pipelined;
use stockade_e2e::{DatabaseServer, Product, Server, Writer};

const SALE: &str = r#"{"sale":1,"name":"refused","opens_at":"now","hold_ms":3600000,"skus":[
{"sku":1001,"stock":100000},{"sku":6666,"stock":1000,"limit_per_user":1}]}"#;
const CHECK: &str = "ALTER TABLE order_lines ADD CONSTRAINT no CHECK (sku_id <> 6666)";
const BAD_OF_60_000: [u64; 4] = [0, 13, 138, 682];

fn orders() -> u64 {
    let orders = std::env::var("STOCKADE_REFUSED_ORDERS").ok();
    orders.and_then(|text| text.parse().ok()).unwrap_or(6_000)
}

struct Rig {
    _dir: tempfile::TempDir,
    server: Server,
    url: [String; 1],
}

impl Rig {
    /// An engine with orders, and the writer's tables in an empty database.
    fn new(database: &DatabaseServer, name: &str, bad: u64) -> (Self, BTreeSet<String>) {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::start(&dir.path().join("data"), &["--partitions", "8"]);
        server.resp().call(&["STOCK.SALE.PUT", SALE]).unwrap();
        database.create(name);
        let rig = Self { _dir: dir, server, url: [database.url(name)] };
        rig.drain(0);
        let all = orders();
        let is_bad = |n: u64| n * bad / all != (n + 1) * bad / all;
        let command = |n: u64| {
            let sku = if is_bad(n) { "6666" } else { "1001" };
            let text = format!("STOCK.RESERVE 1 {} r{n} {sku} 1", n + 1);
            text.split(' ').map(str::to_owned).collect()
        };
        let commands: Vec<Vec<String>> = (0..all).map(command).collect();
        let answers = pipelined(&mut rig.server.resp(), &commands);
        let mut refused = BTreeSet::new();
        for (n, answer) in (0..).zip(&answers) {
            assert_eq!(answer.items()[0].text(), "held");
            if is_bad(n) {
                refused.insert(answer.items()[1].text().to_owned());
            }
        }
        assert_eq!(refused.len() as u64, bad);
        (rig, refused)
    }

    fn drain(&self, code: i32) -> String {
        let verb = ["run", "--until-drained", "--refused-per-minute-max", "100000"];
        let output = Writer::run(&verb, &self.server, &self.url);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{errors}");
        errors
    }

    /// total, free, held, confirmed
    fn units(&self, sku: &str) -> [i64; 4] {
        let answer = self.server.resp().call(&["STOCK.SKU", "1", sku]).unwrap();
        [0, 1, 2, 3].map(|at| answer.items()[at].number())
    }
}

fn refused_rows(product: Product) {
    let Some(database) = DatabaseServer::start(product) else { return };
    for of_60_000 in BAD_OF_60_000 {
        let bad = of_60_000 * orders() / 60_000;
        let name = format!("bad{of_60_000}");
        let (rig, refused) = Rig::new(&database, &name, bad);
        database.run(&name, CHECK);
        // The second run reads the engine's own events of what was given back.
        rig.drain(0);
        rig.drain(0);
        let found =
            database.rows(&name, "SELECT order_id FROM refused_orders WHERE state = 'done'");
        let found: BTreeSet<String> = found.into_iter().map(|row| row[0].clone()).collect();
        assert_eq!(found, refused, "exactly those are refused");
        let rows = database.number(&name, "SELECT count(*) FROM refused_orders");
        assert_eq!(rows, bad as i64);
        let good = (orders() - bad) as i64;
        assert_eq!(database.number(&name, "SELECT count(*) FROM orders WHERE state = 1"), good);
        assert_eq!(database.number(&name, "SELECT count(*) FROM orders"), good);
        assert_eq!(rig.units("6666"), [1000, 1000, 0, 0], "restocked");
        assert_eq!(rig.units("1001")[2], good, "the others are still held");
        let mut resp = rig.server.resp();
        for order in &refused {
            let answer = resp.call(&["STOCK.ORDER", order]).unwrap();
            assert_eq!(answer.items()[0].text(), "cancelled");
            let user = answer.items()[3].text().to_owned();
            let again = ["STOCK.RESERVE", "1", &user, "again", "6666", "1"];
            assert_eq!(resp.call(&again).unwrap().items()[0].text(), "held", "the right is back");
        }
    }
}

#[test]
fn postgres_refuses_exactly_the_bad_orders() {
    refused_rows(Product::Postgres);
}

#[test]
fn mariadb_refuses_exactly_the_bad_orders() {
    refused_rows(Product::Mariadb);
}

fn broken_schema(product: Product) {
    let Some(database) = DatabaseServer::start(product) else { return };
    let (rig, _) = Rig::new(&database, "broken", 1);
    let before = rig.units("1001");
    database.run("broken", "ALTER TABLE orders RENAME COLUMN request_id TO rid");
    let errors = rig.drain(5);
    assert!(errors.contains("request_id"), "{errors}");
    assert_eq!(rig.units("1001"), before, "nothing is cancelled");
    assert_eq!(database.number("broken", "SELECT count(*) FROM refused_orders"), 0);
    database.run("broken", "ALTER TABLE orders RENAME COLUMN rid TO request_id");
    rig.drain(0);
    let written = database.number("broken", "SELECT count(*) FROM orders");
    assert_eq!(written, orders() as i64, "mended, it goes on");
}

#[test]
fn a_broken_schema_stops_the_writer_and_cancels_nothing() {
    broken_schema(Product::Postgres);
    broken_schema(Product::Mariadb);
}
