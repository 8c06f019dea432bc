//! `return`: units of a confirmed order come back, in parts or whole.

use super::lines::merged;
use super::target::{Found, Target, find, unknown};
use crate::effects::{Effects, Position};
use crate::shard::{ShardMachine, Verdict};
use stockade_protocol::command::{Line, Lines, Return};
use stockade_protocol::image::ReturnImage;
use stockade_protocol::limits::RETURNS_PER_ORDER_MAX;
use stockade_protocol::reply::OrderReply;
use stockade_protocol::{Event, OrderState, Outcome, Reply};

/// Decides a `return`.
pub(crate) fn give_back(shard: &mut ShardMachine, back: &Return, effects: &mut Effects) -> Verdict {
    let Some(lines) = merged(&back.lines) else {
        let (outcome, order) = (Outcome::BadRequest, Some(back.order));
        let reply = OrderReply { outcome, order, state: OrderState::Unknown };
        return Verdict::Answer(Reply::Order(reply), Position::NONE);
    };
    let target = match find(shard, back.order, effects) {
        Found::Order(target) => target,
        Found::Archived(target) => {
            return target.answer_as(shard, Outcome::TooLate, OrderState::Archived);
        }
        Found::Unknown(rests_on) => return unknown(back.order, rests_on),
    };
    let partition = &shard.partitions[target.index];
    let order = *partition.order(target.number);
    let details = partition.details(target.number, &order);
    let returns = details.map_or(&[][..], |details| &details.returns);
    if let Some(known) = returns.iter().position(|r| r.request.key() == back.request.key()) {
        let emptied = known + 1 == returns.len() && order.state == OrderState::Returned;
        let outcome = if is_same(&returns[known], emptied, back, &lines) {
            Outcome::AlreadyReturned
        } else {
            Outcome::IdConflict
        };
        return target.answer(shard, outcome);
    }
    if order.state != OrderState::Confirmed {
        return target.answer(shard, Outcome::TooLate);
    }
    let left = partition.remaining(target.number, &order);
    let lines = if lines.is_empty() { left.clone() } else { lines };
    if !lines.iter().all(|line| line.quantity <= units_of(&left, line)) {
        return target.answer(shard, Outcome::BadQuantity);
    }
    let whole = lines == left;
    if returns.len() >= RETURNS_PER_ORDER_MAX && !whole {
        return target.answer(shard, Outcome::Refused);
    }
    take(shard, target, back, lines, whole, effects)
}

/// The same return again. All that was left then is the same as the lines it named, if nothing was
/// left after it.
fn is_same(known: &ReturnImage, emptied: bool, back: &Return, lines: &Lines) -> bool {
    let same_lines = if lines.is_empty() { emptied } else { known.lines == *lines };
    same_lines && known.restock == back.restock && known.right == back.right
}

fn units_of(left: &[Line], line: &Line) -> u32 {
    left.iter().find(|of| of.sku == line.sku).map_or(0, |of| of.quantity)
}

fn take(
    shard: &mut ShardMachine,
    target: Target,
    back: &Return,
    lines: Lines,
    whole: bool,
    effects: &mut Effects,
) -> Verdict {
    let event = Event::Returned {
        key: shard.key(target.index, target.number),
        request: back.request.clone(),
        lines,
        restock: back.restock,
        right: back.right,
        whole,
    };
    shard.emit(target.index, event, effects);
    target.answer(shard, Outcome::Returned)
}
