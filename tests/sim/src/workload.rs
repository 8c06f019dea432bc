//! What clients and operators ask for: a few sales with hot and cold SKUs, few users that come
//! again and again, retries of the same request ids, verbs on orders that answers named, and
//! changes of the catalog. Everything follows from one sequence of chance.

use crate::rng::Rng;
use std::collections::VecDeque;
use stockade_protocol::command::{Adjust, Command, Line, Lines, OrderList, Reserve, Return};
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::sale::{OpensAt, SkuPatch};
use stockade_protocol::text::{OrderData, PaymentRef, Reason};
use stockade_protocol::{
    OrderId, OrderState, Outcome, PartitionId, Reply, RequestId, SaleId, SalePatch, SkuId, UserId,
};

/// Orders that are remembered for later verbs.
const ORDERS_MAX: usize = 96;
/// Reserves that may be asked again.
const ASKED_MAX: usize = 48;
/// Sales that take turns.
const SALES: u64 = 3;

/// See the module.
#[derive(Debug)]
pub struct Workload {
    rng: Rng,
    orders: VecDeque<OrderId>,
    asked: VecDeque<Reserve>,
    /// The sale ids in use, by slot.
    sales: [u64; SALES as usize],
    request_last: u64,
    adjust_last: u64,
    partition_count: u16,
    users: u64,
    skus: u64,
    stock_max: u64,
    hold_ms_max: u64,
}

fn sku(n: u64) -> SkuId {
    SkuId::new(n).expect("small and not 0")
}

fn sale(n: u64) -> SaleId {
    SaleId::new(n).expect("small and not 0")
}

fn user(n: u64) -> UserId {
    UserId::new(n).expect("small and not 0")
}

fn line(n: u64, quantity: u64) -> Line {
    Line { sku: sku(n), quantity: quantity as u32 }
}

impl Workload {
    /// A workload; its sizes follow from the seed too.
    pub fn new(mut rng: Rng, partition_count: u16) -> Self {
        Self {
            orders: VecDeque::new(),
            asked: VecDeque::new(),
            sales: std::array::from_fn(|slot| slot as u64 + 1),
            request_last: 0,
            adjust_last: 0,
            partition_count,
            users: rng.pick(&[6, 20, 60, 400]),
            skus: rng.range(1, 6),
            stock_max: rng.pick(&[4, 30, 200, 2000]),
            hold_ms_max: rng.pick(&[20, 120, 600]),
            rng,
        }
    }

    /// The puts that a run begins with.
    pub fn opening(&mut self) -> Vec<Command> {
        (0..self.sales.len()).map(|slot| self.put(slot)).collect()
    }

    /// The next command of some client.
    pub fn next(&mut self, now: u64) -> Command {
        match self.rng.below(1000) {
            0..=449 => self.reserve(now),
            450..=529 => self.again(now),
            530..=669 => self.confirm(),
            670..=749 => {
                let order = self.order();
                let reason = Reason::new(b"changed my mind").expect("a short text");
                Command::Cancel { order, reason }
            }
            750..=774 => self.withdraw(),
            775..=799 => {
                let until = TimestampMs::new(now + self.rng.below(3 * self.hold_ms_max));
                Command::Extend { order: self.order(), until }
            }
            800..=874 => self.give_back(),
            875..=984 => self.question(),
            _ => self.operator(now),
        }
    }

    /// A client saw an answer.
    pub fn saw(&mut self, reply: &Reply) {
        let order = match reply {
            Reply::Reserve(reply) if !reply.again => reply.order,
            _ => None,
        };
        if let Some(order) = order {
            if self.orders.len() >= ORDERS_MAX {
                let at = self.rng.below(ORDERS_MAX as u64) as usize;
                self.orders[at] = order;
            } else {
                self.orders.push_back(order);
            }
        }
        if let Reply::Reserve(reply) = reply
            && reply.outcome == Outcome::Ended
            && self.rng.per_mille(20)
        {
            self.move_on();
        }
    }

    /// A sale that is over gives its slot to a new one.
    fn move_on(&mut self) {
        let slot = self.rng.below(SALES) as usize;
        self.sales[slot] = self.sales.iter().max().copied().unwrap_or(0) + 1;
    }

