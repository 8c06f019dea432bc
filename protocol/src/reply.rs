//! Answers to commands, typed; each front writes them in its own form.

use crate::command::Lines;
use crate::ids::{OrderId, SaleId, SkuId, TimestampMs, UserId};
use crate::outcome::Outcome;
use crate::sale::SaleDefinition;
use crate::state::{OrderState, SaleState, SkuState};
use crate::text::PaymentRef;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// Of `retry_after_ms`: it cannot win later.
pub const RETRY_NEVER: i64 = -1;
/// Of `left`: there is no limit.
pub const LEFT_UNLIMITED: i64 = -1;

/// The answer to `reserve`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReserveReply {
    /// What was decided; for a known request id the order's state now.
    pub outcome: Outcome,
    /// True if the order was there before this request.
    pub again: bool,
    /// The order; with `limit` the newest live one, with `id_conflict` the known one.
    pub order: Option<OrderId>,
    /// The order's deadline; `TimestampMs::NONE` without an order or for one that never expires.
    pub expires_at: TimestampMs,
    /// When to try again, in ms: 0 for successes, -1 for never; with `not_started` the time to go.
    pub retry_after_ms: i64,
    /// Units this user may still have of the asked SKUs, the smallest over the lines; -1 without a
    /// limit.
    pub left: i64,
}

impl ReserveReply {
    /// A rejection that names no order.
    pub const fn rejected(outcome: Outcome, retry_after_ms: i64) -> Self {
        Self {
            outcome,
            again: false,
            order: None,
            expires_at: TimestampMs::NONE,
            retry_after_ms,
            left: LEFT_UNLIMITED,
        }
    }
}

/// The answer to confirm, cancel, withdraw, extend and return.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OrderReply {
    /// What was decided.
    pub outcome: Outcome,
    /// The order, if there is one.
    pub order: Option<OrderId>,
    /// Its state after the command (of `withdraw`: the request id's).
    pub state: OrderState,
}

/// An order as it stands. For a request id without an order, `order` is `None` and `state` is
/// `withdrawn` or `unknown`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrderView {
    /// The order.
    pub order: Option<OrderId>,
    /// Its state.
    pub state: OrderState,
    /// Its sale; `None` if unknown.
    pub sale: Option<SaleId>,
    /// Its buyer; `None` if unknown.
    pub user: Option<UserId>,
    /// Its deadline; `TimestampMs::NONE` if it has none.
    pub expires_at: TimestampMs,
    /// The payment that confirmed it.
    pub payment: Option<PaymentRef>,
    /// What was ordered, by SKU.
    pub lines: Lines,
    /// What came back, by SKU; only SKUs with returns.
    pub returned: Lines,
}

impl OrderView {
    /// No order: `unknown`, `withdrawn` or `archived`.
    pub fn without_order(state: OrderState) -> Self {
        Self {
            order: None,
            state,
            sale: None,
            user: None,
            expires_at: TimestampMs::NONE,
            payment: None,
            lines: Lines::new(),
            returned: Lines::new(),
        }
    }
}

/// Units of one SKU that use up a user's limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UserSku {
    /// The SKU.
    pub sku: SkuId,
    /// Units held, confirmed, or returned without the right.
    pub units: u64,
    /// Units the user may still have; -1 without a limit.
    pub left: i64,
}

/// A user in a sale.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UserView {
    /// SKUs with units, ascending.
    pub skus: Vec<UserSku>,
    /// Live orders (held, or confirmed and not fully returned), ascending.
    pub orders: Vec<OrderId>,
}

/// A SKU's figures: `free + held + confirmed = total`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SkuView {
    /// The SKU.
    pub sku: SkuId,
    /// Units in the sale.
    pub total: u64,
    /// Units in no order.
    pub free: u64,
    /// Units of held orders.
    pub held: u64,
    /// Units of confirmed orders that were not returned.
    pub confirmed: u64,
    /// What a buyer sees.
    pub state: SkuState,
}

/// A sale with its figures.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SaleView {
    /// The keys of `put`, as they stand; `stock` is the one first put.
    pub definition: SaleDefinition,
    /// The sale's state now.
    pub state: SaleState,
    /// The engine's clock.
    pub server_time: TimestampMs,
    /// Figures, one per SKU of the definition, in its order.
    pub skus: Vec<SkuView>,
}

/// One sale of the list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SaleSummary {
    /// The sale.
    pub sale: SaleId,
    /// Its name.
    pub name: String,
    /// Its state now.
    pub state: SaleState,
    /// When it opens.
    pub opens_at: TimestampMs,
    /// When it ends; `None` for never.
    pub closes_at: Option<TimestampMs>,
    /// How many SKUs it has.
    pub sku_count: u32,
}

/// The answer to `sale put`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SalePutReply {
    /// `created`, `changed`, `unchanged` or `bad_request` (also `busy`).
    pub outcome: Outcome,
    /// The sale; `None` where it could not even be read.
    pub sale: Option<SaleId>,
    /// For a refusal: one plain sentence; else empty.
    pub why: String,
}

/// The answer to pause, resume and close.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SaleSwitchReply {
    /// `paused`, `resumed`, `closed`, `unchanged` or `unknown_sale`.
    pub outcome: Outcome,
    /// The sale.
    pub sale: SaleId,
}

/// The answer to `adjust`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdjustReply {
    /// `adjusted` or a rejection.
    pub outcome: Outcome,
    /// What was really added (negative: taken).
    pub applied: i64,
    /// The SKU's total afterwards.
    pub total: u64,
    /// Free units afterwards.
    pub free: u64,
}

/// The answer to a [`crate::Command`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// To `Reserve`.
    Reserve(ReserveReply),
    /// To the order verbs.
    Order(OrderReply),
    /// To `OrderGet` and `Status`.
    OrderView(Box<OrderView>),
    /// To `UserGet`.
    User(UserView),
    /// To `OrderList`.
    Orders(Vec<OrderView>),
    /// To `SkuGet`.
    Sku(SkuView),
    /// To `SaleGet`; `None` for an unknown or archived sale.
    Sale(Option<Box<SaleView>>),
    /// To `SaleList`.
    Sales(Vec<SaleSummary>),
    /// To `SalePut`.
    SalePut(SalePutReply),
    /// To pause, resume and close.
    SaleSwitch(SaleSwitchReply),
    /// To `Adjust`.
    Adjust(AdjustReply),
    /// The engine cannot decide this question now (a full queue, a shard draining); nothing was
    /// done.
    Busy {
        /// When to try again.
        retry_after_ms: u32,
    },
}
