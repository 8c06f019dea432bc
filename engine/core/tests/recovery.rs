//! Crashes, restarts, snapshots and damaged logs; timers; what answers rest on.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::script::{Script, run_table};
use common::{PARTITIONS, START_MS, sale, sku, user};
use stockade_core::catalog::CatalogMachine;
use stockade_core::fold::{fold_catalog, fold_partition};
use stockade_core::gather::{Tally, set_stock};
use stockade_core::shard::ShardMachine;
use stockade_protocol::command::{Line, Lines};
use stockade_protocol::entry::{OrderKey, Placed};
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::image::{CatalogImage, PartitionImage};
use stockade_protocol::text::{OrderData, PaymentRef, Reason};
use stockade_protocol::{Entry, Event, Lsn, OrderId, OrderState, PartitionId, RequestId};

#[test]
fn what_is_durable_survives_and_nothing_else() {
    run_table(SURVIVES);
}

const SURVIVES: &str = "
lost with the crash: put sku=10:5; commits off; reserve 7 1 10; crash; status 7 1 => unknown
    ; sku 10 => live free=5 held=0; reserve 7 1 10 => held
a lost cancel: put sku=10:1; reserve 7 1 10; commits off; cancel 7/1 => cancelled
    ; reserve 8 1 10 => sold_out; crash; order 7/1 => held; cancel 7/1 => cancelled; commit
    ; reserve 8 1 10 => held
other numbers of shards: put sku=10:5:2; reserve 7 1 10; reserve 8 1 10; crash 3
    ; order 7/1 => held
    ; crash 2; reserve 8 2 10*2 => limit left=1; crash 1; sku 10 => live free=3 held=2
snapshot and log: put sku=10:9:4; reserve 7 1 10 data=5; confirm 7/1 p; snapshot
    ; reserve 7 x-2 10*2
    ; return 7/1 r 10 noright; crash; user 7 => user units=10*3:1
    ; reserve 7 x-2 10*2 => held again
    ; snapshot; crash; return 7/1 r all noright => already_returned state=returned
    ; user 7 => user units=10*3:1; confirm 7/1 p => too_late
late payments are remembered: put sku=10:5; reserve 7 1 10; cancel 7/1; confirm 7/1 p; crash; log
    ; confirm 7/1 p => too_late; log => []; snapshot; crash; confirm 7/1 p => too_late
    ; log => []
grace after a restart: put sku=10:5 hold=50; reserve 7 1 10; late 60; crash
    ; order 7/1 => held exp=30060
    ; at 30060; confirm 7/1 p => confirmed
grace runs out: put sku=10:5 hold=50; reserve 7 1 10; late 60; crash; at 30061
    ; order 7/1 => expired
    ; log => [held,extended,expired]
no grace for what did not run out: put sku=10:5 hold=50; reserve 7 1 10; late 50; crash
    ; order 7/1 => held exp=50; log => [held]
grace does not stretch the extension: put sku=10:5 hold=50 extend=10; reserve 7 1 10; late 60
    ; crash
    ; extend 7/1 40000 => refused; extend 7/1 100 => extended; order 7/1 => held exp=30060
archived orders stay away: put sku=10:5 grace=0 hold=0; reserve 7 1 10; close; archive
    ; snapshot; crash
    ; order 7/1 => archived; confirm 7/1 p => too_late state=archived; snapshot; crash
    ; confirm 7/1 p => too_late state=archived
archived between snapshots: put sku=10:5 grace=0 hold=0; reserve 7 1 10*2; snapshot
    ; return 7/1 r 10; close; archive; crash; order 7/1 => archived; snapshot; crash
    ; order 7/1 => archived
archived orders stay away, catalog last: changes_last; put sku=10:5 grace=0 hold=0
    ; reserve 7 1 10; close; archive
    ; snapshot; crash
    ; order 7/1 => archived; confirm 7/1 p => too_late state=archived; snapshot; crash
    ; confirm 7/1 p => too_late state=archived
archived between snapshots, catalog last: changes_last; put sku=10:5 grace=0 hold=0
    ; reserve 7 1 10*2; snapshot
    ; return 7/1 r 10; close; archive; crash; order 7/1 => archived; snapshot; crash
    ; order 7/1 => archived
";

#[test]
fn answers_rest_on_orders_or_on_nothing() {
    run_table(RESTS);
}