    fn of_sale(&mut self) -> u64 {
        match self.rng.below(100) {
            0 => 999,
            1..=4 => self.rng.range(1, self.sales[2]),
            _ => self.rng.pick(&self.sales),
        }
    }

    fn some_user(&mut self) -> UserId {
        // Half of the traffic is of a few.
        let bound = if self.rng.below(2) == 0 { self.users.min(5) } else { self.users };
        user(self.rng.range(1, bound))
    }

    fn lines(&mut self) -> Lines {
        let hot = self.rng.below(2) == 0;
        let count = self.rng.pick(&[1, 1, 1, 1, 2, 3]);
        let mut lines = Lines::new();
        for _ in 0..count {
            let of = if hot { 1 } else { self.rng.range(1, self.skus) };
            let of = if self.rng.per_mille(8) { 77 } else { 1000 + of };
            let quantity = self.rng.pick(&[1, 1, 1, 1, 2, 2, 3, 5]);
            lines.push(line(of, if self.rng.per_mille(8) { 0 } else { quantity }));
        }
        lines
    }

    fn request(&mut self) -> RequestId {
        self.request_last += 1;
        if self.rng.below(8) == 0 {
            let text = format!("cart-{:x}", self.request_last);
            RequestId::parse(text.as_bytes()).expect("a short text")
        } else {
            RequestId::from_number(self.request_last).expect("small and not 0")
        }
    }

    fn reserve(&mut self, now: u64) -> Command {
        let data = if self.rng.below(16) == 0 { &[7u8; 40][..] } else { &[] };
        let not_after = (self.rng.below(16) == 0)
            .then(|| TimestampMs::new((now + self.rng.below(40)).saturating_sub(5)));
        let reserve = Reserve {
            sale: sale(self.of_sale()),
            user: self.some_user(),
            request: self.request(),
            lines: self.lines(),
            data: OrderData::new(data).expect("short"),
            not_after,
        };
        if self.asked.len() >= ASKED_MAX {
            self.asked.pop_front();
        }
        self.asked.push_back(reserve.clone());
        Command::Reserve(reserve)
    }

    /// A request id that was used before, mostly with the same lines.
    fn again(&mut self, now: u64) -> Command {
        if self.asked.is_empty() {
            return self.reserve(now);
        }
        let at = self.rng.below(self.asked.len() as u64) as usize;
        let mut reserve = self.asked[at].clone();
        if self.rng.below(8) == 0 {
            reserve.lines = self.lines();
        }
        Command::Reserve(reserve)
    }

    fn order(&mut self) -> OrderId {
        if self.orders.is_empty() || self.rng.per_mille(30) {
            let partition = self.rng.below(u64::from(self.partition_count) + 1) as u16;
            let number = self.rng.range(1, 40);
            return OrderId::from_parts(PartitionId::new(partition), number).expect("in range");
        }
        self.orders[self.rng.below(self.orders.len() as u64) as usize]
    }

    fn confirm(&mut self) -> Command {
        let payment = self.rng.pick(&["pay-a", "pay-a", "pay-a", "pay-b", "pay-c"]);
        let text = if self.rng.per_mille(60) {
            format!("pay-{}", self.rng.below(40))
        } else {
            payment.into()
        };
        let payment = PaymentRef::new(text.as_bytes()).expect("a short text");
        Command::Confirm { order: self.order(), payment }
    }

    fn withdraw(&mut self) -> Command {
        if let Some(reserve) = self.asked.back()
            && self.rng.below(3) > 0
        {
            let (sale, user, request) = (reserve.sale, reserve.user, reserve.request.clone());
            return Command::Withdraw { sale, user, request };
        }
        let (sale, user) = (sale(self.of_sale()), self.some_user());
        Command::Withdraw { sale, user, request: self.request() }
    }

    fn give_back(&mut self) -> Command {
        let order = self.order();
        let lines = if self.rng.below(2) == 0 { Lines::new() } else { self.lines() };
        let request = RequestId::from_number(self.rng.range(1, 5)).expect("small and not 0");
        let (restock, right) = (self.rng.below(3) > 0, self.rng.below(3) > 0);
        Command::Return(Return { order, request, lines, restock, right })
    }

