//! Version 1 of snapshots, frozen: these types are never changed. A later version gets types of its
//! own and a conversion from these.
//!
//! Only plain integers, strings and vectors, so that the archived layout stays simple; the body
//! carries a checksum of its own and is read through rkyv's checked access.

use rkyv::{Archive, Deserialize, Serialize};
use stockade_protocol::command::{Line, Lines};
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::image::{
    AdjustImage, CatalogImage, OrderImage, PartitionImage, ReturnImage, SaleImage, TombstoneImage,
};
use stockade_protocol::text::{OrderData, PaymentRef};
use stockade_protocol::{
    Lsn, OrderId, OrderState, RequestId, SaleDefinition, SaleId, SkuDefinition, SkuId, UserId,
};

#[derive(Archive, Serialize, Deserialize)]
pub(super) struct LineV1 {
    sku: u64,
    quantity: u32,
}

#[derive(Archive, Serialize, Deserialize)]
pub(super) struct ReturnV1 {
    request: String,
    lines: Vec<LineV1>,
    restock: bool,
    right: bool,
}

#[derive(Archive, Serialize, Deserialize)]
pub(super) struct OrderV1 {
    order: u64,
    sale: u64,
    user: u64,
    request: String,
    state: u8,
    expires_first: u64,
    expires_at: u64,
    lines: Vec<LineV1>,
    data: Vec<u8>,
    payment: String,
    late_payments: Vec<String>,
    returns: Vec<ReturnV1>,
}

#[derive(Archive, Serialize, Deserialize)]
pub(super) struct TombstoneV1 {
    sale: u64,
    user: u64,
    request: String,
}

#[derive(Archive, Serialize, Deserialize)]
pub(super) struct PartitionV1 {
    lsn: u64,
    at: u64,
    order_number_last: u64,
    orders: Vec<OrderV1>,
    tombstones: Vec<TombstoneV1>,
}

#[derive(Archive, Serialize, Deserialize)]
pub(super) struct SkuV1 {
    sku: u64,
    stock: u32,
    limit_per_user: u32,
    max_per_order: u32,
    labels: Vec<(String, String)>,
}

#[derive(Archive, Serialize, Deserialize)]
pub(super) struct AdjustV1 {
    request: String,
    sku: u64,
    delta: i64,
    applied: i64,
}

#[derive(Archive, Serialize, Deserialize)]
pub(super) struct SaleV1 {
    sale: u64,
    name: String,
    opens_at: u64,
    closes_at: u64,
    hold_ms: u64,
    extend_max_ms: u64,
    grace_ms: u64,
    limit_per_user: u32,
    rate_per_s: u32,
    burst: u32,
    user_rate_per_s: u32,
    revive: bool,
    skus: Vec<SkuV1>,
    paused: bool,
    closed_at: u64,
    adjusts: Vec<AdjustV1>,
}

#[derive(Archive, Serialize, Deserialize)]
pub(super) struct CatalogV1 {
    lsn: u64,
    at: u64,
    sales: Vec<SaleV1>,
    archived: Vec<u64>,
}

fn lines_from(lines: &[Line]) -> Vec<LineV1> {
    lines.iter().map(|l| LineV1 { sku: l.sku.get(), quantity: l.quantity }).collect()
}

fn lines_into(lines: Vec<LineV1>) -> Option<Lines> {
    lines
        .into_iter()
        .map(|line| Some(Line { sku: SkuId::new(line.sku)?, quantity: line.quantity }))
        .collect()
}

fn request_into(text: &str) -> Option<RequestId> {
    RequestId::parse(text.as_bytes()).ok()
}

impl From<&PartitionImage> for PartitionV1 {
    fn from(image: &PartitionImage) -> Self {
        let order = |order: &OrderImage| OrderV1 {
            order: order.order.get(),
            sale: order.sale.get(),
            user: order.user.get(),
            request: order.request.to_text(),
            state: order.state.number(),
            expires_first: order.expires_first.get(),
            expires_at: order.expires_at.get(),
            lines: lines_from(&order.lines),
            data: order.data.as_bytes().to_vec(),
            payment: order.payment.as_ref().map_or("", PaymentRef::as_str).to_owned(),
            late_payments: order.late_payments.iter().map(|p| p.as_str().to_owned()).collect(),
            returns: order
                .returns
                .iter()
                .map(|back| ReturnV1 {
                    request: back.request.to_text(),
                    lines: lines_from(&back.lines),
                    restock: back.restock,
                    right: back.right,
                })
                .collect(),
        };
        let tombstone = |tombstone: &TombstoneImage| TombstoneV1 {
            sale: tombstone.sale.get(),
            user: tombstone.user.get(),
            request: tombstone.request.to_text(),
        };
        Self {
            lsn: image.lsn.get(),
            at: image.at.get(),
            order_number_last: image.order_number_last,
            orders: image.orders.iter().map(order).collect(),
            tombstones: image.tombstones.iter().map(tombstone).collect(),
        }
    }
}

