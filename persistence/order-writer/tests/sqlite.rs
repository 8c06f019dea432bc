//! The lane on real SQLite files: exactly once whatever dies, fencing, refused rows, layouts.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use stockade_order_writer::lane::{LaneEnd, LaneOptions};
use stockade_order_writer::layout::Layout;
use stockade_order_writer::pipeline::BreakerLimits;
use stockade_order_writer::sink::sqlite::SqliteDatabase;
use stockade_order_writer::sink::{Database, SetupError};
use stockade_protocol::{Command, Entry, Lsn, PartitionId};
use support::engine::Engine;
use support::failing::{Death, FailingDatabase};
use support::history::History;
use support::{assert_equals_log, drain, draining, file, lane};

const LAYOUT: Layout = Layout { databases: 1, tables: 1, partitions: 4 };

fn sql(path: &Path, statement: &str) {
    Connection::open(path).unwrap().execute_batch(statement).unwrap();
}

fn count(path: &Path, query: &str) -> i64 {
    Connection::open(path).unwrap().query_row(query, [], |row| row.get(0)).unwrap()
}

#[test]
fn rows_equal_the_log_and_acks_follow_commits() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("orders.db");
    let entries = History::of(3, LAYOUT.partitions, 2_000);
    let engine = Engine::new(entries.clone());
    engine.state().check = Some((file(&path), LAYOUT));
    engine.state().break_every = Some(11);
    assert_eq!(drain(&path, LAYOUT, &engine, 50), LaneEnd::Drained);
    assert_equals_log(&[&path], LAYOUT, &entries, &[]);
    for partition in LAYOUT.partitions_of(0) {
        let last = entries.iter().filter(|entry| entry.partition == partition).count() as u64;
        assert_eq!(engine.state().acks[&partition], Lsn::new(last), "all is acknowledged");
    }
    assert_eq!(drain(&path, LAYOUT, &engine, 50), LaneEnd::Drained, "again: nothing to do");
    assert_equals_log(&[&path], LAYOUT, &entries, &[]);
}

#[test]
fn a_batch_is_never_larger_than_asked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("orders.db");
    let mut history = History::new(41, LAYOUT.partitions);
    for _ in 0..70 {
        history.place(PartitionId::new(1), &[(1001, 1)], false);
    }
    SqliteDatabase::new(&path).prepare(&LAYOUT, 0).unwrap();
    // Every transaction leaves the place of its cursor; the feed sends seven entries at once.
    sql(
        &path,
        "CREATE TABLE steps (lsn INTEGER); CREATE TRIGGER step AFTER UPDATE OF lsn ON cursors
         BEGIN INSERT INTO steps VALUES (NEW.lsn - OLD.lsn); END",
    );
    let engine = Engine::new(history.entries.clone());
    assert_eq!(drain(&path, LAYOUT, &engine, 5), LaneEnd::Drained);
    assert_eq!(count(&path, "SELECT max(lsn) FROM steps"), 5);
    assert_eq!(count(&path, "SELECT count(*) FROM steps"), 14);
    assert_equals_log(&[&path], LAYOUT, &history.entries, &[]);
}

/// The connection dies at call 0, at call 1, and so on, until a run needs fewer calls than that.
#[test]
fn every_row_is_written_once_wherever_the_connection_dies() {
    let entries = History::of(8, LAYOUT.partitions, 45);
    for death in [Death::Before, Death::After] {
        for call in 0.. {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("orders.db");
            let inner: Arc<dyn Database> = Arc::new(SqliteDatabase::new(&path));
            inner.prepare(&LAYOUT, 0).unwrap();
            let failing = FailingDatabase::new(inner, call, death);
            let engine = Engine::new(entries.clone());
            engine.state().check = Some((file(&path), LAYOUT));
            let database: Arc<dyn Database> = Arc::new(failing.clone());
            let end = lane(database, LAYOUT, 0, &engine, draining(5)).run();
            assert_eq!(end, LaneEnd::Drained, "call {call} {death:?}");
            assert_equals_log(&[&path], LAYOUT, &entries, &[]);
            if !failing.has_failed() {
                assert!(call > 30, "the test reaches every step: {call}");
                break;
            }
        }
    }
}

