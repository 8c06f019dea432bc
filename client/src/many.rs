//! Many reserves at once: those of one shard that are small enough share a frame, the others go
//! alone, all at the same time.

use crate::builder::WhenBusy;
use crate::calls::unexpected;
use crate::client::{Answer, Client};
use crate::error::{Error, InDoubt};
use crate::exchange::{Weight, weigh};
use std::collections::BTreeMap;
use stockade_protocol::command::{Reserve, Route};
use stockade_protocol::reply::ReserveReply;
use stockade_protocol::wire::{Request, Response, fits_many};
use stockade_protocol::{Command, Outcome, Reply};
use tokio::task::JoinSet;

/// Reserves of one frame: well below the protocol's bound, so that the answers of a large batch do
/// not all wait for the slowest.
const BATCH_MAX: usize = 512;

type Replies = Vec<(usize, Result<ReserveReply, Error>)>;

impl Client {
    /// Many reserves; answers in the order of the input. Each is decided alone: this is no basket.
    ///
    /// Reserves of one line, with a decimal request id and without data travel together; others
    /// take a frame each.
    pub async fn reserve_many(
        &self,
        reserves: impl IntoIterator<Item = Reserve>,
    ) -> Vec<Result<ReserveReply, Error>> {
        let topology = self.topology();
        let mut work = JoinSet::new();
        let mut by_shard: BTreeMap<usize, Vec<(usize, Reserve)>> = BTreeMap::new();
        let mut count = 0;
        for (at, reserve) in reserves.into_iter().enumerate() {
            count += 1;
            if fits_many(&reserve) {
                let shard = topology.shard(Route::User(reserve.user));
                let batch = by_shard.entry(shard).or_default();
                batch.push((at, reserve));
                if batch.len() == BATCH_MAX {
                    work.spawn(self.clone().batch(shard, std::mem::take(batch)));
                }
            } else {
                let client = self.clone();
                work.spawn(async move { vec![(at, client.reserve(reserve).await)] });
            }
        }
        for (shard, batch) in by_shard {
            if !batch.is_empty() {
                work.spawn(self.clone().batch(shard, batch));
            }
        }
        let mut replies: Vec<Option<Result<ReserveReply, Error>>> = vec![None; count];
        while let Some(finished) = work.join_next().await {
            // A task that panicked leaves its calls without an answer.
            for (at, reply) in finished.unwrap_or_default() {
                replies[at] = Some(reply);
            }
        }
        replies.into_iter().map(|reply| reply.unwrap_or(Err(Error::Closed))).collect()
    }

    async fn batch(self, shard: usize, batch: Vec<(usize, Reserve)>) -> Replies {
        let doubts: Vec<InDoubt> = batch.iter().map(|(_, reserve)| doubt_of(reserve)).collect();
        let many = batch.iter().map(|(_, reserve)| Some(reserve.clone())).collect();
        let answer = self.exchange(shard, Request::ReserveMany(many), doubts).await;
        let (replies, mixed) = match answer {
            Ok(Answer::Settled(Response::ReserveMany(replies))) => (replies, false),
            Ok(Answer::Mixed(Response::ReserveMany(replies))) => (replies, true),
            Ok(other) => {
                let error = Error::Protocol(format!("{other:?} as the answer to many reserves"));
                return all(&batch, |_| error.clone());
            }
            Err(Error::InDoubt(_)) => {
                return all(&batch, |reserve| Error::InDoubt(doubt_of(reserve)));
            }
            Err(error) => return all(&batch, |_| error.clone()),
        };
        if replies.len() != batch.len() {
            let what = format!("{} answers to {} reserves", replies.len(), batch.len());
            return all(&batch, |_| Error::Protocol(what.clone()));
        }
        let mut out = Vec::with_capacity(batch.len());
        for ((at, reserve), reply) in batch.into_iter().zip(replies) {
            out.push((at, self.one_of_many(reserve, reply, mixed).await));
        }
        out
    }

    /// What one answer of a batch says to its caller.
    async fn one_of_many(
        &self,
        reserve: Reserve,
        reply: ReserveReply,
        mixed: bool,
    ) -> Result<ReserveReply, Error> {
        let response = Response::Reply(Reply::Reserve(reply));
        if mixed && weigh(&response) != Weight::Settled {
            return Err(Error::InDoubt(doubt_of(&reserve)));
        }
        let busy = matches!(reply.outcome, Outcome::Busy | Outcome::Throttled);
        if busy && self.settings().when_busy == WhenBusy::Retry {
            return match self.call(Command::Reserve(reserve)).await? {
                Reply::Reserve(reply) => Ok(reply),
                other => Err(unexpected(&other)),
            };
        }
        Ok(reply)
    }
}

fn doubt_of(reserve: &Reserve) -> InDoubt {
    let (sale, user, request) = (reserve.sale, reserve.user, reserve.request.clone());
    InDoubt::Request { sale, user, request }
}

fn all(batch: &[(usize, Reserve)], error: impl Fn(&Reserve) -> Error) -> Replies {
    batch.iter().map(|(at, reserve)| (*at, Err(error(reserve)))).collect()
}
