//! The program itself against an engine behind a socket: verbs, output, exit codes.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use rusqlite::Connection;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use stockade_order_writer::layout::Layout;
use stockade_order_writer::sink::Database;
use stockade_order_writer::sink::sqlite::SqliteDatabase;
use stockade_protocol::{Lsn, PartitionId};
use support::assert_equals_log;
use support::engine::Engine;
use support::history::History;
use support::server::serve;

const PARTITIONS: u16 = 8;

struct Rig {
    dir: tempfile::TempDir,
    engine: Engine,
    server: String,
    names: Vec<&'static str>,
}

impl Rig {
    fn new(engine: Engine, names: &[&'static str]) -> Self {
        let server = serve(&engine, PARTITIONS);
        Self { dir: tempfile::tempdir().unwrap(), engine, server, names: names.to_vec() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, verb: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stockade-writer"));
        command.args(verb).args(["--server", &self.server]).env("RUST_LOG", "warn");
        for name in &self.names {
            command.arg("--db").arg(format!("sqlite://{}", self.path(name).display()));
        }
        command
    }

    fn run(&self, verb: &[&str]) -> Output {
        self.command(verb).output().unwrap()
    }

    fn code(&self, verb: &[&str]) -> i32 {
        let output = self.run(verb);
        output.status.code().unwrap_or_else(|| panic!("{output:?}"))
    }

    fn stdout(&self, verb: &[&str]) -> String {
        String::from_utf8(self.run(verb).stdout).unwrap()
    }

    fn sql(&self, name: &str, statement: &str) {
        Connection::open(self.path(name)).unwrap().execute_batch(statement).unwrap();
    }

    fn drain(&self, more: &[&str]) {
        let output = self.run(&[&["run", "--until-drained"], more].concat());
        assert!(output.status.success(), "{output:?}");
    }
}

/// A running writer; killed when the test ends.
struct Running {
    child: Child,
    /// Held open, so that the writer could go on printing.
    _stdout: BufReader<ChildStdout>,
}

impl Running {
    /// Starts it and waits for its line.
    fn start(rig: &Rig, more: &[&str]) -> Self {
        let mut command = rig.command(&[&["run"], more].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert!(line.starts_with("ready server=127.0.0.1:"), "{line:?}");
        Self { child, _stdout: stdout }
    }

    fn stop(&mut self) -> Option<i32> {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn layout(databases: u16, tables: u16) -> Layout {
    Layout { databases, tables, partitions: PARTITIONS }
}

#[test]
fn drained_databases_equal_the_log_and_other_counts_are_refused() {
    let entries = History::of(31, PARTITIONS, 6_000);
    let rig = Rig::new(Engine::new(entries.clone()), &["a.db", "b.db"]);
    rig.drain(&["--tables", "3"]);
    let (a, b) = (rig.path("a.db"), rig.path("b.db"));
    assert_equals_log(&[&a, &b], layout(2, 3), &entries, &[]);
    assert_eq!(rig.code(&["recon", "diff", "--tables", "3"]), 0);
    let other = rig.run(&["run", "--until-drained", "--tables", "2"]);
    assert_eq!(other.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&other.stderr).contains("--tables 3"), "{other:?}");
    assert_eq!(rig.code(&["recon", "diff", "--tables", "2"]), 2);
    let single = Rig { names: vec!["a.db"], ..rig };
    assert_eq!(single.code(&["run", "--until-drained", "--tables", "3"]), 2);
    assert_eq!(single.code(&["status"]), 2);
}

#[test]
fn a_writer_follows_until_sigterm_and_a_killed_one_is_continued() {
    let entries = History::of(32, PARTITIONS, 4_000);
    let rig = Rig::new(Engine::new(entries[..1_000].to_vec()), &["a.db"]);
    for part in 2..=4 {
        let mut writer = Running::start(&rig, &["--batch-events-max", "20"]);
        rig.engine.state().entries.extend_from_slice(&entries[(part - 1) * 1_000..part * 1_000]);
        // Something of this part is written, then it dies in the middle.
        let before: u64 = rig.engine.state().acks.values().map(|lsn| lsn.get()).sum();
        while rig.engine.state().acks.values().map(|lsn| lsn.get()).sum::<u64>() <= before {
            std::thread::yield_now();
        }
        if part % 2 == 0 {
            drop(writer);
        } else {
            assert_eq!(writer.stop(), Some(0), "SIGTERM drains and exits 0");
        }
    }
    rig.drain(&[]);
    assert_equals_log(&[&rig.path("a.db")], layout(1, 1), &entries, &[]);
}

#[test]
fn a_fenced_writer_exits_with_its_own_code() {
    let entries = History::of(33, PARTITIONS, 300);
    let rig = Rig::new(Engine::new(entries), &["a.db"]);
    let mut old = Running::start(&rig, &[]);
    let mut new = Running::start(&rig, &[]);
    assert_eq!(old.child.wait().unwrap().code(), Some(4));
    assert_eq!(new.stop(), Some(0));
}

#[test]
fn an_alarm_has_its_own_code() {
    let rig = Rig::new(Engine::new(History::of(34, PARTITIONS, 300)), &["a.db"]);
    rig.drain(&[]);
    rig.sql("a.db", "DROP TABLE order_lines");
    rig.engine.state().entries = History::of(34, PARTITIONS, 600);
    assert_eq!(rig.code(&["run", "--until-drained"]), 5);
}

#[test]
fn recon_names_the_damage_one_line_each_and_repairs_it() {
    let rig = Rig::new(Engine::new(History::of(35, PARTITIONS, 900)), &["a.db"]);
    rig.drain(&[]);
    rig.sql("a.db", "DELETE FROM orders WHERE order_id IN (SELECT order_id FROM orders LIMIT 3)");
    rig.sql(
        "a.db",
        "UPDATE orders SET state = 1 + state % 5 WHERE order_id = \
                     (SELECT max(order_id) FROM orders)",
    );
    rig.sql("a.db", "INSERT INTO orders SELECT 999999, 1, 1, 2, 'x', NULL, NULL, 0, 5, 1, NULL, 1");
    assert_eq!(rig.code(&["recon", "diff"]), 1);
    let diff = rig.stdout(&["recon", "diff"]);
    assert_eq!(diff.lines().count(), 5, "{diff}");
    assert!(diff.contains("order 999999: is in SQL, the log does not have it"), "{diff}");
    assert!(diff.contains("state is "), "{diff}");
    let json: serde_json::Value =
        serde_json::from_str(&rig.stdout(&["recon", "diff", "--json"])).unwrap();
    assert_eq!(json["differences"].as_array().unwrap().len(), 5);
    let dry = rig.stdout(&["recon", "fix", "--dry-run"]);
    assert!(dry.contains("would repair 5"), "{dry}");
    assert_eq!(rig.code(&["recon", "diff"]), 1, "nothing was done");
    let fix = rig.run(&["recon", "fix", "--reason", "it was me"]);
    assert_eq!(fix.status.code(), Some(0), "{fix:?}");
    assert!(String::from_utf8_lossy(&fix.stdout).contains("repaired 5, left 0"), "{fix:?}");
    assert_eq!(rig.code(&["recon", "diff"]), 0);
    assert!(rig.stdout(&["recon", "fix"]).contains("repaired 0, left 0"));
}

#[test]
fn refused_orders_are_listed_retried_and_dropped() {
    let mut history = History::new(36, PARTITIONS);
    let orders: Vec<String> = (0..40)
        .map(|n| {
            let sku = if n % 20 == 7 { 6666 } else { 1001 };
            let order = history.place(PartitionId::new(n % 8), &[(sku, 1)], false);
            order.to_string()
        })
        .collect();
    let rig = Rig::new(Engine::new(history.entries), &["a.db"]);
    SqliteDatabase::new(rig.path("a.db")).prepare(&layout(1, 1), 0).unwrap();
    rig.sql(
        "a.db",
        "CREATE TRIGGER no BEFORE INSERT ON order_lines WHEN NEW.sku_id = 6666
                     BEGIN SELECT RAISE(ABORT, 'not sold'); END",
    );
    rig.drain(&[]);
    rig.drain(&[]);
    let list = rig.stdout(&["refused", "list"]);
    assert_eq!(list.lines().count(), 2, "{list}");
    assert!(list.contains(&format!("order {} done: insert", orders[7])), "{list}");
    assert!(list.contains("not sold") && list.contains(r#"[["6666",1]]"#), "{list}");
    assert!(rig.stdout(&["refused", "list", "--state", "open"]).is_empty());
    assert_eq!(rig.code(&["refused", "list", "--state", "shut"]), 2);
    assert_eq!(rig.code(&["refused", "retry", &orders[7]]), 1, "still refused");
    assert_eq!(rig.code(&["refused", "retry", &orders[8]]), 1, "never refused");
    assert_eq!(rig.code(&["refused", "drop", &orders[27]]), 0);
    rig.sql("a.db", "DROP TRIGGER no");
    assert_eq!(rig.code(&["refused", "retry", "--all"]), 0);
    let list = rig.stdout(&["refused", "list"]);
    assert!(list.lines().count() == 1 && list.contains("reviewed"), "{list}");
    let refused = [orders[27].parse().unwrap()];
    assert_equals_log(&[&rig.path("a.db")], layout(1, 1), &rig.engine.entries(), &refused);
}

#[test]
fn status_tells_lag_and_refusals() {
    let entries = History::of(37, PARTITIONS, 500);
    let rig = Rig::new(Engine::new(entries[..400].to_vec()), &["a.db"]);
    let empty = rig.run(&["status"]);
    assert_eq!(empty.status.code(), Some(2), "{empty:?}");
    rig.drain(&[]);
    rig.engine.state().entries.clone_from(&entries);
    let status = rig.stdout(&["status", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&status).unwrap();
    let database = &json["databases"][0];
    assert_eq!(
        (database["entries"].as_u64(), database["lag_entries"].as_u64()),
        (Some(400), Some(100))
    );
    assert!(database["lag_seconds"].as_f64().unwrap() > 0.0 && database["refused_open"] == 0);
    assert!(rig.stdout(&["status"]).contains("behind 100 entries"));
}

#[test]
fn the_report_says_what_a_meeting_wants_to_know() {
    let rig = Rig::new(Engine::new(History::of(33, PARTITIONS, 1_500)), &["a.db"]);
    rig.drain(&[]);
    let file = rig.path("report.md");
    let diff = ["recon", "diff", "--report", file.to_str().unwrap()];
    assert_eq!(rig.code(&diff), 0);
    let report = std::fs::read_to_string(&file).unwrap();
    assert!(report.contains("**SQL is what the log says.**"), "{report}");
    let rows: Vec<&str> = report.lines().filter(|line| line.starts_with("| 1 | 100")).collect();
    assert!(!rows.is_empty() && rows.iter().all(|row| row.ends_with("| yes |")), "{report}");
    rig.sql("a.db", "UPDATE order_lines SET qty = qty + 1 WHERE sku_id = 1001");
    assert_eq!(rig.code(&diff), 1);
    let report = std::fs::read_to_string(&file).unwrap();
    assert!(report.contains("| **no** |") && report.contains("sku 1001 qty is"), "{report}");
}

#[test]
fn a_trimmed_log_stops_the_writer() {
    let rig = Rig::new(Engine::new(History::of(38, PARTITIONS, 500)), &["a.db"]);
    rig.engine.state().kept_from.insert(PartitionId::new(3), Lsn::new(9));
    let output = rig.run(&["run", "--until-drained"]);
    assert_eq!(output.status.code(), Some(5));
    assert!(String::from_utf8_lossy(&output.stderr).contains("1..=8 are trimmed"), "{output:?}");
}

#[test]
fn ddl_is_printed_and_wrong_arguments_are_usage_errors() {
    let writer = || Command::new(env!("CARGO_BIN_EXE_stockade-writer"));
    let ddl = writer().args(["ddl", "--tables", "2"]).output().unwrap();
    let text = String::from_utf8(ddl.stdout).unwrap();
    assert!(text.contains("CREATE TABLE orders_01 (") && text.contains("CREATE TABLE cursors ("));
    Connection::open_in_memory().unwrap().execute_batch(&text).unwrap();
    let cases: &[&[&str]] = &[
        &["run"],
        &["run", "--db", "postgres://u:p@h:port/d"],
        &["run", "--db", "mysql://h"],
        &["run", "--db", "sqlite://a", "--replica", "sqlite://b"],
        &["run", "--db", "x.db"],
        &["run", "--db", "sqlite://a", "--db", "sqlite://a"],
        &["run", "--db", "sqlite://a", "--tables", "0"],
        &["run", "--db", "sqlite://a", "--tables", "101"],
        &["run", "--db", "sqlite://a", "--consumer", "no spaces"],
        &["refused", "retry", "--db", "sqlite://a"],
        &["recon"],
        &["ddl", "--dialect", "oracle"],
    ];
    for arguments in cases {
        let output = writer().args(*arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        assert!(!Path::new("a").exists());
    }
    let gone = ["recon", "diff", "--server", "127.0.0.1:1", "--db", "sqlite://nowhere.db"];
    assert_eq!(writer().args(gone).output().unwrap().status.code(), Some(2));
}
