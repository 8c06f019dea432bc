//! One life of the engine's process: the server's own shards, driven step by step, each step told
//! to the auditor.
//!
//! What `connection/driver.rs`, `shard/run.rs` and the commit thread do around a shard with
//! sockets, tasks and channels is done here by plain calls; everything inside (sessions, turns,
//! mailboxes, commit ring, gathers, catalog) is the server's code.

use crate::model::{Found, Key, Model};
use crossbeam::channel::{Receiver, bounded};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use stockade_core::catalog::CatalogChange;
use stockade_core::gather::Part;
use stockade_core::pool::StockWord;
use stockade_engine::binary_session::BinarySession;
use stockade_engine::clock::Clock;
use stockade_engine::commit::{Batch, Committed};
use stockade_engine::connection::Connection;
use stockade_engine::feed::FeedInbox;
use stockade_engine::hub::{Hub, Limits, Message, Origin};
use stockade_engine::recover::Recovered;
use stockade_engine::routing::{RoutingTable, Target};
use stockade_engine::session::{Action, FeedAnswer, Received, ServerInfo, Session};
use stockade_engine::shard::Shard;
use stockade_engine::shard::catalog::CatalogDriver;
use stockade_engine::shard::state::Next;
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::image::PartitionImage;
use stockade_protocol::{Command, PartitionId, Reply, SaleId, SkuId};

/// Answers as they were said, before they became bytes.
type Seen = Rc<RefCell<Vec<(Key, Reply)>>>;

/// The server's session, with an ear at its answers.
struct Audited {
    inner: BinarySession,
    shard: u16,
    connection: Rc<Cell<u64>>,
    seen: Seen,
}

impl Session for Audited {
    fn receive(
        &mut self,
        input: &[u8],
        now: TimestampMs,
        out: &mut Vec<u8>,
        actions: &mut Vec<Action>,
    ) -> Received {
        self.inner.receive(input, now, out, actions)
    }

    fn reply(&mut self, tag: u64, reply: Reply, out: &mut Vec<u8>) {
        let key = (self.shard, self.connection.get(), tag);
        self.seen.borrow_mut().push((key, reply.clone()));
        self.inner.reply(tag, reply, out);
    }

    fn feed(&mut self, tag: u64, answer: FeedAnswer, out: &mut Vec<u8>) {
        self.inner.feed(tag, answer, out);
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn go_away(&mut self, reconnect_after_ms: u32, out: &mut Vec<u8>) {
        self.inner.go_away(reconnect_after_ms, out);
    }
}

/// The word of a SKU.
struct Word {
    sale: SaleId,
    sku: SkuId,
    stock: Arc<StockWord>,
}

/// See the module.
pub struct Engine {
    /// What the shards share.
    pub hub: Arc<Hub>,
    shards: Vec<Shard>,
    batches: Vec<Receiver<Batch>>,
    seen: Seen,
    words: Vec<Word>,
    words_of: u64,
    started_us: u64,
}

/// What a step of a shard left to do.
pub struct After {
    /// For the disk.
    pub batch: Option<Batch>,
    /// What the shard needs next.
    pub next: Next,
    /// When it must be looked at again at the latest, ms.
    pub deadline: Option<TimestampMs>,
}

impl Engine {
    /// The images of a recovered engine, for the auditor, before anything moves.
    pub fn images(recovered: &Recovered, partition_count: u16) -> Vec<PartitionImage> {
        let shards = recovered.machines.len();
        let image = |n: u16| {
            let id = PartitionId::new(n);
            recovered.machines[usize::from(n) % shards].image(id).expect("its own partition")
        };
        (0..partition_count).map(image).collect()
    }

    /// Starts on what recovery made. `wall` is the wall clock, `now_us` the world's. Each shard may
    /// have a first batch for the disk.
    ///
    /// # Errors
    /// What the auditor found.
    pub fn start(
        recovered: Recovered,
        partition_count: u16,
        wall: TimestampMs,
        now_us: u64,
        grace_ms: u64,
        model: &mut Model,
    ) -> Result<(Self, Vec<Option<Batch>>), String> {
        let Recovered { machines, catalog, archived, log, newest_at, .. } = recovered;
        let shard_count = machines.len() as u16;
        let (clock, _) = Clock::stepped(wall, newest_at);
        let routing = RoutingTable { partition_count, shard_count };
        let info = Arc::new(info(partition_count, shard_count, &clock));
        let hub = Arc::new(Hub {
            routing,
            clock,
            mailboxes: machines.iter().map(|_| Default::default()).collect(),
            metrics: machines.iter().map(|_| Default::default()).collect(),
            feed: FeedInbox::default(),
            log,
            info,
            limits: Limits { connections_max: 1000, in_flight_max: 64, queue_max: 4096 },
            connections: AtomicUsize::new(0),
            ready: AtomicBool::new(true),
            drained: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
        });
        let mut catalog = Some(CatalogDriver::new(catalog, archived));
        let (mut shards, mut batches) = (Vec::new(), Vec::new());
        for (index, machine) in (0u16..).zip(machines) {
            let (sender, receiver) = bounded(1);
            let driver = if index == 0 { catalog.take() } else { None };
            shards.push(Shard::new(index, hub.clone(), machine, driver, sender));
            batches.push(receiver);
        }
        let seen = Seen::default();
        let (words, started_us) = (Vec::new(), now_us);
        let mut engine = Self { hub, shards, batches, seen, words, words_of: u64::MAX, started_us };
        engine.tick(now_us, model);
        for shard in &mut engine.shards {
            shard.begin(grace_ms);
        }
        model.begin(grace_ms);
        let mut first = Vec::new();
        for (index, batches) in engine.batches.iter().enumerate() {
            let batch = batches.try_recv().ok();
            if let Some(batch) = &batch {
                model.shipped(index, &batch.bytes)?;
            }
            first.push(batch);
        }
        Ok((engine, first))
    }

