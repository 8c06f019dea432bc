//! What a sale is: its definition as it stands, and the patch that `put` brings.

use crate::ids::{SaleId, SkuId, TimestampMs};
use alloc::string::String;
use alloc::vec::Vec;

/// Labels of a SKU (spec, origin, batch), in ascending order of name.
pub type Labels = Vec<(String, String)>;

/// One SKU of a sale. 0 means "none" for the limits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SkuDefinition {
    /// The SKU.
    pub sku: SkuId,
    /// Units first put; later changes come by `adjust`.
    pub stock: u32,
    /// Units one user may have.
    pub limit_per_user: u32,
    /// Units one order may have.
    pub max_per_order: u32,
    /// Free texts.
    pub labels: Labels,
}

/// A sale as it stands. 0 means "none" for limits and rates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SaleDefinition {
    /// The sale.
    pub sale: SaleId,
    /// For people.
    pub name: String,
    /// Reserves are taken from here on.
    pub opens_at: TimestampMs,
    /// Reserves are taken before this moment; `None`: until closed.
    pub closes_at: Option<TimestampMs>,
    /// How long an order holds its units; 0: orders are born confirmed.
    pub hold_ms: u64,
    /// How far past its first deadline an order can be extended.
    pub extend_max_ms: u64,
    /// How long after its end the sale is kept.
    pub grace_ms: u64,
    /// Units one user may have over all SKUs.
    pub limit_per_user: u32,
    /// Reserves a second, over all users.
    pub rate_per_s: u32,
    /// Reserves that may come at once on top of the rate; 0: a tenth of a second's worth, at least
    /// 1.
    pub burst: u32,
    /// Reserves a second of one user.
    pub user_rate_per_s: u32,
    /// An expired order can be confirmed if its units are free and its limit kept.
    pub revive: bool,
    /// The SKUs, in ascending order of id.
    pub skus: Vec<SkuDefinition>,
}

impl SaleDefinition {
    /// The default of `hold_ms`: 30 minutes.
    pub const HOLD_MS_DEFAULT: u64 = 1_800_000;
    /// The default of `grace_ms`: a day.
    pub const GRACE_MS_DEFAULT: u64 = 86_400_000;

    /// A sale without SKUs, with every key at its default.
    pub const fn new(sale: SaleId, opens_at: TimestampMs) -> Self {
        Self {
            sale,
            name: String::new(),
            opens_at,
            closes_at: None,
            hold_ms: Self::HOLD_MS_DEFAULT,
            extend_max_ms: 0,
            grace_ms: Self::GRACE_MS_DEFAULT,
            limit_per_user: 0,
            rate_per_s: 0,
            burst: 0,
            user_rate_per_s: 0,
            revive: false,
            skus: Vec::new(),
        }
    }
}

fn set<T: Clone>(field: &mut T, patch: &Option<T>) {
    if let Some(value) = patch {
        *field = value.clone();
    }
}

/// When a sale opens, as `put` says it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpensAt {
    /// The moment of the first put.
    Now,
    /// This moment.
    At(TimestampMs),
}

/// What `put` says of a SKU; what is `None` keeps its value, or takes its default for a new SKU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SkuPatch {
    /// The SKU.
    pub sku: SkuId,
    /// Required for a new SKU; for a known one it must be the stock first put.
    pub stock: Option<u32>,
    /// See [`SkuDefinition`].
    pub limit_per_user: Option<u32>,
    /// See [`SkuDefinition`].
    pub max_per_order: Option<u32>,
    /// See [`SkuDefinition`].
    pub labels: Option<Labels>,
}

impl SkuPatch {
    /// Sets what it says of a known SKU, its stock excepted.
    pub fn apply(&self, known: &mut SkuDefinition) {
        set(&mut known.limit_per_user, &self.limit_per_user);
        set(&mut known.max_per_order, &self.max_per_order);
        set(&mut known.labels, &self.labels);
    }

    /// The new SKU that it describes.
    pub fn define(&self, stock: u32) -> SkuDefinition {
        let (sku, labels) = (self.sku, Labels::new());
        let mut fresh = SkuDefinition { sku, stock, limit_per_user: 0, max_per_order: 0, labels };
        self.apply(&mut fresh);
        fresh
    }
}

/// What `put` says of a sale; what is `None` keeps its value, or takes its default for a new sale.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SalePatch {
    /// The sale.
    pub sale: SaleId,
    /// See [`SaleDefinition`].
    pub name: Option<String>,
    /// Default for a new sale: now.
    pub opens_at: Option<OpensAt>,
    /// `Some(None)`: never.
    pub closes_at: Option<Option<TimestampMs>>,
    /// See [`SaleDefinition`].
    pub hold_ms: Option<u64>,
    /// See [`SaleDefinition`].
    pub extend_max_ms: Option<u64>,
    /// See [`SaleDefinition`].
    pub grace_ms: Option<u64>,
    /// See [`SaleDefinition`].
    pub limit_per_user: Option<u32>,
    /// See [`SaleDefinition`].
    pub rate_per_s: Option<u32>,
    /// See [`SaleDefinition`].
    pub burst: Option<u32>,
    /// See [`SaleDefinition`].
    pub user_rate_per_s: Option<u32>,
    /// See [`SaleDefinition`].
    pub revive: Option<bool>,
    /// SKUs to add or change; those not named stay.
    pub skus: Vec<SkuPatch>,
}

impl SalePatch {
    /// A patch that says nothing but the sale.
    pub const fn new(sale: SaleId) -> Self {
        Self {
            sale,
            name: None,
            opens_at: None,
            closes_at: None,
            hold_ms: None,
            extend_max_ms: None,
            grace_ms: None,
            limit_per_user: None,
            rate_per_s: None,
            burst: None,
            user_rate_per_s: None,
            revive: None,
            skus: Vec::new(),
        }
    }

    /// Sets what it says of the sale; its SKUs are left to the caller, who may refuse them.
    pub fn apply(&self, sale: &mut SaleDefinition) {
        set(&mut sale.name, &self.name);
        // `now` was fixed when the sale was put first.
        if let Some(OpensAt::At(at)) = self.opens_at {
            sale.opens_at = at;
        }
        set(&mut sale.closes_at, &self.closes_at);
        set(&mut sale.hold_ms, &self.hold_ms);
        set(&mut sale.extend_max_ms, &self.extend_max_ms);
        set(&mut sale.grace_ms, &self.grace_ms);
        set(&mut sale.limit_per_user, &self.limit_per_user);
        set(&mut sale.rate_per_s, &self.rate_per_s);
        set(&mut sale.burst, &self.burst);
        set(&mut sale.user_rate_per_s, &self.user_rate_per_s);
        set(&mut sale.revive, &self.revive);
    }
}