    fn question(&mut self) -> Command {
        let (of, who) = (sale(self.of_sale()), self.some_user());
        match self.rng.below(8) {
            0..=2 => Command::OrderGet(self.order()),
            3 => {
                let known = self.asked.back().map(|r| (r.sale, r.user, r.request.clone()));
                let request = self.request();
                let (sale, user, request) = known.unwrap_or((of, who, request));
                Command::Status { sale, user, request }
            }
            4 => Command::UserGet { sale: of, user: who },
            5 => Command::SkuGet { sale: of, sku: sku(1000 + self.rng.range(1, self.skus)) },
            6 => Command::SaleGet(of),
            _ => {
                let user = (self.rng.below(4) > 0).then_some(who);
                let state = (self.rng.below(3) == 0).then_some(OrderState::Held);
                Command::OrderList(OrderList { sale: of, user, state, after: 0, count: 20 })
            }
        }
    }

    fn operator(&mut self, now: u64) -> Command {
        let slot = self.rng.below(SALES) as usize;
        let of = sale(self.sales[slot]);
        match self.rng.below(16) {
            0..=4 => self.put(slot),
            5 => Command::SalePause(of),
            6..=8 => Command::SaleResume(of),
            9 => {
                if self.rng.below(3) == 0 {
                    Command::SaleClose(of)
                } else {
                    Command::SaleList
                }
            }
            10 => {
                let mut patch = SalePatch::new(of);
                patch.closes_at = Some(Some(TimestampMs::new(now + self.rng.below(2000))));
                Command::SalePut(Box::new(patch))
            }
            _ => self.adjust(of),
        }
    }

    fn adjust(&mut self, sale: SaleId) -> Command {
        // Some ids come again, some of them with another amount.
        if self.adjust_last == 0 || self.rng.below(6) > 0 {
            self.adjust_last += 1;
        }
        let size = self.rng.range(1, 1 + self.stock_max / 4) as i64;
        let delta = if self.rng.below(3) == 0 { -size } else { size };
        let request = RequestId::from_number(self.adjust_last).expect("small and not 0");
        let sku = sku(1000 + self.rng.range(1, self.skus));
        Command::Adjust(Adjust { sale, sku, delta, request })
    }

    fn put(&mut self, slot: usize) -> Command {
        let id = self.sales[slot];
        let mut patch = SalePatch::new(sale(id));
        // What a sale is follows from its id, so that a later put says the same of known SKUs.
        let mut of = Rng::new(id ^ self.stock_max << 20 ^ self.users << 40);
        let count = if self.rng.below(4) == 0 { self.skus } else { self.skus.div_ceil(2) };
        for n in 1..=count {
            let stock = if of.below(12) == 0 { 0 } else { of.below(self.stock_max + 1) as u32 };
            let wrong = self.rng.per_mille(30);
            patch.skus.push(SkuPatch {
                sku: sku(1000 + n),
                stock: Some(if wrong { stock + 1 } else { stock }),
                limit_per_user: Some(of.pick(&[0, 0, 2, 5])),
                max_per_order: Some(of.pick(&[0, 0, 3])),
                labels: None,
            });
        }
        patch.opens_at = Some(OpensAt::Now);
        patch.hold_ms = Some(self.rng.pick(&[0, self.hold_ms_max, self.hold_ms_max, 20]));
        patch.extend_max_ms = Some(of.pick(&[0, self.hold_ms_max]));
        patch.grace_ms = Some(of.pick(&[0, 300]));
        patch.limit_per_user = Some(self.rng.pick(&[0, 0, 3, 8]));
        patch.rate_per_s = Some(of.pick(&[0, 0, 0, 900]));
        patch.burst = Some(of.pick(&[0, 5]));
        patch.user_rate_per_s = Some(of.pick(&[0, 0, 50]));
        patch.revive = Some(of.below(2) == 0);
        if self.rng.below(6) == 0 {
            patch.name = Some(format!("sale {}", self.rng.below(5)));
        }
        Command::SalePut(Box::new(patch))
    }
}
