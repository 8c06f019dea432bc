//! The order writer: drains the feed of a Stockade engine into SQL, exactly once, and reconciles
//! the two.
//!
//! `pipeline` is pure: entries in, batches of rows out. `sink` is the seam to databases; SQLite is
//! behind it. `lane` drives one database from one feed: commit first, then acknowledge. `recon`
//! compares SQL with the log row by row and repairs it. See `persistence/order-writer/README.md`.

mod catalog_json;
pub mod cli;
pub mod feed;
pub mod lane;
pub mod layout;
pub mod outbox;
pub mod pipeline;
pub mod recon;
pub mod rows;
pub mod sink;
pub mod source;
pub mod stored;
