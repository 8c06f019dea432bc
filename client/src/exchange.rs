//! One call as a pure machine: what came of its attempts in, what to do next out. No socket, no
//! clock.
//!
//! A call may need several attempts, and several may be open at the same time: an attempt that is
//! silent for too long is asked again on another connection, and its own answer still counts when
//! it comes. Every attempt carries the same request id.
//!
//! The invariant that matters: once an attempt of a command that decides something was handed to a
//! socket and has no answer, no later end of the call hides it. The call ends in doubt unless a
//! later answer rules out that the lost attempt decides (or has decided) otherwise:
//! * an answer that rests on the order itself does: the request id then names that order for good;
//! * a rejection that is not remembered (`sold_out`, `limit`, `not_started`...) does not, because
//!   the earlier attempt may still be waiting inside the server and win. It does if the server was
//!   started anew in between (its epoch is later): what the old process had not decided, nobody
//!   will;
//! * `busy` never does: it may come before the request id is looked at.

use std::time::Duration;
use stockade_protocol::wire::{ErrorCode, Response};
use stockade_protocol::{Outcome, Reply};

/// Attempts of one call that may be open; beyond it the call only waits.
const OPEN_MAX: usize = 8;

/// What happened.
#[derive(Debug)]
pub(crate) enum Input {
    /// No connection; nothing of the attempt left.
    NotConnected(String),
    /// The attempt waits in a connection's queue, or has left.
    Started { attempt: u32, epoch: u64 },
    /// It was taken out of the queue before it left: it never was.
    Unsent { attempt: u32, why: String },
    /// Its connection ended after it was handed over.
    Lost { attempt: u32, why: String },
    /// The newest attempt has no answer for as long as an attempt may take.
    Silent,
    /// An answer.
    Answered { attempt: u32, epoch: u64, response: Response },
    /// No room in flight, and the client was told to fail fast.
    Full,
    /// The client is shut down.
    Closed,
    /// The time for the call is over. Attempts that were still queued are reported unsent before.
    Deadline,
}

/// When the next attempt begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    Now,
    Backoff,
    Hint(Duration),
}

/// Which connection it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pick {
    /// The shard's own.
    Usual,
    /// Another than the one before.
    Other,
}

/// What to do next.
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    Attempt { pick: Pick, after: After },
    Wait,
    End(End),
}

/// How the call ends.
#[derive(Debug, PartialEq)]
pub(crate) enum End {
    Answer(Response),
    /// Answers to many, of which the rejections may be contradicted by an attempt that is lost.
    Mixed(Response),
    InDoubt,
    Server {
        code: ErrorCode,
        message: String,
    },
    NoAnswer,
    NotReached(String),
    Full,
    Closed,
}

/// How much an answer settles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// It rests on the order or can never change: every attempt would answer so.
    Settled,
    /// A rejection that is not remembered.
    Rejected,
    /// Nothing was looked at; the hint in ms.
    Busy(i64),
    /// Many answers, some of which are not settled.
    Mixed,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// False for questions: they leave no doubt.
    decides: bool,
    retry_busy: bool,
    /// Attempts without an answer, and the epochs of their servers.
    open: Vec<(u32, u64)>,
    /// The latest epoch of an attempt that is lost.
    lost: Option<u64>,
    /// An attempt is being made.
    attempting: bool,
    was_handed: bool,
    /// A rejection that waits for the attempts before it.
    kept: Option<Response>,
    /// A `busy` or `throttled` that is asked again: the answer if there is no time left for that.
    busy: Option<Response>,
    why: String,
}

impl Exchange {
    /// The first step is an attempt, now.
    pub fn new(decides: bool, retry_busy: bool) -> Self {
        Self {
            decides,
            retry_busy,
            open: Vec::new(),
            lost: None,
            attempting: true,
            was_handed: false,
            kept: None,
            busy: None,
            why: "there was no time for an attempt".into(),
        }
    }

    /// Takes what happened.
    pub fn on(&mut self, input: Input) -> Step {
        match input {
            Input::NotConnected(why) => {
                self.why = why;
                self.again(Pick::Usual, After::Backoff)
            }
            Input::Started { attempt, epoch } => {
                self.attempting = false;
                self.open.push((attempt, epoch));
                Step::Wait
            }
            Input::Unsent { attempt, why } => {
                self.open.retain(|(open, _)| *open != attempt);
                self.why = why;
                self.on_gone()
            }
            Input::Lost { attempt, why } => {
                self.lose(attempt);
                self.why = why;
                self.on_gone()
            }
            Input::Silent if self.open.len() < OPEN_MAX && self.kept.is_none() => {
                self.again(Pick::Other, After::Now)
            }
            Input::Silent => Step::Wait,
            Input::Answered { attempt, epoch, response } => {
                self.was_handed = true;
                self.open.retain(|(open, _)| *open != attempt);
                self.on_answer(epoch, response)
            }
            Input::Full => self.end(End::Full),
            Input::Closed => self.end(End::Closed),
            Input::Deadline => {
                self.was_handed |= !self.open.is_empty();
                let end = if self.was_handed {
                    End::NoAnswer
                } else {
                    End::NotReached(std::mem::take(&mut self.why))
                };
                self.end(end)
            }
        }
    }

    fn lose(&mut self, attempt: u32) {
        self.was_handed = true;
        let Some(at) = self.open.iter().position(|(open, _)| *open == attempt) else { return };
        let (_, epoch) = self.open.swap_remove(at);
        self.lost = self.lost.max(Some(epoch));
    }

