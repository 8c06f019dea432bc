//! An engine made of a list of entries: it plays the feed, takes acknowledgements, and gives orders
//! back.

use super::books;
use super::history::definition;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use stockade_order_writer::layout::Layout;
use stockade_order_writer::recon::compare;
use stockade_order_writer::rows::{LineRow, OrderRow};
use stockade_order_writer::sink::Database;
use stockade_order_writer::source::{Connect, Run, Source, SourceError};
use stockade_order_writer::stored::SaleStored;
use stockade_protocol::command::{Line, OrderList, Return};
use stockade_protocol::entry::OrderKey;
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::reply::{OrderReply, OrderView, SaleSummary, SaleView, SkuView};
use stockade_protocol::{
    Command, Entry, Event, Lsn, OrderId, OrderState, Outcome, PartitionId, Reply, SaleId,
    SaleState, SkuId, SkuState,
};

#[derive(Default)]
pub struct State {
    pub entries: Vec<Entry>,
    /// Entries below these are trimmed.
    pub kept_from: BTreeMap<PartitionId, Lsn>,
    pub acks: BTreeMap<PartitionId, Lsn>,
    pub commands: Vec<Command>,
    pub connects: usize,
    /// Every so many runs the connection breaks.
    pub break_every: Option<usize>,
    /// Figures of SKUs are one too high.
    pub wrong_figures: bool,
    /// Each acknowledgement is compared with the cursors in this database.
    pub check: Option<(Arc<dyn Database>, Layout)>,
}

/// See the module.
#[derive(Clone, Default)]
pub struct Engine(Arc<Mutex<State>>);

impl Engine {
    pub fn new(entries: Vec<Entry>) -> Self {
        Self(Arc::new(Mutex::new(State { entries, ..State::default() })))
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    pub fn entries(&self) -> Vec<Entry> {
        self.state().entries.clone()
    }
}

impl Connect for Engine {
    fn connect(&mut self, from: &[(PartitionId, Lsn)]) -> Result<Box<dyn Source>, SourceError> {
        self.state().connects += 1;
        let positions = from.iter().copied().collect();
        Ok(Box::new(Connection { engine: self.clone(), positions, runs: 0 }))
    }
}

struct Connection {
    engine: Engine,
    positions: BTreeMap<PartitionId, Lsn>,
    runs: usize,
}

impl Source for Connection {
    fn next(&mut self, _wait: Duration) -> Result<Option<Run>, SourceError> {
        let state = self.engine.state();
        self.runs += 1;
        if state.break_every.is_some_and(|every| self.runs.is_multiple_of(every)) {
            return Err(SourceError::Away("broken on purpose".into()));
        }
        for (partition, next) in &mut self.positions {
            if let Some(kept) = state.kept_from.get(partition).filter(|kept| *kept > next) {
                let (from, to) = (*next, Lsn::new(kept.get() - 1));
                *next = *kept;
                return Ok(Some(Run::Gap { partition: *partition, from, to }));
            }
            let mut run: Vec<Entry> = Vec::new();
            for entry in &state.entries {
                if entry.partition == *partition && entry.lsn == *next && run.len() < 7 {
                    run.push(entry.clone());
                    *next = next.next();
                }
            }
            if !run.is_empty() {
                return Ok(Some(Run::Entries(run)));
            }
        }
        Ok(None)
    }

    fn ack(&mut self, cursors: &[(PartitionId, Lsn)]) -> Result<(), SourceError> {
        let mut state = self.engine.state();
        if let Some((database, layout)) = &state.check {
            let mut session = database.reader(layout).unwrap();
            let durable = session.cursors().unwrap();
            for (partition, lsn) in cursors {
                let row = durable.iter().find(|row| row.partition == *partition).unwrap();
                assert!(*lsn <= row.lsn, "acknowledged {lsn} but SQL has {}", row.lsn);
            }
        }
        state.acks.extend(cursors.iter().copied());
        Ok(())
    }

