//! Batches on their way to the disk, commits, and changes of the catalog.

use super::{Decided, Found, Granted, Model};
use std::rc::Rc;
use stockade_protocol::reply::{AdjustReply, SalePutReply, SaleSwitchReply};
use stockade_protocol::{
    Command, Entry, Event, OrderState, Outcome, PartitionId, Reply, SaleId, SaleState, SkuId,
};

impl Model {
    /// A shard hands a batch to the disk: it must hold just the entries that were decided.
    pub fn shipped(&mut self, shard: usize, bytes: &[u8]) -> Found {
        self.digest.bytes(bytes);
        let mut rest = bytes;
        while !rest.is_empty() {
            let (entry, taken) =
                Entry::decode(rest).map_err(|error| format!("P8: not an entry: {error}"))?;
            rest = &rest[taken..];
            if entry.partition == PartitionId::CATALOG {
                self.catalog_shipped(shard, entry)?;
                continue;
            }
            let Some(decided) = self.shards[shard].decided.pop_front() else {
                return Err(format!("P1-P6: an entry that nothing decided: {entry:?}"));
            };
            if decided.entry != entry {
                return Err(format!(
                    "P1-P6: the engine wrote\n  {entry:?}\nand the model decided\n  {:?}",
                    decided.entry
                ));
            }
            self.shards[shard].flight.push(decided);
        }
        match self.shards[shard].decided.front() {
            None => Ok(()),
            Some(Decided { entry, .. }) => {
                Err(format!("P2: an entry that was decided is in no batch: {entry:?}"))
            }
        }
    }

    /// The disk says that the batch is durable.
    pub fn synced(&mut self, shard: usize) {
        let mut scratch = Vec::new();
        for decided in &self.shards[shard].flight {
            let entry = &decided.entry;
            let part = usize::from(entry.partition.get());
            self.durable[part].apply(entry, &mut scratch);
            self.history[part].push(entry.clone());
        }
        self.shards[shard].flight_durable = true;
        if shard == 0
            && let Some(entry) = &self.catalog_flight
        {
            self.catalog_durable = true;
            self.history[usize::from(self.partition_count)].push(entry.clone());
        }
    }

    /// The last durable LSN of a partition.
    pub fn durable_lsn(&self, partition: PartitionId) -> u64 {
        self.history[self.slot(partition)].last().map_or(0, |entry| entry.lsn.get())
    }

    /// The shard learns that its batch is durable: units come back, a catalog change takes force.
    pub fn committed(&mut self, shard: usize) -> Found {
        if self.shards[shard].failed {
            return Ok(());
        }
        if !self.shards[shard].flight_durable {
            return Err("P2: a batch counts as committed that is not durable".into());
        }
        self.shards[shard].flight_durable = false;
        for decided in std::mem::take(&mut self.shards[shard].flight) {
            for moved in &decided.back {
                self.pool.shift(moved)?;
            }
        }
        if shard == 0
            && let Some(entry) = self.catalog_flight.take_if(|_| self.catalog_durable)
        {
            self.catalog_durable = false;
            return self.takes_force(&entry);
        }
        Ok(())
    }

    fn takes_force(&mut self, entry: &Entry) -> Found {
        let sale = sale_of(&entry.event).ok_or("P8: an order's entry in the catalog")?;
        let before = self.catalog.sales.get(&sale).map(|sale| sale.totals.clone());
        self.catalog.apply(entry);
        match &entry.event {
            Event::SaleArchived(_) => self.pool.0.retain(|(of, _), _| *of != sale),
            Event::Adjusted { sku, applied, .. } => {
                let units = self.pool.0.entry((sale, *sku)).or_default();
                if *applied > 0 {
                    units.free += applied.unsigned_abs();
                } else {
                    units.adjusting -= applied.unsigned_abs();
                }
            }
            _ => {}
        }
        let known = before.unwrap_or_default();
        let totals = self.catalog.sales.get(&sale).map(|sale| sale.totals.clone());
        for (sku, total) in totals.unwrap_or_default() {
            if !known.contains_key(&sku) {
                self.pool.0.entry((sale, sku)).or_default().free = total;
            }
        }
        self.unapplied = (1..self.shards.len() as u16).collect();
        self.shipping = Some(sale);
        self.apply_on(0, sale);
        Ok(())
    }

