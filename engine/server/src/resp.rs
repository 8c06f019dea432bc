//! RESP2 and RESP3: any Redis client is a client of the engine.
//!
//! Pure: [`RespSession`] turns bytes into commands and replies into bytes. Shards answer in any
//! order; answers leave in the order of the requests, as RESP clients expect.

mod commands;
mod handshake;
mod parser;
pub mod scripts;
mod session;
mod writer;

pub use commands::decimal;
pub use parser::{ParseError, parse};
pub use session::RespSession;
