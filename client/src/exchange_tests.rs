//! The machine of one call as a table: what happened, and how the call must go on.

use super::*;
use stockade_protocol::reply::{OrderReply, RETRY_NEVER, ReserveReply};
use stockade_protocol::{OrderState, Outcome};

fn reply(outcome: Outcome, retry_after_ms: i64) -> Response {
    Response::Reply(Reply::Reserve(ReserveReply::rejected(outcome, retry_after_ms)))
}

fn began(attempt: u32) -> Input {
    Input::Started { attempt, epoch: 1 }
}

fn answered(attempt: u32, outcome: Outcome) -> Input {
    answered_by(attempt, 1, outcome)
}

fn answered_by(attempt: u32, epoch: u64, outcome: Outcome) -> Input {
    Input::Answered { attempt, epoch, response: reply(outcome, RETRY_NEVER) }
}

fn hinted(attempt: u32, outcome: Outcome, hint: i64) -> Input {
    Input::Answered { attempt, epoch: 1, response: reply(outcome, hint) }
}

fn failed(attempt: u32) -> Input {
    let response = Response::Error { code: ErrorCode::Failed, message: "it failed".into() };
    Input::Answered { attempt, epoch: 1, response }
}

fn lost(attempt: u32) -> Input {
    Input::Lost { attempt, why: "cut".into() }
}

fn unsent(attempt: u32) -> Input {
    Input::Unsent { attempt, why: "unsent".into() }
}

fn refused() -> Input {
    Input::NotConnected("refused".into())
}

fn is(outcome: Outcome) -> Step {
    Step::End(End::Answer(reply(outcome, RETRY_NEVER)))
}

const AGAIN: Step = Step::Attempt { pick: Pick::Usual, after: After::Backoff };
const ELSEWHERE: Step = Step::Attempt { pick: Pick::Other, after: After::Now };
const NOW: Step = Step::Attempt { pick: Pick::Usual, after: After::Now };
const IN_DOUBT: Step = Step::End(End::InDoubt);

fn later(ms: u64) -> Step {
    Step::Attempt { pick: Pick::Usual, after: After::Hint(Duration::from_millis(ms)) }
}

fn server_error() -> Step {
    Step::End(End::Server { code: ErrorCode::Failed, message: "it failed".into() })
}

/// The last step of a call. No step before it may end the call.
fn last_step(mut machine: Exchange, inputs: Vec<Input>) -> Step {
    let mut step = NOW;
    let shown = format!("{inputs:?}");
    for input in inputs {
        assert!(!matches!(step, Step::End(_)), "{step:?} too early in {shown}");
        step = machine.on(input);
    }
    step
}

