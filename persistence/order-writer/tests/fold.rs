//! The fold of entries into batches, against a model that applies them one by one.

mod support;

use proptest::prelude::*;
use std::collections::BTreeMap;
use stockade_order_writer::layout::Layout;
use stockade_order_writer::pipeline::{Alarm, Batch, Batcher};
use stockade_order_writer::rows::{CatalogChange, LateRow, OrderRow};
use stockade_protocol::{Entry, Lsn, OrderId, PartitionId};
use support::books;
use support::history::History;

const LAYOUT: Layout = Layout { databases: 1, tables: 3, partitions: 5 };

fn batcher() -> Batcher {
    let partitions = LAYOUT.partitions_of(0);
    let cursors = partitions.into_iter().map(|partition| (partition, Lsn::NONE)).collect();
    Batcher::new(LAYOUT, 0, &cursors)
}

/// Tables as plain maps: what a database makes of a batch.
#[derive(Default)]
struct Tables {
    orders: BTreeMap<OrderId, OrderRow>,
    late: BTreeMap<(OrderId, String), LateRow>,
    catalog: Vec<CatalogChange>,
    cursors: BTreeMap<PartitionId, Lsn>,
}

impl Tables {
    fn apply(&mut self, batch: Batch) {
        for advance in &batch.advances {
            let cursor = self.cursors.insert(advance.partition, advance.to).unwrap_or_default();
            assert_eq!(cursor, advance.from, "cursors follow each other");
        }
        for table in batch.tables {
            let sorted = |ids: Vec<OrderId>| ids.is_sorted_by(|a, b| a < b);
            assert!(sorted(table.updates.iter().map(|change| change.key.order).collect()));
            assert!(sorted(table.inserts.iter().map(|row| row.order).collect()));
            for change in &table.updates {
                assert_eq!(LAYOUT.table_of(change.key.order.partition()), table.table);
                let row = self.orders.get_mut(&change.key.order).expect("updates have rows");
                assert!(row.lsn < change.lsn && row.absorb(change));
            }
            for row in table.inserts {
                assert_eq!(LAYOUT.table_of(row.order.partition()), table.table);
                assert!(self.orders.insert(row.order, row).is_none(), "one insert an order");
            }
        }
        for row in batch.late {
            let key = (row.order, row.payment.as_str().to_owned());
            self.late.entry(key).or_insert(row);
        }
        self.catalog.extend(batch.catalog);
    }
}

proptest! {
    #[test]
    fn batches_of_any_size_leave_the_rows_of_the_log(
        seed in any::<u64>(),
        sizes in prop::collection::vec(1usize..60, 1..20),
    ) {
        let entries = History::of(seed, LAYOUT.partitions, 400);
        let (mut batcher, mut tables) = (batcher(), Tables::default());
        let mut sizes = sizes.iter().cycle();
        let mut left = *sizes.next().unwrap();
        for (place, entry) in entries.iter().enumerate() {
            prop_assert!(batcher.push(entry).unwrap());
            // A part of the feed comes again, as after a reconnect.
            prop_assert!(!batcher.push(&entries[place - place % 3]).unwrap());
            left -= 1;
            if left == 0 {
                left = *sizes.next().unwrap();
                tables.apply(batcher.take().unwrap());
            }
        }
        batcher.take().into_iter().for_each(|batch| tables.apply(batch));
        prop_assert!(batcher.take().is_none());
        let mut model = Tables::default();
        for (partition, books) in books(&entries) {
            model.orders.extend(books.orders);
            model.late.extend(books.late);
            model.catalog.extend(books.catalog);
            model.cursors.insert(partition, books.lsn);
        }
        prop_assert_eq!(tables.orders, model.orders);
        prop_assert_eq!(tables.late, model.late);
        prop_assert_eq!(tables.catalog, model.catalog);
        prop_assert_eq!(tables.cursors, model.cursors);
    }
}

fn entry_of(entries: &[Entry], partition: u16, lsn: u64) -> Entry {
    let mut found = entries.iter();
    let at = |e: &&Entry| e.partition.get() == partition && e.lsn.get() == lsn;
    found.find(at).expect("the history is long enough").clone()
}

#[test]
fn holes_and_foreign_entries_raise_an_alarm_and_take_nothing() {
    let entries = History::of(1, LAYOUT.partitions, 300);
    let mut batcher = batcher();
    batcher.push(&entry_of(&entries, 2, 1)).unwrap();
    let hole = batcher.push(&entry_of(&entries, 2, 3));
    let (partition, expected, found) = (PartitionId::new(2), Lsn::new(2), Lsn::new(3));
    assert_eq!(hole, Err(Alarm::Hole { partition, expected, found }));
    let mut moved = entry_of(&entries, 3, 1);
    moved.partition = PartitionId::new(1);
    assert!(matches!(batcher.push(&moved), Err(Alarm::Foreign { .. })), "another's order");
    moved.partition = PartitionId::new(5);
    assert!(matches!(batcher.push(&moved), Err(Alarm::Foreign { .. })), "no such partition");
    moved.partition = PartitionId::CATALOG;
    assert!(matches!(batcher.push(&moved), Err(Alarm::Foreign { .. })), "no catalog event");
    assert_eq!(batcher.events(), 1);
    assert_eq!(batcher.wanted()[2], (PartitionId::new(2), Lsn::new(2)));
    assert!(batcher.push(&entry_of(&entries, 2, 2)).unwrap(), "the next one is taken");
}

#[test]
fn a_gap_is_an_alarm_only_where_something_unwritten_is_missing() {
    let entries = History::of(1, LAYOUT.partitions, 300);
    let mut batcher = batcher();
    for lsn in 1..=3 {
        batcher.push(&entry_of(&entries, 2, lsn)).unwrap();
    }
    let partition = PartitionId::new(2);
    assert_eq!(batcher.gap(partition, Lsn::new(1), Lsn::new(3)), Ok(()));
    let (from, to) = (Lsn::new(4), Lsn::new(9));
    let alarm = batcher.gap(partition, Lsn::new(2), to);
    assert_eq!(alarm, Err(Alarm::Trimmed { partition, from, to }));
}
