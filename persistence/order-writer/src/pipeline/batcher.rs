//! Entries in, batches out: the fold of one lane.
//!
//! Owns the position of each partition of its database. It takes an entry only if it is the next of
//! its partition: what is below was there before and is skipped, what is above is a hole and raises
//! an alarm. Within a batch each order has one slot: a new row with its state at the end, or one
//! change of a row that is in SQL already. It reads no clock and does no I/O.

use crate::layout::Layout;
use crate::rows::{CatalogChange, LateRow, OrderChange, OrderRow, SaleRowState};
use std::collections::BTreeMap;
use std::collections::btree_map;
use stockade_protocol::entry::Placed;
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::{Entry, Event, Lsn, OrderId, OrderState, PartitionId};

/// A feed that cannot be followed. A person must look; the writer stops instead of guessing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Alarm {
    /// Entries are missing.
    #[error("partition {partition}: entry {found} came where {expected} was due")]
    Hole {
        /// The partition.
        partition: PartitionId,
        /// The next entry.
        expected: Lsn,
        /// What came.
        found: Lsn,
    },
    /// The engine no longer has entries that were not written yet.
    #[error("partition {partition}: entries {from}..={to} are trimmed and are not in SQL")]
    Trimmed {
        /// The partition.
        partition: PartitionId,
        /// First missing.
        from: Lsn,
        /// Last missing.
        to: Lsn,
    },
    /// The entry belongs to another database, or its order to another partition.
    #[error("partition {partition}: entry {lsn} does not belong here")]
    Foreign {
        /// The partition.
        partition: PartitionId,
        /// The entry.
        lsn: Lsn,
    },
    /// An order gives back what it never had.
    #[error("partition {partition}: entry {lsn} returns a SKU that order {order} does not have")]
    Returned {
        /// The partition.
        partition: PartitionId,
        /// The entry.
        lsn: Lsn,
        /// The order.
        order: OrderId,
    },
}

/// How far a batch moves one cursor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Advance {
    /// The partition.
    pub partition: PartitionId,
    /// Where the cursor stands before.
    pub from: Lsn,
    /// Where it stands after.
    pub to: Lsn,
    /// The time of the last entry.
    pub at: TimestampMs,
}

/// The rows of one table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableBatch {
    /// The table.
    pub table: u16,
    /// Changes of rows that are there, ascending by order.
    pub updates: Vec<OrderChange>,
    /// New rows, ascending by order.
    pub inserts: Vec<OrderRow>,
}

/// One transaction's worth of rows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Batch {
    /// Cursors that move, ascending by partition.
    pub advances: Vec<Advance>,
    /// Orders, ascending by table.
    pub tables: Vec<TableBatch>,
    /// Late payments, ascending by (order, payment).
    pub late: Vec<LateRow>,
    /// Catalog changes in the order they came.
    pub catalog: Vec<CatalogChange>,
    /// Entries in it.
    pub events: usize,
}

impl Batch {
    /// Orders in it.
    pub fn orders(&self) -> usize {
        self.tables.iter().map(|table| table.updates.len() + table.inserts.len()).sum()
    }
}

#[derive(Debug)]
enum Slot {
    New(Box<OrderRow>),
    Change(Box<OrderChange>),
}

/// See the module.
#[derive(Debug)]
pub struct Batcher {
    layout: Layout,
    database: u16,
    positions: BTreeMap<PartitionId, Lsn>,
    orders: BTreeMap<OrderId, Slot>,
    late: BTreeMap<(OrderId, String), LateRow>,
    catalog: Vec<CatalogChange>,
    advances: BTreeMap<PartitionId, Advance>,
    events: usize,
    skipped: u64,
}

impl Batcher {
    /// A batcher for one database whose cursors stand at `cursors`.
    pub fn new(layout: Layout, database: u16, cursors: &BTreeMap<PartitionId, Lsn>) -> Self {
        Self {
            layout,
            database,
            positions: cursors.clone(),
            orders: BTreeMap::new(),
            late: BTreeMap::new(),
            catalog: Vec::new(),
            advances: BTreeMap::new(),
            events: 0,
            skipped: 0,
        }
    }

    /// Entries that wait for [`Batcher::take`].
    pub const fn events(&self) -> usize {
        self.events
    }

    /// Entries that had been written before and were skipped.
    pub const fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The next entries to ask the feed for.
    pub fn wanted(&self) -> Vec<(PartitionId, Lsn)> {
        self.positions.iter().map(|(partition, lsn)| (*partition, lsn.next())).collect()
    }

    /// Takes an entry; false if it was written before.
    ///
    /// # Errors
    /// See [`Alarm`]; the entry is not taken then.
    pub fn push(&mut self, entry: &Entry) -> Result<bool, Alarm> {
        let Entry { partition, lsn, at, .. } = *entry;
        let foreign = Alarm::Foreign { partition, lsn };
        let position = *self.positions.get(&partition).ok_or_else(|| foreign.clone())?;
        if lsn <= position {
            self.skipped += 1;
            return Ok(false);
        }
        if lsn != position.next() {
            return Err(Alarm::Hole { partition, expected: position.next(), found: lsn });
        }
        self.fold(entry)?;
        self.positions.insert(partition, lsn);
        self.events += 1;
        let fresh = Advance { partition, from: position, to: lsn, at };
        let advance = self.advances.entry(partition).or_insert(fresh);
        (advance.to, advance.at) = (lsn, at);
        Ok(true)
    }

