//! The catalog: which sales exist, their definitions, switches and totals.
//!
//! The machine runs on one shard. It decides one command at a time: the driver makes the entry
//! durable, then calls [`CatalogMachine::committed`], ships the change to every shard, and answers
//! when all have applied it. A change is in force nowhere before its entry is durable.

mod machine;
mod merge;
mod state;

pub use machine::CatalogMachine;
pub(crate) use state::CatalogState;

use crate::admission::Bucket;
use crate::pool::StockWord;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::{Entry, Reply, SaleDefinition, SaleId, SaleState, SkuDefinition, SkuId};

/// A SKU as the shards see it.
#[derive(Clone, Debug)]
pub struct SkuRuntime {
    /// The definition as it stands.
    pub definition: SkuDefinition,
    /// Stock first put plus everything adjusted; units that left the sale by a return without
    /// restock are not subtracted here but counted by the shards.
    pub total: u64,
    /// The free units, shared by all shards.
    pub stock: Arc<StockWord>,
}

/// A sale as the shards see it; immutable, replaced as a whole by each change.
#[derive(Clone, Debug)]
pub struct SaleRuntime {
    /// The definition as it stands (SKUs in ascending order, as in `skus`).
    pub definition: SaleDefinition,
    /// Reserves are stopped.
    pub paused: bool,
    /// When it was closed by hand.
    pub closed_at: Option<TimestampMs>,
    /// The SKUs in ascending order of id.
    pub skus: Vec<Arc<SkuRuntime>>,
    /// The sale's admission, shared by all shards.
    pub admission: Arc<Bucket>,
}

impl SaleRuntime {
    /// The sale's state at `now`.
    pub fn state(&self, now: TimestampMs) -> SaleState {
        self.window().state(now)
    }

    /// The SKU of this id.
    pub fn sku(&self, sku: SkuId) -> Option<&Arc<SkuRuntime>> {
        let found = self.skus.binary_search_by_key(&sku, |runtime| runtime.definition.sku);
        found.ok().map(|index| &self.skus[index])
    }

    pub(crate) const fn window(&self) -> Window {
        Window {
            opens_at: self.definition.opens_at,
            closes_at: self.definition.closes_at,
            closed_by_hand: self.closed_at.is_some(),
            paused: self.paused,
        }
    }
}

/// What a sale's state depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) opens_at: TimestampMs,
    pub(crate) closes_at: Option<TimestampMs>,
    pub(crate) closed_by_hand: bool,
    pub(crate) paused: bool,
}

impl Window {
    /// The state at `now`: closed by hand is ended, even before it opened; a pause shows once it is
    /// open.
    pub(crate) fn state(&self, now: TimestampMs) -> SaleState {
        if self.closed_by_hand || self.closes_at.is_some_and(|at| at <= now) {
            SaleState::Ended
        } else if now < self.opens_at {
            SaleState::Armed
        } else if self.paused && !mutated_pause() {
            SaleState::Paused
        } else {
            SaleState::Live
        }
    }
}

#[cfg(not(feature = "mutations"))]
const fn mutated_pause() -> bool {
    false
}

#[cfg(feature = "mutations")]
fn mutated_pause() -> bool {
    stockade_protocol::mutation::is(stockade_protocol::mutation::Mutation::PauseIgnored)
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
    /// Append the entry; when it is durable call [`CatalogMachine::committed`], ship the change,
    /// and then give the reply. For `Adjust` the driver gathers the SKU's figures after all shards
    /// have applied the change and puts `total` and `free` into the reply.
    Append {
        /// The entry, with partition, LSN and time.
        entry: Box<Entry>,
        /// What to answer at the end.
        reply: Reply,
    },
}
