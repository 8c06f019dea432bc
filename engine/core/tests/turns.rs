//! Turns of several shards against one pool: waiting, topping up, baskets, bounds, threads.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{Engine, PARTITIONS, START_MS, sale, sku, user};
use stockade_core::catalog::CatalogMachine;
use stockade_core::effects::{Effects, Request};
use stockade_core::shard::ShardMachine;
use stockade_protocol::command::{Adjust, Line, Reserve};
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::reply::ReserveReply;
use stockade_protocol::routing::partition_of;
use stockade_protocol::sale::SkuPatch;
use stockade_protocol::text::OrderData;
use stockade_protocol::{Command, Outcome, PartitionId, Reply, RequestId, SalePatch, UserId};

fn put(skus: &[(u64, u32)], hold_ms: u64) -> Command {
    let mut patch = SalePatch::new(sale(1));
    patch.hold_ms = Some(hold_ms);
    for (id, stock) in skus {
        patch.skus.push(SkuPatch {
            sku: sku(*id),
            stock: Some(*stock),
            limit_per_user: None,
            max_per_order: None,
            labels: None,
        });
    }
    Command::SalePut(Box::new(patch))
}

fn reserve(who: UserId, request: u64, lines: &[(u64, u32)]) -> Command {
    Command::Reserve(Reserve {
        sale: sale(1),
        user: who,
        request: RequestId::from_number(request).unwrap(),
        lines: lines.iter().map(|(id, n)| Line { sku: sku(*id), quantity: *n }).collect(),
        data: OrderData::default(),
        not_after: None,
    })
}

/// The `n`-th user of a shard of so many.
fn user_of(shard: usize, shards: usize, n: usize) -> UserId {
    let of = |who: &UserId| usize::from(partition_of(*who, PARTITIONS).get()) % shards == shard;
    (1..).map(user).filter(of).nth(n).unwrap()
}

fn reply(answers: &[stockade_core::effects::Answer], n: usize) -> ReserveReply {
    match &answers[n].reply {
        Reply::Reserve(reply) => *reply,
        other => panic!("{other:?}"),
    }
}

fn outcomes(answers: &[stockade_core::effects::Answer]) -> Vec<Outcome> {
    (0..answers.len()).map(|n| reply(answers, n).outcome).collect()
}

#[test]
fn units_with_another_turn_are_waited_for_and_never_sold_out() {
    let mut engine = Engine::new(1);
    engine.run(put(&[(10, 3)], 1000));
    engine.set_aside(sale(1), sku(10), 2);
    // One is free and two are with the other turn: 2 wait, 1 is held, 4 are more than there can be.
    let (a, b, c) = (user(1), user(2), user(3));
    let commands =
        vec![reserve(a, 1, &[(10, 2)]), reserve(b, 1, &[(10, 1)]), reserve(c, 1, &[(10, 4)])];
    let answers = engine.turn(0, commands);
    assert_eq!(outcomes(&answers), [Outcome::Held, Outcome::SoldOut]);
    assert_eq!(engine.shards[0].waiting[0].waits, 1);
    // Nothing changes: it waits on.
    assert!(engine.turn(0, Vec::new()).is_empty());
    assert_eq!(engine.shards[0].waiting[0].waits, 2);
    engine.put_back();
    assert_eq!(outcomes(&engine.turn(0, Vec::new())), [Outcome::Held]);
}

#[test]
fn a_wait_ends_with_sold_out_when_the_other_turn_granted_the_units() {
    let mut engine = Engine::new(2);
    engine.run(put(&[(10, 1)], 1000));
    engine.set_aside(sale(1), sku(10), 1);
    let waiter = user_of(0, 2, 0);
    assert!(engine.turn(0, vec![reserve(waiter, 1, &[(10, 1)])]).is_empty());
    engine.put_back();
    let other = engine.turn(1, vec![reserve(user_of(1, 2, 0), 1, &[(10, 1)])]);
    assert_eq!(outcomes(&other), [Outcome::Held]);
    assert_eq!(outcomes(&engine.turn(0, Vec::new())), [Outcome::SoldOut]);
}

