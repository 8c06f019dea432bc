//! Client of the Stockade stock engine.
//!
//! ```no_run
//! use stockade_client::{Client, Error};
//! use stockade_client::protocol::{RequestId, SaleId, SkuId, UserId};
//! use stockade_client::protocol::command::{Line, Reserve};
//!
//! # async fn buy() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::builder("127.0.0.1:7421").connect().await?;
//! let reserve = Reserve {
//!     sale: SaleId::new(1).ok_or("sale")?,
//!     user: UserId::new(7).ok_or("user")?,
//!     // Made once per purchase and kept over retries: it is what makes a retry safe.
//!     request: RequestId::parse(b"cart-31337")?,
//!     lines: [Line { sku: SkuId::new(1001).ok_or("sku")?, quantity: 1 }].into_iter().collect(),
//!     data: Default::default(),
//!     not_after: None,
//! };
//! match client.reserve(reserve).await {
//!     Ok(reply) => println!("{}", reply.outcome.word()),
//!     // The request was sent and no answer came: ask, do not guess.
//!     Err(Error::InDoubt(doubt)) => println!("{:?}", client.resolve(&doubt).await?),
//!     Err(error) => println!("nothing was bought: {error}"),
//! }
//! # Ok(()) }
//! ```
//!
//! A rejection (`sold_out`, `limit`...) is an answer, not an error. Every call has a deadline;
//! within it the client reconnects and asks again with the same request id, which is safe because
//! every verb is idempotent.

pub mod blocking;
mod builder;
mod calls;
mod client;
mod connection;
mod error;
mod exchange;
mod feed;
mod jitter;
mod many;
mod push_queue;
mod raw;
mod register;
mod sale_cache;
mod session;
mod slots;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use builder::{ClientBuilder, WhenBusy, WhenFull};
pub use client::{Client, Topology};
pub use error::{Error, InDoubt};
pub use feed::{FeedRun, FeedSubscription, SubscribeOptions};
pub use raw::RawConnection;
pub use register::ShutdownReport;
pub use session::{Session, SessionError};
/// Ids, commands and answers.
pub use stockade_protocol as protocol;
