//! Sale files: exactly the documented keys, each checked, with one plain sentence for what is
//! wrong.

use super::moment::parse_rfc3339;
use crate::ids::{SaleId, SkuId, TimestampMs};
use crate::limits::SKUS_PER_SALE_MAX;
use crate::sale::{Labels, OpensAt, SaleDefinition, SalePatch, SkuPatch};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde_json::{Map, Value, json};

/// Largest sale file.
pub const SALE_FILE_BYTES_MAX: usize = 4 << 20;

/// Letters of a refused value that its sentence repeats.
const TEXT_SHOWN_MAX: usize = 64;

const SALE_KEYS: [&str; 13] = [
    "sale",
    "name",
    "opens_at",
    "closes_at",
    "hold_ms",
    "extend_max_ms",
    "grace_ms",
    "limit_per_user",
    "rate_per_s",
    "burst",
    "user_rate_per_s",
    "revive",
    "skus",
];
const SKU_KEYS: [&str; 5] = ["sku", "stock", "limit_per_user", "max_per_order", "labels"];

/// Reads a sale file (JSON text). Unknown keys are refused with a suggestion.
///
/// # Errors
/// One plain sentence that names the key.
pub fn sale_patch(text: &str) -> Result<SalePatch, String> {
    if text.len() > SALE_FILE_BYTES_MAX {
        return Err(format!("the sale file is larger than {SALE_FILE_BYTES_MAX} bytes"));
    }
    let value = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
    sale_patch_from_value(&value)
}

/// As [`sale_patch`], for a value that came from another format (TOML).
///
/// # Errors
/// One plain sentence that names the key.
pub fn sale_patch_from_value(value: &Value) -> Result<SalePatch, String> {
    let object = value.as_object().ok_or("a sale file must be an object")?;
    only_known(object, &SALE_KEYS, "")?;
    let sale = object.get("sale").ok_or("sale is missing")?;
    let sale = sale.as_u64().and_then(SaleId::new);
    let mut patch = SalePatch::new(sale.ok_or("sale must be a number from 1 to 2^63-1")?);
    patch.name = get(object, "name", |value| {
        value.as_str().map(String::from).ok_or_else(|| "must be a text".into())
    })?;
    patch.opens_at = get(object, "opens_at", |value| match value {
        Value::String(text) if text == "now" => Ok(OpensAt::Now),
        value => moment(value).map(OpensAt::At),
    })?;
    patch.closes_at = match object.get("closes_at") {
        Some(Value::Null) => Some(None),
        _ => get(object, "closes_at", |value| moment(value).map(Some))?,
    };
    patch.hold_ms = get(object, "hold_ms", whole_u64)?;
    patch.extend_max_ms = get(object, "extend_max_ms", whole_u64)?;
    patch.grace_ms = get(object, "grace_ms", whole_u64)?;
    patch.limit_per_user = get(object, "limit_per_user", whole_u32)?;
    patch.rate_per_s = get(object, "rate_per_s", whole_u32)?;
    patch.burst = get(object, "burst", whole_u32)?;
    patch.user_rate_per_s = get(object, "user_rate_per_s", whole_u32)?;
    patch.revive = get(object, "revive", |value| {
        value.as_bool().ok_or_else(|| "must be true or false".into())
    })?;
    if let Some(skus) = object.get("skus") {
        let skus = skus.as_array().ok_or("skus must be a list")?;
        patch.skus = sku_patches(skus)?;
    }
    Ok(patch)
}

fn sku_patches(list: &[Value]) -> Result<Vec<SkuPatch>, String> {
    if list.len() > SKUS_PER_SALE_MAX {
        return Err(format!("a sale has at most {SKUS_PER_SALE_MAX} skus"));
    }
    let mut seen = BTreeSet::new();
    let mut patches = Vec::with_capacity(list.len());
    for (index, value) in list.iter().enumerate() {
        let object = value.as_object().ok_or_else(|| format!("skus[{index}] must be an object"))?;
        let id = object.get("sku").ok_or_else(|| format!("skus[{index}]: sku is missing"))?;
        let sku = id_number(id)
            .and_then(SkuId::new)
            .ok_or_else(|| format!("skus[{index}]: sku must be a number from 1 to 2^63-1"))?;
        let place = format!("sku {sku}: ");
        only_known(object, &SKU_KEYS, &place)?;
        if !seen.insert(sku) {
            return Err(format!("sku {sku} is there twice"));
        }
        let named = |error: String| format!("{place}{error}");
        patches.push(SkuPatch {
            sku,
            stock: get(object, "stock", whole_u32).map_err(named)?,
            limit_per_user: get(object, "limit_per_user", whole_u32).map_err(named)?,
            max_per_order: get(object, "max_per_order", whole_u32).map_err(named)?,
            labels: get(object, "labels", labels).map_err(named)?,
        });
    }
    Ok(patches)
}

fn get<T>(
    object: &Map<String, Value>,
    key: &str,
    read: impl FnOnce(&Value) -> Result<T, String>,
) -> Result<Option<T>, String> {
    object.get(key).map(read).transpose().map_err(|error| format!("{key} {error}"))
}

fn whole_u64(value: &Value) -> Result<u64, String> {
    value.as_u64().ok_or_else(|| format!("must be a whole number from 0 on, not {}", shown(value)))
}

