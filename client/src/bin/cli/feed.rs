//! `feed tail|consumers|drop`.

use crate::Server;
use crate::output::{Failure, Output, good, id};
use clap::Subcommand;
use serde_json::json;
use std::process::ExitCode;
use std::time::Duration;
use stockade_client::protocol::text::ConsumerName;
use stockade_client::protocol::wire::{ErrorCode, FeedFrom};
use stockade_client::protocol::{Lsn, PartitionId, json as forms};
use stockade_client::{Client, Error, FeedRun, FeedSubscription, SubscribeOptions};

/// What to do with the feed.
#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Print events as JSON, one a line, as they are committed.
    Tail(TailArguments),
    /// Who reads, and how far behind.
    Consumers,
    /// End a consumer: it no longer holds entries back.
    Drop {
        /// Its name.
        name: String,
    },
}

/// Of `tail`.
#[derive(clap::Args, Debug)]
pub struct TailArguments {
    /// oldest, newest, stored (with --consumer), or an LSN: that entry of each partition.
    #[arg(long, allow_negative_numbers = true)]
    from: Option<String>,
    /// Only this partition; several times for more. 65535 is the catalog's.
    #[arg(long, allow_negative_numbers = true)]
    partition: Vec<String>,
    /// Acknowledge as this consumer.
    #[arg(long)]
    consumer: Option<String>,
    /// End after so many events.
    #[arg(long, allow_negative_numbers = true)]
    count: Option<String>,
}

/// Where a tail begins.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Start {
    Said(FeedFrom),
    /// Of each partition.
    At(Lsn),
}

fn consumer(name: &str) -> Result<ConsumerName, Failure> {
    good("consumer", name, ConsumerName::new(name.as_bytes()).ok())
}

/// Runs a verb.
pub async fn run(server: &Server, out: &Output, verb: Verb) -> Result<ExitCode, Failure> {
    let form = json!({"outcome": "bad_request"});
    match verb {
        Verb::Tail(arguments) => tail(server, out, arguments).await,
        Verb::Consumers => consumers(server, out).await,
        Verb::Drop { name } => drop_consumer(server, out, &name).await,
    }
    .map_err(|failure| failure.shaped(&form))
}

async fn consumers(server: &Server, out: &Output) -> Result<ExitCode, Failure> {
    let consumers = server.connect().await?.consumers().await?;
    let rows: Vec<_> = consumers
        .iter()
        .map(|info| {
            let lag = |(_, acked, committed): &(PartitionId, Lsn, Lsn)| {
                committed.get().saturating_sub(acked.get())
            };
            let lag: u64 = info.cursors.iter().map(lag).sum();
            json!({"consumer": info.name.as_str(), "lag": lag})
        })
        .collect();
    out.rows(&rows);
    Ok(ExitCode::SUCCESS)
}

async fn drop_consumer(server: &Server, out: &Output, name: &str) -> Result<ExitCode, Failure> {
    let consumer = consumer(name)?;
    let (outcome, code) = match server.connect().await?.consumer_drop(consumer).await {
        Ok(()) => ("dropped", 0),
        Err(Error::Server { code: ErrorCode::UnknownConsumer, .. }) => ("unknown_consumer", 1),
        Err(error) => return Err(error.into()),
    };
    out.object(&json!({"outcome": outcome, "consumer": name}));
    Ok(ExitCode::from(code))
}

async fn tail(
    server: &Server,
    out: &Output,
    arguments: TailArguments,
) -> Result<ExitCode, Failure> {
    let TailArguments { from, partition, consumer: name, count } = arguments;
    let name = name.map(|name| consumer(&name)).transpose()?;
    let start = start(from.as_deref(), name.is_some())?;
    let number = |text: &String| {
        let in_range = |p: u64| u16::try_from(p).ok().map(PartitionId::new);
        id("partition", text, in_range)
    };
    let partitions = partition.iter().map(number).collect::<Result<Vec<_>, _>>()?;
    let mut left = count.map(|text| id("count", &text, Some)).transpose()?.unwrap_or(u64::MAX);
    let client = server.connect().await?;
    let mut feed = subscribe(&client, &start, &partitions, name.as_ref()).await?;
    while left > 0 {
        match feed.next(Duration::from_secs(1)).await {
            Ok(None) => {}
            Ok(Some(FeedRun::Gap { partition, from, to })) => {
                out.line(&forms::gap_to_json(partition, from, to));
            }
            Ok(Some(FeedRun::Entries { partition, entries })) => {
                let mut last = Lsn::NONE;
                for entry in entries.iter().take(usize::try_from(left).unwrap_or(usize::MAX)) {
                    out.line(&forms::entry_to_json(entry));
                    last = entry.lsn;
                    left -= 1;
                }
                if name.is_some() && last > Lsn::NONE {
                    feed.ack(&[(partition, last)]).await?;
                }
            }
            // Whoever asked for what is new now is told that some of it may be missing.
            Err(error @ Error::FeedLost { .. }) if start == Start::Said(FeedFrom::Newest) => {
                eprintln!("{error}; events of this moment are not shown");
                feed = subscribe(&client, &start, &partitions, name.as_ref()).await?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn start(from: Option<&str>, named: bool) -> Result<Start, Failure> {
    let said = match (from, named) {
        (Some("oldest"), _) => FeedFrom::Oldest,
        (Some("newest"), _) | (None, false) => FeedFrom::Newest,
        (Some("stored") | None, true) => FeedFrom::Stored,
        (Some("stored"), false) => {
            return Err(Failure::Usage("--from stored needs --consumer".into()));
        }
        (Some(lsn), _) if lsn.starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
            let lsn = id("from", lsn, |lsn| (lsn > 0).then_some(Lsn::new(lsn)))?;
            return Ok(Start::At(lsn));
        }
        (Some(other), _) => {
            let usage = format!("--from {other}: oldest, newest, stored or an LSN");
            return Err(Failure::Usage(usage));
        }
    };
    Ok(Start::Said(said))
}

async fn subscribe(
    client: &Client,
    start: &Start,
    partitions: &[PartitionId],
    name: Option<&ConsumerName>,
) -> Result<FeedSubscription, Failure> {
    let from = match start {
        Start::Said(from) => from.clone(),
        Start::At(lsn) if partitions.is_empty() => {
            let users = (0..client.topology().partition_count).map(PartitionId::new);
            FeedFrom::Lsns(users.chain([PartitionId::CATALOG]).map(|p| (p, *lsn)).collect())
        }
        Start::At(lsn) => FeedFrom::Lsns(partitions.iter().map(|p| (*p, *lsn)).collect()),
    };
    let options = SubscribeOptions {
        consumer: name.cloned(),
        partitions: partitions.to_vec(),
        ..SubscribeOptions::tail(from)
    };
    Ok(client.subscribe(options).await?)
}