/// User 7 has entries here, so that an answer that rests on its partition does not go at once.
const RESTS: &str = "
reads: put sku=10:5; reserve 7 1 10; order 7/1 => held rests; status 7 9 => unknown rests
    ; user 7 => user rests; list user=7 => [7/1]
rejections that rest: put sku=10:5:1; reserve 7 1 10; reserve 7 2 10 => limit rests
    ; reserve 7 1 10*2 => id_conflict rests; confirm 7/1 p
    ; confirm 7/1 p => already_confirmed rests
    ; cancel 7/1 => too_late rests; extend 7/1 9 => too_late rests
    ; return 7/1 r 10*9 => bad_quantity rests; withdraw 7 1 => too_late rests
again: put sku=10:5; reserve 7 1 10; reserve 7 1 10 => held again rests
withdrawn: put sku=10:5; withdraw 7 1; reserve 7 1 10 => withdrawn rests
at once: put sku=10:2:0:9 rate=1 burst=1; reserve 7 1 10; reserve 7 2 10*9 => sold_out at_once
    ; reserve 7 2 10*10 => bad_quantity at_once; reserve 7 2 10 => throttled at_once
    ; reserve 7 2 11 => unknown_sku at_once; in 9 reserve 7 2 10 => unknown_sale at_once
    ; reserve 7 2 10*0 => bad_request at_once; pause; reserve 7 2 10 => paused at_once; close
    ; reserve 7 2 10 => ended at_once
";

/// 45 (tigerbeetle#315): a mass that runs out at one instant is worked off in bounded steps, in
/// order.
#[test]
fn holds_run_out_in_bounded_steps_in_the_order_of_deadline_and_id() {
    let mut script = Script::new(1);
    script.step("put sku=10:1000 hold=50");
    script.step("in 2 put sku=10:1000 hold=20");
    for user in 1..=300 {
        script.step(&format!("reserve {user} 1 10"));
        script.step(&format!("in 2 reserve {user} 1 10"));
    }
    script.engine.commit_at_once = false;
    script.step("late 51");
    let mut steps = 0;
    while script.engine.expire(0, 7) {
        steps += 1;
        assert_eq!(script.engine.shards[0].tail.len(), 7 * steps);
    }
    assert_eq!(steps, 600 / 7);
    let order_of = |event: &Event| match event {
        Event::Expired { key } => (key.sale.unwrap() == sale(1), key.order),
        other => panic!("{other:?}"),
    };
    let tail = &script.engine.shards[0].tail;
    let expired: Vec<_> = tail.iter().map(|(_, entry)| order_of(&entry.event)).collect();
    assert_eq!(expired.len(), 600);
    // Sale 2's hold is shorter; within a sale all have one deadline.
    assert!(expired.is_sorted() && !expired[299].0 && expired[300].0);
    // Nothing is back before it is durable.
    assert!(script.step("sku 10").contains("free=700 held=300"));
    script.step("commit");
    assert!(script.step("sku 10").contains("free=1000 held=0"));
}

#[test]
fn timers_of_orders_that_are_not_held_do_not_pile_up() {
    let mut script = Script::new(1);
    script.step("put sku=10:100000 extend=100000");
    for n in 1..=8_000 {
        script.step(&format!("reserve {n} 1 10"));
        match n % 3 {
            0 => script.step(&format!("confirm {n}/1 p")),
            1 => script.step(&format!("cancel {n}/1")),
            _ => script.step(&format!("withdraw {n} 1")),
        };
    }
    assert!(script.engine.shards[0].machine.timers_len() < 3000);
    script.step("reserve 1 2 10");
    for n in 1..=8_000 {
        script.step(&format!("extend 1/2 {}", 1_800_000 + n));
    }
    assert!(script.engine.shards[0].machine.timers_len() < 3000);
    script.step("at 1808000");
    assert!(script.step("order 1/2").starts_with("held"));
    script.step("at 1808001");
    assert!(script.step("order 1/2").starts_with("expired"));
}

