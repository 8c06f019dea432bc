//! Which partition a user belongs to: the same in every language (see `protocol/SPEC.md`).

use crate::ids::{PartitionId, UserId};

/// Added to the user before mixing, so that small ids do not start at 0.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// The finaliser of splitmix64.
pub const fn mix(mut z: u64) -> u64 {
    z ^= z >> 30;
    z = z.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z ^= z >> 27;
    z = z.wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The partition that owns a user's orders, limits and request ids.
///
/// `partition_count` is 1..=1024 and fixed when the data directory is made.
pub const fn partition_of(user: UserId, partition_count: u16) -> PartitionId {
    let h = mix(user.get().wrapping_add(GOLDEN));
    // (2^32 - 1) * 1024 fits 64 bits, and the result is below the count.
    PartitionId::new((((h >> 32) * partition_count as u64) >> 32) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_even_for_sequential_users() {
        let mut counts = [0u32; 64];
        for user in 1..=64_000u64 {
            counts[partition_of(UserId::new(user).unwrap(), 64).get() as usize] += 1;
        }
        assert!(counts.iter().all(|&count| (850..1150).contains(&count)), "{counts:?}");
    }
}
