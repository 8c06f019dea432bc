//! confirm, cancel, withdraw, extend, return and the questions: every answer and remark, one case a
//! line.

mod common;

use common::script::run_table;

#[test]
fn confirm_answers() {
    run_table(CONFIRM);
}

#[test]
fn revive_confirms_an_expired_order_in_one_step() {
    run_table(REVIVE);
}

#[test]
fn cancel_and_withdraw_answers() {
    run_table(CANCEL);
}

#[test]
fn extend_answers() {
    run_table(EXTEND);
}

#[test]
fn return_answers() {
    run_table(RETURN);
}

#[test]
fn questions_show_what_is_there() {
    run_table(QUESTIONS);
}

const CONFIRM: &str = "
confirmed: put sku=10:5; reserve 7 1 10*2
    ; confirm 7/1 p => confirmed state=confirmed order=7/1 rests
    ; sku 10 => live held=0 confirmed=2 free=3; log => [held,confirmed]
same reference: put sku=10:5; reserve 7 1 10; confirm 7/1 p
    ; confirm 7/1 p => already_confirmed rests
    ; log => [held,confirmed]
other reference: put sku=10:5; reserve 7 1 10; confirm 7/1 p
    ; confirm 7/1 q => id_conflict state=confirmed; confirm 7/1 q => id_conflict
    ; confirm 7/1 p => already_confirmed; log => [held,confirmed,late_payment]
at the deadline: put sku=10:5 hold=50; reserve 7 1 10; at 50; confirm 7/1 p => confirmed
past the deadline: put sku=10:5 hold=50; reserve 7 1 10; at 51
    ; confirm 7/1 p => too_late state=expired; log => [held,expired,late_payment]
past the deadline, timer late: put sku=10:5 hold=50; reserve 7 1 10; late 51
    ; confirm 7/1 p => too_late state=expired; log => [held,expired,late_payment]
late once per reference: put sku=10:5 hold=50; reserve 7 1 10; at 51; confirm 7/1 p
    ; confirm 7/1 p => too_late; confirm 7/1 q => too_late; confirm 7/1 q
    ; log => [held,expired,late_payment,late_payment]
after cancel: put sku=10:5; reserve 7 1 10; cancel 7/1; confirm 7/1 p => too_late state=cancelled
    ; confirm 7/1 p; confirm 7/1 p; log => [held,cancelled,late_payment]
after return, own reference: put sku=10:5; reserve 7 1 10; confirm 7/1 p; return 7/1 1 all
    ; confirm 7/1 p => too_late state=returned; log => [held,confirmed,returned]
after return, other reference: put sku=10:5; reserve 7 1 10; confirm 7/1 p; return 7/1 1 all
    ; confirm 7/1 q => too_late state=returned; log => [held,confirmed,returned,late_payment]
after return without a payment: put sku=10:5 hold=0; reserve 7 1 10; return 7/1 1 all
    ; confirm 7/1 p => too_late state=returned; log => [confirmed,returned,late_payment]
born confirmed takes its first: put sku=10:5 hold=0; reserve 7 1 10
    ; confirm 7/1 p => confirmed state=confirmed; confirm 7/1 p => already_confirmed
    ; confirm 7/1 q => id_conflict; order 7/1 => confirmed pay=p
    ; log => [confirmed,confirmed,late_payment]
born confirmed, returned in part: put sku=10:5 hold=0; reserve 7 1 10*2; return 7/1 1 10
    ; confirm 7/1 p => confirmed
sixteen references: put sku=10:5; reserve 7 1 10; confirm 7/1 p; confirm 7/1 q1; confirm 7/1 q2
    ; confirm 7/1 q3; confirm 7/1 q4; confirm 7/1 q5; confirm 7/1 q6; confirm 7/1 q7
    ; confirm 7/1 q8; confirm 7/1 q9; confirm 7/1 q10; confirm 7/1 q11; confirm 7/1 q12
    ; confirm 7/1 q13; confirm 7/1 q14; confirm 7/1 q15 => id_conflict
    ; confirm 7/1 q16 => refused state=confirmed; confirm 7/1 q15 => id_conflict
    ; confirm 7/1 p => already_confirmed