#[test]
fn deadline_next_is_when_expire_finds_something() {
    let mut script = Script::new(1);
    script.step("put sku=10:9 hold=50");
    assert_eq!(script.engine.shards[0].machine.deadline_next(), None);
    script.step("reserve 7 1 10");
    let mut wakes = Vec::new();
    while wakes.last().is_none_or(|at| *at <= START_MS + 50) {
        // A driver that sleeps until it is told to wake comes to the hold's end in a few steps.
        let at = script.engine.shards[0].machine.deadline_next().unwrap().get();
        assert!(wakes.last().is_none_or(|last| at > *last) && at <= START_MS + 51);
        wakes.push(at);
        assert!(wakes.len() <= 3);
        script.engine.now = TimestampMs::new(at.min(START_MS + 50));
        assert!(!script.engine.expire(0, 9));
    }
    script.step("at 50");
    assert!(script.step("order 7/1").starts_with("held"));
    script.step("at 51");
    assert!(script.step("order 7/1").starts_with("expired"));
}

const PARTITION: PartitionId = PartitionId::new(3);

fn entry(lsn: u64, event: Event) -> Entry {
    let at = TimestampMs::new(START_MS + lsn);
    Entry { partition: PARTITION, lsn: Lsn::new(lsn), at, event }
}

fn some_lines(pairs: &[(u64, u32)]) -> Lines {
    pairs.iter().map(|(id, quantity)| Line { sku: sku(*id), quantity: *quantity }).collect()
}

fn placed(number: u64, request: u64) -> Placed {
    Placed {
        order: OrderId::from_parts(PARTITION, number).unwrap(),
        sale: sale(1),
        user: user(7),
        request: RequestId::from_number(request).unwrap(),
        expires_at: TimestampMs::new(START_MS + 100),
        lines: some_lines(&[(10, 2)]),
        data: OrderData::default(),
    }
}

fn key(number: u64) -> OrderKey {
    let order = OrderId::from_parts(PARTITION, number).unwrap();
    OrderKey { order, sale: Some(sale(1)), user: Some(user(7)) }
}

fn returned(pairs: &[(u64, u32)], whole: bool) -> Event {
    let request = RequestId::from_number(1).unwrap();
    let (restock, right) = (true, true);
    Event::Returned { key: key(1), request, lines: some_lines(pairs), restock, right, whole }
}

/// Entries that do not follow are refused by folds and shards alike, and change nothing.
#[test]
fn entries_that_do_not_follow_are_refused() {
    let payment = || PaymentRef::new(b"p").unwrap();
    let confirmed = || Event::Confirmed { key: key(1), payment: payment() };
    let held = |number, request| Event::Held(placed(number, request));
    let expired = || Event::Expired { key: key(1) };
    let other_user = OrderKey { user: Some(user(8)), ..key(1) };
    let request = |n| RequestId::from_number(n).unwrap();
    let withdrawn = |n| Event::Withdrawn { sale: sale(1), user: user(7), request: request(n) };
    let revived = |pairs: &[(u64, u32)]| {
        let lines = some_lines(pairs);
        Event::Revived { key: key(1), payment: payment(), lines }
    };
    let no_lines = Placed { lines: Lines::new(), ..placed(1, 1) };
    let cases: &[(&str, &[Event])] = &[
        ("an order number left out", &[held(2, 1)]),
        ("an order number twice", &[held(1, 1), held(1, 2)]),
        ("a request id twice", &[held(1, 1), held(2, 1)]),
        ("an order without lines", &[Event::Held(no_lines)]),
        ("an unknown order", &[confirmed()]),
        ("another user's order", &[held(1, 1), Event::Expired { key: other_user }]),
        ("confirmed twice", &[held(1, 1), confirmed(), confirmed()]),
        ("confirmed after expiry", &[held(1, 1), expired(), confirmed()]),
        ("expired twice", &[held(1, 1), expired(), expired()]),
        (
            "cancelled after confirm",
            &[held(1, 1), confirmed(), Event::Cancelled { key: key(1), reason: Reason::none() }],
        ),
        (
            "extended after expiry",
            &[
                held(1, 1),
                expired(),
                Event::Extended { key: key(1), expires_at: TimestampMs::new(START_MS) },
            ],
        ),
        ("returned while held", &[held(1, 1), returned(&[(10, 2)], true)]),
        ("returned too much", &[held(1, 1), confirmed(), returned(&[(10, 3)], true)]),
        ("returned another sku", &[held(1, 1), confirmed(), returned(&[(11, 1)], false)]),
        ("whole, but it is not", &[held(1, 1), confirmed(), returned(&[(10, 1)], true)]),
        ("not whole, but it is", &[held(1, 1), confirmed(), returned(&[(10, 2)], false)]),
        ("revived while held", &[held(1, 1), revived(&[(10, 2)])]),
        ("revived with other lines", &[held(1, 1), expired(), revived(&[(10, 1)])]),
        ("an order's id withdrawn", &[held(1, 1), withdrawn(1)]),
        (
            "late for an unknown order",
            &[Event::LatePayment {
                key: OrderKey { sale: None, user: None, ..key(1) },
                payment: payment(),
                reason: stockade_protocol::entry::LateReason::Archived,
            }],
        ),
        ("a catalog entry", &[Event::SalePaused(sale(1))]),
    ];
    for (name, events) in cases {
        let entries: Vec<_> = (1..).zip(*events).map(|(n, e)| entry(n, e.clone())).collect();
        let (last, before) = entries.split_last().unwrap();
        let good = fold_partition(PARTITION, PartitionImage::default(), before, &[]).expect(name);
        let error = fold_partition(PARTITION, good.clone(), std::slice::from_ref(last), &[])
            .expect_err(name);
        assert_eq!((error.partition, error.lsn), (PARTITION, last.lsn), "{name}");
        let mut shard = ShardMachine::new(PARTITIONS, &[PARTITION]);
        for entry in before {
            shard.replay(entry).expect(name);
        }
        assert_eq!(shard.replay(last), Err(error), "{name}");
        assert_eq!(shard.image(PARTITION).unwrap(), good, "{name}");
    }
}

