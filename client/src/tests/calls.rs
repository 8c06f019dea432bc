//! Retries and doubt: what a caller is told when answers get lost.

use super::*;
use crate::error::{Error, InDoubt};
use crate::exchange::Pick;
use crate::testing::{Fault, Greeting};
use crate::{WhenBusy, WhenFull};
use stockade_protocol::command::Route;
use stockade_protocol::text::{PaymentRef, Reason};
use stockade_protocol::wire::ErrorCode;
use stockade_protocol::{OrderState, Outcome};

fn doubt(of: u64, request: &str) -> Error {
    let request = RequestId::parse(request.as_bytes()).unwrap();
    Error::InDoubt(InDoubt::Request { sale: sale(), user: user(of), request })
}

/// A reserve was decided and its connection cut; the repetition met a server error. The caller was
/// told "server error", believed that nothing had happened, and the order stayed.
#[tokio::test]
async fn a_reserve_that_is_cut_and_then_fails_is_in_doubt_and_can_be_resolved() {
    let server = server(5);
    let client = client(&server).await;
    server.on_verbs([Some(Fault::CutAfter), Some(Fault::Error(ErrorCode::Failed))]);
    let error = client.reserve(reserve(7, "r1", 2)).await.unwrap_err();
    assert_eq!(error, doubt(7, "r1"));
    let Error::InDoubt(doubt) = error else { unreachable!() };
    let view = client.resolve(&doubt).await.unwrap().unwrap();
    assert_eq!((view.state, view.lines[0].quantity), (OrderState::Held, 2));
}

/// The repetition of a lost reserve was sold out: the lost one may still win.
#[tokio::test]
async fn a_rejection_after_a_lost_attempt_is_in_doubt_and_withdraw_settles_it() {
    let server = server(0);
    let client = client(&server).await;
    server.on_verbs([Some(Fault::CutBefore)]);
    assert_eq!(client.reserve(reserve(7, "r1", 1)).await.unwrap_err(), doubt(7, "r1"));
    let request = RequestId::parse(b"r1").unwrap();
    let reply = client.withdraw(sale(), user(7), request).await.unwrap();
    assert_eq!(reply.outcome, Outcome::Withdrawn);
}

#[tokio::test]
async fn a_rejection_by_a_server_that_was_started_anew_is_an_answer() {
    let server = server(0);
    let client = client(&server).await;
    server.on_verbs([Some(Fault::Ignore)]);
    let call = tokio::spawn({
        let client = client.clone();
        async move { client.reserve(reserve(7, "r1", 1)).await }
    });
    until("the reserve is seen", || reserves(&server).len() == 1).await;
    server.restart().unwrap();
    assert_eq!(call.await.unwrap().unwrap().outcome, Outcome::SoldOut);
}

#[tokio::test]
async fn a_cut_connection_gives_the_same_order_on_the_next() {
    for fault in [Fault::CutBefore, Fault::CutAfter, Fault::Garbage] {
        let server = server(5);
        let client = client(&server).await;
        server.on_verbs([Some(fault.clone())]);
        let reply = client.reserve(reserve(7, "r1", 2)).await.unwrap();
        assert_eq!(reply.outcome, Outcome::Held, "{fault:?}");
        assert_eq!(reply.again, fault != Fault::CutBefore, "{fault:?}");
        assert_eq!(client.sku(sale(), sku()).await.unwrap().free, 3, "{fault:?}");
        let seen = reserves(&server);
        assert!(seen.len() == 2 && seen[0].1 == seen[1].1 && seen[0].0 != seen[1].0, "{seen:?}");
    }
}

