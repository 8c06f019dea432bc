//! A deterministic simulator: the engine's real machines in one thread, in a world where everything
//! that can go wrong does, watched by an auditor that knows what each answer must be.
//!
//! [`world`] is the world of one seed; [`engine`] drives the server's shards; [`model`] is the
//! auditor; [`run`] runs seeds and tells of failures. See `docs/TESTING.md`.

pub mod clients;
pub mod engine;
pub mod faults;
pub mod model;
pub mod rng;
pub mod run;
pub mod sql;
pub mod store;
pub mod trace;
pub mod workload;
pub mod world;
pub mod writer;
