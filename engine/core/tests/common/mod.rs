//! A driver of memory for tests: a catalog and some shards, a log that is durable at once or on
//! demand, crashes and recoveries. After every step it checks that no unit was made or lost.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "tests")]

pub mod script;

use std::collections::BTreeMap;
use stockade_core::catalog::{CatalogChange, CatalogDecision, CatalogMachine};
use stockade_core::effects::{Answer, Effects, Position, Request};
use stockade_core::fold::{fold_catalog, fold_partition};
use stockade_core::gather::{merge, set_stock};
use stockade_core::shard::{OrderScan, ShardMachine};
use stockade_protocol::command::Route;
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::image::{CatalogImage, PartitionImage};
use stockade_protocol::routing::partition_of;
use stockade_protocol::{Command, Entry, OrderId, PartitionId, Reply, SaleId, SkuId, UserId};

/// Partitions of users in every test: small, so that users share them.
pub const PARTITIONS: u16 = 6;
/// The moment at which tests begin.
pub const START_MS: u64 = 1_700_000_000_000;

pub fn sale(n: u64) -> SaleId {
    SaleId::new(n).unwrap()
}

pub fn sku(n: u64) -> SkuId {
    SkuId::new(n).unwrap()
}

pub fn user(n: u64) -> UserId {
    UserId::new(n).unwrap()
}

/// A shard with what the driver keeps for it.
#[derive(Debug)]
pub struct Shard {
    pub machine: ShardMachine,
    /// Decided, not durable: entries with their positions.
    pub tail: Vec<(Position, Entry)>,
    pub committed: Position,
    emitted: Position,
    pub waiting: Vec<Request>,
}

#[derive(Debug)]
pub struct Engine {
    pub catalog: CatalogMachine,
    pub shards: Vec<Shard>,
    /// Durable entries.
    pub log: BTreeMap<PartitionId, Vec<Entry>>,
    /// Snapshots that recovery begins with.
    pub images: BTreeMap<PartitionId, PartitionImage>,
    pub catalog_image: CatalogImage,
    pub now: TimestampMs,
    /// Every entry is durable at once.
    pub commit_at_once: bool,
    pub restart_grace_ms: u64,
    /// Recovery applies the catalog's changes only after the log was replayed.
    pub changes_last: bool,
    /// Units that a test set aside, as another shard's turn would.
    pub aside: BTreeMap<(SaleId, SkuId), u32>,
    ticket: u64,
}

impl Engine {
    pub fn new(shard_count: usize) -> Self {
        let mut engine = Self {
            catalog: CatalogMachine::default(),
            shards: Vec::new(),
            log: BTreeMap::new(),
            images: BTreeMap::new(),
            catalog_image: CatalogImage::default(),
            now: TimestampMs::new(START_MS),
            commit_at_once: true,
            restart_grace_ms: 30_000,
            changes_last: false,
            aside: BTreeMap::new(),
            ticket: 0,
        };
        engine.recover(shard_count);
        engine
    }

    /// Everything that is not durable is lost; then the engine starts again, maybe with another
    /// number of shards.
    pub fn crash(&mut self, shard_count: usize) {
        self.aside.clear();
        self.recover(shard_count);
        self.check();
    }

    fn recover(&mut self, shard_count: usize) {
        self.catalog = CatalogMachine::from_image(self.catalog_image.clone());
        for entry in self.log.get(&PartitionId::CATALOG).into_iter().flatten() {
            self.catalog.replay(entry);
        }
        let changes = self.catalog.changes();
        let recover = |shard| self.recover_shard(shard, shard_count, &changes);
        self.shards = (0..shard_count).map(recover).collect();
        let tallies = self.shards.iter().flat_map(|shard| shard.machine.tallies());
        set_stock(&self.catalog.sales(), tallies.collect::<Vec<_>>()).unwrap();
        for shard in 0..shard_count {
            let (now, grace) = (self.now, self.restart_grace_ms);
            let mut effects = Effects::default();
            self.shards[shard].machine.start(now, grace, &mut effects);
            self.take(shard, effects);
        }
    }

    fn recover_shard(&self, shard: usize, shard_count: usize, changes: &[CatalogChange]) -> Shard {
        let mine = |n: &u16| usize::from(*n) % shard_count == shard;
        let ids: Vec<_> = (0..PARTITIONS).filter(mine).map(PartitionId::new).collect();
        let mut machine = ShardMachine::new(PARTITIONS, &ids);
        if !self.changes_last {
            changes.iter().for_each(|change| machine.apply(change));
        }
        for id in ids {
            if let Some(image) = self.images.get(&id) {
                machine.load(id, image.clone());
            }
            for entry in self.log.get(&id).into_iter().flatten() {
                machine.replay(entry).unwrap();
            }
        }
        if self.changes_last {
            changes.iter().for_each(|change| machine.apply(change));
        }
        Shard {
            machine,
            tail: Vec::new(),
            committed: Position::NONE,
            emitted: Position::NONE,
            waiting: Vec::new(),
        }
    }

