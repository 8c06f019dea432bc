//! Reconciliation on real SQLite files: exactly the damage is found and repaired, nothing else.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stockade_order_writer::lane::LaneEnd;
use stockade_order_writer::layout::Layout;
use stockade_order_writer::recon::Recon;
use stockade_order_writer::recon::compare::Subject;
use stockade_order_writer::recon::diff::Report;
use stockade_order_writer::recon::fix::{Repaired, Retried};
use stockade_order_writer::sink::Database;
use stockade_order_writer::sink::sqlite::SqliteDatabase;
use stockade_protocol::{Entry, OrderId, PartitionId};
use support::engine::Engine;
use support::history::History;
use support::{assert_equals_log, books, drain, draining, lane};

const LAYOUT: Layout = Layout { databases: 2, tables: 3, partitions: 8 };

struct Rig {
    _dir: tempfile::TempDir,
    layout: Layout,
    paths: Vec<PathBuf>,
    engine: Engine,
}

impl Rig {
    fn new(layout: Layout, entries: Vec<Entry>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::new(entries);
        let name = |index: u16| dir.path().join(format!("{index}.db"));
        let paths: Vec<PathBuf> = (0..layout.databases).map(name).collect();
        for (index, path) in paths.iter().enumerate() {
            let database: Arc<dyn Database> = Arc::new(SqliteDatabase::new(path));
            database.prepare(&layout, index as u16).unwrap();
            let end = lane(database, layout, index as u16, &engine, draining(200)).run();
            assert_eq!(end, LaneEnd::Drained);
        }
        Self { _dir: dir, layout, paths, engine }
    }

