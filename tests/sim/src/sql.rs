//! A database in memory for the order writer: transactions, savepoints, cursors with epochs, rows
//! that it refuses, and every way in which a connection to it can fail.
//!
//! It keeps plain rows and undoes them; the rules of what is written when are the writer's own.

use crate::faults::Fault;
use crate::rng::Rng;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stockade_order_writer::layout::Layout;
use stockade_order_writer::pipeline::Advance;
use stockade_order_writer::rows::{
    CatalogChange, CursorRow, LateRow, OrderChange, OrderRow, RefusedRow, RefusedState,
};
use stockade_order_writer::sink::{Database, Found, Ledger, Session, SetupError, Sink, SinkError};
use stockade_order_writer::stored::{
    CatalogStored, LatePayments, OrderStored, RefusedStored, UnitsStored,
};
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::{Lsn, OrderId, PartitionId};

/// One order in so many is refused.
const REFUSED_OF: u64 = 400;

/// What a step of a transaction changed, to undo it.
#[derive(Debug)]
enum Undo {
    Cursor(CursorRow),
    Order(OrderId, Option<Box<OrderRow>>),
    Late((OrderId, String)),
    Catalog,
    Refused(OrderId, Option<Box<RefusedRow>>),
}

/// The rows.
#[derive(Debug, Default)]
pub struct Rows {
    /// Cursors.
    pub cursors: BTreeMap<PartitionId, CursorRow>,
    /// Orders.
    pub orders: BTreeMap<OrderId, OrderRow>,
    /// Late payments.
    pub late: BTreeMap<(OrderId, String), LateRow>,
    /// Changes of the catalog in the order they were written.
    pub catalog: Vec<CatalogChange>,
    /// Refused orders.
    pub refused: BTreeMap<OrderId, RefusedRow>,
}

#[derive(Debug)]
struct State {
    rows: Rows,
    undo: Vec<Undo>,
    savepoints: Vec<usize>,
    open: bool,
    rng: Rng,
    chance: u64,
    happened: Vec<Fault>,
}

/// See the module. Clones are the same database.
#[derive(Clone, Debug)]
pub struct SimDatabase(Arc<Mutex<State>>);