    /// An attempt is gone without an answer.
    fn on_gone(&mut self) -> Step {
        if let Some(response) = self.kept.take() {
            return self.weigh_kept(response);
        }
        if self.attempting {
            Step::Attempt { pick: Pick::Usual, after: After::Now }
        } else if self.open.is_empty() {
            self.again(Pick::Usual, After::Backoff)
        } else {
            Step::Wait
        }
    }

    /// A rejection waited for the attempts before it, and one of these is gone.
    fn weigh_kept(&mut self, response: Response) -> Step {
        if self.lost.is_some() {
            return Step::End(End::InDoubt);
        }
        if self.open.is_empty() {
            return Step::End(End::Answer(response));
        }
        self.kept = Some(response);
        Step::Wait
    }

    fn on_answer(&mut self, epoch: u64, response: Response) -> Step {
        if let Response::Error { code, message } = response {
            return self.end(End::Server { code, message });
        }
        let weight = weigh(&response);
        if let Weight::Busy(hint) = weight {
            return match u64::try_from(hint) {
                Ok(hint) if self.retry_busy || self.in_doubt() => self.ask_later(hint, response),
                _ => self.end(End::Answer(response)),
            };
        }
        (self.kept, self.busy) = (None, None);
        if weight == Weight::Settled || !self.decides {
            return Step::End(End::Answer(response));
        }
        // Of these nothing is known whatever process says so.
        if weight == Weight::Mixed && self.in_doubt() && any_is_busy(&response) {
            return Step::End(End::Mixed(response));
        }
        // What a process that is gone had not decided, nobody will.
        self.open.retain(|(_, open)| *open >= epoch);
        self.lost = self.lost.filter(|lost| *lost >= epoch);
        if let (true, Some(hint)) = (self.retry_busy, throttled(&response)) {
            return self.ask_later(hint, response);
        }
        match (weight, self.in_doubt()) {
            (_, false) => Step::End(End::Answer(response)),
            (Weight::Mixed, true) => Step::End(End::Mixed(response)),
            (_, true) if self.lost.is_some() => Step::End(End::InDoubt),
            (_, true) => {
                self.attempting = false;
                self.kept = Some(response);
                Step::Wait
            }
        }
    }

    fn ask_later(&mut self, hint_ms: u64, response: Response) -> Step {
        self.busy = Some(response);
        self.again(Pick::Usual, After::Hint(Duration::from_millis(hint_ms)))
    }

    /// An attempt may be decided that has no answer.
    pub fn in_doubt(&self) -> bool {
        self.decides && (self.lost.is_some() || !self.open.is_empty())
    }

    fn again(&mut self, pick: Pick, after: After) -> Step {
        self.attempting = true;
        Step::Attempt { pick, after }
    }

    fn end(&mut self, end: End) -> Step {
        if self.in_doubt() {
            return Step::End(End::InDoubt);
        }
        // It was answered, if only with `busy`.
        match (self.kept.take().or(self.busy.take()), end) {
            (_, end @ (End::Answer(_) | End::Closed)) => Step::End(end),
            (Some(response), _) => Step::End(End::Answer(response)),
            (None, end) => Step::End(end),
        }
    }
}

/// What an answer says about the attempts that have none.
pub(crate) fn weigh(response: &Response) -> Weight {
    match response {
        Response::Reply(reply) => weigh_reply(reply),
        Response::ReserveMany(replies) => {
            let settled = |reply: &_| weigh_reply(&Reply::Reserve(*reply)) == Weight::Settled;
            if replies.iter().all(settled) { Weight::Settled } else { Weight::Mixed }
        }
        _ => Weight::Settled,
    }
}

fn weigh_reply(reply: &Reply) -> Weight {
    let outcome = match reply {
        Reply::Busy { retry_after_ms } => return Weight::Busy(i64::from(*retry_after_ms)),
        Reply::Reserve(reply) => match reply.outcome {
            Outcome::Busy => return Weight::Busy(reply.retry_after_ms),
            Outcome::NotStarted
            | Outcome::Paused
            | Outcome::UnknownSale
            | Outcome::UnknownSku
            | Outcome::BadQuantity
            | Outcome::Limit
            | Outcome::SoldOut
            | Outcome::Throttled => return Weight::Rejected,
            _ => return Weight::Settled,
        },
        Reply::Order(reply) => reply.outcome,
        Reply::SalePut(reply) => reply.outcome,
        Reply::SaleSwitch(reply) => reply.outcome,
        Reply::Adjust(reply) => reply.outcome,
        _ => return Weight::Settled,
    };
    if outcome == Outcome::Busy { Weight::Busy(BUSY_HINT_MS) } else { Weight::Settled }
}

fn any_is_busy(response: &Response) -> bool {
    match response {
        Response::ReserveMany(replies) => replies.iter().any(|r| r.outcome == Outcome::Busy),
        _ => false,
    }
}

/// The hint of a reserve over its rate.
fn throttled(response: &Response) -> Option<u64> {
    match response {
        Response::Reply(Reply::Reserve(reply)) if reply.outcome == Outcome::Throttled => {
            u64::try_from(reply.retry_after_ms).ok()
        }
        _ => None,
    }
}

/// For answers that say `busy` and have no room for a hint.
const BUSY_HINT_MS: i64 = 50;

#[cfg(test)]
#[path = "exchange_tests.rs"]
mod tests;