/// The fault that this machine is there to rule out: a reserve was cut off after it was sent, the
/// repetition ended some other way, and the caller was told that nothing had happened.
#[test]
fn a_command_that_may_have_been_sent_ends_in_doubt_whatever_comes_later() {
    use Outcome::*;
    let table: Vec<(Vec<Input>, Step)> = vec![
        // Nothing left: the plain errors.
        (vec![refused()], AGAIN),
        (vec![refused(), Input::Deadline], Step::End(End::NotReached("refused".into()))),
        (vec![Input::Closed], Step::End(End::Closed)),
        (vec![Input::Full], Step::End(End::Full)),
        (vec![began(1), unsent(1)], AGAIN),
        (vec![began(1), unsent(1), Input::Full], Step::End(End::Full)),
        (vec![began(1), unsent(1), Input::Closed], Step::End(End::Closed)),
        (vec![began(1), unsent(1), Input::Deadline], Step::End(End::NotReached("unsent".into()))),
        (vec![began(1), failed(1)], server_error()),
        (vec![began(1), answered(1, SoldOut)], is(SoldOut)),
        (vec![began(1), answered(1, Held)], is(Held)),
        // One attempt is lost.
        (vec![began(1), lost(1)], AGAIN),
        (vec![began(1), lost(1), Input::Deadline], IN_DOUBT),
        (vec![began(1), lost(1), Input::Closed], IN_DOUBT),
        (vec![began(1), lost(1), Input::Full], IN_DOUBT),
        (vec![began(1), lost(1), refused()], AGAIN),
        (vec![began(1), lost(1), refused(), Input::Deadline], IN_DOUBT),
        (vec![began(1), lost(1), began(2), failed(2)], IN_DOUBT),
        (vec![began(1), lost(1), began(2), unsent(2), Input::Deadline], IN_DOUBT),
        (vec![began(1), lost(1), began(2), lost(2), Input::Full], IN_DOUBT),
        // An answer that rests on the order, or can never change, settles it.
        (vec![began(1), lost(1), began(2), answered(2, Held)], is(Held)),
        (vec![began(1), lost(1), began(2), answered(2, Expired)], is(Expired)),
        (vec![began(1), lost(1), began(2), answered(2, Withdrawn)], is(Withdrawn)),
        (vec![began(1), lost(1), began(2), answered(2, IdConflict)], is(IdConflict)),
        (vec![began(1), lost(1), began(2), answered(2, Stale)], is(Stale)),
        (vec![began(1), lost(1), began(2), answered(2, Ended)], is(Ended)),
        (vec![began(1), lost(1), began(2), answered(2, BadRequest)], is(BadRequest)),
        // A rejection that is not remembered does not: the lost attempt may still win...
        (vec![began(1), lost(1), began(2), answered(2, SoldOut)], IN_DOUBT),
        (vec![began(1), lost(1), began(2), answered(2, Limit)], IN_DOUBT),
        (vec![began(1), lost(1), began(2), answered(2, NotStarted)], IN_DOUBT),
        (vec![began(1), lost(1), began(2), answered(2, UnknownSale)], IN_DOUBT),
        // ...unless the process that had it is gone.
        (vec![began(1), lost(1), began(2), answered_by(2, 2, SoldOut)], is(SoldOut)),
        // `busy` looks at nothing, in any process.
        (vec![began(1), lost(1), began(2), answered_by(2, 2, Busy)], IN_DOUBT),
        (vec![began(1), lost(1), began(2), hinted(2, Busy, 7)], later(7)),
        (vec![began(1), lost(1), began(2), hinted(2, Busy, 7), Input::Deadline], IN_DOUBT),
        (
            vec![began(1), lost(1), began(2), hinted(2, Busy, 7), began(3), answered(3, Held)],
            is(Held),
        ),
        // One attempt is silent: asked again elsewhere, and the first answer counts.
        (vec![began(1), Input::Silent], ELSEWHERE),
        (vec![began(1), Input::Silent, Input::Deadline], IN_DOUBT),
        (vec![began(1), Input::Silent, answered(1, Held)], is(Held)),
        (vec![began(1), Input::Silent, began(2), answered(1, SoldOut)], Step::Wait),
        (vec![began(1), Input::Silent, began(2), answered(2, Held)], is(Held)),
        (vec![began(1), Input::Silent, began(2), answered(2, SoldOut)], Step::Wait),
        (vec![began(1), Input::Silent, began(2), answered(2, SoldOut), Input::Silent], Step::Wait),
        (
            vec![began(1), Input::Silent, began(2), answered(2, SoldOut), answered(1, Held)],
            is(Held),
        ),
        (
            vec![began(1), Input::Silent, began(2), answered(2, SoldOut), answered(1, Limit)],
            is(Limit),
        ),
        (vec![began(1), Input::Silent, began(2), answered(2, SoldOut), lost(1)], IN_DOUBT),
        (vec![began(1), Input::Silent, began(2), answered(2, SoldOut), unsent(1)], is(SoldOut)),
        (vec![began(1), Input::Silent, began(2), answered(2, SoldOut), Input::Deadline], IN_DOUBT),
        (vec![began(1), Input::Silent, began(2), failed(2)], IN_DOUBT),
        (vec![began(1), Input::Silent, lost(1)], NOW),
        (vec![began(1), Input::Silent, began(2), lost(1)], Step::Wait),
        (vec![began(1), Input::Silent, began(2), lost(1), lost(2)], AGAIN),
    ];
    for (inputs, expected) in table {
        let shown = format!("{inputs:?}");
        assert_eq!(last_step(Exchange::new(true, false), inputs), expected, "{shown}");
    }
}

#[test]
fn a_question_leaves_no_doubt_and_takes_any_answer() {
    let pong = || Response::Done;
    let done = |attempt| Input::Answered { attempt, epoch: 1, response: pong() };
    let busy = |attempt| Input::Answered {
        attempt,
        epoch: 1,
        response: Response::Reply(Reply::Busy { retry_after_ms: 5 }),
    };
    let table: Vec<(Vec<Input>, Step)> = vec![
        (vec![began(1), lost(1), Input::Deadline], Step::End(End::NoAnswer)),
        (vec![began(1), Input::Deadline], Step::End(End::NoAnswer)),
        (vec![began(1), unsent(1), Input::Deadline], Step::End(End::NotReached("unsent".into()))),
        (vec![began(1), lost(1), Input::Closed], Step::End(End::Closed)),
        (vec![began(1), lost(1), Input::Full], Step::End(End::Full)),
        (vec![began(1), lost(1), began(2), failed(2)], server_error()),
        (vec![began(1), lost(1), began(2), done(2)], Step::End(End::Answer(pong()))),
        (vec![began(1), Input::Silent, began(2), done(1)], Step::End(End::Answer(pong()))),
        (
            vec![began(1), busy(1)],
            Step::End(End::Answer(Response::Reply(Reply::Busy { retry_after_ms: 5 }))),
        ),
    ];
    for (inputs, expected) in table {
        let shown = format!("{inputs:?}");
        assert_eq!(last_step(Exchange::new(false, false), inputs), expected, "{shown}");
    }
}

