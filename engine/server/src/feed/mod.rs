//! The feed: one thread that reads the log for all consumers, so that a slow one never slows a
//! shard.
//!
//! [`inbox`] is the way in, [`source`] what it reads, [`subscription`] the pure part (cursors,
//! credit, cutting runs at entries), [`thread`] the loop.

pub mod inbox;
pub mod source;
pub mod subscription;
pub mod thread;

pub use inbox::{FeedIn, FeedInbox, FeedKind};
