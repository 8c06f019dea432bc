//! The commit journal: preallocated segment files per shard, and what recovery makes of them.

pub(crate) mod ahead;
pub(crate) mod frame;
pub(crate) mod recover;
pub(crate) mod segment;
mod writer;

pub use writer::Journal;
