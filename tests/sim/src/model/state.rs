//! What a partition of users is, once more and as plainly as possible: orders by number, nothing
//! shared with the core. The auditor keeps two of each: as decided, and as the disk has it.

use crate::rng::Map;
use std::collections::BTreeMap;
use stockade_protocol::command::{Line, Lines};
use stockade_protocol::entry::{OrderKey, Placed};
use stockade_protocol::image::{OrderImage, PartitionImage};
use stockade_protocol::text::{OrderData, PaymentRef};
use stockade_protocol::{
    Entry, Event, OrderId, OrderState, PartitionId, RequestId, SaleId, SkuId, UserId,
};

/// A return of an order.
#[derive(Clone, PartialEq, Debug)]
pub struct Back {
    /// Its request id.
    pub request: RequestId,
    /// What came back.
    pub lines: Lines,
    /// To the pool.
    pub restock: bool,
    /// With the right.
    pub right: bool,
}

/// An order.
#[derive(Clone, PartialEq, Debug)]
pub struct Order {
    /// Its sale.
    pub sale: SaleId,
    /// Its buyer.
    pub user: UserId,
    /// The buyer's request id.
    pub request: RequestId,
    /// Units by SKU, ascending.
    pub lines: Lines,
    /// Opaque bytes.
    pub data: OrderData,
    /// Where it is in its life.
    pub state: OrderState,
    /// The deadline now, ms; 0: none.
    pub deadline: u64,
    /// The first deadline, ms.
    pub deadline_first: u64,
    /// What paid it.
    pub payment: Option<PaymentRef>,
    /// Payments for nothing.
    pub late: Vec<PaymentRef>,
    /// Returns.
    pub returns: Vec<Back>,
}

impl Order {
    /// Units of a SKU that came back in returns that `counts` picks.
    pub fn back(&self, sku: SkuId, counts: impl Fn(&Back) -> bool) -> u32 {
        let picked = self.returns.iter().filter(|back| counts(back));
        picked.flat_map(|back| &back.lines).filter(|l| l.sku == sku).map(|l| l.quantity).sum()
    }

    /// What is left of a confirmed order.
    pub fn left(&self) -> Lines {
        let left = |line: &Line| Line {
            sku: line.sku,
            quantity: line.quantity - self.back(line.sku, |_| true),
        };
        self.lines.iter().map(left).filter(|line| line.quantity > 0).collect()
    }

    /// Units by SKU that use up the buyer's limit.
    pub fn counted(&self) -> Vec<(SkuId, u64)> {
        if matches!(self.state, OrderState::Cancelled | OrderState::Expired) {
            return Vec::new();
        }
        let units =
            |line: &Line| (line.sku, u64::from(line.quantity - self.back(line.sku, |b| b.right)));
        self.lines.iter().map(units).filter(|(_, units)| *units > 0).collect()
    }

    /// Held or confirmed.
    pub const fn is_live(&self) -> bool {
        matches!(self.state, OrderState::Held | OrderState::Confirmed)
    }
}

/// Where units are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In the pool.
    Free,
    /// In held orders.
    Held,
    /// In confirmed orders.
    Confirmed,
    /// Out of the sale.
    Removed,
}

/// Units that an entry moves.
#[derive(Clone, Copy, Debug)]
pub struct Move {
    /// The sale.
    pub sale: SaleId,
    /// The SKU.
    pub sku: SkuId,
    /// How many.
    pub units: u64,
    /// From here.
    pub from: Place,
    /// To there.
    pub to: Place,
}

/// A partition.
#[derive(Clone, Default, Debug)]
pub struct Part {
    /// The last entry.
    pub lsn: u64,
    /// The highest order number.
    pub number_last: u64,
    /// Orders by number.
    pub orders: BTreeMap<u64, Order>,
    requests: Map<(SaleId, UserId, RequestId), u64>,
    of_user: Map<(SaleId, UserId), Vec<u64>>,
    tombstones: BTreeMap<(SaleId, UserId), Vec<RequestId>>,
}

impl Part {
    /// The order of a request id.
    pub fn find(&self, sale: SaleId, user: UserId, request: &RequestId) -> Option<u64> {
        self.requests.get(&(sale, user, request.clone())).copied()
    }

    /// The request id was withdrawn.
    pub fn is_withdrawn(&self, sale: SaleId, user: UserId, request: &RequestId) -> bool {
        self.tombstones.get(&(sale, user)).is_some_and(|ids| ids.contains(request))
    }

    /// Withdrawn ids of a user.
    pub fn tombstones_of(&self, sale: SaleId, user: UserId) -> usize {
        self.tombstones.get(&(sale, user)).map_or(0, Vec::len)
    }

    /// A user's orders in a sale, ascending.
    pub fn orders_of(&self, sale: SaleId, user: UserId) -> impl Iterator<Item = (u64, &Order)> {
        let numbers = self.of_user.get(&(sale, user)).into_iter().flatten();
        numbers.filter_map(|number| Some((*number, self.orders.get(number)?)))
    }

    /// Forgets a sale.
    pub fn drop_sale(&mut self, sale: SaleId) {
        self.orders.retain(|_, order| order.sale != sale);
        self.requests.retain(|(of, _, _), _| *of != sale);
        self.of_user.retain(|(of, _), _| *of != sale);
        self.tombstones.retain(|(of, _), _| *of != sale);
    }

