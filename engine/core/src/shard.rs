//! A shard: the machine that decides everything about the users of its partitions.
//!
//! It owns its partitions, the counts of their units per SKU, the timers of their holds and the
//! units that wait to be given back. It shares with other shards only the stock words and the
//! admission of a sale. Deciding stands in `crate::rules`; here is what keeps the state together.

mod books;
mod parts;
mod timers;
mod turn;

pub(crate) use books::{Books, Retry, SaleRules, Want};
pub use parts::OrderScan;
pub(crate) use turn::Verdict;

use crate::admission::UserBuckets;
use crate::catalog::CatalogChange;
use crate::effects::{Effects, Position};
use crate::fold::FoldError;
use crate::gather::Tally;
use crate::partition::{Archived, Partition};
use alloc::vec::Vec;
use books::Mode;
use stockade_protocol::entry::OrderKey;
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::image::PartitionImage;
use stockade_protocol::routing::partition_of;
use stockade_protocol::{Entry, Event, OrderId, OrderState, PartitionId, SaleId, SkuId, UserId};

/// See the module.
#[derive(Debug)]
pub struct ShardMachine {
    partition_count: u16,
    /// In ascending order of id.
    pub(crate) partitions: Vec<Partition>,
    pub(crate) books: Books,
    pub(crate) user_buckets: UserBuckets,
    pub(crate) archived: Archived,
    position: Position,
    /// The latest time it was told.
    pub(crate) now: TimestampMs,
}

impl ShardMachine {
    /// A shard that owns these partitions of users, all empty.
    pub fn new(partition_count: u16, partitions: &[PartitionId]) -> Self {
        let mut ids = partitions.to_vec();
        ids.sort_unstable();
        ids.dedup();
        Self {
            partition_count,
            partitions: ids.into_iter().map(Partition::new).collect(),
            books: Books::default(),
            user_buckets: UserBuckets::default(),
            archived: Archived::unknown(),
            position: Position::NONE,
            now: TimestampMs::NONE,
        }
    }

    /// Loads a partition from its image; before any `replay` of that partition.
    ///
    /// # Panics
    /// The partition is not one of this shard, was used already, or the image is none of it. Use
    /// [`Self::try_load`] to be told.
    pub fn load(&mut self, partition: PartitionId, image: PartitionImage) {
        self.try_load(partition, image).expect("an image of one of the shard's empty partitions");
    }

    /// Loads a partition from its image; before any `replay` of that partition.
    ///
    /// # Errors
    /// See [`Self::load`].
    pub fn try_load(
        &mut self,
        partition: PartitionId,
        image: PartitionImage,
    ) -> Result<(), FoldError> {
        let lsn = image.lsn;
        let error = |why| FoldError { partition, lsn, why };
        let index = self.index_of(partition).ok_or(error("a partition of another shard"))?;
        if self.partitions[index].lsn != Default::default() {
            return Err(error("the partition is not empty"));
        }
        self.books.mode = Mode::Replay;
        self.partitions[index] =
            Partition::from_image(partition, image, &mut self.books).map_err(error)?;
        let archived: Vec<SaleId> = self.archived.iter().collect();
        for sale in archived {
            self.partitions[index].drop_sale(sale);
            self.books.drop_sale(sale);
        }
        Ok(())
    }

    /// Applies an entry of the log. Entries of a partition come in LSN order without a gap. Entries
    /// of archived sales are applied too; [`CatalogChange::Archive`] drops what they left. The
    /// catalog's changes may be applied before or after; before is stricter: only then is an order
    /// that is missing known not to be one of an archived sale.
    ///
    /// # Errors
    /// The entry does not follow from the state: the log is damaged or of another version.
    pub fn replay(&mut self, entry: &Entry) -> Result<(), FoldError> {
        let error = |why| FoldError { partition: entry.partition, lsn: entry.lsn, why };
        let index = self.index_of(entry.partition).ok_or(error("a partition of another shard"))?;
        self.books.mode = Mode::Replay;
        let partition = &mut self.partitions[index];
        partition.apply(entry.clone(), &self.archived, &mut self.books).map_err(error)
    }

    /// A catalog change takes force here.
    pub fn apply(&mut self, change: &CatalogChange) {
        self.archived.incomplete = false;
        match change {
            CatalogChange::Replace(sale) => self.books.put(sale),
            CatalogChange::Archive(sale) => {
                self.archived.insert(*sale);
                self.books.drop_sale(*sale);
                for partition in &mut self.partitions {
                    partition.drop_sale(*sale);
                }
            }
        }
    }

    /// Units in orders by sale and SKU, for the sum over all shards at start; ascending.
    pub fn tallies(&self) -> Vec<(SaleId, SkuId, Tally)> {
        self.books.tallies()
    }

    /// Recovery is over: holds that ran out while the engine was down get `grace_ms` from now by
    /// `extended` entries.
    pub fn start(&mut self, now: TimestampMs, grace_ms: u64, effects: &mut Effects) {
        self.advance(now);
        effects.position = self.position;
        #[cfg(feature = "mutations")]
        let grace_ms = if stockade_protocol::mutation::is(
            stockade_protocol::mutation::Mutation::GraceForgotten,
        ) {
            0
        } else {
            grace_ms
        };
        let until = now.after_ms(grace_ms);
        while grace_ms > 0
            && let Some((at, order)) = self.due()
        {
            if let Some(index) = self.held_at(order, at) {
                let key = self.key(index, order.number());
                self.emit(index, Event::Extended { key, expires_at: until }, effects);
            }
            self.books.timers.pop();
        }
    }

