//! The client against a server that does wrong on purpose (`crate::testing`), over real sockets.

mod blocking;
mod cache;
mod calls;
mod connections;
mod feed;

use crate::testing::{FakeServer, simple_sale};
use crate::{Client, ClientBuilder};
use std::time::Duration;
use stockade_protocol::command::{Line, Reserve};
use stockade_protocol::wire::Request;
use stockade_protocol::{Command, RequestId, SaleId, SkuId, UserId};

const SALE: u64 = 1;
const SKU: u64 = 1001;
/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server with one open sale.
fn server(stock: u32) -> FakeServer {
    let server = FakeServer::start().unwrap();
    server.put(&simple_sale(SALE, SKU, stock));
    server
}

/// Settings under which nothing ends by time that a test does not end by time itself.
fn patient(server: &FakeServer) -> ClientBuilder {
    let brief = Duration::from_millis(5);
    server.settings().request_timeout(PATIENCE).attempt_timeout(PATIENCE).backoff(brief, brief * 4)
}

async fn client(server: &FakeServer) -> Client {
    patient(server).connect().await.unwrap()
}

fn sale() -> SaleId {
    SaleId::new(SALE).unwrap()
}

fn user(user: u64) -> UserId {
    UserId::new(user).unwrap()
}

fn sku() -> SkuId {
    SkuId::new(SKU).unwrap()
}

fn reserve(of: u64, request: &str, quantity: u32) -> Reserve {
    Reserve {
        sale: sale(),
        user: user(of),
        request: RequestId::parse(request.as_bytes()).unwrap(),
        lines: [Line { sku: sku(), quantity }].into_iter().collect(),
        data: Default::default(),
        not_after: None,
    }
}

/// The reserves that a server has seen: connection and request id.
fn reserves(server: &FakeServer) -> Vec<(u64, String)> {
    let of = |seen: crate::testing::Seen| match seen.request {
        Request::Command(Command::Reserve(reserve)) => {
            Some((seen.connection, reserve.request.to_text()))
        }
        _ => None,
    };
    server.seen().into_iter().filter_map(of).collect()
}

/// Waits until a condition holds; a test that waits in vain fails.
async fn until(what: &str, condition: impl Fn() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    assert!(waited.await.is_ok(), "never: {what}");
}
