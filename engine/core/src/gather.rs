//! Answers that are put together from all shards: figures of stock, lists of orders.

use crate::catalog::SaleRuntime;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use stockade_protocol::command::OrderList;
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::limits::ORDER_PAGE_MAX;
use stockade_protocol::reply::{OrderView, SaleView, SkuView};
use stockade_protocol::{Command, Reply, SaleId, SkuId, SkuState};

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

impl Tally {
    /// Units that are not in the pool.
    pub const fn sum(&self) -> u64 {
        self.held + self.confirmed + self.removed
    }

    fn add(&mut self, other: Self) {
        self.held += other.held;
        self.confirmed += other.confirmed;
        self.removed += other.removed;
    }
}

/// One shard's part of a gathered answer.
#[derive(Clone, Debug)]
pub enum Part {
    /// Of `SkuGet` and `SaleGet`: the sale as this shard sees it and its tallies (of the one SKU,
    /// or of all SKUs with orders here).
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
    match command {
        Command::SkuGet { sku, .. } => {
            let (sale, tallies) = stock(parts)?;
            sku_view(sale.as_deref(), *sku, &tallies, now).map(Reply::Sku)
        }
        Command::SaleGet(_) => {
            let (sale, tallies) = stock(parts)?;
            let Some(sale) = sale else { return Some(Reply::Sale(None)) };
            let view = |definition: &stockade_protocol::SkuDefinition| {
                sku_view(Some(&sale), definition.sku, &tallies, now)
            };
            let skus = sale.definition.skus.iter().map(view).collect::<Option<Vec<_>>>()?;
            Some(Reply::Sale(Some(Box::new(SaleView {
                definition: sale.definition.clone(),
                state: sale.state(now),
                server_time: now,
                skus,
            }))))
        }
        Command::OrderList(list) => Some(Reply::Orders(orders(list, parts))),
        _ => None,
    }
}

/// A sale and the sum of its tallies over all shards.
type Sum = (Option<Arc<SaleRuntime>>, BTreeMap<SkuId, Tally>);

/// Sums up; `None` if the shards see different versions of the sale.
fn stock(parts: Vec<Part>) -> Option<Sum> {
    let mut version: Option<Option<Arc<SaleRuntime>>> = None;
    let mut sum: BTreeMap<SkuId, Tally> = BTreeMap::new();
    for part in parts {
        let Part::Stock { sale, tallies } = part else { return None };
        for (sku, tally) in tallies {
            sum.entry(sku).or_default().add(tally);
        }
        match (&version, &sale) {
            (None, _) => version = Some(sale),
            (Some(None), None) => {}
            (Some(Some(a)), Some(b)) if Arc::ptr_eq(a, b) => {}
            _ => return None,
        }
    }
    Some((version.flatten(), sum))
}

/// `None` if free would be negative.
fn sku_view(
    sale: Option<&SaleRuntime>,
    sku: SkuId,
    tallies: &BTreeMap<SkuId, Tally>,
    now: TimestampMs,
) -> Option<SkuView> {
    let known = sale.and_then(|sale| Some((sale, sale.sku(sku)?)));
    let Some((sale, runtime)) = known else {
        let (total, free, held, confirmed) = (0, 0, 0, 0);
        return Some(SkuView { sku, total, free, held, confirmed, state: SkuState::Unknown });
    };
    let Tally { held, confirmed, removed } = tallies.get(&sku).copied().unwrap_or_default();
    let total = runtime.total.checked_sub(removed)?;
    let free = total.checked_sub(held)?.checked_sub(confirmed)?;
    let state = SkuState::of(sale.state(now), free);
    Some(SkuView { sku, total, free, held, confirmed, state })
}

fn orders(list: &OrderList, parts: Vec<Part>) -> Vec<OrderView> {
    let of = |part| match part {
        Part::Orders(orders) => orders,
        Part::Stock { .. } => Vec::new(),
    };
    let mut orders: Vec<OrderView> = parts.into_iter().flat_map(of).collect();
    orders.sort_by_key(|view| view.order);
    orders.truncate(list.count.min(ORDER_PAGE_MAX) as usize);
    orders
}

/// Sets every stock word to total - held - confirmed - removed at start. `tallies` are those of all
/// shards after all catalog changes were applied (so that archived sales are gone); nothing else
/// may run.
///
/// # Errors
/// A SKU has more units in orders than in total: the log is damaged; the engine must not start.
pub fn set_stock(
    sales: &[Arc<SaleRuntime>],
    tallies: impl IntoIterator<Item = (SaleId, SkuId, Tally)>,
) -> Result<(), Oversold> {
    let mut sum: BTreeMap<(SaleId, SkuId), Tally> = BTreeMap::new();
    for (sale, sku, tally) in tallies {
        sum.entry((sale, sku)).or_default().add(tally);
    }
    for runtime in sales {
        let sale = runtime.definition.sale;
        for sku in &runtime.skus {
            let tally = sum.remove(&(sale, sku.definition.sku)).unwrap_or_default();
            let (total, in_orders) = (sku.total, tally.sum());
            let oversold = Oversold { sale, sku: sku.definition.sku, total, in_orders };
            let free = total.checked_sub(in_orders).ok_or(oversold)?;
            let free = u32::try_from(free).map_err(|_| oversold)?;
            sku.stock.reset(free, tally.held);
        }
    }
    let unknown = sum.into_iter().find(|(_, tally)| tally.sum() > 0);
    unknown.map_or(Ok(()), |((sale, sku), tally)| {
        Err(Oversold { sale, sku, total: 0, in_orders: tally.sum() })
    })
}

/// More units in orders than there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Oversold {
    /// The sale.
    pub sale: SaleId,
    /// The SKU.
    pub sku: SkuId,
    /// Units there are.
    pub total: u64,
    /// Units in orders.
    pub in_orders: u64,
}

impl core::fmt::Display for Oversold {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { sale, sku, total, in_orders } = self;
        write!(f, "sale {sale} sku {sku}: {in_orders} units in orders, but only {total} there are")
    }
}

impl core::error::Error for Oversold {}