/// The answer was lost on a connection that lived: the call waited for its whole time-out.
#[tokio::test]
async fn a_lost_answer_is_asked_again_with_the_same_request_id_on_another_connection() {
    let server = server(5);
    let client = patient(&server).attempt_timeout(Duration::from_millis(30));
    let client = client.connect().await.unwrap();
    server.on_verbs([Some(Fault::LoseAnswer), Some(Fault::LoseAnswer)]);
    let reply = client.reserve(reserve(7, "r1", 2)).await.unwrap();
    assert_eq!((reply.outcome, reply.again), (Outcome::Held, true));
    let seen = reserves(&server);
    assert!(seen.len() >= 3 && seen.iter().all(|(_, request)| request == "r1"), "{seen:?}");
    assert!(seen[0].0 != seen[1].0 && seen[1].0 != seen[2].0, "{seen:?}");
    assert_eq!(client.sku(sale(), sku()).await.unwrap().held, 2);
}

#[tokio::test]
async fn a_late_answer_counts_although_it_was_asked_again() {
    let server = server(5);
    let client = patient(&server).attempt_timeout(Duration::from_millis(30));
    let client = client.connect().await.unwrap();
    server.on_verbs([Some(Fault::DelayAnswer(Duration::from_millis(200))), Some(Fault::Ignore)]);
    server.on_verbs(vec![Some(Fault::Ignore); 10]);
    assert_eq!(client.reserve(reserve(7, "r1", 1)).await.unwrap().outcome, Outcome::Held);
}

/// A rejection came first and the silent attempt won later: what it won is the answer.
#[tokio::test]
async fn a_rejection_waits_for_the_silent_attempt_before_it() {
    let server = server(0);
    let client = patient(&server).attempt_timeout(Duration::from_millis(30));
    let client = client.connect().await.unwrap();
    server.on_verbs([Some(Fault::DelayDecision(Duration::from_millis(2000)))]);
    let call = tokio::spawn({
        let client = client.clone();
        async move { client.reserve(reserve(7, "r1", 1)).await }
    });
    until("it is asked again", || reserves(&server).len() == 2).await;
    let adjust = stockade_protocol::command::Adjust {
        sale: sale(),
        sku: sku(),
        delta: 1,
        request: RequestId::parse(b"a1").unwrap(),
    };
    client.adjust(adjust).await.unwrap();
    assert_eq!(call.await.unwrap().unwrap().outcome, Outcome::Held);
}

/// A deadline that came while the client was connecting counted as "sent": a doubt about nothing.
#[tokio::test]
async fn a_deadline_while_connecting_is_not_reached() {
    let server = server(5);
    let timeout = Duration::from_millis(800);
    let settings = patient(&server).connect_timeout(PATIENCE).request_timeout(timeout);
    let client = settings.connect().await.unwrap();
    server.greet(Greeting::Silence);
    let error = client.reserve(reserve(7, "r1", 1)).await.unwrap_err();
    assert!(matches!(error, Error::NotReached { .. }), "{error:?}");
}

/// The same while it waited for room in flight, and in the queue of a connection that is not read.
#[tokio::test]
async fn a_deadline_while_waiting_for_room_is_not_reached() {
    let server = server(5);
    server.in_flight_max(1);
    let client = patient(&server).request_timeout(Duration::from_millis(800));
    let client = client.connect().await.unwrap();
    // The only place is taken by a request that is never answered.
    server.on_verbs([Some(Fault::Ignore)]);
    let shard = client.topology().shard(Route::User(user(7)));
    let connection = client.slots().connection(shard, Pick::Usual).await.unwrap();
    let first = Request::Command(Command::Reserve(reserve(7, "r1", 1)));
    let _pending = connection.start(first, true).await.unwrap();
    let error = client.reserve(reserve(7, "r2", 1)).await.unwrap_err();
    assert!(matches!(error, Error::NotReached { .. }), "{error:?}");
    assert!(reserves(&server).iter().all(|(_, request)| request == "r1"));
}

#[tokio::test]
async fn no_answer_at_all_is_in_doubt_for_commands_and_no_answer_for_questions() {
    let server = server(5);
    let client = patient(&server).request_timeout(Duration::from_millis(800));
    let client = client.connect().await.unwrap();
    server.on_commands(vec![Some(Fault::Ignore); 2]);
    assert_eq!(client.reserve(reserve(7, "r1", 1)).await.unwrap_err(), doubt(7, "r1"));
    let error = client.sku(sale(), sku()).await.unwrap_err();
    assert_eq!(error, Error::NoAnswer(Duration::from_millis(800)));
}