#[test]
fn the_older_of_two_writers_is_fenced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("orders.db");
    let entries = History::of(4, LAYOUT.partitions, 600);
    let engine = Engine::new(entries[..300].to_vec());
    let database: Arc<dyn Database> = Arc::new(SqliteDatabase::new(&path));
    database.prepare(&LAYOUT, 0).unwrap();
    let options = LaneOptions { batch_events_max: 20, ..LaneOptions::default() };
    let mut old = lane(database, LAYOUT, 0, &engine, options);
    let old = std::thread::spawn(move || old.run());
    while engine.state().acks.len() < 2 {
        std::thread::yield_now();
    }
    engine.state().entries.clone_from(&entries);
    assert_eq!(drain(&path, LAYOUT, &engine, 20), LaneEnd::Drained, "the new one takes over");
    assert_eq!(old.join().unwrap(), LaneEnd::Fenced { mine: 1, theirs: 2 });
    assert_equals_log(&[&path], LAYOUT, &entries, &[]);
}

/// Places `bad` orders that a trigger refuses among good ones.
fn with_refusals(seed: u64, good: usize, bad: usize) -> (Vec<Entry>, Vec<i64>) {
    let mut history = History::new(seed, LAYOUT.partitions);
    let mut refused = Vec::new();
    for n in 0..good + bad {
        let partition = PartitionId::new((n % 4) as u16);
        if n * bad / (good + bad) != (n + 1) * bad / (good + bad) {
            let order = history.place(partition, &[(1001, 1), (6666, 1)], n % 2 == 0);
            refused.push(order.get() as i64);
        } else {
            history.place(partition, &[(1001, 1)], n % 2 == 0);
        }
    }
    refused.sort_unstable();
    (history.entries, refused)
}

const REFUSE_6666: &str = "CREATE TRIGGER no BEFORE INSERT ON order_lines WHEN NEW.sku_id = 6666
    BEGIN SELECT RAISE(ABORT, 'sku 6666 is not sold'); END";

#[test]
fn refused_orders_are_found_recorded_and_given_back() {
    for bad in [0, 1, 13] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("orders.db");
        let (entries, refused) = with_refusals(5, 700, bad);
        SqliteDatabase::new(&path).prepare(&LAYOUT, 0).unwrap();
        sql(&path, REFUSE_6666);
        let engine = Engine::new(entries.clone());
        assert_eq!(drain(&path, LAYOUT, &engine, 1000), LaneEnd::Drained);
        // Everything is given back by the end of the drain; its events come with the next one.
        let sent = "SELECT count(*) FROM refused_orders WHERE state = 'sent' \
                    AND class = 'insert' AND message LIKE '%6666%'";
        assert_eq!(count(&path, sent), bad as i64);
        let commands = engine.state().commands.clone();
        let returns = commands.iter().filter(|c| matches!(c, Command::Return(_))).count();
        assert_eq!(commands.len(), bad + returns, "one cancel each, a return for the paid ones");
        assert!(bad < 2 || returns > 0);
        let after = engine.entries();
        assert_eq!(after.len(), entries.len() + bad);
        assert_eq!(drain(&path, LAYOUT, &engine, 1000), LaneEnd::Drained);
        assert_equals_log(&[&path], LAYOUT, &after, &refused);
        let orders = "SELECT count(*) FROM orders";
        assert_eq!(count(&path, orders), 700, "no refused order left half a row");
        let done = "SELECT count(*) FROM refused_orders WHERE state = 'done'";
        assert_eq!(count(&path, done), bad as i64);
        assert_eq!(engine.state().commands.len(), commands.len(), "nothing is given back twice");
    }
}

#[test]
fn a_refused_change_takes_the_order_out_of_the_rows_to_be_followed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("orders.db");
    let entries = History::of(12, LAYOUT.partitions, 300);
    let engine = Engine::new(entries[..150].to_vec());
    assert_eq!(drain(&path, LAYOUT, &engine, 1000), LaneEnd::Drained);
    sql(
        &path,
        "CREATE TRIGGER no BEFORE UPDATE OF state ON orders WHEN NEW.state = 2 AND OLD.state = 1
         BEGIN SELECT RAISE(ABORT, 'no more confirms'); END",
    );
    engine.state().entries.clone_from(&entries);
    assert_eq!(drain(&path, LAYOUT, &engine, 1000), LaneEnd::Drained);
    assert_eq!(drain(&path, LAYOUT, &engine, 1000), LaneEnd::Drained);
    let refused: Vec<i64> = {
        let connection = Connection::open(&path).unwrap();
        let mut statement = connection.prepare("SELECT order_id FROM refused_orders").unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    assert!(!refused.is_empty() && refused.len() < 20, "{refused:?}");
    assert_equals_log(&[&path], LAYOUT, &engine.entries(), &refused);
    let with_lines = "SELECT count(*) FROM refused_orders WHERE class = 'update' AND lines <> '[]'";
    assert_eq!(count(&path, with_lines), refused.len() as i64);
    let open = "SELECT count(*) FROM refused_orders WHERE state <> 'done'";
    assert_eq!(count(&path, open), 0, "each was given back, or was over already");
}

