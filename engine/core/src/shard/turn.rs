//! A turn: all waiting requests, in order, against one allotment per SKU.
//!
//! A first pass sums what the turn's reserves ask and sets that much aside with one step per SKU;
//! then each request is decided with plain subtraction; at the end one step per SKU settles. A
//! request whose units are with another shard's turn keeps nothing and comes again in the next
//! turn, a bounded number of times.

use super::{ShardMachine, Want};
use crate::effects::{Answer, Effects, Position, Request};
use crate::rules;
use alloc::vec::Vec;
use stockade_protocol::command::{Command, Reserve, Return};
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::reply::{OrderReply, ReserveReply};
use stockade_protocol::{OrderState, Outcome, Reply, SaleState};

/// How often a request waits for another turn before it is told `busy`.
pub(crate) const WAITS_MAX: u16 = 256;
/// When a request that was told `busy` should come again.
const BUSY_RETRY_MS: u32 = 20;

/// What the rules made of a request.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The answer and what it rests on.
    Answer(Reply, Position),
    /// Its units are with another turn: decide it again in the next one.
    Wait,
}

impl ShardMachine {
    /// Decides one turn: all `requests` (user- and order-routed commands), in order, against one
    /// allotment per SKU. `requests` is drained.
    ///
    /// # Panics
    /// A command belongs to another shard.
    pub fn turn(&mut self, now: TimestampMs, requests: &mut Vec<Request>, effects: &mut Effects) {
        self.advance(now);
        effects.position = self.position();
        self.ask_for_units(requests);
        self.books.set_aside();
        for request in requests.drain(..) {
            self.decide(request, effects);
        }
        self.tidy();
        self.books.settle();
    }

    /// Sums what the turn's reserves ask. Too much is harmless (it goes back when the turn ends),
    /// so only what is cheap to know is left out.
    ///
    /// A basket that has waited is left out too: it takes its SKUs one by one, in ascending order,
    /// and none behind one that is short. Two baskets that share SKUs could else take each other's
    /// units turn after turn, until both are told `busy`.
    fn ask_for_units(&mut self, requests: &[Request]) {
        for request in requests {
            let Command::Reserve(reserve) = &request.command else { continue };
            if request.waits > 0 && reserve.lines.len() > 1 {
                continue;
            }
            let Some(sale) = self.books.find(reserve.sale) else { continue };
            let Some(rules) = self.books.sale(sale).rules else { continue };
            if rules.window.state(self.now) != SaleState::Live || self.is_known(reserve) {
                continue;
            }
            for line in &reserve.lines {
                if let Some(sku) = self.books.sale(sale).index_of(line.sku) {
                    self.books.ask(sale, Want { sku, quantity: line.quantity });
                }
            }
        }
    }

    fn is_known(&self, reserve: &Reserve) -> bool {
        let partition = &self.partitions[self.index_of_user(reserve.user)];
        partition.find(reserve.sale, reserve.user, reserve.request.key()).is_some()
    }

    fn decide(&mut self, request: Request, effects: &mut Effects) {
        let verdict = match &request.command {
            Command::Reserve(reserve) => rules::reserve(self, reserve, effects),
            Command::Confirm { order, payment } => rules::confirm(self, *order, payment, effects),
            Command::Cancel { order, reason } => rules::cancel(self, *order, reason, effects),
            Command::Withdraw { sale, user, request } => {
                rules::withdraw(self, *sale, *user, request, effects)
            }
            Command::Extend { order, until } => rules::extend(self, *order, *until, effects),
            Command::Return(back) => rules::give_back(self, back, effects),
            Command::OrderGet(order) => rules::order_get(self, *order),
            Command::Status { sale, user, request } => {
                rules::status(self, *sale, *user, request.key())
            }
            Command::UserGet { sale, user } => rules::user_get(self, *sale, *user),
            Command::OrderList(_)
            | Command::SkuGet { .. }
            | Command::SaleGet(_)
            | Command::SaleList
            | Command::SalePut(_)
            | Command::SalePause(_)
            | Command::SaleResume(_)
            | Command::SaleClose(_)
            | Command::Adjust(_) => panic!("not a command of a turn: {:?}", request.command),
        };
        let (reply, rests_on) = match verdict {
            #[cfg(feature = "mutations")]
            Verdict::Answer(reply, _)
                if stockade_protocol::mutation::is(
                    stockade_protocol::mutation::Mutation::AnswerRestsOnNothing,
                ) =>
            {
                (reply, Position::NONE)
            }
            Verdict::Answer(reply, rests_on) => (reply, rests_on),
            Verdict::Wait if request.waits < WAITS_MAX => {
                effects.waiting.push(Request { waits: request.waits + 1, ..request });
                return;
            }
            Verdict::Wait => (busy(&request.command), Position::NONE),
        };
        effects.answers.push(Answer { ticket: request.ticket, reply, rests_on });
    }
}

/// Nothing was decided: the answer to a command that could not be.
pub(crate) fn busy(command: &Command) -> Reply {
    let outcome = Outcome::Busy;
    match command {
        Command::Reserve(_) => {
            Reply::Reserve(ReserveReply::rejected(outcome, i64::from(BUSY_RETRY_MS)))
        }
        Command::Confirm { order, .. }
        | Command::Cancel { order, .. }
        | Command::Extend { order, .. }
        | Command::Return(Return { order, .. }) => {
            Reply::Order(OrderReply { outcome, order: Some(*order), state: OrderState::Unknown })
        }
        _ => Reply::Busy { retry_after_ms: BUSY_RETRY_MS },
    }
}
