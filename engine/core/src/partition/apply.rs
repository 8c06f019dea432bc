//! Applying events: the only code that changes a partition, the same when live, in recovery and in
//! folds.
//!
//! An event is checked against the state before anything changes, so that one that does not follow
//! leaves the partition as it was.

use super::usage::came_back;
use super::{Archived, Order, Orders, Partition, number_after};
use crate::ledger::{Ledger, Place};
use alloc::vec::Vec;
use stockade_protocol::command::{Line, Lines};
use stockade_protocol::entry::{OrderKey, Placed};
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::image::ReturnImage;
use stockade_protocol::text::PaymentRef;
use stockade_protocol::{Entry, Event, OrderState};

/// Why an entry does not follow: one plain sentence.
type Why = &'static str;

impl Partition {
    /// Applies the next entry of this partition's log. Of sales in `archived` only the numbers
    /// count.
    pub(crate) fn apply(
        &mut self,
        entry: Entry,
        archived: &Archived,
        ledger: &mut impl Ledger,
    ) -> Result<(), Why> {
        if entry.partition != self.id {
            return Err("the entry is of another partition");
        }
        if entry.lsn != self.lsn.next() {
            return Err("the LSN is not the next one");
        }
        self.apply_event(entry.event, archived, ledger)?;
        self.lsn = entry.lsn;
        self.at = self.at.max(entry.at);
        Ok(())
    }

    fn apply_event(
        &mut self,
        event: Event,
        archived: &Archived,
        ledger: &mut impl Ledger,
    ) -> Result<(), Why> {
        match event {
            Event::Held(placed) => self.place(placed, OrderState::Held, archived, ledger),
            Event::BornConfirmed(placed) => {
                self.place(placed, OrderState::Confirmed, archived, ledger)
            }
            Event::Withdrawn { sale, user, request } => {
                if archived.contains(&sale) {
                    return Ok(());
                }
                if self.find(sale, user, request.key()).is_some() {
                    return Err("a request id with an order is withdrawn");
                }
                self.tombstones.insert((sale, user, request.key()), request);
                Ok(())
            }
            Event::LatePayment { key, payment, .. } => {
                let Some(number) = self.target(&key, archived)? else { return Ok(()) };
                self.details_mut(number).late_payments.push(payment);
                Ok(())
            }
            Event::Confirmed { key, payment } => {
                self.change(&key, archived, |p, number| p.confirm(number, payment, ledger))
            }
            Event::Revived { key, payment, lines } => {
                self.change(&key, archived, |p, number| p.revive(number, payment, &lines, ledger))
            }
            Event::Cancelled { key, .. } => self.change(&key, archived, |p, number| {
                p.end_hold(number, OrderState::Cancelled, ledger)
            }),
            Event::Expired { key } => self.change(&key, archived, |p, number| {
                p.end_hold(number, OrderState::Expired, ledger)
            }),
            Event::Extended { key, expires_at } => {
                self.change(&key, archived, |p, number| p.extend(number, expires_at, ledger))
            }
            Event::Returned { key, request, lines, restock, right, whole } => {
                let back = ReturnImage { request, lines, restock, right };
                self.change(&key, archived, |p, number| p.take_back(number, back, whole, ledger))
            }
            Event::SalePut(_)
            | Event::SalePaused(_)
            | Event::SaleResumed(_)
            | Event::SaleClosed(_)
            | Event::SaleArchived(_)
            | Event::Adjusted { .. } => Err("a catalog entry in a partition of users"),
        }
    }

    /// The order that an entry is about; `None` if it was dropped with its sale.
    fn target(&self, key: &OrderKey, archived: &Archived) -> Result<Option<u64>, Why> {
        let number = key.order.number();
        if key.order.partition() != self.id || number == 0 || number > self.number_last {
            return Err("an order that was never placed");
        }
        let Some(sale) = key.sale else { return Ok(None) };
        match self.orders.get(number) {
            Some(order) if order.sale == sale && Some(order.user) == key.user => Ok(Some(number)),
            Some(_) => Err("the order is another user's or sale's"),
            None if archived.contains(&sale) || archived.incomplete => Ok(None),
            None => Err("the order is not in memory"),
        }
    }

    fn change(
        &mut self,
        key: &OrderKey,
        archived: &Archived,
        step: impl FnOnce(&mut Self, u64) -> Result<(), Why>,
    ) -> Result<(), Why> {
        match self.target(key, archived)? {
            Some(number) => step(self, number),
            None if key.sale.is_none() => Err("an order without a sale changes"),
            None => Ok(()),
        }
    }

