//! JSON forms: sale files in, events and sales out. Ids of users, SKUs, orders and requests are strings on
//! output and strings or numbers on input; a sale is a number.

use crate::entry::Entry;
use crate::reply::SaleView;
use crate::sale::SalePatch;
use alloc::string::String;

/// Reads a sale file (JSON text). Unknown keys are refused with a suggestion.
///
/// # Errors
/// One plain sentence that names the key.
pub fn sale_patch(text: &str) -> Result<SalePatch, String> {
    let _ = text;
    todo!()
}

/// A sale file as JSON text (the reverse of [`sale_patch`]).
pub fn sale_patch_to_json(patch: &SalePatch) -> String {
    let _ = patch;
    todo!()
}

/// The answer of `STOCK.SALE`: the keys of put, state, server_time_ms, and per SKU its figures.
pub fn sale_view_to_json(view: &SaleView) -> String {
    let _ = view;
    todo!()
}

/// A feed event (DESIGN: one JSON object).
pub fn entry_to_json(entry: &Entry) -> String {
    let _ = entry;
    todo!()
}
