//! What a machine hands to its driver after a turn.

use alloc::vec::Vec;
use stockade_protocol::{Command, Reply};

/// How many entries a shard has emitted since it started; volatile, for commit and answers only.
///
/// An answer may leave once the position it rests on is committed; units given back join the pool
/// then.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Position(pub u64);

impl Position {
    /// Rests on nothing: the answer goes at once.
    pub const NONE: Self = Self(0);
}

/// A command on its way through a shard.
#[derive(Clone, Debug)]
pub struct Request {
    /// The driver's handle for the answer.
    pub ticket: u64,
    /// What is asked.
    pub command: Command,
    /// How many turns it has waited for units that another turn had set aside; starts at 0.
    pub waits: u16,
}

/// An answer and what it rests on.
#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    /// The request's ticket.
    pub ticket: u64,
    /// What to say.
    pub reply: Reply,
    /// Not to be said before this position is committed; [`Position::NONE`]: at once.
    pub rests_on: Position,
}

/// The results of one turn. The driver drains the vectors and hands the value back for the next
/// turn.
#[derive(Default, Debug)]
pub struct Effects {
    /// Encoded entries in the order they were decided, to be appended to the shard's journal.
    pub log: Vec<u8>,
    /// The position after the last of `log` (or of the shard, if `log` is empty).
    pub position: Position,
    /// Answers.
    pub answers: Vec<Answer>,
    /// Requests that wait for another turn's allotment; they go to the front of the next turn.
    pub waiting: Vec<Request>,
}
