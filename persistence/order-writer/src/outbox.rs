//! Gives orders back that SQL refused: a held one is cancelled, a confirmed one returned in full.
//!
//! Pure: it says which command comes next and what its answer means. Every command can be repeated:
//! the return's request id is made from the order id. A crash anywhere sends it again and changes
//! nothing.

use stockade_protocol::command::{Lines, Return};
use stockade_protocol::text::Reason;
use stockade_protocol::{Command, OrderId, OrderState, Outcome, Reply, RequestId};

/// What to do next for an order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Ask the engine.
    Send(Box<Command>),
    /// The engine gave it back; its event is still to come.
    Sent {
        /// It was paid for: a person must give the money back.
        paid: bool,
    },
    /// It holds nothing any more, and did not before.
    Over,
    /// Not now; try again later.
    Later,
    /// The engine refuses; a person must look.
    Stuck(Outcome),
}

/// The first command for a refused order.
pub fn first(order: OrderId) -> Step {
    let reason = Reason::new(b"refused by SQL").expect("a short plain text");
    Step::Send(Box::new(Command::Cancel { order, reason }))
}

/// What the answer means.
pub fn after(order: OrderId, reply: &Reply) -> Step {
    let Reply::Order(reply) = reply else { return Step::Later };
    match (reply.outcome, reply.state) {
        (Outcome::Cancelled | Outcome::AlreadyCancelled, _) => Step::Sent { paid: false },
        (Outcome::Returned | Outcome::AlreadyReturned, _) => Step::Sent { paid: true },
        (Outcome::TooLate, OrderState::Confirmed) => Step::Send(Box::new(give_back(order))),
        (Outcome::TooLate | Outcome::UnknownOrder, _) => Step::Over,
        (Outcome::Busy | Outcome::Throttled, _) => Step::Later,
        (outcome, _) => Step::Stuck(outcome),
    }
}

fn give_back(order: OrderId) -> Command {
    let request = RequestId::parse(format!("refused-{order}").as_bytes());
    Command::Return(Return {
        order,
        request: request.expect("a short plain text"),
        lines: Lines::new(),
        restock: true,
        right: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use stockade_protocol::reply::OrderReply;

    fn answer(outcome: Outcome, state: OrderState) -> Reply {
        Reply::Order(OrderReply { outcome, order: OrderId::new(7), state })
    }

    #[test]
    fn held_orders_are_cancelled_and_confirmed_ones_returned() {
        let order = OrderId::new(7).unwrap();
        let Step::Send(command) = first(order) else { panic!("a command comes first") };
        assert!(matches!(*command, Command::Cancel { .. }));
        use OrderState::{Archived, Cancelled, Confirmed, Expired, Held, Returned};
        let cases = [
            (Outcome::Cancelled, Cancelled, Step::Sent { paid: false }),
            (Outcome::AlreadyCancelled, Cancelled, Step::Sent { paid: false }),
            (Outcome::Returned, Returned, Step::Sent { paid: true }),
            (Outcome::AlreadyReturned, Returned, Step::Sent { paid: true }),
            (Outcome::TooLate, Expired, Step::Over),
            (Outcome::TooLate, Returned, Step::Over),
            (Outcome::TooLate, Archived, Step::Over),
            (Outcome::Busy, Held, Step::Later),
            (Outcome::Refused, Held, Step::Stuck(Outcome::Refused)),
        ];
        for (outcome, state, step) in cases {
            assert_eq!(after(order, &answer(outcome, state)), step, "{outcome:?} {state:?}");
        }
        let step = after(order, &answer(Outcome::TooLate, Confirmed));
        let Step::Send(command) = step else { panic!("a return follows") };
        let Command::Return(give_back) = *command else { panic!("a return follows") };
        assert!(give_back.restock && give_back.right && give_back.lines.is_empty());
        assert_eq!(give_back.request.to_text(), "refused-7");
        assert_eq!(after(order, &Reply::Busy { retry_after_ms: 1 }), Step::Later);
    }
}
