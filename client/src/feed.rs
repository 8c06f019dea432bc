//! The feed: committed entries by partition, in order, resumed from where the reader was.
//!
//! The reader's place is the next LSN of each partition. Every run is checked against it, the first
//! one too wherever the start is known; after a lost connection the subscription is made again at
//! that place. Nothing is left out or given twice without an error.

use crate::client::Client;
use crate::connection::{Connection, Lost};
use crate::error::Error;
use crate::jitter::Backoff;
pub(crate) use crate::push_queue::PushQueue;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stockade_protocol::text::ConsumerName;
use stockade_protocol::wire::{FeedFrom, Request, Response, Subscribe};
use stockade_protocol::{Entry, Lsn, PartitionId};
use tokio::time::{Instant, timeout, timeout_at};

/// Where and how to read.
#[derive(Clone, Debug)]
pub struct SubscribeOptions {
    /// A consumer with stored cursors, or `None` to tail without a trace.
    pub consumer: Option<ConsumerName>,
    /// Empty: all.
    pub partitions: Vec<PartitionId>,
    /// Where to begin.
    pub from: FeedFrom,
    /// Bytes of entries that the server may send ahead, and the memory they may take here.
    pub credit_bytes: u32,
    /// How long a lost connection is tried anew, from the reader's place on, before the feed is
    /// [`Error::FeedLost`]. Zero: not at all.
    pub resume_for: Duration,
}

impl SubscribeOptions {
    /// A consumer from its stored cursors.
    pub fn consumer(name: ConsumerName) -> Self {
        Self { consumer: Some(name), ..Self::tail(FeedFrom::Stored) }
    }

    /// A reader without a name.
    pub fn tail(from: FeedFrom) -> Self {
        Self {
            consumer: None,
            partitions: Vec::new(),
            from,
            credit_bytes: 4 << 20,
            resume_for: Duration::from_secs(60),
        }
    }
}

/// What comes: entries of one partition without a hole, or the word that some are gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeedRun {
    /// Committed entries, contiguous.
    Entries {
        /// The partition.
        partition: PartitionId,
        /// The entries.
        entries: Vec<Entry>,
    },
    /// Trimmed before they were read.
    Gap {
        /// The partition.
        partition: PartitionId,
        /// First missing.
        from: Lsn,
        /// Last missing.
        to: Lsn,
    },
}

/// A subscription on a connection of its own. A lost connection is made anew and the feed goes on
/// at the entry that was next; see [`SubscribeOptions::resume_for`].
///
/// A tail from [`FeedFrom::Newest`] cannot know where it was in partitions of which it has seen no
/// entry; it is resumed only when it has seen one of each, and else ends with [`Error::FeedLost`].
pub struct FeedSubscription {
    client: Client,
    options: SubscribeOptions,
    link: Option<Link>,
    /// The next LSN by partition, as far as it is known.
    next: BTreeMap<PartitionId, Lsn>,
    /// Bytes taken that were not given back as credit.
    consumed: u32,
    backoff: Backoff,
    /// While there is no connection: since when, and when to try next.
    broken: Option<(Instant, Instant)>,
    why: String,
}

/// The connection of a subscription.
struct Link {
    connection: Connection,
    pushes: Arc<PushQueue>,
}

impl std::fmt::Debug for FeedSubscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FeedSubscription").field("next", &self.next).finish_non_exhaustive()
    }
}

impl Client {
    /// Begins to read the feed.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn subscribe(&self, options: SubscribeOptions) -> Result<FeedSubscription, Error> {
        let mut next = BTreeMap::new();
        if let FeedFrom::Lsns(lsns) = &options.from {
            next.extend(lsns.iter().map(|(partition, lsn)| (*partition, (*lsn).max(Lsn::FIRST))));
        }
        let backoff = self.slots().backoff();
        let (client, why) = (self.clone(), String::new());
        let mut feed = FeedSubscription {
            client,
            options,
            link: None,
            next,
            consumed: 0,
            backoff,
            broken: None,
            why,
        };
        let within = self.settings().request_timeout;
        let linked = timeout(within, feed.open()).await;
        feed.link = Some(linked.map_err(|_| Error::NoAnswer(within))??);
        Ok(feed)
    }
}

