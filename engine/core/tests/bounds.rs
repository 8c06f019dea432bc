//! What is bounded, and what happens at the bound.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::script::Script;
use stockade_protocol::limits::{
    ADJUSTS_PER_SALE_MAX, ENTRY_BYTES_MAX, LINES_MAX, RETURNS_PER_ORDER_MAX, SALES_MAX,
    SKUS_PER_SALE_MAX, TOMBSTONES_MAX,
};

fn step(script: &mut Script, command: &str, expected: &str) {
    let got = script.step(command);
    assert!(got.starts_with(expected), "`{command}` gave `{got}`, not `{expected}`");
}

#[test]
fn tombstones_of_a_user_and_sale() {
    let mut script = Script::new(2);
    script.step("put sku=10:5");
    script.step("in 2 put sku=10:5");
    for n in 1..=TOMBSTONES_MAX {
        step(&mut script, &format!("withdraw 7 {n}"), "withdrawn");
    }
    step(&mut script, "withdraw 7 9999", "refused state=unknown order=none rests");
    step(&mut script, "withdraw 7 1", "withdrawn");
    // The bound is per user and sale, and orders can still be withdrawn.
    step(&mut script, "withdraw 8 1", "withdrawn");
    step(&mut script, "in 2 withdraw 7 1", "withdrawn");
    step(&mut script, "reserve 7 9999 10", "held");
    step(&mut script, "withdraw 7 9999", "cancelled");
}

#[test]
fn partial_returns_of_an_order() {
    let mut script = Script::new(1);
    script.step("put sku=10:500 hold=0");
    script.step("reserve 7 1 10*100");
    for n in 1..=RETURNS_PER_ORDER_MAX {
        step(&mut script, &format!("return 7/1 {n} 10"), "returned state=confirmed");
    }
    step(&mut script, "return 7/1 9999 10", "refused state=confirmed");
    step(&mut script, "return 7/1 1 10", "already_returned");
    // All that is left can always come back.
    step(&mut script, "return 7/1 9999 all", "returned state=returned");
}

#[test]
fn lines_of_an_order() {
    let mut script = Script::new(1);
    let skus: Vec<_> = (1..=LINES_MAX + 1).map(|id| format!("sku={id}:9")).collect();
    script.step(&format!("put {}", skus.join(" ")));
    let lines = |count| (1..=count).map(|id| id.to_string()).collect::<Vec<_>>().join(",");
    step(&mut script, &format!("reserve 7 1 {}", lines(LINES_MAX + 1)), "bad_request");
    step(&mut script, &format!("reserve 7 1 {}", lines(LINES_MAX)), "held");
    step(&mut script, "crash", "");
    step(&mut script, &format!("reserve 7 1 {}", lines(LINES_MAX)), "held again");
    step(&mut script, "cancel 7/1", "cancelled");
    step(&mut script, "sku 64", "live total=9 free=9");
}

#[test]
fn sales_at_the_same_time() {
    let mut script = Script::new(1);
    for n in 1..=SALES_MAX {
        script.engine.run(put(n as u64));
    }
    step(&mut script, "in 5000 put sku=1:1", "bad_request there are 4096 sales");
    step(&mut script, "in 7 put grace=0 name=x", "changed");
    step(&mut script, "in 7 close", "closed");
    script.step("archive");
    step(&mut script, "in 5000 put sku=1:1", "created");
}

fn put(n: u64) -> stockade_protocol::Command {
    let patch = stockade_protocol::SalePatch::new(common::sale(n));
    stockade_protocol::Command::SalePut(Box::new(patch))
}

#[test]
fn skus_of_a_sale_and_bytes_of_its_entry() {
    let mut script = Script::new(1);
    let skus: Vec<_> = (1..=SKUS_PER_SALE_MAX).map(|id| format!("sku={id}:1")).collect();
    step(&mut script, &format!("put {}", skus.join(" ")), "created");
    step(&mut script, "put sku=99999:1", "bad_request a sale has 20000 SKUs at most");
    // Labels make a definition large; its entry must stay within the bound.
    let label = "x".repeat(100);
    let labels = |n: usize| (1..=n).map(|i| format!("{label}{i}")).collect::<Vec<_>>().join("+");
    let large: Vec<_> =
        (1..=SKUS_PER_SALE_MAX).map(|id| format!("sku={id}:1:0:0:{}", labels(2))).collect();
    let got = script.step(&format!("put {}", large.join(" ")));
    assert!(
        got.starts_with(&format!("bad_request the definition is larger than {ENTRY_BYTES_MAX}"))
    );
    let some: Vec<_> = (1..=10_000).map(|id| format!("sku={id}:1:0:0:{}", labels(2))).collect();
    step(&mut script, &format!("put {}", some.join(" ")), "changed");
}

#[test]
fn adjusts_of_a_sale() {
    let mut script = Script::new(1);
    script.step("put sku=10:5");
    script.step("in 2 put sku=10:5");
    for n in 1..=ADJUSTS_PER_SALE_MAX {
        script.adjust(10, 1, n as u64);
    }
    step(&mut script, "adjust 10 1 9999999", "refused applied=0");
    step(&mut script, "adjust 10 1 5", "adjusted applied=1 total=100005");
    step(&mut script, "in 2 adjust 10 1 9999999", "adjusted");
    step(&mut script, "crash", "");
    step(&mut script, "sku 10", "live total=100005 free=100005");
}