#[tokio::test]
async fn full_fails_fast_or_waits_as_it_is_told() {
    for (when_full, expected) in [(WhenFull::FailFast, None), (WhenFull::Wait, Some(Outcome::Held))]
    {
        let server = server(5);
        let client = patient(&server).in_flight_max(1).when_full(when_full);
        let client = client.connect().await.unwrap();
        server.on_verbs([Some(Fault::DelayAnswer(Duration::from_millis(1500)))]);
        let first = tokio::spawn({
            let client = client.clone();
            async move { client.reserve(reserve(7, "r1", 1)).await }
        });
        until("the first is on its way", || reserves(&server).len() == 1).await;
        let second = client.reserve(reserve(7, "r2", 1)).await;
        match expected {
            None => assert_eq!(second.unwrap_err(), Error::Full),
            Some(outcome) => assert_eq!(second.unwrap().outcome, outcome),
        }
        assert_eq!(first.await.unwrap().unwrap().outcome, Outcome::Held);
    }
}

#[tokio::test]
async fn busy_is_retried_after_its_hint_where_that_is_wanted() {
    let server = server(5);
    let answer = client(&server).await;
    let retry = patient(&server).when_busy(WhenBusy::Retry).connect().await.unwrap();
    server.on_verbs([Some(Fault::busy(1))]);
    assert_eq!(answer.reserve(reserve(7, "r1", 1)).await.unwrap().outcome, Outcome::Busy);
    server.on_verbs([Some(Fault::busy(1)), Some(Fault::busy(1))]);
    assert_eq!(retry.reserve(reserve(7, "r1", 1)).await.unwrap().outcome, Outcome::Held);
    // A hint beyond the deadline: the answer is `busy`, at once.
    server.on_verbs([Some(Fault::busy(1_000_000))]);
    assert_eq!(retry.reserve(reserve(7, "r2", 1)).await.unwrap().outcome, Outcome::Busy);
}

#[tokio::test]
async fn answers_with_numbers_that_nobody_asked_for_are_left_alone() {
    let server = server(5);
    let client = client(&server).await;
    server.on_verbs([Some(Fault::WrongNumber)]);
    assert_eq!(client.reserve(reserve(7, "r1", 1)).await.unwrap().outcome, Outcome::Held);
    assert_eq!(client.reserve(reserve(8, "r1", 1)).await.unwrap().outcome, Outcome::Held);
}

#[tokio::test]
async fn a_shutdown_says_what_it_leaves_in_doubt() {
    let server = server(5);
    let client = client(&server).await;
    let done = client.reserve(reserve(6, "r0", 1)).await.unwrap();
    assert_eq!(done.outcome, Outcome::Held);
    server.on_commands(vec![Some(Fault::LoseAnswer), Some(Fault::Ignore)]);
    let spawned = client.clone();
    let in_doubt = tokio::spawn(async move { spawned.reserve(reserve(7, "r1", 1)).await });
    until("the reserve is seen", || reserves(&server).len() == 2).await;
    let spawned = client.clone();
    let question = tokio::spawn(async move { spawned.sku(sale(), sku()).await });
    until("the question is seen", || {
        let is_question = |s: &crate::testing::Seen| {
            matches!(s.request, Request::Command(Command::SkuGet { .. }))
        };
        server.seen().iter().any(is_question)
    })
    .await;
    let report = client.shutdown(Duration::from_millis(50)).await;
    let Error::InDoubt(expected) = doubt(7, "r1") else { unreachable!() };
    assert_eq!((report.in_doubt, report.given_up), (vec![expected.clone()], 1));
    assert_eq!(in_doubt.await.unwrap().unwrap_err(), Error::InDoubt(expected.clone()));
    assert_eq!(question.await.unwrap().unwrap_err(), Error::Closed);
    assert_eq!(client.reserve(reserve(8, "r1", 1)).await.unwrap_err(), Error::Closed);
    // Another client resolves it.
    let other = super::client(&server).await;
    let view = other.resolve(&expected).await.unwrap().unwrap();
    assert_eq!(view.state, OrderState::Held);
}

