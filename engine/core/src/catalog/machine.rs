//! Decides catalog commands one at a time and keeps what the shards see of each sale.

use super::merge::merge;
use super::{CatalogChange, CatalogDecision, CatalogState, SaleRuntime, SkuRuntime};
use crate::admission::Bucket;
use crate::pool::StockWord;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::Cell;
use stockade_protocol::command::Adjust;
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::image::{CatalogImage, SaleImage};
use stockade_protocol::limits::{ADJUSTS_PER_SALE_MAX, SALES_MAX};
use stockade_protocol::reply::{AdjustReply, SalePutReply, SaleSummary, SaleSwitchReply};
use stockade_protocol::{
    Command, Entry, Event, Outcome, PartitionId, Reply, SaleDefinition, SaleId, SalePatch,
    SaleState,
};

/// An entry that was decided and is not durable yet, and the units set aside for it.
#[derive(Debug)]
struct Pending {
    entry: Box<Entry>,
    aside: Option<(Arc<StockWord>, u32)>,
}

/// See [`super`].
#[derive(Debug, Default)]
pub struct CatalogMachine {
    state: CatalogState,
    runtimes: BTreeMap<SaleId, Arc<SaleRuntime>>,
    pending: Option<Pending>,
    /// The candidate that was named last.
    candidate_last: Cell<Option<SaleId>>,
}

impl CatalogMachine {
    /// The machine at an image.
    pub fn from_image(image: CatalogImage) -> Self {
        let state = CatalogState::from_image(image);
        let mut machine = Self { state, ..Self::default() };
        let sales: Vec<SaleId> = machine.state.sales.keys().copied().collect();
        for sale in sales {
            machine.renew(sale);
        }
        machine
    }

    /// The catalog as plain data, without what is not durable yet.
    pub fn to_image(&self) -> CatalogImage {
        self.state.to_image()
    }

    /// Applies an entry of the log during recovery. Entries come in LSN order without a gap.
    ///
    /// # Panics
    /// The entry does not follow from the state: the log is damaged or of another version. Use
    /// [`Self::try_replay`] to be told.
    pub fn replay(&mut self, entry: &Entry) {
        self.try_replay(entry).expect("the entries of the catalog follow from each other");
    }

    /// Applies an entry of the log during recovery.
    ///
    /// # Errors
    /// The entry does not follow from the state.
    pub fn try_replay(&mut self, entry: &Entry) -> Result<(), crate::fold::FoldError> {
        self.state.apply(entry).map_err(|why| crate::fold::FoldError {
            partition: entry.partition,
            lsn: entry.lsn,
            why,
        })?;
        self.follow(&entry.event);
        Ok(())
    }

    /// Decides one of `SaleList`, `SalePut`, `SalePause`, `SaleResume`, `SaleClose`, `Adjust`.
    /// No second command may be decided before the first one's `committed`.
    ///
    /// # Panics
    /// The entry before is not committed, or the command is not one of these.
    pub fn decide(&mut self, command: &Command, now: TimestampMs) -> CatalogDecision {
        assert!(self.pending.is_none(), "catalog commands are decided one at a time");
        match command {
            Command::SaleList => CatalogDecision::Answer(Reply::Sales(self.list(now))),
            Command::SalePut(patch) => self.put(patch, now),
            Command::SalePause(sale) => self.switch(*sale, Outcome::Paused, now),
            Command::SaleResume(sale) => self.switch(*sale, Outcome::Resumed, now),
            Command::SaleClose(sale) => self.switch(*sale, Outcome::Closed, now),
            Command::Adjust(adjust) => self.adjust(adjust, now),
            other => panic!("not a command of the catalog: {other:?}"),
        }
    }

    /// A sale that is over, past its grace: the driver asks all shards how many orders of it are
    /// held, and if none are, calls [`Self::archive`]. Asked again it names the next one in turn,
    /// so that a sale whose orders are still held does not keep the others.
    pub fn archive_candidate(&self, now: TimestampMs) -> Option<SaleId> {
        let last = self.candidate_last.get();
        let next = self.archive_candidates(now).find(|sale| Some(*sale) > last);
        let next = next.or_else(|| self.archive_candidates(now).next());
        self.candidate_last.set(next);
        next
    }

    /// All sales that are over, past their grace, ascending.
    pub fn archive_candidates(&self, now: TimestampMs) -> impl Iterator<Item = SaleId> {
        let due = move |sale: &SaleImage| {
            let times = [sale.closed_at, sale.definition.closes_at];
            let end = times.into_iter().flatten().min()?;
            (end.after_ms(sale.definition.grace_ms) <= now).then_some(sale.definition.sale)
        };
        self.state.sales.values().filter_map(due)
    }

