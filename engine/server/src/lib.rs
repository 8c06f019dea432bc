//! The Stockade server as a library: what the binary `stockade-server` starts.
//!
//! Pure parts: [`clock`], [`commit`] (the ring), [`routing`], [`settings`], [`binary_session`],
//! [`connection::watch`], [`feed::subscription`]. Drivers: [`shard`], [`connection`], [`feed`],
//! [`server`].

pub mod binary_session;
pub mod busy;
pub mod check;
pub mod clock;
pub mod commit;
pub mod connection;
pub mod feed;
pub mod fold;
pub mod gateway;
pub mod histogram;
pub mod http;
pub mod hub;
pub mod listen;
pub mod mailbox;
pub mod metrics;
pub mod os;
pub mod recover;
pub mod resp;
pub mod routing;
pub mod server;
pub mod session;
pub mod settings;
pub mod shard;
pub mod token;
