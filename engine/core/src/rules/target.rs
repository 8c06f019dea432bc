//! The order that a verb is about, and the answers all verbs share.

use crate::effects::{Effects, Position};
use crate::shard::{ShardMachine, Verdict};
use stockade_protocol::reply::OrderReply;
use stockade_protocol::{OrderId, OrderState, Outcome, Reply};

/// An order in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) id: OrderId,
    /// The partition's place in the shard.
    pub(super) index: usize,
    pub(super) number: u64,
}

/// Where an order id leads.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found {
    Order(Target),
    /// It was there, but its sale is archived.
    Archived(Target),
    /// It was never given. What that rests on.
    Unknown(Position),
}

/// Finds the order; a hold that has run out ends first.
pub(super) fn find(shard: &mut ShardMachine, id: OrderId, effects: &mut Effects) -> Found {
    let found = peek(shard, id);
    if let Found::Order(target) = found {
        shard.expire_if_due(target.index, target.number, effects);
    }
    found
}

/// Finds the order without touching it.
pub(super) fn peek(shard: &ShardMachine, id: OrderId) -> Found {
    let Some(index) = shard.index_of_order(id) else { return Found::Unknown(Position::NONE) };
    let (partition, number) = (&shard.partitions[index], id.number());
    let target = Target { id, index, number };
    if number == 0 || number > partition.number_last {
        Found::Unknown(partition.position)
    } else if partition.orders.get(number).is_some() {
        Found::Order(target)
    } else {
        Found::Archived(target)
    }
}

impl Target {
    /// An answer about the order as it stands now.
    pub(super) fn answer(self, shard: &ShardMachine, outcome: Outcome) -> Verdict {
        let state = shard.partitions[self.index].order(self.number).state;
        self.answer_as(shard, outcome, state)
    }

    /// An answer about an order that is not in memory.
    pub(super) fn answer_as(
        self,
        shard: &ShardMachine,
        outcome: Outcome,
        state: OrderState,
    ) -> Verdict {
        let reply = OrderReply { outcome, order: Some(self.id), state };
        Verdict::Answer(Reply::Order(reply), shard.partitions[self.index].position)
    }
}

/// No such order.
pub(super) fn unknown(id: OrderId, rests_on: Position) -> Verdict {
    let outcome = Outcome::UnknownOrder;
    let reply = OrderReply { outcome, order: Some(id), state: OrderState::Unknown };
    Verdict::Answer(Reply::Order(reply), rests_on)
}