    /// Expires up to `orders_max` holds whose deadline is before `now`; true if more are due.
    pub fn expire(&mut self, now: TimestampMs, orders_max: usize, effects: &mut Effects) -> bool {
        self.advance(now);
        effects.position = self.position;
        let mut expired = 0;
        let mut more = false;
        while let Some((at, order)) = self.due() {
            let index = self.held_at(order, at);
            if index.is_some() && expired == orders_max {
                more = true;
                break;
            }
            if let Some(index) = index {
                let key = self.key(index, order.number());
                self.emit(index, Event::Expired { key }, effects);
                expired += 1;
            }
            self.books.timers.pop();
        }
        self.tidy();
        more
    }

    /// When the next hold runs out: the first moment at which [`Self::expire`] may find it due (may
    /// be early, never late).
    pub fn deadline_next(&self) -> Option<TimestampMs> {
        self.books.timers.next()
    }

    /// Everything up to this position is durable: units that its entries gave back join the pool.
    pub fn committed(&mut self, position: Position) {
        self.books.committed(position);
        self.books.tell_held(self.now);
    }

    /// The position of the last entry emitted: what a gathered part rests on.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Held orders of a sale (for archiving).
    pub fn held_orders(&self, sale: SaleId) -> u64 {
        self.books.find(sale).map_or(0, |sale| self.books.sale(sale).held_orders)
    }

    /// The state of one of the shard's partitions as plain data; `None` for another shard's
    /// partition.
    pub fn image(&self, partition: PartitionId) -> Option<PartitionImage> {
        self.index_of(partition).map(|index| self.partitions[index].to_image())
    }

    /// Timers in memory, those of orders that are not held any more included.
    pub fn timers_len(&self) -> usize {
        self.books.timers.len()
    }

    pub(crate) fn advance(&mut self, now: TimestampMs) {
        self.now = self.now.max(now);
    }

    /// Cleans up behind a turn.
    pub(crate) fn tidy(&mut self) {
        self.books.tell_held(self.now);
        let partitions = &self.partitions;
        self.books.timers.sweep(|order| held_until(partitions, order));
    }

    /// The first timer that may be due.
    fn due(&mut self) -> Option<(TimestampMs, OrderId)> {
        let partitions = &self.partitions;
        self.books.timers.due(self.now, |order| held_until(partitions, order))
    }

    fn index_of(&self, partition: PartitionId) -> Option<usize> {
        position_of(&self.partitions, partition)
    }

    /// The place of a user's partition here.
    ///
    /// # Panics
    /// The user belongs to another shard: the driver routed wrongly.
    pub(crate) fn index_of_user(&self, user: UserId) -> usize {
        let partition = partition_of(user, self.partition_count);
        self.index_of(partition).expect("commands come to the shard that owns the user")
    }

    /// The place of an order's partition here; `None` if there is no such partition of users.
    pub(crate) fn index_of_order(&self, order: OrderId) -> Option<usize> {
        self.index_of(order.partition())
    }

    fn held_at(&self, order: OrderId, at: TimestampMs) -> Option<usize> {
        let held = held_until(&self.partitions, order) == Some(at);
        if held { self.index_of_order(order) } else { None }
    }

    /// Which, whose, of which sale: for entries.
    pub(crate) fn key(&self, index: usize, number: u64) -> OrderKey {
        let partition = &self.partitions[index];
        let order = partition.order(number);
        OrderKey {
            order: partition.order_id(number),
            sale: Some(order.sale),
            user: Some(order.user),
        }
    }

    /// Decides an event: it goes into the log and takes effect.
    pub(crate) fn emit(&mut self, index: usize, event: Event, effects: &mut Effects) {
        let partition = &mut self.partitions[index];
        let (id, lsn, at) = (partition.id, partition.lsn.next(), self.now);
        let entry = Entry { partition: id, lsn, at, event };
        entry.encode(&mut effects.log);
        self.position.0 += 1;
        partition.position = self.position;
        effects.position = self.position;
        self.books.mode = Mode::Live(self.position);
        partition
            .apply(entry, &self.archived, &mut self.books)
            .expect("decided events follow from the state they were decided on");
    }

    /// Lets a hold end now if its deadline has passed and the timer has not come to it yet.
    pub(crate) fn expire_if_due(&mut self, index: usize, number: u64, effects: &mut Effects) {
        if self.partitions[index].order(number).is_due(self.now) {
            let key = self.key(index, number);
            self.emit(index, Event::Expired { key }, effects);
        }
    }
}

fn position_of(partitions: &[Partition], id: PartitionId) -> Option<usize> {
    partitions.binary_search_by_key(&id, |partition| partition.id).ok()
}

/// Until when an order is held, if it is.
fn held_until(partitions: &[Partition], order: OrderId) -> Option<TimestampMs> {
    let index = position_of(partitions, order.partition())?;
    let order = partitions[index].orders.get(order.number())?;
    (order.state == OrderState::Held).then_some(order.expires_at)
}
