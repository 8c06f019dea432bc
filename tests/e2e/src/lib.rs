//! What the process tests share: the real programs as children that always end, a plain RESP client
//! and a fold of the feed that share no code with the product, and a seeded generator.
//!
//! The programs are taken from `target/release` (or `STOCKADE_BIN_DIR`); `tests/run.sh` builds them
//! first.

pub mod books;
pub mod database;
pub mod http;
pub mod missing;
pub mod process;
pub mod proxy;
pub mod resp;
pub mod rng;
pub mod trade;

pub use books::Books;
pub use database::{DatabaseServer, Product};
pub use missing::missing;
pub use process::{Program, Server, Writer, cli, free_port, program};
pub use proxy::Proxy;
pub use resp::{Resp, Value};
pub use rng::Rng;
