//! `sale put` of the fake engine: a patch merged into what there is.

use super::engine::Engine;
use stockade_protocol::reply::SalePutReply;
use stockade_protocol::sale::{OpensAt, SkuPatch};
use stockade_protocol::{Outcome, SaleDefinition, SalePatch, SkuDefinition};

impl Engine {
    pub(super) fn put(&mut self, patch: &SalePatch) -> SalePutReply {
        let told = |outcome, why: &str| SalePutReply {
            outcome,
            sale: Some(patch.sale),
            why: why.to_owned(),
        };
        let before = self.definition(patch.sale).cloned();
        let mut definition = before.clone().unwrap_or_else(|| empty(patch, self.now()));
        merge(patch, &mut definition, before.is_none());
        for sku in &patch.skus {
            let known = definition.skus.iter_mut().find(|known| known.sku == sku.sku);
            let merged = match (known, sku.stock) {
                (Some(known), stock) if stock.is_none_or(|stock| stock == known.stock) => {
                    merge_sku(sku, known);
                    continue;
                }
                (Some(_), _) => {
                    return told(Outcome::BadRequest, "the stock was put before: use adjust");
                }
                (None, None) => return told(Outcome::BadRequest, "a new SKU needs a stock"),
                (None, Some(stock)) => SkuDefinition {
                    sku: sku.sku,
                    stock,
                    limit_per_user: sku.limit_per_user.unwrap_or(0),
                    max_per_order: sku.max_per_order.unwrap_or(0),
                    labels: sku.labels.clone().unwrap_or_default(),
                },
            };
            definition.skus.push(merged);
        }
        definition.skus.sort_by_key(|sku| sku.sku);
        let outcome = match &before {
            Some(before) if *before == definition => return told(Outcome::Unchanged, ""),
            Some(_) => Outcome::Changed,
            None => Outcome::Created,
        };
        self.define(definition);
        told(outcome, "")
    }
}

fn empty(patch: &SalePatch, now: stockade_protocol::ids::TimestampMs) -> SaleDefinition {
    SaleDefinition {
        sale: patch.sale,
        name: String::new(),
        opens_at: now,
        closes_at: None,
        hold_ms: SaleDefinition::HOLD_MS_DEFAULT,
        extend_max_ms: 0,
        grace_ms: SaleDefinition::GRACE_MS_DEFAULT,
        limit_per_user: 0,
        rate_per_s: 0,
        burst: 0,
        user_rate_per_s: 0,
        revive: false,
        skus: Vec::new(),
    }
}

fn merge(patch: &SalePatch, definition: &mut SaleDefinition, is_new: bool) {
    fn set<T: Clone>(to: &mut T, from: &Option<T>) {
        if let Some(value) = from {
            *to = value.clone();
        }
    }
    set(&mut definition.name, &patch.name);
    match patch.opens_at {
        Some(OpensAt::At(at)) => definition.opens_at = at,
        // Fixed at the first put.
        Some(OpensAt::Now) | None => debug_assert!(is_new || definition.opens_at.get() > 0),
    }
    set(&mut definition.closes_at, &patch.closes_at);
    set(&mut definition.hold_ms, &patch.hold_ms);
    set(&mut definition.extend_max_ms, &patch.extend_max_ms);
    set(&mut definition.grace_ms, &patch.grace_ms);
    set(&mut definition.limit_per_user, &patch.limit_per_user);
    set(&mut definition.rate_per_s, &patch.rate_per_s);
    set(&mut definition.burst, &patch.burst);
    set(&mut definition.user_rate_per_s, &patch.user_rate_per_s);
    set(&mut definition.revive, &patch.revive);
}

fn merge_sku(patch: &SkuPatch, known: &mut SkuDefinition) {
    if let Some(limit) = patch.limit_per_user {
        known.limit_per_user = limit;
    }
    if let Some(max) = patch.max_per_order {
        known.max_per_order = max;
    }
    if let Some(labels) = &patch.labels {
        known.labels = labels.clone();
    }
}
