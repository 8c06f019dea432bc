//! Rows as they stand in a database: plain numbers and texts, whatever somebody wrote there by
//! hand.
//!
//! Reconciliation compares these with what the log says; a row that no order can have must come out
//! as a difference, not as an error.

use crate::rows::{LateRow, OrderRow, RefusedState};
use crate::sink::error::{micros, micros_or_none};
use std::collections::BTreeMap;
use stockade_protocol::PartitionId;
use stockade_protocol::ids::TimestampMs;

/// A row of `orders`. Times are microseconds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrderStored {
    /// `order_id`
    pub order: i64,
    /// `sale_id`
    pub sale: i64,
    /// `user_id`
    pub user: i64,
    /// `state`
    pub state: i64,
    /// `request_id`
    pub request: String,
    /// `payment_ref`
    pub payment: Option<String>,
    /// `data`; empty where it is NULL
    pub data: Vec<u8>,
    /// `partition_id`
    pub partition: i64,
    /// `lsn`
    pub lsn: i64,
    /// `created_at`
    pub created_us: i64,
    /// `expires_at`
    pub expires_us: Option<i64>,
    /// `updated_at`
    pub updated_us: i64,
    /// `order_lines`: SKU -> units, units returned
    pub lines: BTreeMap<i64, (i64, i64)>,
}

/// An id as SQL has it. Ids are 63-bit, so nothing is lost.
pub const fn number(id: u64) -> i64 {
    id as i64
}

/// Bits of an order id below its partition.
const PARTITION_SHIFT: u32 = 53;

/// The first and last order id of a partition.
pub fn order_range(partition: PartitionId) -> (i64, i64) {
    let first = i64::from(partition.get()) << PARTITION_SHIFT;
    (first, first | ((1 << PARTITION_SHIFT) - 1))
}

impl From<&OrderRow> for OrderStored {
    fn from(row: &OrderRow) -> Self {
        let lines = row.lines.iter();
        Self {
            order: number(row.order.get()),
            sale: number(row.sale.get()),
            user: number(row.user.get()),
            state: i64::from(row.state.number()),
            request: row.request.clone(),
            payment: row.payment.as_ref().map(|payment| payment.as_str().to_owned()),
            data: row.data.as_bytes().to_vec(),
            partition: i64::from(row.order.partition().get()),
            lsn: number(row.lsn.get()),
            created_us: micros(row.created_at),
            expires_us: micros_or_none(row.expires_at),
            updated_us: micros(row.updated_at),
            lines: lines
                .map(|line| {
                    (number(line.sku.get()), (number(line.quantity), number(line.returned)))
                })
                .collect(),
        }
    }
}

/// A row of `late_payments`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LateStored {
    /// `reason`
    pub reason: String,
    /// `at`
    pub at_us: i64,
}

/// Late payments by (order, payment).
pub type LatePayments = BTreeMap<(i64, String), LateStored>;

impl From<&LateRow> for LateStored {
    fn from(row: &LateRow) -> Self {
        Self { reason: row.reason.word().into(), at_us: micros(row.at) }
    }
}

/// A row of `sales`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SaleStored {
    /// `name`
    pub name: String,
    /// `opens_at`
    pub opens_us: i64,
    /// `closes_at`
    pub closes_us: Option<i64>,
    /// `state`, see [`crate::rows::SaleRowState`]
    pub state: i64,
    /// `definition`, JSON
    pub definition: String,
}

/// A row of `skus`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SkuStored {
    /// `total`: units as put and adjusted
    pub total: i64,
    /// `labels`, JSON
    pub labels: String,
}

/// The catalog as a database has it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CatalogStored {
    /// By sale.
    pub sales: BTreeMap<i64, SaleStored>,
    /// By (sale, SKU).
    pub skus: BTreeMap<(i64, i64), SkuStored>,
}

/// Units of one SKU in orders of one state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnitsStored {
    /// `sale_id`
    pub sale: i64,
    /// `sku_id`
    pub sku: i64,
    /// `state`
    pub state: i64,
    /// The sum of `qty`
    pub ordered: i64,
    /// The sum of `returned_qty`
    pub returned: i64,
}

/// Rows of one kind: how many, and the sum of their hashes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Checksum {
    /// Rows.
    pub count: i64,
    /// The sum of 48-bit hashes: the order of the rows does not matter.
    pub sum: i128,
}

/// The checksum of the orders and of the lines of a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Digest {
    /// Of `orders`.
    pub orders: Checksum,
    /// Of `order_lines`.
    pub lines: Checksum,
}

/// By bucket, see [`bucket`]; a bucket without rows is not there.
pub type Digests = BTreeMap<i64, Digest>;

/// Bits of an order id within its bucket: a bucket is a range of 1,024 ids of one partition.
pub const BUCKET_BITS: u32 = 10;

/// The bucket of an order.
pub const fn bucket(order: i64) -> i64 {
    order >> BUCKET_BITS
}

/// The first and last order id of a bucket.
pub const fn bucket_range(bucket: i64) -> (i64, i64) {
    (bucket << BUCKET_BITS, (bucket << BUCKET_BITS) | ((1 << BUCKET_BITS) - 1))
}

/// Checksums as a database returns them: (bucket, rows, sum as text).
pub fn digests(orders: Vec<(i64, i64, String)>, lines: Vec<(i64, i64, String)>) -> Digests {
    let mut out = Digests::new();
    let checksum = |count: i64, sum: &str| Checksum { count, sum: sum.parse().unwrap_or_default() };
    for (bucket, count, sum) in orders {
        out.entry(bucket).or_default().orders = checksum(count, &sum);
    }
    for (bucket, count, sum) in lines {
        out.entry(bucket).or_default().lines = checksum(count, &sum);
    }
    out
}

/// A row of `refused_orders`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RefusedStored {
    /// `order_id`
    pub order: i64,
    /// `sale_id`; `None` where it was unknown
    pub sale: Option<i64>,
    /// `user_id`; `None` where it was unknown
    pub user: Option<i64>,
    /// `lines`, JSON
    pub lines: String,
    /// `class`
    pub class: String,
    /// `code`
    pub code: String,
    /// `message`
    pub message: String,
    /// `state`
    pub state: RefusedState,
    /// `at`
    pub at: TimestampMs,
}
