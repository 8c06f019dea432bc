//! Random histories: entries that an engine could have written, from a seed.

use std::collections::BTreeMap;
use stockade_protocol::command::{Line, Lines};
use stockade_protocol::entry::{LateReason, OrderKey, Placed};
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::sale::{SaleDefinition, SkuDefinition};
use stockade_protocol::text::{OrderData, PaymentRef, Reason};
use stockade_protocol::{
    Entry, Event, Lsn, OrderId, OrderState, PartitionId, RequestId, SaleId, SkuId, UserId,
};

/// Numbers from a seed.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// Below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        stockade_protocol::routing::mix(self.0) % n
    }
}

#[derive(Clone, Debug)]
struct Order {
    key: OrderKey,
    state: OrderState,
    /// SKU -> units left.
    left: BTreeMap<u64, u32>,
    payments: u32,
}

/// Writes entries.
#[derive(Clone, Debug)]
pub struct History {
    random: Random,
    partitions: u16,
    lsns: BTreeMap<PartitionId, u64>,
    numbers: BTreeMap<PartitionId, u64>,
    orders: Vec<Order>,
    at: u64,
    adjusts: u64,
    /// What was written, in the order of time.
    pub entries: Vec<Entry>,
}

pub fn payment(text: &str) -> PaymentRef {
    PaymentRef::new(text.as_bytes()).unwrap()
}

pub fn definition(sale: u64, skus: u64, name: &str) -> SaleDefinition {
    let sku = |n: u64| SkuDefinition {
        sku: SkuId::new(1000 + n).unwrap(),
        stock: 100,
        limit_per_user: 0,
        max_per_order: 0,
        labels: vec![("spec".into(), format!("{n}00g"))],
    };
    SaleDefinition {
        sale: SaleId::new(sale).unwrap(),
        name: name.into(),
        opens_at: TimestampMs::new(1_700_000_000_000),
        closes_at: None,
        hold_ms: 1000,
        extend_max_ms: 5000,
        grace_ms: 0,
        limit_per_user: 0,
        rate_per_s: 0,
        burst: 0,
        user_rate_per_s: 0,
        revive: true,
        skus: (1..=skus).map(sku).collect(),
    }
}

impl History {
    pub fn new(seed: u64, partitions: u16) -> Self {
        Self {
            random: Random(seed),
            partitions,
            lsns: BTreeMap::new(),
            numbers: BTreeMap::new(),
            orders: Vec::new(),
            at: 1_700_000_000_000,
            adjusts: 0,
            entries: Vec::new(),
        }
    }

    /// A history of this many entries.
    pub fn of(seed: u64, partitions: u16, count: usize) -> Vec<Entry> {
        let mut history = Self::new(seed, partitions);
        while history.entries.len() < count {
            history.step();
        }
        history.entries
    }

    pub fn write(&mut self, partition: PartitionId, event: Event) {
        let lsn = self.lsns.entry(partition).or_insert(0);
        *lsn += 1;
        let (lsn, at) = (Lsn::new(*lsn), TimestampMs::new(self.at));
        self.entries.push(Entry { partition, lsn, at, event });
    }

    /// A new held order with these lines.
    pub fn place(&mut self, partition: PartitionId, lines: &[(u64, u32)], born: bool) -> OrderId {
        let number = self.numbers.entry(partition).or_insert(0);
        *number += 1;
        let order = OrderId::from_parts(partition, *number).unwrap();
        let user = UserId::new(1 + self.random.below(50)).unwrap();
        let sale = SaleId::new(1 + self.random.below(2)).unwrap();
        let text =
            if number.is_multiple_of(2) { format!("r-{number}") } else { number.to_string() };
        let line = |&(sku, quantity): &(u64, u32)| Line { sku: SkuId::new(sku).unwrap(), quantity };
        let placed = Placed {
            order,
            sale,
            user,
            request: RequestId::parse(text.as_bytes()).unwrap(),
            expires_at: TimestampMs::new(if born { 0 } else { self.at + 1000 }),
            lines: lines.iter().map(line).collect(),
            data: OrderData::new(&vec![7; (*number % 3) as usize]).unwrap(),
        };
        let key = OrderKey { order, sale: Some(sale), user: Some(user) };
        let state = if born { OrderState::Confirmed } else { OrderState::Held };
        let left = lines.iter().copied().collect();
        self.orders.push(Order { key, state, left, payments: 0 });
        let event = if born { Event::BornConfirmed(placed) } else { Event::Held(placed) };
        self.write(partition, event);
        order
    }

