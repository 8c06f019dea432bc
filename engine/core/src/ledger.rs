//! What applying an event tells the one who counts: units that move, holds that begin and end.
//!
//! A partition applies the same event in a live shard, in recovery and in a fold; only the counting
//! differs, so it stands behind this trait.

use stockade_protocol::ids::TimestampMs;
use stockade_protocol::{OrderId, SaleId, SkuId};

/// Where units are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// In the pool.
    Free,
    /// In a held order.
    Held,
    /// In a confirmed order.
    Confirmed,
    /// Out of the sale.
    Removed,
}

/// See the module.
pub(crate) trait Ledger {
    /// Units moved.
    fn units_moved(&mut self, sale: SaleId, sku: SkuId, units: u32, from: Place, to: Place);
    /// An order is held until then.
    fn hold_began(&mut self, sale: SaleId, order: OrderId, until: TimestampMs);
    /// A held order has another deadline.
    fn hold_moved(&mut self, order: OrderId, from: TimestampMs, until: TimestampMs);
    /// An order that was held until then is not held any more.
    fn hold_ended(&mut self, sale: SaleId, until: TimestampMs);
}

/// Counts nothing.
pub(crate) struct NoLedger;

impl Ledger for NoLedger {
    fn units_moved(&mut self, _: SaleId, _: SkuId, _: u32, _: Place, _: Place) {}
    fn hold_began(&mut self, _: SaleId, _: OrderId, _: TimestampMs) {}
    fn hold_moved(&mut self, _: OrderId, _: TimestampMs, _: TimestampMs) {}
    fn hold_ended(&mut self, _: SaleId, _: TimestampMs) {}
}