    /// The world's clock moved.
    pub fn tick(&self, now_us: u64, model: &mut Model) {
        self.hub.clock.tell_elapsed(Duration::from_micros(now_us - self.started_us));
        model.now = self.hub.clock.now().get();
    }

    /// Shards of this life.
    pub fn shard_count(&self) -> u16 {
        self.shards.len() as u16
    }

    /// A connection at a shard's port.
    pub fn connect(&mut self, shard: u16) -> Rc<Connection> {
        let connection = Rc::new(Cell::new(0));
        let session = Box::new(Audited {
            inner: BinarySession::new(self.hub.info.clone()),
            shard,
            connection: connection.clone(),
            seen: self.seen.clone(),
        });
        let now = self.hub.clock.now();
        let connections = &mut self.shards[usize::from(shard)].connections;
        let made = connections.insert(session, true, now);
        connection.set(made.id);
        made
    }

    /// A connection is gone.
    pub fn disconnect(&mut self, shard: u16, connection: u64) {
        self.shards[usize::from(shard)].connections.remove(connection);
    }

    /// Bytes came in on a connection; what is not used up stays in `input`. False: it must close.
    ///
    /// # Errors
    /// What the auditor found.
    pub fn receive(
        &mut self,
        shard: u16,
        connection: &Connection,
        input: &mut Vec<u8>,
        model: &mut Model,
    ) -> Result<bool, String> {
        let now = self.hub.clock.now();
        let mut actions = Vec::new();
        let received = {
            let mut out = connection.out.borrow_mut();
            connection.session.borrow_mut().receive(input, now, &mut out, &mut actions)
        };
        input.drain(..received.consumed);
        for action in actions {
            let Action::Command { tag, command } = action else { continue };
            self.submit(shard, connection, tag, command, model)?;
        }
        Ok(!received.close)
    }

    fn submit(
        &mut self,
        shard: u16,
        connection: &Connection,
        tag: u64,
        command: Command,
        model: &mut Model,
    ) -> Found {
        let key = (shard, connection.id, tag);
        model.ask(key, &command);
        let index = usize::from(shard);
        if self.hub.routing.target(&command) == Target::Shard(shard) {
            model.arrive(index, key);
        }
        let origin = Origin::Connection { shard, connection: connection.id, tag };
        if let Err((_, reply)) = self.shards[index].submit(origin, command) {
            let mut out = connection.out.borrow_mut();
            connection.session.borrow_mut().reply(tag, reply, &mut out);
        }
        self.look(shard, model)
    }

    /// Tells the auditor what was said, and looks at the stock words.
    fn look(&mut self, shard: u16, model: &mut Model) -> Found {
        if shard == 0 {
            self.find_words(model);
            for word in &self.words {
                model.observe_aside(word.sale, word.sku, word.stock.load().aside)?;
            }
        }
        let seen = std::mem::take(&mut *self.seen.borrow_mut());
        for (key, reply) in &seen {
            model.replied(*key, reply)?;
        }
        let mut seen = seen;
        seen.clear();
        *self.seen.borrow_mut() = seen;
        Ok(())
    }

    /// The stock words of all sales, as shard 0 has them.
    fn find_words(&mut self, model: &Model) {
        if self.words_of == model.catalog.lsn {
            return;
        }
        self.words_of = model.catalog.lsn;
        self.words.clear();
        for sale in model.catalog.sales.keys() {
            let part = self.shards[0].machine().part(&Command::SaleGet(*sale));
            let Part::Stock { sale: Some(runtime), .. } = part else { continue };
            for sku in &runtime.skus {
                let (sale, stock) = (*sale, sku.stock.clone());
                self.words.push(Word { sale, sku: sku.definition.sku, stock });
            }
        }
    }

