//! A shard of the server: the driver around one `ShardMachine`.
//!
//! [`state`] holds everything a shard owns and moves messages, turns, commits and answers, without
//! waiting for anything; [`run`] is the executor with its tasks. [`gather`] puts answers of all
//! shards together, [`catalog`] decides sales, one command at a time, on shard 0.

pub mod catalog;
pub mod gather;
pub mod run;
pub mod state;

pub use run::{Start, spawn};
pub use state::Shard;
