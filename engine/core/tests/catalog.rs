//! The catalog's commands, one case a line.

mod common;

use common::script::run_table;

#[test]
fn put_creates_and_merges() {
    run_table(PUT);
}

#[test]
fn pause_resume_and_close_answer() {
    run_table(SWITCH);
}

#[test]
fn adjust_answers() {
    run_table(ADJUST);
}

#[test]
fn a_sale_is_archived_after_its_grace_when_nothing_is_held() {
    run_table(ARCHIVE);
}

const PUT: &str = "
created: put sku=10:5 => created; sales => [1:live:1]
the same again: put sku=10:5:1:1:origin name=x hold=9
    ; put sku=10:5:1:1:origin name=x hold=9 => unchanged
the same again, later: put opens=now sku=10:5; at 9; put opens=now sku=10:5 => unchanged
    ; sale => live opens=0
the same after its end: put opens=0 closes=9 sku=10:5; at 9
    ; put opens=0 closes=9 sku=10:5 => unchanged
changed: put sku=10:5; put limit=3 => changed; put limit=3 => unchanged
    ; reserve 7 1 10*4 => limit left=3
absent keys stay: put hold=9 limit=2 sku=10:5:1; put name=x => changed; put hold=9 => unchanged
    ; reserve 7 1 10*2 => limit left=1
a new sku: put sku=10:5; reserve 7 1 10; put sku=11:3 => changed; sku 10 => live free=4 held=1
    ; sku 11 => live total=3 free=3; reserve 7 2 11,10 => held; put sku=11:3 => unchanged
a sku between others: put sku=10:5 sku=30:5; reserve 7 1 30*2; put sku=20:4 => changed
    ; sku 30 => live held=2 free=3; reserve 8 1 20*4,30*3 => held; sku 30 => sold_out
labels: put sku=10:5:0:0:a+b; put sku=10:5:0:0:b+a => unchanged; put sku=10:5:0:0:a => changed
    ; put sku=10:5 => unchanged
stock is not put twice: put sku=10:5; put sku=10:6 => bad_request adjust; sku 10 => live total=5
stock stays the one first put: put sku=10:5; adjust 10 3 a; put sku=10:5 => unchanged
    ; put sku=10:8 => bad_request; sku 10 => live total=8
stock may be left out: put sku=10:5; put sku=10::2 => changed; reserve 7 1 10*3 => limit
a new sku needs a stock: put sku=10 => bad_request stock
a sku twice: put sku=10:5 sku=10:5 => bad_request twice
closes before opens: put opens=9 closes=9 sku=10:5 => bad_request closes_at
opens too late: put opens_raw=16725225600001 sku=10:5 => bad_request opens_at
opens never: put opens_raw=0 sku=10:5 => bad_request opens_at
hold too long: put hold=316224000001 => bad_request hold_ms; put hold=316224000000 => created
extend too long: put extend=316224000001 => bad_request extend_max_ms
grace too long: put grace=316224000001 => bad_request grace_ms
a label twice: put sku=10:5:0:0:a+a => bad_request twice
too many labels: put sku=10:5:0:0:a+b+c+d+e+f+g+h+i+j+k+l+m+n+o+p+q => bad_request labels
a bad put changes nothing: put sku=10:5; put limit=3 sku=10:6 => bad_request
    ; put limit=0 => unchanged
not opened again: put closes=9 sku=10:5; at 9; put closes=99 => bad_request ended
    ; put closes=never => bad_request; put closes=8 => changed; put limit=1 => changed
not opened again after close: put sku=10:5; close; put closes=99 => changed
    ; reserve 7 1 10 => ended
closed earlier: put closes=99 sku=10:5; put closes=5 => changed; at 5; reserve 7 1 10 => ended
opened later: put opens=5 sku=10:5; put opens=9 => changed; at 5
    ; reserve 7 1 10 => not_started retry=4
a stock of 2^32 - 1: put sku=10:4294967295 => created; reserve 7 1 10*4294967295 => held
what is sold stays: put sku=10:5 hold=9; reserve 7 1 10; put hold=0; order 7/1 => held exp=9
    ; reserve 7 2 10 => confirmed
a rate that is changed keeps its bucket: put sku=10:9 rate=1 burst=1; reserve 7 1 10; put name=x
    ; reserve 7 2 10 => throttled
puts survive: put sku=10:5 limit=2; put sku=11:4; pause; crash; sales => [1:paused:2]
    ; put sku=10:5 sku=11:4 limit=2 => unchanged; sku 11 => paused total=4 free=4
";

const SWITCH: &str = "
unknown: pause => unknown_sale; resume => unknown_sale; close => unknown_sale
pause: put sku=10:5; resume => unchanged; pause => paused; pause => unchanged
    ; sales => [1:paused:1]
    ; resume => resumed; resume => unchanged; sales => [1:live:1]
