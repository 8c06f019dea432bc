//! What a shard counts: per sale and SKU the units in its orders, the allotment of the present
//! turn, and the units that wait for their entry to be durable.
//!
//! Invariants: within a turn the units of a SKU that this shard has aside are `left + granted`;
//! after it both are 0. Units on their way back stay in the tally until [`Books::committed`].

use super::timers::Timers;
use crate::admission::{Bucket, Rate};
use crate::catalog::{SaleRuntime, Window};
use crate::effects::Position;
use crate::gather::Tally;
use crate::hash::FixedMap;
use crate::ledger::{Ledger, Place};
use crate::pool::StockWord;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::{OrderId, SaleId, SkuId};

/// How long after the last held unit a buyer is still told to try again.
const HELD_WINDOW_MS: u64 = 100;

/// Whether units that are given back wait for their entry to be durable.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Mode {
    /// Recovery: every entry is durable, and the stock words are set at the end.
    #[default]
    Replay,
    /// The entry at this position is being applied.
    Live(Position),
}

/// What the rules need of a sale, copied so that deciding touches no shared memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SaleRules {
    pub(crate) window: Window,
    pub(crate) hold_ms: u64,
    pub(crate) extend_max_ms: u64,
    pub(crate) limit_per_user: u32,
    pub(crate) rate: Option<Rate>,
    pub(crate) user_rate: Option<Rate>,
    pub(crate) revive: bool,
}

/// A sale in this shard.
#[derive(Debug)]
pub(crate) struct SaleBook {
    sale: SaleId,
    /// `None` while only orders of it are known (recovery).
    pub(crate) rules: Option<SaleRules>,
    pub(crate) runtime: Option<Arc<SaleRuntime>>,
    pub(crate) admission: Option<Arc<Bucket>>,
    /// In ascending order of id.
    pub(crate) skus: Vec<SkuBook>,
    pub(crate) held_orders: u64,
}

/// A SKU in this shard.
#[derive(Debug)]
pub(crate) struct SkuBook {
    pub(crate) sku: SkuId,
    pub(crate) limit_per_user: u32,
    pub(crate) max_per_order: u32,
    /// `None` while only orders of it are known (recovery).
    stock: Option<Arc<StockWord>>,
    pub(crate) tally: Tally,
    /// Change of held units that the shared meter was not told yet.
    held_untold: i64,
    /// What the requests of this turn ask, while it is summed.
    asked: u64,
    /// The allotment: units set aside and not granted.
    left: u32,
    /// Units set aside and granted in this turn.
    granted: u32,
    touched: bool,
}

/// Units of a SKU that an order wants; the SKU as an index into [`SaleBook::skus`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    pub(crate) sku: usize,
    pub(crate) quantity: u32,
}

/// Units on their way back.
#[derive(Debug)]
struct GiveBack {
    position: Position,
    sale: SaleId,
    sku: SkuId,
    units: u32,
    from: Place,
    to: Place,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Books {
    pub(crate) mode: Mode,
    pub(crate) timers: Timers,
    sales: Vec<SaleBook>,
    by_id: FixedMap<SaleId, usize>,
    give_backs: VecDeque<GiveBack>,
    /// SKUs with an allotment in this turn, as (sale, SKU) indexes.
    touched: Vec<(usize, usize)>,
    /// SKUs whose held units changed since the meter was told.
    untold: Vec<(SaleId, SkuId)>,
}

impl SkuBook {
    const fn new(sku: SkuId) -> Self {
        Self {
            sku,
            limit_per_user: 0,
            max_per_order: 0,
            stock: None,
            tally: Tally { held: 0, confirmed: 0, removed: 0 },
            held_untold: 0,
            asked: 0,
            left: 0,
            granted: 0,
            touched: false,
        }
    }

    fn stock(&self) -> &StockWord {
        self.stock.as_deref().expect("only SKUs of the catalog are sold")
    }
}

impl SaleBook {
    /// The index of a SKU that the catalog has.
    pub(crate) fn index_of(&self, sku: SkuId) -> Option<usize> {
        let found = self.skus.binary_search_by_key(&sku, |book| book.sku).ok()?;
        self.skus[found].stock.is_some().then_some(found)
    }

    fn sku_mut(&mut self, sku: SkuId) -> &mut SkuBook {
        let index = match self.skus.binary_search_by_key(&sku, |book| book.sku) {
            Ok(index) => index,
            Err(index) => {
                self.skus.insert(index, SkuBook::new(sku));
                index
            }
        };
        &mut self.skus[index]
    }
}

/// Sales.
impl Books {
    pub(crate) fn find(&self, sale: SaleId) -> Option<usize> {
        self.by_id.get(&sale).copied()
    }

    pub(crate) fn sale(&self, index: usize) -> &SaleBook {
        &self.sales[index]
    }

    fn sale_mut(&mut self, sale: SaleId) -> &mut SaleBook {
        let index = *self.by_id.entry(sale).or_insert_with(|| {
            let (rules, runtime, admission) = (None, None, None);
            let skus = Vec::new();
            self.sales.push(SaleBook { sale, rules, runtime, admission, skus, held_orders: 0 });
            self.sales.len() - 1
        });
        &mut self.sales[index]
    }

