//! This shard's part of answers that are gathered from all shards.

use super::ShardMachine;
use crate::gather::Part;
use alloc::vec::Vec;
use stockade_protocol::command::{Command, OrderList};
use stockade_protocol::limits::ORDER_PAGE_MAX;
use stockade_protocol::reply::OrderView;
use stockade_protocol::routing::partition_of;
use stockade_protocol::{PartitionId, SaleId, SkuId};

impl ShardMachine {
    /// This shard's part of a command routed to all (`SkuGet`, `SaleGet`, `OrderList`). It rests on
    /// [`Self::position`].
    ///
    /// # Panics
    /// The command is not one of these.
    pub fn part(&self, command: &Command) -> Part {
        match command {
            Command::SkuGet { sale, sku } => self.stock_part(*sale, Some(*sku)),
            Command::SaleGet(sale) => self.stock_part(*sale, None),
            Command::OrderList(list) => Part::Orders(self.orders(list)),
            other => panic!("not a command of all shards: {other:?}"),
        }
    }

    fn stock_part(&self, sale: SaleId, only: Option<SkuId>) -> Part {
        let Some(book) = self.books.find(sale).map(|index| self.books.sale(index)) else {
            return Part::Stock { sale: None, tallies: Vec::new() };
        };
        let asked = book.skus.iter().filter(|sku| only.is_none_or(|only| only == sku.sku));
        let tallies = asked.map(|sku| (sku.sku, sku.tally)).collect();
        Part::Stock { sale: book.runtime.clone(), tallies }
    }

    /// One page of orders of this shard's partitions.
    pub(crate) fn orders(&self, list: &OrderList) -> Vec<OrderView> {
        let count = list.count.min(ORDER_PAGE_MAX) as usize;
        let (partition_after, number_after) = split(list.after);
        let of_user = list.user.map(|user| partition_of(user, self.partition_count));
        let mut views = Vec::new();
        for partition in &self.partitions {
            if partition.id < partition_after || of_user.is_some_and(|id| id != partition.id) {
                continue;
            }
            let first = if partition.id == partition_after { number_after + 1 } else { 0 };
            let asked = partition.orders.from(first).filter(|(_, order)| {
                order.sale == list.sale
                    && list.user.is_none_or(|user| user == order.user)
                    && list.state.is_none_or(|state| state == order.state)
            });
            for (number, order) in asked {
                if views.len() == count {
                    return views;
                }
                views.push(partition.view(number, order));
            }
        }
        views
    }
}

/// Partition and number of the last id of the page before.
fn split(after: u64) -> (PartitionId, u64) {
    match stockade_protocol::OrderId::new(after) {
        Some(order) => (order.partition(), order.number()),
        None if after == 0 => (PartitionId::new(0), 0),
        // Above every id.
        None => (PartitionId::CATALOG, 0),
    }
}
