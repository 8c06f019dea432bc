//! Any sequence of commands against the core: no panic, no unit made or lost (P1), per-user limits
//! kept (P4), and a replay of the log gives the same state, whatever the number of shards.
//!
//! Each byte of the input chooses something: small numbers, so that ids collide often.

use std::collections::BTreeMap;
use stockade_core::catalog::{CatalogDecision, CatalogMachine};
use stockade_core::effects::{Effects, Position, Request};
use stockade_core::gather::set_stock;
use stockade_core::shard::ShardMachine;
use stockade_protocol::command::{Adjust, Line, Reserve, Return, Route};
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::image::PartitionImage;
use stockade_protocol::routing::partition_of;
use stockade_protocol::sale::{OpensAt, SkuPatch};
use stockade_protocol::text::{OrderData, PaymentRef, Reason};
use stockade_protocol::wire::{self, BODY_BYTES_MAX, decode_request, encode_request, split};
use stockade_protocol::{
    Command, Entry, Event, OrderId, OrderState, PartitionId, Reply, RequestId, SaleId, SalePatch,
    SkuId, UserId,
};

/// Partitions of users.
pub const PARTITIONS: u16 = 3;
const START: TimestampMs = TimestampMs::new(1_700_000_000_000);
const SKUS: [u64; 3] = [10, 11, 12];
/// Per user and SKU, where a sale is put with a limit.
const LIMIT: u32 = 2;

/// The bytes as a script; at its end everything is 0.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn below(&mut self, end: u8) -> u8 {
        self.byte() % end
    }
}

/// What the log holds of a run of commands.
pub type Log = BTreeMap<PartitionId, Vec<Entry>>;

struct World {
    catalog: CatalogMachine,
    shards: Vec<(ShardMachine, Position)>,
    log: Log,
    now: TimestampMs,
    /// Each sale's limit as it was put first; limits are not changed here.
    limited: BTreeMap<SaleId, bool>,
}

/// A script of commands.
pub fn body(data: &[u8]) {
    run(data);
}

/// Runs the script; gives the log that it leaves.
pub fn run(data: &[u8]) -> Log {
    let mut script = Script(data);
    let mut world = World::new(1 + usize::from(script.below(3)));
    while !script.0.is_empty() {
        world.step(&mut script);
        world.check();
    }
    world.crash(2);
    world.log
}

impl World {
    fn new(shards: usize) -> Self {
        let (catalog, now) = (CatalogMachine::default(), START);
        let (log, limited) = (Log::new(), BTreeMap::new());
        let mut world = Self { catalog, shards: Vec::new(), log, now, limited };
        world.recover(shards);
        world
    }

    fn recover(&mut self, count: usize) {
        self.catalog = CatalogMachine::default();
        for entry in self.log.get(&PartitionId::CATALOG).into_iter().flatten() {
            self.catalog.try_replay(entry).expect("the catalog's log replays");
        }
        self.shards.clear();
        for shard in 0..count {
            let mine = |n: &u16| usize::from(*n) % count == shard;
            let ids: Vec<_> = (0..PARTITIONS).filter(mine).map(PartitionId::new).collect();
            let mut machine = ShardMachine::new(PARTITIONS, &ids);
            self.catalog.changes().iter().for_each(|change| machine.apply(change));
            for entry in ids.iter().filter_map(|id| self.log.get(id)).flatten() {
                machine.replay(entry).expect("a shard's log replays");
            }
            self.shards.push((machine, Position::NONE));
        }
        let tallies: Vec<_> =
            self.shards.iter().flat_map(|(machine, _)| machine.tallies()).collect();
        set_stock(&self.catalog.sales(), tallies).expect("never more in orders than there is");
    }

    /// Everything was durable, so nothing may be different afterwards.
    fn crash(&mut self, shards: usize) {
        let before = self.images();
        self.recover(shards);
        assert_eq!(self.images(), before, "a replay gives another state");
        let mut effects = Effects::default();
        for shard in 0..self.shards.len() {
            self.shards[shard].0.start(self.now, 1000, &mut effects);
            self.take(shard, &mut effects);
        }
        self.check();
    }

    fn images(&self) -> Vec<PartitionImage> {
        let of = |n: u16| {
            let shard = usize::from(n) % self.shards.len();
            self.shards[shard].0.image(PartitionId::new(n)).expect("a partition of the shard")
        };
        (0..PARTITIONS).map(of).collect()
    }