#[test]
fn waits_are_bounded_and_end_with_busy() {
    let mut engine = Engine::new(1);
    engine.run(put(&[(10, 1)], 1000));
    engine.set_aside(sale(1), sku(10), 1);
    let mut answers = engine.turn(0, vec![reserve(user(1), 1, &[(10, 1)])]);
    let mut turns = 1;
    while answers.is_empty() {
        answers = engine.turn(0, Vec::new());
        turns += 1;
        assert!(turns < 1000, "waits are bounded");
    }
    let reply = reply(&answers, 0);
    assert_eq!(reply.outcome, Outcome::Busy);
    assert!(reply.retry_after_ms > 0);
    // Nothing was done: the same request id may still win.
    engine.put_back();
    let answers = engine.turn(0, vec![reserve(user(1), 1, &[(10, 1)])]);
    assert_eq!(outcomes(&answers), [Outcome::Held]);
}

#[test]
fn a_basket_keeps_no_unit_while_it_waits() {
    let mut engine = Engine::new(1);
    engine.run(put(&[(10, 1), (11, 1)], 1000));
    engine.set_aside(sale(1), sku(11), 1);
    let answers = engine
        .turn(0, vec![reserve(user(1), 1, &[(11, 1), (10, 1)]), reserve(user(2), 1, &[(10, 1)])]);
    // The second takes the unit that the first could not keep, so the first is sold out when it
    // comes again.
    assert_eq!(outcomes(&answers), [Outcome::Held]);
    assert_eq!(outcomes(&engine.turn(0, Vec::new())), [Outcome::SoldOut]);
}

#[test]
fn a_waiting_duplicate_makes_one_order() {
    let mut engine = Engine::new(1);
    engine.run(put(&[(10, 2)], 1000));
    engine.set_aside(sale(1), sku(10), 2);
    let twice = vec![reserve(user(1), 1, &[(10, 1)]), reserve(user(1), 1, &[(10, 1)])];
    assert!(engine.turn(0, twice).is_empty());
    engine.put_back();
    let answers = engine.turn(0, Vec::new());
    let (first, second) = (reply(&answers, 0), reply(&answers, 1));
    assert_eq!((first.again, second.again), (false, true));
    assert_eq!(first.order, second.order);
}

#[test]
fn a_wait_is_decided_again_from_the_first_rule() {
    let mut engine = Engine::new(1);
    engine.run(put(&[(10, 1)], 1000));
    engine.set_aside(sale(1), sku(10), 1);
    assert!(engine.turn(0, vec![reserve(user(1), 1, &[(10, 1)])]).is_empty());
    engine.run(Command::SaleClose(sale(1)));
    engine.put_back();
    assert_eq!(outcomes(&engine.turn(0, Vec::new())), [Outcome::Ended]);
}

#[test]
fn a_wait_uses_up_no_rate() {
    let mut engine = Engine::new(1);
    let Command::SalePut(mut patch) = put(&[(10, 2)], 1000) else { unreachable!() };
    patch.rate_per_s = Some(1);
    patch.burst = Some(1);
    engine.run(Command::SalePut(patch));
    engine.set_aside(sale(1), sku(10), 2);
    for _ in 0..9 {
        assert!(engine.turn(0, Vec::new()).is_empty());
    }
    assert!(engine.turn(0, vec![reserve(user(1), 1, &[(10, 1)])]).is_empty());
    engine.put_back();
    assert_eq!(outcomes(&engine.turn(0, Vec::new())), [Outcome::Held]);
}

#[test]
fn one_turn_serves_as_many_as_there_are_units() {
    let mut engine = Engine::new(1);
    engine.run(put(&[(10, 5)], 1000));
    let commands = (1..=9).map(|n| reserve(user(n), 1, &[(10, 1)])).collect();
    let answers = engine.turn(0, commands);
    let held = outcomes(&answers).iter().filter(|outcome| **outcome == Outcome::Held).count();
    assert_eq!(held, 5);
    assert!(outcomes(&answers)[5..].iter().all(|outcome| *outcome == Outcome::SoldOut));
}

