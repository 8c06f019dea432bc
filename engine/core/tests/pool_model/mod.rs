//! What the models of the pool share: real shard machines and the real catalog over real stock
//! words, a log that is durable when the model says so, and the audit.
//!
//! The audit of every answer: `sold_out` only if fewer units than asked were outside orders at some
//! instant of the request (P3, against the truth that the words' steps tell); never `busy`, which
//! would be the end of an endless wait. The audit at the end: no unit lost or doubled (P1).

use std::sync::Arc;
use stockade_core::catalog::{CatalogDecision, CatalogMachine, SaleRuntime, SkuRuntime};
use stockade_core::effects::{Effects, Request};
use stockade_core::shard::ShardMachine;
use stockade_protocol::command::{Adjust, Line, Reserve};
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::routing::partition_of;
use stockade_protocol::sale::SkuPatch;
use stockade_protocol::text::{OrderData, Reason};
use stockade_protocol::{
    Command, OrderId, Outcome, PartitionId, Reply, RequestId, SaleId, SalePatch, SkuId, UserId,
};

const PARTITIONS: u16 = 6;
const NOW: TimestampMs = TimestampMs::new(1_700_000_000_000);

/// How a shard waits for another one's turn to end. The models' schedules are not fair, so that a
/// shard that only tried again and again could keep all others from running.
pub trait Bell: Clone {
    /// Blocks until it is rung; not at all if it was rung since this shard waited last.
    fn wait(&self, shard: usize);
    /// Units moved.
    fn ring(&self);
}

/// A sale of two SKUs, 10 and 11, and nothing else.
pub struct Market<B> {
    pub catalog: CatalogMachine,
    shards: usize,
    bell: B,
}

/// What a thread that is done leaves for the last audit.
pub struct Done {
    machine: Option<ShardMachine>,
    removed: i64,
}

impl<B: Bell> Market<B> {
    pub fn new(shards: usize, stock: [u32; 2], bell: B) -> Self {
        let mut patch = SalePatch::new(sale());
        patch.hold_ms = Some(1000);
        for (id, stock) in [(10, stock[0]), (11, stock[1])] {
            patch.skus.push(SkuPatch {
                sku: sku(id),
                stock: Some(stock),
                limit_per_user: None,
                max_per_order: None,
                labels: None,
            });
        }
        let mut catalog = CatalogMachine::default();
        let decision = catalog.decide(&Command::SalePut(Box::new(patch)), NOW);
        assert!(matches!(decision, CatalogDecision::Append { .. }));
        catalog.committed();
        Self { catalog, shards, bell }
    }

    pub fn shard(&self, shard: usize) -> Shard<B> {
        let mine = |n: &u16| usize::from(*n) % self.shards == shard;
        let ids: Vec<_> = (0..PARTITIONS).filter(mine).map(PartitionId::new).collect();
        let mut machine = ShardMachine::new(PARTITIONS, &ids);
        self.catalog.changes().iter().for_each(|change| machine.apply(change));
        let sale = self.catalog.sales()[0].clone();
        let (shards, bell, effects) = (self.shards, self.bell.clone(), Effects::default());
        Shard { machine, sale, shard, shards, bell, effects, next: 0, known: 0 }
    }

    /// Changes the stock of SKU 10; says by how much.
    pub fn adjust(&mut self, delta: i64, request: u64) -> i64 {
        let adjust = Adjust {
            sale: sale(),
            sku: sku(10),
            delta,
            request: RequestId::from_number(request).unwrap(),
        };
        let decision = self.catalog.decide(&Command::Adjust(adjust), NOW);
        let CatalogDecision::Append { reply: Reply::Adjust(reply), .. } = decision else {
            panic!("{decision:?}");
        };
        self.catalog.committed();
        self.bell.ring();
        reply.applied
    }

    /// Nobody moves units any more: each is in exactly one place.
    pub fn audit(&self, done: Vec<Done>) {
        let sale = &self.catalog.sales()[0];
        let adjusted: i64 = done.iter().map(|done| done.removed).sum();
        for (index, sku) in sale.skus.iter().enumerate() {
            let of = |done: &Done| {
                let tallies = done.machine.as_ref().map_or_else(Vec::new, ShardMachine::tallies);
                let tally = tallies.iter().find(|tally| tally.1 == sku.definition.sku);
                tally.map_or(0, |(_, _, tally)| tally.held + tally.confirmed)
            };
            let in_orders: u64 = done.iter().map(of).sum();
            let total = i64::from(sku.definition.stock) + if index == 0 { adjusted } else { 0 };
            let stock = sku.stock.load();
            assert_eq!(stock.aside, 0, "units stayed aside");
            let sum = i64::from(stock.free) + i64::try_from(in_orders).unwrap();
            assert_eq!(sum, total, "units were lost or doubled: {stock:?}, {in_orders} in orders");
        }
    }
}