impl PartitionV1 {
    /// `None`: a value is out of range.
    pub(super) fn into_image(self) -> Option<PartitionImage> {
        let tombstone = |tombstone: TombstoneV1| {
            Some(TombstoneImage {
                sale: SaleId::new(tombstone.sale)?,
                user: UserId::new(tombstone.user)?,
                request: request_into(&tombstone.request)?,
            })
        };
        Some(PartitionImage {
            lsn: Lsn::new(self.lsn),
            at: TimestampMs::new(self.at),
            order_number_last: self.order_number_last,
            orders: self.orders.into_iter().map(OrderV1::into_image).collect::<Option<_>>()?,
            tombstones: self.tombstones.into_iter().map(tombstone).collect::<Option<_>>()?,
        })
    }
}

impl OrderV1 {
    fn into_image(self) -> Option<OrderImage> {
        let payment = |text: &str| PaymentRef::new(text.as_bytes()).ok();
        let back = |back: ReturnV1| {
            Some(ReturnImage {
                request: request_into(&back.request)?,
                lines: lines_into(back.lines)?,
                restock: back.restock,
                right: back.right,
            })
        };
        Some(OrderImage {
            order: OrderId::new(self.order)?,
            sale: SaleId::new(self.sale)?,
            user: UserId::new(self.user)?,
            request: request_into(&self.request)?,
            state: OrderState::from_number(self.state)?,
            expires_first: TimestampMs::new(self.expires_first),
            expires_at: TimestampMs::new(self.expires_at),
            lines: lines_into(self.lines)?,
            data: OrderData::new(&self.data)?,
            payment: if self.payment.is_empty() { None } else { Some(payment(&self.payment)?) },
            late_payments: self.late_payments.iter().map(|t| payment(t)).collect::<Option<_>>()?,
            returns: self.returns.into_iter().map(back).collect::<Option<_>>()?,
        })
    }
}

impl From<&CatalogImage> for CatalogV1 {
    fn from(image: &CatalogImage) -> Self {
        Self {
            lsn: image.lsn.get(),
            at: image.at.get(),
            sales: image.sales.iter().map(SaleV1::from).collect(),
            archived: image.archived.iter().map(|sale| sale.get()).collect(),
        }
    }
}

impl From<&SaleImage> for SaleV1 {
    fn from(image: &SaleImage) -> Self {
        let d = &image.definition;
        let sku = |sku: &SkuDefinition| SkuV1 {
            sku: sku.sku.get(),
            stock: sku.stock,
            limit_per_user: sku.limit_per_user,
            max_per_order: sku.max_per_order,
            labels: sku.labels.clone(),
        };
        let adjust = |adjust: &AdjustImage| AdjustV1 {
            request: adjust.request.to_text(),
            sku: adjust.sku.get(),
            delta: adjust.delta,
            applied: adjust.applied,
        };
        Self {
            sale: d.sale.get(),
            name: d.name.clone(),
            opens_at: d.opens_at.get(),
            closes_at: d.closes_at.map_or(0, TimestampMs::get),
            hold_ms: d.hold_ms,
            extend_max_ms: d.extend_max_ms,
            grace_ms: d.grace_ms,
            limit_per_user: d.limit_per_user,
            rate_per_s: d.rate_per_s,
            burst: d.burst,
            user_rate_per_s: d.user_rate_per_s,
            revive: d.revive,
            skus: d.skus.iter().map(sku).collect(),
            paused: image.paused,
            closed_at: image.closed_at.map_or(0, TimestampMs::get),
            adjusts: image.adjusts.iter().map(adjust).collect(),
        }
    }
}

impl CatalogV1 {
    /// `None`: a value is out of range.
    pub(super) fn into_image(self) -> Option<CatalogImage> {
        Some(CatalogImage {
            lsn: Lsn::new(self.lsn),
            at: TimestampMs::new(self.at),
            sales: self.sales.into_iter().map(SaleV1::into_image).collect::<Option<_>>()?,
            archived: self.archived.into_iter().map(SaleId::new).collect::<Option<_>>()?,
        })
    }
}

impl SaleV1 {
    fn into_image(self) -> Option<SaleImage> {
        let moment = |at: u64| Some(TimestampMs::new(at)).filter(|at| *at != TimestampMs::NONE);
        let sku = |sku: SkuV1| {
            Some(SkuDefinition {
                sku: SkuId::new(sku.sku)?,
                stock: sku.stock,
                limit_per_user: sku.limit_per_user,
                max_per_order: sku.max_per_order,
                labels: sku.labels,
            })
        };
        let adjust = |adjust: AdjustV1| {
            Some(AdjustImage {
                request: request_into(&adjust.request)?,
                sku: SkuId::new(adjust.sku)?,
                delta: adjust.delta,
                applied: adjust.applied,
            })
        };
        let definition = SaleDefinition {
            sale: SaleId::new(self.sale)?,
            name: self.name,
            opens_at: TimestampMs::new(self.opens_at),
            closes_at: moment(self.closes_at),
            hold_ms: self.hold_ms,
            extend_max_ms: self.extend_max_ms,
            grace_ms: self.grace_ms,
            limit_per_user: self.limit_per_user,
            rate_per_s: self.rate_per_s,
            burst: self.burst,
            user_rate_per_s: self.user_rate_per_s,
            revive: self.revive,
            skus: self.skus.into_iter().map(sku).collect::<Option<_>>()?,
        };
        Some(SaleImage {
            definition,
            paused: self.paused,
            closed_at: moment(self.closed_at),
            adjusts: self.adjusts.into_iter().map(adjust).collect::<Option<_>>()?,
        })
    }
}
