//! What the tests share: random histories that an engine could have written, an engine that plays
//! them, and a database that fails at a chosen step.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "tests")]

pub mod engine;
pub mod failing;
pub mod history;
pub mod server;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use stockade_order_writer::lane::{CatalogAcks, Lane, LaneEnd, LaneOptions, LaneParts, Stop};
use stockade_order_writer::layout::Layout;
use stockade_order_writer::recon::books::Books;
use stockade_order_writer::sink::Database;
use stockade_order_writer::sink::sqlite::SqliteDatabase;
use stockade_order_writer::stored::{LateStored, OrderStored, order_range};
use stockade_protocol::{Entry, PartitionId};

/// Options for a lane that drains and ends.
pub fn draining(batch_events_max: usize) -> LaneOptions {
    LaneOptions { batch_events_max, until_drained: true, ..LaneOptions::default() }
}

/// A lane on a prepared database.
pub fn lane(
    database: Arc<dyn Database>,
    layout: Layout,
    index: u16,
    engine: &engine::Engine,
    options: LaneOptions,
) -> Lane {
    Lane::new(LaneParts {
        database,
        layout,
        index,
        owner: "test".into(),
        connect: Box::new(engine.clone()),
        options,
        stop: Stop::default(),
        acks: CatalogAcks::new(usize::from(layout.databases)),
        ready: Box::new(|| {}),
    })
}

/// A file as a database.
pub fn file(path: &Path) -> Arc<dyn Database> {
    Arc::new(SqliteDatabase::new(path))
}

/// Drains everything into a file.
pub fn drain(path: &Path, layout: Layout, engine: &engine::Engine, batch: usize) -> LaneEnd {
    drain_into(file(path), layout, engine, batch)
}

/// Drains everything into the first database of a layout.
pub fn drain_into(
    database: Arc<dyn Database>,
    layout: Layout,
    engine: &engine::Engine,
    batch: usize,
) -> LaneEnd {
    database.prepare(&layout, 0).unwrap();
    lane(database, layout, 0, engine, draining(batch)).run()
}

/// The fold of the log, partition by partition.
pub fn books(entries: &[Entry]) -> BTreeMap<PartitionId, Books> {
    let mut books: BTreeMap<PartitionId, Books> = BTreeMap::new();
    for entry in entries {
        books.entry(entry.partition).or_default().apply(entry);
    }
    books
}

/// Asserts that the rows of the databases are the fold of the log, but for `refused` orders.
pub fn assert_equals_log(paths: &[&Path], layout: Layout, entries: &[Entry], refused: &[i64]) {
    let databases: Vec<Arc<dyn Database>> = paths.iter().map(|path| file(path)).collect();
    assert_databases_equal_log(&databases, layout, entries, refused);
}

/// The same for databases of any dialect.
pub fn assert_databases_equal_log(
    databases: &[Arc<dyn Database>],
    layout: Layout,
    entries: &[Entry],
    refused: &[i64],
) {
    let books = books(entries);
    for (index, database) in databases.iter().enumerate() {
        let mut session = database.reader(&layout).unwrap();
        let cursors = session.cursors().unwrap();
        for partition in layout.partitions_of(index as u16) {
            let books = books.get(&partition).cloned().unwrap_or_default();
            let cursor = cursors.iter().find(|cursor| cursor.partition == partition).unwrap();
            assert_eq!(cursor.lsn, books.lsn, "cursor of partition {partition}");
            if partition == PartitionId::CATALOG {
                continue;
            }
            let table = layout.table_of(partition);
            let mut rows = session.orders(table, order_range(partition)).unwrap();
            rows.retain(|order, _| !refused.contains(order));
            let mut model: BTreeMap<i64, OrderStored> = BTreeMap::new();
            for row in books.orders.values().map(OrderStored::from) {
                model.insert(row.order, row);
            }
            model.retain(|order, _| !refused.contains(order));
            assert_eq!(rows, model, "orders of partition {partition}");
            let late = session.late_payments(partition).unwrap();
            let model = books.late.iter().map(|((order, payment), row)| {
                ((order.get() as i64, payment.clone()), LateStored::from(row))
            });
            assert_eq!(late, model.collect(), "late payments of partition {partition}");
        }
        for table in 0..layout.tables {
            assert_eq!(session.strays(table).unwrap(), [] as [i64; 0]);
        }
    }
}