    /// Something is in a shard's mailbox.
    pub fn has_mail(&self, shard: u16) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        matches!(self.hub.mailboxes[usize::from(shard)].poll(&mut cx), Poll::Ready(()))
    }

    /// One step of a shard, as its task does it: messages, a turn, the batch.
    ///
    /// # Errors
    /// What the auditor found.
    pub fn step(&mut self, shard: u16, model: &mut Model) -> Result<After, String> {
        let index = usize::from(shard);
        let mut messages = Vec::new();
        self.hub.mailboxes[index].take(&mut messages);
        let now = self.hub.clock.now();
        for message in messages {
            self.hear(shard, &message, model)?;
            self.shards[index].take(message);
            self.look(shard, model)?;
        }
        model.turn(index, self.hub.log.pressure());
        self.shards[index].turn(now);
        self.look(shard, model)?;
        self.shards[index].flush();
        let batch = self.batches[index].try_recv().ok();
        if let Some(batch) = &batch {
            model.shipped(index, &batch.bytes)?;
        }
        self.check_words(model)?;
        let of = &self.shards[index];
        Ok(After { batch, next: of.next(), deadline: of.deadline() })
    }

    /// The auditor hears what the shard is about to take.
    fn hear(&self, shard: u16, message: &Message, model: &mut Model) -> Found {
        let index = usize::from(shard);
        match message {
            Message::Command { origin, command } => {
                let mine = self.hub.routing.target(command) == Target::Shard(shard);
                if let (true, Origin::Connection { shard, connection, tag }) = (mine, origin) {
                    model.arrive(index, (*shard, *connection, *tag));
                }
                Ok(())
            }
            Message::Committed(_) => model.committed(index),
            Message::Apply(CatalogChange::Replace(sale)) => {
                model.apply_change(shard, sale.definition.sale)
            }
            Message::Apply(CatalogChange::Archive(sale)) => model.apply_change(shard, *sale),
            Message::Drain => {
                model.drain(index);
                Ok(())
            }
            Message::Fail => {
                model.fail(index);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Every stock word says what the auditor says.
    fn check_words(&mut self, model: &Model) -> Found {
        self.find_words(model);
        self.words.iter().try_for_each(|word| {
            let stock = word.stock.load();
            model.check_word(word.sale, word.sku, stock.free, stock.aside)
        })
    }

    /// The batch in flight of a shard is durable.
    pub fn committed(&self, shard: u16, buffer: Vec<u8>) {
        let committed = Committed { buffer, took: Duration::from_micros(100) };
        self.hub.mailboxes[usize::from(shard)].push(Message::Committed(committed));
    }

    /// Takes units of some SKU as another shard's turn would that does not end; says which.
    pub fn stall(&mut self, pick: u64, units: u32, model: &mut Model) -> Option<(usize, u32)> {
        self.find_words(model);
        let at = pick as usize % self.words.len().max(1);
        let word = self.words.get(at)?;
        let taken = word.stock.set_aside(units);
        model.stall(word.sale, word.sku, i64::from(taken));
        Some((at, taken))
    }

    /// That turn ends without having granted anything.
    pub fn unstall(&mut self, sale: SaleId, sku: SkuId, units: u32, model: &mut Model) {
        if let Some(word) = self.words.iter().find(|word| (word.sale, word.sku) == (sale, sku)) {
            word.stock.settle(0, units);
            model.stall(sale, sku, -i64::from(units));
        }
    }

    /// The SKU of a place that [`Self::stall`] gave.
    pub fn sku_at(&self, at: usize) -> (SaleId, SkuId) {
        (self.words[at].sale, self.words[at].sku)
    }

    /// A partition as the engine has it.
    pub fn image(&self, partition: PartitionId) -> Option<PartitionImage> {
        let shard = self.hub.routing.owner(partition);
        self.shards[usize::from(shard)].machine().image(partition)
    }

    /// Tells every shard to take no new work.
    pub fn drain(&self) {
        self.hub.mailboxes.iter().for_each(|mailbox| mailbox.push(Message::Drain));
    }

    /// Every shard has finished what was begun.
    pub fn is_drained(&self) -> bool {
        self.hub.drained.load(std::sync::atomic::Ordering::SeqCst) == self.shards.len()
    }
}

fn info(partition_count: u16, shard_count: u16, clock: &Clock) -> ServerInfo {
    ServerInfo {
        version: "stockade simulated".into(),
        durability: "group",
        epoch: 1,
        partition_count,
        shard_ports: (0..shard_count).map(|shard| 10_000 + shard).collect(),
        ports: [1, 2, 3],
        started_at: clock.now(),
        tokens: Vec::new(),
        in_flight_max: 64,
        scripts: Default::default(),
    }
}