    /// The sale is new or changed.
    pub(crate) fn put(&mut self, runtime: &Arc<SaleRuntime>) {
        let definition = &runtime.definition;
        let book = self.sale_mut(definition.sale);
        book.rules = Some(SaleRules {
            window: runtime.window(),
            hold_ms: definition.hold_ms,
            extend_max_ms: definition.extend_max_ms,
            limit_per_user: definition.limit_per_user,
            rate: Rate::new(definition.rate_per_s, definition.burst),
            user_rate: Rate::new(definition.user_rate_per_s, 0),
            revive: definition.revive,
        });
        book.admission = Some(runtime.admission.clone());
        book.runtime = Some(runtime.clone());
        for sku in &runtime.skus {
            let known = book.sku_mut(sku.definition.sku);
            known.limit_per_user = sku.definition.limit_per_user;
            known.max_per_order = sku.definition.max_per_order;
            known.stock = Some(sku.stock.clone());
        }
    }

    /// The sale's state is dropped, units on their way back included.
    pub(crate) fn drop_sale(&mut self, sale: SaleId) {
        assert!(self.touched.is_empty(), "sales are dropped between turns");
        let Some(index) = self.by_id.remove(&sale) else { return };
        self.sales.swap_remove(index);
        if let Some(moved) = self.sales.get(index) {
            self.by_id.insert(moved.sale, index);
        }
    }

    pub(crate) fn tallies(&self) -> Vec<(SaleId, SkuId, Tally)> {
        let of = |sale: &SaleBook| {
            let id = sale.sale;
            sale.skus.iter().map(move |sku| (id, sku.sku, sku.tally)).collect::<Vec<_>>()
        };
        let mut tallies: Vec<_> = self.sales.iter().flat_map(of).collect();
        tallies.retain(|(_, _, tally)| *tally != Tally::default());
        tallies.sort_by_key(|(sale, sku, _)| (*sale, *sku));
        tallies
    }
}

/// The allotments of a turn.
impl Books {
    /// A request of this turn asks for these units.
    pub(crate) fn ask(&mut self, sale: usize, want: Want) {
        let sku = &mut self.sales[sale].skus[want.sku];
        sku.asked += u64::from(want.quantity);
        touch(&mut self.touched, sku, sale, want.sku);
    }

    /// Sets aside what was asked, once per SKU.
    pub(crate) fn set_aside(&mut self) {
        for (sale, index) in &self.touched {
            let sku = &mut self.sales[*sale].skus[*index];
            let asked = u32::try_from(core::mem::take(&mut sku.asked)).unwrap_or(u32::MAX);
            sku.left = sku.stock().set_aside(asked);
        }
    }

    /// Fewer units are outside orders than wanted, over all shards: says when to try again. Each
    /// word is looked at once. Units that other shards have aside may yet come back, so they count
    /// as free; those that this turn granted are in orders.
    pub(crate) fn sold_out(&self, sale: usize, wants: &[Want], now: TimestampMs) -> Option<Retry> {
        for want in wants {
            let sku = &self.sales[sale].skus[want.sku];
            if sku.left >= want.quantity {
                continue;
            }
            let stock = sku.stock().load();
            #[cfg(feature = "mutations")]
            let stock = if stockade_protocol::mutation::is(
                stockade_protocol::mutation::Mutation::FalseSoldOut,
            ) {
                crate::pool::Stock { aside: sku.granted + sku.left, ..stock }
            } else {
                stock
            };
            let outside = u64::from(stock.free) + u64::from(stock.aside);
            let outside = outside.checked_sub(u64::from(sku.granted)).expect("own units are aside");
            if outside < u64::from(want.quantity) {
                let held_here = sku.tally.held > 0;
                let later = held_here || sku.stock().held().recently(now, HELD_WINDOW_MS);
                return Some(if later { Retry::Later } else { Retry::Never });
            }
        }
        None
    }

    /// Makes sure that the allotments hold what is wanted, taking more from the pool if need be.
    /// What was taken stays in the allotments until the turn ends.
    pub(crate) fn top_up(&mut self, sale: usize, wants: &[Want]) -> bool {
        for want in wants {
            let sku = &mut self.sales[sale].skus[want.sku];
            if sku.left >= want.quantity {
                continue;
            }
            touch(&mut self.touched, sku, sale, want.sku);
            let more = sku.stock().set_aside(want.quantity - sku.left);
            // At most the quantity wanted.
            sku.left += more;
            if sku.left < want.quantity {
                return false;
            }
        }
        true
    }

    /// Units of the allotments go into an order; [`Self::top_up`] made sure of them.
    pub(crate) fn grant(&mut self, sale: usize, wants: &[Want]) {
        for want in wants {
            let sku = &mut self.sales[sale].skus[want.sku];
            #[cfg(feature = "mutations")]
            let want = &Want {
                quantity: want.quantity
                    - u32::from(stockade_protocol::mutation::is(
                        stockade_protocol::mutation::Mutation::OversellByOne,
                    )),
                ..*want
            };
            sku.left = sku.left.checked_sub(want.quantity).expect("the allotment was topped up");
            sku.granted += want.quantity;
        }
    }

