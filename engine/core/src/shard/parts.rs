//! This shard's part of answers that are gathered from all shards.

use super::ShardMachine;
use crate::gather::Part;
use alloc::vec::Vec;
use stockade_protocol::command::{Command, OrderList};
use stockade_protocol::limits::ORDER_PAGE_MAX;
use stockade_protocol::reply::OrderView;
use stockade_protocol::routing::partition_of;
use stockade_protocol::{OrderId, PartitionId, SaleId, SkuId};

/// This shard's part of a page of orders, found in steps: a shard with millions of orders has
/// others to serve meanwhile.
#[derive(Clone, Debug)]
pub struct OrderScan {
    list: OrderList,
    /// Where the next step begins.
    partition: PartitionId,
    number: u64,
    views: Vec<OrderView>,
}

impl OrderScan {
    /// A scan that has found nothing yet.
    pub fn new(list: OrderList) -> Self {
        let (partition, number) = match OrderId::new(list.after) {
            Some(order) => (order.partition(), order.number() + 1),
            None if list.after == 0 => (PartitionId::new(0), 0),
            // Above every id.
            None => (PartitionId::CATALOG, 0),
        };
        Self { list, partition, number, views: Vec::new() }
    }

    /// What was found, when [`ShardMachine::scan`] has come to the end.
    pub fn into_part(self) -> Part {
        Part::Orders(self.views)
    }
}

impl ShardMachine {
    /// This shard's part of `SkuGet` or `SaleGet`. It rests on [`Self::position`].
    ///
    /// # Panics
    /// The command is not one of these.
    pub fn part(&self, command: &Command) -> Part {
        match command {
            Command::SkuGet { sale, sku } => self.stock_part(*sale, Some(*sku)),
            Command::SaleGet(sale) => self.stock_part(*sale, None),
            other => panic!("not answered in one step by all shards: {other:?}"),
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

    /// Looks at `orders_max` further orders at most; true when the part is whole. It then rests on
    /// [`Self::position`].
    pub fn scan(&self, scan: &mut OrderScan, orders_max: usize) -> bool {
        let list = scan.list.clone();
        let count = list.count.min(ORDER_PAGE_MAX) as usize;
        let of_user = list.user.map(|user| partition_of(user, self.partition_count));
        let mut left = orders_max;
        for partition in &self.partitions {
            if partition.id < scan.partition || of_user.is_some_and(|id| id != partition.id) {
                continue;
            }
            let first = if partition.id == scan.partition { scan.number } else { 0 };
            for (number, order) in partition.orders.from(first) {
                if scan.views.len() == count {
                    return true;
                }
                if left == 0 {
                    (scan.partition, scan.number) = (partition.id, number);
                    return false;
                }
                left -= 1;
                if order.sale == list.sale
                    && list.user.is_none_or(|user| user == order.user)
                    && list.state.is_none_or(|state| state == order.state)
                {
                    scan.views.push(partition.view(number, order));
                }
            }
        }
        true
    }
}
