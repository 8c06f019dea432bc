//! The order writer against the real engine: P9, SQL equals the log row by row, whatever was
//! killed.
//!
//! SQLite is read with Python's own sqlite3 module, the feed with the tests' own fold: neither
//! shares code with the writer.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use stockade_e2e::books::OrderRow;
use stockade_e2e::{Books, Resp, Rng, Server, Writer};

const READ: &str = r#"
import json, sqlite3, sys
out = {"orders": [], "lines": [], "late": [], "cursors": []}
for path in sys.argv[1:]:
    db = sqlite3.connect(path)
    tables = [r[0] for r in db.execute("select name from sqlite_master where type='table'")]
    for t in sorted(tables):
        if t == "orders" or (t.startswith("orders_") and t[7:].isdigit()):
            out["orders"] += [list(r) for r in db.execute(
                f"select order_id, user_id, state, payment_ref, lsn, request_id, created_at from {t}")]
        if t == "order_lines" or (t.startswith("order_lines_") and t[12:].isdigit()):
            out["lines"] += [list(r) for r in db.execute(
                f"select order_id, sku_id, qty, returned_qty from {t}")]
    out["late"] += [list(r) for r in db.execute("select order_id, payment_ref, reason from late_payments")]
    out["cursors"] += [list(r) for r in db.execute("select partition_id, lsn from cursors")]
print(json.dumps(out))
"#;

/// The rows of all databases, in the form of the feed's fold.
fn read_sql(paths: &[&Path]) -> Books {
    let output = Command::new("python3").arg("-c").arg(READ).args(paths).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut books = Books::default();
    for row in json["orders"].as_array().unwrap() {
        let order = OrderRow {
            user: row[1].to_string(),
            state: row[2].as_i64().unwrap(),
            payment: row[3].as_str().map(str::to_owned),
            lsn: row[4].as_i64().unwrap(),
            lines: BTreeMap::new(),
        };
        assert!(row[5].is_string(), "request ids are text");
        assert!(row[6].as_i64().unwrap() > 1_600_000_000_000_000, "times are microseconds");
        assert!(books.orders.insert(row[0].to_string(), order).is_none(), "one row an order");
    }
    for row in json["lines"].as_array().unwrap() {
        let order = books.orders.get_mut(&row[0].to_string()).expect("lines have orders");
        let units = (row[2].as_i64().unwrap(), row[3].as_i64().unwrap());
        order.lines.insert(row[1].to_string(), units);
    }
    for row in json["late"].as_array().unwrap() {
        let key = (row[0].to_string(), row[1].as_str().unwrap().to_owned());
        books.late_payments.insert(key, row[2].as_str().unwrap().to_owned());
    }
    books
}

/// Some seconds of a shop's life, without waiting for anything.
fn trade(resp: &mut Resp, rng: &mut Rng, count: u64, first: u64) {
    for i in first..first + count {
        let (user, request) = ((1 + rng.below(300)).to_string(), format!("r{i}"));
        let (one, other) = ((1001 + rng.below(4)).to_string(), "1009".to_owned());
        let units = (1 + rng.below(3)).to_string();
        let call = ["STOCK.RESERVE", "1", &user, &request, &one, &units, &other, "1", "DATA", "d"];
        let answer = resp.call(&call).unwrap();
        if answer.items()[0].text() != "held" {
            continue;
        }
        let order = answer.items()[1].text().to_owned();
        let pay = format!("p{i}");
        match rng.below(8) {
            0 => drop(resp.call(&["STOCK.CANCEL", &order, "no"]).unwrap()),
            1 => {
                resp.call(&["STOCK.CANCEL", &order]).unwrap();
                resp.call(&["STOCK.CONFIRM", &order, &pay]).unwrap();
            }
            2 => drop(resp.call(&["STOCK.WITHDRAW", "1", &user, &request]).unwrap()),
            3 => {
                resp.call(&["STOCK.CONFIRM", &order, &pay]).unwrap();
                let part =
                    ["STOCK.RETURN", &order, "t1", "RESTOCK", "yes", "RIGHT", "no", "1009", "1"];
                resp.call(&part).unwrap();
            }
            4 => {
                resp.call(&["STOCK.CONFIRM", &order, &pay]).unwrap();
                resp.call(&["STOCK.RETURN", &order, "t", "RESTOCK", "no", "RIGHT", "yes"]).unwrap();
            }
            5 => {}
            _ => drop(resp.call(&["STOCK.CONFIRM", &order, &pay]).unwrap()),
        }
    }
}