    fn call(&mut self, command: Command) -> Result<Reply, SourceError> {
        let mut state = self.engine.state();
        state.commands.push(command.clone());
        let reply = |outcome, order, order_state| {
            Ok(Reply::Order(OrderReply { outcome, order: Some(order), state: order_state }))
        };
        match command {
            Command::Cancel { order, reason } => {
                let (key, now) = find(&state.entries, order);
                if now != OrderState::Held {
                    return reply(Outcome::TooLate, order, now);
                }
                append(&mut state.entries, Event::Cancelled { key, reason }, order);
                reply(Outcome::Cancelled, order, OrderState::Cancelled)
            }
            Command::Return(Return { order, request, restock, right, .. }) => {
                let key = find(&state.entries, order).0;
                let row = books(&state.entries)[&order.partition()].orders[&order].clone();
                let left = row.lines.iter().map(|line| Line {
                    sku: line.sku,
                    quantity: (line.quantity - line.returned) as u32,
                });
                let lines = left.filter(|line| line.quantity > 0).collect();
                let event = Event::Returned { key, request, lines, restock, right, whole: true };
                append(&mut state.entries, event, order);
                reply(Outcome::Returned, order, OrderState::Returned)
            }
            read => Ok(answer(&state.entries, read, u64::from(state.wrong_figures))),
        }
    }

    fn committed(&mut self) -> Result<BTreeMap<PartitionId, Lsn>, SourceError> {
        let state = self.engine.state();
        Ok(books(&state.entries).iter().map(|(partition, books)| (*partition, books.lsn)).collect())
    }
}

/// Answers to reads.
fn answer(entries: &[Entry], command: Command, wrong: u64) -> Reply {
    let all = books(entries);
    let catalog = compare::catalog_of(&all[&PartitionId::CATALOG].catalog);
    let orders = || all.values().flat_map(|books| books.orders.values());
    match command {
        Command::SaleList => {
            let live = catalog.sales.iter().filter(|(_, sale)| sale.state != 5);
            let summary = |(sale, row): (&i64, &SaleStored)| SaleSummary {
                sale: SaleId::new(*sale as u64).unwrap(),
                name: row.name.clone(),
                state: SaleState::Live,
                opens_at: TimestampMs::NONE,
                closes_at: None,
                sku_count: 0,
            };
            Reply::Sales(live.map(summary).collect())
        }
        Command::SaleGet(sale) => {
            let units = |sku: i64, state: OrderState| -> u64 {
                let orders = orders().filter(|row| row.sale == sale && row.state == state);
                let lines = orders.flat_map(|row| &row.lines);
                let lines = lines.filter(|line| line.sku.get() as i64 == sku);
                lines.map(|line| line.quantity - line.returned).sum()
            };
            let skus = catalog.skus.keys().filter(|(of, _)| *of == sale.get() as i64);
            let view = |(_, sku): &(i64, i64)| SkuView {
                sku: SkuId::new(*sku as u64).unwrap(),
                total: 0,
                free: 0,
                held: units(*sku, OrderState::Held) + wrong,
                confirmed: units(*sku, OrderState::Confirmed),
                state: SkuState::Live,
            };
            Reply::Sale(Some(Box::new(SaleView {
                definition: definition(sale.get(), 1, ""),
                state: SaleState::Live,
                server_time: TimestampMs::NONE,
                skus: skus.map(view).collect(),
            })))
        }
        Command::OrderList(OrderList { sale, after, .. }) => {
            let mut found: Vec<&OrderRow> =
                orders().filter(|row| row.sale == sale && row.order.get() > after).collect();
            found.sort_by_key(|row| row.order);
            Reply::Orders(found.into_iter().take(10).map(view).collect())
        }
        other => panic!("the writer asks for {other:?}"),
    }
}

fn view(row: &OrderRow) -> OrderView {
    let lines = row.lines.iter();
    let back = lines.clone().filter(|line| line.returned > 0);
    let line = |line: &LineRow, units: u64| Line { sku: line.sku, quantity: units as u32 };
    OrderView {
        order: Some(row.order),
        state: row.state,
        sale: Some(row.sale),
        user: Some(row.user),
        expires_at: row.expires_at,
        payment: row.payment.clone(),
        lines: lines.map(|l| line(l, l.quantity)).collect(),
        returned: back.map(|l| line(l, l.returned)).collect(),
    }
}

fn find(entries: &[Entry], order: OrderId) -> (OrderKey, OrderState) {
    let row = books(entries)[&order.partition()].orders[&order].clone();
    (OrderKey { order, sale: Some(row.sale), user: Some(row.user) }, row.state)
}

fn append(entries: &mut Vec<Entry>, event: Event, order: OrderId) {
    let partition = order.partition();
    let lsn = books(entries)[&partition].lsn.next();
    let at = TimestampMs::new(entries.last().unwrap().at.get() + 1);
    entries.push(Entry { partition, lsn, at, event });
}