#[test]
fn a_negative_adjust_that_is_not_durable_has_its_units() {
    let mut engine = Engine::new(1);
    engine.run(put(&[(10, 3)], 1000));
    let request = RequestId::from_number(1).unwrap();
    let adjust = Adjust { sale: sale(1), sku: sku(10), delta: -2, request };
    let now = engine.now;
    engine.catalog.decide(&Command::Adjust(adjust), now);
    engine.aside.insert((sale(1), sku(10)), 2);
    // They may not be sold, but they are not known to be gone either.
    let answers = engine.turn(0, vec![reserve(user(1), 1, &[(10, 2)])]);
    assert!(answers.is_empty());
    engine.aside.clear();
    let change = engine.catalog.committed();
    engine.shards[0].machine.apply(&change);
    assert_eq!(outcomes(&engine.turn(0, Vec::new())), [Outcome::SoldOut]);
}

/// Shards on threads of their own sell one SKU, and a basket of two, until all are gone.
#[test]
fn threads_sell_every_unit_once() {
    const SHARDS: usize = 3;
    const STOCK: u32 = 20_000;
    let mut catalog = CatalogMachine::default();
    catalog.decide(&put(&[(10, STOCK), (11, STOCK)], 1000), TimestampMs::new(START_MS));
    let change = catalog.committed();
    let sold: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let shard = |shard: usize| {
            let change = change.clone();
            scope.spawn(move || {
                let ids = (0..PARTITIONS).map(PartitionId::new);
                let mine = |id: &PartitionId| usize::from(id.get()) % SHARDS == shard;
                let ids: Vec<_> = ids.filter(mine).collect();
                let mut machine = ShardMachine::new(PARTITIONS, &ids);
                machine.apply(&change);
                sell_until_gone(&mut machine, shard, SHARDS)
            })
        };
        let threads: Vec<_> = (0..SHARDS).map(shard).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let sum = |of: fn(&(u64, u64)) -> u64| sold.iter().map(of).sum::<u64>();
    assert_eq!(sum(|sold| sold.0), u64::from(STOCK));
    assert_eq!(sum(|sold| sold.1), u64::from(STOCK));
    for sku in &catalog.sales()[0].skus {
        let stock = sku.stock.load();
        assert_eq!((stock.free, stock.aside), (0, 0));
    }
}

/// Units of both SKUs that the shard sold. A request that is told `busy` comes again, so it stops
/// only at `sold_out`; since nothing comes back, that must be the end of the SKU.
fn sell_until_gone(machine: &mut ShardMachine, shard: usize, shards: usize) -> (u64, u64) {
    const BOTH: u64 = 0;
    let users: Vec<UserId> = (0..64).map(|n| user_of(shard, shards, n)).collect();
    let (mut requests, mut effects) = (Vec::new(), Effects::default());
    let (mut gone_10, mut gone_11, mut next) = (false, false, 0u64);
    while !(gone_10 && gone_11 && requests.is_empty()) {
        for who in &users {
            next += 1;
            let (ticket, lines): (u64, &[(u64, u32)]) = match (gone_10, gone_11, next % 5) {
                (false, false, 0) => (BOTH, &[(10, 1), (11, 1)]),
                (false, _, 0..=2) | (false, true, _) => (10, &[(10, 1)]),
                (_, false, _) => (11, &[(11, 1)]),
                (true, true, _) => break,
            };
            requests.push(Request { ticket, command: reserve(*who, next, lines), waits: 0 });
        }
        machine.turn(TimestampMs::new(START_MS), &mut requests, &mut effects);
        requests.append(&mut effects.waiting);
        effects.log.clear();
        for answer in effects.answers.drain(..) {
            let Reply::Reserve(reply) = answer.reply else { panic!("a reserve") };
            match (reply.outcome, answer.ticket) {
                (Outcome::SoldOut, 10) => gone_10 = true,
                (Outcome::SoldOut, 11) => gone_11 = true,
                (Outcome::SoldOut | Outcome::Held | Outcome::Busy, _) => {}
                other => panic!("{other:?}"),
            }
        }
    }
    let of = |id: u64| {
        let tallies = machine.tallies();
        tallies.iter().find(|(_, of, _)| of.get() == id).map_or(0, |(_, _, tally)| tally.held)
    };
    (of(10), of(11))
}
