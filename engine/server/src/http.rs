//! HTTP/1.1 on the side port: status that can be cached, orders for those without a client, health
//! and metrics.
//!
//! It runs on a thread of its own and reaches the shards through [`crate::session::Gateway`], so
//! that it never slows them. Ids are strings in answers; rejections are problem+json.

mod app;
mod cache;
mod events;
mod orders;
mod problem;
mod routes;
mod sales;
mod serve;

pub use serve::{CONNECTIONS_MAX, serve};
