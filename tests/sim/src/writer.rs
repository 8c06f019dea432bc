//! The order writer in the world: the writer's own lane, driven step by step, between the engine's
//! feed (the server's subscription over the log) and a simulated database.
//!
//! Invariants looked after here: a subscription shows every entry once and in order (P8), nothing
//! is acknowledged that is not in SQL, and at the end SQL is the fold of the log (P9).

use crate::faults::Fault;
use crate::model::{Found, Model};
use crate::rng::Rng;
use crate::sql::SimDatabase;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use stockade_engine::feed::subscription::Subscription;
use stockade_engine::session::FeedRun;
use stockade_log::Log;
use stockade_order_writer::lane::{
    CatalogAcks, Lane, LaneClock, LaneEnd, LaneOptions, LaneParts, Stop,
};
use stockade_order_writer::layout::Layout;
use stockade_order_writer::pipeline::BreakerLimits;
use stockade_order_writer::recon::books::Books;
use stockade_order_writer::rows::{OrderRow, RefusedState};
use stockade_order_writer::source::{Connect, Run, Source, SourceError};
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::text::ConsumerName;
use stockade_protocol::{Command, Entry, Lsn, OrderId, PartitionId, Reply};

/// What the lane's connections share with the world.
#[derive(Debug)]
struct Shared {
    /// The engine's log, while the engine is up.
    log: Option<Arc<Log>>,
    /// Counts up with each engine: older connections are broken.
    life: u64,
    rng: Rng,
    chance: u64,
    happened: Vec<Fault>,
    /// What came, to be looked at.
    came: Vec<Came>,
    /// What was acknowledged, to be looked at.
    acked: Vec<(PartitionId, Lsn)>,
    /// Commands of the lane that wait to be asked.
    calls: VecDeque<Command>,
    /// Their answers.
    replies: Vec<(Command, Reply)>,
}

/// What a subscription shows.
#[derive(Debug)]
enum Came {
    /// It begins at these.
    Begin(Vec<(PartitionId, Lsn)>),
    /// The next entry of its partition.
    Entry(Entry),
    /// Entries up to this one are gone.
    Gap(PartitionId, Lsn),
}

type Line = Arc<Mutex<Shared>>;

fn lock(line: &Line) -> MutexGuard<'_, Shared> {
    line.lock().unwrap_or_else(PoisonError::into_inner)
}

fn consumer() -> ConsumerName {
    ConsumerName::new(b"order-writer").expect("a short name")
}

#[derive(Debug)]
struct Connector(Line);

impl Connect for Connector {
    fn connect(&mut self, from: &[(PartitionId, Lsn)]) -> Result<Box<dyn Source>, SourceError> {
        let mut shared = lock(&self.0);
        let log = shared.log.clone().ok_or_else(|| SourceError::Away("down".into()))?;
        log.consumer_register(&consumer()).map_err(|e| SourceError::Away(e.to_string()))?;
        let credit = shared.rng.pick(&[200, 2_000, 60_000]);
        let subscription = Subscription::new(1, from.to_vec(), credit);
        shared.came.push(Came::Begin(from.to_vec()));
        let life = shared.life;
        let (runs, deaf) = (VecDeque::new(), 0);
        Ok(Box::new(Connection { line: self.0.clone(), log, life, subscription, runs, deaf }))
    }
}

struct Connection {
    line: Line,
    log: Arc<Log>,
    life: u64,
    subscription: Subscription,
    runs: VecDeque<FeedRun>,
    /// So many times more it reads nothing.
    deaf: u64,
}

impl Connection {
    /// The connection, unless it is broken.
    fn live(&self) -> Result<MutexGuard<'_, Shared>, SourceError> {
        let mut shared = lock(&self.line);
        if shared.life != self.life {
            return Err(SourceError::Away("the connection is gone".into()));
        }
        let chance = shared.chance;
        if shared.rng.per_mille(chance) {
            shared.happened.push(Fault::DeadConsumer);
            return Err(SourceError::Away("the connection broke".into()));
        }
        Ok(shared)
    }
}

