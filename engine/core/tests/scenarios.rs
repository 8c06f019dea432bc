//! What went wrong in other shops, as cases for the core. The number is the scenario's; the name in
//! brackets is the public report it comes from.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::script::{Script, run_table};

#[test]
fn scenarios_end_as_they_should() {
    run_table(SCENARIOS);
}

const SCENARIOS: &str = "
1 the last unit (saleor#543): put sku=10:1:1; reserve 1 a 10 => held; reserve 2 a 10 => sold_out
    ; sku 10 => sold_out free=0 held=1
5 no stock at all (spikeSystem#14): put sku=10:0; reserve 1 a 10 => sold_out
5 exactly two (spikeSystem#14): put sku=10:2; reserve 1 a 10 => held; reserve 2 a 10 => held
    ; reserve 3 a 10 => sold_out
7 ten lines of one (verbb/events#129): put sku=10:9:2; reserve 1 a 10,10,10 => limit left=2
    ; reserve 1 b 10 => held; reserve 1 c 10 => held; reserve 1 d 10 => limit order=1/c
9 restock between writers (mall#353): put sku=10:2; reserve 1 a 10; adjust 10 2 x
    ; reserve 2 a 10*3 => held
    ; sku 10 => sold_out total=4 held=4
11 held counts (eShop#888): put sku=10:1; reserve 1 a 10 => held; reserve 2 a 10 => sold_out
    ; confirm 1/a p => confirmed; reserve 2 a 10 => sold_out
15 recall below what is held (KiosCash#39): put sku=10:5; reserve 1 a 10*4
    ; adjust 10 -4 x => adjusted applied=-1 total=4; crash; sku 10 => sold_out total=4 held=4
17 an unknown sale is not sold out: reserve 1 a 10 => unknown_sale; put sku=10:1
    ; reserve 1 a 11 => unknown_sku
21 put again while live (springboot-seckill#37): put sku=10:3; reserve 1 a 10*2
    ; put sku=10:3 => unchanged
    ; sku 10 => live free=1 held=2
23 one failed order (springboot-seckill#22): put sku=10:2; reserve 1 a 10; reserve 2 a 10
    ; cancel 1/a refused; order 2/a => held; reserve 3 a 10 => held
25 capacity raised (open-event-server#3366): put sku=10:1; reserve 1 a 10
    ; reserve 2 a 10 => sold_out
    ; adjust 10 5 x; reserve 2 a 10 => held
29 a sale made while running (seckill-rocketmq#11): put sku=10:1 opens=50
    ; reserve 1 a 10 => not_started
    ; at 50; reserve 1 a 10 => held
31 abandoned carts (eventespresso#218): put sku=10:2 hold=1800000; reserve 1 a 10; reserve 2 a 10
    ; reserve 3 a 10 => sold_out; at 1800001; sku 10 => live free=2 held=0; reserve 3 a 10 => held
33 blocked by the own hold (woocommerce#67354): put sku=10:1:1; reserve 1 a 10
    ; reserve 1 b 10 => limit order=1/a
35 seven of seven (bucketed stock): put sku=10:7; reserve 1 a 10*7 => held
37 five and five (saleor/apps#1175): put sku=10:10; reserve 1 a 10*5; confirm 1/a p
    ; reserve 2 a 10*5 => held
39 paid late, extended (seckill#41): put sku=10:1 hold=900000 extend=300000; reserve 1 a 10
    ; at 840000
    ; extend 1/a 1200000 => extended; at 960000; confirm 1/a p => confirmed
    ; reserve 2 a 10 => sold_out
39 paid late, not extended (seckill#41): put sku=10:1 hold=900000; reserve 1 a 10; at 900001
    ; reserve 2 a 10 => held; at 960000; confirm 1/a p => too_late state=expired
    ; sku 10 => sold_out held=1 confirmed=0
41 captured after cancel (gateway-stripe#5703): put sku=10:1; reserve 1 a 10; cancel 1/a
    ; confirm 1/a p => too_late; confirm 1/a p; confirm 1/a p; confirm 1/a p
    ; confirm 1/a p => too_late state=cancelled; log => [held,cancelled,late_payment]
43 callback and webhook (fossunited#1698): put sku=10:1; reserve 1 a 10
    ; confirm 1/a p1 => confirmed
    ; confirm 1/a p1 => already_confirmed; confirm 1/a p1 => already_confirmed
    ; confirm 1/a p2 => id_conflict; log => [held,confirmed,late_payment]
47 a long hold before a short one (remit#11): put sku=10:5 hold=3600000
    ; in 2 put sku=10:5 hold=60000
    ; reserve 1 a 10; in 2 reserve 1 b 10; at 60001; in 2 order 1/b => expired; order 1/a => held
49 the timer of a paid order (mall-learning#8): put sku=10:1 hold=50; reserve 1 a 10
    ; confirm 1/a p
    ; at 1800001; log => [held,confirmed]; order 1/a => confirmed
51 a failed payment, kept for another try (woocommerce#66303): put sku=10:1:1; reserve 1 a 10
    ; order 1/a => held; reserve 2 a 10 => sold_out; confirm 1/a p2 => confirmed
51 a failed payment, released: put sku=10:1:1; reserve 1 a 10; cancel 1/a payment_failed
    ; reserve 2 a 10 => held; cancel 2/a; reserve 1 b 10 => held
53 cancel before buy (EShop#221): put sku=10:1; withdraw 1 a => withdrawn
    ; reserve 1 a 10 => withdrawn
    ; sku 10 => live free=1
59 refund, then cancel (PrestaShop#35460): put sku=10:5 hold=0; reserve 1 a 10*2; return 1/a r 10
    ; cancel 1/a => too_late; sku 10 => live total=5 free=4 confirmed=1
61 cancel after fulfilment (inventory#1849): put sku=10:5; reserve 1 a 10; confirm 1/a p
    ; cancel 1/a => too_late state=confirmed
63 timer and cancel at once (magento2#161): put sku=10:1 hold=50; reserve 1 a 10; late 51
    ; cancel 1/a unpaid => too_late state=expired; at 52; log => [held,expired]
    ; sku 10 => live free=1
67 given back by hand or timer, unpaid (EShop#139): put sku=10:2 hold=50; reserve 1 a 10
    ; cancel 1/a => cancelled; reserve 2 a 10; at 51; order 2/a => expired
    ; sku 10 => live total=2 free=2 held=0 confirmed=0
67 paid orders end by return only: put sku=10:2 hold=50; reserve 1 a 10; confirm 1/a p
    ; cancel 1/a => too_late state=confirmed; at 99; order 1/a => confirmed
    ; return 1/a r all => returned; sku 10 => live total=2 free=2 confirmed=0
67 a sale without holds: put sku=10:2 hold=0; reserve 1 a 10 => confirmed
    ; cancel 1/a => too_late state=confirmed; return 1/a r all norestock => returned
    ; sku 10 => live total=1 free=1 confirmed=0
69 the right after cancel (membership-portal#262): put sku=10:5:1; reserve 1 a 10; cancel 1/a
    ; reserve 1 b 10 => held left=0; reserve 1 c 10 => limit left=0
73 more than the limit at first (chameleon-system#801): put sku=10:9:2
    ; reserve 1 a 10*3 => limit left=2
75 limit against expiry, before: put sku=10:5:1 hold=50; reserve 1 a 10; at 50
    ; reserve 1 b 10 => limit
75 limit against expiry, after: put sku=10:5:1 hold=50; reserve 1 a 10; at 51
    ; reserve 1 b 10 => held
    ; crash; user 1 => user live=1/b
79 executed after the time-out (lettuce#1426): put sku=10:1; at 3000
    ; reserve 1 a 10 notafter=1000 => stale
    ; status 1 a => unknown
81 taken or not? (spikeSystem#11): put sku=10:1; reserve 1 a 10; crash
    ; status 1 a => held order=1/a
    ; reserve 1 a 10 => held again
83 a fresh key for a retry (Truxify#14932): put sku=10:5:1; reserve 1 a 10
    ; reserve 1 b 10 => limit order=1/a
85 retry after sold out (keygen#305): put sku=10:0; reserve 1 a 10 => sold_out; adjust 10 1 x
    ; reserve 1 a 10 => held
119 quantities that wrap (CVE-2024-50944): put sku=10:4294967295:4294967295
    ; adjust 10 1 x => bad_request; reserve 1 a 10*4294967295 => held; reserve 1 b 10 => limit
    ; reserve 1 c 10*4294967295,10*2 => bad_request
121 a basket over SKUs (redis#4560): put sku=10:1 sku=11:1 sku=12:1; reserve 1 a 12,10,11 => held
127 early and on time (biliTickerBuy#1085): put sku=10:1 opens=1000; at 999
    ; reserve 1 a 10 => not_started retry=1; at 1000; reserve 1 a 10 => held
";

/// 13 (sanjiOP/seckill#3): parallel clicks of one user took six units.
#[test]
fn two_hundred_clicks_of_one_user_take_one_unit() {
    let mut script = Script::new(2);
    script.step("put sku=10:10:1");
    let answers: Vec<_> = (1..=200).map(|n| script.step(&format!("reserve 7 {n} 10"))).collect();
    assert_eq!(answers.iter().filter(|answer| answer.starts_with("held")).count(), 1);
    assert_eq!(answers.iter().filter(|answer| answer.starts_with("limit")).count(), 199);
    assert!(script.step("sku 10").contains("free=9"));
}

/// 19 (hfbin/Seckill#11): a clicker burned the stock, because it was taken before the limit was
/// checked.
#[test]
fn a_clicker_burns_no_stock() {
    let mut script = Script::new(3);
    script.step("put sku=10:100:1");
    for n in 1..=1000 {
        script.step(&format!("reserve 1 {n} 10"));
    }
    for user in 2..=100 {
        assert!(script.step(&format!("reserve {user} 1 10")).starts_with("held"), "{user}");
    }
    assert!(script.step("reserve 101 1 10").starts_with("sold_out"));
}

/// 85 (keygen#305): refusals were remembered, so that a retry could not win and memory grew.
#[test]
fn rejections_leave_nothing_behind() {
    let mut script = Script::new(2);
    script.step("put sku=10:0:1 sku=11:1");
    script.step("reserve 1 1 11");
    let before = script.engine.images();
    script.step("log");
    for n in 1..=2_000 {
        assert!(script.step(&format!("reserve {n} 5 10")).starts_with("sold_out"));
        assert!(script.step(&format!("reserve {n} 6 99")).starts_with("unknown_sku"));
        assert!(script.step(&format!("reserve {n} 7 11*2")).starts_with("sold_out"));
    }
    assert_eq!(script.step("log"), "[]");
    assert_eq!(script.engine.images(), before);
}

/// 35: eight users of one shard buy eight units, whatever the number of shards.
#[test]
fn users_of_one_shard_buy_everything() {
    for shards in 1..=3 {
        let mut script = Script::new(shards);
        script.step("put sku=10:8");
        let of = |user: &u64| {
            let user = stockade_protocol::UserId::new(*user).unwrap();
            let partition = stockade_protocol::routing::partition_of(user, common::PARTITIONS);
            usize::from(partition.get()) % shards == 0
        };
        for user in (1..).filter(of).take(8) {
            assert!(script.step(&format!("reserve {user} 1 10")).starts_with("held"));
        }
        assert!(script.step("sku 10").contains("free=0"));
    }
}
