//! The records of a partition's orders, in pages indexed by order number.
//!
//! Numbers only grow, so an order is found without a hash; a page whose orders are all dropped is
//! freed, and pages in front of the first order are forgotten. Indexes keep the low 32 bits of a
//! number: live orders never span 2^32 numbers ([`Orders::has_room_for`]), so the rest follows from
//! the highest number.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::request_id::RequestKey;
use stockade_protocol::{OrderState, SaleId, SkuId, UserId};

/// Orders of one page.
const PAGE_ORDERS: u64 = 256;

/// The low 32 bits of an order's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Link(u32);

impl Link {
    /// No order: numbers with 32 low zero bits are never given.
    pub(crate) const NONE: Self = Self(0);
}

/// The order number after this one; those whose low 32 bits are 0 are left out.
pub(crate) const fn number_after(number: u64) -> u64 {
    let next = number + 1;
    if next as u32 == 0 { next + 1 } else { next }
}

/// What every order has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub(crate) sale: SaleId,
    pub(crate) user: UserId,
    pub(crate) request: RequestKey,
    /// The deadline; `NONE` if born confirmed.
    pub(crate) expires_at: TimestampMs,
    /// SKU and quantity of the first line.
    pub(crate) sku: SkuId,
    pub(crate) quantity: u32,
    /// The user's orders of the sale that use up a right, as a chain.
    pub(crate) older: Link,
    pub(crate) newer: Link,
    pub(crate) state: OrderState,
    pub(crate) flags: u8,
}

impl Order {
    /// Side tables hold more.
    pub(crate) const DETAILS: u8 = 1;
    /// The request id is text.
    pub(crate) const TEXT: u8 = 2;
    /// A payment confirmed it.
    pub(crate) const PAID: u8 = 4;
    /// It uses up a right and is in its user's chain.
    pub(crate) const COUNTED: u8 = 8;

    pub(crate) const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Held, or confirmed and not fully returned.
    pub(crate) const fn is_live(&self) -> bool {
        matches!(self.state, OrderState::Held | OrderState::Confirmed)
    }

    /// Held, but its deadline has passed: the timer is about to expire it.
    pub(crate) fn is_due(&self, now: TimestampMs) -> bool {
        #[cfg(feature = "mutations")]
        let now = now.after_ms(u64::from(stockade_protocol::mutation::is(
            stockade_protocol::mutation::Mutation::DeadlineExclusive,
        )));
        self.state == OrderState::Held && self.expires_at < now
    }
}

const _: () = assert!(size_of::<Option<Order>>() == 56);

#[derive(Debug)]
struct Page {
    used: u32,
    slots: Box<[Option<Order>]>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    page_first: u64,
    pages: VecDeque<Option<Page>>,
    /// The highest number in memory, or of those that were.
    highest: u64,
}

impl Orders {
    /// Adding this number keeps the span of numbers in memory below 2^32.
    pub(crate) fn has_room_for(&self, number: u64) -> bool {
        // Without pages the first one is that of the next number, wherever the last one was.
        self.pages.is_empty()
            || number - self.page_first * PAGE_ORDERS < u64::from(u32::MAX) - PAGE_ORDERS
    }

    pub(crate) const fn link(number: u64) -> Link {
        Link(number as u32)
    }

    /// The number of a link to an order in memory.
    pub(crate) const fn number_of(&self, link: Link) -> u64 {
        // The distance below the highest number is less than 2^32.
        self.highest - (self.highest as u32).wrapping_sub(link.0) as u64
    }