    /// The feed said that entries are gone; fine if they were written before.
    ///
    /// # Errors
    /// [`Alarm::Trimmed`].
    pub fn gap(&mut self, partition: PartitionId, from: Lsn, to: Lsn) -> Result<(), Alarm> {
        match self.positions.get(&partition) {
            Some(position) if to > *position => {
                Err(Alarm::Trimmed { partition, from: from.max(position.next()), to })
            }
            _ => Ok(()),
        }
    }

    /// The batch of everything pushed since the last one; `None` where nothing was.
    pub fn take(&mut self) -> Option<Batch> {
        if self.events == 0 {
            return None;
        }
        let mut tables: BTreeMap<u16, TableBatch> = BTreeMap::new();
        for (order, slot) in std::mem::take(&mut self.orders) {
            let table = self.layout.table_of(order.partition());
            let rows = tables.entry(table).or_default();
            rows.table = table;
            match slot {
                Slot::New(row) => rows.inserts.push(*row),
                Slot::Change(change) => rows.updates.push(*change),
            }
        }
        Some(Batch {
            advances: std::mem::take(&mut self.advances).into_values().collect(),
            tables: tables.into_values().collect(),
            #[cfg(feature = "mutations")]
            late: if stockade_protocol::mutation::is(
                stockade_protocol::mutation::Mutation::LateRowLost,
            ) {
                Vec::new()
            } else {
                std::mem::take(&mut self.late).into_values().collect()
            },
            #[cfg(not(feature = "mutations"))]
            late: std::mem::take(&mut self.late).into_values().collect(),
            catalog: std::mem::take(&mut self.catalog),
            events: std::mem::take(&mut self.events),
        })
    }

    fn fold(&mut self, entry: &Entry) -> Result<(), Alarm> {
        let is_catalog = entry.partition == PartitionId::CATALOG;
        if is_catalog != is_catalog_event(&entry.event) || self.belongs(entry).is_none() {
            return Err(Alarm::Foreign { partition: entry.partition, lsn: entry.lsn });
        }
        match &entry.event {
            Event::Held(placed) => self.place(placed, OrderState::Held, entry),
            Event::BornConfirmed(placed) => self.place(placed, OrderState::Confirmed, entry),
            Event::LatePayment { key, payment, reason } => {
                let row = LateRow {
                    order: key.order,
                    payment: payment.clone(),
                    reason: *reason,
                    at: entry.at,
                    sale: key.sale,
                    user: key.user,
                };
                self.late.entry((key.order, payment.as_str().to_owned())).or_insert(row);
            }
            event => {
                if let Some(change) = OrderChange::of(entry) {
                    return self.change(change, entry);
                }
                self.catalog.extend(catalog_change(event));
            }
        }
        Ok(())
    }

    /// `None` if the entry names an order of another partition, or the partition is of another
    /// database.
    fn belongs(&self, entry: &Entry) -> Option<()> {
        let order = match &entry.event {
            Event::Held(placed) | Event::BornConfirmed(placed) => Some(placed.order),
            Event::LatePayment { key, .. } => Some(key.order),
            _ => OrderChange::of(entry).map(|change| change.key.order),
        };
        let at_home = order.is_none_or(|order| order.partition() == entry.partition);
        (at_home && self.layout.is_in(entry.partition, self.database)).then_some(())
    }

    fn place(&mut self, placed: &Placed, state: OrderState, entry: &Entry) {
        let row = Box::new(OrderRow::placed(placed, state, entry.lsn, entry.at));
        self.orders.insert(placed.order, Slot::New(row));
    }

    fn change(&mut self, change: OrderChange, entry: &Entry) -> Result<(), Alarm> {
        let order = change.key.order;
        match self.orders.entry(order) {
            btree_map::Entry::Vacant(slot) => {
                slot.insert(Slot::Change(Box::new(change)));
            }
            btree_map::Entry::Occupied(mut slot) => match slot.get_mut() {
                Slot::Change(before) => before.merge(change),
                Slot::New(row) => {
                    if !row.absorb(&change) {
                        let Entry { partition, lsn, .. } = *entry;
                        return Err(Alarm::Returned { partition, lsn, order });
                    }
                }
            },
        }
        Ok(())
    }
}

/// True for events that stand in the catalog's partition.
pub const fn is_catalog_event(event: &Event) -> bool {
    event.kind() >= 32
}

/// What a catalog event changes in SQL.
pub fn catalog_change(event: &Event) -> Option<CatalogChange> {
    Some(match event {
        Event::SalePut(definition) => CatalogChange::Put(definition.clone()),
        Event::SalePaused(sale) => CatalogChange::State(*sale, SaleRowState::Paused),
        Event::SaleResumed(sale) => CatalogChange::State(*sale, SaleRowState::Live),
        Event::SaleClosed(sale) => CatalogChange::State(*sale, SaleRowState::Ended),
        Event::SaleArchived(sale) => CatalogChange::State(*sale, SaleRowState::Archived),
        Event::Adjusted { sale, sku, applied, .. } => CatalogChange::Adjust(*sale, *sku, *applied),
        _ => return None,
    })
}
