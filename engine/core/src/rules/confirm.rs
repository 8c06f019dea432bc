//! `confirm`: money came. It confirms a held order, or it came for nothing and is told as late.

use super::limits::allowance;
use super::reserve::Wants;
use super::target::{Found, Target, find, unknown};
use crate::effects::Effects;
use crate::shard::{ShardMachine, Verdict, Want};
use stockade_protocol::entry::{LateReason, OrderKey};
use stockade_protocol::limits::PAYMENTS_PER_ORDER_MAX;
use stockade_protocol::text::PaymentRef;
use stockade_protocol::{Event, OrderId, OrderState, Outcome};

/// Decides a `confirm`.
pub(crate) fn confirm(
    shard: &mut ShardMachine,
    id: OrderId,
    payment: &PaymentRef,
    effects: &mut Effects,
) -> Verdict {
    let target = match find(shard, id, effects) {
        Found::Order(target) => target,
        Found::Archived(target) => return late_to_archived(shard, target, payment, effects),
        Found::Unknown(rests_on) => return unknown(id, rests_on),
    };
    let partition = &shard.partitions[target.index];
    let order = *partition.order(target.number);
    let first = partition.payment(target.number, &order);
    match (order.state, first) {
        (OrderState::Held, _) | (OrderState::Confirmed, None) => {
            accept(shard, target, payment, effects)
        }
        (OrderState::Confirmed, Some(first)) if first == payment => {
            target.answer(shard, Outcome::AlreadyConfirmed)
        }
        (OrderState::Confirmed, Some(_)) => {
            let (reason, outcome) = (LateReason::SecondPayment, Outcome::IdConflict);
            late(shard, target, payment, reason, outcome, effects)
        }
        // That money went back with the return.
        (OrderState::Returned, Some(first)) if first == payment => {
            target.answer(shard, Outcome::TooLate)
        }
        (OrderState::Returned, _) => {
            late(shard, target, payment, LateReason::Returned, Outcome::TooLate, effects)
        }
        (OrderState::Cancelled, _) => {
            late(shard, target, payment, LateReason::Cancelled, Outcome::TooLate, effects)
        }
        (OrderState::Expired, _) => match revive(shard, target, payment, effects) {
            Revival::Verdict(verdict) => verdict,
            Revival::No => {
                late(shard, target, payment, LateReason::Expired, Outcome::TooLate, effects)
            }
        },
        (OrderState::Unknown | OrderState::Withdrawn | OrderState::Archived, _) => {
            unreachable!("orders in memory have none of these states")
        }
    }
}

fn accept(
    shard: &mut ShardMachine,
    target: Target,
    payment: &PaymentRef,
    effects: &mut Effects,
) -> Verdict {
    let key = shard.key(target.index, target.number);
    let payment = payment.clone();
    shard.emit(target.index, Event::Confirmed { key, payment }, effects);
    target.answer(shard, Outcome::Confirmed)
}

/// Tells once per order and reference that the money came for nothing.
fn late(
    shard: &mut ShardMachine,
    target: Target,
    payment: &PaymentRef,
    reason: LateReason,
    outcome: Outcome,
    effects: &mut Effects,
) -> Verdict {
    #[cfg(feature = "mutations")]
    if stockade_protocol::mutation::is(stockade_protocol::mutation::Mutation::LatePaymentLost) {
        return target.answer(shard, outcome);
    }
    match references(shard, target, payment) {
        References::Known => target.answer(shard, outcome),
        References::Full => target.answer(shard, Outcome::Refused),
        References::Room => {
            let key = shard.key(target.index, target.number);
            let payment = payment.clone();
            shard.emit(target.index, Event::LatePayment { key, payment, reason }, effects);
            target.answer(shard, outcome)
        }
    }
}

enum References {
    /// This one came late before.
    Known,
    Room,
    Full,
}

fn references(shard: &ShardMachine, target: Target, payment: &PaymentRef) -> References {
    let partition = &shard.partitions[target.index];
    let order = partition.order(target.number);
    let details = partition.details(target.number, order);
    let late = details.map_or(&[][..], |details| &details.late_payments);
    let paid = usize::from(partition.payment(target.number, order).is_some());
    if late.contains(payment) {
        References::Known
    } else if late.len() + paid >= PAYMENTS_PER_ORDER_MAX {
        References::Full
    } else {
        References::Room
    }
}

/// The order's sale is archived: who it was for is not known any more, and each time is told.
fn late_to_archived(
    shard: &mut ShardMachine,
    target: Target,
    payment: &PaymentRef,
    effects: &mut Effects,
) -> Verdict {
    let key = OrderKey { order: target.id, sale: None, user: None };
    let (payment, reason) = (payment.clone(), LateReason::Archived);
    shard.emit(target.index, Event::LatePayment { key, payment, reason }, effects);
    target.answer_as(shard, Outcome::TooLate, OrderState::Archived)
}

enum Revival {
    Verdict(Verdict),
    /// Not allowed, no units, or the limit is used: the money is late.
    No,
}

/// Confirms an expired order in one step if its sale allows that, its units are free and its limit
/// is kept. A reference that was told as late once stays late.
fn revive(
    shard: &mut ShardMachine,
    target: Target,
    payment: &PaymentRef,
    effects: &mut Effects,
) -> Revival {
    let partition = &shard.partitions[target.index];
    let order = *partition.order(target.number);
    let Some(sale) = shard.books.find(order.sale) else { return Revival::No };
    let allows = shard.books.sale(sale).rules.is_some_and(|rules| rules.revive);
    if !allows || !matches!(references(shard, target, payment), References::Room) {
        return Revival::No;
    }
    let lines = partition.lines(target.number, &order);
    let passed = allowance(&shard.books, partition, order.sale, order.user, &lines).passed;
    #[cfg(feature = "mutations")]
    let passed = passed
        && !stockade_protocol::mutation::is(
            stockade_protocol::mutation::Mutation::ReviveIgnoresLimit,
        );
    if passed {
        return Revival::No;
    }
    let book = shard.books.sale(sale);
    let want = |line: &stockade_protocol::command::Line| {
        Some(Want { sku: book.index_of(line.sku)?, quantity: line.quantity })
    };
    let Some(wants) = lines.iter().map(want).collect::<Option<Wants>>() else { return Revival::No };
    if shard.books.sold_out(sale, &wants, shard.now).is_some() {
        return Revival::No;
    }
    if !shard.books.top_up(sale, &wants) {
        let gone = shard.books.sold_out(sale, &wants, shard.now).is_some();
        return if gone { Revival::No } else { Revival::Verdict(Verdict::Wait) };
    }
    shard.books.grant(sale, &wants);
    let key = shard.key(target.index, target.number);
    let payment = payment.clone();
    shard.emit(target.index, Event::Revived { key, payment, lines }, effects);
    Revival::Verdict(target.answer(shard, Outcome::Confirmed))
}
