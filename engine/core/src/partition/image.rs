//! A partition as plain data and back.
//!
//! What an image holds is all there is: indexes, chains and side tables follow from it.

use super::{Link, Order, Partition};
use crate::ledger::{Ledger, Place};
use alloc::vec::Vec;
use stockade_protocol::image::{OrderImage, PartitionImage, TombstoneImage};
use stockade_protocol::{OrderState, PartitionId};

impl Partition {
    /// The partition at an image.
    ///
    /// # Errors
    /// Orders of another partition, out of order, or without lines.
    pub(crate) fn from_image(
        id: PartitionId,
        image: PartitionImage,
        ledger: &mut impl Ledger,
    ) -> Result<Self, &'static str> {
        let mut partition = Self::new(id);
        partition.lsn = image.lsn;
        partition.at = image.at;
        partition.number_last = image.order_number_last;
        let mut before = 0;
        for order in image.orders {
            let number = order.order.number();
            if order.order.partition() != id || number <= before {
                return Err("the image's orders are not those of the partition in order");
            }
            if order.lines.is_empty() || number > image.order_number_last {
                return Err("the image holds an order that cannot be");
            }
            before = number;
            partition.load_order(number, order, ledger);
        }
        for tombstone in image.tombstones {
            #[cfg(feature = "mutations")]
            if stockade_protocol::mutation::is(
                stockade_protocol::mutation::Mutation::TombstonesForgotten,
            ) {
                continue;
            }
            let TombstoneImage { sale, user, request } = tombstone;
            partition.tombstones.insert((sale, user, request.key()), request);
        }
        Ok(partition)
    }

    fn load_order(&mut self, number: u64, image: OrderImage, ledger: &mut impl Ledger) {
        let first = image.lines[0];
        let mut flags = 0;
        if image.request.text().is_some() {
            flags |= Order::TEXT;
        }
        if image.payment.is_some() {
            flags |= Order::PAID;
        }
        self.orders.push(
            number,
            Order {
                sale: image.sale,
                user: image.user,
                request: image.request.key(),
                expires_at: image.expires_at,
                sku: first.sku,
                quantity: first.quantity,
                older: Link::NONE,
                newer: Link::NONE,
                state: image.state,
                flags,
            },
        );
        if image.request.text().is_some() {
            self.texts.insert(number, image.request);
        }
        if let Some(payment) = image.payment {
            self.payments.insert(number, payment);
        }
        let moved = image.expires_first != image.expires_at;
        let rare = moved
            || image.lines.len() > 1
            || !image.data.as_bytes().is_empty()
            || !image.late_payments.is_empty()
            || !image.returns.is_empty();
        if rare {
            let details = self.details_mut(number);
            details.expires_first = moved.then_some(image.expires_first);
            details.data = image.data;
            details.late_payments = image.late_payments;
            details.returns = image.returns;
            if image.lines.len() > 1 {
                details.lines = image.lines;
            }
        }
        self.index_request(number);
        #[cfg(feature = "mutations")]
        if stockade_protocol::mutation::is(
            stockade_protocol::mutation::Mutation::ForgetUserAfterRestart,
        ) {
            return self.tell_units(number, ledger);
        }
        self.recount(number);
        self.tell_units(number, ledger);
    }

    /// Tells where a loaded order's units are.
    fn tell_units(&self, number: u64, ledger: &mut impl Ledger) {
        let order = self.order(number);
        let to = match order.state {
            OrderState::Held => Place::Held,
            OrderState::Confirmed | OrderState::Returned => Place::Confirmed,
            _ => return,
        };
        for line in self.lines(number, order) {
            ledger.units_moved(order.sale, line.sku, line.quantity, Place::Free, to);
        }
        if order.state == OrderState::Held {
            ledger.hold_began(order.sale, self.order_id(number), order.expires_at);
        }
        for back in self.details(number, order).map_or(&[][..], |details| &details.returns) {
            let to = if back.restock { Place::Free } else { Place::Removed };
            for line in &back.lines {
                let from = Place::Confirmed;
                ledger.units_moved(order.sale, line.sku, line.quantity, from, to);
            }
        }
    }

    /// The partition as plain data.
    pub(crate) fn to_image(&self) -> PartitionImage {
        let orders = self.orders.from(0).map(|(number, order)| self.order_image(number, order));
        let tombstones = self.tombstones.iter().map(|((sale, user, _), request)| TombstoneImage {
            sale: *sale,
            user: *user,
            request: request.clone(),
        });
        PartitionImage {
            lsn: self.lsn,
            at: self.at,
            order_number_last: self.number_last,
            orders: orders.collect(),
            tombstones: tombstones.collect(),
        }
    }

    fn order_image(&self, number: u64, order: &Order) -> OrderImage {
        let details = self.details(number, order);
        OrderImage {
            order: self.order_id(number),
            sale: order.sale,
            user: order.user,
            request: self.request(number, order),
            state: order.state,
            expires_first: self.expires_first(number, order),
            expires_at: order.expires_at,
            lines: self.lines(number, order),
            data: details.map(|details| details.data.clone()).unwrap_or_default(),
            payment: self.payment(number, order).cloned(),
            late_payments: details.map_or_else(Vec::new, |details| details.late_payments.clone()),
            returns: details.map_or_else(Vec::new, |details| details.returns.clone()),
        }
    }
}
