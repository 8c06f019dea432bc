//! Every bound that commands, entries and definitions obey, in one place.

/// Lines of one order.
pub const LINES_MAX: usize = 64;
/// Opaque bytes that travel with an order.
pub const DATA_BYTES_MAX: usize = 512;
/// Bytes of a request id that is text.
pub const REQUEST_TEXT_BYTES_MAX: usize = 64;
/// Bytes of a payment reference or a reason.
pub const TEXT_BYTES_MAX: usize = 128;
/// Payment references remembered for one order; confirms with further ones are `refused`.
pub const PAYMENTS_PER_ORDER_MAX: usize = 16;
/// Withdraw tombstones of one user in one sale.
pub const TOMBSTONES_MAX: usize = 64;
/// Partial returns of one order.
pub const RETURNS_PER_ORDER_MAX: usize = 64;
/// Sales that are not archived, at the same time.
pub const SALES_MAX: usize = 4096;
/// SKUs of one sale.
pub const SKUS_PER_SALE_MAX: usize = 20_000;
/// Labels of one SKU.
pub const LABELS_PER_SKU_MAX: usize = 16;
/// Bytes of a label's name, and of its value.
pub const LABEL_BYTES_MAX: usize = 128;
/// Bytes of a sale's name.
pub const NAME_BYTES_MAX: usize = 256;
/// Bytes of one encoded log entry, its header included.
pub const ENTRY_BYTES_MAX: usize = 4 << 20;
/// Adjust request ids remembered for one sale; further adjusts are `refused`.
pub const ADJUSTS_PER_SALE_MAX: usize = 100_000;
/// Longest time span that a definition may name, in ms: ten years.
pub const SPAN_MS_MAX: u64 = 10 * 366 * 24 * 3600 * 1000;
/// Latest moment that a definition may name, ms since the epoch: the year 2500.
pub const MOMENT_MS_MAX: u64 = 16_725_225_600_000;
/// Named consumers of the feed.
pub const CONSUMERS_MAX: usize = 64;
/// Bytes of a consumer's name (letters, digits, `-`, `_`, `.`).
pub const CONSUMER_NAME_BYTES_MAX: usize = 64;
/// Orders of one page of `order list`.
pub const ORDER_PAGE_MAX: u32 = 1000;

const _: () = assert!(LINES_MAX * 16 + DATA_BYTES_MAX < ENTRY_BYTES_MAX);
