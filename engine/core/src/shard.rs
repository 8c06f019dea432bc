//! A shard: the machine that decides everything about the users of its partitions.

use crate::catalog::CatalogChange;
use crate::effects::{Effects, Position, Request};
use crate::gather::{Part, Tally};
use alloc::vec::Vec;
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::image::PartitionImage;
use stockade_protocol::{Command, Entry, PartitionId, SaleId, SkuId};

/// See the module.
#[derive(Debug)]
pub struct ShardMachine {}

impl ShardMachine {
    /// A shard that owns these partitions of users, all empty.
    pub fn new(partition_count: u16, partitions: &[PartitionId]) -> Self {
        let _ = (partition_count, partitions);
        todo!()
    }

    /// Loads a partition from its image; before any `replay` of that partition.
    pub fn load(&mut self, partition: PartitionId, image: PartitionImage) {
        let _ = (partition, image);
        todo!()
    }

    /// Applies an entry of the log. Entries of a partition come in LSN order without a gap. Entries of
    /// archived sales are applied too; [`CatalogChange::Archive`] drops what they left.
    ///
    /// # Errors
    /// The entry does not follow from the state: the log is damaged or of another version.
    pub fn replay(&mut self, entry: &Entry) -> Result<(), crate::fold::FoldError> {
        let _ = entry;
        todo!()
    }

    /// A catalog change takes force here.
    pub fn apply(&mut self, change: &CatalogChange) {
        let _ = change;
        todo!()
    }

    /// Units in orders by sale and SKU, for the sum over all shards at start.
    pub fn tallies(&self) -> Vec<(SaleId, SkuId, Tally)> {
        todo!()
    }

    /// Recovery is over: holds that ran out while the engine was down get `grace_ms` from now by
    /// `extended` entries.
    pub fn start(&mut self, now: TimestampMs, grace_ms: u64, effects: &mut Effects) {
        let _ = (now, grace_ms, effects);
        todo!()
    }

    /// Decides one turn: all `requests` (user- and order-routed commands), in order, against one
    /// allotment per SKU. `requests` is drained.
    pub fn turn(&mut self, now: TimestampMs, requests: &mut Vec<Request>, effects: &mut Effects) {
        let _ = (now, requests, effects);
        todo!()
    }

    /// Expires up to `orders_max` holds whose deadline is before `now`; true if more are due.
    pub fn expire(&mut self, now: TimestampMs, orders_max: usize, effects: &mut Effects) -> bool {
        let _ = (now, orders_max, effects);
        todo!()
    }

    /// When the next hold runs out (may be early, never late).
    pub fn deadline_next(&self) -> Option<TimestampMs> {
        todo!()
    }

    /// Everything up to this position is durable: units that its entries gave back join the pool.
    pub fn committed(&mut self, position: Position) {
        let _ = position;
        todo!()
    }

    /// The position of the last entry emitted: what a gathered part rests on.
    pub fn position(&self) -> Position {
        todo!()
    }

    /// This shard's part of a command routed to all (`SkuGet`, `SaleGet`, `OrderList`). It rests on
    /// [`Self::position`].
    pub fn part(&self, command: &Command) -> Part {
        let _ = command;
        todo!()
    }

    /// Held orders of a sale (for archiving).
    pub fn held_orders(&self, sale: SaleId) -> u64 {
        let _ = sale;
        todo!()
    }
}
