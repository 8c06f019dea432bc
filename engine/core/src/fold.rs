//! Applies entries to images, without a shard: how the log makes snapshots.

use stockade_protocol::image::{CatalogImage, PartitionImage};
use stockade_protocol::{Entry, Lsn, PartitionId};

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

/// The partition after these entries. `archived` are sales whose orders are left out.
///
/// # Errors
/// An entry does not follow.
pub fn fold_partition(
    partition: PartitionId,
    image: PartitionImage,
    entries: &[Entry],
    archived: &[stockade_protocol::SaleId],
) -> Result<PartitionImage, FoldError> {
    let _ = (partition, image, entries, archived);
    todo!()
}

/// The catalog after these entries.
///
/// # Errors
/// An entry does not follow.
pub fn fold_catalog(image: CatalogImage, entries: &[Entry]) -> Result<CatalogImage, FoldError> {
    let _ = (image, entries);
    todo!()
}
