//! Giving refused orders back to the engine, between batches, on the lane's own connections.

use super::Lane;
use crate::outbox::{self, Step};
use crate::rows::RefusedState;
use std::time::Duration;
use stockade_protocol::OrderId;

/// How often refused orders are given back.
const OUTBOX_EVERY: Duration = Duration::from_millis(200);
/// Refused orders given back in one go.
const OUTBOX_MAX: usize = 32;

impl Lane {
    pub(super) fn give_back_when_due(&mut self) {
        if self.clock.since(self.outbox_at) >= OUTBOX_EVERY {
            self.outbox_at = self.clock.now();
            self.give_back_now();
        }
    }

    /// Gives back everything that can be given back now.
    pub(super) fn give_back_all(&mut self) {
        let mut before: Vec<OrderId> = Vec::new();
        loop {
            let orders = self.give_back_now();
            if orders.is_empty() || orders == before {
                return;
            }
            before = orders;
        }
    }

    /// Gives the oldest open orders back; returns which were tried.
    fn give_back_now(&mut self) -> Vec<OrderId> {
        let Some(session) = &mut self.session else { return Vec::new() };
        match session.refused_open(OUTBOX_MAX + self.stuck.len()) {
            Ok(mut orders) => {
                orders.retain(|order| !self.stuck.contains(order));
                orders.iter().for_each(|order| self.give_back(*order));
                orders
            }
            Err(error) => {
                tracing::warn!(%error, "refused orders cannot be read");
                self.session = None;
                Vec::new()
            }
        }
    }

    /// Gives one order back; whatever fails is tried again later.
    fn give_back(&mut self, order: OrderId) {
        let mut step = outbox::first(order);
        // A cancel, a return, and a last word: three answers at most.
        for _ in 0..3 {
            match step {
                Step::Send(command) => {
                    let Some(source) = &mut self.source else { return };
                    match source.call(*command) {
                        Ok(reply) => step = outbox::after(order, &reply),
                        Err(error) => {
                            tracing::warn!(%order, %error, "a refused order is not given back yet");
                            self.source = None;
                            return;
                        }
                    }
                }
                Step::Sent { paid } => {
                    if paid {
                        tracing::error!(%order, "a refused order was paid for: return the money");
                    }
                    return self.mark(order, RefusedState::Sent);
                }
                Step::Over => return self.mark(order, RefusedState::Done),
                Step::Later => return,
                Step::Stuck(outcome) => {
                    tracing::error!(%order, outcome = outcome.word(), "cannot be given back");
                    // Once a start is enough: it must not keep the others from their turn.
                    self.stuck.insert(order);
                    return;
                }
            }
        }
    }

    fn mark(&mut self, order: OrderId, state: RefusedState) {
        let Some(session) = &mut self.session else { return };
        if let Err(error) = session.refused_mark(order, &[RefusedState::Open], state) {
            tracing::warn!(%order, %error, "a refused order's state is not recorded yet");
            self.session = None;
        }
    }
}
