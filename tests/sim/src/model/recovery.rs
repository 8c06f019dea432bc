//! What may be left after a crash: everything that was durable, maybe some of what was on its way,
//! in the order it was written, and nothing else.

use super::{Found, Model, Shard, Units};
use stockade_protocol::image::{CatalogImage, PartitionImage};
use stockade_protocol::{OrderId, OrderState, PartitionId};

impl Model {
    /// The engine recovered these images on `shard_count` shards. The clock is the new engine's.
    pub fn recovered(
        &mut self,
        shard_count: u16,
        images: &[PartitionImage],
        catalog: &CatalogImage,
    ) -> Found {
        self.recover_catalog(catalog)?;
        for shard in 0..self.shards.len() {
            self.recover_flight(shard, images)?;
        }
        let archived: Vec<_> = self.catalog.archived.iter().copied().collect();
        for (part, image) in images.iter().enumerate() {
            for sale in &archived {
                self.durable[part].drop_sale(*sale);
            }
            let id = PartitionId::new(part as u16);
            if image.lsn.get() != self.durable[part].lsn {
                return Err(format!(
                    "P2: partition {id} came back at LSN {}, but {} was durable",
                    image.lsn, self.durable[part].lsn
                ));
            }
            self.durable[part].compare(id, image).map_err(|why| format!("P2: {why}"))?;
        }
        self.live.clone_from(&self.durable);
        self.restart(shard_count);
        Ok(())
    }

    fn recover_catalog(&mut self, image: &CatalogImage) -> Found {
        let at = image.lsn.get();
        if let Some(entry) = self.catalog_flight.take()
            && at == entry.lsn.get()
        {
            if !self.catalog_durable {
                self.history[usize::from(self.partition_count)].push(entry.clone());
            }
            self.catalog.apply(&entry);
        } else if self.catalog_durable {
            return Err("P2: a durable change of the catalog is gone".into());
        }
        self.catalog_durable = false;
        if at != self.catalog.lsn {
            let mine = self.catalog.lsn;
            return Err(format!("P2: the catalog came back at LSN {at}, but {mine} was durable"));
        }
        let sales = image.sales.iter().map(|sale| (sale.definition.sale, &sale.definition));
        let mine = self.catalog.sales.iter().map(|(id, sale)| (*id, &sale.view.definition));
        if !sales.eq(mine) || !image.archived.iter().eq(self.catalog.archived.iter()) {
            return Err("P2: the sales that came back are others".into());
        }
        Ok(())
    }

    /// Entries on their way: a prefix of them may have reached the disk.
    fn recover_flight(&mut self, shard: usize, images: &[PartitionImage]) -> Found {
        let flight = std::mem::take(&mut self.shards[shard].flight);
        if self.shards[shard].flight_durable {
            return Ok(());
        }
        let (mut scratch, mut lost) = (Vec::new(), false);
        for decided in flight {
            let entry = decided.entry;
            let part = usize::from(entry.partition.get());
            let survived = images.get(part).is_some_and(|image| entry.lsn <= image.lsn);
            if survived && lost {
                return Err(format!(
                    "P2: an entry came back, one written before it not: {entry:?}"
                ));
            }
            lost |= !survived;
            if survived {
                self.durable[part].apply(&entry, &mut scratch);
                self.history[part].push(entry);
            }
        }
        Ok(())
    }

    fn restart(&mut self, shard_count: u16) {
        self.shards = (0..shard_count).map(|_| Shard::default()).collect();
        self.asked.clear();
        self.granted.clear();
        self.sale_full.clear();
        self.unapplied.clear();
        self.shipping = None;
        for shard in &mut self.shards {
            let views = self.catalog.sales.iter();
            shard.views = views.map(|(id, sale)| (*id, sale.view.clone())).collect();
            shard.archived.clone_from(&self.catalog.archived);
        }
        self.pool.0.clear();
        for (id, sale) in &self.catalog.sales {
            for sku in sale.totals.keys() {
                self.pool.0.insert((*id, *sku), Units::default());
            }
        }
        for (part, of) in self.live.iter().enumerate() {
            let shard = &mut self.shards[part % usize::from(shard_count)];
            for (number, order) in &of.orders {
                let id = OrderId::from_parts(PartitionId::new(part as u16), *number);
                if let (OrderState::Held, Some(id)) = (order.state, id) {
                    shard.due.insert((order.deadline, id));
                }
                for line in &order.lines {
                    let Some(units) = self.pool.0.get_mut(&(order.sale, line.sku)) else {
                        continue;
                    };
                    let quantity = u64::from(line.quantity);
                    match order.state {
                        OrderState::Held => units.held += quantity,
                        OrderState::Confirmed | OrderState::Returned => {
                            units.confirmed += quantity - u64::from(order.back(line.sku, |_| true));
                            units.removed += u64::from(order.back(line.sku, |b| !b.restock));
                        }
                        _ => {}
                    }
                }
            }
        }
        for ((sale, sku), units) in &mut self.pool.0 {
            let total = self.catalog.sales[sale].totals[sku];
            units.free = total.saturating_sub(units.held + units.confirmed + units.removed);
        }
    }
}
