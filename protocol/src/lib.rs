//! The words that every part of Stockade shares: ids and quantities, commands and replies, outcomes
//! and states, the entries of the log, and the bytes of all of them on the wire.
//!
//! The crate owns no state, reads no clock and does no I/O; it is `no_std` + `alloc` so that
//! cheating is a compile error. The byte formats are specified in `protocol/SPEC.md` (wire) and
//! `persistence/log/FORMAT.md` (entries on disk).

#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod command;
pub mod entry;
pub mod ids;
pub mod image;
#[cfg(feature = "json")]
pub mod json;
pub mod le;
pub mod limits;
#[cfg(feature = "mutations")]
pub mod mutation;
pub mod outcome;
pub mod reply;
pub mod request_id;
pub mod routing;
pub mod sale;
pub mod state;
pub mod text;
pub mod wire;

pub use command::Command;
pub use entry::{Entry, Event};
pub use ids::{Lsn, OrderId, PartitionId, SaleId, SkuId, UserId};
pub use outcome::Outcome;
pub use reply::Reply;
pub use request_id::RequestId;
pub use sale::{SaleDefinition, SalePatch, SkuDefinition};
pub use state::{OrderState, SaleState, SkuState};
