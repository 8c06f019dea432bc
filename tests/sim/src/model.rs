//! The auditor: an independent model of the engine that knows, at every instant, what each answer
//! must be, which entries must be written, where every unit is and what the disk has.
//!
//! It is told every input that the real machines get, in the same order, decides them by its own
//! rules ([`rules`]), and compares: answers, entries, stock words, images after recovery. What it
//! finds is an error with a sentence. It shares no code with the core.

pub mod catalog;
mod changes;
mod recovery;
mod replies;
pub mod rules;
pub mod state;

use crate::rng::{Digest, Map};
use catalog::{Catalog, View};
use rules::{Rest, Turn, Verdict};
use state::{Move, Part, Place};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::{
    Command, Entry, Event, Lsn, OrderId, OrderState, PartitionId, Reply, RequestId, SaleId, SkuId,
    UserId,
};

/// What was found: a sentence with the promise that it breaks.
pub type Found = Result<(), String>;

/// Who asked: shard of the connection, connection, tag.
pub type Key = (u16, u64, u64);

/// Requests of one turn, as the server bounds them.
const TURN_REQUESTS_MAX: usize = 1024;
/// Holds that expire in one turn, as the server bounds them.
const TURN_EXPIRIES_MAX: usize = 256;
/// How often a request waits for another turn's units.
const WAITS_MAX: u16 = 256;

/// The units of a SKU.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Units {
    /// In the pool.
    pub free: u64,
    /// In held orders, and in those whose end is not durable.
    pub held: u64,
    /// In confirmed orders, and on their way back from them.
    pub confirmed: u64,
    /// Out of the sale by returns without restock.
    pub removed: u64,
    /// With a turn that does not end.
    pub stalled: u64,
    /// With an adjust that is not durable.
    pub adjusting: u64,
}

impl Units {
    /// In no order, but not in the pool.
    pub const fn aside(&self) -> u64 {
        self.stalled + self.adjusting
    }

    fn place(&mut self, place: Place) -> &mut u64 {
        match place {
            Place::Free => &mut self.free,
            Place::Held => &mut self.held,
            Place::Confirmed => &mut self.confirmed,
            Place::Removed => &mut self.removed,
        }
    }
}

/// All units.
#[derive(Clone, Default, Debug)]
pub struct Pool(pub(crate) BTreeMap<(SaleId, SkuId), Units>);

impl Pool {
    /// All SKUs with their units.
    pub fn iter(&self) -> impl Iterator<Item = (&(SaleId, SkuId), &Units)> {
        self.0.iter()
    }

    fn shift(&mut self, moved: &Move) -> Found {
        let Some(units) = self.0.get_mut(&(moved.sale, moved.sku)) else { return Ok(()) };
        let from = units.place(moved.from);
        *from = from.checked_sub(moved.units).ok_or_else(|| {
            format!(
                "P1: {} units of {} leave where they are not: {moved:?}",
                moved.units, moved.sku
            )
        })?;
        *units.place(moved.to) += moved.units;
        Ok(())
    }
}

/// What is expected of a command.
#[derive(Debug)]
enum Expect {
    /// Not decided yet.
    Open,
    /// Waits in a shard; turns it has waited.
    Queued(u16),
    /// This answer, resting on that entry.
    Exact(Box<Reply>, Rest),
    /// `busy`.
    Busy,
}

/// A command without an answer.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) command: Command,
    expect: Expect,
    /// The catalog in force everywhere when it was asked: an answer of all shards is of then or of
    /// later.
    lsn: u64,
    /// Its connection is gone: nobody hears the answer.
    gone: bool,
}

/// A change of the catalog that was written and not told yet.
#[derive(Debug)]
struct Granted {
    sale: SaleId,
    request: Option<RequestId>,
    reply: Reply,
    rest: Rest,
}

/// An entry that must come, and the units that come back with it.
#[derive(Debug)]
struct Decided {
    entry: Entry,
    back: Vec<Move>,
}

