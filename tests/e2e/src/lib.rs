//! What the process tests share: the real programs as children that always end, a plain RESP client that
//! shares no code with the product, and a seeded generator.
//!
//! The programs are taken from `target/release` (or `STOCKADE_BIN_DIR`); `tests/run.sh` builds them first.

pub mod process;
pub mod resp;
pub mod rng;

pub use process::{Program, Server, Writer, cli, free_port, program};
pub use resp::{Resp, Value};
pub use rng::Rng;
