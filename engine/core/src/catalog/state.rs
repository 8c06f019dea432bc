//! The catalog's partition as a fold of its entries; shared by the machine, recovery and snapshots.

use crate::hash::FixedMap;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::image::{AdjustImage, CatalogImage, SaleImage};
use stockade_protocol::request_id::RequestKey;
use stockade_protocol::{Entry, Event, Lsn, PartitionId, SaleDefinition, SaleId, SkuId};

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct CatalogState {
    pub(crate) lsn: Lsn,
    pub(crate) at: TimestampMs,
    pub(crate) sales: BTreeMap<SaleId, SaleImage>,
    pub(crate) archived: BTreeSet<SaleId>,
    /// Each SKU's stock first put plus what adjusts applied; follows from `sales`.
    totals: FixedMap<(SaleId, SkuId), u64>,
    /// The place of each adjust in its sale's list; follows from `sales`.
    adjusts: FixedMap<(SaleId, RequestKey), usize>,
}

impl CatalogState {
    pub(crate) fn from_image(image: CatalogImage) -> Self {
        let CatalogImage { lsn, at, sales, archived } = image;
        let archived = archived.into_iter().collect();
        let mut state = Self { lsn, at, archived, ..Self::default() };
        for sale in sales {
            let id = sale.definition.sale;
            state.count_skus(&sale.definition);
            for (place, adjust) in sale.adjusts.iter().enumerate() {
                state.adjusts.insert((id, adjust.request.key()), place);
                if let Some(total) = state.totals.get_mut(&(id, adjust.sku)) {
                    *total = total.saturating_add_signed(adjust.applied);
                }
            }
            state.sales.insert(id, sale);
        }
        state
    }

    /// The SKU's total: stock first put plus what adjusts applied.
    pub(super) fn total(&self, sale: SaleId, sku: SkuId) -> Option<u64> {
        self.totals.get(&(sale, sku)).copied()
    }

    /// The adjust of a request id.
    pub(super) fn adjust(&self, sale: SaleId, key: RequestKey) -> Option<&AdjustImage> {
        let place = *self.adjusts.get(&(sale, key))?;
        self.sales.get(&sale)?.adjusts.get(place)
    }

    pub(crate) fn to_image(&self) -> CatalogImage {
        CatalogImage {
            lsn: self.lsn,
            at: self.at,
            sales: self.sales.values().cloned().collect(),
            archived: self.archived.iter().copied().collect(),
        }
    }

    /// Applies the next entry; one that does not follow changes nothing.
    pub(crate) fn apply(&mut self, entry: &Entry) -> Result<(), &'static str> {
        if entry.partition != PartitionId::CATALOG {
            return Err("the entry is of another partition");
        }
        if entry.lsn != self.lsn.next() {
            return Err("the LSN is not the next one");
        }
        self.apply_event(entry)?;
        self.lsn = entry.lsn;
        self.at = self.at.max(entry.at);
        Ok(())
    }

    fn apply_event(&mut self, entry: &Entry) -> Result<(), &'static str> {
        match &entry.event {
            Event::SalePut(definition) => self.put(definition),
            Event::SalePaused(sale) => self.sale(*sale).map(|sale| sale.paused = true),
            Event::SaleResumed(sale) => self.sale(*sale).map(|sale| sale.paused = false),
            Event::SaleClosed(sale) => self.sale(*sale).map(|sale| sale.closed_at = Some(entry.at)),
            Event::SaleArchived(sale) => {
                self.sale(*sale)?;
                self.sales.remove(sale);
                self.archived.insert(*sale);
                self.totals.retain(|(of, _), _| of != sale);
                self.adjusts.retain(|(of, _), _| of != sale);
                Ok(())
            }
            Event::Adjusted { sale, sku, request, delta, applied, total } => {
                let (id, key) = (*sale, request.key());
                let before = self.total(id, *sku).ok_or("an unknown SKU is adjusted")?;
                if before.checked_add_signed(*applied) != Some(*total) {
                    return Err("the total after an adjust is something else");
                }
                if self.adjusts.contains_key(&(id, key)) {
                    return Err("an adjust's request id comes twice");
                }
                let sale = self.sale(id)?;
                let request = request.clone();
                let adjust = AdjustImage { request, sku: *sku, delta: *delta, applied: *applied };
                sale.adjusts.push(adjust);
                let place = sale.adjusts.len() - 1;
                self.adjusts.insert((id, key), place);
                self.totals.insert((id, *sku), *total);
                Ok(())
            }
            _ => Err("an order's entry in the catalog's partition"),
        }
    }

    fn put(&mut self, definition: &SaleDefinition) -> Result<(), &'static str> {
        if self.archived.contains(&definition.sale) {
            return Err("an archived sale is put");
        }
        if !definition.skus.is_sorted_by(|a, b| a.sku < b.sku) {
            return Err("the SKUs of a sale are not in ascending order");
        }
        if let Some(known) = self.sales.get(&definition.sale) {
            let stock = |sku| {
                let skus = &definition.skus;
                skus.binary_search_by_key(&sku, |s| s.sku).ok().map(|at| skus[at].stock)
            };
            if known.definition.skus.iter().any(|sku| stock(sku.sku) != Some(sku.stock)) {
                return Err("a put takes away a SKU or changes the stock first put");
            }
        }
        self.count_skus(definition);
        let definition = definition.clone();
        match self.sales.get_mut(&definition.sale) {
            Some(sale) => sale.definition = definition,
            None => {
                let (paused, closed_at, adjusts) = (false, None, Vec::new());
                let image = SaleImage { definition, paused, closed_at, adjusts };
                self.sales.insert(image.definition.sale, image);
            }
        }
        Ok(())
    }

    fn sale(&mut self, sale: SaleId) -> Result<&mut SaleImage, &'static str> {
        self.sales.get_mut(&sale).ok_or("an unknown sale changes")
    }

    /// SKUs that are new have the stock that was put.
    fn count_skus(&mut self, definition: &SaleDefinition) {
        for sku in &definition.skus {
            self.totals.entry((definition.sale, sku.sku)).or_insert(u64::from(sku.stock));
        }
    }
}
