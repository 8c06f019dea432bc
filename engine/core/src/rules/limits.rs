//! Limits per user and SKU, and per user and sale.

use crate::partition::{Partition, Usage};
use crate::shard::Books;
use stockade_protocol::command::Line;
use stockade_protocol::reply::LEFT_UNLIMITED;
use stockade_protocol::{SaleId, UserId};

/// What a user has and may still have of some SKUs.
#[derive(Debug)]
pub(super) struct Allowance {
    pub(super) usage: Usage,
    /// Units the user may still have, the smallest over the lines and the sale; -1 without a limit.
    pub(super) left: i64,
    /// The lines would pass a limit.
    pub(super) passed: bool,
    /// As `left`, after these lines were granted.
    pub(super) left_after: i64,
}

/// Measures `lines` (merged) against the limits. SKUs that the catalog does not have have no limit.
pub(super) fn allowance(
    books: &Books,
    partition: &Partition,
    sale: SaleId,
    user: UserId,
    lines: &[Line],
) -> Allowance {
    let book = books.find(sale).map(|index| books.sale(index));
    let rules = book.and_then(|book| book.rules);
    let usage = partition.usage(sale, user, lines);
    let (mut left, mut left_after, mut passed) = (u64::MAX, u64::MAX, false);
    let mut measure = |limit: u32, has: u64, asked: u64| {
        if limit > 0 {
            let limit = u64::from(limit);
            // Sums of u32 quantities do not reach 2^64.
            #[cfg(feature = "mutations")]
            let has = if stockade_protocol::mutation::is(
                stockade_protocol::mutation::Mutation::LimitForgetsTheRest,
            ) {
                0
            } else {
                has
            };
            passed |= has + asked > limit;
            left = left.min(limit.saturating_sub(has));
            left_after = left_after.min(limit.saturating_sub(has + asked));
        }
    };
    let mut sum = 0;
    for (line, has) in lines.iter().zip(&usage.of) {
        let asked = u64::from(line.quantity);
        sum += asked;
        if let Some((book, index)) = book.and_then(|book| Some((book, book.index_of(line.sku)?))) {
            measure(book.skus[index].limit_per_user, *has, asked);
        }
    }
    measure(rules.map_or(0, |rules| rules.limit_per_user), usage.total, sum);
    let told = |left: u64| i64::try_from(left).unwrap_or(LEFT_UNLIMITED);
    let (left, left_after) = (told(left), told(left_after));
    Allowance { usage, left, passed, left_after }
}