unknown: put sku=10:5; confirm p1/1 p => unknown_order state=unknown order=p1/1 at_once
number 0: confirm p1/0 p => unknown_order
no such partition: confirm p6/1 p => unknown_order at_once
archived: put sku=10:5 hold=0 grace=0; reserve 7 1 10; close; archive => 1.
    ; confirm 7/1 p => too_late state=archived order=7/1 rests; confirm 7/1 p => too_late
    ; log => [confirmed,late_payment,late_payment]
paused, ended, closed: put sku=10:5 closes=99; reserve 7 1 10; reserve 8 1 10; reserve 9 1 10
    ; pause; confirm 7/1 p => confirmed; at 99; confirm 8/1 p => confirmed
    ; confirm 9/1 p => confirmed
";

const REVIVE: &str = "
not allowed: put sku=10:5 hold=9; reserve 7 1 10; at 10; confirm 7/1 p => too_late state=expired
units are free: put sku=10:5 hold=9 revive; reserve 7 1 10*2; at 10; log => [held,expired]
    ; confirm 7/1 p => confirmed state=confirmed; sku 10 => live confirmed=2 free=3 held=0
    ; log => [confirmed]; order 7/1 => confirmed pay=p lines=10*2
    ; confirm 7/1 p => already_confirmed; user 7 => user units=10*2:-1 live=7/1
units are gone: put sku=10:2 hold=9 revive; reserve 7 1 10*2; at 10; reserve 8 1 10
    ; confirm 7/1 p => too_late state=expired; sku 10 => live free=1
told late stays late: put sku=10:2 hold=9 revive; reserve 7 1 10*2; at 10; reserve 8 1 10
    ; confirm 7/1 p => too_late; cancel 8/1; confirm 7/1 p => too_late
    ; confirm 7/1 q => confirmed
limit is used: put sku=10:5:1 hold=9 revive; reserve 7 1 10; at 10; reserve 7 2 10
    ; confirm 7/1 p => too_late state=expired; confirm 7/2 q => confirmed
limit of the sale: put limit=2 sku=10:5 sku=11:5 hold=9 revive; reserve 7 1 10*2; at 10
    ; reserve 7 2 11; confirm 7/1 p => too_late
a basket: put sku=10:2 sku=11:1 hold=9 revive; reserve 7 1 10*2,11; at 10; reserve 8 1 11
    ; confirm 7/1 p => too_late; sku 10 => live free=2; cancel 8/1; confirm 7/1 q => confirmed
    ; sku 10 => sold_out free=0 confirmed=2; sku 11 => sold_out confirmed=1
ended: put sku=10:5 hold=9 closes=5 revive; reserve 7 1 10; at 10; confirm 7/1 p => confirmed
cancelled is not revived: put sku=10:5 revive; reserve 7 1 10; cancel 7/1
    ; confirm 7/1 p => too_late state=cancelled
expiry not durable: put sku=10:1 hold=9 revive; reserve 7 1 10; commits off; at 10
    ; confirm 7/1 p => too_late; commit; confirm 7/1 q => confirmed
returns after it: put sku=10:5 hold=9 revive; reserve 7 1 10; at 10; confirm 7/1 p
    ; return 7/1 1 all => returned; sku 10 => live free=5
";

const CANCEL: &str = "
cancelled: put sku=10:5; reserve 7 1 10*2; cancel 7/1 => cancelled state=cancelled order=7/1 rests
    ; sku 10 => live free=5 held=0; cancel 7/1 => already_cancelled; log => [held,cancelled]
confirmed: put sku=10:5; reserve 7 1 10; confirm 7/1 p; cancel 7/1 => too_late state=confirmed
expired: put sku=10:5 hold=9; reserve 7 1 10; at 10; cancel 7/1 => too_late state=expired
due: put sku=10:5 hold=9; reserve 7 1 10; late 10; cancel 7/1 => too_late state=expired
    ; log => [held,expired]