    fn with<T>(&self, work: impl FnOnce(&mut Recon<'_>) -> T) -> T {
        let open = |path: &PathBuf| Arc::new(SqliteDatabase::new(path)) as Arc<dyn Database>;
        let databases: Vec<Arc<dyn Database>> = self.paths.iter().map(open).collect();
        let mut engine = self.engine.clone();
        work(&mut Recon {
            layout: self.layout,
            databases: &databases,
            connect: &mut engine,
            tally: true,
        })
    }

    fn diff(&self) -> Report {
        self.with(|recon| recon.diff()).unwrap()
    }

    fn fix(&self) -> Repaired {
        self.with(|recon| recon.fix("test")).unwrap()
    }

    /// The database and the suffix of an order's table.
    fn home(&self, order: i64) -> (usize, String) {
        let partition = OrderId::new(order as u64).unwrap().partition();
        let suffix = self.layout.suffix(self.layout.table_of(partition));
        (usize::from(self.layout.database_of(partition)), suffix)
    }

    fn sql(&self, order: i64, statement: &str) {
        let (index, suffix) = self.home(order);
        let order = order.to_string();
        sql(&self.paths[index], &statement.replace("{t}", &suffix).replace("{o}", &order));
    }
}

fn sql(path: &Path, statement: &str) {
    Connection::open(path).unwrap().execute_batch(statement).unwrap();
}

fn orders(entries: &[Entry]) -> Vec<i64> {
    let books = books(entries);
    let ids = books.values().flat_map(|books| books.orders.keys());
    ids.map(|order| order.get() as i64).collect()
}

fn subjects(report: &Report) -> Vec<Subject> {
    report.differences.iter().map(|(_, difference)| difference.subject.clone()).collect()
}

#[test]
fn diff_names_exactly_the_damage_and_fix_repairs_it() {
    let entries = History::of(21, LAYOUT.partitions, 900);
    let rig = Rig::new(LAYOUT, entries.clone());
    let clean = rig.diff();
    assert_eq!(clean.differences, []);
    assert_eq!((clean.notes.len(), clean.orders), (0, orders(&entries).len() as u64));
    let ids = orders(&entries);
    let deleted = [ids[3], ids[40], ids[90]];
    let altered = ids[60];
    let fake = ids[7] + 1_000_000;
    rig.sql(deleted[0], "DELETE FROM orders{t} WHERE order_id = {o}");
    let both = "DELETE FROM orders{t} WHERE order_id = {o};
                DELETE FROM order_lines{t} WHERE order_id = {o}";
    rig.sql(deleted[1], both);
    rig.sql(deleted[2], both);
    let copy = "INSERT INTO orders{t} SELECT {o}, 1, 1, 2, 'x', NULL, NULL, 0, 5, 1, NULL, 1";
    rig.sql(fake, copy);
    rig.sql(altered, "UPDATE order_lines{t} SET qty = qty + 3 WHERE order_id = {o}");
    let mut expected: Vec<Subject> = deleted.iter().map(|id| Subject::Order(*id)).collect();
    expected.extend([Subject::Order(fake), Subject::Order(altered)]);
    let mut found = subjects(&rig.diff());
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
    let repaired = rig.fix();
    assert_eq!((repaired.repaired.len(), repaired.left.len()), (5, 0));
    assert_eq!(rig.diff().differences, []);
    assert_eq!(rig.fix(), Repaired::default(), "the second run finds nothing");
    let paths: Vec<&Path> = rig.paths.iter().map(PathBuf::as_path).collect();
    assert_equals_log(&paths, LAYOUT, &entries, &[]);
    let reasons: i64 = rig.paths.iter().fold(0, |sum, path| {
        let query = "SELECT count(*) FROM repairs WHERE reason = 'test'";
        sum + Connection::open(path).unwrap().query_row(query, [], |r| r.get::<_, i64>(0)).unwrap()
    });
    assert_eq!(reasons, 5, "every repair is on record");
}

#[test]
fn every_kind_of_damage_is_one_line_and_is_repaired() {
    let entries = History::of(22, LAYOUT.partitions, 900);
    let rig = Rig::new(LAYOUT, entries.clone());
    let order = orders(&entries)[20];
    let (index, _) = rig.home(order);
    let late = entries.iter().find(|entry| entry.event.word() == "late_payment").unwrap();
    let late = books(std::slice::from_ref(late)).into_values().next().unwrap();
    let late = late.late.keys().next().unwrap().0.get() as i64;
    let cases: &[(i64, &str)] = &[
        (order, "UPDATE orders{t} SET state = 1 + state % 5 WHERE order_id = {o}"),
        (order, "UPDATE orders{t} SET payment_ref = 'stolen' WHERE order_id = {o}"),
        (order, "UPDATE orders{t} SET data = x'00' WHERE order_id = {o}"),
        (order, "UPDATE orders{t} SET lsn = lsn + 9, updated_at = 1 WHERE order_id = {o}"),
        (order, "UPDATE orders{t} SET request_id = '' WHERE order_id = {o}"),
        (order, "DELETE FROM order_lines{t} WHERE order_id = {o}"),
        (order, "INSERT INTO order_lines{t} VALUES ({o}, 9999, 1, 0)"),
        (order, "INSERT INTO order_lines{t} VALUES ({o} + 500000, 9999, 1, 0)"),
        (order, "INSERT INTO orders{t} SELECT -5, 1, 1, 2, 'x', NULL, NULL, 0, 5, 1, NULL, 1"),
        (order, "INSERT INTO late_payments VALUES ({o}, 'made up', 'expired', 1)"),
        (
            late,
            "UPDATE late_payments SET reason = 'expired' WHERE order_id = {o} AND payment_ref = \
                (SELECT min(payment_ref) FROM late_payments WHERE order_id = {o})",
        ),
        (
            late,
            "DELETE FROM late_payments WHERE order_id = {o} AND payment_ref = \
                (SELECT min(payment_ref) FROM late_payments WHERE order_id = {o})",
        ),
        (order, "UPDATE sales SET name = 'other' WHERE sale_id = 1"),
        (order, "UPDATE skus SET total = total + 1 WHERE sku_id = 1001 AND sale_id = 1"),
        (order, "DELETE FROM skus WHERE sku_id = 1002 AND sale_id = 1"),
        (order, "INSERT INTO sales VALUES (77, 'x', 0, NULL, 2, '{}')"),
    ];
    for (order, damage) in cases {
        rig.sql(*order, damage);
        let report = rig.diff();
        assert_eq!(report.differences.len(), 1, "{damage}: {:?}", report.differences);
        let repaired = rig.fix();
        assert_eq!((repaired.repaired.len(), repaired.left.len()), (1, 0), "{damage}");
        assert_eq!(rig.diff().differences, [], "{damage}");
    }
    // A row in another partition's table, and in another database.
    let copy = "INSERT INTO orders_02 SELECT order_id, 1, 1, 2, '', NULL, NULL, 0, 5, 1, NULL, 1 \
                FROM orders_00 LIMIT 1";
    for index in [index, 1 - index] {
        sql(&rig.paths[index], copy);
        assert_eq!(rig.diff().differences.len(), 1);
        assert_eq!(rig.fix().repaired.len(), 1);
        assert_eq!(rig.diff().differences, []);
    }
    let paths: Vec<&Path> = rig.paths.iter().map(PathBuf::as_path).collect();
    assert_equals_log(&paths, LAYOUT, &entries, &[]);
}

#[test]
fn diff_compares_at_the_cursors_and_not_at_the_engines_end() {
    let entries = History::of(23, LAYOUT.partitions, 900);
    let rig = Rig::new(LAYOUT, entries[..500].to_vec());
    rig.engine.state().entries.clone_from(&entries);
    let report = rig.diff();
    assert_eq!(report.differences, []);
    assert!(report.notes.iter().any(|note| note.contains("ahead")), "{:?}", report.notes);
    rig.sql(orders(&entries[..500])[5], "DELETE FROM orders{t} WHERE order_id = {o}");
    assert_eq!(rig.fix().repaired.len(), 1, "repaired at the cursor");
    assert_eq!(rig.diff().differences, []);
}

#[test]
fn a_trimmed_log_is_compared_with_the_engines_list_of_orders() {
    let layout = Layout { databases: 1, tables: 1, partitions: 2 };
    let entries = History::of(24, layout.partitions, 500);
    let rig = Rig::new(layout, entries.clone());
    let trimmed = books(&entries[..250]);
    for partition in [PartitionId::new(0), PartitionId::new(1)] {
        let kept = trimmed[&partition].lsn.next();
        rig.engine.state().kept_from.insert(partition, kept);
    }
    let report = rig.diff();
    assert_eq!(report.differences, []);
    assert!(report.notes.iter().any(|note| note.contains("log begins at")), "{:?}", report.notes);
    let old = orders(&entries[..200])[2];
    rig.sql(old, "UPDATE orders SET state = 1 + state % 5 WHERE order_id = {o}");
    let missing = orders(&entries[..200])[3];
    rig.sql(missing, "DELETE FROM orders WHERE order_id = {o}");
    rig.sql(old + 7_000_000, "INSERT INTO orders SELECT {o},1,1,2,'x',NULL,NULL,0,5,1,NULL,1");
    assert_eq!(rig.diff().differences.len(), 3, "{:?}", rig.diff().differences);
    let fixed = rig.fix();
    assert_eq!((fixed.repaired.len(), fixed.left.len()), (0, 3), "the log cannot tell: named");
}

#[test]
fn refused_orders_are_left_out_and_written_when_the_database_takes_them() {
    let layout = Layout { databases: 1, tables: 1, partitions: 4 };
    let mut history = History::new(25, layout.partitions);
    for n in 0..60 {
        history.place(PartitionId::new(n % 4), &[(1001, 1 + u32::from(n == 31) * 8)], false);
    }
    let refused = orders(&history.entries[31..32])[0];
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.db");
    SqliteDatabase::new(&path).prepare(&layout, 0).unwrap();
    sql(
        &path,
        "CREATE TRIGGER few BEFORE INSERT ON order_lines WHEN NEW.qty > 5
                BEGIN SELECT RAISE(ABORT, 'too many'); END",
    );
    let engine = Engine::new(history.entries);
    for _ in 0..2 {
        assert_eq!(drain(&path, layout, &engine, 100), LaneEnd::Drained);
    }
    // The catalog is empty in this history; the engine answers for an empty one.
    history = History::new(1, 1);
    for entry in History::of(1, 1, 200) {
        if entry.partition == PartitionId::CATALOG {
            history.write(PartitionId::CATALOG, entry.event);
        }
    }
    engine.state().entries.extend(history.entries);
    assert_eq!(drain(&path, layout, &engine, 100), LaneEnd::Drained);
    let rig = Rig { _dir: dir, layout, paths: vec![path.clone()], engine };
    let report = rig.diff();
    assert_eq!((report.differences.len(), report.refused), (0, 1), "{report:?}");
    let order = OrderId::new(refused as u64).unwrap();
    let retried = rig.with(|recon| recon.retry(order, "test")).unwrap();
    assert!(matches!(retried, Retried::Refused(why) if why.contains("too many")));
    assert_eq!(rig.diff().refused, 1);
    sql(&path, "DROP TRIGGER few");
    assert_eq!(rig.with(|recon| recon.retry(order, "test")).unwrap(), Retried::Written);
    assert_eq!((rig.diff().differences.len(), rig.diff().refused), (0, 0));
    assert_equals_log(&[&path], layout, &rig.engine.entries(), &[]);
    let unknown = OrderId::new(refused as u64 + 1).unwrap();
    assert_eq!(rig.with(|recon| recon.retry(unknown, "test")).unwrap(), Retried::Unknown);
}

#[test]
fn an_engine_that_lost_orders_is_named() {
    let layout = Layout { databases: 1, tables: 1, partitions: 2 };
    let rig = Rig::new(layout, History::of(26, layout.partitions, 400));
    assert_eq!(rig.diff().differences, []);
    rig.engine.state().wrong_figures = true;
    let report = rig.diff();
    assert!(report.differences.iter().all(|(_, d)| d.to_string().contains("the engine has")));
    assert!(!report.differences.is_empty());
}
