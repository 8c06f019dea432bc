//! The core's rules as the log needs them for snapshots.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use stockade_core::fold::{fold_catalog, fold_partition};
use stockade_protocol::image::{CatalogImage, PartitionImage};
use stockade_protocol::{Entry, PartitionId, SaleId};

/// The sales that are archived, durably; their orders are left out of snapshots.
#[derive(Debug, Default)]
pub struct ArchivedSales(Mutex<BTreeSet<SaleId>>);

impl ArchivedSales {
    /// The sale's archive entry is durable.
    pub fn add(&self, sale: SaleId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(sale);
    }

    fn list(&self) -> Vec<SaleId> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }
}

/// See the module.
#[derive(Debug)]
pub struct CoreFold(pub Arc<ArchivedSales>);

impl stockade_log::Fold for CoreFold {
    fn partition(
        &self,
        partition: PartitionId,
        image: PartitionImage,
        entries: &[Entry],
    ) -> Result<PartitionImage, String> {
        fold_partition(partition, image, entries, &self.0.list()).map_err(|e| e.to_string())
    }

    fn catalog(&self, image: CatalogImage, entries: &[Entry]) -> Result<CatalogImage, String> {
        fold_catalog(image, entries).map_err(|e| e.to_string())
    }
}
