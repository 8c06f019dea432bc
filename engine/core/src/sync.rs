//! The atomics that shards share, behind one name, so that a model checker can stand in for them.

pub(crate) use core::sync::atomic::{AtomicU64, Ordering};
