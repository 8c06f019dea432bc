//! `sale put` of the fake engine: a patch merged into what there is.

use super::engine::Engine;
use stockade_protocol::reply::SalePutReply;
use stockade_protocol::{Outcome, SaleDefinition, SalePatch};

impl Engine {
    pub(super) fn put(&mut self, patch: &SalePatch) -> SalePutReply {
        let told = |outcome, why: &str| SalePutReply {
            outcome,
            sale: Some(patch.sale),
            why: why.to_owned(),
        };
        let before = self.definition(patch.sale).cloned();
        let fresh = || SaleDefinition::new(patch.sale, self.now());
        let mut definition = before.clone().unwrap_or_else(fresh);
        patch.apply(&mut definition);
        for sku in &patch.skus {
            let known = definition.skus.iter_mut().find(|known| known.sku == sku.sku);
            let merged = match (known, sku.stock) {
                (Some(known), stock) if stock.is_none_or(|stock| stock == known.stock) => {
                    sku.apply(known);
                    continue;
                }
                (Some(_), _) => {
                    return told(Outcome::BadRequest, "the stock was put before: use adjust");
                }
                (None, None) => return told(Outcome::BadRequest, "a new SKU needs a stock"),
                (None, Some(stock)) => sku.define(stock),
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