    /// A shard takes the catalog's last change.
    pub fn apply_change(&mut self, shard: u16, sale: SaleId) -> Found {
        if self.shipping != Some(sale) || !self.unapplied.remove(&shard) {
            return Err(format!(
                "catalog: shard {shard} applies a change of sale {sale} that is not in force"
            ));
        }
        self.apply_on(shard, sale);
        Ok(())
    }

    fn apply_on(&mut self, shard: u16, sale: SaleId) {
        let (index, shards) = (usize::from(shard), self.shards.len());
        let of = &mut self.shards[index];
        if let Some(known) = self.catalog.sales.get(&sale) {
            of.views.insert(sale, Rc::clone(&known.view));
            return;
        }
        of.views.remove(&sale);
        of.archived.insert(sale);
        let owned = (index..self.live.len()).step_by(shards);
        for part in owned {
            self.live[part].drop_sale(sale);
            self.durable[part].drop_sale(sale);
        }
        self.sale_full.remove(&sale);
    }

    /// Every shard has the last change.
    pub fn is_shipped(&self) -> bool {
        self.unapplied.is_empty()
    }

    /// The catalog decided an entry: may it?
    fn catalog_shipped(&mut self, shard: usize, entry: Entry) -> Found {
        if shard != 0 || entry.lsn.get() != self.catalog.lsn + 1 || self.catalog_flight.is_some() {
            return Err(format!("P8: a catalog entry out of order: {entry:?}"));
        }
        let now = entry.at.get();
        let fits = match &entry.event {
            Event::SaleArchived(sale) => {
                let held = self.live.iter().flat_map(|part| part.orders.values());
                let held = held.filter(|o| o.sale == *sale && o.state == OrderState::Held).count();
                self.catalog.is_past_grace(*sale, now) && held == 0
            }
            _ => self.catalog_asked(&entry),
        };
        if !fits {
            return Err(format!("catalog: nobody asked for this, or it cannot be: {entry:?}"));
        }
        self.catalog_flight = Some(entry);
        Ok(())
    }

    /// Some command asked for the entry; it must be answered so.
    fn catalog_asked(&mut self, entry: &Entry) -> bool {
        let Some(sale) = sale_of(&entry.event) else { return false };
        let mut replies = self.asked.values().filter_map(|asked| {
            let of_sale = sale_of_command(&asked.command) == Some(sale);
            of_sale.then(|| self.catalog_reply(&asked.command, entry)).flatten()
        });
        let Some(reply) = replies.next() else { return false };
        drop(replies);
        let rest = Some((PartitionId::CATALOG.get(), entry.lsn.get()));
        let request = match &entry.event {
            Event::Adjusted { request, .. } => Some(request.clone()),
            _ => None,
        };
        self.granted.push(Granted { sale, request, reply, rest });
        true
    }