impl FeedSubscription {
    /// The next run; `None` when nothing came within `wait`. Credit for what was taken before is
    /// given back here. A dropped future loses nothing. While a lost connection is made anew, a
    /// call may take as long as the request timeout.
    ///
    /// # Errors
    /// [`Error::FeedLost`] and [`Error::FeedHole`]; [`Error::Server`] where the server refuses to
    /// go on; [`Error::Protocol`].
    pub async fn next(&mut self, wait: Duration) -> Result<Option<FeedRun>, Error> {
        let until = Instant::now() + wait;
        loop {
            let Some(link) = &self.link else {
                if !self.resume(until).await? {
                    return Ok(None);
                }
                continue;
            };
            if self.consumed > 0 && self.consumed >= self.options.credit_bytes / 2 {
                let bytes = self.consumed;
                link.pushes.grant(bytes);
                self.consumed = 0;
                // It is queued at once; a feed's connection without room for it hangs.
                if link.connection.tell(Request::Credit { bytes }).is_err() {
                    self.break_off("the server takes no more credit".into())?;
                    continue;
                }
            }
            match timeout_at(until, link.pushes.next()).await {
                Err(_) => return Ok(None),
                Ok(Ok(push)) => return self.take(push).map(Some),
                Ok(Err(why)) => self.break_off(why)?,
            }
        }
    }

    /// The reader's place: the next LSN of each partition of which it is known.
    pub fn cursors(&self) -> Vec<(PartitionId, Lsn)> {
        self.next.iter().map(|(partition, lsn)| (*partition, *lsn)).collect()
    }

    fn lost(&self) -> Error {
        Error::FeedLost { why: self.why.clone() }
    }

    /// The connection is gone.
    fn break_off(&mut self, why: String) -> Result<(), Error> {
        let come_back = self.link.take().and_then(|link| link.connection.come_back());
        tracing::warn!(why, "the feed broke off");
        self.why = why;
        let now = Instant::now();
        let at = come_back.unwrap_or_else(|| now + self.backoff.next_wait());
        self.broken = Some((now, at));
        if self.options.resume_for.is_zero() { Err(self.lost()) } else { Ok(()) }
    }

    /// Tries to go on where the reader was; false if there is no connection until `until`.
    async fn resume(&mut self, until: Instant) -> Result<bool, Error> {
        let now = Instant::now();
        let (since, at) = *self.broken.get_or_insert((now, now));
        if !self.knows_its_place() {
            return Err(self.lost());
        }
        if at > until {
            tokio::time::sleep_until(until).await;
            return Ok(false);
        }
        tokio::time::sleep_until(at).await;
        let within = self.client.settings().request_timeout;
        let failure = match timeout(within, self.open()).await {
            Ok(Ok(link)) => {
                tracing::debug!("the feed goes on");
                self.broken = None;
                self.link = Some(link);
                return Ok(true);
            }
            Ok(Err(Error::NotReached { why, .. })) => why,
            Ok(Err(error)) => return Err(error),
            Err(_) => "no answer in time".into(),
        };
        self.why = failure;
        if since.elapsed() >= self.options.resume_for {
            return Err(self.lost());
        }
        let wait = self.backoff.next_wait();
        self.broken = Some((since, Instant::now() + wait));
        Ok(true)
    }

    fn knows_its_place(&self) -> bool {
        let all = usize::from(self.client.topology().partition_count) + 1;
        let asked = match self.options.partitions.len() {
            0 => all,
            some => some,
        };
        self.options.from != FeedFrom::Newest || self.next.len() >= asked
    }

    /// Connects and subscribes at the reader's place.
    async fn open(&mut self) -> Result<Link, Error> {
        let settings = self.client.settings();
        let not_reached = |why: String| Error::NotReached {
            address: settings.addresses.join(", "),
            within: settings.connect_timeout,
            why,
        };
        let pushes = Arc::new(PushQueue::new(self.options.credit_bytes));
        let connection = self.client.slots().common_with(Some(pushes.clone())).await;
        let connection = connection.map_err(|error| not_reached(error.to_string()))?;
        let ask = async |request: Request| match connection.request(request).await {
            Ok(Response::Error { code, message }) => Err(Error::Server { code, message }),
            Ok(response) => Ok(response),
            Err(Lost::Sent(why) | Lost::Unsent(why)) => Err(not_reached(why)),
            Err(Lost::TooLarge { bytes, bytes_max }) => Err(Error::TooLarge { bytes, bytes_max }),
        };
        let stored = self.options.from == FeedFrom::Stored;
        let mut known = self.next.clone();
        let found = stored && self.learn_stored(&mut known, ask(Request::Consumers).await?);
        let from = match &self.options.from {
            FeedFrom::Stored if !found => FeedFrom::Stored,
            from if known.is_empty() => from.clone(),
            _ => FeedFrom::Lsns(known.iter().map(|(p, lsn)| (*p, *lsn)).collect()),
        };
        let subscribe = Subscribe {
            consumer: self.options.consumer.clone(),
            partitions: self.options.partitions.clone(),
            from,
            credit_bytes: self.options.credit_bytes,
        };
        match ask(Request::Subscribe(subscribe)).await? {
            Response::Done => {}
            other => return Err(Error::Protocol(format!("{other:?} to a subscription"))),
        }
        if stored && !found {
            // It is registered now, so it has cursors.
            self.learn_stored(&mut known, ask(Request::Consumers).await?);
        }
        self.next = known;
        self.consumed = 0;
        Ok(Link { connection, pushes })
    }

