//! What the log says: a partition's entries applied one by one, in the plainest way.
//!
//! Reconciliation compares SQL with it, and the tests compare the writer's own fold with it; so it
//! shares no code with the batches.

use crate::pipeline::batcher::catalog_change;
use crate::rows::{CatalogChange, LateRow, OrderRow};
use std::collections::{BTreeMap, BTreeSet};
use stockade_protocol::command::Lines;
use stockade_protocol::entry::OrderKey;
use stockade_protocol::{Entry, Event, Lsn, OrderId, OrderState};

/// The fold of one partition's log, or of a part of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Books {
    /// Orders that were placed in it.
    pub orders: BTreeMap<OrderId, OrderRow>,
    /// Late payments by (order, payment).
    pub late: BTreeMap<(OrderId, String), LateRow>,
    /// Catalog changes in order.
    pub catalog: Vec<CatalogChange>,
    /// Orders that it mentions but that were placed before its first entry.
    pub older: BTreeSet<OrderId>,
    /// The first entry applied; none yet: `Lsn::NONE`.
    pub first: Lsn,
    /// The last entry applied.
    pub lsn: Lsn,
    /// Entries were gone when it was read.
    pub trimmed: bool,
}

impl Books {
    /// Applies the next entry.
    pub fn apply(&mut self, entry: &Entry) {
        if self.first == Lsn::NONE {
            self.first = entry.lsn;
        }
        self.lsn = entry.lsn;
        match &entry.event {
            Event::Held(placed) => {
                let row = OrderRow::placed(placed, OrderState::Held, entry.lsn, entry.at);
                self.orders.insert(placed.order, row);
            }
            Event::BornConfirmed(placed) => {
                let row = OrderRow::placed(placed, OrderState::Confirmed, entry.lsn, entry.at);
                self.orders.insert(placed.order, row);
            }
            Event::Confirmed { key, payment } | Event::Revived { key, payment, .. } => {
                if let Some(row) = self.touch(key, entry) {
                    row.state = OrderState::Confirmed;
                    row.payment = Some(payment.clone());
                }
            }
            Event::Cancelled { key, .. } => {
                if let Some(row) = self.touch(key, entry) {
                    row.state = OrderState::Cancelled;
                }
            }
            Event::Expired { key } => {
                if let Some(row) = self.touch(key, entry) {
                    row.state = OrderState::Expired;
                }
            }
            Event::Extended { key, expires_at } => {
                if let Some(row) = self.touch(key, entry) {
                    row.expires_at = *expires_at;
                }
            }
            Event::Returned { key, lines, whole, .. } => {
                if let Some(row) = self.touch(key, entry) {
                    give_back(row, lines);
                    if *whole {
                        row.state = OrderState::Returned;
                    }
                }
            }
            Event::LatePayment { key, payment, reason } => {
                let row = LateRow {
                    order: key.order,
                    payment: payment.clone(),
                    reason: *reason,
                    at: entry.at,
                    sale: key.sale,
                    user: key.user,
                };
                self.late.entry((key.order, payment.as_str().into())).or_insert(row);
            }
            Event::Withdrawn { .. } => {}
            catalog => self.catalog.extend(catalog_change(catalog)),
        }
    }

    /// The order's row, with this entry as its last.
    fn touch(&mut self, key: &OrderKey, entry: &Entry) -> Option<&mut OrderRow> {
        let Some(row) = self.orders.get_mut(&key.order) else {
            self.older.insert(key.order);
            return None;
        };
        row.lsn = entry.lsn;
        row.updated_at = entry.at;
        Some(row)
    }
}

fn give_back(row: &mut OrderRow, lines: &Lines) {
    for line in &mut row.lines {
        for back in lines.iter().filter(|back| back.sku == line.sku) {
            line.returned += u64::from(back.quantity);
        }
    }
}
