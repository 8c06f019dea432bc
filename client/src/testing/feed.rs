//! The feed of the fake server: cursors, credit and runs.

use super::engine::{Engine, PARTITION_COUNT};
use std::collections::BTreeMap;
use stockade_protocol::text::ConsumerName;
use stockade_protocol::wire::{ConsumerInfo, ErrorCode, FeedFrom, Response, Subscribe};
use stockade_protocol::{Lsn, PartitionId};

/// Entries of one push: few, so that tests see several.
const RUN_ENTRIES_MAX: usize = 4;

/// Consumers and their cursors.
#[derive(Default)]
pub(super) struct Consumers {
    acked: BTreeMap<ConsumerName, BTreeMap<PartitionId, Lsn>>,
    /// First LSN that is kept, where entries were trimmed.
    pub first_kept: BTreeMap<PartitionId, Lsn>,
}

/// A subscription of one connection.
pub(super) struct Subscription {
    pub cursors: BTreeMap<PartitionId, Lsn>,
    pub credit: i64,
}

fn all_partitions() -> Vec<PartitionId> {
    (0..PARTITION_COUNT).map(PartitionId::new).chain([PartitionId::CATALOG]).collect()
}

impl Consumers {
    fn oldest(&self, partition: PartitionId) -> Lsn {
        self.first_kept.get(&partition).copied().unwrap_or(Lsn::FIRST)
    }

    fn register(&mut self, name: &ConsumerName) {
        let before = |p: &PartitionId| (*p, Lsn::new(self.oldest(*p).get() - 1));
        let cursors = all_partitions().iter().map(before).collect();
        self.acked.entry(name.clone()).or_insert(cursors);
    }

    pub fn subscribe(
        &mut self,
        engine: &Engine,
        subscribe: &Subscribe,
    ) -> Result<Subscription, Response> {
        let asked = if subscribe.partitions.is_empty() {
            all_partitions()
        } else {
            subscribe.partitions.clone()
        };
        if let Some(name) = &subscribe.consumer {
            self.register(name);
        }
        let stored = subscribe.consumer.as_ref().and_then(|name| self.acked.get(name));
        if subscribe.from == FeedFrom::Stored && stored.is_none() {
            let message = "stored cursors need the name of a consumer".into();
            return Err(Response::Error { code: ErrorCode::Argument, message });
        }
        let start = |partition: PartitionId| match &subscribe.from {
            FeedFrom::Stored => {
                let acked = stored.and_then(|cursors| cursors.get(&partition));
                acked.map_or(Lsn::FIRST, |acked| acked.next())
            }
            FeedFrom::Oldest => self.oldest(partition),
            FeedFrom::Newest => Lsn::new(engine.log.get(&partition).map_or(0, Vec::len) as u64 + 1),
            FeedFrom::Lsns(lsns) => {
                let named = lsns.iter().find(|(named, _)| *named == partition);
                named.map_or(self.oldest(partition), |(_, lsn)| (*lsn).max(Lsn::FIRST))
            }
        };
        let cursors = asked.into_iter().map(|partition| (partition, start(partition))).collect();
        Ok(Subscription { cursors, credit: i64::from(subscribe.credit_bytes) })
    }

    pub fn ack(&mut self, name: &ConsumerName, cursors: &[(PartitionId, Lsn)]) -> Response {
        match self.acked.get_mut(name) {
            Some(acked) => {
                for (partition, lsn) in cursors {
                    let acked = acked.entry(*partition).or_default();
                    *acked = (*acked).max(*lsn);
                }
                Response::Done
            }
            None => unknown_consumer(),
        }
    }

    pub fn drop_one(&mut self, name: &ConsumerName) -> Response {
        self.acked.remove(name).map_or_else(unknown_consumer, |_| Response::Done)
    }

    pub fn list(&self, engine: &Engine) -> Response {
        let end = |p: &PartitionId| Lsn::new(engine.log.get(p).map_or(0, Vec::len) as u64);
        let info = |(name, acked): (&ConsumerName, &BTreeMap<PartitionId, Lsn>)| ConsumerInfo {
            name: name.clone(),
            cursors: acked.iter().map(|(p, lsn)| (*p, *lsn, end(p))).collect(),
        };
        Response::Consumers(self.acked.iter().map(info).collect())
    }

    /// What may be pushed now.
    pub fn runs(&self, engine: &Engine, subscription: &mut Subscription) -> Vec<Response> {
        let mut runs = Vec::new();
        let Subscription { cursors, credit } = subscription;
        for (partition, next) in cursors.iter_mut() {
            let (partition, oldest) = (*partition, self.oldest(*partition));
            if *next < oldest {
                let to = Lsn::new(oldest.get() - 1);
                runs.push(Response::Gap { partition, from: *next, to });
                *next = oldest;
            }
            let log = engine.log.get(&partition).map_or(&[][..], Vec::as_slice);
            while *credit > 0 && next.get() as usize <= log.len() {
                let first = *next;
                let entries = log[first.get() as usize - 1..].iter().take(RUN_ENTRIES_MAX);
                let mut bytes = Vec::new();
                for entry in entries {
                    entry.encode(&mut bytes);
                    *next = next.next();
                }
                *credit -= bytes.len() as i64;
                let last = Lsn::new(next.get() - 1);
                runs.push(Response::Entries { partition, first, last, bytes });
            }
        }
        runs
    }
}

fn unknown_consumer() -> Response {
    let message = "there is no such consumer".into();
    Response::Error { code: ErrorCode::UnknownConsumer, message }
}