#[test]
fn mass_refusals_trip_the_breaker_and_cancel_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("orders.db");
    let (entries, _) = with_refusals(6, 300, 100);
    SqliteDatabase::new(&path).prepare(&LAYOUT, 0).unwrap();
    sql(&path, REFUSE_6666);
    let engine = Engine::new(entries.clone());
    let LaneEnd::Alarm(why) = drain(&path, LAYOUT, &engine, 1000) else { panic!("no alarm") };
    assert!(why.contains("100 of 400"), "{why}");
    assert_eq!(count(&path, "SELECT count(*) FROM refused_orders"), 0);
    assert_eq!(count(&path, "SELECT count(*) FROM orders"), 0, "the batch is not written");
    assert!(engine.state().commands.is_empty() && engine.state().acks.is_empty());
    sql(&path, "DROP TRIGGER no");
    assert_eq!(drain(&path, LAYOUT, &engine, 1000), LaneEnd::Drained, "mended, it goes on");
    assert_equals_log(&[&path], LAYOUT, &entries, &[]);
}

#[test]
fn refusals_within_a_minute_are_counted_over_batches() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("orders.db");
    let (entries, _) = with_refusals(6, 900, 30);
    let database: Arc<dyn Database> = Arc::new(SqliteDatabase::new(&path));
    database.prepare(&LAYOUT, 0).unwrap();
    sql(&path, REFUSE_6666);
    let breaker = BreakerLimits { minute_max: 12, ..BreakerLimits::default() };
    let options = LaneOptions { breaker, ..draining(50) };
    let end = lane(database, LAYOUT, 0, &Engine::new(entries), options).run();
    assert!(matches!(end, LaneEnd::Alarm(_)), "{end:?}");
    let refused = count(&path, "SELECT count(*) FROM refused_orders");
    assert!((1..=12).contains(&refused), "{refused}");
}

#[test]
fn a_changed_schema_stops_the_lane_and_cancels_nothing() {
    for damage in [
        "ALTER TABLE orders DROP COLUMN payment_ref",
        "DROP TABLE order_lines",
        "DELETE FROM cursors WHERE partition_id = 2",
        "CREATE TRIGGER t BEFORE INSERT ON orders BEGIN SELECT RAISE(ROLLBACK, 'no'); END",
        "INSERT INTO orders SELECT 1, 1, 1, 1, '', NULL, NULL, 0, 0, 0, 0, 0",
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("orders.db");
        SqliteDatabase::new(&path).prepare(&LAYOUT, 0).unwrap();
        sql(&path, damage);
        let mut history = History::new(9, LAYOUT.partitions);
        history.place(PartitionId::new(0), &[(1001, 1)], false);
        let engine = Engine::new(history.entries);
        let end = drain(&path, LAYOUT, &engine, 100);
        assert!(matches!(end, LaneEnd::Alarm(_)), "{damage}: {end:?}");
        assert!(engine.state().commands.is_empty() && engine.state().acks.is_empty());
    }
}

#[test]
fn a_lost_row_stops_the_lane_and_names_the_way_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("orders.db");
    let entries = History::of(12, LAYOUT.partitions, 150);
    let engine = Engine::new(entries[..60].to_vec());
    drain(&path, LAYOUT, &engine, 1000);
    sql(&path, "DELETE FROM orders");
    engine.state().entries.clone_from(&entries);
    let LaneEnd::Alarm(why) = drain(&path, LAYOUT, &engine, 1000) else { panic!("no alarm") };
    assert!(why.contains("recon fix"), "{why}");
}

#[test]
fn an_engine_that_ends_before_the_cursors_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("orders.db");
    let entries = History::of(12, LAYOUT.partitions, 150);
    drain(&path, LAYOUT, &Engine::new(entries.clone()), 1000);
    let other = Engine::new(entries[..100].to_vec());
    let LaneEnd::Alarm(why) = drain(&path, LAYOUT, &other, 1000) else { panic!("no alarm") };
    assert!(why.contains("another engine"), "{why}");
    assert_equals_log(&[&path], LAYOUT, &entries, &[]);
}

#[test]
fn a_trimmed_log_is_an_alarm_and_never_a_silent_jump() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("orders.db");
    let engine = Engine::new(History::of(12, LAYOUT.partitions, 150));
    engine.state().kept_from.insert(PartitionId::new(1), Lsn::new(5));
    let LaneEnd::Alarm(why) = drain(&path, LAYOUT, &engine, 1000) else { panic!("no alarm") };
    assert!(why.contains("partition 1") && why.contains("1..=4"), "{why}");
}

