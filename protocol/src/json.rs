//! JSON forms: sale files in; events, sales, orders and answers out.
//!
//! Ids of users, SKUs, orders and requests are strings on output, and strings or numbers on input;
//! a sale is a number both ways. Times are milliseconds since the epoch.

mod answer;
mod event;
mod moment;
mod sale_file;

pub use answer::{
    order_reply, order_view, reserve_reply, sale_summary, sale_view, sale_view_to_json, sku_view,
    user_view,
};
pub use event::{entry_to_json, entry_to_value, gap_to_json};
pub use moment::{format_rfc3339, parse_rfc3339};
pub use sale_file::{
    SALE_FILE_BYTES_MAX, sale_definition_to_value, sale_patch, sale_patch_from_value,
    sale_patch_to_json,
};
