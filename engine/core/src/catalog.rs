//! The catalog: which sales exist, their definitions, switches and totals.
//!
//! The machine runs on one shard. It decides one command at a time: the driver makes the entry durable,
//! then calls [`CatalogMachine::committed`], ships the change to every shard, and answers when all have
//! applied it. A change is in force nowhere before its entry is durable.

use crate::pool::StockWord;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::image::CatalogImage;
use stockade_protocol::{Command, Entry, Reply, SaleDefinition, SaleId, SaleState, SkuDefinition};

/// A SKU as the shards see it.
#[derive(Debug)]
pub struct SkuRuntime {
    /// The definition as it stands.
    pub definition: SkuDefinition,
    /// Stock first put plus everything adjusted; units that left the sale by a return without restock
    /// are not subtracted here but counted by the shards.
    pub total: u64,
    /// The free units, shared by all shards.
    pub stock: Arc<StockWord>,
}

/// A sale as the shards see it; immutable, replaced as a whole by each change.
#[derive(Debug)]
pub struct SaleRuntime {
    /// The definition as it stands (SKUs in ascending order, as in `skus`).
    pub definition: SaleDefinition,
    /// Reserves are stopped.
    pub paused: bool,
    /// When it was closed by hand.
    pub closed_at: Option<TimestampMs>,
    /// The SKUs in ascending order of id.
    pub skus: Vec<Arc<SkuRuntime>>,
}

impl SaleRuntime {
    /// The sale's state at `now`.
    pub fn state(&self, now: TimestampMs) -> SaleState {
        let _ = now;
        todo!()
    }
}

/// A durable change, to be applied by every shard in the order of its entries.
#[derive(Clone, Debug)]
pub enum CatalogChange {
    /// The sale is new or changed.
    Replace(Arc<SaleRuntime>),
    /// The sale's state is dropped.
    Archive(SaleId),
}

/// What the machine made of a command.
#[derive(Debug)]
pub enum CatalogDecision {
    /// Answer at once; nothing changes.
    Answer(Reply),
    /// Append the entry; when it is durable call [`CatalogMachine::committed`], ship the change, and
    /// then give the reply. For `Adjust` the driver gathers the SKU's figures after all shards have
    /// applied the change and puts `total` and `free` into the reply.
    Append {
        /// The entry, with partition, LSN and time.
        entry: Box<Entry>,
        /// What to answer at the end.
        reply: Reply,
    },
}

/// See the module.
#[derive(Debug, Default)]
pub struct CatalogMachine {}

impl CatalogMachine {
    /// The machine at an image.
    pub fn from_image(image: CatalogImage) -> Self {
        let _ = image;
        todo!()
    }

    /// Applies an entry of the log during recovery.
    pub fn replay(&mut self, entry: &Entry) {
        let _ = entry;
        todo!()
    }

    /// Decides one of `SaleList`, `SalePut`, `SalePause`, `SaleResume`, `SaleClose`, `Adjust`.
    /// No second command may be decided before the first one's `committed`.
    pub fn decide(&mut self, command: &Command, now: TimestampMs) -> CatalogDecision {
        let _ = (command, now);
        todo!()
    }

    /// A sale that is over, past its grace: the driver asks all shards how many orders of it are held,
    /// and if none are, calls [`Self::archive`].
    pub fn archive_candidate(&self, now: TimestampMs) -> Option<SaleId> {
        let _ = now;
        todo!()
    }

    /// Decides to archive the sale; as with `Append`, the entry must be made durable and then committed.
    pub fn archive(&mut self, sale: SaleId, now: TimestampMs) -> Entry {
        let _ = (sale, now);
        todo!()
    }

    /// The entry of the last decision is durable: it takes force here and in the stock words, and the
    /// shards get the change.
    pub fn committed(&mut self) -> CatalogChange {
        todo!()
    }

    /// All sales as changes, for shards that start.
    pub fn changes(&self) -> Vec<CatalogChange> {
        todo!()
    }
}