at the deadline: put sku=10:5 hold=9; reserve 7 1 10; at 9; cancel 7/1 => cancelled
returned: put sku=10:5 hold=0; reserve 7 1 10; return 7/1 1 all
    ; cancel 7/1 => too_late state=returned
unknown: cancel p2/1 => unknown_order
archived: put sku=10:5 hold=0 grace=0; reserve 7 1 10; close; archive
    ; cancel 7/1 => too_late state=archived
right comes back: put sku=10:5:1; reserve 7 1 10; cancel 7/1; reserve 7 2 10 => held left=0
right comes back with expiry: put sku=10:5:1 hold=9; reserve 7 1 10; at 10
    ; reserve 7 2 10 => held left=0; log => [held,expired,held]
the right is back before the units: put sku=10:1:1; reserve 7 1 10; commits off; cancel 7/1
    ; reserve 7 2 10 => sold_out; commit; reserve 7 3 10 => held
withdraw a held order: put sku=10:5; reserve 7 1 10
    ; withdraw 7 1 => cancelled state=cancelled order=7/1
    ; withdraw 7 1 => already_cancelled; sku 10 => live free=5
withdraw a confirmed order: put sku=10:5 hold=0; reserve 7 1 10
    ; withdraw 7 1 => too_late state=confirmed
withdraw an expired order: put sku=10:5 hold=9; reserve 7 1 10; late 10
    ; withdraw 7 1 => too_late state=expired
withdraw before it came: put sku=10:5; withdraw 7 1 => withdrawn state=withdrawn order=none rests
    ; withdraw 7 1 => withdrawn; log => [withdrawn]; reserve 7 1 10 => withdrawn
    ; status 7 1 => withdrawn order=none
withdraw is per user: put sku=10:5; withdraw 7 1; reserve 8 1 10 => held
withdraw text: put sku=10:5; withdraw 7 abc; reserve 7 abc 10 => withdrawn; crash
    ; reserve 7 abc 10 => withdrawn
withdraw in an unknown sale: withdraw 7 1 => unknown_sale state=unknown at_once
withdraw in an armed sale: put sku=10:5 opens=9; withdraw 7 1 => withdrawn; at 9
    ; reserve 7 1 10 => withdrawn
withdraw in an archived sale: put sku=10:5 grace=0; close; archive
    ; withdraw 7 1 => too_late state=archived
";

const EXTEND: &str = "
extended: put sku=10:5 hold=50 extend=20; reserve 7 1 10; extend 7/1 60 => extended state=held
    ; order 7/1 => held exp=60; at 60; confirm 7/1 p => confirmed
runs out later: put sku=10:5 hold=50 extend=20; reserve 7 1 10; extend 7/1 60; at 60
    ; order 7/1 => held; at 61; order 7/1 => expired; log => [held,extended,expired]
no extension: put sku=10:5 hold=50; reserve 7 1 10; extend 7/1 51 => refused state=held
as long as allowed: put sku=10:5 hold=50 extend=20; reserve 7 1 10; extend 7/1 71 => refused
    ; extend 7/1 70 => extended
counted from the first deadline: put sku=10:5 hold=50 extend=20; reserve 7 1 10
    ; extend 7/1 60 => extended; extend 7/1 70 => extended; extend 7/1 71 => refused
    ; crash; extend 7/1 71 => refused
earlier changes nothing: put sku=10:5 hold=50 extend=20; reserve 7 1 10; extend 7/1 60
    ; extend 7/1 55 => extended; extend 7/1 60 => extended; order 7/1 => held exp=60
    ; log => [held,extended]
earlier than the first: put sku=10:5 hold=50; reserve 7 1 10; extend 7/1 10 => extended
    ; order 7/1 => held exp=50
too late: put sku=10:5 hold=50 extend=20; reserve 7 1 10; at 51
    ; extend 7/1 60 => too_late state=expired