    fn place(
        &mut self,
        placed: Placed,
        state: OrderState,
        archived: &Archived,
        ledger: &mut impl Ledger,
    ) -> Result<(), Why> {
        let Placed { order: id, sale, user, request, expires_at, lines, data } = placed;
        let number = id.number();
        if id.partition() != self.id || number != number_after(self.number_last) {
            return Err("the order's number is not the next one");
        }
        let Some(first) = lines.first().copied() else { return Err("an order without lines") };
        if archived.contains(&sale) {
            self.number_last = number;
            return Ok(());
        }
        if self.find(sale, user, request.key()).is_some() {
            return Err("the request id has an order already");
        }
        self.number_last = number;
        let mut flags = 0;
        if request.text().is_some() {
            flags |= Order::TEXT;
        }
        let expires_at = if state == OrderState::Held { expires_at } else { TimestampMs::NONE };
        self.orders.push(
            number,
            Order {
                sale,
                user,
                request: request.key(),
                expires_at,
                sku: first.sku,
                quantity: first.quantity,
                older: super::Link::NONE,
                newer: super::Link::NONE,
                state,
                flags,
            },
        );
        if request.text().is_some() {
            self.texts.insert(number, request);
        }
        let to = if state == OrderState::Held { Place::Held } else { Place::Confirmed };
        for line in &lines {
            ledger.units_moved(sale, line.sku, line.quantity, Place::Free, to);
        }
        if lines.len() > 1 || !data.as_bytes().is_empty() {
            let details = self.details_mut(number);
            details.data = data;
            if lines.len() > 1 {
                details.lines = lines;
            }
        }
        self.index_request(number);
        self.count(number);
        if state == OrderState::Held {
            ledger.hold_began(sale, id, expires_at);
        }
        Ok(())
    }

    fn confirm(
        &mut self,
        number: u64,
        payment: PaymentRef,
        ledger: &mut impl Ledger,
    ) -> Result<(), Why> {
        let order = *self.order(number);
        match order.state {
            OrderState::Held => {
                for line in self.lines(number, &order) {
                    let (from, to) = (Place::Held, Place::Confirmed);
                    ledger.units_moved(order.sale, line.sku, line.quantity, from, to);
                }
                ledger.hold_ended(order.sale, order.expires_at);
            }
            OrderState::Confirmed if !order.has(Order::PAID) => {}
            _ => return Err("an order that is not held is confirmed"),
        }
        self.pay(number, payment);
        Ok(())
    }

    fn pay(&mut self, number: u64, payment: PaymentRef) {
        self.payments.insert(number, payment);
        let order = self.orders.at_mut(Orders::link(number));
        order.flags |= Order::PAID;
        order.state = OrderState::Confirmed;
    }

    fn revive(
        &mut self,
        number: u64,
        payment: PaymentRef,
        lines: &[Line],
        ledger: &mut impl Ledger,
    ) -> Result<(), Why> {
        let order = *self.order(number);
        if order.state != OrderState::Expired {
            return Err("an order that did not expire is revived");
        }
        if !self.has_lines(number, &order, lines) {
            return Err("an order is revived with other lines");
        }
        for line in lines {
            let (from, to) = (Place::Free, Place::Confirmed);
            ledger.units_moved(order.sale, line.sku, line.quantity, from, to);
        }
        self.pay(number, payment);
        self.recount(number);
        Ok(())
    }

    fn end_hold(
        &mut self,
        number: u64,
        state: OrderState,
        ledger: &mut impl Ledger,
    ) -> Result<(), Why> {
        let order = *self.order(number);
        if order.state != OrderState::Held {
            return Err("an order that is not held gives its units back");
        }
        for line in self.lines(number, &order) {
            ledger.units_moved(order.sale, line.sku, line.quantity, Place::Held, Place::Free);
        }
        ledger.hold_ended(order.sale, order.expires_at);
        self.orders.at_mut(Orders::link(number)).state = state;
        self.recount(number);
        Ok(())
    }

    fn extend(
        &mut self,
        number: u64,
        expires_at: TimestampMs,
        ledger: &mut impl Ledger,
    ) -> Result<(), Why> {
        let order = *self.order(number);
        if order.state != OrderState::Held {
            return Err("an order that is not held is extended");
        }
        let details = self.details_mut(number);
        if details.expires_first.is_none() {
            details.expires_first = Some(order.expires_at);
        }
        self.orders.at_mut(Orders::link(number)).expires_at = expires_at;
        ledger.hold_moved(self.order_id(number), order.expires_at, expires_at);
        Ok(())
    }

    fn take_back(
        &mut self,
        number: u64,
        back: ReturnImage,
        whole: bool,
        ledger: &mut impl Ledger,
    ) -> Result<(), Why> {
        let order = *self.order(number);
        if order.state != OrderState::Confirmed {
            return Err("an order that is not confirmed is returned");
        }
        let before = self.remaining(number, &order);
        let left = less(before, &back.lines).ok_or("more is returned than is left")?;
        if left.is_empty() != whole {
            return Err("what is left of a returned order is something else");
        }
        let to = if back.restock { Place::Free } else { Place::Removed };
        for line in &back.lines {
            ledger.units_moved(order.sale, line.sku, line.quantity, Place::Confirmed, to);
        }
        self.details_mut(number).returns.push(back);
        if whole {
            self.orders.at_mut(Orders::link(number)).state = OrderState::Returned;
        }
        self.recount(number);
        debug_assert!(self.returns_fit(number));
        Ok(())
    }

    fn returns_fit(&self, number: u64) -> bool {
        let order = self.order(number);
        let returns: &[ReturnImage] = self.details(number, order).map_or(&[], |d| &d.returns);
        let lines = self.lines(number, order);
        lines.iter().all(|line| came_back(returns, line.sku, |_| true) <= line.quantity)
    }
}

/// `lines` without `taken`; `None` if that is not possible.
fn less(mut lines: Lines, taken: &[Line]) -> Option<Lines> {
    for line in taken {
        let of = lines.iter_mut().find(|of| of.sku == line.sku)?;
        of.quantity = of.quantity.checked_sub(line.quantity)?;
    }
    Some(lines.into_iter().filter(|line| line.quantity > 0).collect::<Vec<_>>().into())
}
