//! The Stockade server as a library: what the binary `stockade-server` starts.

pub mod session;