too late, timer late: put sku=10:5 hold=50 extend=20; reserve 7 1 10; late 51
    ; extend 7/1 60 => too_late state=expired
at the deadline: put sku=10:5 hold=50 extend=20; reserve 7 1 10; at 50; extend 7/1 60 => extended
confirmed: put sku=10:5 extend=20; reserve 7 1 10; confirm 7/1 p
    ; extend 7/1 60 => too_late state=confirmed
unknown: extend p0/9 60 => unknown_order
archived: put sku=10:5 hold=0 grace=0; reserve 7 1 10; close; archive
    ; extend 7/1 60 => too_late state=archived
ended: put sku=10:5 hold=50 extend=20 closes=9; reserve 7 1 10; at 9; extend 7/1 60 => extended
";

const RETURN: &str = "
all: put sku=10:5 hold=0; reserve 7 1 10*2
    ; return 7/1 a all => returned state=returned order=7/1 rests
    ; sku 10 => live free=5 confirmed=0 total=5; log => [confirmed,returned]
again: put sku=10:5 hold=0; reserve 7 1 10*2; return 7/1 a all
    ; return 7/1 a all => already_returned state=returned
    ; return 7/1 a 10*2 => already_returned; return 7/1 a 10*1 => id_conflict
in parts: put sku=10:5 hold=0; reserve 7 1 10*3; return 7/1 a 10*1 => returned state=confirmed
    ; order 7/1 => confirmed lines=10*3 back=10*1; sku 10 => live confirmed=2 free=3
    ; return 7/1 b 10*2 => returned state=returned; order 7/1 => returned back=10*3
all that is left: put sku=10:5 sku=11:5 hold=0; reserve 7 1 10*3,11; return 7/1 a 10
    ; return 7/1 b all => returned state=returned; order 7/1 => returned back=10*3,11*1
same id again, in parts: put sku=10:5 hold=0; reserve 7 1 10*3; return 7/1 a 10*1
    ; return 7/1 a 10*1 => already_returned state=confirmed; return 7/1 a 10*2 => id_conflict
    ; return 7/1 a all => id_conflict; sku 10 => live confirmed=2
same id, other flags: put sku=10:5 hold=0; reserve 7 1 10*3; return 7/1 a 10*1
    ; return 7/1 a 10*1 norestock => id_conflict; return 7/1 a 10*1 noright => id_conflict
ids are per order: put sku=10:5 hold=0; reserve 7 1 10; reserve 7 2 10; return 7/1 a all
    ; return 7/2 a all => returned
too many: put sku=10:5 hold=0; reserve 7 1 10*2; return 7/1 a 10*3 => bad_quantity state=confirmed
    ; return 7/1 b 10*1; return 7/1 c 10*2 => bad_quantity
another sku: put sku=10:5 sku=11:5 hold=0; reserve 7 1 10; return 7/1 a 11 => bad_quantity
quantity 0: put sku=10:5 hold=0; reserve 7 1 10; return 7/1 a 10*0 => bad_request
lines added: put sku=10:5 hold=0; reserve 7 1 10*2; return 7/1 a 10,10 => returned state=returned
held: put sku=10:5; reserve 7 1 10; return 7/1 a all => too_late state=held
cancelled: put sku=10:5; reserve 7 1 10; cancel 7/1; return 7/1 a all => too_late state=cancelled
expired: put sku=10:5 hold=9; reserve 7 1 10; late 10; return 7/1 a all => too_late state=expired
new id when nothing is left: put sku=10:5 hold=0; reserve 7 1 10; return 7/1 a all
    ; return 7/1 b all => too_late state=returned
unknown: return p0/5 a all => unknown_order
archived: put sku=10:5 hold=0 grace=0; reserve 7 1 10; close; archive
    ; return 7/1 a all => too_late state=archived
restocked units can be sold: put sku=10:1 hold=0; reserve 7 1 10; return 7/1 a all
    ; reserve 8 1 10 => confirmed
