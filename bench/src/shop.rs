//! Many buyers at once: each tries its order, and then does what its fate says. Everything that was
//! answered goes into a ledger, to be held against the engine and SQL afterwards.

use crate::plan::{Attempt, Fate};
use hdrhistogram::Histogram;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use stockade_client::protocol::command::{Line, Lines, Reserve, Return};
use stockade_client::protocol::reply::{OrderReply, ReserveReply};
use stockade_client::protocol::text::{PaymentRef, Reason};
use stockade_client::protocol::{OrderId, OrderState, Outcome, RequestId, SaleId, SkuId, UserId};
use stockade_client::{Client, Error};
use tokio::task::JoinSet;

/// How often a call in doubt is asked again before the run fails.
const DOUBT_TRIES: u32 = 20;

/// What a buyer was told last.
#[derive(Clone, Debug)]
pub struct Told {
    /// The buyer.
    pub user: UserId,
    /// The order's state.
    pub state: OrderState,
}

/// What was answered to one worker, or to all.
#[derive(Debug)]
pub struct Ledger {
    /// Orders by id.
    pub orders: HashMap<OrderId, Told>,
    /// Answers by verb and outcome.
    pub answers: BTreeMap<(&'static str, &'static str), u64>,
    /// Calls that came in doubt and were asked again.
    pub doubts: u64,
    /// Latency of calls, microseconds.
    pub latency: Histogram<u64>,
}

impl Ledger {
    fn new() -> Self {
        Self {
            orders: HashMap::new(),
            answers: BTreeMap::new(),
            doubts: 0,
            latency: Histogram::new_with_bounds(1, 120_000_000, 3).expect("sound bounds"),
        }
    }

    fn merge(&mut self, other: Self) {
        self.orders.extend(other.orders);
        for (key, count) in other.answers {
            *self.answers.entry(key).or_default() += count;
        }
        self.doubts += other.doubts;
        let _ = self.latency.add(other.latency);
    }

    fn count(&mut self, verb: &'static str, outcome: Outcome) {
        *self.answers.entry((verb, outcome.word())).or_default() += 1;
    }

    /// All answers.
    pub fn decisions(&self) -> u64 {
        self.answers.values().sum()
    }

    /// Answers to a verb with this outcome.
    pub fn of(&self, verb: &str, outcome: &str) -> u64 {
        let found = self.answers.iter().filter(|((v, o), _)| *v == verb && *o == outcome);
        found.map(|(_, count)| count).sum()
    }
}

/// Runs all attempts with so many buyers at the same time.
///
/// # Errors
/// An answer that breaks a promise, or no answer after many tries.
pub async fn trade(
    client: &Client,
    attempts: Arc<Vec<Attempt>>,
    buyers: usize,
    done: Arc<AtomicUsize>,
) -> Result<Ledger, String> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut workers = JoinSet::new();
    for _ in 0..buyers {
        let (client, attempts) = (client.clone(), attempts.clone());
        let (next, done) = (next.clone(), done.clone());
        workers.spawn(async move {
            let mut buyer = Buyer { client, ledger: Ledger::new() };
            while let Some(attempt) = attempts.get(next.fetch_add(1, Ordering::Relaxed)) {
                buyer.attempt(attempt).await?;
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<_, String>(buyer.ledger)
        });
    }
    let mut ledger = Ledger::new();
    while let Some(finished) = workers.join_next().await {
        ledger.merge(finished.map_err(|error| error.to_string())??);
    }
    Ok(ledger)
}

struct Buyer {
    client: Client,
    ledger: Ledger,
}

impl Buyer {
    async fn attempt(&mut self, attempt: &Attempt) -> Result<(), String> {
        let mut reserve = &attempt.reserve;
        let mut reply = self.reserve(reserve).await?;
        let zeros = reserve.lines.iter().any(|line| line.quantity == 0);
        if zeros != (reply.outcome == Outcome::BadRequest) {
            return Err(format!("request {}: {:?}", reserve.request, reply.outcome));
        }
        if let Some(mended) = &attempt.mended {
            reserve = mended;
            reply = self.reserve(reserve).await?;
        }
        let (Outcome::Held, Some(order)) = (reply.outcome, reply.order) else { return Ok(()) };
        let told = Told { user: reserve.user, state: OrderState::Held };
        if let Some(before) = self.ledger.orders.insert(order, told) {
            return Err(format!("order {order} was given twice, before {before:?}"));
        }
        self.fate(attempt.fate, reserve, order).await
    }

