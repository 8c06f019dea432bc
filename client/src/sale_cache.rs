//! What the server said a moment ago about sales that grant nothing: not started, paused, ended, a
//! SKU sold out. A pure machine; the clock and the pushes come from outside.
//!
//! It answers only for requests that are new, so that it never says "sold out" to a buyer whose
//! order exists; it never answers a status. Nothing in it lives longer than its time to live,
//! whether pushes come or not: a catalog change that is pushed only empties it sooner, and units of
//! cancelled and expired orders are not pushed at all.
//!
//! An answer that was asked for before a change was heard of is not kept: it may be older.

use crate::client::Client;
use crate::feed::{FeedRun, SubscribeOptions};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use stockade_protocol::command::Reserve;
use stockade_protocol::limits::LINES_MAX;
use stockade_protocol::reply::{RETRY_NEVER, ReserveReply};
use stockade_protocol::wire::FeedFrom;
use stockade_protocol::{Event, Outcome, PartitionId, SaleId, SkuId};
use tokio::time::Instant;

/// Longest time to live that can be set.
pub(crate) const TTL_MAX: Duration = Duration::from_secs(2);
/// Sales, and SKUs of one sale, that are kept; beyond it nothing new is learned.
const KEPT_MAX: usize = 20_000;

#[derive(Debug, Default)]
struct Known {
    /// The sale grants nothing: why, until when that is believed, and when it opens.
    closed: Option<(Outcome, Instant, Option<Instant>)>,
    /// Sold out for so many units and more, believed until.
    sold_out: HashMap<SkuId, (u32, Instant)>,
    /// When its last change was heard of.
    changed: Option<Instant>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct SaleCache {
    ttl: Duration,
    sales: HashMap<SaleId, Known>,
    /// Nothing asked for before is kept.
    emptied: Option<Instant>,
}

impl SaleCache {
    pub fn new(ttl: Duration) -> Self {
        Self { ttl, sales: HashMap::new(), emptied: None }
    }

    /// An answer of the server to what was asked at `asked`.
    pub fn learn(&mut self, reserve: &Reserve, reply: &ReserveReply, asked: Instant) {
        let until = asked + self.ttl;
        let may_be_new = self.sales.len() < KEPT_MAX || self.sales.contains_key(&reserve.sale);
        if !may_be_new || self.emptied.is_some_and(|emptied| asked <= emptied) {
            return;
        }
        let known = self.sales.entry(reserve.sale).or_default();
        if known.changed.is_some_and(|changed| asked <= changed) {
            return;
        }
        match reply.outcome {
            Outcome::NotStarted => {
                let to_go = u64::try_from(reply.retry_after_ms).unwrap_or(0);
                // Counted from the question, so that it is never later than the true opening.
                let opens = asked + Duration::from_millis(to_go);
                known.closed = Some((reply.outcome, until.min(opens), Some(opens)));
            }
            Outcome::Paused | Outcome::Ended => known.closed = Some((reply.outcome, until, None)),
            Outcome::SoldOut => {
                // Of a basket nobody says which SKU it was.
                let [line] = reserve.lines.as_slice() else { return };
                if known.sold_out.len() < KEPT_MAX || known.sold_out.contains_key(&line.sku) {
                    let kept = known.sold_out.entry(line.sku).or_insert((line.quantity, until));
                    *kept = match *kept {
                        // A smaller ask that is fresh says more than a larger one.
                        (least, old) if least < line.quantity && old > asked => (least, old),
                        _ => (line.quantity, until),
                    };
                }
            }
            // It sells.
            Outcome::Held | Outcome::Confirmed => {
                known.closed = None;
                for line in &reserve.lines {
                    known.sold_out.remove(&line.sku);
                }
            }
            _ => {}
        }
    }

    /// What the server would say, as far as it was said within the time to live.
    pub fn answer(&self, reserve: &Reserve, now: Instant) -> Option<ReserveReply> {
        let sums = reserve.lines.iter().try_fold(0u32, |sum, line| {
            sum.checked_add(line.quantity).filter(|_| line.quantity > 0)
        });
        // What is malformed is the server's to refuse.
        sums.filter(|_| (1..=LINES_MAX).contains(&reserve.lines.len()))?;
        let known = self.sales.get(&reserve.sale)?;
        let left_ms = |until: Instant| until.saturating_duration_since(now).as_millis() as i64;
        if let Some((outcome, until, opens)) = known.closed
            && now < until
        {
            let hint = match outcome {
                Outcome::Ended => RETRY_NEVER,
                _ => left_ms(opens.unwrap_or(until)).max(1),
            };
            return Some(ReserveReply::rejected(outcome, hint));
        }
        let mut sold_out = reserve.lines.iter().filter_map(|line| {
            let (least, until) = known.sold_out.get(&line.sku).copied()?;
            (line.quantity >= least && now < until).then_some(until)
        });
        let until = sold_out.next()?;
        Some(ReserveReply::rejected(Outcome::SoldOut, left_ms(until).max(1)))
    }

    /// A committed change.
    pub fn hear(&mut self, event: &Event, now: Instant) {
        let sale = match event {
            Event::SalePut(definition) => definition.sale,
            Event::SalePaused(sale)
            | Event::SaleResumed(sale)
            | Event::SaleClosed(sale)
            | Event::SaleArchived(sale)
            | Event::Adjusted { sale, .. } => *sale,
            _ => return,
        };
        if self.sales.len() >= KEPT_MAX && !self.sales.contains_key(&sale) {
            return self.empty(now);
        }
        self.sales.insert(sale, Known { changed: Some(now), ..Known::default() });
    }

    /// Changes may have been missed.
    pub fn empty(&mut self, now: Instant) {
        self.sales.clear();
        self.emptied = Some(now);
    }
}

pub(crate) fn lock(cache: &Mutex<SaleCache>) -> MutexGuard<'_, SaleCache> {
    cache.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Listens to catalog changes as long as the cache is used. `client` is one of its own, so that the
/// listener does not keep the cache's client alive.
pub(crate) async fn listen(client: Client, cache: Weak<Mutex<SaleCache>>) {
    let mut backoff = client.slots().backoff();
    loop {
        let mut options = SubscribeOptions::tail(FeedFrom::Newest);
        options.partitions = vec![PartitionId::CATALOG];
        options.resume_for = Duration::ZERO;
        let subscribed = client.subscribe(options).await;
        let Some(kept) = cache.upgrade() else { return };
        // What changed while nobody listened is not known.
        lock(&kept).empty(Instant::now());
        drop(kept);
        if let Ok(mut feed) = subscribed {
            backoff.reset();
            loop {
                let run = feed.next(Duration::from_millis(500)).await;
                let Some(cache) = cache.upgrade() else { return };
                match run {
                    Ok(None) => {}
                    Ok(Some(FeedRun::Entries { entries, .. })) => {
                        let now = Instant::now();
                        let mut cache = lock(&cache);
                        entries.iter().for_each(|entry| cache.hear(&entry.event, now));
                    }
                    Ok(Some(FeedRun::Gap { .. })) | Err(_) => {
                        lock(&cache).empty(Instant::now());
                        break;
                    }
                }
            }
        }
        tokio::time::sleep(backoff.next_wait()).await;
        if cache.strong_count() == 0 {
            return;
        }
    }
}

#[cfg(test)]
#[path = "sale_cache_tests.rs"]
mod tests;