impl SimDatabase {
    /// An empty one that follows these partitions; so many calls in a thousand fail.
    pub fn new(layout: &Layout, rng: Rng, chance: u64) -> Self {
        let cursor = |partition| {
            let (epoch, lsn, event_at) = (0, Lsn::NONE, TimestampMs::NONE);
            (partition, CursorRow { partition, epoch, lsn, event_at })
        };
        let cursors = layout.partitions_of(0).into_iter().map(cursor).collect();
        let rows = Rows { cursors, ..Rows::default() };
        let (undo, savepoints, happened) = (Vec::new(), Vec::new(), Vec::new());
        let state = State { rows, undo, savepoints, open: false, rng, chance, happened };
        Self(Arc::new(Mutex::new(state)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing fails any more.
    pub fn quiet(&self) {
        self.lock().chance = 0;
    }

    /// Faults that happened since the last call.
    pub fn happened(&self) -> Vec<Fault> {
        std::mem::take(&mut self.lock().happened)
    }

    /// Another writer takes the cursors over.
    pub fn take_over(&self) {
        let mut state = self.lock();
        if !state.open {
            state.rows.cursors.values_mut().for_each(|cursor| cursor.epoch += 1);
        }
    }

    /// Looks at the rows, as committed.
    pub fn look<T>(&self, at: impl FnOnce(&Rows) -> T) -> T {
        let mut state = self.lock();
        state.undo_to(0);
        at(&state.rows)
    }
}

impl State {
    fn undo_to(&mut self, length: usize) {
        while self.undo.len() > length {
            match self.undo.pop() {
                Some(Undo::Cursor(row)) => drop(self.rows.cursors.insert(row.partition, row)),
                Some(Undo::Order(id, None)) => drop(self.rows.orders.remove(&id)),
                Some(Undo::Order(id, Some(row))) => drop(self.rows.orders.insert(id, *row)),
                Some(Undo::Late(key)) => drop(self.rows.late.remove(&key)),
                Some(Undo::Catalog) => drop(self.rows.catalog.pop()),
                Some(Undo::Refused(id, None)) => drop(self.rows.refused.remove(&id)),
                Some(Undo::Refused(id, Some(row))) => drop(self.rows.refused.insert(id, *row)),
                None => {}
            }
        }
    }

    fn end(&mut self) {
        self.undo.clear();
        self.savepoints.clear();
        self.open = false;
    }

    fn away(&mut self, fault: Fault) -> SinkError {
        self.happened.push(fault);
        let (code, message) = ("08006".into(), fault.word().into());
        SinkError::Away { code, message }
    }

    /// Maybe the call fails before it does anything.
    fn fail(&mut self) -> Result<(), SinkError> {
        if !self.rng.per_mille(self.chance) {
            return Ok(());
        }
        Err(match self.rng.below(24) {
            0 => {
                self.happened.push(Fault::SqlBug);
                SinkError::Bug { code: "42P01".into(), message: "no such table".into() }
            }
            1..=8 => {
                self.happened.push(Fault::SqlRetry);
                SinkError::Retry { code: "40P01".into(), message: "deadlock".into() }
            }
            _ => self.away(Fault::SqlAway),
        })
    }

    fn refused(&mut self, order: OrderId, place: usize) -> Result<(), SinkError> {
        if crate::rng::Rng::new(order.get()).below(REFUSED_OF) > 0 {
            return Ok(());
        }
        self.happened.push(Fault::SqlRefused);
        let (code, message) = ("23514".into(), "a check is violated".into());
        let named = self.rng.below(2) == 0;
        Err(SinkError::Refused { at: named.then_some(place), code, message })
    }
}

impl Database for SimDatabase {
    fn name(&self) -> String {
        "simulated".into()
    }

    fn prepare(&self, _: &Layout, _: u16) -> Result<(), SetupError> {
        Ok(())
    }

    fn layout(&self) -> Result<Option<(Layout, u16)>, SetupError> {
        Ok(None)
    }

    fn open(&self, _: &Layout) -> Result<Box<dyn Session>, SinkError> {
        let mut state = self.lock();
        state.fail()?;
        // The server ends what a lost connection had begun.
        state.undo_to(0);
        state.end();
        Ok(Box::new(SimSession { database: self.clone(), dead: false }))
    }

    fn ddl(&self, _: &Layout, _: u16) -> Vec<String> {
        Vec::new()
    }
}

/// A connection.
#[derive(Debug)]
struct SimSession {
    database: SimDatabase,
    dead: bool,
}

impl SimSession {
    fn step<T>(
        &mut self,
        call: impl FnOnce(&mut State) -> Result<T, SinkError>,
    ) -> Result<T, SinkError> {
        assert!(!self.dead, "P9: a session is used after an error");
        let mut state = self.database.lock();
        let result = state.fail().and_then(|()| call(&mut state));
        if result.as_ref().is_err_and(|error| !matches!(error, SinkError::Refused { .. })) {
            self.dead = true;
            state.undo_to(0);
            state.end();
        }
        result
    }
}

impl Drop for SimSession {
    fn drop(&mut self) {
        if !self.dead {
            let mut state = self.database.lock();
            state.undo_to(0);
            state.end();
        }
    }
}

impl Sink for SimSession {
    fn claim(&mut self, _: &str) -> Result<u64, SinkError> {
        self.step(|state| {
            let epoch = state.rows.cursors.values().map(|cursor| cursor.epoch).max().unwrap_or(0);
            state.rows.cursors.values_mut().for_each(|cursor| cursor.epoch = epoch + 1);
            Ok(epoch + 1)
        })
    }

    fn cursors(&mut self) -> Result<Vec<CursorRow>, SinkError> {
        self.step(|state| Ok(state.rows.cursors.values().copied().collect()))
    }

    fn begin(&mut self) -> Result<(), SinkError> {
        self.step(|state| {
            assert!(!state.open, "P9: a transaction within a transaction");
            state.open = true;
            Ok(())
        })
    }

    fn commit(&mut self) -> Result<(), SinkError> {
        self.step(|state| {
            if state.rng.per_mille(2 * state.chance) {
                if state.rng.below(2) == 0 {
                    state.end();
                    return Err(state.away(Fault::SqlAmbiguous));
                }
                return Err(state.away(Fault::SqlLostCommit));
            }
            state.end();
            Ok(())
        })
    }

    fn rollback(&mut self) -> Result<(), SinkError> {
        self.step(|state| {
            state.undo_to(0);
            state.end();
            Ok(())
        })
    }

    fn savepoint(&mut self) -> Result<(), SinkError> {
        self.step(|state| {
            state.savepoints.push(state.undo.len());
            Ok(())
        })
    }

    fn release(&mut self, keep: bool) -> Result<(), SinkError> {
        self.step(|state| {
            let length = state.savepoints.pop().expect("a savepoint was made");
            if !keep {
                state.undo_to(length);
            }
            Ok(())
        })
    }

    fn guard(&mut self, advances: &[Advance], epoch: u64) -> Result<bool, SinkError> {
        self.step(|state| {
            for advance in advances {
                let Some(cursor) = state.rows.cursors.get_mut(&advance.partition) else {
                    return Ok(false);
                };
                if cursor.epoch != epoch || cursor.lsn != advance.from {
                    return Ok(false);
                }
                state.undo.push(Undo::Cursor(*cursor));
                (cursor.lsn, cursor.event_at) = (advance.to, advance.at);
            }
            Ok(true)
        })
    }

    fn update(&mut self, _: u16, changes: &[OrderChange]) -> Result<Vec<usize>, SinkError> {
        self.step(|state| {
            let mut missed = Vec::new();
            for (place, change) in changes.iter().enumerate() {
                let order = change.key.order;
                let refused =
                    state.rows.refused.get(&order).is_some_and(|r| r.class != "late_payment");
                match state.rows.orders.get_mut(&order) {
                    Some(row) if row.lsn < change.lsn && !refused => {
                        state.undo.push(Undo::Order(order, Some(Box::new(row.clone()))));
                        if !row.absorb(change) {
                            return Err(SinkError::bug("a line is missing"));
                        }
                    }
                    _ => missed.push(place),
                }
            }
            Ok(missed)
        })
    }

    fn insert(&mut self, _: u16, rows: &[OrderRow]) -> Result<(), SinkError> {
        self.step(|state| {
            for (place, row) in rows.iter().enumerate() {
                state.refused(row.order, place)?;
                let old = state.rows.orders.insert(row.order, row.clone());
                assert!(old.is_none(), "P9: order {} is inserted twice", row.order);
                state.undo.push(Undo::Order(row.order, None));
            }
            Ok(())
        })
    }

    fn find(&mut self, _: u16, order: OrderId) -> Result<Found, SinkError> {
        self.step(|state| {
            if state.rows.refused.get(&order).is_some_and(|row| row.class != "late_payment") {
                return Ok(Found::Refused);
            }
            let row = state.rows.orders.get(&order);
            Ok(row.map_or(Found::Nothing, |row| Found::Row(row.lsn)))
        })
    }

    fn late(&mut self, rows: &[LateRow]) -> Result<(), SinkError> {
        self.step(|state| {
            for row in rows {
                let key = (row.order, row.payment.as_str().to_owned());
                if !state.rows.late.contains_key(&key) {
                    state.rows.late.insert(key.clone(), row.clone());
                    state.undo.push(Undo::Late(key));
                }
            }
            Ok(())
        })
    }

    fn catalog(&mut self, changes: &[CatalogChange]) -> Result<(), SinkError> {
        self.step(|state| {
            for change in changes {
                state.rows.catalog.push(change.clone());
                state.undo.push(Undo::Catalog);
            }
            Ok(())
        })
    }

    fn refuse(&mut self, _: u16, row: &RefusedRow) -> Result<(), SinkError> {
        self.step(|state| {
            let old = state.rows.refused.insert(row.order, row.clone());
            state.undo.push(Undo::Refused(row.order, old.map(Box::new)));
            Ok(())
        })
    }

    fn refused_mark(
        &mut self,
        order: OrderId,
        from: &[RefusedState],
        to: RefusedState,
    ) -> Result<bool, SinkError> {
        self.step(|state| {
            let Some(row) = state.rows.refused.get_mut(&order) else { return Ok(false) };
            if !from.contains(&row.state) {
                return Ok(false);
            }
            if state.open {
                state.undo.push(Undo::Refused(order, Some(Box::new(row.clone()))));
            }
            row.state = to;
            Ok(true)
        })
    }

    fn refused_open(&mut self, count_max: usize) -> Result<Vec<OrderId>, SinkError> {
        self.step(|state| {
            let open = state.rows.refused.values().filter(|row| row.state == RefusedState::Open);
            Ok(open.map(|row| row.order).take(count_max).collect())
        })
    }
}

/// Reconciliation reads by other ways here.
fn unused<T>() -> Result<T, SinkError> {
    Err(SinkError::bug("the simulated database is looked at directly"))
}

impl Ledger for SimSession {
    fn begin_read(&mut self) -> Result<(), SinkError> {
        unused()
    }
    fn lock(&mut self, _: PartitionId) -> Result<Lsn, SinkError> {
        unused()
    }
    fn orders(&mut self, _: u16, _: (i64, i64)) -> Result<BTreeMap<i64, OrderStored>, SinkError> {
        unused()
    }
    fn units(&mut self, _: u16) -> Result<Vec<UnitsStored>, SinkError> {
        unused()
    }
    fn strays(&mut self, _: u16) -> Result<Vec<i64>, SinkError> {
        unused()
    }
    fn late_payments(&mut self, _: PartitionId) -> Result<LatePayments, SinkError> {
        unused()
    }
    fn refused(&mut self) -> Result<Vec<RefusedStored>, SinkError> {
        unused()
    }
    fn sales(&mut self) -> Result<CatalogStored, SinkError> {
        unused()
    }
    fn delete_order(&mut self, _: u16, _: i64) -> Result<(), SinkError> {
        unused()
    }
    fn delete_late(&mut self, _: i64, _: &str) -> Result<(), SinkError> {
        unused()
    }
    fn delete_sales(&mut self) -> Result<(), SinkError> {
        unused()
    }
    fn delete_refused(&mut self, _: i64) -> Result<bool, SinkError> {
        unused()
    }
    fn record_repair(&mut self, _: &str, _: &str) -> Result<(), SinkError> {
        unused()
    }
}