    /// Fills in where a consumer's partitions go on; false if the server does not know it.
    fn learn_stored(&self, known: &mut BTreeMap<PartitionId, Lsn>, answer: Response) -> bool {
        let Response::Consumers(consumers) = answer else { return false };
        let name = self.options.consumer.as_ref();
        let Some(info) = consumers.iter().find(|info| Some(&info.name) == name) else {
            return false;
        };
        let asked = |partition: &PartitionId| {
            self.options.partitions.is_empty() || self.options.partitions.contains(partition)
        };
        for (partition, acked, _) in &info.cursors {
            if asked(partition) {
                known.entry(*partition).or_insert(acked.next());
            }
        }
        true
    }

    fn take(&mut self, push: Response) -> Result<FeedRun, Error> {
        self.backoff.reset();
        match push {
            Response::Entries { partition, first, last, bytes } => {
                self.expect(partition, first)?;
                self.consumed = self.consumed.saturating_add(bytes.len() as u32);
                let entries = decode(partition, first, last, &bytes);
                let entries = entries.inspect_err(|_| self.link = None)?;
                self.next.insert(partition, last.next());
                Ok(FeedRun::Entries { partition, entries })
            }
            Response::Gap { partition, from, to } => {
                self.expect(partition, from)?;
                self.next.insert(partition, to.next());
                Ok(FeedRun::Gap { partition, from, to })
            }
            other => {
                self.link = None;
                Err(Error::Protocol(format!("{other:?} in the feed")))
            }
        }
    }

    /// A hole that the server did not announce is an error; the next call asks for it again.
    fn expect(&mut self, partition: PartitionId, found: Lsn) -> Result<(), Error> {
        match self.next.get(&partition).copied() {
            Some(expected) if expected != found => {
                self.why = "an entry was left out, or came twice".into();
                self.link = None;
                Err(Error::FeedHole { partition, expected, found })
            }
            _ => Ok(()),
        }
    }

    /// Everything up to these LSNs is processed; the consumer's cursors move. Asked again on other
    /// connections within the request timeout.
    ///
    /// # Errors
    /// See [`Error`]. A reader without a name has no cursors.
    pub async fn ack(&self, cursors: &[(PartitionId, Lsn)]) -> Result<(), Error> {
        let Some(consumer) = self.options.consumer.clone() else {
            return Err(Error::Protocol("an acknowledgement without a consumer".into()));
        };
        let ack = Request::Ack { consumer, cursors: cursors.to_vec() };
        match self.client.ask(ack).await? {
            Response::Done => Ok(()),
            other => Err(Error::Protocol(format!("{other:?} to an acknowledgement"))),
        }
    }
}

/// The entries of a run: of this partition, and exactly these.
fn decode(
    partition: PartitionId,
    first: Lsn,
    last: Lsn,
    bytes: &[u8],
) -> Result<Vec<Entry>, Error> {
    let (mut entries, mut rest, mut expected) = (Vec::new(), bytes, first);
    while !rest.is_empty() {
        let (entry, taken) =
            Entry::decode(rest).map_err(|error| Error::Protocol(error.to_string()))?;
        if entry.partition != partition || entry.lsn != expected {
            return Err(Error::FeedHole { partition, expected, found: entry.lsn });
        }
        expected = expected.next();
        rest = &rest[taken..];
        entries.push(entry);
    }
    if expected != last.next() {
        return Err(Error::FeedHole { partition, expected, found: last.next() });
    }
    Ok(entries)
}
