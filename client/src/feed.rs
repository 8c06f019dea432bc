//! The feed: committed entries by partition, in order, resumed from where the reader was.

use crate::client::Client;
use crate::connection::Connection;
use crate::error::Error;
use std::collections::BTreeMap;
use std::time::Duration;
use stockade_protocol::text::ConsumerName;
use stockade_protocol::wire::{FeedFrom, Request, Response, Subscribe};
use stockade_protocol::{Entry, Lsn, PartitionId};
use tokio::sync::mpsc;

/// Where and how to read.
#[derive(Clone, Debug)]
pub struct SubscribeOptions {
    /// A consumer with stored cursors, or `None` to tail without a trace.
    pub consumer: Option<ConsumerName>,
    /// Empty: all.
    pub partitions: Vec<PartitionId>,
    /// Where to begin.
    pub from: FeedFrom,
    /// Bytes of entries that the server may send ahead.
    pub credit_bytes: u32,
}

impl SubscribeOptions {
    /// A consumer from its stored cursors.
    pub fn consumer(name: ConsumerName) -> Self {
        let credit_bytes = 4 << 20;
        Self { consumer: Some(name), partitions: Vec::new(), from: FeedFrom::Stored, credit_bytes }
    }

    /// A reader without a name.
    pub fn tail(from: FeedFrom) -> Self {
        Self { consumer: None, partitions: Vec::new(), from, credit_bytes: 4 << 20 }
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

/// A subscription on a connection of its own. It ends with the connection: the caller decides where
/// to go on (for a consumer: from its stored cursors).
#[derive(Debug)]
pub struct FeedSubscription {
    connection: Connection,
    pushes: mpsc::UnboundedReceiver<Response>,
    consumer: Option<ConsumerName>,
    /// The next LSN by partition, once one was seen: a gap that the server did not announce is an
    /// error.
    next: BTreeMap<PartitionId, Lsn>,
    /// Bytes consumed that were not given back as credit.
    consumed: u32,
    credit_bytes: u32,
}

impl Client {
    /// Begins to read the feed.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn subscribe(&self, options: SubscribeOptions) -> Result<FeedSubscription, Error> {
        let settings = self.settings();
        let (pushes_in, pushes) = mpsc::unbounded_channel();
        let not_reached = |why: String| Error::NotReached {
            address: settings.address.clone(),
            within: settings.connect_timeout,
            why,
        };
        let connection = Connection::open(&settings.address, settings, Some(pushes_in)).await;
        let connection = connection.map_err(|error| not_reached(error.to_string()))?;
        let SubscribeOptions { consumer, partitions, from, credit_bytes } = options;
        let subscribe = Subscribe { consumer: consumer.clone(), partitions, from, credit_bytes };
        let answer = connection.request(Request::Subscribe(subscribe));
        let answer = tokio::time::timeout(settings.request_timeout, answer).await;
        let answer = answer.map_err(|_| Error::NoAnswer(settings.request_timeout))?;
        match answer.map_err(|lost| not_reached(lost.why))? {
            Response::Done => {}
            Response::Error { code, message } => return Err(Error::Server { code, message }),
            other => return Err(Error::Protocol(format!("{other:?} to a subscription"))),
        }
        let next = BTreeMap::new();
        Ok(FeedSubscription { connection, pushes, consumer, next, consumed: 0, credit_bytes })
    }
}

impl FeedSubscription {
    /// The next run; `None` when nothing came within `wait`. Credit for what was taken before is
    /// given back here. A dropped future loses nothing.
    ///
    /// # Errors
    /// The connection is gone, or the feed is not what it must be.
    pub async fn next(&mut self, wait: Duration) -> Result<Option<FeedRun>, Error> {
        if self.consumed >= self.credit_bytes / 2 {
            let credit = Request::Credit { bytes: self.consumed };
            let told = self.connection.tell(credit).await;
            told.map_err(|lost| Error::Protocol(lost.why))?;
            self.consumed = 0;
        }
        match tokio::time::timeout(wait, self.pushes.recv()).await {
            Err(_) => Ok(None),
            Ok(None) => Err(Error::Protocol("the end of the feed's connection".into())),
            Ok(Some(push)) => self.take(push).map(Some),
        }
    }

    fn take(&mut self, push: Response) -> Result<FeedRun, Error> {
        match push {
            Response::Entries { partition, first, last, bytes } => {
                let expected = self.next.get(&partition).copied().unwrap_or(first);
                if first != expected {
                    let what = format!("lsn {first} of partition {partition}, not {expected}");
                    return Err(Error::Protocol(what));
                }
                let mut entries = Vec::new();
                let mut rest = bytes.as_slice();
                while !rest.is_empty() {
                    let (entry, taken) =
                        Entry::decode(rest).map_err(|error| Error::Protocol(error.to_string()))?;
                    rest = &rest[taken..];
                    entries.push(entry);
                }
                self.consumed = self.consumed.saturating_add(bytes.len() as u32);
                self.next.insert(partition, last.next());
                Ok(FeedRun::Entries { partition, entries })
            }
            Response::Gap { partition, from, to } => {
                self.next.insert(partition, to.next());
                Ok(FeedRun::Gap { partition, from, to })
            }
            other => Err(Error::Protocol(format!("{other:?} in the feed"))),
        }
    }

    /// Everything up to these LSNs is processed; the consumer's cursors move.
    ///
    /// # Errors
    /// The connection is gone, or the server refuses. A reader without a name has no cursors.
    pub async fn ack(&self, cursors: &[(PartitionId, Lsn)]) -> Result<(), Error> {
        let Some(consumer) = self.consumer.clone() else {
            return Err(Error::Protocol("an acknowledgement without a consumer".into()));
        };
        let ack = Request::Ack { consumer, cursors: cursors.to_vec() };
        match self.connection.request(ack).await {
            Ok(Response::Done) => Ok(()),
            Ok(Response::Error { code, message }) => Err(Error::Server { code, message }),
            Ok(other) => Err(Error::Protocol(format!("{other:?} to an acknowledgement"))),
            Err(lost) => Err(Error::Protocol(lost.why)),
        }
    }
}
