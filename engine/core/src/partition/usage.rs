//! What a user has in a sale, and how orders are shown.
//!
//! A user's orders that use up a right form a chain, so that what was cancelled or ran out costs
//! nothing here; a limit bounds the chain's length.

use super::{Link, Order, Orders, Partition};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use smallvec::SmallVec;
use stockade_protocol::command::{Line, Lines};
use stockade_protocol::image::ReturnImage;
use stockade_protocol::reply::OrderView;
use stockade_protocol::{OrderState, SaleId, SkuId, UserId};

/// Units of a user in a sale that use up the limit.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    /// Over all SKUs.
    pub(crate) total: u64,
    /// Of the SKUs asked about, in their order.
    pub(crate) of: SmallVec<[u64; 2]>,
    /// The highest number of a live order.
    pub(crate) newest: Option<u64>,
}

impl Partition {
    /// What the user has of these SKUs and over all.
    pub(crate) fn usage(&self, sale: SaleId, user: UserId, lines: &[Line]) -> Usage {
        let mut usage = Usage { of: SmallVec::from_elem(0, lines.len()), ..Usage::default() };
        for (number, order) in self.chain(self.counted_newest(sale, user)) {
            if order.is_live() {
                usage.newest = usage.newest.max(Some(number));
            }
            self.each_counted(number, order, |sku, units| {
                usage.total += u64::from(units);
                for (line, of) in lines.iter().zip(&mut usage.of) {
                    if line.sku == sku {
                        *of += u64::from(units);
                    }
                }
            });
        }
        usage
    }

    /// Units by SKU that use up the user's limit, and the live orders, both ascending.
    pub(crate) fn user_units(
        &self,
        sale: SaleId,
        user: UserId,
    ) -> (BTreeMap<SkuId, u64>, Vec<u64>) {
        let (mut units_of, mut live) = (BTreeMap::new(), Vec::new());
        for (number, order) in self.chain(self.counted_newest(sale, user)) {
            if order.is_live() {
                live.push(number);
            }
            self.each_counted(number, order, |sku, units| {
                *units_of.entry(sku).or_insert(0) += u64::from(units);
            });
        }
        live.sort_unstable();
        (units_of, live)
    }

    fn chain(&self, newest: Link) -> impl Iterator<Item = (u64, &Order)> {
        let mut link = newest;
        core::iter::from_fn(move || {
            if link == Link::NONE {
                return None;
            }
            let number = self.orders.number_of(link);
            let order = self.orders.at(link);
            link = order.older;
            Some((number, order))
        })
    }

    /// Calls back with each SKU's units of the order that use up its user's limit.
    fn each_counted(&self, number: u64, order: &Order, mut each: impl FnMut(SkuId, u32)) {
        match self.details(number, order) {
            Some(details) => {
                for line in self.lines(number, order) {
                    let back = came_back(&details.returns, line.sku, |r| r.right);
                    #[cfg(feature = "mutations")]
                    let back = if stockade_protocol::mutation::is(
                        stockade_protocol::mutation::Mutation::RightAlwaysBack,
                    ) {
                        came_back(&details.returns, line.sku, |_| true)
                    } else {
                        back
                    };
                    if line.quantity > back {
                        each(line.sku, line.quantity - back);
                    }
                }
            }
            None => each(order.sku, order.quantity),
        }
    }

    /// Units by SKU that can still be returned: what is left of a confirmed order.
    pub(crate) fn remaining(&self, number: u64, order: &Order) -> Lines {
        let mut lines = self.lines(number, order);
        if let Some(details) = self.details(number, order) {
            for line in &mut lines {
                line.quantity -= came_back(&details.returns, line.sku, |_| true);
            }
            lines.retain(|line| line.quantity > 0);
        }
        lines
    }

    /// The order as answers show it.
    pub(crate) fn view(&self, number: u64, order: &Order) -> OrderView {
        let lines = self.lines(number, order);
        let mut returned = Lines::new();
        if let Some(details) = self.details(number, order) {
            for line in &lines {
                let quantity = came_back(&details.returns, line.sku, |_| true);
                if quantity > 0 {
                    returned.push(Line { sku: line.sku, quantity });
                }
            }
        }
        OrderView {
            order: Some(self.order_id(number)),
            state: order.state,
            sale: Some(order.sale),
            user: Some(order.user),
            expires_at: order.expires_at,
            payment: self.payment(number, order).cloned(),
            lines,
            returned,
        }
    }

    /// Puts a loaded or changed order into its user's chain if it uses up a right, and takes it out
    /// if it does not.
    pub(super) fn recount(&mut self, number: u64) {
        let order = *self.order(number);
        let ended = matches!(order.state, OrderState::Cancelled | OrderState::Expired);
        let mut uses = false;
        if !ended {
            self.each_counted(number, &order, |_, _| uses = true);
        }
        match (order.has(Order::COUNTED), uses) {
            (false, true) => self.count(number),
            (true, false) => self.uncount(number),
            _ => {}
        }
        debug_assert!(Orders::link(number) != Link::NONE);
    }
}

/// Units of a SKU in those returns that `counts` picks. They sum up to the order's quantity at
/// most.
pub(super) fn came_back(
    returns: &[ReturnImage],
    sku: SkuId,
    counts: impl Fn(&ReturnImage) -> bool,
) -> u32 {
    let picked = returns.iter().filter(|r| counts(r));
    picked.flat_map(|r| &r.lines).filter(|line| line.sku == sku).map(|line| line.quantity).sum()
}
