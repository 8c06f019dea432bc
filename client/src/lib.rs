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
//! # What a call can end in
//!
//! * **An answer.** A rejection (`sold_out`, `limit`...) is an answer, not an error.
//! * **[`Error::InDoubt`].** It was sent and may have been decided. [`Client::resolve`] says what
//!   became of it; [`Client::withdraw`] makes sure that nothing did.
//! * **Every other error.** Nothing was done.
//!
//! Every call has a deadline ([`ClientBuilder::request_timeout`]). Within it the client reconnects
//! with jitter, asks lost requests again, and asks silent ones again on another connection
//! ([`ClientBuilder::attempt_timeout`]), always with the same request id; that is safe because
//! every verb is idempotent.
//!
//! # Settings
//!
//! ```no_run
//! # async fn settings() -> Result<(), stockade_client::Error> {
//! use std::time::Duration;
//! use stockade_client::{Client, WhenBusy, WhenFull};
//!
//! let client = Client::builder("10.0.0.1:7421")
//!     .also("10.0.0.2:7421")
//!     .name("checkout")
//!     .request_timeout(Duration::from_secs(3))
//!     .attempt_timeout(Duration::from_millis(700))
//!     .connections_per_shard(2)
//!     .in_flight_max(512)
//!     // A full client says so at once, and a busy engine is asked again after its hint.
//!     .when_full(WhenFull::FailFast)
//!     .when_busy(WhenBusy::Retry)
//!     .connect()
//!     .await?;
//! // At the end: nothing new, a second for what runs, and the names of what has no answer.
//! let report = client.shutdown(Duration::from_secs(1)).await;
//! for doubt in report.in_doubt {
//!     eprintln!("to be resolved later: {doubt}");
//! }
//! # Ok(()) }
//! ```
//!
//! # The feed
//!
//! ```no_run
//! # async fn follow(client: stockade_client::Client) -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use stockade_client::protocol::text::ConsumerName;
//! use stockade_client::{FeedRun, SubscribeOptions};
//!
//! let options = SubscribeOptions::consumer(ConsumerName::new(b"mailer")?);
//! let mut feed = client.subscribe(options).await?;
//! while let Some(run) = feed.next(Duration::from_secs(60)).await? {
//!     if let FeedRun::Entries { partition, entries } = run {
//!         for entry in &entries {
//!             println!("{} {}", entry.lsn, entry.event.word());
//!         }
//!         if let Some(last) = entries.last() {
//!             feed.ack(&[(partition, last.lsn)]).await?;
//!         }
//!     }
//! }
//! # Ok(()) }
//! ```
//!
//! # Without a runtime
//!
//! ```no_run
//! use stockade_client::{Client, Error, blocking};
//!
//! # fn list() -> Result<(), Error> {
//! let client = blocking::Client::connect(Client::builder("127.0.0.1:7421"))?;
//! for sale in client.wait(|client| async move { client.sales().await })? {
//!     println!("{} {}", sale.sale, sale.state.word());
//! }
//! # Ok(()) }
//! ```
//!
//! # In tests
//!
//! With the feature `testing` there is `stockade_client::testing`: a server in the test's process
//! that really decides simple sales and fails by script.
//!
//! # Observing
//!
//! Each call is a `tracing` span `call` with its verb, subject, shard and attempt; connections,
//! repetitions and losses are events at `debug` and `warn`. The token is never in them.

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
