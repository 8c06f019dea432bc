//! Questions about orders and users. They change nothing and rest on the last entry of the
//! partition.

use super::target::{Found, peek};
use crate::effects::Position;
use crate::shard::{ShardMachine, Verdict};
use alloc::boxed::Box;
use stockade_protocol::reply::{LEFT_UNLIMITED, OrderView, UserSku, UserView};
use stockade_protocol::request_id::RequestKey;
use stockade_protocol::{OrderId, OrderState, Reply, SaleId, SkuId, UserId};

/// Reads an order.
pub(crate) fn order_get(shard: &ShardMachine, id: OrderId) -> Verdict {
    let without = OrderView::without_order;
    let (view, rests_on) = match peek(shard, id) {
        Found::Order(target) => {
            let partition = &shard.partitions[target.index];
            let order = partition.order(target.number);
            (partition.view(target.number, order), partition.position)
        }
        Found::Archived(target) => {
            (without(OrderState::Archived), shard.partitions[target.index].position)
        }
        Found::Unknown(rests_on) => (without(OrderState::Unknown), rests_on),
    };
    answer(view, rests_on)
}

/// What became of a request id.
pub(crate) fn status(shard: &ShardMachine, sale: SaleId, user: UserId, key: RequestKey) -> Verdict {
    let partition = &shard.partitions[shard.index_of_user(user)];
    let view = match partition.find(sale, user, key) {
        Some(number) => partition.view(number, partition.order(number)),
        None if partition.is_withdrawn(sale, user, key) => {
            OrderView::without_order(OrderState::Withdrawn)
        }
        None if shard.archived.contains(&sale) => OrderView::without_order(OrderState::Archived),
        None => OrderView::without_order(OrderState::Unknown),
    };
    answer(view, partition.position)
}

fn answer(view: OrderView, rests_on: Position) -> Verdict {
    #[cfg(feature = "mutations")]
    let rests_on = if stockade_protocol::mutation::is(
        stockade_protocol::mutation::Mutation::ReadRestsOnNothing,
    ) {
        Position::NONE
    } else {
        rests_on
    };
    Verdict::Answer(Reply::OrderView(Box::new(view)), rests_on)
}

/// A user's units, rights and live orders in a sale.
pub(crate) fn user_get(shard: &ShardMachine, sale: SaleId, user: UserId) -> Verdict {
    let partition = &shard.partitions[shard.index_of_user(user)];
    let (units_of, live) = partition.user_units(sale, user);
    let book = shard.books.find(sale).map(|index| shard.books.sale(index));
    let sale_limit = book.and_then(|book| book.rules).map_or(0, |rules| rules.limit_per_user);
    let sale_left = left(sale_limit, units_of.values().sum());
    let sku_limit = |sku: SkuId| {
        book.map_or(0, |book| book.index_of(sku).map_or(0, |i| book.skus[i].limit_per_user))
    };
    let skus = units_of.iter().map(|(sku, units)| {
        let least = left(sku_limit(*sku), *units).min(sale_left);
        let left = least.and_then(|left| i64::try_from(left).ok()).unwrap_or(LEFT_UNLIMITED);
        UserSku { sku: *sku, units: *units, left }
    });
    let orders = live.into_iter().map(|number| partition.order_id(number)).collect();
    Verdict::Answer(Reply::User(UserView { skus: skus.collect(), orders }), partition.position)
}

/// Units left under a limit; more than any number without one.
fn left(limit: u32, units: u64) -> Left {
    if limit == 0 { Left(None) } else { Left(Some(u64::from(limit).saturating_sub(units))) }
}

#[derive(Clone, Copy)]
struct Left(Option<u64>);

impl Left {
    fn min(self, other: Self) -> Option<u64> {
        match (self.0, other.0) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}
