//! Connections: orphans, being sent away, restarts, backpressure, checksums.

use super::*;
use crate::error::Error;
use crate::testing::{Fault, Greeting};
use stockade_protocol::Outcome;

/// Calls that were dropped kept their places in flight until the connection ended: after enough of
/// them the client stood still.
#[tokio::test]
async fn a_connection_with_too_many_orphans_is_replaced() {
    let server = server(100);
    let client = patient(&server).in_flight_max(8).orphans_max(3).connect().await.unwrap();
    server.on_verbs(vec![Some(Fault::Ignore); 8]);
    for round in 1..=8usize {
        let call = tokio::spawn({
            let client = client.clone();
            async move { client.reserve(reserve(7, &format!("r{round}"), 1)).await }
        });
        until("it is on its way", || reserves(&server).len() == round).await;
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
    }
    let reply = client.reserve(reserve(7, "last", 1)).await.unwrap();
    assert_eq!(reply.outcome, Outcome::Held);
    let connections: std::collections::BTreeSet<u64> =
        reserves(&server).iter().map(|(connection, _)| *connection).collect();
    assert_eq!(connections.len(), 3, "four orphans each, then a new one");
}

#[tokio::test]
async fn the_place_of_a_dropped_call_is_given_back_with_its_answer() {
    let server = server(100);
    let client = patient(&server).in_flight_max(2).orphans_max(1).connect().await.unwrap();
    for round in 1..=10usize {
        let delay = |ms| Some(Fault::DelayAnswer(Duration::from_millis(ms)));
        server.on_verbs([delay(10), delay(30)]);
        let call = tokio::spawn({
            let client = client.clone();
            async move { client.reserve(reserve(7, &format!("r{round}"), 1)).await }
        });
        until("it is on its way", || reserves(&server).len() == 2 * round - 1).await;
        call.abort();
        // Answered behind it.
        let again = client.reserve(reserve(7, &format!("r{round}"), 1)).await.unwrap();
        assert!(again.again);
    }
    let connections: std::collections::BTreeSet<u64> =
        reserves(&server).iter().map(|(connection, _)| *connection).collect();
    assert_eq!(connections.len(), 1, "no orphan was left");
}

/// A request that was dropped before it left was never sent.
#[tokio::test]
async fn a_call_that_is_dropped_in_the_queue_is_never_sent() {
    let server = server(100);
    server.in_flight_max(1);
    let client = client(&server).await;
    server.on_verbs([Some(Fault::DelayAnswer(Duration::from_millis(1500)))]);
    let spawned = client.clone();
    let first = tokio::spawn(async move { spawned.reserve(reserve(7, "r1", 1)).await });
    until("the first is on its way", || reserves(&server).len() == 1).await;
    let call = client.reserve(reserve(7, "r2", 1));
    assert!(tokio::time::timeout(Duration::from_millis(20), call).await.is_err());
    assert_eq!(first.await.unwrap().unwrap().outcome, Outcome::Held);
    assert_eq!(client.reserve(reserve(7, "r3", 1)).await.unwrap().outcome, Outcome::Held);
    let seen: Vec<String> = reserves(&server).into_iter().map(|(_, request)| request).collect();
    assert_eq!(seen, ["r1", "r3"]);
}

/// GOAWAY was taken for nothing: the client came back at once.
#[tokio::test]
async fn a_client_that_is_sent_away_comes_back_when_it_was_told() {
    let server = server(5);
    let client = client(&server).await;
    server.on_verbs([Some(Fault::GoAway { reconnect_after_ms: 150 })]);
    let before = std::time::Instant::now();
    // What is in flight is still answered.
    assert_eq!(client.reserve(reserve(7, "r1", 1)).await.unwrap().outcome, Outcome::Held);
    assert_eq!(client.reserve(reserve(7, "r2", 1)).await.unwrap().outcome, Outcome::Held);
    assert!(before.elapsed() >= Duration::from_millis(150));
    let seen = reserves(&server);
    assert_ne!(seen[0].0, seen[1].0, "on a new connection");
}