close: put sku=10:5; close => closed; close => unchanged; pause => unchanged; sales => [1:ended:1]
close when over: put closes=9 sku=10:5; at 9; close => unchanged; pause => unchanged
close while armed: put opens=9 sku=10:5; sales => [1:armed:1]; pause => paused
    ; sales => [1:armed:1]
    ; close => closed; sales => [1:ended:1]
archived: put grace=0; close; archive; pause => unknown_sale; sales => []
paused stays: put sku=10:5; pause; put limit=1; sales => [1:paused:1]; crash; resume => resumed
";

const ADJUST: &str = "
up: put sku=10:5; adjust 10 3 a => adjusted applied=3 total=8 free=8; sku 10 => live total=8
again: put sku=10:5; adjust 10 3 a; adjust 10 3 a => adjusted applied=3 total=8 free=8
    ; sku 10 => live total=8; crash; adjust 10 3 a => adjusted applied=3 total=8
other content: put sku=10:5 sku=11:5; adjust 10 3 a; adjust 10 4 a => id_conflict applied=0
    ; adjust 11 3 a => id_conflict
ids are per sale: put sku=10:5; in 2 put sku=10:5; adjust 10 3 a
    ; in 2 adjust 10 4 a => adjusted applied=4
down: put sku=10:5; adjust 10 -2 a => adjusted applied=-2 total=3 free=3
    ; reserve 7 1 10*4 => sold_out
down to what is free: put sku=10:5; reserve 7 1 10*4
    ; adjust 10 -4 a => adjusted applied=-1 total=4 free=0
    ; adjust 10 -4 a => adjusted applied=-1; adjust 10 -1 b => adjusted applied=0 total=4
    ; crash; sku 10 => sold_out total=4 held=4
sold out, then more: put sku=10:1; reserve 7 1 10; reserve 8 1 10 => sold_out; adjust 10 1 a
    ; reserve 8 1 10 => held
zero: put sku=10:5; adjust 10 0 a => bad_request
absurd: put sku=10:5; adjust 10 4294967296 a => bad_request
    ; adjust 10 -4294967296 a => bad_request
    ; adjust 10 9223372036854775807 a => bad_request
    ; adjust 10 -9223372036854775808 a => bad_request
past 2^32: put sku=10:4294967295; adjust 10 1 a => bad_request; adjust 10 -1 a => adjusted
    ; adjust 10 1 b => adjusted total=4294967295
unknown: adjust 10 1 a => unknown_sale; put sku=10:5; adjust 11 1 a => unknown_sku
ended: put sku=10:5; close; adjust 10 1 a => adjusted total=6
archived: put sku=10:5 grace=0; close; archive; adjust 10 1 a => unknown_sale
removed units are not in the total: put sku=10:5 hold=0; reserve 7 1 10*2
    ; return 7/1 a all norestock; adjust 10 1 a => adjusted applied=1 total=4 free=4
";

const ARCHIVE: &str = "
after its grace: put sku=10:5 closes=9 grace=5; at 13; archive => .; at 14; archive => 1.
closed: put sku=10:5 grace=5; archive => .; at 10; close; at 14; archive => .; at 15
    ; archive => 1.
no end: put sku=10:5 grace=0; at 99; archive => .
while held: put sku=10:5 closes=9 grace=0 hold=50; reserve 7 1 10; at 9; archive => .
    ; at 51; archive => 1.
one that is held does not keep the others: put sku=10:5 grace=0; in 2 put sku=10:5 grace=0
    ; reserve 7 1 10; close; in 2 close; archive => 2.; cancel 7/1; archive => 1.
the id is used up: put sku=10:5 grace=0; close; archive; put sku=10:5 => bad_request archived
    ; crash; put sku=10:5 => bad_request archived; reserve 7 1 10 => ended
others stay: put sku=10:5:2 grace=0 hold=0; in 2 put sku=10:5:2; in 2 reserve 7 9 10
    ; reserve 7 1 10; close; archive => 1.; in 2 order 7/9 => held
    ; in 2 reserve 7 8 10 => held left=0
    ; crash; in 2 reserve 7 7 10 => limit order=7/8
order numbers go on: put sku=10:5 grace=0 hold=0; reserve 7 1 10; close; archive
    ; in 2 put sku=10:5; crash; snapshot; crash; in 2 reserve 7 2 10 => held
    ; in 2 confirm 7/2 p => confirmed
tombstones go too: put sku=10:5 grace=0; withdraw 7 1; close; archive; status 7 1 => archived
units on their way back are dropped: put sku=10:5 grace=0; reserve 7 1 10; commits off; cancel 7/1
    ; close; archive => 1.; commit; crash; reserve 7 1 10 => ended
";
