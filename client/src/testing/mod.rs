//! A server for tests: real TCP on `127.0.0.1`, the real protocol, simple sales really decided in
//! memory, and faults by script. For tests of services that use this client, and of this client.
//!
//! ```
//! # #[cfg(feature = "testing")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use stockade_client::testing::{FakeServer, Fault, simple_sale};
//! use stockade_client::protocol::{OrderState, Outcome, RequestId, SaleId, SkuId, UserId};
//! use stockade_client::protocol::command::{Line, Reserve};
//!
//! let server = FakeServer::start()?;
//! server.put(&simple_sale(1, 1001, 10));
//! // The connection breaks when the order is made and before anybody is told.
//! server.on_verbs([Some(Fault::CutAfter)]);
//!
//! let client = stockade_client::blocking::Client::connect(server.settings())?;
//! let reserve = Reserve {
//!     sale: SaleId::new(1).ok_or("sale")?,
//!     user: UserId::new(7).ok_or("user")?,
//!     request: RequestId::parse(b"cart-1")?,
//!     lines: [Line { sku: SkuId::new(1001).ok_or("sku")?, quantity: 2 }].into_iter().collect(),
//!     data: Default::default(),
//!     not_after: None,
//! };
//! let reply = client.wait(|client| async move { client.reserve(reserve).await })?;
//! assert_eq!((reply.outcome, reply.again), (Outcome::Held, true));
//! # Ok(()) }
//! # #[cfg(not(feature = "testing"))]
//! # fn main() {}
//! ```
//!
//! The server is a thread of its own; it ends with its handle. What it does not do: rates, expiry
//! by itself (see [`FakeServer::expire`]), archived sales, durability, tokens.

mod catalog;
mod engine;
mod feed;
mod script;
mod server;

pub use script::Fault;
pub use server::{FakeServer, Greeting, Seen};

use stockade_protocol::sale::{OpensAt, SkuPatch};
use stockade_protocol::{SaleId, SalePatch, SkuId};

/// A sale that is open, with one SKU, no limits and the default hold.
///
/// # Panics
/// If an id is 0 or 2^63 and more.
pub fn simple_sale(sale: u64, sku: u64, stock: u32) -> SalePatch {
    let mut patch = SalePatch::new(SaleId::new(sale).expect("a sale's id is in 1..2^63"));
    patch.opens_at = Some(OpensAt::Now);
    patch.skus = vec![SkuPatch {
        sku: SkuId::new(sku).expect("a SKU's id is in 1..2^63"),
        stock: Some(stock),
        limit_per_user: None,
        max_per_order: None,
        labels: None,
    }];
    patch
}
