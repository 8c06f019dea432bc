//! Seeded mutations: the same number gives the same bytes on every machine.

/// A generator (xorshift64*): small, seeded, good enough to choose bytes.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.number() % end as u64) as usize
    }
}

/// Values that are at the edge of something.
const EDGES: [u64; 12] =
    [0, 1, 2, 63, 64, 65, 0xFFFF, 0xFFFF_FFFF, 1 << 62, (1 << 63) - 1, 1 << 63, u64::MAX];

/// A changed copy of one of the seeds: bits, bytes and numbers replaced, pieces cut, repeated,
/// or taken from another seed. Now and then nothing but noise.
pub fn mutate(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = seeds[random.below(seeds.len())].clone();
    if random.below(16) == 0 {
        let len = random.below(96);
        return (0..len).map(|_| random.number() as u8 & random.number() as u8).collect();
    }
    for _ in 0..1 + random.below(4) {
        if bytes.is_empty() {
            bytes.push(random.number() as u8);
        }
        let at = random.below(bytes.len());
        match random.below(7) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.number() as u8,
            2 => {
                let value = EDGES[random.below(EDGES.len())].to_le_bytes();
                let width = [1, 2, 4, 8][random.below(4)].min(bytes.len() - at);
                bytes[at..at + width].copy_from_slice(&value[..width]);
            }
            3 => bytes.truncate(at),
            4 => {
                let end = (at + 1 + random.below(16)).min(bytes.len());
                bytes.drain(at..end);
            }
            5 => {
                let end = (at + 1 + random.below(16)).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            _ => {
                let other = &seeds[random.below(seeds.len())];
                if !other.is_empty() {
                    let from = random.below(other.len());
                    let end = (from + 1 + random.below(32)).min(other.len());
                    bytes.splice(at..at, other[from..end].iter().copied());
                }
            }
        }
    }
    bytes
}
