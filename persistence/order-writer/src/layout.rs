//! Which database and which table a partition's rows live in.
//!
//! `database = partition mod D`, `table = (partition div D) mod T`. The catalog's partition goes
//! into every database. The counts are written into each database and never change there: with
//! other counts the writer would put rows where nobody looks for them.

use stockade_protocol::PartitionId;

/// The most databases that one writer drives.
pub const DATABASES_MAX: usize = 64;
/// The most order tables of one database.
pub const TABLES_MAX: u16 = 100;

/// How many databases and tables there are, and how many partitions the engine has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Databases, 1..=64.
    pub databases: u16,
    /// Order tables in each database, 1..=100.
    pub tables: u16,
    /// The engine's partitions of users, 1..=1024.
    pub partitions: u16,
}

impl Layout {
    /// The database that holds a user partition's rows.
    pub const fn database_of(&self, partition: PartitionId) -> u16 {
        partition.get() % self.databases
    }

    /// The table, within its database, that holds a user partition's orders.
    pub const fn table_of(&self, partition: PartitionId) -> u16 {
        (partition.get() / self.databases) % self.tables
    }

    /// True if a database has a cursor for the partition.
    pub fn is_in(&self, partition: PartitionId, database: u16) -> bool {
        partition == PartitionId::CATALOG
            || (partition.get() < self.partitions && self.database_of(partition) == database)
    }

    /// The partitions that a database follows: its user partitions ascending, then the catalog's.
    pub fn partitions_of(&self, database: u16) -> Vec<PartitionId> {
        let users = (0..self.partitions).map(PartitionId::new);
        let mine = users.filter(|partition| self.database_of(*partition) == database);
        mine.chain([PartitionId::CATALOG]).collect()
    }

    /// The suffix of a table's name: nothing where there is one table, else `_00` and so on.
    pub fn suffix(&self, table: u16) -> String {
        if self.tables == 1 { String::new() } else { format!("_{table:02}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_partition_has_one_database_and_one_table() {
        let layout = Layout { databases: 2, tables: 16, partitions: 64 };
        for (partition, database, table) in
            [(0, 0, 0), (1, 1, 0), (2, 0, 1), (33, 1, 0), (63, 1, 15)]
        {
            let partition = PartitionId::new(partition);
            assert_eq!(layout.database_of(partition), database);
            assert_eq!(layout.table_of(partition), table);
            assert!(layout.is_in(partition, database) && !layout.is_in(partition, 1 - database));
        }
        let all: usize = (0..2).map(|database| layout.partitions_of(database).len()).sum();
        assert_eq!(all, 64 + 2, "the catalog is in both");
        assert_eq!(layout.suffix(3), "_03");
        assert_eq!(Layout { tables: 1, ..layout }.suffix(0), "");
    }
}
