//! An engine made of a list of entries: it plays the feed, takes acknowledgements, and gives orders
//! back.

use super::books;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use stockade_order_writer::layout::Layout;
use stockade_order_writer::sink::Database;
use stockade_order_writer::sink::sqlite::SqliteDatabase;
use stockade_order_writer::source::{Connect, Run, Source, SourceError};
use stockade_protocol::command::{Line, Return};
use stockade_protocol::entry::OrderKey;
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::reply::OrderReply;
use stockade_protocol::{
    Command, Entry, Event, Lsn, OrderId, OrderState, Outcome, PartitionId, Reply,
};

#[derive(Debug, Default)]
pub struct State {
    pub entries: Vec<Entry>,
    /// Entries below these are trimmed.
    pub kept_from: BTreeMap<PartitionId, Lsn>,
    pub acks: BTreeMap<PartitionId, Lsn>,
    pub commands: Vec<Command>,
    pub connects: usize,
    /// Every so many runs the connection breaks.
    pub break_every: Option<usize>,
    /// Each acknowledgement is compared with the cursors in this file.
    pub check: Option<(PathBuf, Layout)>,
}

/// See the module.
#[derive(Clone, Debug, Default)]
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
        if let Some((path, layout)) = &state.check {
            let mut session = SqliteDatabase::new(path).open(layout).unwrap();
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
            other => panic!("the writer asks for {other:?}"),
        }
    }

    fn committed(&mut self) -> Result<BTreeMap<PartitionId, Lsn>, SourceError> {
        let state = self.engine.state();
        Ok(books(&state.entries).iter().map(|(partition, books)| (*partition, books.lsn)).collect())
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
