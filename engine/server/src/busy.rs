//! `busy`: the answer of a full queue or a draining server, in the form of each command.

use stockade_protocol::command::Return;
use stockade_protocol::reply::{
    AdjustReply, OrderReply, ReserveReply, SalePutReply, SaleSwitchReply,
};
use stockade_protocol::{Command, OrderState, Outcome, Reply};

/// When a client that was told `busy` should come back, ms.
pub const RETRY_AFTER_MS: u32 = 50;

/// Nothing was done; try again.
pub fn reply(command: &Command) -> Reply {
    let outcome = Outcome::Busy;
    match command {
        Command::Reserve(_) => {
            Reply::Reserve(ReserveReply::rejected(outcome, i64::from(RETRY_AFTER_MS)))
        }
        Command::Confirm { order, .. }
        | Command::Cancel { order, .. }
        | Command::Extend { order, .. }
        | Command::Return(Return { order, .. }) => {
            Reply::Order(OrderReply { outcome, order: Some(*order), state: OrderState::Unknown })
        }
        Command::Withdraw { .. } => {
            Reply::Order(OrderReply { outcome, order: None, state: OrderState::Unknown })
        }
        Command::SalePut(patch) => Reply::SalePut(SalePutReply {
            outcome,
            sale: Some(patch.sale),
            why: String::from("the engine is busy; try again"),
        }),
        Command::SalePause(sale) | Command::SaleResume(sale) | Command::SaleClose(sale) => {
            Reply::SaleSwitch(SaleSwitchReply { outcome, sale: *sale })
        }
        Command::Adjust(_) => Reply::Adjust(AdjustReply { outcome, applied: 0, total: 0, free: 0 }),
        Command::OrderGet(_)
        | Command::Status { .. }
        | Command::UserGet { .. }
        | Command::OrderList(_)
        | Command::SkuGet { .. }
        | Command::SaleGet(_)
        | Command::SaleList => Reply::Busy { retry_after_ms: RETRY_AFTER_MS },
    }
}