#[tokio::test]
async fn a_client_finds_a_restarted_server_on_its_new_ports() {
    let server = server(100);
    let client = client(&server).await;
    let before = client.topology();
    for n in 1..=8 {
        assert_eq!(client.reserve(reserve(n, "r1", 1)).await.unwrap().outcome, Outcome::Held);
    }
    server.restart().unwrap();
    for n in 1..=8 {
        assert!(client.reserve(reserve(n, "r1", 1)).await.unwrap().again);
    }
    let after = client.topology();
    assert_eq!(after.epoch, before.epoch + 1);
    assert!(after.shard_ports.iter().all(|port| !before.shard_ports.contains(port)));
    let last = server.seen().into_iter().rev().find(|s| matches!(s.request, Request::Command(_)));
    assert!(last.unwrap().on_shard_port, "the shards' own ports are used again");
}

/// The server does not read: what cannot leave waits, and is not in doubt at the deadline.
#[tokio::test]
async fn requests_that_the_server_does_not_take_are_not_in_doubt() {
    let server = server(5);
    let timeout = Duration::from_millis(1000);
    let client = patient(&server).request_timeout(timeout).connect().await.unwrap();
    assert_eq!(client.reserve(reserve(7, "r0", 1)).await.unwrap().outcome, Outcome::Held);
    server.read(false);
    // Far more than the sockets buffer: most of it stays here.
    let large = || {
        let mut patch = crate::testing::simple_sale(2, 1, 1);
        patch.name = Some("x".repeat(60_000));
        let labels = vec![("spec".to_owned(), "y".repeat(60_000)); 16];
        patch.skus[0].labels = Some(labels);
        patch
    };
    let calls: Vec<_> = (0..40)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.sale_put(large()).await })
        })
        .collect();
    let (mut in_doubt, mut not_sent) = (0, 0);
    for call in calls {
        match call.await.unwrap().unwrap_err() {
            Error::InDoubt(_) => in_doubt += 1,
            Error::NotReached { .. } => not_sent += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(in_doubt > 0 && not_sent > 0, "{in_doubt} in doubt, {not_sent} not sent");
}

#[tokio::test]
async fn a_request_larger_than_the_server_takes_is_refused_here() {
    let server = server(5);
    let client = client(&server).await;
    let mut patch = crate::testing::simple_sale(2, 1, 1);
    let labels = vec![("spec".to_owned(), "y".repeat(60_000)); 80];
    patch.skus[0].labels = Some(labels);
    let error = client.sale_put(patch).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error:?}");
    // The connection goes on.
    client.ping().await.unwrap();
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn frames_with_checksums_are_understood() {
    let server = server(5);
    let client = patient(&server).frame_crc(true).connect().await.unwrap();
    assert_eq!(client.reserve(reserve(7, "r1", 1)).await.unwrap().outcome, Outcome::Held);
}

#[tokio::test]
async fn the_next_address_is_taken_where_the_first_is_not_reached() {
    let server = server(5);
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let settings = Client::builder(nobody.to_string()).also(server.address());
    let client = settings.connect().await.unwrap();
    assert_eq!(client.reserve(reserve(7, "r1", 1)).await.unwrap().outcome, Outcome::Held);
}

/// Many calls that wait for a server that is away make one attempt to connect at a time.
#[tokio::test]
async fn waiting_calls_do_not_storm_a_server_that_is_away() {
    let server = server(5);
    let base = Duration::from_millis(100);
    let settings = patient(&server).request_timeout(Duration::from_millis(500)).backoff(base, base);
    let client = settings.connect().await.unwrap();
    server.greet(Greeting::Close);
    let calls: Vec<_> = (1..=200)
        .map(|n| {
            let client = client.clone();
            tokio::spawn(async move { client.reserve(reserve(n, "r1", 1)).await })
        })
        .collect();
    for call in calls {
        assert!(matches!(call.await.unwrap(), Err(Error::NotReached { .. })));
    }
    // Two shards, each with its own port and the common one to try, every 50 ms or so.
    let attempts = server.connections();
    assert!((3..=120).contains(&attempts), "{attempts} attempts of 200 calls");
}
