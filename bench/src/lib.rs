//! Demo, replay of baskets, and honest load for Stockade: what the binary `stockade-bench` is made
//! of.
//!
//! The crate knows the engine through its client and its programs only; SQL it sees through
//! `stockade-writer`.

pub mod audit;
pub mod baskets;
pub mod build;
pub mod demo;
pub mod figures;
pub mod load;
pub mod machine;
pub mod plan;
pub mod processes;
pub mod shop;
