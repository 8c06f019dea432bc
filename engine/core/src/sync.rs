//! The atomics that shards share, behind one name, so that a model checker can stand in for them:
//! `--cfg loom` tries every order of their steps, `--cfg shuttle` many random ones (`tests/
//! loom_pool.rs`, `tests/shuttle_pool.rs`).
//!
//! [`hint`] holds the atomics that no promise rests on: the models leave their orders out.

#[cfg(not(any(loom, shuttle)))]
pub(crate) use core::sync::atomic::{AtomicU64, Ordering};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(loom)]
pub(crate) use loom::thread;
#[cfg(shuttle)]
pub(crate) use shuttle::sync::atomic::{AtomicU64, Ordering};
#[cfg(shuttle)]
pub(crate) use shuttle::thread;

/// Atomics that carry hints only.
pub(crate) mod hint {
    pub(crate) use core::sync::atomic::AtomicU64;
}