    /// Applies an entry; gives the units that it moves.
    pub fn apply(&mut self, entry: &Entry, moves: &mut Vec<Move>) {
        self.lsn = entry.lsn.get();
        match &entry.event {
            Event::Held(placed) => self.place(placed, OrderState::Held, moves),
            Event::BornConfirmed(placed) => self.place(placed, OrderState::Confirmed, moves),
            Event::Withdrawn { sale, user, request } => {
                self.tombstones.entry((*sale, *user)).or_default().push(request.clone());
            }
            Event::Confirmed { key, payment } => self.change(
                key,
                |order, moves| {
                    if order.state == OrderState::Held {
                        all(order, Place::Held, Place::Confirmed, moves);
                    }
                    order.state = OrderState::Confirmed;
                    order.payment = Some(payment.clone());
                },
                moves,
            ),
            Event::Revived { key, payment, .. } => self.change(
                key,
                |order, moves| {
                    all(order, Place::Free, Place::Confirmed, moves);
                    order.state = OrderState::Confirmed;
                    order.payment = Some(payment.clone());
                },
                moves,
            ),
            Event::Cancelled { key, .. } => self.change(
                key,
                |order, moves| {
                    order.state = OrderState::Cancelled;
                    all(order, Place::Held, Place::Free, moves);
                },
                moves,
            ),
            Event::Expired { key } => self.change(
                key,
                |order, moves| {
                    order.state = OrderState::Expired;
                    all(order, Place::Held, Place::Free, moves);
                },
                moves,
            ),
            Event::Extended { key, expires_at } => {
                self.change(key, |order, _| order.deadline = expires_at.get(), moves);
            }
            Event::Returned { key, request, lines, restock, right, whole } => {
                self.change(
                    key,
                    |order, moves| {
                        let to = if *restock { Place::Free } else { Place::Removed };
                        some(order.sale, lines, Place::Confirmed, to, moves);
                        let (request, lines) = (request.clone(), lines.clone());
                        order.returns.push(Back {
                            request,
                            lines,
                            restock: *restock,
                            right: *right,
                        });
                        if *whole {
                            order.state = OrderState::Returned;
                        }
                    },
                    moves,
                );
            }
            Event::LatePayment { key, payment, .. } => {
                self.change(key, |order, _| order.late.push(payment.clone()), moves);
            }
            _ => {}
        }
    }

    fn place(&mut self, placed: &Placed, state: OrderState, moves: &mut Vec<Move>) {
        let Placed { order, sale, user, request, expires_at, lines, data } = placed.clone();
        let number = order.number();
        let deadline = expires_at.get();
        let to = if state == OrderState::Held { Place::Held } else { Place::Confirmed };
        some(sale, &lines, Place::Free, to, moves);
        self.number_last = number;
        self.requests.insert((sale, user, request.clone()), number);
        self.of_user.entry((sale, user)).or_default().push(number);
        self.orders.insert(
            number,
            Order {
                sale,
                user,
                request,
                lines,
                data,
                state,
                deadline,
                deadline_first: deadline,
                payment: None,
                late: Vec::new(),
                returns: Vec::new(),
            },
        );
    }

    /// Orders that were dropped with their sale do not change any more.
    fn change(
        &mut self,
        key: &OrderKey,
        step: impl FnOnce(&mut Order, &mut Vec<Move>),
        moves: &mut Vec<Move>,
    ) {
        if let Some(order) = self.orders.get_mut(&key.order.number()) {
            step(order, moves);
        }
    }

    /// Is this what the engine has? Else what differs.
    pub fn compare(&self, id: PartitionId, image: &PartitionImage) -> Result<(), String> {
        if (image.lsn.get(), image.order_number_last) != (self.lsn, self.number_last) {
            let (lsn, last) = (image.lsn, image.order_number_last);
            let (mine, number) = (self.lsn, self.number_last);
            return Err(format!(
                "partition {id}: the engine is at LSN {lsn}, order {last}; the model at {mine}, \
                 order {number}"
            ));
        }
        if image.orders.len() != self.orders.len() {
            let (theirs, mine) = (image.orders.len(), self.orders.len());
            return Err(format!("partition {id}: {theirs} orders, the model has {mine}"));
        }
        for (theirs, (number, mine)) in image.orders.iter().zip(&self.orders) {
            let mine = order_image(OrderId::from_parts(id, *number), mine);
            if mine.as_ref() != Some(theirs) {
                return Err(format!("partition {id}: order\n  {theirs:?}\nthe model\n  {mine:?}"));
            }
        }
        let tombstones: usize = self.tombstones.values().map(Vec::len).sum();
        let known = image.tombstones.iter().all(|t| self.is_withdrawn(t.sale, t.user, &t.request));
        if tombstones != image.tombstones.len() || !known {
            return Err(format!("partition {id}: withdrawn ids differ"));
        }
        Ok(())
    }
}

fn order_image(id: Option<OrderId>, order: &Order) -> Option<OrderImage> {
    use stockade_protocol::ids::TimestampMs;
    use stockade_protocol::image::ReturnImage;
    let back = |back: &Back| ReturnImage {
        request: back.request.clone(),
        lines: back.lines.clone(),
        restock: back.restock,
        right: back.right,
    };
    Some(OrderImage {
        order: id?,
        sale: order.sale,
        user: order.user,
        request: order.request.clone(),
        state: order.state,
        expires_first: TimestampMs::new(order.deadline_first),
        expires_at: TimestampMs::new(order.deadline),
        lines: order.lines.clone(),
        data: order.data.clone(),
        payment: order.payment.clone(),
        late_payments: order.late.clone(),
        returns: order.returns.iter().map(back).collect(),
    })
}

fn all(order: &Order, from: Place, to: Place, moves: &mut Vec<Move>) {
    some(order.sale, &order.lines, from, to, moves);
}

fn some(sale: SaleId, lines: &[Line], from: Place, to: Place, moves: &mut Vec<Move>) {
    moves.extend(lines.iter().map(|line| {
        let (sku, units) = (line.sku, u64::from(line.quantity));
        Move { sale, sku, units, from, to }
    }));
}
