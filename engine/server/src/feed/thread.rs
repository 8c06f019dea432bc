//! The loop of the feed thread: answers requests, pushes what was committed, lets pulls wait.

use super::inbox::{FeedIn, FeedKind};
use super::source::Source;
use super::subscription::{Subscription, pull};
use crate::hub::{Hub, Message};
use crate::session::{FeedAnswer, FeedRequest, FeedRun};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use stockade_log::LogError;
use stockade_protocol::text::ConsumerName;
use stockade_protocol::wire::{ConsumerInfo, ErrorCode, FeedFrom, Subscribe};
use stockade_protocol::{Lsn, PartitionId};

/// Bytes of entries in one answer to a pull.
const PULL_BYTES_MAX: usize = 4 << 20;
/// Most entries of a pull.
const PULL_COUNT_MAX: u32 = 10_000;
/// Longest wait of a pull, ms.
const BLOCK_MS_MAX: u64 = 3_600_000;
/// Rounds over all subscriptions before requests are looked at again.
const ROUNDS_MAX: usize = 16;

type Key = (u16, u64);

struct WaitingPull {
    key: Key,
    tag: u64,
    consumer: ConsumerName,
    count: u32,
    deadline: Instant,
}

struct FeedThread<'a> {
    hub: &'a Hub,
    subscriptions: BTreeMap<Key, Subscription>,
    pulls: Vec<WaitingPull>,
    outbox: Vec<Vec<Message>>,
}

/// Serves the feed until the inbox is stopped.
pub fn run(hub: &Hub) {
    let outbox = hub.mailboxes.iter().map(|_| Vec::new()).collect();
    let mut thread = FeedThread { hub, subscriptions: BTreeMap::new(), pulls: Vec::new(), outbox };
    let mut requests = Vec::new();
    let mut more = false;
    loop {
        let interested = !thread.subscriptions.is_empty() || !thread.pulls.is_empty();
        let deadline = if more {
            Some(Instant::now())
        } else {
            thread.pulls.iter().map(|pull| pull.deadline).min()
        };
        let wake = hub.feed.wait(interested, deadline, &mut requests);
        if wake.stopped {
            return;
        }
        for request in requests.drain(..) {
            thread.take(request);
        }
        thread.answer_pulls();
        more = thread.push();
        thread.flush();
    }
}