impl Source for Connection {
    fn next(&mut self, _: Duration) -> Result<Option<Run>, SourceError> {
        {
            let mut shared = self.live()?;
            let chance = shared.chance;
            if self.deaf == 0 && shared.rng.per_mille(chance) {
                shared.happened.push(Fault::SlowConsumer);
                drop(shared);
                self.deaf = 20;
            }
        }
        if self.deaf > 0 {
            self.deaf -= 1;
            return Ok(None);
        }
        if self.runs.is_empty() {
            let runs = self.subscription.round(&*self.log);
            self.runs.extend(runs.map_err(|error| SourceError::Away(error.to_string()))?);
        }
        match self.runs.pop_front() {
            None => Ok(None),
            Some(FeedRun::Gap { partition, from, to }) => {
                lock(&self.line).came.push(Came::Gap(partition, to));
                Ok(Some(Run::Gap { partition, from, to }))
            }
            Some(FeedRun::Entries { bytes, .. }) => {
                self.subscription.flushed(bytes.len() as u64);
                self.subscription.grant(bytes.len() as u32);
                let mut entries = Vec::new();
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    let (entry, taken) =
                        Entry::decode(rest).map_err(|e| SourceError::Wrong(e.to_string()))?;
                    rest = &rest[taken..];
                    entries.push(entry);
                }
                lock(&self.line).came.extend(entries.iter().cloned().map(Came::Entry));
                Ok(Some(Run::Entries(entries)))
            }
        }
    }

    fn ack(&mut self, cursors: &[(PartitionId, Lsn)]) -> Result<(), SourceError> {
        let mut shared = self.live()?;
        shared.acked.extend_from_slice(cursors);
        drop(shared);
        cursors.iter().try_for_each(|(partition, lsn)| {
            let acked = self.log.consumer_ack(&consumer(), *partition, *lsn);
            acked.map_err(|error| SourceError::Away(error.to_string()))
        })
    }

    fn call(&mut self, command: Command) -> Result<Reply, SourceError> {
        let mut shared = self.live()?;
        if let Some(at) = shared.replies.iter().position(|(asked, _)| *asked == command) {
            return Ok(shared.replies.remove(at).1);
        }
        if !shared.calls.contains(&command) {
            shared.calls.push_back(command);
        }
        Err(SourceError::Away("no answer in time".into()))
    }

    fn committed(&mut self) -> Result<BTreeMap<PartitionId, Lsn>, SourceError> {
        let cursors = self.log.consumer_cursors(&consumer());
        let cursors = cursors.map_err(|error| SourceError::Away(error.to_string()))?;
        Ok(cursors.into_iter().map(|cursor| (cursor.partition, cursor.committed)).collect())
    }
}

/// See the module.
pub struct Writer {
    layout: Layout,
    database: SimDatabase,
    line: Line,
    clock_us: Arc<AtomicU64>,
    lane: Option<Lane>,
    rng: Rng,
    /// The next entry of each partition on the subscription at hand.
    next: BTreeMap<PartitionId, u64>,
    quiet: bool,
}

impl Writer {
    /// A writer that has not begun; so many calls in a thousand fail.
    pub fn new(partitions: u16, mut rng: Rng, chance: u64) -> Self {
        let layout = Layout { databases: 1, tables: rng.pick(&[1, 3]), partitions };
        let database = SimDatabase::new(&layout, rng.fork(), chance);
        let shared = Shared {
            log: None,
            life: 0,
            rng: rng.fork(),
            chance,
            happened: Vec::new(),
            came: Vec::new(),
            acked: Vec::new(),
            calls: VecDeque::new(),
            replies: Vec::new(),
        };
        Self {
            layout,
            database,
            line: Arc::new(Mutex::new(shared)),
            clock_us: Arc::default(),
            lane: None,
            rng,
            next: BTreeMap::new(),
            quiet: false,
        }
    }

    /// The engine is up, or down.
    pub fn engine(&mut self, log: Option<Arc<Log>>) {
        let mut shared = lock(&self.line);
        shared.log = log;
        shared.life += 1;
    }

    /// Nothing goes wrong any more.
    pub fn quiet(&mut self) {
        self.quiet = true;
        self.database.quiet();
        lock(&self.line).chance = 0;
    }

    /// The process of the writer ends.
    pub fn kill(&mut self) -> bool {
        self.lane.take().is_some()
    }

    /// Another writer takes over.
    pub fn fence(&mut self) {
        self.database.take_over();
    }

    /// Faults that happened since the last call.
    pub fn happened(&self) -> Vec<Fault> {
        let mut happened = self.database.happened();
        happened.append(&mut lock(&self.line).happened);
        happened
    }

    /// Commands of the lane for the engine.
    pub fn calls(&self) -> Vec<Command> {
        lock(&self.line).calls.drain(..).collect()
    }

    /// An answer to one of them.
    pub fn told(&self, command: &Command, reply: &Reply) {
        lock(&self.line).replies.push((command.clone(), reply.clone()));
    }

