//! The complete state of one partition at an LSN, as plain data: what snapshots hold and what a
//! shard loads.
//!
//! Events up to and including `lsn` are in it, none after. The numbers that must never go back
//! (next LSN, next order number) are carried even when everything else was dropped.

use crate::command::Lines;
use crate::ids::{Lsn, OrderId, SaleId, SkuId, TimestampMs, UserId};
use crate::request_id::RequestId;
use crate::sale::SaleDefinition;
use crate::state::OrderState;
use crate::text::{OrderData, PaymentRef};
use alloc::vec::Vec;

/// A return that an order remembers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReturnImage {
    /// The return's request id.
    pub request: RequestId,
    /// What came back.
    pub lines: Lines,
    /// The units can be sold again.
    pub restock: bool,
    /// The right came back.
    pub right: bool,
}

/// An order with all that the rules remember of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrderImage {
    /// The order.
    pub order: OrderId,
    /// Its sale.
    pub sale: SaleId,
    /// Its buyer.
    pub user: UserId,
    /// The buyer's request id.
    pub request: RequestId,
    /// Where it is in its life.
    pub state: OrderState,
    /// The deadline it was given first; `TimestampMs::NONE` if born confirmed.
    pub expires_first: TimestampMs,
    /// Its deadline now.
    pub expires_at: TimestampMs,
    /// Units by SKU.
    pub lines: Lines,
    /// Opaque bytes.
    pub data: OrderData,
    /// The payment that confirmed it.
    pub payment: Option<PaymentRef>,
    /// Payments that came for nothing.
    pub late_payments: Vec<PaymentRef>,
    /// Returns in the order they came.
    pub returns: Vec<ReturnImage>,
}

/// A request id withdrawn before it came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TombstoneImage {
    /// The sale.
    pub sale: SaleId,
    /// The buyer.
    pub user: UserId,
    /// The request id.
    pub request: RequestId,
}

/// The state of a partition of users.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PartitionImage {
    /// The last entry it contains.
    pub lsn: Lsn,
    /// The latest timestamp among its entries.
    pub at: TimestampMs,
    /// The highest order number ever given; the next order gets the one after.
    pub order_number_last: u64,
    /// Orders in ascending order of id.
    pub orders: Vec<OrderImage>,
    /// Tombstones, in ascending order of (sale, user, request key).
    pub tombstones: Vec<TombstoneImage>,
}

/// An adjust that a sale remembers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdjustImage {
    /// The operator's request id.
    pub request: RequestId,
    /// The SKU.
    pub sku: SkuId,
    /// What was asked.
    pub delta: i64,
    /// What was done.
    pub applied: i64,
}

/// A sale that is not archived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SaleImage {
    /// The definition as it stands.
    pub definition: SaleDefinition,
    /// Reserves are stopped.
    pub paused: bool,
    /// When it was closed by hand.
    pub closed_at: Option<TimestampMs>,
    /// Adjusts in the order they came; a SKU's total is its stock plus what they applied.
    pub adjusts: Vec<AdjustImage>,
}

/// The state of the catalog's partition.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CatalogImage {
    /// The last entry it contains.
    pub lsn: Lsn,
    /// The latest timestamp among its entries.
    pub at: TimestampMs,
    /// Sales that are not archived, ascending.
    pub sales: Vec<SaleImage>,
    /// Ids that cannot be used again, ascending.
    pub archived: Vec<SaleId>,
}
