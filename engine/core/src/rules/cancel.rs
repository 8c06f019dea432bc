//! `cancel` gives a held order's units and right back; `withdraw` makes sure that a request id
//! holds nothing and never will.

use super::target::{Found, Target, find, unknown};
use crate::effects::{Effects, Position};
use crate::shard::{ShardMachine, Verdict};
use stockade_protocol::reply::OrderReply;
use stockade_protocol::request_id::RequestId;
use stockade_protocol::text::Reason;
use stockade_protocol::{Event, OrderId, OrderState, Outcome, Reply, SaleId, UserId};

/// Decides a `cancel`.
pub(crate) fn cancel(
    shard: &mut ShardMachine,
    id: OrderId,
    reason: &Reason,
    effects: &mut Effects,
) -> Verdict {
    match find(shard, id, effects) {
        Found::Order(target) => end(shard, target, reason, effects),
        Found::Archived(target) => target.answer_as(shard, Outcome::TooLate, OrderState::Archived),
        Found::Unknown(rests_on) => unknown(id, rests_on),
    }
}

fn end(
    shard: &mut ShardMachine,
    target: Target,
    reason: &Reason,
    effects: &mut Effects,
) -> Verdict {
    match shard.partitions[target.index].order(target.number).state {
        OrderState::Held => {
            let key = shard.key(target.index, target.number);
            let reason = reason.clone();
            shard.emit(target.index, Event::Cancelled { key, reason }, effects);
            target.answer(shard, Outcome::Cancelled)
        }
        OrderState::Cancelled => target.answer(shard, Outcome::AlreadyCancelled),
        _ => target.answer(shard, Outcome::TooLate),
    }
}

/// Decides a `withdraw`.
pub(crate) fn withdraw(
    shard: &mut ShardMachine,
    sale: SaleId,
    user: UserId,
    request: &RequestId,
    effects: &mut Effects,
) -> Verdict {
    let index = shard.index_of_user(user);
    let partition = &shard.partitions[index];
    if let Some(number) = partition.find(sale, user, request.key()) {
        let target = Target { id: partition.order_id(number), index, number };
        shard.expire_if_due(index, number, effects);
        return end(shard, target, &Reason::withdrawn(), effects);
    }
    let answer = |outcome, state, rests_on| {
        let reply = OrderReply { outcome, order: None, state };
        Verdict::Answer(Reply::Order(reply), rests_on)
    };
    if shard.archived.contains(&sale) {
        // The order, if there was one, is past every change.
        return answer(Outcome::TooLate, OrderState::Archived, partition.position);
    }
    let known = shard.books.find(sale).is_some_and(|sale| shard.books.sale(sale).rules.is_some());
    if !known {
        return answer(Outcome::UnknownSale, OrderState::Unknown, Position::NONE);
    }
    if !partition.is_withdrawn(sale, user, request.key()) {
        if partition.tombstones_full(sale, user) {
            return answer(Outcome::Refused, OrderState::Unknown, partition.position);
        }
        let request = request.clone();
        shard.emit(index, Event::Withdrawn { sale, user, request }, effects);
    }
    answer(Outcome::Withdrawn, OrderState::Withdrawn, shard.partitions[index].position)
}