/// A shard as the model has it.
#[derive(Default, Debug)]
pub struct Shard {
    pub(crate) views: BTreeMap<SaleId, Rc<View>>,
    pub(crate) archived: BTreeSet<SaleId>,
    pub(crate) user_full: Map<(SaleId, UserId), u64>,
    queue: VecDeque<Key>,
    waiting: Vec<Key>,
    /// Decided and not in a batch yet.
    decided: VecDeque<Decided>,
    /// In the batch on its way to the disk.
    flight: Vec<Decided>,
    flight_durable: bool,
    due: BTreeSet<(u64, OrderId)>,
    draining: bool,
    failed: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Model {
    /// The engine's clock, ms.
    pub now: u64,
    partition_count: u16,
    pub(crate) shards: Vec<Shard>,
    pub(crate) live: Vec<Part>,
    durable: Vec<Part>,
    /// Where the units are.
    pub pool: Pool,
    /// Sales in force on shard 0.
    pub catalog: Catalog,
    /// The catalog's entry that is not in force.
    catalog_flight: Option<Entry>,
    catalog_durable: bool,
    /// Shards that have not applied the last change.
    unapplied: BTreeSet<u16>,
    shipping: Option<SaleId>,
    pub(crate) sale_full: Map<SaleId, u64>,
    /// Changes of the catalog that were not told yet.
    granted: Vec<Granted>,
    asked: Map<Key, Asked>,
    /// Durable entries by partition; the catalog's last.
    pub history: Vec<Vec<Entry>>,
    /// Commands that were decided.
    pub decisions: u64,
    /// Everything that was seen.
    pub digest: Digest,
    scratch: Vec<Move>,
}

impl Model {
    /// An engine with nothing in it.
    pub fn new(partition_count: u16, shard_count: u16) -> Self {
        let parts = || vec![Part::default(); usize::from(partition_count)];
        Self {
            now: 0,
            partition_count,
            shards: (0..shard_count).map(|_| Shard::default()).collect(),
            live: parts(),
            durable: parts(),
            pool: Pool::default(),
            catalog: Catalog::default(),
            catalog_flight: None,
            catalog_durable: false,
            unapplied: BTreeSet::new(),
            shipping: None,
            sale_full: Map::default(),
            granted: Vec::new(),
            asked: Map::default(),
            history: vec![Vec::new(); usize::from(partition_count) + 1],
            decisions: 0,
            digest: Digest::default(),
            scratch: Vec::new(),
        }
    }

    /// Partitions of users.
    pub const fn partition_count(&self) -> u16 {
        self.partition_count
    }

    /// Commands that wait for an answer.
    pub fn open(&self) -> usize {
        self.asked.values().filter(|asked| !asked.gone).count()
    }

    /// A connection is gone: what it asked is decided all the same, and nobody hears of it.
    pub fn forget(&mut self, shard: u16, connection: u64) {
        for (key, asked) in &mut self.asked {
            asked.gone |= (key.0, key.1) == (shard, connection);
        }
    }

    /// The place of a partition's entries in [`Self::history`].
    pub fn slot(&self, partition: PartitionId) -> usize {
        if partition == PartitionId::CATALOG {
            usize::from(self.partition_count)
        } else {
            usize::from(partition.get())
        }
    }

    /// A session handed a command over.
    pub fn ask(&mut self, key: Key, command: &Command) {
        let lsn = self.catalog.lsn - u64::from(!self.is_shipped());
        let asked = Asked { command: command.clone(), expect: Expect::Open, lsn, gone: false };
        self.asked.insert(key, asked);
    }

    /// The command stands in this shard's queue now, or is refused there.
    pub fn arrive(&mut self, shard: usize, key: Key) {
        let Some(asked) = self.asked.get_mut(&key) else { return };
        let of = &mut self.shards[shard];
        if of.draining || of.failed {
            asked.expect = Expect::Busy;
        } else {
            asked.expect = Expect::Queued(0);
            of.queue.push_back(key);
        }
    }

