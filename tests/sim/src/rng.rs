//! The one source of chance: everything that happens in a run follows from its seed.

use std::hash::{BuildHasherDefault, Hasher};
use stockade_protocol::routing::mix;

/// A splitmix64 sequence.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The sequence of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(mix(seed ^ 0x5851_F42D_4C95_7F2D))
    }

    /// The next 64 bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// Below `bound`, which is not 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.bits() >> 32) * bound) >> 32
    }

    /// From `least` to `most`, both inclusive.
    pub const fn range(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// True so many times in a thousand.
    pub const fn per_mille(&mut self, count: u64) -> bool {
        self.below(1000) < count
    }

    /// One of them.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// A sequence of its own, so that one part of the world drawing more does not move another.
    pub const fn fork(&mut self) -> Self {
        Self::new(self.bits())
    }
}

/// Hashes with the same result in every process, so that maps never bring chance in.
#[derive(Clone, Copy, Default, Debug)]
pub struct PlainHasher(u64);

impl Hasher for PlainHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517C_C1B7_2722_0A95);
        self.0 ^= self.0 >> 29;
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_u16(&mut self, word: u16) {
        self.write_u64(u64::from(word));
    }

    fn write_u8(&mut self, word: u8) {
        self.write_u64(u64::from(word));
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}

/// A map whose hash is the same in every process.
pub type Map<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<PlainHasher>>;

/// A running fold of everything that was observed: two runs of a seed must end with the same one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0x0123_4567_89AB_CDEF)
    }
}

impl Digest {
    /// Adds a number.
    pub const fn add(&mut self, word: u64) {
        self.0 = mix(self.0.rotate_left(7) ^ word);
    }

    /// Adds bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        let mut hasher = PlainHasher(bytes.len() as u64);
        hasher.write(bytes);
        self.add(hasher.finish());
    }

    /// The digest so far.
    pub const fn get(self) -> u64 {
        self.0
    }
}
