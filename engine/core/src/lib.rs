//! The rules of a sale as pure machines: commands and the time go in; log entries, answers and
//! stock movements come out. No clock, no I/O, no randomness, nothing that waits.
//!
//! * [`shard::ShardMachine`] decides everything about users and orders of the partitions it owns.
//! * [`catalog::CatalogMachine`] decides what sales exist and how much stock they have.
//! * [`pool`] is the one thing that shards share: one atomic word of free units per SKU.
//! * [`fold`] applies entries to images of a partition without a shard (snapshots).
//!
//! Every change of state goes through an event: deciding makes the event, applying it changes the
//! state, and replay applies the same events without deciding again.

#![cfg_attr(not(test), no_std)]

extern crate alloc;
#[cfg(any(loom, shuttle))]
extern crate std;

pub mod admission;
pub mod catalog;
pub mod effects;
pub mod fold;
pub mod gather;
mod hash;
mod ledger;
mod partition;
pub mod pool;
mod rules;
pub mod shard;
mod sync;
