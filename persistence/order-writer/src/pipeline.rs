//! The pure part of the writer: the fold of entries into batches, and the circuit breaker.
//!
//! Nothing here reads a clock, a socket or a database.

pub mod batcher;
pub mod breaker;

pub use batcher::{Advance, Alarm, Batch, Batcher, TableBatch};
pub use breaker::{Breaker, BreakerLimits, Tripped};
