//! Applies entries to images, without a shard: how the log makes snapshots.
//!
//! It is the same code that a shard applies its entries with, so a snapshot and a shard cannot
//! differ.

use crate::catalog::CatalogState;
use crate::ledger::NoLedger;
use crate::partition::{Archived, Partition};
use stockade_protocol::image::{CatalogImage, PartitionImage};
use stockade_protocol::{Entry, Lsn, PartitionId, SaleId};

/// An entry that does not follow from the state before it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoldError {
    /// The partition.
    pub partition: PartitionId,
    /// The entry's place.
    pub lsn: Lsn,
    /// One plain sentence.
    pub why: &'static str,
}

impl core::fmt::Display for FoldError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "partition {} LSN {}: {}", self.partition, self.lsn, self.why)
    }
}

impl core::error::Error for FoldError {}

/// The partition after these entries. `archived` are sales whose orders are left out.
///
/// # Errors
/// An entry does not follow.
pub fn fold_partition(
    partition: PartitionId,
    image: PartitionImage,
    entries: &[Entry],
    archived: &[SaleId],
) -> Result<PartitionImage, FoldError> {
    let error = |lsn, why| FoldError { partition, lsn, why };
    let archived: Archived = archived.iter().copied().collect();
    let lsn = image.lsn;
    let mut state =
        Partition::from_image(partition, image, &mut NoLedger).map_err(|why| error(lsn, why))?;
    for sale in archived.iter() {
        state.drop_sale(sale);
    }
    for entry in entries {
        state
            .apply(entry.clone(), &archived, &mut NoLedger)
            .map_err(|why| error(entry.lsn, why))?;
    }
    Ok(state.to_image())
}

/// The catalog after these entries.
///
/// # Errors
/// An entry does not follow.
pub fn fold_catalog(image: CatalogImage, entries: &[Entry]) -> Result<CatalogImage, FoldError> {
    let mut state = CatalogState::from_image(image);
    for entry in entries {
        let (partition, lsn) = (entry.partition, entry.lsn);
        state.apply(entry).map_err(|why| FoldError { partition, lsn, why })?;
    }
    Ok(state.to_image())
}