#[test]
fn busy_and_throttled_are_asked_again_after_their_hint_where_that_is_wanted() {
    use Outcome::*;
    let end = |outcome, hint| Step::End(End::Answer(reply(outcome, hint)));
    let table: Vec<(bool, Vec<Input>, Step)> = vec![
        (false, vec![began(1), hinted(1, Busy, 30)], end(Busy, 30)),
        (false, vec![began(1), hinted(1, Throttled, 30)], end(Throttled, 30)),
        (true, vec![began(1), hinted(1, Busy, 30)], later(30)),
        (true, vec![began(1), hinted(1, Throttled, 30)], later(30)),
        (true, vec![began(1), hinted(1, Busy, -1)], end(Busy, -1)),
        (true, vec![began(1), hinted(1, SoldOut, 30)], end(SoldOut, 30)),
        (true, vec![began(1), hinted(1, Busy, 30), began(2), answered(2, Held)], is(Held)),
        // No time left: the answer that there was, not an error.
        (true, vec![began(1), hinted(1, Busy, 30), Input::Deadline], end(Busy, 30)),
        (true, vec![began(1), hinted(1, Throttled, 30), Input::Deadline], end(Throttled, 30)),
        (true, vec![began(1), hinted(1, Busy, 30), began(2), lost(2), Input::Deadline], IN_DOUBT),
    ];
    for (retry, inputs, expected) in table {
        let shown = format!("{retry} {inputs:?}");
        assert_eq!(last_step(Exchange::new(true, retry), inputs), expected, "{shown}");
    }
}

#[test]
fn answers_to_many_keep_what_is_settled() {
    let replies = |outcomes: &[Outcome]| {
        let one = |outcome: &Outcome| ReserveReply::rejected(*outcome, RETRY_NEVER);
        Response::ReserveMany(outcomes.iter().map(one).collect())
    };
    let mixed = replies(&[Outcome::Held, Outcome::SoldOut]);
    let settled = replies(&[Outcome::Held, Outcome::Withdrawn]);
    let many = |attempt, response: &Response| Input::Answered {
        attempt,
        epoch: 1,
        response: response.clone(),
    };
    let busy = replies(&[Outcome::Held, Outcome::Busy]);
    let by_the_next =
        |response: &Response| Input::Answered { attempt: 2, epoch: 2, response: response.clone() };
    let table = vec![
        (vec![began(1), lost(1), began(2), by_the_next(&mixed)], End::Answer(mixed.clone())),
        (vec![began(1), lost(1), began(2), by_the_next(&busy)], End::Mixed(busy.clone())),
        (vec![began(1), many(1, &busy)], End::Answer(busy.clone())),
        (vec![began(1), many(1, &mixed)], End::Answer(mixed.clone())),
        (vec![began(1), lost(1), began(2), many(2, &mixed)], End::Mixed(mixed.clone())),
        (vec![began(1), lost(1), began(2), many(2, &settled)], End::Answer(settled.clone())),
    ];
    for (inputs, expected) in table {
        assert_eq!(last_step(Exchange::new(true, false), inputs), Step::End(expected));
    }
}

#[test]
fn attempts_of_one_call_are_bounded() {
    let mut machine = Exchange::new(true, false);
    for attempt in 1..=OPEN_MAX as u32 {
        assert_eq!(machine.on(began(attempt)), Step::Wait);
        let silent = machine.on(Input::Silent);
        assert_eq!(silent, if attempt < OPEN_MAX as u32 { ELSEWHERE } else { Step::Wait });
    }
}

/// `busy` to the verbs on orders and on the catalog is no decision either.
#[test]
fn every_verb_that_is_busy_is_undecided() {
    let order = OrderReply { outcome: Outcome::Busy, order: None, state: OrderState::Unknown };
    let late = OrderReply { outcome: Outcome::TooLate, ..order };
    let weight = |reply: Reply| weigh(&Response::Reply(reply));
    assert_eq!(weight(Reply::Order(order)), Weight::Busy(BUSY_HINT_MS));
    assert_eq!(weight(Reply::Order(late)), Weight::Settled);
    assert_eq!(weight(Reply::Busy { retry_after_ms: 9 }), Weight::Busy(9));
}
