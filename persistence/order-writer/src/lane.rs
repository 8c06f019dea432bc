//! One database and its feed: the loop that makes SQL follow the log exactly once.
//!
//! A lane owns a session, a subscription and the fold between them, on a thread of its own. Rows
//! and cursors are one transaction; the engine is told only after the commit. After any error of
//! the database the session is dropped, another is opened and the cursors are read again: a batch
//! whose commit was in doubt turns out written or not. Only the stop signal, another writer or an
//! alarm ends a lane; an engine or a database that is away is waited for.

mod acks;
mod backoff;
mod clock;
mod gather;
mod give_back;
mod progress;
mod stop;

use acks::AckClock;
pub use acks::CatalogAcks;
pub use clock::LaneClock;
pub use stop::Stop;

use crate::layout::Layout;
use crate::pipeline::{Alarm, Batch, Batcher, Breaker, BreakerLimits};
use crate::sink::transaction::{Applied, ApplyError, apply};
use crate::sink::{Database, Session, SinkError};
use crate::source::{Connect, Source, SourceError};
use backoff::Backoff;
use progress::Progress;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::{Entry, Lsn, OrderId, PartitionId};

/// How a lane works.
#[derive(Clone, Copy, Debug)]
pub struct LaneOptions {
    /// Entries of one batch at most.
    pub batch_events_max: usize,
    /// How long a small batch waits for more entries.
    pub linger: Duration,
    /// Refusals that are believed.
    pub breaker: BreakerLimits,
    /// End as soon as everything is written that was committed when the lane connected first.
    pub until_drained: bool,
}

impl Default for LaneOptions {
    fn default() -> Self {
        Self {
            batch_events_max: 4_000,
            linger: Duration::from_millis(10),
            breaker: BreakerLimits::default(),
            until_drained: false,
        }
    }
}

/// Why a lane ended.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LaneEnd {
    /// Asked to; everything taken is written and acknowledged, or will be read again.
    #[error("stopped")]
    Stopped,
    /// Everything that was there is written.
    #[error("drained")]
    Drained,
    /// Another writer took over.
    #[error("another writer took over: this one had epoch {mine}, the database has {theirs}")]
    Fenced {
        /// Ours.
        mine: u64,
        /// The one in force.
        theirs: u64,
    },
    /// A person must look. Nothing that is not in SQL was acknowledged.
    #[error("{0}")]
    Alarm(String),
}

/// How often an idle lane makes sure that it still owns its cursors.
const OWNER_CHECK: Duration = Duration::from_secs(2);
/// How long a lane waits for entries before it looks around.
const IDLE_WAIT: Duration = Duration::from_millis(100);

/// See the module.
pub struct Lane {
    database: Arc<dyn Database>,
    layout: Layout,
    index: u16,
    owner: String,
    connect: Box<dyn Connect>,
    options: LaneOptions,
    stop: Stop,
    acks: CatalogAcks,
    /// Called once, when the lane has its session and its feed.
    ready: Option<Box<dyn FnOnce() + Send>>,

    session: Option<Box<dyn Session>>,
    source: Option<Box<dyn Source>>,
    epoch: Option<u64>,
    batcher: Batcher,
    /// Entries of a run that did not fit into the batch.
    carry: VecDeque<Entry>,
    /// Taken from the batcher, not surely committed.
    pending: Option<Batch>,
    /// What the database has, as far as this lane knows.
    committed: BTreeMap<PartitionId, Lsn>,
    acked: BTreeMap<PartitionId, Lsn>,
    target: Option<BTreeMap<PartitionId, Lsn>>,
    breaker: Breaker,
    backoff: Backoff,
    progress: Progress,
    ack_clock: AckClock,
    clock: LaneClock,
    looked_at: Instant,
    outbox_at: Instant,
    /// Refused orders that the engine does not take back.
    stuck: BTreeSet<OrderId>,
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lane").field("database", &self.database.name()).finish_non_exhaustive()
    }
}

/// What a lane is made of.
pub struct LaneParts {
    /// The database, prepared for the layout.
    pub database: Arc<dyn Database>,
    /// The layout.
    pub layout: Layout,
    /// The database's place in it.
    pub index: u16,
    /// Who writes, for the cursors.
    pub owner: String,
    /// The way to the engine.
    pub connect: Box<dyn Connect>,
    /// How to work.
    pub options: LaneOptions,
    /// When to stop.
    pub stop: Stop,
    /// The catalog's cursor over all lanes.
    pub acks: CatalogAcks,
    /// Called when the lane has its session and its feed.
    pub ready: Box<dyn FnOnce() + Send>,
}