/// A shard and its driver: each entry is durable before the next turn begins.
pub struct Shard<B> {
    machine: ShardMachine,
    sale: Arc<SaleRuntime>,
    shard: usize,
    shards: usize,
    bell: B,
    effects: Effects,
    next: u64,
    /// Moves of others that it has learnt of.
    known: usize,
}

impl<B: Bell> Shard<B> {
    /// Turns until the command is answered.
    fn run(&mut self, command: Command) -> Reply {
        let mut requests = vec![Request { ticket: 0, command, waits: 0 }];
        loop {
            let own_before = self.moves()[0];
            self.machine.turn(NOW, &mut requests, &mut self.effects);
            self.effects.log.clear();
            self.machine.committed(self.effects.position);
            if self.moves()[0] != own_before {
                self.bell.ring();
            }
            if let Some(answer) = self.effects.answers.pop() {
                return answer.reply;
            }
            requests.append(&mut self.effects.waiting);
            if !self.learns_of_moves() {
                self.bell.wait(self.shard);
            }
        }
    }

    /// Of this shard, and of others.
    fn moves(&self) -> [usize; 2] {
        let moves = self.sale.skus.iter().map(|sku| sku.stock.moves());
        moves.fold([0, 0], |sum, of| [sum[0] + of[0], sum[1] + of[1]])
    }

    /// Others moved units, and this shard learns of it now.
    fn learns_of_moves(&mut self) -> bool {
        let learn = |sku: &Arc<SkuRuntime>| {
            sku.stock.instant();
            sku.stock.moves()[1]
        };
        let known = self.sale.skus.iter().map(learn).sum();
        std::mem::replace(&mut self.known, known) != known
    }

    /// A new user of this shard wants these units: the order, or `None` if they are sold out.
    pub fn reserve(&mut self, lines: &[(u64, u32)]) -> Option<OrderId> {
        self.next += 1;
        let mine = |who: &UserId| {
            usize::from(partition_of(*who, PARTITIONS).get()) % self.shards == self.shard
        };
        let user = (1..).map(|n| UserId::new(n).unwrap()).filter(mine).nth(0).unwrap();
        let since: Vec<usize> = lines.iter().map(|line| self.word(line.0).instant()).collect();
        let command = Command::Reserve(Reserve {
            sale: sale(),
            user,
            request: RequestId::from_number(self.next).unwrap(),
            lines: lines.iter().map(|(id, n)| Line { sku: sku(*id), quantity: *n }).collect(),
            data: OrderData::default(),
            not_after: None,
        });
        let Reply::Reserve(reply) = self.run(command) else { panic!("a reserve") };
        match reply.outcome {
            Outcome::Held => reply.order,
            Outcome::SoldOut => {
                let gone = |(line, since): (&(u64, u32), &usize)| {
                    self.word(line.0).outside_least(*since) < i64::from(line.1)
                };
                let gone = lines.iter().zip(&since).any(gone);
                assert!(gone, "a false sold_out for {lines:?}");
                None
            }
            other => panic!("{other:?}: nobody else holds on to units for ever"),
        }
    }

    pub fn cancel(&mut self, order: OrderId) {
        let command = Command::Cancel { order, reason: Reason::none() };
        let Reply::Order(reply) = self.run(command) else { panic!("a cancel") };
        assert_eq!(reply.outcome, Outcome::Cancelled);
    }

    pub fn done(self) -> Done {
        Done { machine: Some(self.machine), removed: 0 }
    }

    fn word(&self, id: u64) -> &stockade_core::pool::StockWord {
        &self.sale.sku(sku(id)).unwrap().stock
    }
}

/// The catalog's thread is done; it changed the stock of SKU 10 by this much.
pub fn adjusted(units: i64) -> Done {
    Done { machine: None, removed: units }
}

fn sale() -> SaleId {
    SaleId::new(1).unwrap()
}

fn sku(id: u64) -> SkuId {
    SkuId::new(id).unwrap()
}