    /// Folds the durable log into the snapshots and forgets it.
    pub fn snapshot(&mut self) {
        let archived = self.archived();
        for n in 0..PARTITIONS {
            let id = PartitionId::new(n);
            let entries = self.log.remove(&id).unwrap_or_default();
            let image = self.images.remove(&id).unwrap_or_default();
            let image = fold_partition(id, image, &entries, &archived).unwrap();
            self.images.insert(id, image);
        }
        let entries = self.log.remove(&PartitionId::CATALOG).unwrap_or_default();
        self.catalog_image = fold_catalog(self.catalog_image.clone(), &entries).unwrap();
        assert_eq!(self.catalog_image, self.catalog.to_image());
    }

    pub fn archived(&self) -> Vec<SaleId> {
        self.catalog.to_image().archived
    }

    /// Takes what a shard handed out: answers and entries.
    fn take(&mut self, shard: usize, effects: Effects) -> Vec<Answer> {
        let of = &mut self.shards[shard];
        let mut rest = &effects.log[..];
        while !rest.is_empty() {
            let (entry, len) = Entry::decode(rest).unwrap();
            rest = &rest[len..];
            of.emitted.0 += 1;
            of.tail.push((of.emitted, entry));
        }
        assert_eq!(of.emitted, effects.position, "positions count entries");
        for answer in &effects.answers {
            assert!(answer.rests_on <= effects.position, "an answer rests on what was decided");
        }
        of.waiting.extend(effects.waiting);
        if self.commit_at_once {
            self.commit(shard, usize::MAX);
        }
        effects.answers
    }

    /// Makes up to `entries` of a shard's tail durable.
    pub fn commit(&mut self, shard: usize, entries: usize) {
        let of = &mut self.shards[shard];
        for (position, entry) in of.tail.drain(..entries.min(of.tail.len())) {
            of.committed = position;
            self.log.entry(entry.partition).or_default().push(entry);
        }
        of.machine.committed(of.committed);
    }

    pub fn commit_all(&mut self) {
        for shard in 0..self.shards.len() {
            self.commit(shard, usize::MAX);
        }
    }

    /// Sets units aside as the turn of another shard would; says how many.
    pub fn set_aside(&mut self, of: SaleId, id: SkuId, units: u32) -> u32 {
        let sales = self.catalog.sales();
        let runtime = sales.iter().find(|runtime| runtime.definition.sale == of).unwrap();
        let taken = runtime.sku(id).unwrap().stock.set_aside(units);
        *self.aside.entry((of, id)).or_default() += taken;
        taken
    }

    /// The other shard's turn ends without granting anything.
    pub fn put_back(&mut self) {
        for ((of, id), units) in std::mem::take(&mut self.aside) {
            let sales = self.catalog.sales();
            let runtime = sales.iter().find(|runtime| runtime.definition.sale == of).unwrap();
            runtime.sku(id).unwrap().stock.settle(0, units);
        }
    }

    pub fn shard_of(&self, command: &Command) -> usize {
        let partition = match command.route() {
            Route::User(user) => partition_of(user, PARTITIONS),
            Route::Order(order) => order.partition(),
            Route::Catalog | Route::All => panic!("not a command of one shard"),
        };
        usize::from(partition.get()) % self.shards.len()
    }

    /// The ticket of the next command.
    pub fn next_ticket(&self) -> u64 {
        self.ticket + 1
    }

    /// One turn of a shard.
    pub fn turn(&mut self, shard: usize, commands: Vec<Command>) -> Vec<Answer> {
        let mut requests = std::mem::take(&mut self.shards[shard].waiting);
        for command in commands {
            self.ticket += 1;
            requests.push(Request { ticket: self.ticket, command, waits: 0 });
        }
        let mut effects = Effects::default();
        self.shards[shard].machine.turn(self.now, &mut requests, &mut effects);
        let answers = self.take(shard, effects);
        self.check();
        answers
    }

    /// Decides one command to its end.
    pub fn run(&mut self, command: Command) -> Reply {
        self.run_resting(command).0
    }

    /// The reply and whether it rests on entries.
    pub fn run_resting(&mut self, command: Command) -> (Reply, bool) {
        let reply = match command.route() {
            Route::Catalog => (self.run_catalog(&command), false),
            Route::All => (self.gather(&command), false),
            Route::User(_) | Route::Order(_) => {
                let shard = self.shard_of(&command);
                let mut answers = self.turn(shard, vec![command]);
                while answers.is_empty() {
                    answers = self.turn(shard, Vec::new());
                }
                assert_eq!(answers.len(), 1);
                let answer = answers.remove(0);
                (answer.reply, answer.rests_on != Position::NONE)
            }
        };
        self.check();
        reply
    }