    /// Recovery is over: holds that ran out get grace.
    pub fn begin(&mut self, grace_ms: u64) {
        for shard in 0..self.shards.len() {
            while grace_ms > 0
                && let Some(order) = self.next_due(shard)
            {
                let part = usize::from(order.partition().get());
                let key = self.key_of(part, order);
                let expires_at = TimestampMs::new(self.now + grace_ms);
                self.emit(shard, part, Event::Extended { key, expires_at });
            }
        }
    }

    /// One turn of a shard; reserves are not decided under pressure.
    pub fn turn(&mut self, shard: usize, pressure: bool) {
        if self.shards[shard].failed {
            return;
        }
        for key in self.pick(shard, pressure) {
            let Some(mut asked) = self.asked.remove(&key) else { continue };
            let verdict = Turn { model: self, shard }.decide(&asked.command);
            asked.expect = match (verdict, asked.expect) {
                (Verdict::Answer(reply, rest), _) => Expect::Exact(Box::new(reply), rest),
                (Verdict::Wait, Expect::Queued(waits)) if waits < WAITS_MAX => {
                    self.shards[shard].waiting.push(key);
                    Expect::Queued(waits + 1)
                }
                (Verdict::Wait, _) => Expect::Busy,
            };
            if !asked.gone || matches!(asked.expect, Expect::Queued(_)) {
                self.asked.insert(key, asked);
            }
        }
        if self.shards[shard].draining {
            self.refuse_undecided(shard);
        }
        for _ in 0..TURN_EXPIRIES_MAX {
            let Some(order) = self.next_due(shard) else { break };
            let part = usize::from(order.partition().get());
            let key = self.key_of(part, order);
            self.emit(shard, part, Event::Expired { key });
        }
    }

    fn pick(&mut self, shard: usize, pressure: bool) -> Vec<Key> {
        let of = &mut self.shards[shard];
        let mut picked = std::mem::take(&mut of.waiting);
        let room = TURN_REQUESTS_MAX.saturating_sub(picked.len()).min(of.queue.len());
        for key in of.queue.drain(..room) {
            let asked = self.asked.get_mut(&key);
            match asked {
                Some(asked) if pressure && matches!(asked.command, Command::Reserve(_)) => {
                    asked.expect = Expect::Busy;
                }
                _ => picked.push(key),
            }
        }
        picked
    }

    fn next_due(&self, shard: usize) -> Option<OrderId> {
        let (at, order) = self.shards[shard].due.first()?;
        (*at < self.now).then_some(*order)
    }

    fn key_of(&self, part: usize, id: OrderId) -> stockade_protocol::entry::OrderKey {
        let order = &self.live[part].orders[&id.number()];
        let (sale, user) = (Some(order.sale), Some(order.user));
        stockade_protocol::entry::OrderKey { order: id, sale, user }
    }

    /// Decides an entry.
    pub(crate) fn emit(&mut self, shard: usize, part: usize, event: Event) {
        let partition = PartitionId::new(part as u16);
        let lsn = Lsn::new(self.live[part].lsn + 1);
        let entry = Entry { partition, lsn, at: TimestampMs::new(self.now), event };
        let number = number_of(&entry.event);
        let hold = |part: &Part| {
            let order = part.orders.get(&number?)?;
            let id = OrderId::from_parts(partition, number?)?;
            (order.state == OrderState::Held).then_some((order.deadline, id))
        };
        let before = hold(&self.live[part]);
        self.scratch.clear();
        self.live[part].apply(&entry, &mut self.scratch);
        let after = hold(&self.live[part]);
        if before != after {
            let due = &mut self.shards[shard].due;
            before.map(|timer| due.remove(&timer));
            after.map(|timer| due.insert(timer));
        }
        let mut back = Vec::new();
        for moved in &self.scratch {
            if matches!(moved.to, Place::Free | Place::Removed) {
                back.push(*moved);
            } else {
                self.pool.shift(moved).expect("the model takes only what is free");
            }
        }
        self.shards[shard].decided.push_back(Decided { entry, back });
    }