    fn step(&mut self, script: &mut Script<'_>) {
        match script.below(16) {
            0 => self.crash(1 + usize::from(script.below(3))),
            1 => {
                self.now = self.now.after_ms(u64::from(script.byte()) * 16);
                let mut effects = Effects::default();
                for shard in 0..self.shards.len() {
                    self.shards[shard].0.expire(self.now, 2, &mut effects);
                    self.take(shard, &mut effects);
                }
            }
            2 => self.archive(),
            kind => {
                let command = command(kind, script);
                if let Command::SalePut(patch) = &command {
                    let limited = patch.skus.iter().any(|sku| sku.limit_per_user == Some(LIMIT));
                    self.limited.entry(patch.sale).or_insert(limited);
                }
                travels(&command);
                self.run(command);
            }
        }
    }

    fn run(&mut self, command: Command) {
        let shard = match command.route() {
            Route::Catalog => return self.run_catalog(&command),
            Route::All => {
                for (machine, _) in &self.shards {
                    let _ = machine.part(&command);
                }
                return;
            }
            Route::User(user) => usize::from(partition_of(user, PARTITIONS).get()),
            Route::Order(order) => usize::from(order.partition().get()),
        } % self.shards.len();
        let mut effects = Effects::default();
        let mut requests = vec![Request { ticket: 1, command, waits: 0 }];
        self.shards[shard].0.turn(self.now, &mut requests, &mut effects);
        assert_eq!((effects.answers.len(), effects.waiting.len()), (1, 0), "nobody else has units");
        self.take(shard, &mut effects);
    }

    fn run_catalog(&mut self, command: &Command) {
        match self.catalog.decide(command, self.now) {
            CatalogDecision::Answer(_) => {}
            CatalogDecision::Append { entry, .. } => self.catalog_entry(*entry),
        }
    }

    fn catalog_entry(&mut self, entry: Entry) {
        comes_back(&entry);
        self.log.entry(entry.partition).or_default().push(entry);
        let change = self.catalog.committed();
        for (machine, _) in &mut self.shards {
            machine.apply(&change);
        }
    }

    fn archive(&mut self) {
        let Some(sale) = self.catalog.archive_candidate(self.now) else { return };
        if self.shards.iter().all(|(machine, _)| machine.held_orders(sale) == 0) {
            let entry = self.catalog.archive(sale, self.now);
            self.catalog_entry(entry);
        }
    }

    fn take(&mut self, shard: usize, effects: &mut Effects) {
        let mut rest = &effects.log[..];
        while !rest.is_empty() {
            let (entry, len) = Entry::decode(rest).expect("what the core writes can be read");
            comes_back(&entry);
            rest = &rest[len..];
            self.log.entry(entry.partition).or_default().push(entry);
        }
        let (machine, committed) = &mut self.shards[shard];
        *committed = effects.position;
        machine.committed(effects.position);
        for answer in &effects.answers {
            sendable(answer.reply.clone());
        }
        *effects = Effects::default();
    }

    fn check(&self) {
        let mut in_orders = BTreeMap::<(SaleId, SkuId), u64>::new();
        for (sale, sku, tally) in self.shards.iter().flat_map(|(machine, _)| machine.tallies()) {
            *in_orders.entry((sale, sku)).or_default() += tally.sum();
        }
        for sale in self.catalog.sales() {
            for sku in &sale.skus {
                let key = (sale.definition.sale, sku.definition.sku);
                let stock = sku.stock.load();
                let units = in_orders.get(&key).copied().unwrap_or(0);
                assert_eq!(stock.aside, 0, "a turn leaves nothing aside");
                assert_eq!(u64::from(stock.free) + units, sku.total, "units of {key:?}");
            }
        }
        self.check_limits();
    }

    fn check_limits(&self) {
        let mut used = BTreeMap::<(SaleId, UserId, SkuId), u32>::new();
        for order in self.images().iter().flat_map(|image| &image.orders) {
            let live = matches!(order.state, OrderState::Held | OrderState::Confirmed);
            if !live || self.limited.get(&order.sale) != Some(&true) {
                continue;
            }
            let back = |sku: SkuId| -> u32 {
                let lines = order.returns.iter().flat_map(|back| &back.lines);
                lines.filter(|line| line.sku == sku).map(|line| line.quantity).sum()
            };
            for line in &order.lines {
                let key = (order.sale, order.user, line.sku);
                *used.entry(key).or_default() += line.quantity - back(line.sku);
            }
        }
        let over = used.iter().find(|(_, units)| **units > LIMIT);
        assert_eq!(over, None, "a limit is passed");
    }
}

/// A command goes over the wire and comes out equal.
fn travels(command: &Command) {
    let request = wire::Request::Command(command.clone());
    let mut frame = Vec::new();
    encode_request(&request, 7, &mut frame);
    let frame = split(&frame, BODY_BYTES_MAX);
    let (header, body, _) = frame.expect("commands fit").expect("a whole frame");
    assert_eq!(decode_request(&header, body), Ok(request));
}

