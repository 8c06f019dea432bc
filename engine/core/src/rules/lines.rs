//! Lines as callers send them, checked and brought into their one form.

use stockade_protocol::command::{Line, Lines};
use stockade_protocol::limits::LINES_MAX;

/// Lines of one SKU added together, ascending by SKU. `None` if a quantity is 0, a sum passes 2^32
/// - 1, or there are more than 64 SKUs. No line stays no line.
pub(super) fn merged(lines: &[Line]) -> Option<Lines> {
    if lines.iter().any(|line| line.quantity == 0) {
        return None;
    }
    let mut merged = Lines::from_slice(lines);
    if lines.len() < 2 {
        return Some(merged);
    }
    merged.sort_unstable_by_key(|line| line.sku);
    let mut overflow = false;
    merged.dedup_by(|line, kept| {
        let same = line.sku == kept.sku;
        if same {
            match kept.quantity.checked_add(line.quantity) {
                Some(sum) => kept.quantity = sum,
                None => overflow = true,
            }
        }
        same
    });
    (!overflow && merged.len() <= LINES_MAX).then_some(merged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stockade_protocol::SkuId;

    fn lines(pairs: &[(u64, u32)]) -> Lines {
        let line = |(sku, quantity): &(u64, u32)| Line {
            sku: SkuId::new(*sku).expect("in range"),
            quantity: *quantity,
        };
        pairs.iter().map(line).collect()
    }

    #[test]
    fn lines_of_one_sku_count_as_one() {
        let same = |given: &[(u64, u32)], expected: &[(u64, u32)]| {
            assert_eq!(merged(&lines(given)), Some(lines(expected)), "{given:?}");
        };
        same(&[], &[]);
        same(&[(1, 1)], &[(1, 1)]);
        same(&[(2, 1), (1, 3)], &[(1, 3), (2, 1)]);
        same(&[(1, 1), (2, 5), (1, 2), (1, 4)], &[(1, 7), (2, 5)]);
        same(&[(1, u32::MAX - 1), (1, 1)], &[(1, u32::MAX)]);
        let many: Vec<_> = (1..=64).rev().map(|sku| (sku, 1)).collect();
        assert_eq!(merged(&lines(&many)).expect("64 are allowed").len(), 64);
    }

    #[test]
    fn senseless_lines_are_refused() {
        let many: Vec<_> = (1..=65).map(|sku| (sku, 1)).collect();
        for bad in [&[(1, 0)][..], &[(1, 1), (2, 0)], &[(1, u32::MAX), (1, 1)], &many] {
            assert_eq!(merged(&lines(bad)), None, "{bad:?}");
        }
    }
}
