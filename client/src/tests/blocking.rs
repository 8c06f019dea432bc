//! The blocking facade.

use super::*;
use crate::blocking;
use crate::error::Error;
use crate::testing::Fault;
use crate::{FeedRun, SubscribeOptions};
use stockade_protocol::wire::{ErrorCode, FeedFrom};
use stockade_protocol::{Outcome, Reply};

#[test]
fn the_blocking_client_buys_and_is_told_of_doubt() {
    let server = server(5);
    let client = blocking::Client::connect(patient(&server)).unwrap();
    let Reply::Reserve(reply) = client.call(Command::Reserve(reserve(7, "r1", 1))).unwrap() else {
        panic!("not the answer to a reserve");
    };
    assert_eq!(reply.outcome, Outcome::Held);
    server.on_verbs([Some(Fault::CutAfter), Some(Fault::Error(ErrorCode::Failed))]);
    let error = client.call(Command::Reserve(reserve(7, "r2", 1))).unwrap_err();
    assert!(matches!(error, Error::InDoubt(_)), "{error:?}");
    let view = client.wait(|client| async move { client.sku(sale(), sku()).await }).unwrap();
    assert_eq!((view.free, view.held), (3, 2));
    let mut feed = client.subscribe(SubscribeOptions::tail(FeedFrom::Oldest)).unwrap();
    let mut entries = 0;
    while entries < 3 {
        match feed.next(PATIENCE).unwrap() {
            Some(FeedRun::Entries { entries: run, .. }) => entries += run.len(),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(client.shutdown(PATIENCE).unwrap(), crate::ShutdownReport::default());
}

/// Inside a runtime it blocks its caller and nothing else; it does not panic.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_blocking_client_works_inside_a_runtime() {
    let server = server(5);
    let client = blocking::Client::connect(patient(&server)).unwrap();
    let reply = client.call(Command::Reserve(reserve(7, "r1", 1))).unwrap();
    assert!(matches!(reply, Reply::Reserve(reply) if reply.outcome == Outcome::Held));
}
