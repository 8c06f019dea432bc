//! Checksums of what the log says, bucket by bucket, to be held against those that a database
//! computed over its own rows: only buckets that differ are read row by row.
//!
//! A row is a text of its columns, joined by `|`; its hash is the first 48 bits of the text's MD5,
//! which every database has. It finds accidents and damage; it is no defence against a forger.

use super::books::Books;
use crate::stored::{Checksum, Digests, OrderStored, bucket};
use md5::{Digest as _, Md5};
use std::collections::BTreeSet;
use std::fmt::Write;

/// The checksums of a partition's orders, but for the refused ones.
pub fn digests(books: &Books, refused: &BTreeSet<i64>) -> Digests {
    let mut out = Digests::new();
    let mut text = String::new();
    for row in books.orders.values() {
        let row = OrderStored::from(row);
        if refused.contains(&row.order) {
            continue;
        }
        let digest = out.entry(bucket(row.order)).or_default();
        order_text(&row, &mut text);
        add(&mut digest.orders, &text);
        for (sku, (units, returned)) in &row.lines {
            text.clear();
            let _ = write!(text, "{}|{sku}|{units}|{returned}", row.order);
            add(&mut digest.lines, &text);
        }
    }
    out
}

fn order_text(row: &OrderStored, out: &mut String) {
    out.clear();
    let OrderStored { order, sale, user, state, request, partition, lsn, .. } = row;
    let _ = write!(out, "{order}|{sale}|{user}|{state}|{request}|");
    match &row.payment {
        Some(payment) => drop(write!(out, "={payment}|")),
        None => out.push_str("-|"),
    }
    for byte in &row.data {
        let _ = write!(out, "{byte:02x}");
    }
    let _ = write!(out, "|{partition}|{lsn}|{}|", row.created_us);
    match row.expires_us {
        Some(us) => drop(write!(out, "{us}")),
        None => out.push('-'),
    }
    let _ = write!(out, "|{}", row.updated_us);
}

fn add(checksum: &mut Checksum, text: &str) {
    let hash = Md5::digest(text.as_bytes());
    let first = hash.iter().take(6).fold(0_i128, |sum, byte| (sum << 8) | i128::from(*byte));
    checksum.count += 1;
    checksum.sum += first;
}

/// The buckets in which the two differ.
pub fn different(sql: &Digests, log: &Digests) -> BTreeSet<i64> {
    let both = sql.keys().chain(log.keys());
    both.filter(|bucket| sql.get(bucket) != log.get(bucket)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_the_first_48_bits_of_md5_and_sums_name_the_bucket() {
        let mut checksum = Checksum::default();
        add(&mut checksum, "");
        assert_eq!(checksum, Checksum { count: 1, sum: 0xd41d_8cd9_8f00 });
        let mut sql = Digests::new();
        sql.entry(3).or_default().orders = checksum;
        sql.entry(4).or_default().lines = checksum;
        let mut log = sql.clone();
        assert!(different(&sql, &log).is_empty());
        log.remove(&4);
        log.entry(5).or_default().orders = checksum;
        assert_eq!(different(&sql, &log), [4, 5].into());
    }
}
