//! P9 under fire: writer and database are killed under load, commits are left in doubt by a proxy
//! that cuts the connection behind them, and SQL equals the fold of the log row by row.
//!
//! `STOCKADE_KILL_ROUNDS` sets the rounds (default 4), `STOCKADE_SEED` the seed. The rows are read
//! with the database's own command line, the feed with the tests' own fold: neither shares code
//! with the writer.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use stockade_e2e::trade::{SALE, assert_equal, read_sql, trade, wait_for_expiries};
use stockade_e2e::{Books, DatabaseServer, Product, Proxy, Resp, Rng, Server, Writer};

const BURST: u64 = 250;

fn rounds() -> u64 {
    std::env::var("STOCKADE_KILL_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(4)
}

/// Trades until it is told to stop; counts its orders.
fn load(address: String, seed: u64, stop: Arc<AtomicBool>, orders: Arc<AtomicU64>) {
    let (mut rng, mut resp) = (Rng::new(seed), Resp::connect(&address).unwrap());
    while !stop.load(Ordering::SeqCst) {
        let first = orders.load(Ordering::SeqCst);
        trade(&mut resp, &mut rng, first, BURST);
        orders.fetch_add(BURST, Ordering::SeqCst);
    }
}

fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(120), "{what} does not come about");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn kill_loop(product: Product) {
    let Some(mut database) = DatabaseServer::start(product) else { return };
    let seed = Rng::seed_of_run();
    let mut rng = Rng::new(seed);
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"), &["--partitions", "8"]);
    server.resp().call(&["STOCK.SALE.PUT", SALE]).unwrap();
    database.create("orders");
    let proxy = Proxy::start(database.port(), 0);
    let urls = [database.url_through(proxy.port, "orders")];
    let (stop, orders) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (address, stopped, counted) =
        (server.resp_address().to_owned(), stop.clone(), orders.clone());
    let trader = std::thread::spawn(move || load(address, seed ^ 1, stopped, counted));
    let mut writer = Writer::start(&server, &urls, &["--batch-events-max", "300"]);
    for round in 0..rounds() {
        // A part of every round goes through without a kill, behind commits in doubt.
        let cuts = proxy.cuts();
        proxy.cut_every(1 + rng.below(3));
        wait_for("a commit in doubt", || proxy.cuts() > cuts + 1);
        proxy.cut_every(5 + rng.below(20));
        let until = orders.load(Ordering::SeqCst) + 1 + rng.below(4 * BURST);
        wait_for("load", || orders.load(Ordering::SeqCst) >= until);
        match round % 4 {
            0 => database.kill(),
            1 => writer.kill(),
            2 => {
                writer.kill();
                database.kill();
            }
            _ => database.stop(),
        }
        if round % 4 != 1 {
            // The sale goes on without its database.
            let until = orders.load(Ordering::SeqCst) + BURST;
            wait_for("a sale without a database", || orders.load(Ordering::SeqCst) >= until);
            database.restart();
        }
        if matches!(round % 4, 1 | 2) {
            writer = Writer::start(&server, &urls, &["--batch-events-max", "300"]);
        }
    }
    stop.store(true, Ordering::SeqCst);
    trader.join().unwrap();
    proxy.cut_every(0);
    wait_for_expiries(&mut server.resp());
    assert!(writer.stop().success(), "{}", writer.take_stderr());
    let drained = Writer::run(&["run", "--until-drained"], &server, &urls);
    assert!(drained.status.success(), "{}", String::from_utf8_lossy(&drained.stderr));
    let mut feed = Books::default();
    feed.read(&mut server.resp(), "auditor");
    assert!(!feed.orders.is_empty() && !feed.late_payments.is_empty());
    assert_equal(&read_sql(&database, "orders"), &feed);
    assert_eq!(database.number("orders", "SELECT count(*) FROM refused_orders"), 0);
    let diff = Writer::run(&["recon", "diff"], &server, &urls);
    assert!(diff.status.success(), "{}", String::from_utf8_lossy(&diff.stdout));
    let (count, cuts) = (feed.orders.len(), proxy.cuts());
    println!("{product:?}: {count} orders, {} rounds, {cuts} commits in doubt", rounds());
}

#[test]
fn postgres_equals_the_log_whatever_was_killed() {
    kill_loop(Product::Postgres);
}

#[test]
fn mariadb_equals_the_log_whatever_was_killed() {
    kill_loop(Product::Mariadb);
}

/// Two writers on the same databases: the newer one takes over, the older one ends with its own
/// code, and every row is there once.
fn two_writers(product: Product) {
    let Some(database) = DatabaseServer::start(product) else { return };
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"), &["--partitions", "8"]);
    server.resp().call(&["STOCK.SALE.PUT", SALE]).unwrap();
    let urls = ["a", "b"].map(|name| {
        database.create(name);
        database.url(name)
    });
    let mut rng = Rng::new(5);
    let mut older = Writer::start(&server, &urls, &["--tables", "16"]);
    trade(&mut server.resp(), &mut rng, 0, 200);
    let mut newer = Writer::start(&server, &urls, &[]);
    trade(&mut server.resp(), &mut rng, 200, 200);
    assert_eq!(older.wait().code(), Some(4), "fenced: {}", older.take_stderr());
    wait_for_expiries(&mut server.resp());
    assert!(newer.stop().success(), "{}", newer.take_stderr());
    let drained = Writer::run(&["run", "--until-drained"], &server, &urls);
    assert!(drained.status.success(), "{}", String::from_utf8_lossy(&drained.stderr));
    let diff = Writer::run(&["recon", "diff", "--json"], &server, &urls);
    assert!(diff.status.success(), "{}", String::from_utf8_lossy(&diff.stdout));
    let report: serde_json::Value = serde_json::from_slice(&diff.stdout).unwrap();
    assert_eq!(report["rows_read"], 0, "equal ranges are not read: {report}");
    assert!(report["orders"].as_u64().unwrap() > 100);
    let other = Writer::run(&["run", "--until-drained", "--tables", "8"], &server, &urls);
    assert_eq!(other.status.code(), Some(2), "other counts than the data was written with");
    let status = Writer::run(&["status", "--json"], &server, &urls);
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    for database in status["databases"].as_array().unwrap() {
        assert_eq!((&database["lag_entries"], &database["tables"]), (&0.into(), &16.into()));
    }
}

#[test]
fn the_older_of_two_writers_on_postgres_exits_with_4() {
    two_writers(Product::Postgres);
}

#[test]
fn the_older_of_two_writers_on_mariadb_exits_with_4() {
    two_writers(Product::Mariadb);
}
