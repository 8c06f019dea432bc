//! The rules of `reserve`, one case a line.

mod common;

use common::script::run_table;

#[test]
fn the_first_rule_that_applies_answers() {
    run_table(CASES);
}

const CASES: &str = "
no line: put sku=10:5; reserve 7 1 none => bad_request at_once retry=-1
quantity 0: put sku=10:5; reserve 7 1 10*0 => bad_request
sum overflows: put sku=10:5; reserve 7 1 10*4294967295,10*1 => bad_request
bad request comes before unknown sale: in 9 reserve 7 1 10*0 => bad_request
held: put sku=10:5; reserve 7 1 10*2 => held order=7/1 exp=1800000 retry=0 left=-1 rests
born confirmed: put sku=10:5 hold=0; reserve 7 1 10*2 => confirmed exp=none retry=0
again: put sku=10:5; reserve 7 1 10; reserve 7 1 10 => held again order=7/1 rests
again in other lines: put sku=10:5; reserve 7 1 10*2; reserve 7 1 10,10 => held again
again after end: put sku=10:5 closes=9; reserve 7 1 10; at 9; reserve 7 1 10 => held again
again after expiry: put sku=10:5 hold=5; reserve 7 1 10; at 6; reserve 7 1 10 => expired again
again before the timer: put sku=10:5 hold=5; reserve 7 1 10; late 6
    ; reserve 7 1 10 => expired again
again confirmed: put sku=10:5; reserve 7 1 10; confirm 7/1 p
    ; reserve 7 1 10 => confirmed again
again cancelled: put sku=10:5; reserve 7 1 10; cancel 7/1; reserve 7 1 10 => cancelled again
again returned: put sku=10:5 hold=0; reserve 7 1 10; return 7/1 1 all
    ; reserve 7 1 10 => returned again
again is before stale: put sku=10:5; reserve 7 1 10; at 9
    ; reserve 7 1 10 notafter=5 => held again
text ids: put sku=10:5; reserve 7 ab-1 10; reserve 7 ab-1 10 => held again order=7/ab-1
007 is not 7: put sku=10:5; reserve 7 7 10; reserve 7 007 10 => held order=7/007
same id, other user: put sku=10:5; reserve 7 1 10; reserve 8 1 10 => held order=8/1
same id, other sale: put sku=10:5; in 2 put sku=10:5; reserve 7 1 10
    ; in 2 reserve 7 1 10 => held retry=0
other lines: put sku=10:5; reserve 7 1 10
    ; reserve 7 1 10*2 => id_conflict order=7/1 retry=-1 rests
other sku: put sku=10:5 sku=11:5; reserve 7 1 10; reserve 7 1 11 => id_conflict order=7/1
withdrawn: put sku=10:5; withdraw 7 1; reserve 7 1 10 => withdrawn order=none retry=-1 rests
not after, inclusive: put sku=10:5; at 5; reserve 7 1 10 notafter=5 => held
stale: put sku=10:5; at 6; reserve 7 1 10 notafter=5 => stale retry=-1 at_once
stale before unknown sale: at 6; reserve 7 1 10 notafter=5 => stale
unknown sale: reserve 7 1 10 => unknown_sale retry=-1 at_once
unknown sku: put sku=10:5; reserve 7 1 10,11 => unknown_sku at_once
unknown sku before not started: put sku=10:5 opens=9; reserve 7 1 11 => unknown_sku
not started: put sku=10:5 opens=9; at 2; reserve 7 1 10 => not_started retry=7 at_once
started: put sku=10:5 opens=9; at 9; reserve 7 1 10 => held
ended: put sku=10:5 closes=9; at 9; reserve 7 1 10 => ended retry=-1 at_once
still open: put sku=10:5 closes=9; at 8; reserve 7 1 10 => held
closed: put sku=10:5; close; reserve 7 1 10 => ended
closed while armed: put sku=10:5 opens=9; close; reserve 7 1 10 => ended
paused: put sku=10:5; pause; reserve 7 1 10 => paused at_once; resume; reserve 7 1 10 => held
paused and armed: put sku=10:5 opens=9; pause; reserve 7 1 10 => not_started
paused and ended: put sku=10:5 closes=9; pause; at 9; reserve 7 1 10 => ended
paused before limits: put sku=10:5:1; pause; reserve 7 1 10*2 => paused
archived: put sku=10:5 grace=0; close; archive => 1.; reserve 7 1 10 => ended
per order: put sku=10:5:9:2; reserve 7 1 10*3 => bad_quantity retry=-1 at_once
    ; reserve 7 1 10*2 => held
