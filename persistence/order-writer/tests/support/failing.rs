//! A database whose connection dies at a chosen call: before it, or right after it was carried out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use stockade_order_writer::layout::Layout;
use stockade_order_writer::pipeline::Advance;
use stockade_order_writer::rows::{
    CatalogChange, CursorRow, LateRow, OrderChange, OrderRow, RefusedRow, RefusedState,
};
use stockade_order_writer::sink::{Database, Found, Ledger, Session, SetupError, Sink, SinkError};
use stockade_order_writer::stored::{
    CatalogStored, LatePayments, OrderStored, RefusedStored, UnitsStored,
};
use stockade_protocol::{Lsn, OrderId, PartitionId};

/// When the connection dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Death {
    /// The call is not carried out.
    Before,
    /// The call is carried out, its answer is lost.
    After,
}

/// See the module.
#[derive(Clone)]
pub struct FailingDatabase {
    inner: Arc<dyn Database>,
    /// Calls until the death; counts on below zero by wrapping, so it dies once.
    left: Arc<AtomicUsize>,
    death: Death,
}

impl FailingDatabase {
    pub fn new(inner: Arc<dyn Database>, call: usize, death: Death) -> Self {
        Self { inner, left: Arc::new(AtomicUsize::new(call)), death }
    }

    /// True if the chosen call was reached.
    pub fn has_failed(&self) -> bool {
        self.left.load(Ordering::SeqCst) > usize::MAX / 2
    }
}

impl Database for FailingDatabase {
    fn name(&self) -> String {
        "failing".into()
    }

    fn prepare(&self, layout: &Layout, index: u16) -> Result<(), SetupError> {
        self.inner.prepare(layout, index)
    }

    fn layout(&self) -> Result<Option<(Layout, u16)>, SetupError> {
        self.inner.layout()
    }

    fn open(&self, layout: &Layout) -> Result<Box<dyn Session>, SinkError> {
        let inner = self.inner.open(layout)?;
        Ok(Box::new(Failing { inner, control: self.clone(), dead: false }))
    }

    fn ddl(&self, layout: &Layout, index: u16) -> Vec<String> {
        self.inner.ddl(layout, index)
    }
}

struct Failing {
    inner: Box<dyn Session>,
    control: FailingDatabase,
    dead: bool,
}

impl Failing {
    fn step<T>(
        &mut self,
        call: impl FnOnce(&mut dyn Session) -> Result<T, SinkError>,
    ) -> Result<T, SinkError> {
        assert!(!self.dead, "a session is not used after an error");
        let away = Err(SinkError::Away { code: "test".into(), message: "dead".into() });
        let dies = self.control.left.fetch_sub(1, Ordering::SeqCst) == 0;
        self.dead = dies;
        if dies && self.control.death == Death::Before {
            return away;
        }
        let answer = call(self.inner.as_mut());
        if dies { away } else { answer }
    }
}

impl Sink for Failing {
    fn claim(&mut self, owner: &str) -> Result<u64, SinkError> {
        self.step(|inner| inner.claim(owner))
    }
    fn cursors(&mut self) -> Result<Vec<CursorRow>, SinkError> {
        self.step(|inner| inner.cursors())
    }
    fn begin(&mut self) -> Result<(), SinkError> {
        self.step(|inner| inner.begin())
    }
    fn commit(&mut self) -> Result<(), SinkError> {
        self.step(|inner| inner.commit())
    }
    fn rollback(&mut self) -> Result<(), SinkError> {
        self.step(|inner| inner.rollback())
    }
    fn savepoint(&mut self) -> Result<(), SinkError> {
        self.step(|inner| inner.savepoint())
    }
    fn release(&mut self, keep: bool) -> Result<(), SinkError> {
        self.step(|inner| inner.release(keep))
    }
    fn guard(&mut self, advances: &[Advance], epoch: u64) -> Result<bool, SinkError> {
        self.step(|inner| inner.guard(advances, epoch))
    }
    fn update(&mut self, table: u16, changes: &[OrderChange]) -> Result<Vec<usize>, SinkError> {
        self.step(|inner| inner.update(table, changes))
    }
    fn insert(&mut self, table: u16, rows: &[OrderRow]) -> Result<(), SinkError> {
        self.step(|inner| inner.insert(table, rows))
    }
    fn find(&mut self, table: u16, order: OrderId) -> Result<Found, SinkError> {
        self.step(|inner| inner.find(table, order))
    }
    fn late(&mut self, rows: &[LateRow]) -> Result<(), SinkError> {
        self.step(|inner| inner.late(rows))
    }
    fn catalog(&mut self, changes: &[CatalogChange]) -> Result<(), SinkError> {
        self.step(|inner| inner.catalog(changes))
    }
    fn refuse(&mut self, table: u16, row: &RefusedRow) -> Result<(), SinkError> {
        self.step(|inner| inner.refuse(table, row))
    }
    fn refused_mark(
        &mut self,
        order: OrderId,
        from: &[RefusedState],
        to: RefusedState,
    ) -> Result<bool, SinkError> {
        self.step(|inner| inner.refused_mark(order, from, to))
    }
    fn refused_open(&mut self, count_max: usize) -> Result<Vec<OrderId>, SinkError> {
        self.step(|inner| inner.refused_open(count_max))
    }
}

impl Ledger for Failing {
    fn begin_read(&mut self) -> Result<(), SinkError> {
        self.step(|inner| inner.begin_read())
    }
    fn lock(&mut self, partition: PartitionId) -> Result<Lsn, SinkError> {
        self.step(|inner| inner.lock(partition))
    }
    fn orders(
        &mut self,
        table: u16,
        range: (i64, i64),
    ) -> Result<BTreeMap<i64, OrderStored>, SinkError> {
        self.step(|inner| inner.orders(table, range))
    }
    fn units(&mut self, table: u16) -> Result<Vec<UnitsStored>, SinkError> {
        self.step(|inner| inner.units(table))
    }
    fn strays(&mut self, table: u16) -> Result<Vec<i64>, SinkError> {
        self.step(|inner| inner.strays(table))
    }
    fn late_payments(&mut self, partition: PartitionId) -> Result<LatePayments, SinkError> {
        self.step(|inner| inner.late_payments(partition))
    }
    fn refused(&mut self) -> Result<Vec<RefusedStored>, SinkError> {
        self.step(|inner| inner.refused())
    }
    fn sales(&mut self) -> Result<CatalogStored, SinkError> {
        self.step(|inner| inner.sales())
    }
    fn delete_order(&mut self, table: u16, order: i64) -> Result<(), SinkError> {
        self.step(|inner| inner.delete_order(table, order))
    }
    fn delete_late(&mut self, order: i64, payment: &str) -> Result<(), SinkError> {
        self.step(|inner| inner.delete_late(order, payment))
    }
    fn delete_sales(&mut self) -> Result<(), SinkError> {
        self.step(|inner| inner.delete_sales())
    }
    fn delete_refused(&mut self, order: i64) -> Result<bool, SinkError> {
        self.step(|inner| inner.delete_refused(order))
    }
    fn record_repair(&mut self, reason: &str, what: &str) -> Result<(), SinkError> {
        self.step(|inner| inner.record_repair(reason, what))
    }
}
