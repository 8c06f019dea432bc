//! Follows every order into something else: here a count of units by SKU.
//!
//! `cargo run -p stockade-client --example follow_feed -- [CONSUMER]` against a server on the
//! default address; ends with Ctrl-C or when nothing new came for ten seconds.
//!
//! A named consumer begins where it acknowledged last. What makes it exactly once is that the
//! effect and the place are stored together, and that the place is acknowledged only then; what
//! comes again after a crash is skipped by its LSN.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;
use stockade_client::protocol::text::ConsumerName;
use stockade_client::protocol::{Entry, Event, Lsn, PartitionId, SkuId};
use stockade_client::{Client, Error, FeedRun, SubscribeOptions};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let consumer = std::env::args().nth(1).unwrap_or_else(|| "example".into());
    match follow("127.0.0.1:7421", &consumer).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// What a real consumer keeps in a database, in one transaction: the effect and the place.
#[derive(Default)]
struct Books {
    ordered: BTreeMap<SkuId, u64>,
    applied: BTreeMap<PartitionId, Lsn>,
}

impl Books {
    fn apply(&mut self, entry: &Entry) {
        let applied = self.applied.entry(entry.partition).or_default();
        if entry.lsn <= *applied {
            return;
        }
        *applied = entry.lsn;
        if let Event::Held(placed) | Event::BornConfirmed(placed) = &entry.event {
            for line in &placed.lines {
                *self.ordered.entry(line.sku).or_default() += u64::from(line.quantity);
            }
        }
    }
}

async fn follow(address: &str, consumer: &str) -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::builder(address).name("follow_feed").connect().await?;
    let consumer = ConsumerName::new(consumer.as_bytes())?;
    let mut feed = client.subscribe(SubscribeOptions::consumer(consumer)).await?;
    let mut books = Books::default();
    loop {
        match feed.next(Duration::from_secs(10)).await {
            Ok(Some(FeedRun::Entries { partition, entries })) => {
                entries.iter().for_each(|entry| books.apply(entry));
                let last = books.applied[&partition];
                println!("partition {partition}: up to {last}");
                // The effect is stored: now, and not before, it may be forgotten by the server.
                feed.ack(&[(partition, last)]).await?;
            }
            // Entries were dropped before they were read: this consumer was too slow for what the
            // server keeps. The books must be made good from elsewhere.
            Ok(Some(FeedRun::Gap { partition, from, to })) => {
                eprintln!("partition {partition}: {from} to {to} are gone");
                books.applied.insert(partition, to);
                feed.ack(&[(partition, to)]).await?;
            }
            Ok(None) => break,
            // It was tried for a minute; the place is kept at the server.
            Err(error @ Error::FeedLost { .. }) => return Err(error.into()),
            Err(error) => return Err(error.into()),
        }
    }
    for (sku, units) in &books.ordered {
        println!("SKU {sku}: {units} units ordered");
    }
    Ok(())
}