fn whole_u32(value: &Value) -> Result<u32, String> {
    let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
    number
        .ok_or_else(|| format!("must be a whole number from 0 to 4294967295, not {}", shown(value)))
}

fn moment(value: &Value) -> Result<TimestampMs, String> {
    let at = match value {
        Value::Number(_) => whole_u64(value).map(TimestampMs::new)?,
        Value::String(text) => parse_rfc3339(text)?,
        _ => {
            let value = shown(value);
            return Err(format!("must be a moment with an offset, or ms since 1970, not {value}"));
        }
    };
    // The epoch itself stands for "none" elsewhere.
    if at == TimestampMs::NONE { Err("must be later than 1970".into()) } else { Ok(at) }
}

/// A value for a sentence, and no longer than one.
fn shown(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
        Value::String(text) => format!("{:?}", cut(text)),
        other => other.to_string(),
    }
}

/// At most the first letters of a text.
pub(super) fn cut(text: &str) -> String {
    match text.char_indices().nth(TEXT_SHOWN_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.into(),
    }
}

fn labels(value: &Value) -> Result<Labels, String> {
    let object = value.as_object().ok_or("must be an object of texts")?;
    let mut labels = Labels::new();
    for (name, value) in object {
        let text = value.as_str().ok_or_else(|| format!("must be texts, {} is not", cut(name)))?;
        labels.push((name.clone(), text.into()));
    }
    labels.sort();
    Ok(labels)
}

/// An id as a number, or as a decimal text without sign, spaces and leading zeros.
pub(super) fn id_number(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => {
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            let plain = digits && !text.is_empty() && (!text.starts_with('0') || text == "0");
            if plain { text.parse().ok() } else { None }
        }
        _ => None,
    }
}

fn only_known(object: &Map<String, Value>, known: &[&str], place: &str) -> Result<(), String> {
    for key in object.keys() {
        if known.contains(&key.as_str()) {
            continue;
        }
        let nearest = known.iter().map(|known| (distance(key, known), known)).min();
        return Err(match nearest {
            Some((steps, nearest)) if steps <= 3.max(key.len() / 3) => {
                format!("{place}unknown key {:?}; did you mean {nearest:?}?", cut(key))
            }
            _ => format!("{place}unknown key {:?}; known are {}", cut(key), known.join(", ")),
        });
    }
    Ok(())
}

/// How many letters must be changed, added or dropped.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// A sale file as JSON text (the reverse of [`sale_patch`]).
pub fn sale_patch_to_json(patch: &SalePatch) -> String {
    let mut object = Map::new();
    object.insert("sale".into(), json!(patch.sale.get()));
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            object.insert(key.into(), value);
        }
    };
    put("name", patch.name.as_ref().map(|name| json!(name)));
    put(
        "opens_at",
        patch.opens_at.map(|at| match at {
            OpensAt::Now => json!("now"),
            OpensAt::At(at) => json!(at.get()),
        }),
    );
    put("closes_at", patch.closes_at.map(|at| json!(at.map(TimestampMs::get))));
    put("hold_ms", patch.hold_ms.map(Value::from));
    put("extend_max_ms", patch.extend_max_ms.map(Value::from));
    put("grace_ms", patch.grace_ms.map(Value::from));
    put("limit_per_user", patch.limit_per_user.map(Value::from));
    put("rate_per_s", patch.rate_per_s.map(Value::from));
    put("burst", patch.burst.map(Value::from));
    put("user_rate_per_s", patch.user_rate_per_s.map(Value::from));
    put("revive", patch.revive.map(Value::from));
    let skus: Vec<Value> = patch.skus.iter().map(sku_patch_value).collect();
    put("skus", Some(Value::Array(skus)));
    Value::Object(object).to_string()
}

fn sku_patch_value(sku: &SkuPatch) -> Value {
    let mut object = Map::new();
    object.insert("sku".into(), json!(sku.sku.to_string()));
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            object.insert(key.into(), value);
        }
    };
    put("stock", sku.stock.map(Value::from));
    put("limit_per_user", sku.limit_per_user.map(Value::from));
    put("max_per_order", sku.max_per_order.map(Value::from));
    put("labels", sku.labels.as_ref().map(labels_value));
    Value::Object(object)
}

fn labels_value(labels: &Labels) -> Value {
    labels.iter().map(|(name, value)| (name.clone(), json!(value))).collect()
}

/// A definition with the keys of put.
pub fn sale_definition_to_value(d: &SaleDefinition) -> Value {
    let skus: Vec<Value> = d
        .skus
        .iter()
        .map(|sku| {
            json!({
                "sku": sku.sku.to_string(),
                "stock": sku.stock,
                "limit_per_user": sku.limit_per_user,
                "max_per_order": sku.max_per_order,
                "labels": labels_value(&sku.labels),
            })
        })
        .collect();
    json!({
        "sale": d.sale.get(),
        "name": d.name,
        "opens_at": d.opens_at.get(),
        "closes_at": d.closes_at.map(TimestampMs::get),
        "hold_ms": d.hold_ms,
        "extend_max_ms": d.extend_max_ms,
        "grace_ms": d.grace_ms,
        "limit_per_user": d.limit_per_user,
        "rate_per_s": d.rate_per_s,
        "burst": d.burst,
        "user_rate_per_s": d.user_rate_per_s,
        "revive": d.revive,
        "skus": skus,
    })
}
