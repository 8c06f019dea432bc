//! What a fake server does wrong, and when.

use std::collections::VecDeque;
use std::time::Duration;
use stockade_protocol::reply::{Reply, ReserveReply};
use stockade_protocol::wire::{ErrorCode, Request};
use stockade_protocol::{Command, Outcome};

/// One thing that goes wrong with one request.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// The connection is closed before the request is looked at.
    CutBefore,
    /// The request is decided, and the connection is closed instead of the answer.
    CutAfter,
    /// The request is never looked at, nor answered.
    Ignore,
    /// The request is decided and never answered.
    LoseAnswer,
    /// The request is decided at once and answered so much later.
    DelayAnswer(Duration),
    /// The request is decided only so much later, then answered.
    DelayDecision(Duration),
    /// The request is not decided; the answer is an error frame.
    Error(ErrorCode),
    /// The request is not decided; this is the answer.
    Answer(Reply),
    /// The request is decided; before its answer the clients are sent away.
    GoAway {
        /// When they should come back.
        reconnect_after_ms: u32,
    },
    /// The request is decided; instead of its answer come bytes that are no frame.
    Garbage,
    /// The request is decided; its answer carries a number that nobody asked for, then the right
    /// one comes too.
    WrongNumber,
}

impl Fault {
    /// The answer `busy` to a reserve.
    pub fn busy(retry_after_ms: i64) -> Self {
        Self::Answer(Reply::Reserve(ReserveReply::rejected(Outcome::Busy, retry_after_ms)))
    }
}

/// Which requests a fault is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum For {
    /// Commands that decide something.
    Verbs,
    /// Every command.
    Commands,
    /// Requests of the feed.
    Feed,
}

/// Faults by turn: each request takes the first that is for its kind.
#[derive(Debug, Default)]
pub(super) struct Script {
    faults: VecDeque<(For, Option<Fault>)>,
}

impl Script {
    pub fn verbs(&mut self, faults: impl IntoIterator<Item = Option<Fault>>) {
        self.faults.extend(faults.into_iter().map(|fault| (For::Verbs, fault)));
    }

    pub fn commands(&mut self, faults: impl IntoIterator<Item = Option<Fault>>) {
        self.faults.extend(faults.into_iter().map(|fault| (For::Commands, fault)));
    }

    pub fn feed(&mut self, faults: impl IntoIterator<Item = Option<Fault>>) {
        self.faults.extend(faults.into_iter().map(|fault| (For::Feed, fault)));
    }

    /// The fault of this request, if it has one.
    pub fn take(&mut self, request: &Request) -> Option<Fault> {
        let is_for = |what: For| match request {
            Request::Command(command) => {
                what == For::Commands || what == For::Verbs && !is_question(command)
            }
            Request::ReserveMany(_) => what != For::Feed,
            Request::Subscribe(_) | Request::Ack { .. } | Request::Consumers => what == For::Feed,
            _ => false,
        };
        let at = self.faults.iter().position(|(what, _)| is_for(*what))?;
        self.faults.remove(at)?.1
    }
}

fn is_question(command: &Command) -> bool {
    crate::InDoubt::of(command).is_none()
}