#[tokio::test]
async fn a_shutdown_waits_for_what_is_on_its_way() {
    let server = server(5);
    let client = client(&server).await;
    server.on_verbs([Some(Fault::DelayAnswer(Duration::from_millis(100)))]);
    let spawned = client.clone();
    let call = tokio::spawn(async move { spawned.reserve(reserve(7, "r1", 1)).await });
    until("the reserve is seen", || reserves(&server).len() == 1).await;
    assert_eq!(client.shutdown(PATIENCE).await, crate::ShutdownReport::default());
    assert_eq!(call.await.unwrap().unwrap().outcome, Outcome::Held);
}

#[tokio::test]
async fn many_reserves_share_frames_and_answer_in_order() {
    let server = server(30);
    let client = client(&server).await;
    let mut asked: Vec<_> = (1..=40).map(|n| reserve(n, &n.to_string(), 1)).collect();
    asked[3] = reserve(4, "a-text", 1);
    asked[5] = reserve(6, "6", 0);
    let replies = client.reserve_many(asked).await;
    let outcomes: Vec<_> = replies.into_iter().map(|reply| reply.unwrap().outcome).collect();
    assert_eq!(outcomes[5], Outcome::BadRequest);
    assert_eq!(outcomes[3], Outcome::Held);
    let count = |outcome| outcomes.iter().filter(|found| **found == outcome).count();
    assert_eq!((count(Outcome::Held), count(Outcome::SoldOut)), (30, 9));
    let frames = server.seen();
    let many = frames.iter().filter(|s| matches!(s.request, Request::ReserveMany(_))).count();
    assert!((1..=2).contains(&many), "one frame a shard, not {many}");
}

#[tokio::test]
async fn many_reserves_that_are_lost_are_in_doubt_one_by_one() {
    let server = server(3);
    let client = client(&server).await;
    server.on_verbs(vec![Some(Fault::CutAfter), Some(Fault::Error(ErrorCode::Failed))]);
    // One user: one shard, one frame.
    let asked = (1..=3u64).map(|n| reserve(7, &n.to_string(), 1));
    let errors: Vec<_> =
        client.reserve_many(asked).await.into_iter().map(Result::unwrap_err).collect();
    assert_eq!(errors, [doubt(7, "1"), doubt(7, "2"), doubt(7, "3")]);
    // Cut and asked again: what is settled is told, what is not stays in doubt.
    server.on_verbs([Some(Fault::CutAfter)]);
    let asked = (3..=4u64).map(|n| reserve(7, &n.to_string(), 1));
    let replies = client.reserve_many(asked).await;
    assert_eq!(replies[0].as_ref().unwrap().outcome, Outcome::Held);
    assert_eq!(replies[1], Err(doubt(7, "4")));
}

#[tokio::test]
async fn verbs_on_orders_are_asked_again_and_answer_as_repetitions_do() {
    let server = server(5);
    let client = client(&server).await;
    let order = client.reserve(reserve(7, "r1", 1)).await.unwrap().order.unwrap();
    let paid = PaymentRef::new(b"p1").unwrap();
    server.on_verbs([Some(Fault::CutAfter)]);
    let reply = client.confirm(order, paid.clone()).await.unwrap();
    assert_eq!(reply.outcome, Outcome::AlreadyConfirmed);
    server.on_verbs([Some(Fault::CutAfter), Some(Fault::Error(ErrorCode::Failed))]);
    let error = client.cancel(order, Reason::none()).await.unwrap_err();
    assert_eq!(error, Error::InDoubt(InDoubt::Order(order)));
    let view = client.resolve(&InDoubt::Order(order)).await.unwrap().unwrap();
    assert_eq!((view.state, view.payment), (OrderState::Confirmed, Some(paid)));
}
