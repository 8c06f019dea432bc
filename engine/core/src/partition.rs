//! One partition of users: their orders, request ids and withdrawn ids, with the indexes to find
//! them.
//!
//! State changes only by [`Partition::apply`], so that a live shard, recovery and a fold come to
//! the same state from the same entries. What is common is compact: one record an order in pages
//! indexed by the order's number, and two tables of 4-byte links. What is rare (several lines,
//! data, text request ids, late payments, returns) stands in side tables that a flag of the order
//! points to.
//!
//! A partition knows nothing of catalog, stock or time.

mod apply;
mod image;
mod orders;
mod usage;

pub(crate) use orders::{Link, Order, Orders, number_after};
pub(crate) use usage::Usage;

use crate::effects::Position;
use crate::hash::{FixedMap, FixedSet, hash_pair, hash_triple};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use hashbrown::HashTable;
use stockade_protocol::command::{Line, Lines};
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::image::ReturnImage;
use stockade_protocol::limits::TOMBSTONES_MAX;
use stockade_protocol::request_id::{RequestId, RequestKey};
use stockade_protocol::text::{OrderData, PaymentRef};
use stockade_protocol::{Lsn, OrderId, PartitionId, SaleId, UserId};

/// What few orders have.
#[derive(Debug, Default)]
pub(crate) struct Details {
    /// All lines, if there are several; else empty.
    pub(crate) lines: Lines,
    pub(crate) data: OrderData,
    /// The first deadline, if it was moved.
    pub(crate) expires_first: Option<TimestampMs>,
    pub(crate) late_payments: Vec<PaymentRef>,
    pub(crate) returns: Vec<ReturnImage>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) id: PartitionId,
    /// The last entry applied.
    pub(crate) lsn: Lsn,
    /// The latest timestamp among them.
    pub(crate) at: TimestampMs,
    /// The shard's position after the last entry of this partition; what answers rest on.
    pub(crate) position: Position,
    /// The highest order number ever given.
    pub(crate) number_last: u64,
    pub(crate) orders: Orders,
    /// Orders by (sale, user, request key).
    by_request: HashTable<Link>,
    /// The newest order that uses up a right, by (sale, user).
    by_user: HashTable<Link>,
    details: FixedMap<u64, Details>,
    texts: FixedMap<u64, RequestId>,
    payments: FixedMap<u64, PaymentRef>,
    tombstones: BTreeMap<(SaleId, UserId, RequestKey), RequestId>,
}

impl Partition {
    pub(crate) fn new(id: PartitionId) -> Self {
        Self {
            id,
            lsn: Lsn::NONE,
            at: TimestampMs::NONE,
            position: Position::NONE,
            number_last: 0,
            orders: Orders::default(),
            by_request: HashTable::new(),
            by_user: HashTable::new(),
            details: FixedMap::default(),
            texts: FixedMap::default(),
            payments: FixedMap::default(),
            tombstones: BTreeMap::new(),
        }
    }

    /// The number that the next order gets; `None` if there is no room for one more.
    pub(crate) fn number_next(&self) -> Option<u64> {
        let next = number_after(self.number_last);
        (next <= OrderId::NUMBER_MAX && self.orders.has_room_for(next)).then_some(next)
    }

    /// The id of an order of this partition.
    pub(crate) fn order_id(&self, number: u64) -> OrderId {
        OrderId::from_parts(self.id, number).expect("numbers of orders are in range")
    }

    /// The order of this number, which was found by one of the indexes.
    pub(crate) fn order(&self, number: u64) -> &Order {
        self.orders.get(number).expect("indexes point to orders in memory")
    }

    /// The order of a request id.
    pub(crate) fn find(&self, sale: SaleId, user: UserId, key: RequestKey) -> Option<u64> {
        let hash = hash_triple(sale.get(), user.get(), key.get());
        let found = self.by_request.find(hash, |link| {
            let order = self.orders.at(*link);
            order.request == key && order.user == user && order.sale == sale
        });
        found.map(|link| self.orders.number_of(*link))
    }

    /// The request id was withdrawn before it came.
    pub(crate) fn is_withdrawn(&self, sale: SaleId, user: UserId, key: RequestKey) -> bool {
        !self.tombstones.is_empty() && self.tombstones.contains_key(&(sale, user, key))
    }

    /// The user may not withdraw further ids of this sale before they came.
    pub(crate) fn tombstones_full(&self, sale: SaleId, user: UserId) -> bool {
        let least = RequestKey::from_raw(1).expect("not 0");
        let most = RequestKey::from_raw(u64::MAX).expect("not 0");
        let range = (sale, user, least)..=(sale, user, most);
        self.tombstones.range(range).count() >= TOMBSTONES_MAX
    }

    /// The rare things of an order.
    pub(crate) fn details(&self, number: u64, order: &Order) -> Option<&Details> {
        if order.has(Order::DETAILS) { self.details.get(&number) } else { None }
    }

    /// All lines of an order.
    pub(crate) fn lines(&self, number: u64, order: &Order) -> Lines {
        match self.details(number, order) {
            Some(details) if !details.lines.is_empty() => details.lines.clone(),
            _ => Lines::from_slice(&[Line { sku: order.sku, quantity: order.quantity }]),
        }
    }

    /// The order's lines are these.
    pub(crate) fn has_lines(&self, number: u64, order: &Order, lines: &[Line]) -> bool {
        match self.details(number, order) {
            Some(details) if !details.lines.is_empty() => details.lines[..] == *lines,
            _ => *lines == [Line { sku: order.sku, quantity: order.quantity }],
        }
    }