#[test]
fn a_database_restored_from_a_backup_is_filled_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("orders.db");
    let entries = History::of(12, LAYOUT.partitions, 400);
    let engine = Engine::new(entries[..200].to_vec());
    drain(&path, LAYOUT, &engine, 30);
    sql(&path, "PRAGMA wal_checkpoint(TRUNCATE)");
    let copy = dir.path().join("copy.db");
    std::fs::copy(&path, &copy).unwrap();
    engine.state().entries.clone_from(&entries);
    drain(&path, LAYOUT, &engine, 30);
    assert_eq!(drain(&copy, LAYOUT, &engine, 30), LaneEnd::Drained);
    assert_equals_log(&[&copy], LAYOUT, &entries, &[]);
}

#[test]
fn two_databases_by_sixteen_tables_hold_every_row_once() {
    let dir = tempfile::tempdir().unwrap();
    let layout = Layout { databases: 2, tables: 16, partitions: 64 };
    let paths = [dir.path().join("a.db"), dir.path().join("b.db")];
    let entries = History::of(2, layout.partitions, 4_000);
    let engine = Engine::new(entries.clone());
    for (index, path) in paths.iter().enumerate() {
        let database: Arc<dyn Database> = Arc::new(SqliteDatabase::new(path));
        database.prepare(&layout, index as u16).unwrap();
        let mut lane = lane(database, layout, index as u16, &engine, draining(500));
        assert_eq!(lane.run(), LaneEnd::Drained);
    }
    assert_equals_log(&[&paths[0], &paths[1]], layout, &entries, &[]);
    for path in &paths {
        let tables = "SELECT count(*) FROM sqlite_master WHERE name GLOB 'orders_[0-9][0-9]'";
        assert_eq!(count(path, tables), 16);
        assert!(count(path, "SELECT count(*) FROM sales") > 0, "the catalog is in both");
    }
}

#[test]
fn other_counts_than_the_data_was_written_with_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("orders.db");
    let layout = Layout { databases: 2, tables: 16, partitions: 64 };
    let database = SqliteDatabase::new(&path);
    assert_eq!(database.layout(), Ok(None));
    database.prepare(&layout, 1).unwrap();
    database.prepare(&layout, 1).unwrap();
    assert_eq!(database.layout(), Ok(Some((layout, 1))));
    for (other, index) in [
        (Layout { databases: 1, ..layout }, 0),
        (Layout { tables: 8, ..layout }, 1),
        (Layout { partitions: 32, ..layout }, 1),
        (layout, 0),
    ] {
        let error = database.prepare(&other, index).unwrap_err();
        assert!(matches!(error, SetupError::Layout { .. }), "{error}");
        assert!(error.to_string().contains("--tables 16"), "{error}");
    }
    sql(&path, "INSERT INTO schema_version VALUES (99, 0)");
    let error = database.prepare(&layout, 1).unwrap_err();
    assert!(matches!(error, SetupError::Newer { found: 99, .. }), "{error}");
}

#[test]
fn ddl_by_hand_makes_the_schema_that_the_writer_takes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("orders.db");
    let database = SqliteDatabase::new(&path);
    let text = database.ddl(&LAYOUT, 0).join(";\n");
    sql(&path, &text);
    database.prepare(&LAYOUT, 0).unwrap();
    let entries = History::of(1, LAYOUT.partitions, 100);
    assert_eq!(drain(&path, LAYOUT, &Engine::new(entries.clone()), 10), LaneEnd::Drained);
    assert_equals_log(&[&path], LAYOUT, &entries, &[]);
}

#[test]
fn an_idle_lane_stops_at_the_signal() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("orders.db");
    let database: Arc<dyn Database> = Arc::new(SqliteDatabase::new(&path));
    database.prepare(&LAYOUT, 0).unwrap();
    let ready = Arc::new(AtomicBool::new(false));
    let stop = stockade_order_writer::lane::Stop::default();
    let mut parts = stockade_order_writer::lane::LaneParts {
        database,
        layout: LAYOUT,
        index: 0,
        owner: "test".into(),
        connect: Box::new(Engine::new(Vec::new())),
        options: LaneOptions::default(),
        stop: stop.clone(),
        acks: stockade_order_writer::lane::CatalogAcks::new(1),
        ready: Box::new(|| {}),
    };
    let seen = ready.clone();
    parts.ready = Box::new(move || seen.store(true, Ordering::SeqCst));
    let mut lane = stockade_order_writer::lane::Lane::new(parts);
    let lane = std::thread::spawn(move || lane.run());
    while !ready.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    stop.set();
    assert_eq!(lane.join().unwrap(), LaneEnd::Stopped);
}
