//! The client crate against the real server: what a caller is told stays true when the server is
//! killed under it, the feed goes on at its place, and doubt can be resolved.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::time::Duration;
use stockade_client::protocol::command::{Line, Reserve};
use stockade_client::protocol::sale::{OpensAt, SkuPatch};
use stockade_client::protocol::text::ConsumerName;
use stockade_client::protocol::{
    Lsn, OrderState, Outcome, PartitionId, RequestId, SaleId, SalePatch, SkuId, UserId,
};
use stockade_client::{Client, Error, FeedRun, SubscribeOptions};
use stockade_e2e::Server;

const PATIENCE: Duration = Duration::from_secs(60);

fn sale() -> SaleId {
    SaleId::new(1).unwrap()
}

fn sku() -> SkuId {
    SkuId::new(1001).unwrap()
}

fn patch(stock: u32) -> SalePatch {
    let mut patch = SalePatch::new(sale());
    patch.opens_at = Some(OpensAt::Now);
    patch.skus = vec![SkuPatch {
        sku: sku(),
        stock: Some(stock),
        limit_per_user: None,
        max_per_order: None,
        labels: None,
    }];
    patch
}

fn reserve(user: u64, request: &str) -> Reserve {
    Reserve {
        sale: sale(),
        user: UserId::new(user).unwrap(),
        request: RequestId::parse(request.as_bytes()).unwrap(),
        lines: [Line { sku: sku(), quantity: 1 }].into_iter().collect(),
        data: Default::default(),
        not_after: None,
    }
}

/// Calls run while the server is killed and comes back. Each ends within its deadline with an order
/// that is there, or in doubt about a request that then turns out either way; none is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_is_true_while_the_server_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(&dir.path().join("data"), &["--shards", "2"]);
    let client =
        Client::builder(server.listen()).request_timeout(PATIENCE).connect().await.unwrap();
    assert_eq!(client.sale_put(patch(100_000)).await.unwrap().outcome, Outcome::Created);
    let mut calls = Vec::new();
    for worker in 0..32u64 {
        let client = client.clone();
        calls.push(tokio::spawn(async move {
            let mut told = Vec::new();
            for n in 0..60 {
                let reserve = reserve(worker * 1000 + n + 1, "r1");
                told.push((reserve.clone(), client.reserve(reserve).await));
            }
            told
        }));
    }
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(150)).await;
        tokio::task::block_in_place(|| server.kill_and_restart());
    }
    let mut held = 0;
    for call in calls {
        for (reserve, told) in call.await.unwrap() {
            let (user, request) = (reserve.user, reserve.request);
            let view = client.status(sale(), user, request).await.unwrap();
            match told {
                Ok(reply) => {
                    assert_eq!(reply.outcome, Outcome::Held);
                    assert_eq!((view.order, view.state), (reply.order, OrderState::Held));
                    held += 1;
                }
                Err(Error::InDoubt(doubt)) => {
                    let resolved = client.resolve(&doubt).await.unwrap().unwrap();
                    assert_eq!(resolved, view);
                    held += u64::from(view.state == OrderState::Held);
                }
                Err(error) => panic!("a server that comes back is reached: {error:?}"),
            }
        }
    }
    let figures = client.sku(sale(), sku()).await.unwrap();
    assert_eq!((figures.held, figures.free + figures.held), (held, figures.total));
}

/// A consumer's feed outlives two kills: each partition comes in LSN order, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_feed_goes_on_at_its_place_when_the_server_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(&dir.path().join("data"), &["--shards", "2"]);
    let client =
        Client::builder(server.listen()).request_timeout(PATIENCE).connect().await.unwrap();
    client.sale_put(patch(100_000)).await.unwrap();
    let name = ConsumerName::new(b"follower").unwrap();
    let mut feed = client.subscribe(SubscribeOptions::consumer(name.clone())).await.unwrap();
    let mut seen: BTreeMap<PartitionId, Lsn> = BTreeMap::new();
    let mut entries = 0;
    for round in 1..=3u64 {
        for user in 1..=50 {
            let reply = client.reserve(reserve(user, &format!("r{round}"))).await.unwrap();
            assert_eq!(reply.outcome, Outcome::Held);
        }
        while entries < 1 + 50 * round {
            let run = feed.next(PATIENCE).await.unwrap().expect("entries are committed");
            let FeedRun::Entries { partition, entries: run } = run else { panic!("{run:?}") };
            for entry in &run {
                let last = seen.entry(partition).or_default();
                assert_eq!(entry.lsn, last.next(), "partition {partition}");
                *last = entry.lsn;
                entries += 1;
            }
            feed.ack(&[(partition, seen[&partition])]).await.unwrap();
        }
        if round < 3 {
            tokio::task::block_in_place(|| server.kill_and_restart());
        }
    }
    assert_eq!(entries, 151);
    // What was acknowledged does not come again.
    drop(feed);
    let mut feed = client.subscribe(SubscribeOptions::consumer(name)).await.unwrap();
    client.reserve(reserve(1, "last")).await.unwrap();
    let run = feed.next(PATIENCE).await.unwrap();
    assert!(
        matches!(&run, Some(FeedRun::Entries { entries, .. }) if entries.len() == 1),
        "{run:?}"
    );
}

/// A batch is answered in its order, over both shards, and sells exactly what there is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_sells_exactly_what_there_is() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"), &["--shards", "2"]);
    let client = Client::builder(server.listen()).frame_crc(true).connect().await.unwrap();
    client.sale_put(patch(700)).await.unwrap();
    let asked: Vec<Reserve> = (1..=2000).map(|user| reserve(user, &user.to_string())).collect();
    let replies = client.reserve_many(asked.clone()).await;
    let mut orders = std::collections::BTreeSet::new();
    for reply in &replies {
        let reply = reply.as_ref().unwrap();
        match reply.outcome {
            Outcome::Held => assert!(orders.insert(reply.order.unwrap())),
            outcome => assert_eq!(outcome, Outcome::SoldOut),
        }
    }
    assert_eq!(orders.len(), 700);
    // The same again: the same orders.
    for (before, after) in replies.iter().zip(client.reserve_many(asked).await) {
        assert_eq!(before.as_ref().unwrap().order, after.unwrap().order);
    }
}