    fn run_catalog(&mut self, command: &Command) -> Reply {
        match self.catalog.decide(command, self.now) {
            CatalogDecision::Answer(reply) => reply,
            CatalogDecision::Append { entry, mut reply } => {
                self.catalog_durable(*entry);
                if let (Reply::Adjust(reply), Command::Adjust(adjust)) = (&mut reply, command) {
                    let get = Command::SkuGet { sale: adjust.sale, sku: adjust.sku };
                    let Reply::Sku(view) = self.gather(&get) else { panic!("a SKU's figures") };
                    (reply.total, reply.free) = (view.total, view.free);
                }
                reply
            }
        }
    }

    fn catalog_durable(&mut self, entry: Entry) {
        let (bytes, written) = {
            let mut bytes = Vec::new();
            entry.encode(&mut bytes);
            let read = Entry::decode(&bytes).unwrap().0;
            (read, entry)
        };
        assert_eq!(bytes, written);
        self.log.entry(PartitionId::CATALOG).or_default().push(written);
        let change = self.catalog.committed();
        self.ship(&change);
    }

    fn ship(&mut self, change: &CatalogChange) {
        for shard in &mut self.shards {
            shard.machine.apply(change);
        }
    }

    /// Archives what is due; says which sales.
    pub fn archive(&mut self) -> Vec<SaleId> {
        let count = self.catalog.archive_candidates(self.now).count();
        // Each is named once before one is named again.
        let next = |_| self.catalog.archive_candidate(self.now).unwrap();
        let mut due: Vec<SaleId> = (0..count).map(next).collect();
        due.sort_unstable();
        assert!(due.iter().copied().eq(self.catalog.archive_candidates(self.now)));
        let held = |sale: &SaleId| {
            self.shards.iter().map(|shard| shard.machine.held_orders(*sale)).sum::<u64>()
        };
        let due: Vec<SaleId> = due.into_iter().filter(|sale| held(sale) == 0).collect();
        for sale in &due {
            let entry = self.catalog.archive(*sale, self.now);
            self.catalog_durable(entry);
        }
        self.check();
        due
    }

    pub fn gather(&self, command: &Command) -> Reply {
        // A list is found in small steps, as a driver would that has others to serve.
        let part = |machine: &ShardMachine| match command {
            Command::OrderList(list) => {
                let mut scan = OrderScan::new(list.clone());
                while !machine.scan(&mut scan, 2) {}
                scan.into_part()
            }
            command => machine.part(command),
        };
        let parts = self.shards.iter().map(|shard| part(&shard.machine)).collect();
        merge(command, parts, self.now).expect("nothing moves while a test gathers")
    }

    /// Moves the clock and lets holds run out.
    pub fn advance_to(&mut self, now: TimestampMs) {
        self.now = self.now.max(now);
        for shard in 0..self.shards.len() {
            while self.expire(shard, 3) {}
        }
    }

    /// One bounded step of a shard's timers.
    pub fn expire(&mut self, shard: usize, orders_max: usize) -> bool {
        let mut effects = Effects::default();
        let machine = &mut self.shards[shard].machine;
        let due = machine.deadline_next().is_some_and(|at| at <= self.now);
        let more = machine.expire(self.now, orders_max, &mut effects);
        assert!(due || effects.log.is_empty(), "deadline_next is never late");
        self.take(shard, effects);
        self.check();
        more
    }

    /// No unit was made or lost: free + orders + on their way back = total; nothing is aside.
    pub fn check(&self) {
        let mut in_orders: BTreeMap<(SaleId, SkuId), u64> = BTreeMap::new();
        for shard in &self.shards {
            for (sale, sku, tally) in shard.machine.tallies() {
                *in_orders.entry((sale, sku)).or_default() += tally.sum();
            }
        }
        for sale in self.catalog.sales() {
            for sku in &sale.skus {
                let key = (sale.definition.sale, sku.definition.sku);
                let stock = sku.stock.load();
                let in_orders = in_orders.remove(&key).unwrap_or(0);
                let aside = self.aside.get(&key).copied().unwrap_or(0);
                assert_eq!(stock.aside, aside, "{key:?}: a turn leaves nothing aside");
                let outside = u64::from(stock.free) + u64::from(aside);
                assert_eq!(outside + in_orders, sku.total, "{key:?}: units");
            }
        }
        assert_eq!(in_orders, BTreeMap::new(), "orders of unknown SKUs");
    }

    /// The state of all partitions, from the machines.
    pub fn images(&self) -> Vec<PartitionImage> {
        let image = |n: u16| {
            let shard = usize::from(n) % self.shards.len();
            self.shards[shard].machine.image(PartitionId::new(n)).unwrap()
        };
        (0..PARTITIONS).map(image).collect()
    }

    /// The order of a request id.
    pub fn order_of(&mut self, of_sale: SaleId, user: UserId, request: &str) -> Option<OrderId> {
        let request = stockade_protocol::RequestId::parse(request.as_bytes()).unwrap();
        match self.run(Command::Status { sale: of_sale, user, request }) {
            Reply::OrderView(view) => view.order,
            other => panic!("{other:?}"),
        }
    }
}
