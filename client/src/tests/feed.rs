//! The feed: gapless, resumed at the reader's place, bounded.

use super::*;
use crate::error::Error;
use crate::testing::Fault;
use crate::{FeedRun, FeedSubscription, SubscribeOptions};
use std::collections::BTreeMap;
use stockade_protocol::text::ConsumerName;
use stockade_protocol::wire::FeedFrom;
use stockade_protocol::{Lsn, PartitionId};

/// Makes an order of each of these users.
async fn orders(client: &Client, users: std::ops::RangeInclusive<u64>, request: &str) {
    for n in users {
        client.reserve(reserve(n, request, 1)).await.unwrap();
    }
}

/// Reads so many entries: LSNs by partition, in the order in which they came.
async fn read(feed: &mut FeedSubscription, count: usize) -> BTreeMap<PartitionId, Vec<u64>> {
    let (mut seen, mut left) = (BTreeMap::<_, Vec<u64>>::new(), count);
    while left > 0 {
        let run = feed.next(PATIENCE).await.unwrap().expect("entries are there");
        let FeedRun::Entries { partition, entries } = run else { panic!("{run:?}") };
        left = left.checked_sub(entries.len()).expect("no more than there are");
        seen.entry(partition).or_default().extend(entries.iter().map(|entry| entry.lsn.get()));
    }
    seen
}

fn assert_gapless(seen: &BTreeMap<PartitionId, Vec<u64>>) {
    for (partition, lsns) in seen {
        let expected: Vec<u64> = (1..=lsns.len() as u64).collect();
        assert_eq!(*lsns, expected, "partition {partition}");
    }
}

fn name(name: &str) -> ConsumerName {
    ConsumerName::new(name.as_bytes()).unwrap()
}

/// A feed whose connection broke ended in "protocol error".
#[tokio::test]
async fn a_feed_goes_on_where_it_was_when_its_connection_breaks() {
    for options in [SubscribeOptions::consumer(name("c")), SubscribeOptions::tail(FeedFrom::Oldest)]
    {
        let server = server(1000);
        let client = client(&server).await;
        orders(&client, 1..=20, "r1").await;
        let mut feed = client.subscribe(options).await.unwrap();
        let mut seen = read(&mut feed, 10).await;
        server.cut();
        orders(&client, 1..=20, "r2").await;
        // And once more, on a restart, before anything was read.
        server.restart().unwrap();
        for (partition, lsns) in read(&mut feed, 31).await {
            seen.entry(partition).or_default().extend(lsns);
        }
        assert_eq!(seen.values().map(Vec::len).sum::<usize>(), 41);
        assert_gapless(&seen);
    }
}

#[tokio::test]
async fn a_feed_that_may_not_resume_says_that_it_is_lost() {
    let server = server(10);
    let client = client(&server).await;
    let mut options = SubscribeOptions::tail(FeedFrom::Oldest);
    options.resume_for = Duration::ZERO;
    let mut feed = client.subscribe(options).await.unwrap();
    read(&mut feed, 1).await;
    server.cut();
    let error = feed.next(PATIENCE).await.unwrap_err();
    assert!(matches!(error, Error::FeedLost { .. }), "{error:?}");
    assert_eq!(feed.cursors(), [(PartitionId::CATALOG, Lsn::new(2))]);
}

/// A tail from the newest entry that saw nothing cannot know where it was.
#[tokio::test]
async fn a_tail_without_a_place_is_lost_rather_than_guessed() {
    let server = server(10);
    let client = client(&server).await;
    let mut feed = client.subscribe(SubscribeOptions::tail(FeedFrom::Newest)).await.unwrap();
    server.cut();
    let error = feed.next(PATIENCE).await.unwrap_err();
    assert!(matches!(error, Error::FeedLost { .. }), "{error:?}");
}

#[tokio::test]
async fn a_feed_whose_server_is_gone_is_lost_after_its_time() {
    let server = server(10);
    let client = client(&server).await;
    let mut options = SubscribeOptions::tail(FeedFrom::Oldest);
    options.resume_for = Duration::from_millis(50);
    let mut feed = client.subscribe(options).await.unwrap();
    read(&mut feed, 1).await;
    drop(server);
    let error = feed.next(PATIENCE).await.unwrap_err();
    assert!(matches!(error, Error::FeedLost { .. }), "{error:?}");
}

