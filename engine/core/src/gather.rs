//! Answers that are put together from all shards: figures of stock, lists of orders.

use crate::catalog::SaleRuntime;
use alloc::sync::Arc;
use alloc::vec::Vec;
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::reply::OrderView;
use stockade_protocol::{Command, Reply, SkuId};

/// Units of one SKU in the orders of some shards.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Tally {
    /// Units of held orders, and of orders whose cancel or expiry is not durable yet.
    pub held: u64,
    /// Units of confirmed orders, less what came back durably.
    pub confirmed: u64,
    /// Units that left the sale by returns without restock.
    pub removed: u64,
}

/// One shard's part of a gathered answer.
#[derive(Clone, Debug)]
pub enum Part {
    /// Of `SkuGet` and `SaleGet`: the sale as this shard sees it and its tallies (of the one SKU, or of
    /// all SKUs with orders here).
    Stock {
        /// `None`: unknown here.
        sale: Option<Arc<SaleRuntime>>,
        /// Ascending by SKU; SKUs without orders may be missing.
        tallies: Vec<(SkuId, Tally)>,
    },
    /// Of `OrderList`: orders in ascending order of id, as many as asked at most.
    Orders(Vec<OrderView>),
}

/// Puts the parts of all shards together. `None`: the parts were taken at instants that do not fit
/// (free would be negative, or two versions of the sale); gather again.
pub fn merge(command: &Command, parts: Vec<Part>, now: TimestampMs) -> Option<Reply> {
    let _ = (command, parts, now);
    todo!()
}

/// Sets every stock word to total - held - confirmed - removed at start.
///
/// # Errors
/// A SKU has more units in orders than in total: the log is damaged; the engine must not start.
pub fn set_stock(
    sales: &[Arc<SaleRuntime>],
    tallies: impl IntoIterator<Item = (stockade_protocol::SaleId, SkuId, Tally)>,
) -> Result<(), Oversold> {
    let _ = (sales, tallies.into_iter().count());
    todo!()
}

/// More units in orders than there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Oversold {
    /// The sale.
    pub sale: stockade_protocol::SaleId,
    /// The SKU.
    pub sku: SkuId,
    /// Units there are.
    pub total: u64,
    /// Units in orders.
    pub in_orders: u64,
}
