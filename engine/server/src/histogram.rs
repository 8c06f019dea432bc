//! A histogram of fixed size that many threads may add to: powers of two, relaxed counters.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

/// Buckets: values below 2^0, 2^1, ... 2^27, and everything above.
const BUCKETS: usize = 28;

/// See the module.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    above: AtomicU64,
    sum: AtomicU64,
}

impl Histogram {
    /// Counts one value.
    pub fn add(&self, value: u64) {
        let bits = (u64::BITS - value.leading_zeros()) as usize;
        self.buckets.get(bits).unwrap_or(&self.above).fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Appends the series in Prometheus form. Bounds are multiplied by `unit`; `labels` may be
    /// empty.
    pub fn render(&self, name: &str, labels: &str, unit: f64, out: &mut String) {
        let comma = if labels.is_empty() { "" } else { "," };
        let mut total = 0;
        for (bits, bucket) in self.buckets.iter().enumerate() {
            total += bucket.load(Ordering::Relaxed);
            // A bucket of `bits` bits holds integers up to 2^bits - 1.
            let bound = ((1u64 << bits) - 1) as f64 * unit;
            let _ = writeln!(out, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {total}");
        }
        total += self.above.load(Ordering::Relaxed);
        let sum = self.sum.load(Ordering::Relaxed) as f64 * unit;
        let _ = writeln!(out, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {total}");
        let braces = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let _ = writeln!(out, "{name}_sum{braces} {sum}");
        let _ = writeln!(out, "{name}_count{braces} {total}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_the_last_holds_all() {
        let histogram = Histogram::default();
        for value in [0, 1, 2, 3, u64::from(u32::MAX)] {
            histogram.add(value);
        }
        let mut out = String::new();
        histogram.render("x", "", 1.0, &mut out);
        for line in [
            "x_bucket{le=\"0\"} 1",
            "x_bucket{le=\"1\"} 2",
            "x_bucket{le=\"3\"} 4",
            "x_bucket{le=\"134217727\"} 4",
            "x_bucket{le=\"+Inf\"} 5",
            "x_sum 4294967301",
            "x_count 5",
        ] {
            assert!(out.lines().any(|have| have == line), "{line} is not in\n{out}");
        }
    }
}
