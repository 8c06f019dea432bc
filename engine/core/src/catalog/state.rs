//! The catalog's partition as a fold of its entries; shared by the machine, recovery and snapshots.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::image::{AdjustImage, CatalogImage, SaleImage};
use stockade_protocol::{Entry, Event, Lsn, PartitionId, SaleDefinition, SaleId, SkuId};

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct CatalogState {
    pub(crate) lsn: Lsn,
    pub(crate) at: TimestampMs,
    pub(crate) sales: BTreeMap<SaleId, SaleImage>,
    pub(crate) archived: BTreeSet<SaleId>,
}

impl CatalogState {
    pub(crate) fn from_image(image: CatalogImage) -> Self {
        let CatalogImage { lsn, at, sales, archived } = image;
        let sales = sales.into_iter().map(|sale| (sale.definition.sale, sale)).collect();
        Self { lsn, at, sales, archived: archived.into_iter().collect() }
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
                Ok(())
            }
            Event::Adjusted { sale, sku, request, delta, applied, total } => {
                let sale = self.sale(*sale)?;
                let stock = total_of(sale, *sku).ok_or("an unknown SKU is adjusted")?;
                if stock.checked_add_signed(*applied) != Some(*total) {
                    return Err("the total after an adjust is something else");
                }
                let request = request.clone();
                let adjust = AdjustImage { request, sku: *sku, delta: *delta, applied: *applied };
                sale.adjusts.push(adjust);
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
}

/// The SKU's total: stock first put plus what adjusts applied.
pub(super) fn total_of(sale: &SaleImage, sku: SkuId) -> Option<u64> {
    let found = sale.definition.skus.binary_search_by_key(&sku, |definition| definition.sku);
    let stock = u64::from(sale.definition.skus[found.ok()?].stock);
    let adjusts = sale.adjusts.iter().filter(|adjust| adjust.sku == sku);
    // The rules keep every total between 0 and 2^32 - 1.
    stock.checked_add_signed(adjusts.map(|adjust| adjust.applied).sum())
}
