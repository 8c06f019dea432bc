//! The rules: what a command is answered, and which event it makes. One file a verb.
//!
//! A rule reads the state, and changes it only by emitting an event ([`ShardMachine::emit`]).
//!
//! [`ShardMachine::emit`]: crate::shard::ShardMachine

mod cancel;
mod confirm;
mod extend;
mod give_back;
mod limits;
mod lines;
mod read;
mod reserve;
mod target;

pub(crate) use cancel::{cancel, withdraw};
pub(crate) use confirm::confirm;
pub(crate) use extend::extend;
pub(crate) use give_back::give_back;
pub(crate) use read::{order_get, status, user_get};
pub(crate) use reserve::reserve;