    async fn reserve(&mut self, reserve: &Reserve) -> Result<ReserveReply, String> {
        loop {
            let client = self.client.clone();
            let call = || {
                let (client, reserve) = (client.clone(), reserve.clone());
                async move { client.reserve(reserve).await }
            };
            let reply: ReserveReply = self.insist(call).await?;
            self.ledger.count("reserve", reply.outcome);
            if !matches!(reply.outcome, Outcome::Busy | Outcome::Throttled) {
                return Ok(reply);
            }
            let wait = u64::try_from(reply.retry_after_ms).unwrap_or(0).clamp(1, 1000);
            tokio::time::sleep(std::time::Duration::from_millis(wait)).await;
        }
    }

    async fn fate(&mut self, fate: Fate, reserve: &Reserve, order: OrderId) -> Result<(), String> {
        let client = self.client.clone();
        match fate {
            Fate::Forget => Ok(()),
            Fate::Pay => self.pay(order).await.map(|_| ()),
            Fate::PayAndReturn => {
                if self.pay(order).await? != OrderState::Confirmed {
                    return Ok(());
                }
                let line = reserve.lines.first().map(|line| Line { quantity: 1, ..*line });
                let back = Return {
                    order,
                    request: RequestId::from_number(1).ok_or("request id")?,
                    lines: line.into_iter().collect::<Lines>(),
                    restock: true,
                    right: true,
                };
                let call = || {
                    let (client, back) = (client.clone(), back.clone());
                    async move { client.return_units(back).await }
                };
                self.verb("return", order, call).await.map(|_| ())
            }
            Fate::Cancel => {
                let call = || {
                    let client = client.clone();
                    async move { client.cancel(order, Reason::none()).await }
                };
                self.verb("cancel", order, call).await.map(|_| ())
            }
            Fate::Withdraw => {
                let (sale, user) = (reserve.sale, reserve.user);
                let call = || {
                    let (client, request) = (client.clone(), reserve.request.clone());
                    async move { client.withdraw(sale, user, request).await }
                };
                self.verb("withdraw", order, call).await.map(|_| ())
            }
        }
    }

    async fn pay(&mut self, order: OrderId) -> Result<OrderState, String> {
        let payment = PaymentRef::new(format!("pay-{order}").as_bytes());
        let payment = payment.map_err(|error| error.to_string())?;
        let client = self.client.clone();
        let call = || {
            let (client, payment) = (client.clone(), payment.clone());
            async move { client.confirm(order, payment).await }
        };
        self.verb("confirm", order, call).await
    }

    async fn verb<F>(
        &mut self,
        verb: &'static str,
        order: OrderId,
        call: impl Fn() -> F,
    ) -> Result<OrderState, String>
    where
        F: Future<Output = Result<OrderReply, Error>>,
    {
        let reply = self.insist(call).await?;
        self.ledger.count(verb, reply.outcome);
        if let Some(told) = self.ledger.orders.get_mut(&order) {
            told.state = reply.state;
        }
        Ok(reply.state)
    }

    /// Calls until there is an answer; what is in doubt is asked again with the same ids.
    async fn insist<T, F>(&mut self, call: impl Fn() -> F) -> Result<T, String>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let started = Instant::now();
        for _ in 0..DOUBT_TRIES {
            match call().await {
                Ok(reply) => {
                    let micros = started.elapsed().as_micros() as u64;
                    self.ledger.latency.saturating_record(micros.max(1));
                    return Ok(reply);
                }
                Err(Error::InDoubt(_) | Error::NotReached { .. } | Error::NoAnswer(_)) => {
                    self.ledger.doubts += 1;
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        Err("no answer after many tries".into())
    }
}

/// Ids as the demo's audit needs them.
pub fn sale_id() -> SaleId {
    SaleId::new(crate::plan::SALE).expect("1 is an id")
}

/// A SKU id; the plan has checked it.
pub fn sku_id(sku: u64) -> Option<SkuId> {
    SkuId::new(sku)
}