    /// One entry.
    pub fn step(&mut self) {
        self.at += self.random.below(40);
        match self.random.below(10) {
            0..=3 => {
                let partition = PartitionId::new(self.random.below(self.partitions.into()) as u16);
                let mut lines = BTreeMap::new();
                for _ in 0..=self.random.below(3) {
                    lines.insert(1001 + self.random.below(4), 1 + self.random.below(3) as u32);
                }
                let lines: Vec<(u64, u32)> = lines.into_iter().collect();
                let born = self.random.below(5) == 0;
                self.place(partition, &lines, born);
            }
            4 => self.catalog(),
            _ => self.live(),
        }
    }

    fn catalog(&mut self) {
        let sale = 1 + self.random.below(2);
        let id = SaleId::new(sale).unwrap();
        let event = match self.random.below(6) {
            0 | 1 => {
                let name = format!("n{}", self.random.below(9));
                let skus = 2 + self.random.below(3);
                Event::SalePut(Box::new(definition(sale, skus, &name)))
            }
            2 => Event::SalePaused(id),
            3 => Event::SaleResumed(id),
            4 => Event::SaleClosed(id),
            _ => {
                self.adjusts += 1;
                let delta = self.random.below(20) as i64 - 10;
                Event::Adjusted {
                    sale: id,
                    sku: SkuId::new(1001 + self.random.below(4)).unwrap(),
                    request: RequestId::from_number(self.adjusts).unwrap(),
                    delta,
                    applied: delta,
                    total: 0,
                }
            }
        };
        self.write(PartitionId::CATALOG, event);
    }

    /// Something happens to an order.
    fn live(&mut self) {
        if self.orders.is_empty() {
            return;
        }
        let at = self.random.below(self.orders.len() as u64) as usize;
        let mut order = self.orders[at].clone();
        let (key, partition) = (order.key, order.key.order.partition());
        order.payments += 1;
        let paid = payment(&format!("p{}-{}", key.order.number(), order.payments));
        let event = match (order.state, self.random.below(4)) {
            (OrderState::Held, 0) => {
                order.state = OrderState::Cancelled;
                Event::Cancelled { key, reason: Reason::none() }
            }
            (OrderState::Held, 1) => {
                order.state = OrderState::Expired;
                Event::Expired { key }
            }
            (OrderState::Held, 2) => {
                let expires_at = TimestampMs::new(self.at + 3000);
                Event::Extended { key, expires_at }
            }
            (OrderState::Held, _) => {
                order.state = OrderState::Confirmed;
                Event::Confirmed { key, payment: paid }
            }
            (OrderState::Confirmed, 0..=2) => return self.give_back(at),
            (OrderState::Expired, 0) => {
                order.state = OrderState::Confirmed;
                Event::Revived { key, payment: paid, lines: lines(&order.left) }
            }
            (_, 1) => {
                let user = key.user.unwrap();
                let request = RequestId::from_number(1 << 40 | self.at).unwrap();
                Event::Withdrawn { sale: key.sale.unwrap(), user, request }
            }
            // The same payment may come late twice: a second entry, one row.
            _ => Event::LatePayment {
                key,
                payment: payment(&format!("late{}", self.random.below(3))),
                reason: LateReason::SecondPayment,
            },
        };
        self.orders[at] = order;
        self.write(partition, event);
    }

    fn give_back(&mut self, at: usize) {
        let mut order = self.orders[at].clone();
        let mut back = BTreeMap::new();
        for (sku, left) in &mut order.left {
            let units = self.random.below(u64::from(*left) + 1) as u32;
            if units > 0 {
                back.insert(*sku, units);
                *left -= units;
            }
        }
        if back.is_empty() {
            return;
        }
        order.left.retain(|_, left| *left > 0);
        let whole = order.left.is_empty();
        if whole {
            order.state = OrderState::Returned;
        }
        let (key, request) = (order.key, RequestId::from_number(self.at).unwrap());
        let (restock, right, lines) = (true, true, lines(&back));
        self.orders[at] = order;
        let event = Event::Returned { key, request, lines, restock, right, whole };
        self.write(key.order.partition(), event);
    }
}

fn lines(units: &BTreeMap<u64, u32>) -> Lines {
    let line = |(sku, quantity): (&u64, &u32)| Line {
        sku: SkuId::new(*sku).unwrap(),
        quantity: *quantity,
    };
    units.iter().map(line).collect()
}
