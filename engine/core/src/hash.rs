//! Hashing inside a shard: fixed (the same inputs give the same tables, no operating system
//! randomness) and independent of the hash that routes users to partitions, whose top bits are used
//! up here.

use core::hash::{BuildHasher, Hasher};
use hashbrown::HashMap;

/// A map with the fixed hash. Nothing observable may depend on its order.
pub(crate) type FixedMap<K, V> = HashMap<K, V, FixedState>;

/// A set with the fixed hash.
pub(crate) type FixedSet<K> = hashbrown::HashSet<K, FixedState>;

// Digits of pi: odd, without a pattern, and not the constants of the routing hash.
const A: u64 = 0x243F_6A88_85A3_08D3;
const B: u64 = 0x1319_8A2E_0370_7345;

/// Multiplies to 128 bits and folds the halves together.
const fn fold(a: u64, b: u64) -> u64 {
    let wide = (a as u128).wrapping_mul(b as u128);
    (wide as u64) ^ ((wide >> 64) as u64)
}

/// The hash of a pair of numbers.
pub(crate) const fn hash_pair(a: u64, b: u64) -> u64 {
    fold(fold(a ^ A, B) ^ b, A)
}

/// The hash of three numbers.
pub(crate) const fn hash_triple(a: u64, b: u64, c: u64) -> u64 {
    fold(hash_pair(a, b) ^ c, B)
}

/// Builds [`FixedHasher`]s.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct FixedState;

impl BuildHasher for FixedState {
    type Hasher = FixedHasher;

    fn build_hasher(&self) -> FixedHasher {
        FixedHasher(A)
    }
}

/// A hasher for the plain numbers that ids are made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FixedHasher(u64);

impl Hasher for FixedHasher {
    fn finish(&self) -> u64 {
        fold(self.0, A)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0u8; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = fold(self.0 ^ value, B);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequential_ids_spread_over_low_and_high_bits() {
        let (mut low, mut high) = ([0u32; 64], [0u32; 64]);
        for n in 0..64_000u64 {
            let hash = hash_triple(7, n, 1);
            low[(hash & 63) as usize] += 1;
            high[(hash >> 58) as usize] += 1;
        }
        for count in low.iter().chain(&high) {
            assert!((800..1200).contains(count), "{count}");
        }
    }
}
