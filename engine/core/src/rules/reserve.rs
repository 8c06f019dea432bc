//! `reserve`: the nine rules in their order; the first that applies answers.

use super::limits::{Allowance, allowance};
use super::lines::merged;
use crate::effects::{Effects, Position};
use crate::shard::{Retry, SaleRules, ShardMachine, Verdict, Want};
use smallvec::SmallVec;
use stockade_protocol::command::{Lines, Reserve};
use stockade_protocol::entry::Placed;
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::reply::{LEFT_UNLIMITED, RETRY_NEVER, ReserveReply};
use stockade_protocol::{Event, OrderState, Outcome, Reply, SaleState};

/// After `sold_out` while units are held: when to look again.
const SOLD_OUT_RETRY_MS: i64 = 1_000;
/// After `paused`: when to look again.
const PAUSED_RETRY_MS: i64 = 1_000;
/// When order numbers have run out.
const FULL_RETRY_MS: i64 = 1_000;

/// Units wanted, as indexes into the sale's book.
pub(super) type Wants = SmallVec<[Want; 2]>;

/// Decides a `reserve`.
pub(crate) fn reserve(
    shard: &mut ShardMachine,
    reserve: &Reserve,
    effects: &mut Effects,
) -> Verdict {
    // Rule 1.
    let lines = match merged(&reserve.lines) {
        Some(lines) if !lines.is_empty() => lines,
        _ => return reject(Outcome::BadRequest, RETRY_NEVER),
    };
    // Rule 2.
    let index = shard.index_of_user(reserve.user);
    let key = reserve.request.key();
    let partition = &shard.partitions[index];
    if let Some(number) = partition.find(reserve.sale, reserve.user, key) {
        shard.expire_if_due(index, number, effects);
        return again(shard, index, number, &lines);
    }
    let withdrawn = partition.is_withdrawn(reserve.sale, reserve.user, key);
    #[cfg(feature = "mutations")]
    let withdrawn = withdrawn
        && !stockade_protocol::mutation::is(stockade_protocol::mutation::Mutation::WithdrawnIdBuys);
    if withdrawn {
        let reply = ReserveReply::rejected(Outcome::Withdrawn, RETRY_NEVER);
        return Verdict::Answer(Reply::Reserve(reply), partition.position);
    }
    // Rules 3 to 5.
    let (sale, rules, wants) = match open_sale(shard, reserve, &lines) {
        Ok(open) => open,
        Err((outcome, retry_after_ms)) => return reject(outcome, retry_after_ms),
    };
    // Rule 6.
    let skus = &shard.books.sale(sale).skus;
    let over = |want: &Want| {
        let most = skus[want.sku].max_per_order;
        most > 0 && want.quantity > most
    };
    if wants.iter().any(over) {
        return reject(Outcome::BadQuantity, RETRY_NEVER);
    }
    let allowance =
        allowance(&shard.books, &shard.partitions[index], reserve.sale, reserve.user, &lines);
    if allowance.passed {
        return limit(shard, index, &allowance);
    }
    // Rules 7 to 9.
    if let Err(verdict) = take_units(shard, sale, &rules, reserve, &wants) {
        return verdict;
    }
    let Some(number) = shard.partitions[index].number_next() else {
        return reject(Outcome::Busy, FULL_RETRY_MS);
    };
    shard.books.grant(sale, &wants);
    place(shard, index, number, rules.hold_ms, reserve, lines, allowance.left_after, effects)
}

fn reject(outcome: Outcome, retry_after_ms: i64) -> Verdict {
    let reply = ReserveReply::rejected(outcome, retry_after_ms);
    Verdict::Answer(Reply::Reserve(reply), Position::NONE)
}

/// The same request id again: the order it made, as it stands now.
fn again(shard: &ShardMachine, index: usize, number: u64, lines: &Lines) -> Verdict {
    let partition = &shard.partitions[index];
    let order = partition.order(number);
    let known = partition.has_lines(number, order, lines);
    let outcome = if known { outcome_of(order.state) } else { Outcome::IdConflict };
    let left = if known {
        // What the order has is counted already, so nothing more is asked.
        allowance(&shard.books, partition, order.sale, order.user, lines).left
    } else {
        LEFT_UNLIMITED
    };
    let reply = ReserveReply {
        outcome,
        again: known,
        order: Some(partition.order_id(number)),
        expires_at: order.expires_at,
        retry_after_ms: if known { 0 } else { RETRY_NEVER },
        left,
    };
    Verdict::Answer(Reply::Reserve(reply), partition.position)
}

const fn outcome_of(state: OrderState) -> Outcome {
    match state {
        OrderState::Held => Outcome::Held,
        OrderState::Confirmed => Outcome::Confirmed,
        OrderState::Cancelled => Outcome::Cancelled,
        OrderState::Expired => Outcome::Expired,
        OrderState::Returned => Outcome::Returned,
        OrderState::Unknown | OrderState::Withdrawn | OrderState::Archived => {
            panic!("orders in memory have none of these states")
        }
    }
}

