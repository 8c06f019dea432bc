//! What `put` makes of a sale: the patch merged with the definition as it stands, and checked.
//!
//! Every refusal is one plain sentence that names the key at fault.

use super::Window;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::image::SaleImage;
use stockade_protocol::limits::{
    ENTRY_BYTES_MAX, LABEL_BYTES_MAX, LABELS_PER_SKU_MAX, MOMENT_MS_MAX, NAME_BYTES_MAX,
    SKUS_PER_SALE_MAX, SPAN_MS_MAX,
};
use stockade_protocol::sale::{Labels, SkuPatch};
use stockade_protocol::text::check;
use stockade_protocol::{SaleDefinition, SalePatch, SaleState, SkuDefinition};

/// The definition after the patch.
pub(super) fn merge(
    old: Option<&SaleImage>,
    patch: &SalePatch,
    now: TimestampMs,
) -> Result<SaleDefinition, String> {
    let mut next = match old {
        Some(sale) => sale.definition.clone(),
        None => SaleDefinition::new(patch.sale, now),
    };
    patch.apply(&mut next);
    merge_skus(&mut next, &patch.skus)?;
    validate(&next)?;
    if let Some(sale) = old {
        let window = |definition: &SaleDefinition| Window {
            opens_at: definition.opens_at,
            closes_at: definition.closes_at,
            closed_by_hand: sale.closed_at.is_some(),
            paused: sale.paused,
        };
        let ended = |definition| window(definition).state(now) == SaleState::Ended;
        if ended(&sale.definition) && !ended(&next) {
            return Err("the sale has ended; a put cannot open it again".into());
        }
    }
    Ok(next)
}

fn merge_skus(next: &mut SaleDefinition, patches: &[SkuPatch]) -> Result<(), String> {
    let mut patches: Vec<&SkuPatch> = patches.iter().collect();
    patches.sort_by_key(|patch| patch.sku);
    if let Some(pair) = patches.windows(2).find(|pair| pair[0].sku == pair[1].sku) {
        return Err(format!("sku {} is named twice", pair[0].sku));
    }
    let mut fresh = Vec::new();
    for patch in patches {
        let labels = patch.labels.as_ref().map(|labels| sorted(patch, labels)).transpose()?;
        let patch = SkuPatch { labels, ..patch.clone() };
        match next.skus.binary_search_by_key(&patch.sku, |known| known.sku) {
            Ok(index) => {
                let known = &mut next.skus[index];
                if let Some(stock) = patch.stock.filter(|stock| *stock != known.stock) {
                    return Err(format!(
                        "stock of sku {} was first put as {}, not {stock}; change it with adjust",
                        patch.sku, known.stock
                    ));
                }
                patch.apply(known);
            }
            Err(_) => {
                let Some(stock) = patch.stock else {
                    return Err(format!("sku {} is new and needs a stock", patch.sku));
                };
                fresh.push(patch.define(stock));
            }
        }
    }
    next.skus.append(&mut fresh);
    next.skus.sort_by_key(|sku| sku.sku);
    Ok(())
}

fn sorted(patch: &SkuPatch, labels: &Labels) -> Result<Labels, String> {
    let sku = patch.sku;
    if labels.len() > LABELS_PER_SKU_MAX {
        return Err(format!("sku {sku} has more than {LABELS_PER_SKU_MAX} labels"));
    }
    let mut labels = labels.clone();
    labels.sort();
    if let Some(pair) = labels.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(format!("label {} of sku {sku} is named twice", pair[0].0));
    }
    for (name, value) in &labels {
        let name = check("the name of a label", name.as_bytes(), 1, LABEL_BYTES_MAX);
        let value = check("the value of a label", value.as_bytes(), 0, LABEL_BYTES_MAX);
        name.and(value).map_err(|error| format!("sku {sku}: {error}"))?;
    }
    Ok(labels)
}

fn validate(next: &SaleDefinition) -> Result<(), String> {
    check("name", next.name.as_bytes(), 0, NAME_BYTES_MAX).map_err(|error| format!("{error}"))?;
    let moments = [("opens_at", Some(next.opens_at)), ("closes_at", next.closes_at)];
    for (key, at) in moments {
        if at.is_some_and(|at| at == TimestampMs::NONE || at.get() > MOMENT_MS_MAX) {
            return Err(format!("{key} must be a moment from 1970 to the year 2500"));
        }
    }
    if next.closes_at.is_some_and(|closes_at| closes_at <= next.opens_at) {
        return Err("closes_at must be after opens_at".into());
    }
    let spans = [
        ("hold_ms", next.hold_ms),
        ("extend_max_ms", next.extend_max_ms),
        ("grace_ms", next.grace_ms),
    ];
    if let Some((key, _)) = spans.iter().find(|(_, span)| *span > SPAN_MS_MAX) {
        return Err(format!("{key} must be {SPAN_MS_MAX} (ten years) at most"));
    }
    if next.skus.len() > SKUS_PER_SALE_MAX {
        return Err(format!("a sale has {SKUS_PER_SALE_MAX} SKUs at most"));
    }
    if entry_bytes(next) > ENTRY_BYTES_MAX {
        return Err(format!("the definition is larger than {ENTRY_BYTES_MAX} bytes"));
    }
    Ok(())
}

/// What the definition's log entry takes, a little rounded up.
fn entry_bytes(definition: &SaleDefinition) -> usize {
    let label = |(name, value): &(String, String)| 4 + name.len() + value.len();
    let sku = |sku: &SkuDefinition| 24 + sku.labels.iter().map(label).sum::<usize>();
    128 + definition.name.len() + definition.skus.iter().map(sku).sum::<usize>()
}
