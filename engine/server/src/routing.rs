//! Which shard executes a command: users and orders by partition, the catalog at shard 0.

use stockade_protocol::command::Route;
use stockade_protocol::routing::partition_of;
use stockade_protocol::{Command, PartitionId};

/// The shard that decides catalog commands.
pub const CATALOG_SHARD: u16 = 0;

/// Where a command goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// One shard decides it in its turn.
    Shard(u16),
    /// The catalog's shard decides it, one at a time.
    Catalog,
    /// Every shard gives a part; the shard that has the request puts them together.
    All,
}

/// Partitions and shards of this run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoutingTable {
    /// Partitions of users, 1..=1024.
    pub partition_count: u16,
    /// Shards, at least 1.
    pub shard_count: u16,
}

impl RoutingTable {
    /// The shard that owns a partition. Partitions that do not exist have one too: it knows that no
    /// such order exists.
    pub const fn owner(&self, partition: PartitionId) -> u16 {
        partition.get() % self.shard_count
    }

    /// The partitions that a shard owns.
    pub fn owned(&self, shard: u16) -> Vec<PartitionId> {
        (shard..self.partition_count)
            .step_by(usize::from(self.shard_count))
            .map(PartitionId::new)
            .collect()
    }

    /// Where a command goes.
    pub fn target(&self, command: &Command) -> Target {
        match command.route() {
            Route::User(user) => {
                Target::Shard(self.owner(partition_of(user, self.partition_count)))
            }
            Route::Order(order) => Target::Shard(self.owner(order.partition())),
            Route::Catalog => Target::Catalog,
            Route::All => Target::All,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stockade_protocol::OrderId;

    #[test]
    fn every_partition_has_one_owner() {
        for shard_count in [1u16, 2, 3, 64, 100] {
            let table = RoutingTable { partition_count: 64, shard_count };
            let mut seen = vec![0; 64];
            for shard in 0..shard_count {
                for partition in table.owned(shard) {
                    assert_eq!(table.owner(partition), shard);
                    seen[usize::from(partition.get())] += 1;
                }
            }
            assert!(seen.iter().all(|count| *count == 1), "{shard_count}");
        }
    }

    #[test]
    fn an_order_of_a_partition_that_does_not_exist_still_has_a_shard() {
        let table = RoutingTable { partition_count: 4, shard_count: 3 };
        let order = OrderId::from_parts(PartitionId::new(1000), 1).unwrap();
        assert_eq!(table.target(&Command::OrderGet(order)), Target::Shard(1));
    }
}
