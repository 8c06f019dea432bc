//! Entries of the log: decided effects, not commands. Replay applies them without deciding again.
//!
//! The same bytes stand in journal, archive and feed; `persistence/log/FORMAT.md` specifies them.

pub(crate) mod codec;

pub use codec::{ENTRY_HEADER_BYTES, EntryError, EntryHeader, peek};

use crate::command::Lines;
use crate::ids::{Lsn, OrderId, PartitionId, SaleId, SkuId, TimestampMs, UserId};
use crate::request_id::RequestId;
use crate::sale::SaleDefinition;
use crate::text::{OrderData, PaymentRef, Reason};
use alloc::boxed::Box;

/// One entry with its place and time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The partition whose log it stands in.
    pub partition: PartitionId,
    /// Its place there.
    pub lsn: Lsn,
    /// The engine's clock when it was decided.
    pub at: TimestampMs,
    /// What was decided.
    pub event: Event,
}

/// A new order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placed {
    /// The order.
    pub order: OrderId,
    /// Its sale.
    pub sale: SaleId,
    /// Its buyer.
    pub user: UserId,
    /// The buyer's request id.
    pub request: RequestId,
    /// The deadline; `TimestampMs::NONE` for an order born confirmed.
    pub expires_at: TimestampMs,
    /// Units by SKU: merged, ascending, quantities of 1 and more.
    pub lines: Lines,
    /// Opaque bytes.
    pub data: OrderData,
}

/// Which order, whose, of which sale.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OrderKey {
    /// The order.
    pub order: OrderId,
    /// Its sale; `None` once it is archived.
    pub sale: Option<SaleId>,
    /// Its buyer; `None` once the sale is archived.
    pub user: Option<UserId>,
}

/// Why money came for nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum LateReason {
    /// The order had expired.
    Expired = 1,
    /// The order was cancelled.
    Cancelled = 2,
    /// The order was returned in full.
    Returned = 3,
    /// The order was paid with another reference.
    SecondPayment = 4,
    /// The order's sale is archived.
    Archived = 5,
}

impl LateReason {
    /// The reason of this number.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Expired),
            2 => Some(Self::Cancelled),
            3 => Some(Self::Returned),
            4 => Some(Self::SecondPayment),
            5 => Some(Self::Archived),
            _ => None,
        }
    }

    /// The word in feed and SQL.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
            Self::Returned => "returned",
            Self::SecondPayment => "second_payment",
            Self::Archived => "archived",
        }
    }
}

/// What was decided. The numbers on disk are in [`Event::kind`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A new order holds its units.
    Held(Placed),
    /// A new order is confirmed at once (the sale's hold is 0).
    BornConfirmed(Placed),
    /// A held order was paid, or one born confirmed took its first reference.
    Confirmed {
        /// Which.
        key: OrderKey,
        /// The payment.
        payment: PaymentRef,
    },
    /// An expired order was paid and took its units again.
    Revived {
        /// Which.
        key: OrderKey,
        /// The payment.
        payment: PaymentRef,
        /// The units it took.
        lines: Lines,
    },
    /// A held order gave units and right back.
    Cancelled {
        /// Which.
        key: OrderKey,
        /// Why.
        reason: Reason,
    },
    /// A held order ran out.
    Expired {
        /// Which.
        key: OrderKey,
    },
    /// A held order's deadline moved.
    Extended {
        /// Which.
        key: OrderKey,
        /// The new deadline.
        expires_at: TimestampMs,
    },
    /// Units of a confirmed order came back.
    Returned {
        /// Which.
        key: OrderKey,
        /// The return's own request id.
        request: RequestId,
        /// What came back: merged, ascending.
        lines: Lines,
        /// The units can be sold again.
        restock: bool,
        /// The right came back.
        right: bool,
        /// Nothing of the order is left: its state is `returned`.
        whole: bool,
    },
    /// Money came for nothing.
    LatePayment {
        /// Which.
        key: OrderKey,
        /// The payment.
        payment: PaymentRef,
        /// Why it is late.
        reason: LateReason,
    },
    /// A request id was withdrawn before it came.
    Withdrawn {
        /// The sale.
        sale: SaleId,
        /// The buyer.
        user: UserId,
        /// The request id.
        request: RequestId,
    },
    /// A sale was created or changed: the whole definition as it stands now.
    SalePut(Box<SaleDefinition>),
    /// Reserves are stopped.
    SalePaused(SaleId),
    /// Reserves go on.
    SaleResumed(SaleId),
    /// The sale is over.
    SaleClosed(SaleId),
    /// The sale's state is dropped.
    SaleArchived(SaleId),
    /// A SKU's total changed.
    Adjusted {
        /// The sale.
        sale: SaleId,
        /// The SKU.
        sku: SkuId,
        /// The operator's request id.
        request: RequestId,
        /// What was asked.
        delta: i64,
        /// What was done.
        applied: i64,
        /// The total afterwards, as this entry leaves it.
        total: u64,
    },
}

impl Event {
    /// The stable number of the event's kind on disk and wire.
    pub const fn kind(&self) -> u8 {
        match self {
            Self::Held(_) => 1,
            Self::Confirmed { .. } => 2,
            Self::BornConfirmed(_) => 3,
            Self::Revived { .. } => 4,
            Self::Cancelled { .. } => 5,
            Self::Expired { .. } => 6,
            Self::Extended { .. } => 7,
            Self::Returned { .. } => 8,
            Self::LatePayment { .. } => 9,
            Self::Withdrawn { .. } => 10,
            Self::Adjusted { .. } => 32,
            Self::SalePut(_) => 33,
            Self::SalePaused(_) => 34,
            Self::SaleResumed(_) => 35,
            Self::SaleClosed(_) => 36,
            Self::SaleArchived(_) => 37,
        }
    }

    /// The word of the event's kind in the feed.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Held(_) => "held",
            Self::Confirmed { .. } | Self::BornConfirmed(_) | Self::Revived { .. } => "confirmed",
            Self::Cancelled { .. } => "cancelled",
            Self::Expired { .. } => "expired",
            Self::Extended { .. } => "extended",
            Self::Returned { .. } => "returned",
            Self::LatePayment { .. } => "late_payment",
            Self::Withdrawn { .. } => "withdrawn",
            Self::Adjusted { .. } => "adjusted",
            Self::SalePut(_) => "sale_put",
            Self::SalePaused(_) => "sale_paused",
            Self::SaleResumed(_) => "sale_resumed",
            Self::SaleClosed(_) => "sale_closed",
            Self::SaleArchived(_) => "sale_archived",
        }
    }
}