#[test]
fn gaps_and_other_partitions_are_refused() {
    let first = entry(1, Event::Held(placed(1, 1)));
    let gap = entry(3, Event::Held(placed(2, 2)));
    let elsewhere = Entry { partition: PartitionId::new(4), ..entry(2, Event::Held(placed(2, 2))) };
    for bad in [&gap, &elsewhere, &first] {
        let entries = [first.clone(), bad.clone()];
        assert!(fold_partition(PARTITION, PartitionImage::default(), &entries, &[]).is_err());
        let mut shard = ShardMachine::new(PARTITIONS, &[PARTITION]);
        shard.replay(&first).unwrap();
        assert!(shard.replay(bad).is_err());
    }
    let put = Event::SalePaused(sale(1));
    let entry = Entry { partition: PartitionId::CATALOG, ..entry(1, put) };
    assert!(fold_catalog(CatalogImage::default(), &[entry]).is_err());
}

/// A fold leaves archived sales out but keeps the numbers.
#[test]
fn a_fold_drops_archived_sales_and_keeps_the_numbers() {
    let entries = [
        entry(1, Event::Held(placed(1, 1))),
        entry(2, Event::Confirmed { key: key(1), payment: PaymentRef::new(b"p").unwrap() }),
    ];
    let image = fold_partition(PARTITION, PartitionImage::default(), &entries, &[sale(1)]).unwrap();
    assert_eq!((image.orders.len(), image.order_number_last, image.lsn.get()), (0, 1, 2));
    let kept = fold_partition(PARTITION, PartitionImage::default(), &entries, &[]).unwrap();
    assert_eq!(kept.orders[0].state, OrderState::Confirmed);
    let later = [entry(3, returned(&[(10, 2)], true))];
    assert_eq!(fold_partition(PARTITION, image, &later, &[sale(1)]).unwrap().lsn.get(), 3);
    assert!(fold_partition(PARTITION, kept, &later, &[]).is_ok());
}

/// A start with more units in orders than there are is refused.
#[test]
fn an_oversold_log_is_refused() {
    let mut script = Script::new(1);
    script.step("put sku=10:3");
    let sales = script.engine.catalog.sales();
    let tally = |held, confirmed| vec![(sale(1), sku(10), Tally { held, confirmed, removed: 0 })];
    assert_eq!(set_stock(&sales, tally(1, 2)), Ok(()));
    let oversold = set_stock(&sales, tally(2, 2)).unwrap_err();
    assert_eq!((oversold.total, oversold.in_orders), (3, 4));
    let unknown = vec![(sale(9), sku(10), Tally { held: 1, confirmed: 0, removed: 0 })];
    assert!(set_stock(&sales, unknown).is_err());
    assert!(set_stock(&CatalogMachine::default().sales(), tally(0, 0)).is_ok());
}