impl FeedThread<'_> {
    fn take(&mut self, FeedIn { shard, connection, kind }: FeedIn) {
        let key = (shard, connection);
        match kind {
            FeedKind::Closed => {
                self.subscriptions.remove(&key);
                self.pulls.retain(|pull| pull.key != key);
            }
            FeedKind::Flushed { bytes } => {
                if let Some(subscription) = self.subscriptions.get_mut(&key) {
                    subscription.flushed(bytes);
                }
            }
            FeedKind::Request { tag, request } => {
                if let Some(answer) = self.request(key, tag, request) {
                    self.say(key, tag, answer);
                }
            }
        }
    }

    fn request(&mut self, key: Key, tag: u64, request: FeedRequest) -> Option<FeedAnswer> {
        let log = &self.hub.log;
        let result = match request {
            FeedRequest::Subscribe(subscribe) => return Some(self.subscribe(key, tag, &subscribe)),
            FeedRequest::Credit { bytes } => {
                if let Some(subscription) = self.subscriptions.get_mut(&key) {
                    subscription.grant(bytes);
                }
                return None;
            }
            FeedRequest::Unsubscribe => {
                self.subscriptions.remove(&key);
                Ok(())
            }
            FeedRequest::Pull { consumer, count, block_ms } => {
                return self.pull(key, tag, consumer, count, block_ms);
            }
            FeedRequest::Ack { consumer, cursors } => cursors
                .into_iter()
                .try_for_each(|(partition, lsn)| log.consumer_ack(&consumer, partition, lsn)),
            FeedRequest::Consumers => return Some(self.consumers()),
            FeedRequest::Drop(consumer) => log.consumer_drop(&consumer),
        };
        Some(result.map_or_else(|error| failed(&error), |()| FeedAnswer::Done))
    }

    fn subscribe(&mut self, key: Key, tag: u64, subscribe: &Subscribe) -> FeedAnswer {
        if self.subscriptions.contains_key(&key) {
            let message = String::from("this connection has a subscription already");
            return FeedAnswer::Failed { code: ErrorCode::TooMany, message };
        }
        match self.start(subscribe) {
            Ok(cursors) => {
                let subscription = Subscription::new(tag, cursors, subscribe.credit_bytes);
                self.subscriptions.insert(key, subscription);
                FeedAnswer::Done
            }
            Err(answer) => answer,
        }
    }

    /// Where the subscription begins in each partition.
    fn start(&self, subscribe: &Subscribe) -> Result<Vec<(PartitionId, Lsn)>, FeedAnswer> {
        let log = &self.hub.log;
        let partitions = self.partitions(&subscribe.partitions)?;
        if let Some(consumer) = &subscribe.consumer {
            log.consumer_register(consumer).map_err(|error| failed(&error))?;
        }
        let oldest = |p: PartitionId| (p, Source::first_kept(&**log, p));
        Ok(match (&subscribe.from, &subscribe.consumer) {
            (FeedFrom::Stored, Some(consumer)) => {
                let stored = self.stored(consumer)?;
                let next = |p: &PartitionId| {
                    (*p, stored.get(p).map_or_else(|| oldest(*p).1, |acked| acked.next()))
                };
                partitions.iter().map(next).collect()
            }
            (FeedFrom::Stored, None) => {
                let message = String::from("stored cursors need the name of a consumer");
                return Err(FeedAnswer::Failed { code: ErrorCode::Argument, message });
            }
            (FeedFrom::Oldest, _) => partitions.iter().map(|p| oldest(*p)).collect(),
            (FeedFrom::Newest, _) => {
                partitions.iter().map(|p| (*p, log.committed(*p).next())).collect()
            }
            (FeedFrom::Lsns(lsns), _) => {
                let named: BTreeMap<PartitionId, Lsn> = lsns.iter().copied().collect();
                let next = |p: &PartitionId| match named.get(p) {
                    Some(lsn) => (*p, (*lsn).max(Lsn::FIRST)),
                    None => oldest(*p),
                };
                partitions.iter().map(next).collect()
            }
        })
    }

    /// The partitions asked for, each once; all where none is named.
    fn partitions(&self, asked: &[PartitionId]) -> Result<Vec<PartitionId>, FeedAnswer> {
        let count = self.hub.routing.partition_count;
        let known = |p: &PartitionId| p.get() < count || *p == PartitionId::CATALOG;
        if let Some(unknown) = asked.iter().find(|p| !known(p)) {
            let message = format!("there is no partition {unknown}");
            return Err(FeedAnswer::Failed { code: ErrorCode::Argument, message });
        }
        let mut partitions = asked.to_vec();
        if partitions.is_empty() {
            partitions = (0..count).map(PartitionId::new).collect();
            partitions.push(PartitionId::CATALOG);
        }
        partitions.sort_unstable();
        partitions.dedup();
        Ok(partitions)
    }

    fn stored(&self, consumer: &ConsumerName) -> Result<BTreeMap<PartitionId, Lsn>, FeedAnswer> {
        let cursors = self.hub.log.consumer_cursors(consumer).map_err(|error| failed(&error))?;
        Ok(cursors.into_iter().map(|cursor| (cursor.partition, cursor.acked)).collect())
    }

    fn pull(
        &mut self,
        key: Key,
        tag: u64,
        consumer: ConsumerName,
        count: u32,
        block_ms: u64,
    ) -> Option<FeedAnswer> {
        if count == 0 || count > PULL_COUNT_MAX {
            let message = format!("count must be 1..={PULL_COUNT_MAX}");
            return Some(FeedAnswer::Failed { code: ErrorCode::Argument, message });
        }
        match self.pull_now(&consumer, count) {
            Err(answer) => Some(answer),
            Ok(runs) if runs.is_empty() && block_ms > 0 => {
                let block = Duration::from_millis(block_ms.min(BLOCK_MS_MAX));
                let deadline = Instant::now() + block;
                self.pulls.push(WaitingPull { key, tag, consumer, count, deadline });
                None
            }
            Ok(runs) => Some(FeedAnswer::Pulled(runs)),
        }
    }

    fn pull_now(&self, consumer: &ConsumerName, count: u32) -> Result<Vec<FeedRun>, FeedAnswer> {
        let log = &self.hub.log;
        log.consumer_register(consumer).map_err(|error| failed(&error))?;
        let cursors: Vec<(PartitionId, Lsn)> =
            self.stored(consumer)?.into_iter().map(|(p, acked)| (p, acked.next())).collect();
        pull(&**log, &cursors, count, PULL_BYTES_MAX).map_err(|error| failed(&error))
    }

    /// Answers the pulls that wait and can be answered, or have waited long enough.
    fn answer_pulls(&mut self) {
        let now = Instant::now();
        for waiting in std::mem::take(&mut self.pulls) {
            let answer = match self.pull_now(&waiting.consumer, waiting.count) {
                Err(answer) => answer,
                Ok(runs) if runs.is_empty() && now < waiting.deadline => {
                    self.pulls.push(waiting);
                    continue;
                }
                Ok(runs) => FeedAnswer::Pulled(runs),
            };
            self.say(waiting.key, waiting.tag, answer);
        }
    }

    /// Pushes what credit allows; true if there is more that could be pushed at once.
    fn push(&mut self) -> bool {
        for _ in 0..ROUNDS_MAX {
            let mut pushed = false;
            let keys: Vec<Key> = self.subscriptions.keys().copied().collect();
            for key in keys {
                let subscription =
                    self.subscriptions.get_mut(&key).expect("only this thread drops");
                let tag = subscription.tag;
                match subscription.round(&*self.hub.log) {
                    Ok(runs) => {
                        pushed |= !runs.is_empty();
                        for run in runs {
                            self.say(key, tag, FeedAnswer::Pushed(run));
                        }
                    }
                    Err(error) => {
                        tracing::error!(%error, "a subscription ends: the log cannot be read");
                        self.subscriptions.remove(&key);
                        self.say(key, tag, failed(&error));
                    }
                }
            }
            if !pushed {
                return false;
            }
        }
        true
    }

    fn consumers(&self) -> FeedAnswer {
        let infos = self.hub.log.consumers().into_iter().filter_map(|name| {
            // A consumer dropped in between is left out.
            let cursors = self.hub.log.consumer_cursors(&name).ok()?;
            let cursors =
                cursors.into_iter().map(|c| (c.partition, c.acked, c.committed)).collect();
            Some(ConsumerInfo { name, cursors })
        });
        FeedAnswer::Consumers(infos.collect())
    }

    fn say(&mut self, (shard, connection): Key, tag: u64, answer: FeedAnswer) {
        self.outbox[usize::from(shard)].push(Message::Feed { connection, tag, answer });
    }

    fn flush(&mut self) {
        for (mailbox, batch) in self.hub.mailboxes.iter().zip(&mut self.outbox) {
            mailbox.push_batch(batch);
        }
    }
}

fn failed(error: &LogError) -> FeedAnswer {
    let code = match error {
        LogError::TooManyConsumers => ErrorCode::TooMany,
        LogError::UnknownConsumer => ErrorCode::UnknownConsumer,
        LogError::Cursor { .. } => ErrorCode::Argument,
        LogError::Failed(_) => ErrorCode::Failed,
    };
    FeedAnswer::Failed { code, message: error.to_string() }
}
