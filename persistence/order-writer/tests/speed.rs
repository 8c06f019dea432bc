//! How fast rows get into SQLite; prints, asserts nothing about time. Run by hand:
//! `cargo test --release -p stockade-order-writer --test speed -- --ignored --nocapture`.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::collections::BTreeMap;
use std::time::Instant;
use stockade_order_writer::layout::Layout;
use stockade_order_writer::pipeline::{Batcher, Breaker, BreakerLimits};
use stockade_order_writer::sink::Database;
use stockade_order_writer::sink::sqlite::SqliteDatabase;
use stockade_order_writer::sink::transaction::apply;
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::{Lsn, PartitionId};
use support::history::History;

#[test]
#[ignore = "a measurement, not a test"]
fn orders_a_second() {
    for (tables, batch) in [(1, 1_000), (1, 4_000), (16, 4_000)] {
        let layout = Layout { databases: 1, tables, partitions: 64 };
        let dir = tempfile::tempdir().unwrap();
        let database = SqliteDatabase::new(dir.path().join("orders.db"));
        database.prepare(&layout, 0).unwrap();
        let mut session = database.open(&layout).unwrap();
        let epoch = session.claim("speed").unwrap();
        let mut history = History::new(1, layout.partitions);
        for n in 0..300_000u64 {
            let partition = PartitionId::new((n * 7 % 64) as u16);
            history.place(partition, &[(1001 + n % 9, 1)], false);
        }
        let cursors: BTreeMap<PartitionId, Lsn> =
            layout.partitions_of(0).into_iter().map(|p| (p, Lsn::NONE)).collect();
        let mut batcher = Batcher::new(layout, 0, &cursors);
        let mut breaker = Breaker::new(BreakerLimits::default());
        let started = Instant::now();
        for entries in history.entries.chunks(batch) {
            entries.iter().for_each(|entry| assert!(batcher.push(entry).unwrap()));
            let work = batcher.take().unwrap();
            apply(session.as_mut(), &work, epoch, TimestampMs::new(1), &mut breaker).unwrap();
        }
        let rate = history.entries.len() as f64 / started.elapsed().as_secs_f64();
        println!("{tables} tables, batches of {batch}: {rate:.0} orders/s with one line each");
    }
}
