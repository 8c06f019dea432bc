//! Commands and questions, checked and typed: what every front (binary, RESP, HTTP) turns its input
//! into, and what the shards decide.
//!
//! Ids, texts and request ids are in range by construction; a front answers `bad_request` for those
//! that are not (rule 1 comes before every other). What needs arithmetic (quantities, number of
//! lines, sums) is left to the rules.

use crate::ids::{OrderId, SaleId, SkuId, TimestampMs, UserId};
use crate::request_id::RequestId;
use crate::sale::SalePatch;
use crate::state::OrderState;
use crate::text::{OrderData, PaymentRef, Reason};
use alloc::boxed::Box;
use smallvec::SmallVec;

/// Some units of one SKU.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Line {
    /// The SKU.
    pub sku: SkuId,
    /// Units. 0 can come in, and is then a bad request.
    pub quantity: u32,
}

/// The lines of an order; most orders have one or two.
pub type Lines = SmallVec<[Line; 2]>;

/// May this user have these units?
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reserve {
    /// The sale.
    pub sale: SaleId,
    /// The buyer.
    pub user: UserId,
    /// Idempotency key in (sale, user).
    pub request: RequestId,
    /// As asked: 1..=64 lines with quantities of 1 and more, else a bad request. Lines of one SKU
    /// count as one.
    pub lines: Lines,
    /// Opaque bytes that travel with the order.
    pub data: OrderData,
    /// Later than this, nothing is done (`stale`).
    pub not_after: Option<TimestampMs>,
}

/// Give units of a confirmed order back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Return {
    /// The order.
    pub order: OrderId,
    /// Idempotency key in the order.
    pub request: RequestId,
    /// What comes back; empty means all that is left.
    pub lines: Lines,
    /// The units can be sold again; otherwise they leave the sale.
    pub restock: bool,
    /// The user's right comes back too; otherwise the limit stays used.
    pub right: bool,
}

/// Change a SKU's total.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Adjust {
    /// The sale.
    pub sale: SaleId,
    /// The SKU.
    pub sku: SkuId,
    /// Units to add, or to take away where negative (never more than are free). 0 is a bad request.
    pub delta: i64,
    /// Idempotency key in the sale.
    pub request: RequestId,
}

/// One page of a sale's orders, in ascending order of id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrderList {
    /// The sale.
    pub sale: SaleId,
    /// Only this buyer's.
    pub user: Option<UserId>,
    /// Only orders in this state.
    pub state: Option<OrderState>,
    /// Only ids above this one; 0 for the first page.
    pub after: u64,
    /// At most this many, 1..=1000.
    pub count: u32,
}

/// Everything that can be asked of the engine about stock, orders and sales.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// Reserve units.
    Reserve(Reserve),
    /// The order is paid.
    Confirm {
        /// The order.
        order: OrderId,
        /// The payment provider's reference.
        payment: PaymentRef,
    },
    /// Give a held order's units and right back.
    Cancel {
        /// The order.
        order: OrderId,
        /// Why.
        reason: Reason,
    },
    /// Make sure that a request id holds nothing and never will.
    Withdraw {
        /// The sale.
        sale: SaleId,
        /// The buyer.
        user: UserId,
        /// The request id in doubt.
        request: RequestId,
    },
    /// Move a held order's deadline; an earlier time than the present one changes nothing.
    Extend {
        /// The order.
        order: OrderId,
        /// The new deadline.
        until: TimestampMs,
    },
    /// Give units of a confirmed order back.
    Return(Return),
    /// Read an order.
    OrderGet(OrderId),
    /// What became of a request id?
    Status {
        /// The sale.
        sale: SaleId,
        /// The buyer.
        user: UserId,
        /// The request id.
        request: RequestId,
    },
    /// Read a user's orders and rights in a sale.
    UserGet {
        /// The sale.
        sale: SaleId,
        /// The buyer.
        user: UserId,
    },
    /// List orders.
    OrderList(OrderList),
    /// Read one SKU's figures, gathered over all shards.
    SkuGet {
        /// The sale.
        sale: SaleId,
        /// The SKU.
        sku: SkuId,
    },
    /// Read a sale with all its SKUs' figures.
    SaleGet(SaleId),
    /// List the sales that are not archived.
    SaleList,
    /// Create a sale or merge with it.
    SalePut(Box<SalePatch>),
    /// Stop reserves.
    SalePause(SaleId),
    /// Let reserves go on.
    SaleResume(SaleId),
    /// End a sale for good.
    SaleClose(SaleId),
    /// Change a SKU's total.
    Adjust(Adjust),
}

/// What decides where a command is executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// At the shard that owns this user's partition.
    User(UserId),
    /// At the shard that owns this order's partition.
    Order(OrderId),
    /// At the catalog's shard.
    Catalog,
    /// At every shard; somebody puts the parts together.
    All,
}

impl Command {
    /// Where the command is executed.
    pub fn route(&self) -> Route {
        match self {
            Self::Reserve(Reserve { user, .. })
            | Self::Withdraw { user, .. }
            | Self::Status { user, .. }
            | Self::UserGet { user, .. } => Route::User(*user),
            Self::Confirm { order, .. }
            | Self::Cancel { order, .. }
            | Self::Extend { order, .. }
            | Self::Return(Return { order, .. })
            | Self::OrderGet(order) => Route::Order(*order),
            Self::SkuGet { .. } | Self::SaleGet(_) | Self::OrderList(_) => Route::All,
            Self::SaleList
            | Self::SalePut(_)
            | Self::SalePause(_)
            | Self::SaleResume(_)
            | Self::SaleClose(_)
            | Self::Adjust(_) => Route::Catalog,
        }
    }
}