    /// The payment that confirmed an order.
    pub(crate) fn payment(&self, number: u64, order: &Order) -> Option<&PaymentRef> {
        if order.has(Order::PAID) { self.payments.get(&number) } else { None }
    }

    /// The deadline an order was given first.
    pub(crate) fn expires_first(&self, number: u64, order: &Order) -> TimestampMs {
        let moved = self.details(number, order).and_then(|details| details.expires_first);
        moved.unwrap_or(order.expires_at)
    }

    /// The order's request id.
    fn request(&self, number: u64, order: &Order) -> RequestId {
        if order.has(Order::TEXT) {
            return self.texts.get(&number).cloned().expect("the flag says that there is a text");
        }
        RequestId::from_number(order.request.get()).expect("ids without a text are decimals")
    }

    /// Drops everything of a sale.
    pub(crate) fn drop_sale(&mut self, sale: SaleId) {
        self.tombstones.retain(|(of, _, _), _| *of != sale);
        let gone: Vec<u64> = self
            .orders
            .from(0)
            .filter(|(_, order)| order.sale == sale)
            .map(|(number, _)| number)
            .collect();
        for number in gone {
            self.remove(number);
        }
    }

    fn remove(&mut self, number: u64) {
        if self.order(number).has(Order::COUNTED) {
            self.uncount(number);
        }
        let order = *self.order(number);
        let hash = hash_triple(order.sale.get(), order.user.get(), order.request.get());
        let link = Orders::link(number);
        if let Ok(entry) = self.by_request.find_entry(hash, |other| *other == link) {
            entry.remove();
        }
        self.details.remove(&number);
        self.texts.remove(&number);
        self.payments.remove(&number);
        self.orders.remove(number);
    }

    fn details_mut(&mut self, number: u64) -> &mut Details {
        self.orders.get_mut(number).expect("the order is in memory").flags |= Order::DETAILS;
        self.details.entry(number).or_default()
    }

    /// Puts an order into the index of request ids. The caller made sure that the id is new.
    fn index_request(&mut self, number: u64) {
        let orders = &self.orders;
        let hash_of = |link: &Link| {
            let order = orders.at(*link);
            hash_triple(order.sale.get(), order.user.get(), order.request.get())
        };
        let link = Orders::link(number);
        self.by_request.insert_unique(hash_of(&link), link, hash_of);
    }

    /// The order uses up a right from now on.
    fn count(&mut self, number: u64) {
        let link = Orders::link(number);
        let order = *self.order(number);
        let hash = hash_pair(order.sale.get(), order.user.get());
        let orders = &self.orders;
        let same = |other: &Link| {
            let other = orders.at(*other);
            other.user == order.user && other.sale == order.sale
        };
        let older = match self.by_user.find_mut(hash, same) {
            Some(newest) => core::mem::replace(newest, link),
            None => {
                let hash_of = |link: &Link| {
                    let order = orders.at(*link);
                    hash_pair(order.sale.get(), order.user.get())
                };
                self.by_user.insert_unique(hash, link, hash_of);
                Link::NONE
            }
        };
        if older != Link::NONE {
            self.orders.at_mut(older).newer = link;
        }
        let order = self.orders.at_mut(link);
        order.flags |= Order::COUNTED;
        order.older = older;
        order.newer = Link::NONE;
    }

    /// The order uses up no right any more.
    fn uncount(&mut self, number: u64) {
        let link = Orders::link(number);
        let order = *self.order(number);
        if order.newer == Link::NONE {
            let hash = hash_pair(order.sale.get(), order.user.get());
            let found = self.by_user.find_entry(hash, |newest| *newest == link);
            let mut entry = found.expect("the newest order that counts is in the index");
            if order.older == Link::NONE {
                entry.remove();
            } else {
                *entry.get_mut() = order.older;
            }
        } else {
            self.orders.at_mut(order.newer).older = order.older;
        }
        if order.older != Link::NONE {
            self.orders.at_mut(order.older).newer = order.newer;
        }
        let order = self.orders.at_mut(link);
        order.flags &= !Order::COUNTED;
        order.older = Link::NONE;
        order.newer = Link::NONE;
    }

    /// The newest order of the user that uses up a right in the sale.
    fn counted_newest(&self, sale: SaleId, user: UserId) -> Link {
        let hash = hash_pair(sale.get(), user.get());
        let found = self.by_user.find(hash, |link| {
            let order = self.orders.at(*link);
            order.user == user && order.sale == sale
        });
        found.copied().unwrap_or(Link::NONE)
    }
}

/// Sales whose state was dropped.
#[derive(Debug, Default)]
pub(crate) struct Archived {
    sales: FixedSet<SaleId>,
    /// The catalog is not known yet (recovery): an order that is missing may be one of an archived
    /// sale that a snapshot left out.
    pub(crate) incomplete: bool,
}

impl Archived {
    /// None so far, before the catalog is known.
    pub(crate) fn unknown() -> Self {
        Self { incomplete: true, ..Self::default() }
    }

    pub(crate) fn contains(&self, sale: &SaleId) -> bool {
        self.sales.contains(sale)
    }

    pub(crate) fn insert(&mut self, sale: SaleId) {
        self.sales.insert(sale);
    }

    /// In no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = SaleId> {
        self.sales.iter().copied()
    }
}

impl FromIterator<SaleId> for Archived {
    fn from_iter<T: IntoIterator<Item = SaleId>>(sales: T) -> Self {
        Self { sales: sales.into_iter().collect(), incomplete: false }
    }
}
