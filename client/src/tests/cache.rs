//! The sale cache over real sockets: what is answered without a packet, and how it reopens.

use super::*;
use stockade_protocol::command::Adjust;
use stockade_protocol::{OrderState, Outcome};

/// Far beyond the bound of the setting: what reopens, reopens by a push.
const LONG: Duration = Duration::from_secs(3600);

/// A client whose cache listens already.
async fn caching(server: &FakeServer, ttl: Duration) -> Client {
    let mut settings = patient(server);
    settings.sale_cache = Some(ttl);
    let client = settings.connect().await.unwrap();
    let subscribed =
        || server.seen().iter().any(|seen| matches!(seen.request, Request::Subscribe(_)));
    until("the cache listens", subscribed).await;
    client
}

/// Asks until a rejection comes from the cache; the outcome.
async fn until_cached(client: &Client, server: &FakeServer, outcome: Outcome) {
    let asked = tokio::time::timeout(PATIENCE, async {
        for n in 0.. {
            let before = reserves(server).len();
            let reply = client.reserve_new(reserve(7, &format!("c{n}"), 1)).await.unwrap();
            assert_eq!(reply.outcome, outcome);
            if reserves(server).len() == before {
                return;
            }
        }
    });
    assert!(asked.await.is_ok(), "{outcome:?} is never cached");
}

/// Asks until there is an order. One user: the connection to one shard is enough.
async fn until_held(client: &Client) {
    let asked = tokio::time::timeout(PATIENCE, async {
        for n in 0.. {
            let reply = client.reserve_new(reserve(7, &format!("h{n}"), 1)).await.unwrap();
            if reply.outcome == Outcome::Held {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    assert!(asked.await.is_ok(), "it never reopens");
}

fn restock() -> Adjust {
    Adjust { sale: sale(), sku: sku(), delta: 1, request: RequestId::parse(b"a").unwrap() }
}

#[tokio::test]
async fn sold_out_is_answered_without_a_packet_until_units_come() {
    let server = server(1);
    let (client, operator) = (caching(&server, LONG).await, client(&server).await);
    let first = reserve(7, "first", 1);
    assert_eq!(client.reserve_new(first.clone()).await.unwrap().outcome, Outcome::Held);
    until_cached(&client, &server, Outcome::SoldOut).await;
    // A known request is never answered from the cache, nor is a status.
    assert!(client.reserve(first.clone()).await.unwrap().again);
    let view = client.status(sale(), user(7), first.request).await.unwrap();
    assert_eq!(view.state, OrderState::Held);
    operator.adjust(restock()).await.unwrap();
    until_held(&client).await;
}

/// Without pushes it reopens all the same, within its time.
#[tokio::test]
async fn with_the_push_cut_it_reopens_within_its_time() {
    let server = server(0);
    let ttl = Duration::from_millis(300);
    let (client, operator) = (caching(&server, ttl).await, client(&server).await);
    operator.ping().await.unwrap();
    until_cached(&client, &server, Outcome::SoldOut).await;
    // The listener comes back to silence; the clients' own connections stay.
    server.greet(crate::testing::Greeting::Silence);
    server.cut_feeds();
    operator.adjust(restock()).await.unwrap();
    until_held(&client).await;
}

#[tokio::test]
async fn paused_and_ended_and_not_started_are_answered_without_a_packet() {
    let server = server(5);
    let (client, operator) = (caching(&server, LONG).await, client(&server).await);
    operator.sale_pause(sale()).await.unwrap();
    until_cached(&client, &server, Outcome::Paused).await;
    operator.sale_resume(sale()).await.unwrap();
    until_held(&client).await;
    operator.sale_close(sale()).await.unwrap();
    until_cached(&client, &server, Outcome::Ended).await;
}

#[tokio::test]
async fn without_the_setting_every_new_request_is_asked() {
    let server = server(0);
    let client = client(&server).await;
    for n in 1..=3 {
        let reply = client.reserve_new(reserve(7, &format!("n{n}"), 1)).await.unwrap();
        assert_eq!((reply.outcome, reserves(&server).len()), (Outcome::SoldOut, n));
    }
}