fn sendable(reply: Reply) {
    let response = wire::Response::Reply(reply);
    let mut frame = Vec::new();
    wire::encode_response(&response, 7, &mut frame);
    let frame = split(&frame, BODY_BYTES_MAX);
    let (header, body, _) = frame.expect("replies fit").expect("a whole frame");
    assert_eq!(wire::decode_response(&header, body), Ok(response));
}

fn comes_back(entry: &Entry) {
    let mut bytes = Vec::new();
    entry.encode(&mut bytes);
    assert_eq!(Entry::decode(&bytes).as_ref(), Ok(&(entry.clone(), bytes.len())));
}

fn command(kind: u8, script: &mut Script<'_>) -> Command {
    let sale = SaleId::new(1 + u64::from(script.below(2))).expect("small");
    match kind {
        3 => put(sale, script),
        4 => match script.below(3) {
            0 => Command::SalePause(sale),
            1 => Command::SaleResume(sale),
            _ => Command::SaleClose(sale),
        },
        5 => {
            let delta = i64::from(script.byte() as i8);
            let delta = if delta == 127 { i64::from(u32::MAX) } else { delta };
            let (sku, request) = (sku(script), request(script));
            Command::Adjust(Adjust { sale, sku, delta, request })
        }
        6 => {
            let payment = PaymentRef::new(&[b'a' + script.below(3)]).expect("a letter");
            Command::Confirm { order: order(script), payment }
        }
        7 => Command::Cancel { order: order(script), reason: Reason::none() },
        8 => Command::Withdraw { sale, user: user(script), request: request(script) },
        9 => {
            let until = START.after_ms(u64::from(script.byte()) * 32);
            Command::Extend { order: order(script), until }
        }
        10 => Command::Return(Return {
            order: order(script),
            request: request(script),
            lines: (0..script.below(3)).map(|_| line(script)).collect(),
            restock: script.below(2) == 0,
            right: script.below(2) == 0,
        }),
        11 => match script.below(4) {
            0 => Command::OrderGet(order(script)),
            1 => Command::Status { sale, user: user(script), request: request(script) },
            2 => Command::UserGet { sale, user: user(script) },
            _ => Command::SkuGet { sale, sku: sku(script) },
        },
        _ => Command::Reserve(Reserve {
            sale,
            user: user(script),
            request: request(script),
            lines: (0..1 + script.below(3)).map(|_| line(script)).collect(),
            data: OrderData::default(),
            not_after: None,
        }),
    }
}

fn put(sale: SaleId, script: &mut Script<'_>) -> Command {
    let mut patch = SalePatch::new(sale);
    let flags = script.byte();
    patch.opens_at = (flags & 1 != 0).then_some(OpensAt::Now);
    patch.hold_ms = Some(if flags & 2 != 0 { 1000 } else { 0 });
    patch.extend_max_ms = Some(2000);
    patch.grace_ms = Some(500);
    patch.revive = Some(flags & 4 != 0);
    if flags & 8 != 0 {
        (patch.rate_per_s, patch.burst) = (Some(10), Some(2));
    }
    // The limit of a sale does not change here, so that it can be checked afterwards.
    let limit = if sale.get() == 1 { LIMIT } else { 0 };
    for id in SKUS.iter().take(1 + usize::from(script.below(3))) {
        patch.skus.push(SkuPatch {
            sku: SkuId::new(*id).expect("small"),
            stock: Some(if script.below(8) == 0 { u32::MAX } else { 3 + *id as u32 }),
            limit_per_user: Some(limit),
            max_per_order: None,
            labels: None,
        });
    }
    Command::SalePut(Box::new(patch))
}

fn sku(script: &mut Script<'_>) -> SkuId {
    SkuId::new(10 + u64::from(script.below(4))).expect("small")
}

fn user(script: &mut Script<'_>) -> UserId {
    UserId::new(1 + u64::from(script.below(5))).expect("small")
}

fn request(script: &mut Script<'_>) -> RequestId {
    RequestId::from_number(1 + u64::from(script.below(6))).expect("small")
}

fn order(script: &mut Script<'_>) -> OrderId {
    let partition = PartitionId::new(u16::from(script.below(4)));
    OrderId::from_parts(partition, 1 + u64::from(script.below(6))).expect("small")
}

fn line(script: &mut Script<'_>) -> Line {
    let (sku, byte) = (sku(script), script.byte());
    let quantity = if byte == 255 { u32::MAX } else { u32::from(byte % 4) };
    Line { sku, quantity }
}

/// An event of every kind that a log of the given script has.
pub fn kinds(log: &Log) -> Vec<u8> {
    let mut kinds: Vec<u8> =
        log.values().flatten().map(|entry: &Entry| Event::kind(&entry.event)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}
