//! Sales as the auditor knows them: what a put makes of a definition, when a sale is open, which
//! entries may follow. Plain merges and comparisons, nothing shared with the core.

use crate::rng::Map;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use stockade_protocol::sale::{OpensAt, SkuPatch};
use stockade_protocol::{
    Entry, Event, RequestId, SaleDefinition, SaleId, SalePatch, SaleState, SkuDefinition, SkuId,
};

/// A sale as one shard sees it.
#[derive(Clone, PartialEq, Debug)]
pub struct View {
    /// The definition in force.
    pub definition: SaleDefinition,
    /// Reserves are stopped.
    pub paused: bool,
    /// Closed by hand.
    pub closed: bool,
}

impl View {
    /// The state at a moment.
    pub fn state(&self, now: u64) -> SaleState {
        let over = self.definition.closes_at.is_some_and(|at| now >= at.get());
        if self.closed || over {
            SaleState::Ended
        } else if now < self.definition.opens_at.get() {
            SaleState::Armed
        } else if self.paused {
            SaleState::Paused
        } else {
            SaleState::Live
        }
    }

    /// A SKU's definition.
    pub fn sku(&self, sku: SkuId) -> Option<&SkuDefinition> {
        self.definition.skus.iter().find(|known| known.sku == sku)
    }
}

/// A sale.
#[derive(Clone, Debug)]
pub struct Sale {
    /// What shards see once they have applied the last change.
    pub view: Rc<View>,
    closed_at: Option<u64>,
    /// The entry that made it.
    pub first_lsn: u64,
    /// Adjusts by request id: SKU, asked, done.
    pub adjusts: Map<RequestId, (SkuId, i64, i64)>,
    /// Stock put first plus what was adjusted.
    pub totals: BTreeMap<SkuId, u64>,
}

/// All sales.
#[derive(Clone, Default, Debug)]
pub struct Catalog {
    /// The last entry in force.
    pub lsn: u64,
    /// Sales that are not archived.
    pub sales: BTreeMap<SaleId, Sale>,
    /// Those that are.
    pub archived: BTreeSet<SaleId>,
}

impl Catalog {
    /// The definition after a put; `None` if the put must be refused.
    pub fn merged(&self, patch: &SalePatch, now: u64) -> Option<SaleDefinition> {
        if self.archived.contains(&patch.sale) {
            return None;
        }
        let old = self.sales.get(&patch.sale);
        let mut next = old.map_or_else(|| fresh(patch, now), |s| s.view.definition.clone());
        if let Some(OpensAt::At(at)) = patch.opens_at {
            next.opens_at = at;
        }
        macro_rules! keep {
            ($($field:ident),*) => {
                $(if let Some(value) = &patch.$field { next.$field = value.clone(); })*
            };
        }
        keep!(name, closes_at, hold_ms, extend_max_ms, grace_ms, limit_per_user, rate_per_s);
        keep!(burst, user_rate_per_s, revive);
        for sku in &patch.skus {
            merge_sku(&mut next, sku)?;
        }
        next.skus.sort_by_key(|sku| sku.sku);
        if next.closes_at.is_some_and(|at| at <= next.opens_at) {
            return None;
        }
        if let Some(old) = old {
            let reopened = View { definition: next.clone(), ..(*old.view).clone() };
            let was_over = old.view.state(now) == SaleState::Ended;
            if was_over && reopened.state(now) != SaleState::Ended {
                return None;
            }
        }
        Some(next)
    }

    /// May the sale be archived at this moment, as far as the catalog says?
    pub fn is_past_grace(&self, sale: SaleId, now: u64) -> bool {
        let Some(sale) = self.sales.get(&sale) else { return false };
        let closes_at = sale.view.definition.closes_at.map(|at| at.get());
        let end = sale.closed_at.into_iter().chain(closes_at).min();
        end.is_some_and(|end| end + sale.view.definition.grace_ms <= now)
    }

    /// Takes an entry into force.
    pub fn apply(&mut self, entry: &Entry) {
        self.lsn = entry.lsn.get();
        match &entry.event {
            Event::SalePut(definition) => self.put(definition),
            Event::SalePaused(sale) => self.change(*sale, |view| view.paused = true),
            Event::SaleResumed(sale) => self.change(*sale, |view| view.paused = false),
            Event::SaleClosed(sale) => {
                self.change(*sale, |view| view.closed = true);
                if let Some(sale) = self.sales.get_mut(sale) {
                    sale.closed_at = Some(entry.at.get());
                }
            }
            Event::SaleArchived(sale) => {
                self.sales.remove(sale);
                self.archived.insert(*sale);
            }
            Event::Adjusted { sale, sku, request, delta, applied, total } => {
                if let Some(sale) = self.sales.get_mut(sale) {
                    sale.adjusts.insert(request.clone(), (*sku, *delta, *applied));
                    sale.totals.insert(*sku, *total);
                }
            }
            _ => {}
        }
    }

    fn put(&mut self, definition: &SaleDefinition) {
        let view =
            |paused, closed| Rc::new(View { definition: definition.clone(), paused, closed });
        let sale = self.sales.entry(definition.sale).or_insert_with(|| Sale {
            view: view(false, false),
            closed_at: None,
            first_lsn: self.lsn,
            adjusts: Map::default(),
            totals: BTreeMap::new(),
        });
        sale.view = view(sale.view.paused, sale.view.closed);
        for sku in &definition.skus {
            sale.totals.entry(sku.sku).or_insert(u64::from(sku.stock));
        }
    }

    fn change(&mut self, sale: SaleId, step: impl FnOnce(&mut View)) {
        if let Some(sale) = self.sales.get_mut(&sale) {
            let mut view = (*sale.view).clone();
            step(&mut view);
            sale.view = Rc::new(view);
        }
    }
}

fn merge_sku(next: &mut SaleDefinition, patch: &SkuPatch) -> Option<()> {
    match next.skus.iter_mut().find(|known| known.sku == patch.sku) {
        Some(known) => {
            if patch.stock.is_some_and(|stock| stock != known.stock) {
                return None;
            }
            known.limit_per_user = patch.limit_per_user.unwrap_or(known.limit_per_user);
            known.max_per_order = patch.max_per_order.unwrap_or(known.max_per_order);
        }
        None => next.skus.push(SkuDefinition {
            sku: patch.sku,
            stock: patch.stock?,
            limit_per_user: patch.limit_per_user.unwrap_or(0),
            max_per_order: patch.max_per_order.unwrap_or(0),
            labels: Vec::new(),
        }),
    }
    Some(())
}

fn fresh(patch: &SalePatch, now: u64) -> SaleDefinition {
    SaleDefinition {
        sale: patch.sale,
        name: String::new(),
        opens_at: stockade_protocol::ids::TimestampMs::new(now),
        closes_at: None,
        hold_ms: 30 * 60 * 1000,
        extend_max_ms: 0,
        grace_ms: 24 * 3600 * 1000,
        limit_per_user: 0,
        rate_per_s: 0,
        burst: 0,
        user_rate_per_s: 0,
        revive: false,
        skus: Vec::new(),
    }
}
