//! PostgreSQL with real streaming replication: the primary dies, the standby is promoted, and the
//! writer goes on by itself; also with a standby that is behind what was acknowledged.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::{Duration, Instant};
use stockade_e2e::trade::{SALE, assert_equal, read_sql, trade, wait_for_expiries};
use stockade_e2e::{Books, DatabaseServer, Product, Program, Rng, Server, Writer};

struct Rig {
    primary: DatabaseServer,
    standby: DatabaseServer,
    server: Server,
    url: [String; 1],
    rng: Rng,
    orders: u64,
    /// What [`Self::entries`] read so far.
    counted: Books,
    _dir: tempfile::TempDir,
}

impl Rig {
    /// `None`: PostgreSQL is not installed, which was said.
    fn new() -> Option<Self> {
        let primary = DatabaseServer::start(Product::Postgres)?;
        primary.create("orders");
        let standby = primary.standby();
        let dir = tempfile::tempdir().unwrap();
        let server = Server::start(&dir.path().join("data"), &["--partitions", "8"]);
        server.resp().call(&["STOCK.SALE.PUT", SALE]).unwrap();
        let (first, second) = (primary.port(), standby.port());
        let url = [format!("postgres://postgres@127.0.0.1:{first},127.0.0.1:{second}/orders")];
        let rng = Rng::new(Rng::seed_of_run());
        let counted = Books::default();
        Some(Self { primary, standby, server, url, rng, orders: 0, counted, _dir: dir })
    }

    fn writer(&self) -> Program {
        Writer::start(&self.server, &self.url, &["--batch-events-max", "200"])
    }

    fn trade(&mut self, count: u64) {
        trade(&mut self.server.resp(), &mut self.rng, self.orders, count);
        self.orders += count;
    }

    /// Entries in the engine: the sum over its partitions.
    fn entries(&mut self) -> i64 {
        self.counted.read(&mut self.server.resp(), "counter");
        self.counted.lsns.values().sum()
    }

    /// Waits until a database has everything that is in the log now.
    fn wait_for(&self, database: &DatabaseServer, entries: i64) {
        let started = Instant::now();
        while written(database) < entries {
            assert!(started.elapsed() < Duration::from_secs(60), "it does not catch up");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The end of every case: SQL on the new primary equals the log.
    fn check(&mut self, mut writer: Program) -> String {
        wait_for_expiries(&mut self.server.resp());
        assert!(writer.stop().success(), "it was the same writer all along");
        let drained = Writer::run(&["run", "--until-drained"], &self.server, &self.url);
        assert!(drained.status.success(), "{}", String::from_utf8_lossy(&drained.stderr));
        let mut feed = Books::default();
        feed.read(&mut self.server.resp(), "auditor");
        assert!(!feed.orders.is_empty());
        assert_equal(&read_sql(&self.standby, "orders"), &feed);
        let diff = Writer::run(&["recon", "diff"], &self.server, &self.url);
        assert!(diff.status.success(), "{}", String::from_utf8_lossy(&diff.stdout));
        writer.take_stderr()
    }
}

fn written(database: &DatabaseServer) -> i64 {
    database.number("orders", "SELECT coalesce(sum(lsn), 0)::bigint FROM cursors")
}

#[test]
fn a_promoted_standby_is_found_and_nothing_is_lost() {
    let Some(mut rig) = Rig::new() else { return };
    let writer = rig.writer();
    rig.trade(500);
    rig.primary.kill();
    rig.trade(300);
    rig.standby.promote();
    rig.trade(300);
    let stderr = rig.check(writer);
    assert!(stderr.contains("away"), "{stderr}");
}

#[test]
fn a_promoted_standby_that_is_behind_is_filled_from_its_own_cursor() {
    let Some(mut rig) = Rig::new() else { return };
    let writer = rig.writer();
    rig.trade(300);
    let entries = rig.entries();
    rig.wait_for(&rig.primary, entries);
    rig.wait_for(&rig.standby, entries);
    // The standby sees nothing of what comes now; the engine is told that it is in SQL.
    rig.standby.stop();
    rig.trade(400);
    let more = rig.entries();
    assert!(more > entries);
    rig.wait_for(&rig.primary, more);
    wait_until_acknowledged(&rig);
    rig.primary.kill();
    rig.standby.restart();
    assert!(written(&rig.standby) < more, "the standby is behind");
    rig.standby.promote();
    rig.trade(100);
    let stderr = rig.check(writer);
    assert!(stderr.contains("behind what was acknowledged"), "{stderr}");
}

/// Waits until the engine knows that everything is in SQL.
fn wait_until_acknowledged(rig: &Rig) {
    let started = Instant::now();
    loop {
        let answer = stockade_e2e::cli(&rig.server, &["--json", "feed", "consumers"]);
        let text = String::from_utf8(answer.stdout).unwrap();
        let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
        let mut lines = lines.filter(|line: &serde_json::Value| line["consumer"] == "order-writer");
        if lines.next().is_some_and(|writer| writer["lag"] == 0) {
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "not acknowledged: {text}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_primary_that_turns_read_only_is_away_and_not_a_bug() {
    let Some(mut rig) = Rig::new() else { return };
    let writer = rig.writer();
    rig.trade(200);
    rig.primary.run("postgres", "ALTER SYSTEM SET default_transaction_read_only = on");
    rig.primary.run("postgres", "SELECT pg_reload_conf()");
    rig.trade(200);
    let entries = rig.entries();
    assert!(written(&rig.primary) < entries);
    rig.primary.run("postgres", "ALTER SYSTEM RESET default_transaction_read_only");
    rig.primary.run("postgres", "SELECT pg_reload_conf()");
    // The rows are looked for where they are.
    std::mem::swap(&mut rig.primary, &mut rig.standby);
    let stderr = rig.check(writer);
    assert!(stderr.contains("25006"), "{stderr}");
}
