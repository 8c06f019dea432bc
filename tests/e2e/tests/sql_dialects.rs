//! One suite over every dialect: exactly once whatever dies, fencing, refused rows, layouts,
//! reconciliation. SQLite in a file, PostgreSQL and MariaDB on throwaway servers.
//!
//! The engine is the one of the writer's own tests: it plays random histories. What an operator or
//! a migration does to a database goes through the packages' command lines.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../../../persistence/order-writer/tests/support/mod.rs"]
mod support;

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stockade_e2e::{DatabaseServer, Product};
use stockade_order_writer::lane::{LaneEnd, LaneOptions};
use stockade_order_writer::layout::Layout;
use stockade_order_writer::recon::Recon;
use stockade_order_writer::recon::compare::Subject;
use stockade_order_writer::recon::fix::{Repaired, Retried};
use stockade_order_writer::sink::{Database, SetupError, url};
use stockade_protocol::entry::Placed;
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::text::OrderData;
use stockade_protocol::{
    Command, Entry, Event, Lsn, OrderId, PartitionId, RequestId, SaleId, UserId,
};
use support::engine::Engine;
use support::failing::{Death, FailingDatabase};
use support::history::{History, definition, payment};
use support::{assert_databases_equal_log, books, drain_into, draining, lane};

const LAYOUT: Layout = Layout { databases: 1, tables: 1, partitions: 4 };

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Dialect {
    Sqlite,
    Postgres,
    Mariadb,
}

/// Where the databases of a test are.
struct Place {
    dialect: Dialect,
    dir: tempfile::TempDir,
    server: Option<RefCell<DatabaseServer>>,
}

impl Place {
    /// `None`: the server is not installed, which was said.
    fn new(dialect: Dialect) -> Option<Self> {
        let server = match dialect {
            Dialect::Sqlite => None,
            Dialect::Postgres => Some(DatabaseServer::start(Product::Postgres)?),
            Dialect::Mariadb => Some(DatabaseServer::start(Product::Mariadb)?),
        };
        let server = server.map(RefCell::new);
        Some(Self { dialect, dir: tempfile::tempdir().unwrap(), server })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn url(&self, name: &str) -> String {
        match &self.server {
            Some(server) => server.borrow().url(name),
            None => format!("sqlite://{}", self.path(name).display()),
        }
    }

    /// An empty database.
    fn create(&self, name: &str) -> Arc<dyn Database> {
        if let Some(server) = &self.server {
            server.borrow().create(name);
        }
        self.open(name)
    }

    /// An empty database, also where there was one of this name.
    fn create_or_clear(&self, name: &str) -> Arc<dyn Database> {
        match &self.server {
            Some(server) if self.open(name).layout().is_ok() => server.borrow().clear(name),
            Some(server) => server.borrow().create(name),
            None => {
                for file in std::fs::read_dir(self.dir.path()).unwrap() {
                    std::fs::remove_file(file.unwrap().path()).unwrap();
                }
            }
        }
        self.open(name)
    }

    fn open(&self, name: &str) -> Arc<dyn Database> {
        url::database(&self.url(name), None).unwrap()
    }

    /// One statement of an operator.
    fn run(&self, name: &str, statement: &str) {
        match &self.server {
            Some(server) => server.borrow().run(name, statement),
            None => {
                let connection = rusqlite::Connection::open(self.path(name)).unwrap();
                connection.execute_batch(statement).unwrap();
            }
        }
    }

    fn number(&self, name: &str, query: &str) -> i64 {
        match &self.server {
            Some(server) => server.borrow().number(name, query),
            None => {
                let connection = rusqlite::Connection::open(self.path(name)).unwrap();
                connection.query_row(query, [], |row| row.get(0)).unwrap()
            }
        }
    }

    /// The text of the dialect.
    fn pick<'a>(&self, sqlite: &'a str, postgres: &'a str, mariadb: &'a str) -> &'a str {
        match self.dialect {
            Dialect::Sqlite => sqlite,
            Dialect::Postgres => postgres,
            Dialect::Mariadb => mariadb,
        }
    }

    /// From now on lines of SKU 6666 are refused.
    fn refuse_6666(&self, name: &str) {
        let check = "ALTER TABLE order_lines ADD CONSTRAINT no CHECK (sku_id <> 6666)";
        let trigger = "CREATE TRIGGER no BEFORE INSERT ON order_lines WHEN NEW.sku_id = 6666
             BEGIN SELECT RAISE(ABORT, 'sku 6666 is not sold'); END";
        self.run(name, self.pick(trigger, check, check));
    }

    fn allow_6666(&self, name: &str) {
        let check = "ALTER TABLE order_lines DROP CONSTRAINT no";
        self.run(name, self.pick("DROP TRIGGER no", check, check));
    }
}