    /// The answer to a command that made this entry; `None`: it could not have made it.
    fn catalog_reply(&self, command: &Command, entry: &Entry) -> Option<Reply> {
        let now = entry.at.get();
        let sale = |sale: SaleId| self.catalog.sales.get(&sale);
        let switch = |id: SaleId, outcome, paused: Option<bool>| {
            let view = &sale(id)?.view;
            let may = view.state(now) != SaleState::Ended
                && paused.is_none_or(|paused| view.paused == paused);
            may.then_some(Reply::SaleSwitch(SaleSwitchReply { outcome, sale: id }))
        };
        match (command, &entry.event) {
            (Command::SalePut(patch), Event::SalePut(definition)) => {
                let known = sale(patch.sale).is_some();
                let outcome = if known { Outcome::Changed } else { Outcome::Created };
                let fits = self.catalog.merged(patch, now).as_ref() == Some(&**definition);
                fits.then(|| {
                    let (sale, why) = (Some(patch.sale), String::new());
                    Reply::SalePut(SalePutReply { outcome, sale, why })
                })
            }
            (Command::SalePause(id), Event::SalePaused(_)) => {
                switch(*id, Outcome::Paused, Some(false))
            }
            (Command::SaleResume(id), Event::SaleResumed(_)) => {
                switch(*id, Outcome::Resumed, Some(true))
            }
            (Command::SaleClose(id), Event::SaleClosed(_)) => switch(*id, Outcome::Closed, None),
            (
                Command::Adjust(adjust),
                Event::Adjusted { sku, request, delta, applied, total, .. },
            ) => {
                let same = (adjust.sku, adjust.delta, &adjust.request) == (*sku, *delta, request);
                let of = sale(adjust.sale)?;
                let units = self.pool.of(adjust.sale, *sku);
                let fresh = !of.adjusts.contains_key(request);
                let before = *of.totals.get(sku)?;
                let taken = units.adjusting;
                // Taking less than asked is right only if nothing was left.
                let amount = if *delta > 0 {
                    *applied == *delta
                } else {
                    *applied == -(taken as i64) && taken <= delta.unsigned_abs()
                };
                let adds_up = before.checked_add_signed(*applied) == Some(*total);
                (same && fresh && amount && adds_up).then_some(Reply::Adjust(AdjustReply {
                    outcome: Outcome::Adjusted,
                    applied: *applied,
                    total: *total,
                    free: 0,
                }))
            }
            _ => None,
        }
    }

    /// Looks at a stock word behind a step of shard 0: an adjust may have set units aside.
    pub fn observe_aside(&mut self, sale: SaleId, sku: SkuId, aside: u32) -> Found {
        let units = self.pool.of(sale, sku);
        let Some(taken) = u64::from(aside).checked_sub(units.aside()).filter(|n| *n > 0) else {
            return Ok(());
        };
        let fits = self.asked.values().any(|asked| match &asked.command {
            Command::Adjust(adjust) if (adjust.sale, adjust.sku) == (sale, sku) => {
                adjust.delta < 0 && taken == units.free.min(adjust.delta.unsigned_abs())
            }
            _ => false,
        });
        if !fits || units.adjusting > 0 {
            return Err(format!(
                "P1: {taken} units of sale {sale} sku {sku} are set aside by nobody"
            ));
        }
        if let Some(units) = self.pool.0.get_mut(&(sale, sku)) {
            units.free -= taken;
            units.adjusting += taken;
        }
        Ok(())
    }

    /// Units of one SKU at this moment, as answers must give them: free, held, confirmed.
    pub fn figures(&self, sale: SaleId, sku: SkuId) -> (u64, u64, u64) {
        let units = self.pool.of(sale, sku);
        (units.free + units.aside(), units.held, units.confirmed)
    }
}

/// The sale of a catalog event.
pub(super) const fn sale_of(event: &Event) -> Option<SaleId> {
    match event {
        Event::SalePut(definition) => Some(definition.sale),
        Event::SalePaused(sale)
        | Event::SaleResumed(sale)
        | Event::SaleClosed(sale)
        | Event::SaleArchived(sale)
        | Event::Adjusted { sale, .. } => Some(*sale),
        _ => None,
    }
}

/// The sale of a catalog command.
pub(super) fn sale_of_command(command: &Command) -> Option<SaleId> {
    match command {
        Command::SalePut(patch) => Some(patch.sale),
        Command::SalePause(sale) | Command::SaleResume(sale) | Command::SaleClose(sale) => {
            Some(*sale)
        }
        Command::Adjust(adjust) => Some(adjust.sale),
        _ => None,
    }
}