/// Rules 3 to 5: the sale takes reserves now. Else the outcome and when to try again.
fn open_sale(
    shard: &ShardMachine,
    reserve: &Reserve,
    lines: &Lines,
) -> Result<(usize, SaleRules, Wants), (Outcome, i64)> {
    let now = shard.now;
    if reserve.not_after.is_some_and(|not_after| not_after < now) {
        return Err((Outcome::Stale, RETRY_NEVER));
    }
    let known = shard.books.find(reserve.sale).and_then(|index| {
        let book = shard.books.sale(index);
        Some((index, book, book.rules?))
    });
    let Some((index, book, rules)) = known else {
        let archived = shard.archived.contains(&reserve.sale);
        let outcome = if archived { Outcome::Ended } else { Outcome::UnknownSale };
        return Err((outcome, RETRY_NEVER));
    };
    let mut wants = Wants::new();
    for line in lines {
        let sku = book.index_of(line.sku).ok_or((Outcome::UnknownSku, RETRY_NEVER))?;
        wants.push(Want { sku, quantity: line.quantity });
    }
    match rules.window.state(now) {
        SaleState::Live => Ok((index, rules, wants)),
        SaleState::Armed => {
            let to_go = rules.window.opens_at.since(now);
            Err((Outcome::NotStarted, i64::try_from(to_go).unwrap_or(i64::MAX)))
        }
        SaleState::Paused => Err((Outcome::Paused, PAUSED_RETRY_MS)),
        SaleState::Ended | SaleState::Archived => Err((Outcome::Ended, RETRY_NEVER)),
    }
}

/// A limit would be passed: what is left, and the newest live order so that a page can resume it.
fn limit(shard: &ShardMachine, index: usize, allowance: &Allowance) -> Verdict {
    let partition = &shard.partitions[index];
    let newest = allowance.usage.newest.map(|number| (number, partition.order(number)));
    let held = newest.filter(|(_, order)| order.state == OrderState::Held);
    // A hold that runs out gives its right back.
    let to_go = |at: TimestampMs| i64::try_from(at.since(shard.now)).unwrap_or(i64::MAX).max(1);
    let reply = ReserveReply {
        outcome: Outcome::Limit,
        again: false,
        order: newest.map(|(number, _)| partition.order_id(number)),
        expires_at: newest.map_or(TimestampMs::NONE, |(_, order)| order.expires_at),
        retry_after_ms: held.map_or(RETRY_NEVER, |(_, order)| to_go(order.expires_at)),
        left: allowance.left,
    };
    Verdict::Answer(Reply::Reserve(reply), partition.position)
}

/// Rules 7 to 9 but for the grant: the units are in the allotments, and admission took its share.
fn take_units(
    shard: &mut ShardMachine,
    sale: usize,
    rules: &SaleRules,
    reserve: &Reserve,
    wants: &[Want],
) -> Result<(), Verdict> {
    let now = shard.now;
    if let Some(retry) = shard.books.sold_out(sale, wants, now) {
        return Err(reject(Outcome::SoldOut, retry_after(retry)));
    }
    let user = (reserve.sale, reserve.user);
    let throttled = |ms| reject(Outcome::Throttled, i64::from(ms));
    if let Some(rate) = rules.user_rate {
        shard.user_buckets.peek(user, rate, now).map_err(throttled)?;
    }
    if let Some(rate) = rules.rate {
        let bucket = shard.books.sale(sale).admission.as_deref();
        bucket.expect("a sale with rules").peek(rate, now).map_err(throttled)?;
    }
    // Units first, so that a request that waits for them uses up no rate.
    if !shard.books.top_up(sale, wants) {
        return Err(match shard.books.sold_out(sale, wants, now) {
            Some(retry) => reject(Outcome::SoldOut, retry_after(retry)),
            None => Verdict::Wait,
        });
    }
    if let Some(rate) = rules.rate {
        let bucket = shard.books.sale(sale).admission.as_deref();
        bucket.expect("a sale with rules").take(rate, now).map_err(throttled)?;
    }
    if let Some(rate) = rules.user_rate {
        shard.user_buckets.take(user, rate, now).map_err(throttled)?;
    }
    Ok(())
}

const fn retry_after(retry: Retry) -> i64 {
    match retry {
        Retry::Later => SOLD_OUT_RETRY_MS,
        Retry::Never => RETRY_NEVER,
    }
}

#[expect(clippy::too_many_arguments, reason = "one call site, which has all of it at hand")]
fn place(
    shard: &mut ShardMachine,
    index: usize,
    number: u64,
    hold_ms: u64,
    reserve: &Reserve,
    lines: Lines,
    left: i64,
    effects: &mut Effects,
) -> Verdict {
    let held = hold_ms > 0;
    let order = shard.partitions[index].order_id(number);
    let expires_at = if held { shard.now.after_ms(hold_ms) } else { TimestampMs::NONE };
    let placed = Placed {
        order,
        sale: reserve.sale,
        user: reserve.user,
        request: reserve.request.clone(),
        expires_at,
        lines,
        data: reserve.data.clone(),
    };
    let event = if held { Event::Held(placed) } else { Event::BornConfirmed(placed) };
    shard.emit(index, event, effects);
    let reply = ReserveReply {
        outcome: if held { Outcome::Held } else { Outcome::Confirmed },
        again: false,
        order: Some(order),
        expires_at,
        retry_after_ms: 0,
        left,
    };
    Verdict::Answer(Reply::Reserve(reply), shard.position())
}