per order, lines added: put sku=10:5:0:2; reserve 7 1 10*2,10*1 => bad_quantity
per order before limit: put sku=10:5:1:2; reserve 7 1 10*3 => bad_quantity
limit on the first: put sku=10:5:2; reserve 7 1 10*3 => limit left=2 order=none retry=-1
limit before sold out: put sku=10:1:1; reserve 7 1 10
    ; reserve 7 2 10 => limit order=7/1 exp=1800000 left=0 rests
limit names the newest live order: put sku=10:9:3; reserve 7 1 10; reserve 7 2 10; cancel 7/2
    ; reserve 7 3 10*3 => limit order=7/1 left=2
limit says when: put sku=10:5:1 hold=50; reserve 7 1 10; at 10
    ; reserve 7 2 10 => limit retry=40
limit of confirmed: put sku=10:5:1; reserve 7 1 10; confirm 7/1 p
    ; reserve 7 2 10 => limit retry=-1 order=7/1
limit of the sale: put limit=3 sku=10:5 sku=11:5; reserve 7 1 10*2
    ; reserve 7 2 11*2 => limit left=1; reserve 7 2 11 => held left=0
limits are per user: put sku=10:5:1; reserve 7 1 10; reserve 8 1 10 => held left=0
limits are per sku: put sku=10:5:1 sku=11:5:2; reserve 7 1 10; reserve 7 2 11 => held left=1
limits are per sale: put sku=10:5:1; in 2 put sku=10:5:1; reserve 7 1 10
    ; in 2 reserve 7 2 10 => held
left is the smallest: put limit=9 sku=10:5:4 sku=11:5:3; reserve 7 1 10*2,11*1 => held left=2
left of the sale: put limit=4 sku=10:5 sku=11:5:9; reserve 7 1 10*2,11*1 => held left=1
left when asked again: put sku=10:5:4; reserve 7 1 10*3; reserve 7 1 10*3 => held again left=1
limit cannot wrap: put limit=4294967295 sku=10:4294967295:4294967295
    ; reserve 7 1 10*4294967295 => held left=0; reserve 7 2 10 => limit
sold out: put sku=10:2; reserve 7 1 10*3 => sold_out retry=-1 left=-1 at_once
sold out with none: put sku=10:0; reserve 7 1 10 => sold_out retry=-1
sold out while held: put sku=10:1; reserve 7 1 10; reserve 8 1 10 => sold_out retry=1000
sold out for good: put sku=10:1 hold=0; reserve 7 1 10; reserve 8 1 10 => sold_out retry=-1
sold out, held a moment ago: put sku=10:1; reserve 7 1 10; confirm 7/1 p; at 100
    ; reserve 8 1 10 => sold_out retry=1000
sold out, held long ago: put sku=10:1; reserve 7 1 10; confirm 7/1 p; at 101
    ; reserve 8 1 10 => sold_out retry=-1
sold out before throttled: put sku=10:1 rate=1 burst=1; reserve 7 1 10
    ; reserve 8 1 10 => sold_out
throttled: put sku=10:9 rate=1 burst=1; reserve 7 1 10; reserve 8 1 10 => throttled at_once
    ; at 1000; reserve 8 1 10 => held
throttled says when: put sku=10:9 rate=2 burst=1; reserve 7 1 10; at 100
    ; reserve 8 1 10 => throttled retry=400
a user is throttled: put sku=10:9 urate=1; reserve 7 1 10; reserve 7 2 10 => throttled
    ; reserve 8 1 10 => held
a user's refusal uses no rate of the sale: put sku=10:9 urate=1 rate=1 burst=2; reserve 7 1 10
    ; reserve 7 2 10 => throttled; reserve 8 1 10 => held
again is not throttled: put sku=10:9 rate=1 burst=1; reserve 7 1 10
    ; reserve 7 1 10 => held again
rejections use no rate: put sku=10:9:1 rate=1 burst=1; reserve 7 1 10*2 => limit
    ; reserve 7 1 10 => held
rejections are not remembered: put sku=10:1; reserve 7 1 10*2 => sold_out
    ; reserve 7 1 10*1 => held
a basket takes all: put sku=10:2 sku=11:2; reserve 7 1 11*2,10*1 => held
    ; sku 10 => live free=1; sku 11 => sold_out free=0
a basket takes nothing: put sku=10:2 sku=11:1; reserve 7 1 11*2,10*1 => sold_out
    ; sku 10 => live free=2; sku 11 => live free=1
units come back: put sku=10:1; reserve 7 1 10; cancel 7/1; reserve 8 1 10 => held
";
