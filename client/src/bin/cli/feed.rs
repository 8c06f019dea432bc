//! `feed tail|consumers|drop`.

use crate::output::{Failure, Output, id};
use clap::Subcommand;
use serde_json::json;
use std::process::ExitCode;
use std::time::Duration;
use stockade_client::protocol::text::ConsumerName;
use stockade_client::protocol::wire::FeedFrom;
use stockade_client::protocol::{Lsn, PartitionId, json as forms};
use stockade_client::{Client, FeedRun, SubscribeOptions};

/// What to do with the feed.
#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Print events as JSON, one a line, as they are committed.
    Tail {
        /// oldest, newest, or stored (with --consumer).
        #[arg(long)]
        from: Option<String>,
        /// Acknowledge as this consumer.
        #[arg(long)]
        consumer: Option<String>,
        /// End after so many events.
        #[arg(long)]
        count: Option<u64>,
    },
    /// Who reads, and how far behind.
    Consumers,
    /// End a consumer: it no longer holds entries back.
    Drop {
        /// Its name.
        name: String,
    },
}

fn consumer(name: &str) -> Result<ConsumerName, Failure> {
    id("consumer", ConsumerName::new(name.as_bytes()).ok())
}

/// Runs a verb.
pub async fn run(client: &Client, out: &Output, verb: Verb) -> Result<ExitCode, Failure> {
    match verb {
        Verb::Tail { from, consumer, count } => tail(client, out, (from, consumer, count)).await,
        Verb::Consumers => {
            let rows: Vec<_> = client
                .consumers()
                .await?
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
        Verb::Drop { name } => {
            client.consumer_drop(consumer(&name)?).await?;
            out.object(&json!({"outcome": "dropped", "consumer": name}));
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn tail(
    client: &Client,
    out: &Output,
    (from, name, count): (Option<String>, Option<String>, Option<u64>),
) -> Result<ExitCode, Failure> {
    let name = name.map(|name| consumer(&name)).transpose()?;
    let from = match (from.as_deref(), &name) {
        (Some("oldest"), _) => FeedFrom::Oldest,
        (Some("newest"), _) | (None, None) => FeedFrom::Newest,
        (Some("stored") | None, Some(_)) => FeedFrom::Stored,
        (Some(other), _) => {
            return Err(Failure::Usage(format!("--from {other}: oldest, newest or stored")));
        }
    };
    let options = SubscribeOptions { consumer: name.clone(), ..SubscribeOptions::tail(from) };
    let mut feed = client.subscribe(options).await?;
    let mut left = count.unwrap_or(u64::MAX);
    while left > 0 {
        match feed.next(Duration::from_secs(1)).await? {
            None => {}
            Some(FeedRun::Gap { partition, from, to }) => {
                out.line(&forms::gap_to_json(partition, from, to));
            }
            Some(FeedRun::Entries { partition, entries }) => {
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
        }
    }
    Ok(ExitCode::SUCCESS)
}