    /// Decides to archive the sale; as with `Append`, the entry must be made durable and then
    /// committed. The driver made sure that it is over and that no order of it is held.
    ///
    /// # Panics
    /// The entry before is not committed, or the sale is unknown or archived.
    pub fn archive(&mut self, sale: SaleId, now: TimestampMs) -> Entry {
        assert!(self.pending.is_none(), "catalog commands are decided one at a time");
        assert!(self.state.sales.contains_key(&sale), "only a known sale is archived");
        *self.append(Event::SaleArchived(sale), now, None)
    }

    /// The entry of the last decision is durable: it takes force here and in the stock words, and
    /// the shards get the change.
    ///
    /// # Panics
    /// Nothing was decided.
    pub fn committed(&mut self) -> CatalogChange {
        let Pending { entry, aside } = self.pending.take().expect("an entry was decided");
        self.state.apply(&entry).expect("decided entries follow from the state");
        if let Some((stock, units)) = aside {
            stock.settle(units, 0);
        }
        let sale = self.follow(&entry.event);
        if let Event::Adjusted { sku, applied: added @ 1.., .. } = &entry.event {
            let runtime = &self.runtimes[&sale];
            let stock = &runtime.sku(*sku).expect("an adjusted SKU is known").stock;
            stock.give_back(u32::try_from(*added).expect("totals are below 2^32"));
        }
        match self.runtimes.get(&sale) {
            Some(runtime) => CatalogChange::Replace(runtime.clone()),
            None => CatalogChange::Archive(sale),
        }
    }

    /// All sales as changes, for shards that start: archived ids first, then the others, ascending.
    pub fn changes(&self) -> Vec<CatalogChange> {
        let archived = self.state.archived.iter().map(|sale| CatalogChange::Archive(*sale));
        let known = self.runtimes.values().map(|runtime| CatalogChange::Replace(runtime.clone()));
        archived.chain(known).collect()
    }

    /// The sales that are not archived, ascending.
    pub fn sales(&self) -> Vec<Arc<SaleRuntime>> {
        self.runtimes.values().cloned().collect()
    }

    fn append(
        &mut self,
        event: Event,
        at: TimestampMs,
        aside: Option<(Arc<StockWord>, u32)>,
    ) -> Box<Entry> {
        let (partition, lsn) = (PartitionId::CATALOG, self.state.lsn.next());
        let entry = Box::new(Entry { partition, lsn, at, event });
        self.pending = Some(Pending { entry: entry.clone(), aside });
        entry
    }

    fn list(&self, now: TimestampMs) -> Vec<SaleSummary> {
        let summary = |runtime: &Arc<SaleRuntime>| SaleSummary {
            sale: runtime.definition.sale,
            name: runtime.definition.name.clone(),
            state: runtime.state(now),
            opens_at: runtime.definition.opens_at,
            closes_at: runtime.definition.closes_at,
            sku_count: runtime.skus.len() as u32,
        };
        self.runtimes.values().map(summary).collect()
    }

    fn put(&mut self, patch: &SalePatch, now: TimestampMs) -> CatalogDecision {
        let old = self.state.sales.get(&patch.sale);
        let merged = if self.state.archived.contains(&patch.sale) {
            Err(format!("sale {} is archived; its id cannot be used again", patch.sale))
        } else if old.is_none() && self.state.sales.len() >= SALES_MAX {
            Err(format!("there are {SALES_MAX} sales already"))
        } else {
            merge(old, patch, now)
        };
        let answer =
            |outcome, why| Reply::SalePut(SalePutReply { outcome, sale: Some(patch.sale), why });
        let outcome = match (&merged, old) {
            (Err(_), _) => Outcome::BadRequest,
            (Ok(next), Some(sale)) if *next == sale.definition => Outcome::Unchanged,
            (Ok(_), Some(_)) => Outcome::Changed,
            (Ok(_), None) => Outcome::Created,
        };
        match (merged, outcome) {
            (Err(why), _) => CatalogDecision::Answer(answer(outcome, why)),
            (Ok(_), Outcome::Unchanged) => CatalogDecision::Answer(answer(outcome, String::new())),
            (Ok(next), _) => {
                let entry = self.append(Event::SalePut(Box::new(next)), now, None);
                CatalogDecision::Append { entry, reply: answer(outcome, String::new()) }
            }
        }
    }

    fn switch(&mut self, id: SaleId, to: Outcome, now: TimestampMs) -> CatalogDecision {
        let answer = |outcome| Reply::SaleSwitch(SaleSwitchReply { outcome, sale: id });
        let Some(runtime) = self.runtimes.get(&id) else {
            return CatalogDecision::Answer(answer(Outcome::UnknownSale));
        };
        let ended = runtime.state(now) == SaleState::Ended;
        let event = match to {
            Outcome::Paused if !ended && !runtime.paused => Event::SalePaused(id),
            Outcome::Resumed if !ended && runtime.paused => Event::SaleResumed(id),
            Outcome::Closed if !ended => Event::SaleClosed(id),
            _ => return CatalogDecision::Answer(answer(Outcome::Unchanged)),
        };
        CatalogDecision::Append { entry: self.append(event, now, None), reply: answer(to) }
    }