impl Lane {
    /// A lane that has not begun.
    pub fn new(parts: LaneParts) -> Self {
        let LaneParts { database, layout, index, owner, connect, options, stop, acks, ready } =
            parts;
        let now = Instant::now();
        Self {
            progress: Progress::new(database.name()),
            database,
            layout,
            index,
            owner,
            connect,
            options,
            stop,
            acks,
            ready: Some(ready),
            session: None,
            source: None,
            epoch: None,
            batcher: Batcher::new(layout, index, &BTreeMap::new()),
            carry: VecDeque::new(),
            pending: None,
            committed: BTreeMap::new(),
            acked: BTreeMap::new(),
            target: None,
            breaker: Breaker::new(options.breaker),
            backoff: Backoff::new(u64::from(index)),
            ack_clock: AckClock::new(),
            clock: LaneClock::system(),
            looked_at: now,
            outbox_at: now,
            stuck: BTreeSet::new(),
        }
    }

    /// The lane by another clock; before its first step.
    #[must_use]
    pub fn with_clock(mut self, clock: LaneClock) -> Self {
        (self.looked_at, self.outbox_at) = (clock.now(), clock.now());
        self.clock = clock;
        self
    }

    /// Runs until it ends; blocks its thread.
    pub fn run(&mut self) -> LaneEnd {
        loop {
            match self.step() {
                Ok(None) => {}
                // The stop signal ends the wait and, without a database, the lane.
                Ok(Some(pause)) if self.stop.wait(pause) => return LaneEnd::Stopped,
                Ok(Some(_)) => {}
                Err(end) => return end,
            }
        }
    }

    /// One step: a session, a subscription, or a batch. Gives how long to wait before the next one,
    /// where something is away. [`Self::run`] waits; a simulation has its own time.
    ///
    /// # Errors
    /// The end of the lane.
    pub fn step(&mut self) -> Result<Option<Duration>, LaneEnd> {
        if self.stop.is_set() && self.pending.is_none() {
            self.ack();
            self.progress.finish();
            return Err(LaneEnd::Stopped);
        }
        if self.session.is_none() && !self.open_session()? {
            return Ok(Some(self.backoff.next()));
        }
        if self.pending.is_some() {
            return self.write().map(|()| None);
        }
        if self.source.is_none() && !self.open_source()? {
            return Ok(Some(self.backoff.next()));
        }
        self.drained()?;
        if !self.gather()? {
            return Ok(None);
        }
        self.pending = self.batcher.take();
        #[cfg(feature = "mutations")]
        if stockade_protocol::mutation::is(stockade_protocol::mutation::Mutation::AckBeforeCommit)
            && let Some(batch) = &self.pending
        {
            let told: Vec<_> = batch.advances.iter().map(|a| (a.partition, a.to)).collect();
            let _ = self.source.as_mut().map(|source| source.ack(&told));
        }
        if self.pending.is_some() { self.write() } else { self.idle() }.map(|()| None)
    }

    /// True if there is a session now, with cursors that this writer owns.
    fn open_session(&mut self) -> Result<bool, LaneEnd> {
        let opened = self.database.open(&self.layout).and_then(|mut session| {
            let epoch = match self.epoch {
                Some(epoch) => epoch,
                None => session.claim(&self.owner)?,
            };
            Ok((epoch, session.cursors()?, session))
        });
        let (epoch, cursors, session) = match opened {
            Ok(parts) => parts,
            Err(error) => return self.database_failed(&error).map(|()| false),
        };
        self.epoch = Some(epoch);
        if let Some(other) = cursors.iter().find(|cursor| cursor.epoch != epoch) {
            return Err(LaneEnd::Fenced { mine: epoch, theirs: other.epoch });
        }
        let found = cursors.iter().map(|cursor| (cursor.partition, cursor.lsn)).collect();
        self.reconcile(found)?;
        self.session = Some(session);
        Ok(true)
    }

    /// Compares what the database has with what this lane believes, and believes the database.
    fn reconcile(&mut self, found: BTreeMap<PartitionId, Lsn>) -> Result<(), LaneEnd> {
        let due = self.layout.partitions_of(self.index);
        if found.len() != due.len() || due.iter().any(|partition| !found.contains_key(partition)) {
            return Err(LaneEnd::Alarm(format!(
                "{}: rows of `cursors` are missing; restore the table",
                self.database.name()
            )));
        }
        for (partition, acked) in &self.acked {
            let lsn = found.get(partition).copied().unwrap_or_default();
            if lsn < *acked {
                tracing::error!(
                    %partition, %lsn, %acked,
                    "the database is behind what was acknowledged; reading again from there"
                );
            }
        }
        if found == self.committed {
            return Ok(());
        }
        let mut after = self.committed.clone();
        for advance in self.pending.iter().flat_map(|batch| &batch.advances) {
            after.insert(advance.partition, advance.to);
        }
        if self.pending.is_some() && found == after {
            tracing::info!("a commit in doubt turned out written");
        } else {
            self.batcher = Batcher::new(self.layout, self.index, &found);
            self.carry.clear();
            self.source = None;
        }
        self.pending = None;
        self.committed = found;
        Ok(())
    }