const SALE: &str = r#"{"sale":1,"name":"sql","opens_at":"now","hold_ms":1500,"skus":[
{"sku":1001,"stock":4000},{"sku":1002,"stock":4000},{"sku":1003,"stock":50},{"sku":1004,"stock":4000},
{"sku":1009,"stock":9000}]}"#;

fn drain_and_compare(server: &Server, paths: &[&Path], urls: &[String], tables: &str) {
    let drained = Writer::run(&["run", "--until-drained", "--tables", tables], server, urls);
    assert!(drained.status.success(), "{}", String::from_utf8_lossy(&drained.stderr));
    let mut books = Books::default();
    books.read(&mut server.resp(), "auditor");
    let sql = read_sql(paths);
    assert!(!books.orders.is_empty() && !books.late_payments.is_empty());
    for (id, order) in &books.orders {
        assert_eq!(sql.orders.get(id), Some(order), "P9: order {id}");
    }
    assert_eq!(sql.orders.len(), books.orders.len(), "P9: no row too many");
    assert_eq!(sql.late_payments, books.late_payments, "P9: late payments");
    let diff = Writer::run(&["recon", "diff", "--tables", tables], server, urls);
    assert!(diff.status.success(), "{}", String::from_utf8_lossy(&diff.stdout));
}

/// Waits until nothing is held any more: the engine's own timer, without traffic.
fn wait_for_expiries(resp: &mut Resp) {
    let started = std::time::Instant::now();
    loop {
        let held: i64 = [1001, 1002, 1003, 1004]
            .map(|sku: u64| {
                resp.call(&["STOCK.SKU", "1", &sku.to_string()]).unwrap().items()[2].number()
            })
            .iter()
            .sum();
        if held == 0 {
            return;
        }
        assert!(started.elapsed().as_secs() < 60, "holds do not expire");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn sql_equals_the_log_whatever_was_killed() {
    let dir = tempfile::tempdir().unwrap();
    let mut rng = Rng::new(Rng::seed_of_run());
    let mut server = Server::start(&dir.path().join("data"), &["--partitions", "8"]);
    let path = dir.path().join("orders.db");
    let urls = [format!("sqlite://{}", path.display())];
    server.resp().call(&["STOCK.SALE.PUT", SALE]).unwrap();
    for round in 0..6 {
        let mut writer = Writer::start(&server, &urls, &[]);
        trade(&mut server.resp(), &mut rng, 300, round * 300);
        match round % 3 {
            0 => writer.kill(),
            1 => server.kill_and_restart(),
            _ => assert!(writer.stop().success(), "SIGTERM ends the writer with 0"),
        }
    }
    wait_for_expiries(&mut server.resp());
    drain_and_compare(&server, &[&path], &urls, "1");
}

#[test]
fn two_databases_by_sixteen_tables_hold_the_same_rows() {
    let dir = tempfile::tempdir().unwrap();
    let mut rng = Rng::new(7);
    let server = Server::start(&dir.path().join("data"), &[]);
    let paths = [dir.path().join("a.db"), dir.path().join("b.db")];
    let urls = paths.clone().map(|path| format!("sqlite://{}", path.display()));
    server.resp().call(&["STOCK.SALE.PUT", SALE]).unwrap();
    trade(&mut server.resp(), &mut rng, 400, 0);
    wait_for_expiries(&mut server.resp());
    drain_and_compare(&server, &[&paths[0], &paths[1]], &urls, "16");
    let other = Writer::run(&["run", "--until-drained", "--tables", "8"], &server, &urls);
    assert!(!other.status.success(), "other counts than the data was written with are refused");
}
