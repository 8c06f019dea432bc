//! Newtypes for every id and position, so that none can be taken for another.
//!
//! Ids are 63-bit positive integers: they fit `BIGINT` in every SQL database and a signed long in
//! Java. A value of these types is always in range; bytes and text are checked where they come in.

use core::fmt;
use core::num::NonZeroU64;

/// The largest id: 2^63 - 1.
pub const ID_MAX: u64 = i64::MAX as u64;

macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(NonZeroU64);

        impl $name {
            /// The id with this value; `None` for 0 and for values of 2^63 and more.
            pub const fn new(value: u64) -> Option<Self> {
                if value > ID_MAX {
                    return None;
                }
                match NonZeroU64::new(value) {
                    Some(value) => Some(Self(value)),
                    None => None,
                }
            }

            /// The plain number.
            pub const fn get(self) -> u64 {
                self.0.get()
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.get())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.get(), f)
            }
        }
    };
}

id_type! {
    /// A sale: a time-boxed event with its SKUs, limits and hold time.
    SaleId
}
id_type! {
    /// A sellable variant inside a sale.
    SkuId
}
id_type! {
    /// A buyer.
    UserId
}
id_type! {
    /// An order; it carries its partition, see [`OrderId::from_parts`].
    OrderId
}

/// Bits of an order id below the partition.
const ORDER_NUMBER_BITS: u32 = 53;

impl OrderId {
    /// The largest order number within a partition.
    pub const NUMBER_MAX: u64 = (1 << ORDER_NUMBER_BITS) - 1;

    /// `partition << 53 | number`; `None` if the number is 0 or too large, or the partition is not
    /// one of users (1,024 and above).
    pub const fn from_parts(partition: PartitionId, number: u64) -> Option<Self> {
        if number == 0 || number > Self::NUMBER_MAX || partition.get() >= PartitionId::COUNT_MAX {
            return None;
        }
        Self::new((partition.get() as u64) << ORDER_NUMBER_BITS | number)
    }

    /// The partition that owns the order.
    pub const fn partition(self) -> PartitionId {
        PartitionId::new((self.get() >> ORDER_NUMBER_BITS) as u16)
    }

    /// The order's number in its partition, counting from 1. An id made by others may hold 0 here.
    pub const fn number(self) -> u64 {
        self.get() & Self::NUMBER_MAX
    }
}

/// A fixed slice of the users, or the catalog's own partition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId(u16);

impl PartitionId {
    /// The most partitions of users that a data directory can have.
    pub const COUNT_MAX: u16 = 1024;

    /// The partition of catalog and stock changes.
    pub const CATALOG: Self = Self(u16::MAX);

    /// The partition of this number.
    pub const fn new(value: u16) -> Self {
        Self(value)
    }

    /// The plain number.
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl fmt::Debug for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PartitionId({})", self.0)
    }
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The place of an entry in its partition's log: the first is 1, each next is one more, 0 is
/// "none".
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(u64);

impl Lsn {
    /// Before the first entry.
    pub const NONE: Self = Self(0);
    /// The first entry's place.
    pub const FIRST: Self = Self(1);

    /// The LSN of this number.
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// The plain number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The place after this one. An LSN cannot reach 2^64: at 10^8 entries a second that is 5,800
    /// years.
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Debug for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lsn({})", self.0)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Milliseconds since the Unix epoch, UTC.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimestampMs(u64);

impl TimestampMs {
    /// "No time": 1970-01-01, which no entry can carry.
    pub const NONE: Self = Self(0);

    /// The moment of this many milliseconds.
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// The plain number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The moment this many milliseconds later; stays at the end of time instead of wrapping.
    pub const fn after_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to this moment, 0 if it is not earlier.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Debug for TimestampMs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TimestampMs({})", self.0)
    }
}

impl fmt::Display for TimestampMs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_positive_and_63_bit() {
        assert!(UserId::new(0).is_none());
        assert!(UserId::new(1).is_some());
        assert!(UserId::new(ID_MAX).is_some());
        assert!(UserId::new(ID_MAX + 1).is_none());
    }

    #[test]
    fn order_id_carries_its_partition() {
        let id = OrderId::from_parts(PartitionId::new(1023), OrderId::NUMBER_MAX).unwrap();
        assert_eq!(id.get(), ID_MAX);
        assert_eq!(id.partition(), PartitionId::new(1023));
        assert_eq!(id.number(), OrderId::NUMBER_MAX);
        assert!(OrderId::from_parts(PartitionId::new(0), 0).is_none());
        assert!(OrderId::from_parts(PartitionId::CATALOG, 1).is_none());
    }
}