/// The first LSN was not compared with the one that was asked for.
#[tokio::test]
async fn a_hole_is_an_error_also_before_the_first_entry_and_is_asked_for_again() {
    let server = server(1000);
    let client = client(&server).await;
    orders(&client, 1..=20, "r1").await;
    let all: Vec<_> = (0..4).map(PartitionId::new).chain([PartitionId::CATALOG]).collect();
    let lsns = all.iter().map(|partition| (*partition, Lsn::FIRST)).collect();
    for options in
        [SubscribeOptions::tail(FeedFrom::Lsns(lsns)), SubscribeOptions::consumer(name("c"))]
    {
        server.leave_out(1);
        let mut feed = client.subscribe(options).await.unwrap();
        let error = feed.next(PATIENCE).await.unwrap_err();
        let (expected, found) = (Lsn::FIRST, Lsn::new(2));
        assert_eq!(error, Error::FeedHole { partition: PartitionId::new(0), expected, found });
        assert_gapless(&read(&mut feed, 21).await);
    }
}

#[tokio::test]
async fn trimmed_entries_are_a_gap_and_the_feed_goes_on_behind_it() {
    let server = server(1000);
    let client = client(&server).await;
    for n in 0..6 {
        client.reserve(reserve(7, &format!("r{n}"), 1)).await.unwrap();
    }
    let partition = stockade_protocol::routing::partition_of(user(7), 4);
    server.trim(partition, Lsn::new(4));
    let mut options = SubscribeOptions::tail(FeedFrom::Lsns(vec![(partition, Lsn::FIRST)]));
    options.partitions = vec![partition];
    let mut feed = client.subscribe(options).await.unwrap();
    let (from, to) = (Lsn::FIRST, Lsn::new(3));
    let gap = feed.next(PATIENCE).await.unwrap();
    assert_eq!(gap, Some(FeedRun::Gap { partition, from, to }));
    assert_eq!(read(&mut feed, 3).await[&partition], [4, 5, 6]);
}

#[tokio::test]
async fn acknowledged_entries_do_not_come_again_and_others_do() {
    let server = server(1000);
    let client = client(&server).await;
    orders(&client, 1..=20, "r1").await;
    let options = SubscribeOptions::consumer(name("c"));
    let mut feed = client.subscribe(options.clone()).await.unwrap();
    read(&mut feed, 21).await;
    // The acknowledgement is cut off and asked again.
    server.on_feed([Some(Fault::CutAfter)]);
    feed.ack(&[(PartitionId::CATALOG, Lsn::FIRST)]).await.unwrap();
    drop(feed);
    let mut feed = client.subscribe(options).await.unwrap();
    let again = read(&mut feed, 20).await;
    assert!(!again.contains_key(&PartitionId::CATALOG));
    assert_gapless(&again);
}

/// An acknowledgement had no deadline.
#[tokio::test]
async fn an_acknowledgement_without_an_answer_ends_at_the_deadline() {
    let server = server(10);
    let timeout = Duration::from_millis(800);
    let client = patient(&server).request_timeout(timeout).connect().await.unwrap();
    let feed = client.subscribe(SubscribeOptions::consumer(name("c"))).await.unwrap();
    server.on_feed(vec![Some(Fault::Ignore); 5]);
    let error = feed.ack(&[(PartitionId::CATALOG, Lsn::FIRST)]).await.unwrap_err();
    assert_eq!(error, Error::NoAnswer(timeout));
}

/// A reader that takes little at a time sees everything: credit comes back as it reads.
#[tokio::test]
async fn a_small_window_of_credit_is_enough() {
    let server = server(1000);
    let client = client(&server).await;
    orders(&client, 1..=100, "r1").await;
    let mut options = SubscribeOptions::tail(FeedFrom::Oldest);
    options.credit_bytes = 300;
    let mut feed = client.subscribe(options).await.unwrap();
    assert_gapless(&read(&mut feed, 101).await);
}
