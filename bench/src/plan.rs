//! From baskets to a sale: stock, limits, and what each buyer will do. Everything follows from the
//! data and the seed.

use crate::baskets::Basket;
use std::collections::BTreeMap;
use stockade_client::protocol::command::{Line, Lines, Reserve};
use stockade_client::protocol::limits::LINES_MAX;
use stockade_client::protocol::routing::mix;
use stockade_client::protocol::sale::{OpensAt, SkuPatch};
use stockade_client::protocol::{RequestId, SaleId, SalePatch, SkuId, UserId};

/// The one sale of the demo.
pub const SALE: u64 = 1;

/// What a buyer does with a held order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Pays.
    Pay,
    /// Pays, and later brings something back.
    PayAndReturn,
    /// Changes their mind.
    Cancel,
    /// Is not sure whether the request arrived and withdraws it.
    Withdraw,
    /// Never pays.
    Forget,
}

/// One order to be tried.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// As the buyer sends it first; lines with quantity 0 included.
    pub reserve: Reserve,
    /// Without lines of quantity 0, where there were some.
    pub mended: Option<Reserve>,
    /// What the buyer does then.
    pub fate: Fate,
}

/// The whole sale.
#[derive(Debug)]
pub struct Plan {
    /// The sale file.
    pub patch: SalePatch,
    /// Stock by SKU.
    pub stock: BTreeMap<u64, u32>,
    /// Units of one SKU that one user may have.
    pub limit: u32,
    /// Orders, in the order of the baskets.
    pub attempts: Vec<Attempt>,
    /// Baskets that ask for nothing at all (all lines 0).
    pub empty: u64,
    /// Baskets with more lines than an order may have, tried as several orders.
    pub split: u64,
    /// Lines with quantity 0.
    pub zero_lines: u64,
}

/// Settings of a plan.
#[derive(Clone, Copy, Debug)]
pub struct PlanSettings {
    /// Which part of the demand is in stock.
    pub stock_share: f64,
    /// Units of one SKU that one user may have.
    pub limit: u32,
    /// How long an order holds its units, ms.
    pub hold_ms: u64,
    /// Decides the fates.
    pub seed: u64,
}

/// Makes the plan.
///
/// # Errors
/// A number in the baskets that the engine cannot take.
pub fn plan(baskets: &[Basket], settings: PlanSettings) -> Result<Plan, String> {
    let mut demand = BTreeMap::<u64, u64>::new();
    for line in baskets.iter().flat_map(|basket| &basket.lines) {
        *demand.entry(line.sku).or_default() += u64::from(line.quantity);
    }
    let part = |units: u64| ((units as f64 * settings.stock_share) as u64).clamp(1, 1 << 31);
    let stock: BTreeMap<u64, u32> =
        demand.iter().map(|(sku, units)| (*sku, part(*units) as u32)).collect();
    let sale = SaleId::new(SALE).ok_or("the sale")?;
    let mut patch = SalePatch::new(sale);
    patch.name = Some("baskets".into());
    patch.opens_at = Some(OpensAt::Now);
    patch.hold_ms = Some(settings.hold_ms);
    for (sku, units) in &stock {
        patch.skus.push(SkuPatch {
            sku: SkuId::new(*sku).ok_or_else(|| format!("sku {sku} is out of range"))?,
            stock: Some(*units),
            limit_per_user: Some(settings.limit),
            max_per_order: None,
            labels: None,
        });
    }
    let mut plan = Plan {
        patch,
        stock,
        limit: settings.limit,
        attempts: Vec::new(),
        empty: 0,
        split: 0,
        zero_lines: 0,
    };
    for basket in baskets {
        plan.add(basket, settings.seed)?;
    }
    Ok(plan)
}

impl Plan {
    fn add(&mut self, basket: &Basket, seed: u64) -> Result<(), String> {
        self.split += u64::from(basket.lines.len() > LINES_MAX);
        for (part, lines) in basket.lines.chunks(LINES_MAX).enumerate() {
            let zeros = lines.iter().filter(|line| line.quantity == 0).count();
            self.zero_lines += zeros as u64;
            let text = match part {
                0 => basket.id.to_string(),
                part => format!("{}/{part}", basket.id),
            };
            let range = |what: &str| format!("basket {}: {what} is out of range", basket.id);
            let line = |line: &crate::baskets::BasketLine| {
                let sku = SkuId::new(line.sku).ok_or_else(|| range("sku"))?;
                Ok::<_, String>(Line { sku, quantity: line.quantity })
            };
            let lines = lines.iter().map(line).collect::<Result<Lines, _>>()?;
            let reserve = Reserve {
                sale: SaleId::new(SALE).ok_or_else(|| range("sale"))?,
                user: UserId::new(basket.user).ok_or_else(|| range("user"))?,
                request: RequestId::parse(text.as_bytes()).map_err(|e| e.to_string())?,
                lines,
                data: Default::default(),
                not_after: None,
            };
            let mut mended = None;
            if zeros > 0 {
                let mut without = reserve.clone();
                without.lines.retain(|line| line.quantity > 0);
                if without.lines.is_empty() {
                    self.empty += 1;
                } else {
                    mended = Some(without);
                }
            }
            let fate = fate(mix(basket.id ^ mix(seed)) % 100);
            self.attempts.push(Attempt { reserve, mended, fate });
        }
        Ok(())
    }
}

fn fate(percent: u64) -> Fate {
    match percent {
        0..70 => Fate::Pay,
        70..76 => Fate::PayAndReturn,
        76..86 => Fate::Cancel,
        86..90 => Fate::Withdraw,
        _ => Fate::Forget,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baskets::BasketLine;

    #[test]
    fn stock_is_a_part_of_the_demand_and_at_least_one() {
        let line = |sku, quantity| BasketLine { sku, quantity };
        let baskets = [
            Basket { id: 1, user: 1, lines: vec![line(5, 7), line(6, 1)] },
            Basket { id: 2, user: 2, lines: vec![line(5, 4), line(6, 0)] },
            Basket { id: 3, user: 2, lines: vec![line(6, 0)] },
            Basket { id: 4, user: 2, lines: vec![line(5, 1); 65] },
        ];
        let settings = PlanSettings { stock_share: 0.5, limit: 3, hold_ms: 1, seed: 1 };
        let plan = plan(&baskets, settings).unwrap();
        assert_eq!(plan.stock, BTreeMap::from([(5, 38), (6, 1)]));
        assert_eq!((plan.empty, plan.split, plan.zero_lines), (1, 1, 2));
        assert_eq!(plan.attempts.len(), 5);
        assert_eq!(plan.attempts[1].mended.as_ref().unwrap().lines.len(), 1);
        assert!(plan.attempts[2].mended.is_none());
    }
}