    fn adjust(&mut self, adjust: &Adjust, now: TimestampMs) -> CatalogDecision {
        let Adjust { sale, sku, delta, ref request } = *adjust;
        let answer = |outcome, applied, total, free| {
            Reply::Adjust(AdjustReply { outcome, applied, total, free })
        };
        let reject = |outcome| CatalogDecision::Answer(answer(outcome, 0, 0, 0));
        if delta == 0 || delta.unsigned_abs() > u64::from(u32::MAX) {
            return reject(Outcome::BadRequest);
        }
        let Some(image) = self.state.sales.get(&sale) else {
            return reject(Outcome::UnknownSale);
        };
        let runtime = &self.runtimes[&sale];
        if let Some(known) = self.state.adjust(sale, request.key()) {
            if known.sku != sku || known.delta != delta {
                return reject(Outcome::IdConflict);
            }
            let runtime = runtime.sku(sku).expect("an adjusted SKU is known");
            let (total, free) = (runtime.total, u64::from(runtime.stock.load().free));
            return CatalogDecision::Answer(answer(Outcome::Adjusted, known.applied, total, free));
        }
        let Some(known) = runtime.sku(sku) else { return reject(Outcome::UnknownSku) };
        if image.adjusts.len() >= ADJUSTS_PER_SALE_MAX {
            return reject(Outcome::Refused);
        }
        let (stock, before) = (known.stock.clone(), known.total);
        let (applied, aside) = match u32::try_from(delta) {
            Ok(more) if before + u64::from(more) > u64::from(u32::MAX) => {
                return reject(Outcome::BadRequest);
            }
            Ok(_) => (delta, None),
            Err(_) => {
                let asked = delta.unsigned_abs().min(u64::from(u32::MAX)) as u32;
                let taken = stock.set_aside(asked);
                (-i64::from(taken), Some((stock.clone(), taken)))
            }
        };
        let total = before.checked_add_signed(applied).expect("no more than is free was taken");
        let request = request.clone();
        let event = Event::Adjusted { sale, sku, request, delta, applied, total };
        let free = u64::from(stock.load().free).saturating_add_signed(applied.max(0));
        let reply = answer(Outcome::Adjusted, applied, total, free);
        CatalogDecision::Append { entry: self.append(event, now, aside), reply }
    }

    /// Brings the sale's runtime after an applied event; says which sale it was.
    fn follow(&mut self, event: &Event) -> SaleId {
        match event {
            Event::SalePut(definition) => {
                self.renew(definition.sale);
                definition.sale
            }
            Event::SalePaused(sale) | Event::SaleResumed(sale) | Event::SaleClosed(sale) => {
                let image = &self.state.sales[sale];
                let (paused, closed_at) = (image.paused, image.closed_at);
                let runtime = self.runtimes.get_mut(sale).expect("a known sale");
                let runtime = Arc::make_mut(runtime);
                runtime.paused = paused;
                runtime.closed_at = closed_at;
                *sale
            }
            Event::SaleArchived(sale) => {
                self.runtimes.remove(sale);
                *sale
            }
            Event::Adjusted { sale, sku, total, .. } => {
                let runtime = self.runtimes.get_mut(sale).expect("a known sale");
                let skus = &mut Arc::make_mut(runtime).skus;
                let found = skus.binary_search_by_key(sku, |known| known.definition.sku);
                Arc::make_mut(&mut skus[found.expect("a known SKU")]).total = *total;
                *sale
            }
            _ => unreachable!("the state refuses entries of orders"),
        }
    }

    /// Makes the sale's runtime from its image; SKUs keep their words.
    fn renew(&mut self, sale: SaleId) {
        let image = &self.state.sales[&sale];
        let known = self.runtimes.get(&sale);
        let sku = |definition: &stockade_protocol::SkuDefinition| {
            let stock = match known.and_then(|known| known.sku(definition.sku)) {
                Some(sku) if sku.definition == *definition => return sku.clone(),
                Some(sku) => sku.stock.clone(),
                None => Arc::new(StockWord::new(definition.stock)),
            };
            let total = self.state.total(sale, definition.sku);
            let total = total.expect("the SKUs of a definition are counted");
            Arc::new(SkuRuntime { definition: definition.clone(), total, stock })
        };
        let definition: SaleDefinition = image.definition.clone();
        let runtime = SaleRuntime {
            skus: definition.skus.iter().map(sku).collect(),
            definition,
            paused: image.paused,
            closed_at: image.closed_at,
            admission: known.map_or_else(|| Arc::new(Bucket::default()), |k| k.admission.clone()),
        };
        self.runtimes.insert(sale, Arc::new(runtime));
    }
}