    fn lane(&mut self) -> Lane {
        // One origin for the whole process: only differences matter.
        static ORIGIN: OnceLock<Instant> = OnceLock::new();
        let origin = *ORIGIN.get_or_init(Instant::now);
        let (now, wall) = (self.clock_us.clone(), self.clock_us.clone());
        let clock = LaneClock {
            now: Box::new(move || origin + Duration::from_micros(now.load(Ordering::Relaxed))),
            wall: Box::new(move || TimestampMs::new(1 + wall.load(Ordering::Relaxed) / 1000)),
        };
        let options = LaneOptions {
            batch_events_max: self.rng.pick(&[1, 7, 300]),
            linger: Duration::ZERO,
            breaker: BreakerLimits { minute_max: usize::MAX, ..BreakerLimits::default() },
            until_drained: false,
        };
        let lane = Lane::new(LaneParts {
            database: Arc::new(self.database.clone()),
            layout: self.layout,
            index: 0,
            owner: "simulated".into(),
            connect: Box::new(Connector(self.line.clone())),
            options,
            stop: Stop::default(),
            acks: CatalogAcks::new(1),
            ready: Box::new(|| {}),
        });
        lane.with_clock(clock)
    }

    /// The lane takes some steps. Gives the faults that ended it.
    ///
    /// # Errors
    /// What the auditor found.
    pub fn step(&mut self, now_us: u64, model: &Model) -> Result<Option<Fault>, String> {
        self.clock_us.store(now_us, Ordering::Relaxed);
        let mut lane = match self.lane.take() {
            Some(lane) => lane,
            None => self.lane(),
        };
        for _ in 0..3 {
            let result = lane.step();
            self.look(model)?;
            match result {
                Ok(None) => {}
                Ok(Some(_pause)) => break,
                Err(LaneEnd::Fenced { .. }) => return Ok(Some(Fault::SqlFenced)),
                Err(LaneEnd::Alarm(why)) if why.contains("no such table") && !self.quiet => {
                    return Ok(None);
                }
                Err(end) => return Err(format!("P9: the writer ends: {end}")),
            }
        }
        self.lane = Some(lane);
        Ok(None)
    }

    /// What came and what was acknowledged.
    fn look(&mut self, model: &Model) -> Found {
        let mut shared = lock(&self.line);
        for came in std::mem::take(&mut shared.came) {
            match came {
                Came::Begin(from) => {
                    self.next = from.into_iter().map(|(p, lsn)| (p, lsn.get())).collect();
                }
                Came::Gap(partition, to) => {
                    self.next.insert(partition, to.get() + 1);
                }
                Came::Entry(entry) => {
                    let (partition, lsn) = (entry.partition, entry.lsn.get());
                    let due = self.next.insert(partition, lsn + 1);
                    if due != Some(lsn) {
                        return Err(format!("P8: entry {lsn} of {partition} came, not {due:?}"));
                    }
                    let history = &model.history[model.slot(partition)];
                    if history.get(lsn as usize - 1) != Some(&entry) {
                        return Err(format!("P8: the feed shows what is not durable: {entry:?}"));
                    }
                }
            }
        }
        for (partition, lsn) in std::mem::take(&mut shared.acked) {
            let cursor = self.database.look(|rows| rows.cursors[&partition].lsn);
            if lsn > cursor {
                return Err(format!("P9: {lsn} of {partition} acknowledged, SQL has {cursor}"));
            }
        }
        Ok(())
    }

    /// SQL has everything that is durable, and no refused order waits.
    pub fn is_drained(&self, model: &Model) -> bool {
        self.database.look(|rows| {
            let at_end = rows.cursors.values().all(|cursor| {
                cursor.lsn.get() == model.history[model.slot(cursor.partition)].len() as u64
            });
            at_end && rows.refused.values().all(|row| row.state != RefusedState::Open)
        })
    }

    /// SQL is the fold of the log, but for refused orders.
    ///
    /// # Errors
    /// The first difference.
    pub fn compare(&self, model: &Model) -> Found {
        let mut books = Books::default();
        for entry in model.history.iter().flatten() {
            books.apply(entry);
        }
        self.database.look(|rows| {
            let refused = |order: &OrderId| rows.refused.contains_key(order);
            for (order, row) in &books.orders {
                let stored = rows.orders.get(order);
                if !refused(order) && stored != Some(row) {
                    return Err(format!("P9: the log says\n  {row:?}\nand SQL\n  {stored:?}"));
                }
            }
            let known = |(order, _): &(&OrderId, &OrderRow)| books.orders.contains_key(order);
            if let Some((order, _)) = rows.orders.iter().find(|row| !known(row)) {
                return Err(format!("P9: SQL has order {order}, the log does not"));
            }
            let same = |(key, row): (&(OrderId, String), _)| {
                rows.late.get(key) == Some(row) || refused(&key.0)
            };
            if rows.late.len() > books.late.len() || !books.late.iter().all(same) {
                return Err("P9: late payments differ".into());
            }
            if rows.catalog != books.catalog {
                return Err("P9: the catalog in SQL is not that of the log".into());
            }
            Ok(())
        })
    }
}
