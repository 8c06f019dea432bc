//! What the cache answers, and what it forgets, as tables of moments.

use super::*;
use stockade_protocol::RequestId;
use stockade_protocol::command::Line;

const TTL: Duration = Duration::from_millis(1000);

fn reserve(lines: &[(u64, u32)]) -> Reserve {
    let line =
        |(sku, quantity): &(u64, u32)| Line { sku: SkuId::new(*sku).unwrap(), quantity: *quantity };
    Reserve {
        sale: SaleId::new(1).unwrap(),
        user: stockade_protocol::UserId::new(7).unwrap(),
        request: RequestId::parse(b"r").unwrap(),
        lines: lines.iter().map(line).collect(),
        data: Default::default(),
        not_after: None,
    }
}

/// One step at a moment, in ms.
enum Do {
    /// The server answers this to these lines.
    Learn(&'static [(u64, u32)], Outcome, i64),
    Hear(Event),
    Empty,
    /// What is answered to these lines from the cache.
    Ask(&'static [(u64, u32)], Option<(Outcome, i64)>),
}

fn run(steps: Vec<(u64, Do)>) {
    let (start, mut cache) = (Instant::now(), SaleCache::new(TTL));
    for (at, step) in steps {
        let now = start + Duration::from_millis(at);
        match step {
            Do::Learn(lines, outcome, hint) => {
                cache.learn(&reserve(lines), &ReserveReply::rejected(outcome, hint), now);
            }
            Do::Hear(event) => cache.hear(&event, now),
            Do::Empty => cache.empty(now),
            Do::Ask(lines, expected) => {
                let answer = cache.answer(&reserve(lines), now);
                let found = answer.map(|reply| (reply.outcome, reply.retry_after_ms));
                assert_eq!(found, expected, "{lines:?} at {at} ms");
            }
        }
    }
}

#[test]
fn what_was_said_is_answered_within_its_time_and_no_longer() {
    use Do::*;
    use Outcome::*;
    run(vec![
        (0, Ask(&[(1, 1)], None)),
        (0, Learn(&[(1, 1)], SoldOut, -1)),
        (400, Ask(&[(1, 1)], Some((SoldOut, 600)))),
        (400, Ask(&[(1, 3)], Some((SoldOut, 600)))),
        (400, Ask(&[(2, 1)], None)),
        // A basket with it cannot win either.
        (400, Ask(&[(2, 1), (1, 1)], Some((SoldOut, 600)))),
        (1000, Ask(&[(1, 1)], None)),
    ]);
    for (outcome, hint, found) in [(Paused, 50, 500), (Ended, -1, -1)] {
        run(vec![
            (0, Learn(&[(1, 1)], outcome, hint)),
            (500, Ask(&[(9, 1)], Some((outcome, found)))),
            (1000, Ask(&[(9, 1)], None)),
        ]);
    }
    run(vec![
        // It opens before the time is over...
        (0, Learn(&[(1, 1)], NotStarted, 300)),
        (299, Ask(&[(1, 1)], Some((NotStarted, 1)))),
        (300, Ask(&[(1, 1)], None)),
        // ...or long after: then the opening may have been moved, and is asked for again.
        (400, Learn(&[(1, 1)], NotStarted, 60_000)),
        (1399, Ask(&[(1, 1)], Some((NotStarted, 59_001)))),
        (1400, Ask(&[(1, 1)], None)),
    ]);
}

#[test]
fn sold_out_for_many_is_not_sold_out_for_fewer() {
    use Do::*;
    use Outcome::*;
    run(vec![
        (0, Learn(&[(1, 5)], SoldOut, -1)),
        (1, Ask(&[(1, 4)], None)),
        (1, Ask(&[(1, 5)], Some((SoldOut, 999)))),
        (10, Learn(&[(1, 2)], SoldOut, -1)),
        (11, Ask(&[(1, 2)], Some((SoldOut, 999)))),
        // The larger ask is fresher; the smaller one still says more.
        (20, Learn(&[(1, 9)], SoldOut, -1)),
        (21, Ask(&[(1, 2)], Some((SoldOut, 989)))),
        (1010, Ask(&[(1, 2)], None)),
    ]);
    // Nobody says which SKU of a basket it was.
    run(vec![(0, Learn(&[(1, 1), (2, 1)], SoldOut, -1)), (1, Ask(&[(1, 1)], None))]);
    // It sells again.
    run(vec![
        (0, Learn(&[(1, 1)], SoldOut, -1)),
        (1, Learn(&[(1, 1)], Held, 0)),
        (2, Ask(&[(1, 1)], None)),
    ]);
}

#[test]
fn outcomes_that_are_the_users_own_are_not_kept() {
    use Do::*;
    use Outcome::*;
    for outcome in [Limit, BadQuantity, Throttled, Busy, UnknownSale, UnknownSku, Stale, Withdrawn]
    {
        run(vec![(0, Learn(&[(1, 1)], outcome, 5)), (1, Ask(&[(1, 1)], None))]);
    }
    let lines: &[&'static [(u64, u32)]] = &[&[(1, 0)], &[], &[(1, u32::MAX), (1, 1)]];
    for malformed in lines {
        run(vec![(0, Learn(&[(1, 1)], Ended, -1)), (1, Ask(malformed, None))]);
    }
}

#[test]
fn a_change_that_is_heard_of_empties_and_older_answers_are_not_kept() {
    use Do::*;
    use Outcome::*;
    let sale = SaleId::new(1).unwrap();
    let restock = || Event::Adjusted {
        sale,
        sku: SkuId::new(1).unwrap(),
        request: RequestId::parse(b"a").unwrap(),
        delta: 5,
        applied: 5,
        total: 5,
    };
    for (outcome, event) in
        [(SoldOut, restock()), (Paused, Event::SaleResumed(sale)), (Ended, restock())]
    {
        run(vec![
            (0, Learn(&[(1, 1)], outcome, -1)),
            (1, Ask(&[(1, 1)], Some((outcome, if outcome == Ended { -1 } else { 999 })))),
            (2, Hear(event)),
            (3, Ask(&[(1, 1)], None)),
            // Asked before the change was heard of, answered after it.
            (1, Learn(&[(1, 1)], outcome, -1)),
            (4, Ask(&[(1, 1)], None)),
        ]);
    }
    let other = SaleId::new(2).unwrap();
    run(vec![
        (0, Learn(&[(1, 1)], SoldOut, -1)),
        (1, Hear(Event::SalePaused(other))),
        (2, Ask(&[(1, 1)], Some((SoldOut, 998)))),
        (3, Empty),
        (4, Ask(&[(1, 1)], None)),
        (2, Learn(&[(1, 1)], SoldOut, -1)),
        (5, Ask(&[(1, 1)], None)),
        (6, Learn(&[(1, 1)], SoldOut, -1)),
        (7, Ask(&[(1, 1)], Some((SoldOut, 999)))),
    ]);
}