    pub(crate) fn get(&self, number: u64) -> Option<&Order> {
        let page = (number / PAGE_ORDERS).checked_sub(self.page_first)?;
        let page = self.pages.get(usize::try_from(page).ok()?)?.as_ref()?;
        page.slots[(number % PAGE_ORDERS) as usize].as_ref()
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut Order> {
        let page = (number / PAGE_ORDERS).checked_sub(self.page_first)?;
        let page = self.pages.get_mut(usize::try_from(page).ok()?)?.as_mut()?;
        page.slots[(number % PAGE_ORDERS) as usize].as_mut()
    }

    /// The order a link points to.
    pub(crate) fn at(&self, link: Link) -> &Order {
        self.get(self.number_of(link)).expect("links point to orders in memory")
    }

    pub(crate) fn at_mut(&mut self, link: Link) -> &mut Order {
        self.get_mut(self.number_of(link)).expect("links point to orders in memory")
    }

    /// Adds an order; numbers come in ascending order.
    pub(crate) fn push(&mut self, number: u64, order: Order) {
        assert!(number > self.highest, "order numbers only grow");
        self.highest = number;
        let page = number / PAGE_ORDERS;
        if self.pages.is_empty() {
            self.page_first = page;
        }
        let index = (page - self.page_first) as usize;
        while self.pages.len() <= index {
            self.pages.push_back(None);
        }
        let page = self.pages[index].get_or_insert_with(|| Page {
            used: 0,
            slots: vec![None; PAGE_ORDERS as usize].into_boxed_slice(),
        });
        page.used += 1;
        page.slots[(number % PAGE_ORDERS) as usize] = Some(order);
    }

    /// Forgets an order.
    pub(crate) fn remove(&mut self, number: u64) {
        let index = (number / PAGE_ORDERS - self.page_first) as usize;
        let page = self.pages[index].as_mut().expect("the order is in memory");
        if page.slots[(number % PAGE_ORDERS) as usize].take().is_some() {
            page.used -= 1;
        }
        if page.used == 0 {
            self.pages[index] = None;
        }
        while let Some(None) = self.pages.front() {
            self.pages.pop_front();
            self.page_first += 1;
        }
    }

    /// Orders in ascending order of number, from this one on.
    pub(crate) fn from(&self, number: u64) -> impl Iterator<Item = (u64, &Order)> {
        let skip = (number / PAGE_ORDERS).saturating_sub(self.page_first);
        let skip = usize::try_from(skip).unwrap_or(usize::MAX).min(self.pages.len());
        let pages = self.pages.range(skip..).zip(self.page_first + skip as u64..);
        pages
            .filter_map(|(page, index)| page.as_ref().map(|page| (page, index)))
            .flat_map(|(page, index)| {
                let numbers = index * PAGE_ORDERS..;
                numbers.zip(page.slots.iter()).filter_map(|(n, slot)| Some((n, slot.as_ref()?)))
            })
            .filter(move |(n, _)| *n >= number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn order(user: u64) -> Order {
        Order {
            sale: SaleId::new(1).expect("in range"),
            user: UserId::new(user).expect("in range"),
            request: RequestKey::from_raw(1).expect("in range"),
            expires_at: TimestampMs::NONE,
            sku: SkuId::new(1).expect("in range"),
            quantity: 1,
            older: Link::NONE,
            newer: Link::NONE,
            state: OrderState::Held,
            flags: 0,
        }
    }

    #[test]
    fn orders_are_found_by_number_and_link_across_the_32_bit_edge() {
        let mut orders = Orders::default();
        let mut numbers = Vec::new();
        let mut number = (1 << 32) - 400;
        for _ in 0..800 {
            number = number_after(number);
            assert_ne!(number as u32, 0);
            orders.push(number, order(number));
            numbers.push(number);
        }
        for number in &numbers {
            assert_eq!(orders.number_of(Orders::link(*number)), *number);
            assert_eq!(orders.at(Orders::link(*number)).user.get(), *number);
        }
        assert_eq!(orders.from(0).map(|(n, _)| n).collect::<Vec<_>>(), numbers);
        let tail: Vec<_> = orders.from(numbers[300]).map(|(n, _)| n).collect();
        assert_eq!(tail, numbers[300..]);
    }

    #[test]
    fn pages_without_orders_are_freed() {
        let mut orders = Orders::default();
        for number in 1..=10_000 {
            orders.push(number, order(number));
        }
        for number in 1..10_000 {
            orders.remove(number);
        }
        assert_eq!(orders.pages.len(), 1);
        assert_eq!(orders.from(0).map(|(n, _)| n).collect::<Vec<_>>(), [10_000]);
        assert!(orders.get(9_999).is_none());
        orders.remove(10_000);
        assert!(orders.pages.is_empty());
        assert!(orders.has_room_for(10_001), "behind the page that the last order was on");
        orders.push(70_000, order(1));
        assert!(orders.get(70_000).is_some() && orders.get(1).is_none());
    }
}