    /// Ends the turn: granted units leave `aside`, the rest goes back to `free`.
    pub(crate) fn settle(&mut self) {
        for (sale, index) in self.touched.drain(..) {
            let sku = &mut self.sales[sale].skus[index];
            let (granted, unused) =
                (core::mem::take(&mut sku.granted), core::mem::take(&mut sku.left));
            sku.touched = false;
            if granted > 0 || unused > 0 {
                sku.stock().settle(granted, unused);
            }
        }
    }

    /// Tells the shared meters what changed.
    pub(crate) fn tell_held(&mut self, now: TimestampMs) {
        while let Some((sale, sku)) = self.untold.pop() {
            let Some(sale) = self.find(sale) else { continue };
            let sku = self.sales[sale].sku_mut(sku);
            let change = core::mem::take(&mut sku.held_untold);
            if let (Some(stock), true) = (&sku.stock, change != 0) {
                stock.held().change(change, now);
            }
        }
    }
}

/// When a retry after `sold_out` makes sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Retry {
    /// Units are held, or were a moment ago.
    Later,
    /// None are.
    Never,
}

fn touch(touched: &mut Vec<(usize, usize)>, sku: &mut SkuBook, sale: usize, index: usize) {
    if !sku.touched {
        sku.touched = true;
        touched.push((sale, index));
    }
}

/// Units that move.
impl Books {
    /// Units that entries up to here gave back join the pool.
    pub(crate) fn committed(&mut self, position: Position) {
        while self.give_backs.front().is_some_and(|back| back.position <= position) {
            let Some(back) = self.give_backs.pop_front() else { break };
            let Some(sale) = self.find(back.sale) else { continue };
            let sku = self.sales[sale].sku_mut(back.sku);
            #[cfg(feature = "mutations")]
            if back.to == Place::Free
                && stockade_protocol::mutation::is(
                    stockade_protocol::mutation::Mutation::DoubleRestock,
                )
            {
                sku.stock().give_back(back.units);
            }
            #[cfg(feature = "mutations")]
            let back = if stockade_protocol::mutation::is(
                stockade_protocol::mutation::Mutation::LostRestock,
            ) {
                GiveBack { to: Place::Removed, ..back }
            } else {
                back
            };
            if back.to == Place::Free {
                sku.stock().give_back(back.units);
            }
            self.count(back.sale, back.sku, back.units, back.from, back.to);
        }
    }

    fn count(&mut self, sale: SaleId, sku: SkuId, units: u32, from: Place, to: Place) {
        let live = matches!(self.mode, Mode::Live(_));
        let book = self.sale_mut(sale).sku_mut(sku);
        let units = u64::from(units);
        let held_before = book.tally.held;
        if let Some(from) = part_of(&mut book.tally, from) {
            *from = from.checked_sub(units).expect("units leave where they are counted");
        }
        if let Some(to) = part_of(&mut book.tally, to) {
            // Sums of u32 quantities: 2^32 full orders do not reach 2^64.
            *to += units;
        }
        let change = book.tally.held.wrapping_sub(held_before) as i64;
        if live && change != 0 {
            if book.held_untold == 0 {
                self.untold.push((sale, sku));
            }
            self.sale_mut(sale).sku_mut(sku).held_untold += change;
        }
    }
}

fn part_of(tally: &mut Tally, place: Place) -> Option<&mut u64> {
    match place {
        Place::Free => None,
        Place::Held => Some(&mut tally.held),
        Place::Confirmed => Some(&mut tally.confirmed),
        Place::Removed => Some(&mut tally.removed),
    }
}

impl Ledger for Books {
    fn units_moved(&mut self, sale: SaleId, sku: SkuId, units: u32, from: Place, to: Place) {
        #[cfg(feature = "mutations")]
        if matches!(self.mode, Mode::Live(_))
            && to == Place::Free
            && stockade_protocol::mutation::is(
                stockade_protocol::mutation::Mutation::ReleaseBeforeDurable,
            )
        {
            self.sale_mut(sale).sku_mut(sku).stock().give_back(units);
            return self.count(sale, sku, units, from, to);
        }
        match (self.mode, to) {
            (Mode::Live(position), Place::Free | Place::Removed) => {
                let back = GiveBack { position, sale, sku, units, from, to };
                self.give_backs.push_back(back);
            }
            _ => self.count(sale, sku, units, from, to),
        }
    }

    fn hold_began(&mut self, sale: SaleId, order: OrderId, until: TimestampMs) {
        self.sale_mut(sale).held_orders += 1;
        self.timers.push(until, order);
    }

    fn hold_moved(&mut self, order: OrderId, from: TimestampMs, until: TimestampMs) {
        self.timers.went_stale(from);
        self.timers.push(until, order);
    }

    fn hold_ended(&mut self, sale: SaleId, until: TimestampMs) {
        self.timers.went_stale(until);
        let book = self.sale_mut(sale);
        book.held_orders = book.held_orders.checked_sub(1).expect("a held order was counted");
    }
}