macro_rules! every_dialect {
    ($($rule:ident)*) => {
        mod sqlite {
            $(#[test] fn $rule() { super::run(super::Dialect::Sqlite, super::$rule); })*
        }
        mod postgres {
            $(#[test] fn $rule() { super::run(super::Dialect::Postgres, super::$rule); })*
        }
        mod mariadb {
            $(#[test] fn $rule() { super::run(super::Dialect::Mariadb, super::$rule); })*
        }
    };
}

every_dialect! {
    rows_equal_the_log_and_acks_follow_commits
    every_row_is_written_once_wherever_the_connection_dies
    a_killed_server_is_waited_for_and_nothing_is_lost
    the_older_of_two_writers_is_fenced
    refused_orders_are_found_recorded_and_given_back
    a_refused_change_takes_the_order_out_of_the_rows_to_be_followed
    mass_refusals_trip_the_breaker_and_cancel_nothing
    a_changed_schema_stops_the_lane_and_cancels_nothing
    a_lost_row_stops_the_lane_and_names_the_way_out
    two_databases_by_sixteen_tables_hold_every_row_once
    other_counts_than_the_data_was_written_with_are_refused
    ddl_by_hand_makes_the_schema_that_the_writer_takes
    texts_bytes_and_times_survive
    recon_names_exactly_the_damage_and_repairs_it
    readers_cannot_write
}

fn run(dialect: Dialect, rule: fn(&Place)) {
    if let Some(place) = Place::new(dialect) {
        rule(&place);
    }
}

fn rows_equal_the_log_and_acks_follow_commits(place: &Place) {
    let database = place.create("orders");
    let entries = History::of(3, LAYOUT.partitions, 3_000);
    let engine = Engine::new(entries.clone());
    database.prepare(&LAYOUT, 0).unwrap();
    engine.state().check = Some((database.clone(), LAYOUT));
    engine.state().break_every = Some(11);
    for (at, batch) in [50, 400].into_iter().enumerate() {
        let end = drain_into(database.clone(), LAYOUT, &engine, batch);
        assert_eq!(end, LaneEnd::Drained, "run {at}: the second has nothing to do");
        assert_databases_equal_log(std::slice::from_ref(&database), LAYOUT, &entries, &[]);
    }
    for partition in LAYOUT.partitions_of(0) {
        let last = entries.iter().filter(|entry| entry.partition == partition).count() as u64;
        assert_eq!(engine.state().acks[&partition], Lsn::new(last), "all is acknowledged");
    }
}

/// The connection dies at call 0, at call 1, and so on, until a run needs fewer calls than that.
/// A row is refused on the way, so that the careful second attempt is among the calls.
fn every_row_is_written_once_wherever_the_connection_dies(place: &Place) {
    let mut history = History::new(8, LAYOUT.partitions);
    while history.entries.len() < 40 {
        history.step();
    }
    let bad = history.place(PartitionId::new(1), &[(1001, 1), (6666, 1)], false);
    let refused = [bad.get() as i64];
    let entries = history.entries;
    for death in [Death::Before, Death::After] {
        for call in 0.. {
            let name = "orders";
            let inner = place.create_or_clear(name);
            inner.prepare(&LAYOUT, 0).unwrap();
            place.refuse_6666(name);
            let failing = FailingDatabase::new(inner.clone(), call, death);
            let engine = Engine::new(entries.clone());
            engine.state().check = Some((inner.clone(), LAYOUT));
            let end = lane(Arc::new(failing.clone()), LAYOUT, 0, &engine, draining(14)).run();
            assert_eq!(end, LaneEnd::Drained, "call {call} {death:?}");
            // The order is given back now at the latest, and its event comes with another run.
            for _ in 0..2 {
                assert_eq!(drain_into(inner.clone(), LAYOUT, &engine, 14), LaneEnd::Drained);
            }
            assert_databases_equal_log(&[inner], LAYOUT, &engine.entries(), &refused);
            let count = "SELECT count(*) FROM refused_orders WHERE state = 'done'";
            assert_eq!(place.number(name, count), 1, "call {call} {death:?}");
            if !failing.has_failed() {
                assert!(call > 30, "the test reaches every step: {call}");
                break;
            }
        }
    }
}

fn a_killed_server_is_waited_for_and_nothing_is_lost(place: &Place) {
    let database = place.create("orders");
    database.prepare(&LAYOUT, 0).unwrap();
    let entries = History::of(14, LAYOUT.partitions, 2_000);
    let engine = Engine::new(entries[..200].to_vec());
    // A file has no server; what kills its writer is in the other tests.
    let Some(server) = &place.server else { return };
    let mut lane = lane(
        database.clone(),
        LAYOUT,
        0,
        &engine,
        LaneOptions { batch_events_max: 50, ..LaneOptions::default() },
    );
    let running = std::thread::spawn(move || lane.run());
    wait_until(|| engine.state().acks.len() > 2);
    engine.state().entries.clone_from(&entries);
    for _ in 0..2 {
        server.borrow_mut().kill();
        server.borrow_mut().restart();
    }
    wait_until(|| {
        let acks = &engine.state().acks;
        acks.values().map(|lsn| lsn.get()).sum::<u64>() == entries.len() as u64
    });
    // Another writer ends this one.
    assert_eq!(drain_into(database.clone(), LAYOUT, &engine, 50), LaneEnd::Drained);
    assert!(matches!(running.join().unwrap(), LaneEnd::Fenced { .. }));
    assert_databases_equal_log(&[database], LAYOUT, &entries, &[]);
}

fn wait_until(condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(60), "it does not come about");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn the_older_of_two_writers_is_fenced(place: &Place) {
    let database = place.create("orders");
    database.prepare(&LAYOUT, 0).unwrap();
    let entries = History::of(4, LAYOUT.partitions, 600);
    let engine = Engine::new(entries[..300].to_vec());
    let options = LaneOptions { batch_events_max: 20, ..LaneOptions::default() };
    let mut old = lane(database.clone(), LAYOUT, 0, &engine, options);
    let old = std::thread::spawn(move || old.run());
    wait_until(|| engine.state().acks.len() >= 2);
    engine.state().entries.clone_from(&entries);
    assert_eq!(drain_into(database.clone(), LAYOUT, &engine, 20), LaneEnd::Drained);
    assert_eq!(old.join().unwrap(), LaneEnd::Fenced { mine: 1, theirs: 2 });
    assert_databases_equal_log(&[database], LAYOUT, &entries, &[]);
}

/// Places `bad` orders that are refused among good ones.
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

fn refused_orders_are_found_recorded_and_given_back(place: &Place) {
    for bad in [0, 1, 53] {
        let name = format!("bad{bad}");
        let database = place.create(&name);
        let (entries, refused) = with_refusals(5, 1_500, bad);
        database.prepare(&LAYOUT, 0).unwrap();
        place.refuse_6666(&name);
        let engine = Engine::new(entries.clone());
        assert_eq!(drain_into(database.clone(), LAYOUT, &engine, 1000), LaneEnd::Drained);
        // Everything is given back by the end of the drain; its events come with this one or the
        // next.
        let sent = "SELECT count(*) FROM refused_orders WHERE state <> 'open' AND class = 'insert'";
        assert_eq!(place.number(&name, sent), bad as i64);
        let commands = engine.state().commands.clone();
        let returns = commands.iter().filter(|c| matches!(c, Command::Return(_))).count();
        assert_eq!(commands.len(), bad + returns, "one cancel each, a return for the paid ones");
        let after = engine.entries();
        assert_eq!(after.len(), entries.len() + bad);
        assert_eq!(drain_into(database.clone(), LAYOUT, &engine, 1000), LaneEnd::Drained);
        assert_databases_equal_log(std::slice::from_ref(&database), LAYOUT, &after, &refused);
        let orders = "SELECT count(*) FROM orders";
        assert_eq!(place.number(&name, orders), 1_500, "no refused order left half a row");
        let done = "SELECT count(*) FROM refused_orders WHERE state = 'done'";
        assert_eq!(place.number(&name, done), bad as i64);
        assert_eq!(engine.state().commands.len(), commands.len(), "nothing is given back twice");
        let listed = database.reader(&LAYOUT).unwrap().refused().unwrap();
        assert_eq!(listed.iter().map(|row| row.order).collect::<Vec<_>>(), refused);
        assert!(listed.iter().all(|row| row.lines == r#"[["1001",1],["6666",1]]"#), "{listed:?}");
    }
}

fn a_refused_change_takes_the_order_out_of_the_rows_to_be_followed(place: &Place) {
    let database = place.create("orders");
    let entries = History::of(12, LAYOUT.partitions, 300);
    let engine = Engine::new(entries[..150].to_vec());
    assert_eq!(drain_into(database.clone(), LAYOUT, &engine, 1000), LaneEnd::Drained);
    if place.dialect == Dialect::Postgres {
        let function = "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE 'no more confirms'; END $$";
        place.run("orders", function);
    }
    let trigger = place.pick(
        "CREATE TRIGGER no BEFORE UPDATE OF state ON orders WHEN NEW.state = 2 AND OLD.state = 1
         BEGIN SELECT RAISE(ABORT, 'no more confirms'); END",
        "CREATE TRIGGER no BEFORE UPDATE ON orders FOR EACH ROW
         WHEN (NEW.state = 2 AND OLD.state = 1) EXECUTE FUNCTION no()",
        "CREATE TRIGGER no BEFORE UPDATE ON orders FOR EACH ROW
         IF NEW.state = 2 AND OLD.state = 1 THEN
         SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no more confirms'; END IF",
    );
    place.run("orders", trigger);
    engine.state().entries.clone_from(&entries);
    assert_eq!(drain_into(database.clone(), LAYOUT, &engine, 1000), LaneEnd::Drained);
    assert_eq!(drain_into(database.clone(), LAYOUT, &engine, 1000), LaneEnd::Drained);
    let listed = database.reader(&LAYOUT).unwrap().refused().unwrap();
    let refused: Vec<i64> = listed.iter().map(|row| row.order).collect();
    assert!(!refused.is_empty() && refused.len() < 20, "{refused:?}");
    assert!(listed.iter().all(|row| row.class == "update" && row.lines != "[]"), "{listed:?}");
    assert_databases_equal_log(&[database], LAYOUT, &engine.entries(), &refused);
    let open = "SELECT count(*) FROM refused_orders WHERE state <> 'done'";
    assert_eq!(place.number("orders", open), 0, "each was given back, or was over already");
}

fn mass_refusals_trip_the_breaker_and_cancel_nothing(place: &Place) {
    let database = place.create("orders");
    let (entries, _) = with_refusals(6, 300, 100);
    database.prepare(&LAYOUT, 0).unwrap();
    place.refuse_6666("orders");
    let engine = Engine::new(entries.clone());
    let LaneEnd::Alarm(why) = drain_into(database.clone(), LAYOUT, &engine, 1000) else {
        panic!("no alarm")
    };
    assert!(why.contains("100 of 400"), "{why}");
    assert_eq!(place.number("orders", "SELECT count(*) FROM refused_orders"), 0);
    assert_eq!(place.number("orders", "SELECT count(*) FROM orders"), 0);
    assert!(engine.state().commands.is_empty() && engine.state().acks.is_empty());
    place.allow_6666("orders");
    let end = drain_into(database.clone(), LAYOUT, &engine, 1000);
    assert_eq!(end, LaneEnd::Drained, "mended, it goes on");
    assert_databases_equal_log(&[database], LAYOUT, &entries, &[]);
}

fn a_changed_schema_stops_the_lane_and_cancels_nothing(place: &Place) {
    let row = place.pick(
        "INSERT INTO orders SELECT 1, 1, 1, 1, '', NULL, NULL, 0, 0, 0, 0, 0",
        "INSERT INTO orders SELECT 1, 1, 1, 1, '', NULL, NULL, 0, 0, now(), NULL, now()",
        "INSERT INTO orders SELECT 1, 1, 1, 1, '', NULL, NULL, 0, 0, now(), NULL, now()",
    );
    let damages = [
        "ALTER TABLE orders DROP COLUMN payment_ref",
        "DROP TABLE order_lines",
        "DELETE FROM cursors WHERE partition_id = 2",
        row,
    ];
    for (at, damage) in damages.into_iter().enumerate() {
        let name = format!("damage{at}");
        let database = place.create(&name);
        database.prepare(&LAYOUT, 0).unwrap();
        place.run(&name, damage);
        let mut history = History::new(9, LAYOUT.partitions);
        history.place(PartitionId::new(0), &[(1001, 1)], false);
        let engine = Engine::new(history.entries);
        let end = drain_into(database, LAYOUT, &engine, 100);
        assert!(matches!(end, LaneEnd::Alarm(_)), "{damage}: {end:?}");
        assert!(engine.state().commands.is_empty() && engine.state().acks.is_empty());
    }
}

fn a_lost_row_stops_the_lane_and_names_the_way_out(place: &Place) {
    let database = place.create("orders");
    let entries = History::of(12, LAYOUT.partitions, 150);
    let engine = Engine::new(entries[..60].to_vec());
    drain_into(database.clone(), LAYOUT, &engine, 1000);
    place.run("orders", "DELETE FROM orders");
    engine.state().entries.clone_from(&entries);
    let LaneEnd::Alarm(why) = drain_into(database, LAYOUT, &engine, 1000) else {
        panic!("no alarm")
    };
    assert!(why.contains("recon fix"), "{why}");
}

fn two_databases_by_sixteen_tables_hold_every_row_once(place: &Place) {
    let layout = Layout { databases: 2, tables: 16, partitions: 64 };
    let databases = [place.create("a"), place.create("b")];
    let entries = History::of(2, layout.partitions, 4_000);
    let engine = Engine::new(entries.clone());
    for (index, database) in databases.iter().enumerate() {
        database.prepare(&layout, index as u16).unwrap();
        let mut lane = lane(database.clone(), layout, index as u16, &engine, draining(500));
        assert_eq!(lane.run(), LaneEnd::Drained);
    }
    assert_databases_equal_log(&databases, layout, &entries, &[]);
    for name in ["a", "b"] {
        assert!(place.number(name, "SELECT count(*) FROM sales") > 0, "the catalog is in both");
        let sum: i64 = (0..16)
            .map(|table| place.number(name, &format!("SELECT count(*) FROM orders_{table:02}")))
            .inspect(|count| assert!(*count > 0, "every table has orders"))
            .sum();
        assert!(sum > 100);
    }
    // An order's id and its user both lead to its table: the partition is in both.
    let order = entries.iter().find_map(|entry| match &entry.event {
        Event::Held(placed) => Some(placed.order),
        _ => None,
    });
    let partition = order.unwrap().partition();
    let name = ["a", "b"][usize::from(partition.get() % 2)];
    let table = format!("orders_{:02}", partition.get() / 2 % 16);
    let found = format!("SELECT count(*) FROM {table} WHERE order_id = {}", order.unwrap());
    assert_eq!(place.number(name, &found), 1);
}

fn other_counts_than_the_data_was_written_with_are_refused(place: &Place) {
    let layout = Layout { databases: 2, tables: 16, partitions: 64 };
    let database = place.create("orders");
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
    let at = place.pick("0", "now()", "now()");
    place.run("orders", &format!("INSERT INTO schema_version VALUES (99, {at})"));
    let error = database.prepare(&layout, 1).unwrap_err();
    assert!(matches!(error, SetupError::Newer { found: 99, .. }), "{error}");
}

fn ddl_by_hand_makes_the_schema_that_the_writer_takes(place: &Place) {
    let database = place.create("orders");
    for statement in database.ddl(&LAYOUT, 0) {
        place.run("orders", &statement);
    }
    database.prepare(&LAYOUT, 0).unwrap();
    let entries = History::of(1, LAYOUT.partitions, 100);
    let engine = Engine::new(entries.clone());
    assert_eq!(drain_into(database.clone(), LAYOUT, &engine, 10), LaneEnd::Drained);
    assert_databases_equal_log(&[database], LAYOUT, &entries, &[]);
}

/// What buyers may send comes back as it was: quotes, backslashes, trailing spaces, letters beyond
/// the first plane, bytes that are no text, moments far away.
fn texts_bytes_and_times_survive(place: &Place) {
    let texts =
        ["it's", "a\\b", "tab ", "tab", "ünï", "\u{1F4A5}", "'; DROP TABLE orders; --", "NULL"];
    let partition = PartitionId::new(1);
    let mut history = History::new(17, LAYOUT.partitions);
    history.write(PartitionId::CATALOG, Event::SalePut(Box::new(definition(1, 1, "it's | ü"))));
    for (at, text) in texts.iter().enumerate() {
        let number = 1 + at as u64;
        let order = OrderId::from_parts(partition, number).unwrap();
        let (sale, user) = (SaleId::new(1).unwrap(), UserId::new((1 << 63) - 1).unwrap());
        let placed = Placed {
            order,
            sale,
            user,
            request: RequestId::parse(text.as_bytes()).unwrap(),
            expires_at: TimestampMs::new([1, 253_402_300_799_999, u64::MAX - 1][at % 3]),
            lines: [(1001, u32::MAX)].iter().map(line).collect(),
            data: OrderData::new(&(0..=255).collect::<Vec<u8>>()).unwrap(),
        };
        history.write(partition, Event::Held(placed));
        let key = stockade_protocol::entry::OrderKey { order, sale: Some(sale), user: Some(user) };
        if at % 2 == 0 {
            history.write(partition, Event::Confirmed { key, payment: payment(text) });
        }
        for late in texts {
            let reason = stockade_protocol::entry::LateReason::SecondPayment;
            let event = Event::LatePayment { key, payment: payment(late), reason };
            history.write(partition, event);
        }
    }
    // Folded into one row, and as a change of a row that is there.
    for (name, batch) in [("whole", 1000), ("parts", 1)] {
        let database = place.create(name);
        let engine = Engine::new(history.entries.clone());
        assert_eq!(drain_into(database.clone(), LAYOUT, &engine, batch), LaneEnd::Drained);
        let databases = [database];
        assert_databases_equal_log(&databases, LAYOUT, &history.entries, &[]);
        // The database makes the same texts of them for its checksums.
        let mut connect = engine.clone();
        let mut recon =
            Recon { layout: LAYOUT, databases: &databases, connect: &mut connect, tally: false };
        let report = recon.diff().unwrap();
        assert_eq!(report.differences, []);
        assert_eq!(report.rows_read == 0, place.dialect != Dialect::Sqlite);
    }
}

fn line(&(sku, quantity): &(u64, u32)) -> stockade_protocol::command::Line {
    stockade_protocol::command::Line { sku: stockade_protocol::SkuId::new(sku).unwrap(), quantity }
}

/// Three rows deleted, one made up, one quantity altered: exactly these five are named and mended.
fn recon_names_exactly_the_damage_and_repairs_it(place: &Place) {
    let layout = Layout { databases: 1, tables: 1, partitions: 8 };
    let entries = History::of(21, layout.partitions, 900);
    let database = place.create("orders");
    let mut engine = Engine::new(entries.clone());
    assert_eq!(drain_into(database.clone(), layout, &engine, 200), LaneEnd::Drained);
    let ids: Vec<i64> = books(&entries)
        .values()
        .flat_map(|books| books.orders.keys().map(|order| order.get() as i64))
        .collect();
    let (deleted, altered, fake) = ([ids[3], ids[40], ids[90]], ids[60], ids[7] + 1_000_000);
    let databases = [database.clone()];
    let mut recon = Recon { layout, databases: &databases, connect: &mut engine, tally: true };
    let clean = recon.diff().unwrap();
    assert_eq!(clean.differences, []);
    let by_checksum = place.dialect != Dialect::Sqlite;
    assert_eq!(clean.rows_read == 0, by_checksum, "equal ranges are not read");
    for (key, tally) in &clean.tallies.0 {
        assert_eq!(tally.log, tally.sql, "{key:?}");
    }
    let now = place.pick("1", "now()", "now()");
    for order in deleted {
        place.run("orders", &format!("DELETE FROM orders WHERE order_id = {order}"));
        place.run("orders", &format!("DELETE FROM order_lines WHERE order_id = {order}"));
    }
    let made_up = format!(
        "INSERT INTO orders SELECT {fake}, 1, 1, 2, 'x', NULL, NULL, 0, 5, {now}, NULL, {now}"
    );
    place.run("orders", &made_up);
    place
        .run("orders", &format!("UPDATE order_lines SET qty = qty + 3 WHERE order_id = {altered}"));
    place.run("orders", "UPDATE sales SET name = 'other' WHERE sale_id = 1");
    let mut expected: Vec<Subject> = deleted.iter().map(|id| Subject::Order(*id)).collect();
    expected.extend([Subject::Order(fake), Subject::Order(altered), Subject::Sale(1)]);
    expected.sort();
    let report = recon.diff().unwrap();
    let mut found: Vec<Subject> =
        report.differences.iter().map(|(_, difference)| difference.subject.clone()).collect();
    found.sort();
    assert_eq!(found, expected);
    let repaired = recon.fix("test").unwrap();
    assert_eq!((repaired.repaired.len(), repaired.left.len()), (6, 0));
    assert_eq!(recon.diff().unwrap().differences, []);
    assert_eq!(recon.fix("test").unwrap(), Repaired::default(), "the second run finds nothing");
    assert_databases_equal_log(&databases, layout, &entries, &[]);
    let reasons = "SELECT count(*) FROM repairs WHERE reason = 'test'";
    assert_eq!(place.number("orders", reasons), 6, "every repair is on record");
    let unknown = OrderId::new(fake as u64).unwrap();
    assert_eq!(recon.retry(unknown, "test").unwrap(), Retried::Unknown);
}

fn readers_cannot_write(place: &Place) {
    let database = place.create("orders");
    database.prepare(&LAYOUT, 0).unwrap();
    let mut reader = database.reader(&LAYOUT).unwrap();
    assert!(reader.delete_sales().is_err());
    assert!(database.admin(&LAYOUT).unwrap().delete_sales().is_ok());
    assert!(database.open(&LAYOUT).unwrap().claim("test").is_ok());
}
