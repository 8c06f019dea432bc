//! `extend` moves a held order's deadline, within what its sale allows.

use super::target::{Found, find, unknown};
use crate::effects::Effects;
use crate::shard::{ShardMachine, Verdict};
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::{Event, OrderId, OrderState, Outcome};

/// Decides an `extend`.
pub(crate) fn extend(
    shard: &mut ShardMachine,
    id: OrderId,
    until: TimestampMs,
    effects: &mut Effects,
) -> Verdict {
    let target = match find(shard, id, effects) {
        Found::Order(target) => target,
        Found::Archived(target) => {
            return target.answer_as(shard, Outcome::TooLate, OrderState::Archived);
        }
        Found::Unknown(rests_on) => return unknown(id, rests_on),
    };
    let partition = &shard.partitions[target.index];
    let order = *partition.order(target.number);
    if order.state != OrderState::Held {
        return target.answer(shard, Outcome::TooLate);
    }
    if until <= order.expires_at {
        return target.answer(shard, Outcome::Extended);
    }
    let rules = shard.books.find(order.sale).and_then(|sale| shard.books.sale(sale).rules);
    let span = rules.map_or(0, |rules| rules.extend_max_ms);
    if until > partition.expires_first(target.number, &order).after_ms(span) {
        return target.answer(shard, Outcome::Refused);
    }
    let key = shard.key(target.index, target.number);
    shard.emit(target.index, Event::Extended { key, expires_at: until }, effects);
    target.answer(shard, Outcome::Extended)
}