no restock: put sku=10:5 hold=0; reserve 7 1 10*2; return 7/1 a 10 norestock
    ; sku 10 => live total=4 free=3 confirmed=1; crash; sku 10 => live total=4 free=3 confirmed=1
right comes back: put sku=10:5:2 hold=0; reserve 7 1 10*2; return 7/1 a 10
    ; user 7 => user units=10*1:1 live=7/1; reserve 7 2 10 => confirmed left=0
right stays used: put sku=10:5:2 hold=0; reserve 7 1 10*2; return 7/1 a 10 noright
    ; reserve 7 2 10 => limit left=0; user 7 => user units=10*2:0
right stays used by all: put sku=10:5:2 hold=0; reserve 7 1 10*2; return 7/1 a all noright
    ; reserve 7 2 10 => limit left=0 order=none; user 7 => user units=10*2:0 live=
    ; crash; reserve 7 2 10 => limit left=0
not durable yet: put sku=10:1 hold=0; reserve 7 1 10; commits off; return 7/1 a all
    ; sku 10 => sold_out confirmed=1 free=0; reserve 8 1 10 => sold_out; commit
    ; sku 10 => live free=1; reserve 8 1 10 => confirmed
not durable yet, no restock: put sku=10:2 hold=0; reserve 7 1 10; commits off
    ; return 7/1 a all norestock; sku 10 => live confirmed=1 total=2; commit
    ; sku 10 => live confirmed=0 total=1 free=1
";

const QUESTIONS: &str = "
order: put sku=10:5 sku=11:5; reserve 7 1 11*2,10 data=9
    ; order 7/1 => held order=7/1 sale=1 user=7 exp=1800000 pay=none lines=10*1,11*2 back= rests
status: put sku=10:5; reserve 7 1 10; status 7 1 => held order=7/1; cancel 7/1
    ; status 7 1 => cancelled order=7/1; status 7 2 => unknown order=none sale=none rests
status of nobody: status 7 1 => unknown order=none at_once
order of nobody: order p3/1 => unknown order=none at_once
order above the last: put sku=10:5; reserve 7 1 10; order p3/99 => unknown
archived: put sku=10:5 hold=0 grace=0; reserve 7 1 10; close; archive
    ; order 7/1 => archived order=none sale=none; status 7 1 => archived
    ; user 7 => user units= live=
    ; sku 10 => unknown total=0; sale => null; list => []
user: put limit=9 sku=10:5:3 sku=11:5; reserve 7 1 10*2; reserve 7 2 11*4; reserve 7 3 11
    ; user 7 => user units=10*2:1,11*5:2 live=7/1,7/2,7/3; cancel 7/2
    ; user 7 => user units=10*2:1,11*1:6 live=7/1,7/3 rests
user of nobody: user 7 => user units= live= at_once
user without limits: put sku=10:5; reserve 7 1 10; user 7 => user units=10*1:-1
sku states: put sku=10:1 opens=5 closes=9; sku 10 => armed total=1 free=1
    ; sku 11 => unknown total=0
    ; in 2 sku 10 => unknown; at 5; sku 10 => live; reserve 7 1 10; sku 10 => sold_out held=1
    ; pause; sku 10 => paused; at 9; sku 10 => ended
sale: put name=a sku=10:3 sku=11:4 opens=0; reserve 7 1 10; sale => live opens=0 skus=10:2,11:4
list: put sku=10:50; reserve 7 1 10; reserve 7 2 10; reserve 8 1 10; reserve 7 3 10; confirm 7/2 p
    ; in 2 put sku=10:5; in 2 reserve 7 9 10
    ; list user=7 => [7/1,7/2,7/3]; list user=7 state=held => [7/1,7/3]
    ; list user=7 count=2 => [7/1,7/2]; list user=7 count=2 after=7/2 => [7/3]
    ; list state=confirmed => [7/2]; list user=9 => []; in 2 list => [7/9]
";