    /// True if there is a subscription now, from behind the cursors.
    fn open_source(&mut self) -> Result<bool, LaneEnd> {
        self.batcher = Batcher::new(self.layout, self.index, &self.committed);
        self.carry.clear();
        let wanted = self.batcher.wanted();
        let opened = self.connect.connect(&wanted).and_then(|mut source| {
            let committed = source.committed()?;
            Ok((committed, source))
        });
        let (committed, source) = match opened {
            Ok(parts) => parts,
            Err(error) => return self.engine_failed(&error).map(|()| false),
        };
        for (partition, lsn) in &self.committed {
            let end = committed.get(partition).copied().unwrap_or_default();
            if *lsn > end {
                return Err(LaneEnd::Alarm(format!(
                    "{} is at entry {lsn} of partition {partition}, but the engine ends at {end}: \
                     it is another engine, or it lost data; nothing was written",
                    self.database.name()
                )));
            }
        }
        self.target.get_or_insert(committed);
        self.source = Some(source);
        self.backoff.reset();
        if let Some(ready) = self.ready.take() {
            ready();
        }
        Ok(true)
    }

    /// Ends the lane when it has written all that was to be written.
    fn drained(&mut self) -> Result<(), LaneEnd> {
        let Some(target) = self.target.as_ref().filter(|_| self.options.until_drained) else {
            return Ok(());
        };
        let at = |partition: &PartitionId| target.get(partition).copied().unwrap_or_default();
        if self.committed.iter().all(|(partition, lsn)| *lsn >= at(partition)) {
            self.ack();
            self.give_back_all();
            self.progress.finish();
            return Err(LaneEnd::Drained);
        }
        Ok(())
    }

    /// Writes the pending batch.
    fn write(&mut self) -> Result<(), LaneEnd> {
        let (Some(batch), Some(session)) = (&self.pending, &mut self.session) else {
            return Ok(());
        };
        let (started, epoch) = (Instant::now(), self.epoch.unwrap_or_default());
        let wall = self.clock.wall();
        match apply(session.as_mut(), batch, epoch, wall, &mut self.breaker) {
            Ok(applied) => self.written(&applied, started),
            Err(ApplyError::NotMine) => self.session = None,
            Err(ApplyError::Tripped(tripped)) => {
                return Err(LaneEnd::Alarm(format!("{}: {tripped}", self.database.name())));
            }
            Err(ApplyError::Sink(error)) => {
                self.session = None;
                self.database_failed(&error)?;
                if self.stop.is_set() {
                    return Err(LaneEnd::Stopped);
                }
            }
        }
        Ok(())
    }

    fn written(&mut self, applied: &Applied, started: Instant) {
        let Some(batch) = self.pending.take() else { return };
        for advance in &batch.advances {
            self.committed.insert(advance.partition, advance.to);
        }
        for (order, why) in &applied.refused {
            tracing::error!(%order, why, "the database refused an order; it will be given back");
        }
        self.backoff.reset();
        self.progress.wrote(&batch, applied, started);
        self.ack_when_due();
        self.give_back_when_due();
    }

    /// Nothing came: look whether the cursors are still ours, tell the engine, give orders back.
    fn idle(&mut self) -> Result<(), LaneEnd> {
        self.ack();
        self.give_back_when_due();
        if self.clock.since(self.looked_at) < OWNER_CHECK {
            return Ok(());
        }
        self.looked_at = self.clock.now();
        self.progress.idle();
        let Some(session) = &mut self.session else { return Ok(()) };
        let (epoch, cursors) = (self.epoch.unwrap_or_default(), session.cursors());
        match cursors {
            Ok(cursors) => match cursors.iter().find(|cursor| cursor.epoch != epoch) {
                Some(other) => Err(LaneEnd::Fenced { mine: epoch, theirs: other.epoch }),
                None => Ok(()),
            },
            Err(error) => {
                self.session = None;
                self.database_failed(&error)
            }
        }
    }

    /// The database failed: an alarm if waiting does not help. The session is gone either way.
    fn database_failed(&mut self, error: &SinkError) -> Result<(), LaneEnd> {
        match error {
            SinkError::Away { .. } | SinkError::Retry { .. } => {
                self.backoff.warn(&self.database.name(), error);
                Ok(())
            }
            SinkError::Refused { .. } | SinkError::Bug { .. } => {
                Err(LaneEnd::Alarm(format!("{}: {error}", self.database.name())))
            }
        }
    }

    fn engine_failed(&mut self, error: &SourceError) -> Result<(), LaneEnd> {
        self.source = None;
        match error {
            SourceError::Away(_) => {
                self.backoff.warn("engine", error);
                Ok(())
            }
            SourceError::Wrong(why) => Err(LaneEnd::Alarm(why.clone())),
        }
    }
}

impl From<Alarm> for LaneEnd {
    fn from(alarm: Alarm) -> Self {
        Self::Alarm(alarm.to_string())
    }
}

/// The wall clock.
pub(crate) fn now() -> TimestampMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TimestampMs::new(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