    /// The server drains: what is undecided is refused.
    pub fn drain(&mut self, shard: usize) {
        self.shards[shard].draining = true;
        self.refuse_undecided(shard);
    }

    /// A commit failed: what is undecided is refused, the rest gets no answer.
    pub fn fail(&mut self, shard: usize) {
        self.shards[shard].failed = true;
        self.refuse_undecided(shard);
    }

    fn refuse_undecided(&mut self, shard: usize) {
        let of = &mut self.shards[shard];
        let waiting = std::mem::take(&mut of.waiting);
        for key in waiting.into_iter().chain(std::mem::take(&mut of.queue)) {
            if let Some(asked) = self.asked.get_mut(&key) {
                asked.expect = Expect::Busy;
            }
        }
    }

    /// Units of a SKU stay aside as with a turn that does not end (negative: it ended).
    pub fn stall(&mut self, sale: SaleId, sku: SkuId, units: i64) {
        if let Some(of) = self.pool.0.get_mut(&(sale, sku)) {
            of.free = of.free.wrapping_add_signed(-units);
            of.stalled = of.stalled.wrapping_add_signed(units);
        }
    }

    /// No unit was made or lost, and the stock words say what the model says.
    pub fn check_word(&self, sale: SaleId, sku: SkuId, free: u32, aside: u32) -> Found {
        let units = self.pool.of(sale, sku);
        let total = self.catalog.sales.get(&sale).and_then(|s| s.totals.get(&sku)).copied();
        let sum = units.free + units.held + units.confirmed + units.removed + units.aside();
        let total_now = total.unwrap_or(0);
        if (u64::from(free), u64::from(aside)) != (units.free, units.aside()) {
            return Err(format!(
                "P1/P7: sale {sale} sku {sku} has {free} free and {aside} aside, but {} and {} are \
                 (held {}, confirmed {}, total {total_now})",
                units.free,
                units.aside(),
                units.held,
                units.confirmed,
            ));
        }
        if sum != total_now {
            return Err(format!(
                "P1: sale {sale} sku {sku}: {units:?} do not sum up to {total_now}"
            ));
        }
        Ok(())
    }
}

/// The order that an event is about.
const fn number_of(event: &Event) -> Option<u64> {
    match event {
        Event::Held(placed) | Event::BornConfirmed(placed) => Some(placed.order.number()),
        Event::Confirmed { key, .. }
        | Event::Revived { key, .. }
        | Event::Cancelled { key, .. }
        | Event::Expired { key }
        | Event::Extended { key, .. }
        | Event::Returned { key, .. }
        | Event::LatePayment { key, .. } => Some(key.order.number()),
        _ => None,
    }
}

/// Whole.
impl Model {
    /// Shards of this life.
    pub fn shards_len(&self) -> u16 {
        self.shards.len() as u16
    }

    /// Commands without an answer, for reports.
    pub fn open_commands(&self) -> Vec<String> {
        let mut open: Vec<_> = self
            .asked
            .iter()
            .filter(|(_, a)| !a.gone)
            .map(|(k, a)| format!("{k:?} {a:?}"))
            .collect();
        open.sort_unstable();
        open
    }

    /// The time of the newest durable entry.
    pub fn newest_at(&self) -> TimestampMs {
        let last = self.history.iter().filter_map(|entries| entries.last());
        last.map(|entry| entry.at).max().unwrap_or_default()
    }

    /// Nothing is on its way to the disk or to the shards.
    pub fn is_quiet(&self) -> bool {
        let idle = |shard: &Shard| {
            shard.decided.is_empty() && shard.flight.is_empty() && shard.queue.is_empty()
        };
        self.shards.iter().all(idle) && self.catalog_flight.is_none() && self.unapplied.is_empty()
    }

    /// Is this what the engine has of a partition?
    ///
    /// # Errors
    /// What differs.
    pub fn compare(
        &self,
        id: PartitionId,
        image: &stockade_protocol::image::PartitionImage,
    ) -> Found {
        self.live[usize::from(id.get())].compare(id, image)
    }
}
