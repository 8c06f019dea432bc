//! The seam between the writer and a database: what a dialect must be able to do.
//!
//! A [`Database`] is an address; a [`Session`] is one connection with at most one transaction in
//! flight, owned by one thread. Calls block; a dialect with an async driver blocks on its own
//! runtime inside. The SQL text is the dialect's own, written by hand. After any error but
//! [`SinkError::Refused`] the caller drops the session, opens another and reads the cursors again:
//! nothing in memory is trusted.

pub(crate) mod civil;
pub mod error;
pub mod mysql;
pub mod postgres;
mod remote;
pub mod sqlite;
pub mod transaction;
pub mod url;

use crate::layout::Layout;
use crate::pipeline::Advance;
use crate::rows::{
    CatalogChange, CursorRow, LateRow, OrderChange, OrderRow, RefusedRow, RefusedState,
};
use crate::stored::{
    CatalogStored, Digests, LatePayments, OrderStored, RefusedStored, UnitsStored,
};
pub use error::{SetupError, SinkError};
use std::collections::BTreeMap;
use stockade_protocol::{Lsn, OrderId, PartitionId};

/// The address of a database.
pub trait Database: Send + Sync {
    /// For logs: where it is, without secrets.
    fn name(&self) -> String;

    /// Makes the schema where it is not there, brings it up to date, and makes sure that the data
    /// in it was written with this layout and at this place in it.
    ///
    /// # Errors
    /// See [`SetupError`].
    fn prepare(&self, layout: &Layout, index: u16) -> Result<(), SetupError>;

    /// The layout and place that the database's data was written with; `None` if it was never
    /// prepared.
    ///
    /// # Errors
    /// It cannot be read.
    fn layout(&self) -> Result<Option<(Layout, u16)>, SetupError>;

    /// Opens the session of a lane. Nothing else may use it.
    ///
    /// # Errors
    /// Mostly [`SinkError::Away`].
    fn open(&self, layout: &Layout) -> Result<Box<dyn Session>, SinkError>;

    /// Opens a session that can only read, with a bound on how long a statement may take; on the
    /// replica, where there is one.
    ///
    /// # Errors
    /// Mostly [`SinkError::Away`].
    fn reader(&self, layout: &Layout) -> Result<Box<dyn Session>, SinkError> {
        self.open(layout)
    }

    /// Opens a session for repairs by an operator.
    ///
    /// # Errors
    /// Mostly [`SinkError::Away`].
    fn admin(&self, layout: &Layout) -> Result<Box<dyn Session>, SinkError> {
        self.open(layout)
    }

    /// The statements that make the schema, for those who run them by hand.
    fn ddl(&self, layout: &Layout, index: u16) -> Vec<String>;
}

/// What became of a row that an update did not hit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// It is in `refused_orders`.
    Refused,
    /// It is there, and this is the last entry applied.
    Row(Lsn),
    /// There is no trace of it.
    Nothing,
}

/// The writing half of a session.
pub trait Sink {
    /// Raises the epoch of every cursor of the database and returns it: writers with an older one
    /// are fenced from now on.
    ///
    /// # Errors
    /// See [`SinkError`].
    fn claim(&mut self, owner: &str) -> Result<u64, SinkError>;

    /// All cursors, as committed, ascending.
    ///
    /// # Errors
    /// See [`SinkError`].
    fn cursors(&mut self) -> Result<Vec<CursorRow>, SinkError>;

    /// Begins a transaction that will write.
    ///
    /// # Errors
    /// See [`SinkError`].
    fn begin(&mut self) -> Result<(), SinkError>;

    /// Commits. An error may come although it was committed.
    ///
    /// # Errors
    /// See [`SinkError`].
    fn commit(&mut self) -> Result<(), SinkError>;

    /// Gives the transaction up.
    ///
    /// # Errors
    /// See [`SinkError`].
    fn rollback(&mut self) -> Result<(), SinkError>;

    /// Begins a part that can be undone alone.
    ///
    /// # Errors
    /// See [`SinkError`].
    fn savepoint(&mut self) -> Result<(), SinkError>;

    /// Ends the innermost part; `keep` false undoes it first.
    ///
    /// # Errors
    /// See [`SinkError`].
    fn release(&mut self, keep: bool) -> Result<(), SinkError>;

    /// Moves cursors if each of them stands where it should and belongs to `epoch`; false if one
    /// does not.
    ///
    /// # Errors
    /// See [`SinkError`].
    fn guard(&mut self, advances: &[Advance], epoch: u64) -> Result<bool, SinkError>;

    /// Changes rows, each only if its `lsn` is below the change's and it is not refused. Returns
    /// the places in `changes` that hit no row.
    ///
    /// # Errors
    /// See [`SinkError`].
    fn update(&mut self, table: u16, changes: &[OrderChange]) -> Result<Vec<usize>, SinkError>;

    /// Inserts orders with their lines.
    ///
    /// # Errors
    /// See [`SinkError`].
    fn insert(&mut self, table: u16, rows: &[OrderRow]) -> Result<(), SinkError>;

    /// What there is of an order.
    ///
    /// # Errors
    /// See [`SinkError`].
    fn find(&mut self, table: u16, order: OrderId) -> Result<Found, SinkError>;

    /// Inserts late payments; those that are there stay as they are.
    ///
    /// # Errors
    /// See [`SinkError`].
    fn late(&mut self, rows: &[LateRow]) -> Result<(), SinkError>;

    /// Follows the catalog.
    ///
    /// # Errors
    /// See [`SinkError`].
    fn catalog(&mut self, changes: &[CatalogChange]) -> Result<(), SinkError>;

    /// Records a refused row; one that is there is replaced.
    ///
    /// # Errors
    /// See [`SinkError`].
    fn refuse(&mut self, table: u16, row: &RefusedRow) -> Result<(), SinkError>;

    /// Moves a refused order's state if it is one of `from`; false if not.
    ///
    /// # Errors
    /// See [`SinkError`].
    fn refused_mark(
        &mut self,
        order: OrderId,
        from: &[RefusedState],
        to: RefusedState,
    ) -> Result<bool, SinkError>;

    /// Refused orders with nothing done yet, oldest first; refused late payments are not among
    /// them.
    ///
    /// # Errors
    /// See [`SinkError`].
    fn refused_open(&mut self, count_max: usize) -> Result<Vec<OrderId>, SinkError>;
}

/// The reading and repairing half of a session, for reconciliation and operators.
pub trait Ledger {
    /// Begins a transaction that reads one state of the database.
    ///
    /// # Errors
    /// See [`SinkError`].
    fn begin_read(&mut self) -> Result<(), SinkError>;

    /// A partition's cursor, which no writer moves until this transaction ends; nothing for a
    /// partition that the database does not follow.
    ///
    /// # Errors
    /// See [`SinkError`].
    fn lock(&mut self, partition: PartitionId) -> Result<Lsn, SinkError>;

    /// The orders of a range of ids (inclusive) with their lines.
    ///
    /// # Errors
    /// See [`SinkError`].
    fn orders(
        &mut self,
        table: u16,
        range: (i64, i64),
    ) -> Result<BTreeMap<i64, OrderStored>, SinkError>;

    /// Checksums of the orders of a range of ids, computed where the rows are; refused orders are
    /// left out. `None`: reading the rows is no dearer.
    ///
    /// # Errors
    /// See [`SinkError`].
    fn digests(&mut self, _table: u16, _range: (i64, i64)) -> Result<Option<Digests>, SinkError> {
        Ok(None)
    }

    /// Units by sale, SKU and state of the orders of a table; refused orders are left out.
    ///
    /// # Errors
    /// See [`SinkError`].
    fn units(&mut self, table: u16) -> Result<Vec<UnitsStored>, SinkError>;

    /// Ids in a table that belong to no partition of this table, in `orders` or `order_lines`.
    ///
    /// # Errors
    /// See [`SinkError`].
    fn strays(&mut self, table: u16) -> Result<Vec<i64>, SinkError>;

    /// The late payments of a partition.
    ///
    /// # Errors
    /// See [`SinkError`].
    fn late_payments(&mut self, partition: PartitionId) -> Result<LatePayments, SinkError>;

    /// All refused orders, ascending.
    ///
    /// # Errors
    /// See [`SinkError`].
    fn refused(&mut self) -> Result<Vec<RefusedStored>, SinkError>;

    /// All sales and all SKUs.
    ///
    /// # Errors
    /// See [`SinkError`].
    fn sales(&mut self) -> Result<CatalogStored, SinkError>;

    /// Deletes an order with its lines; none is fine.
    ///
    /// # Errors
    /// See [`SinkError`].
    fn delete_order(&mut self, table: u16, order: i64) -> Result<(), SinkError>;

    /// Deletes a late payment; none is fine.
    ///
    /// # Errors
    /// See [`SinkError`].
    fn delete_late(&mut self, order: i64, payment: &str) -> Result<(), SinkError>;

    /// Deletes all sales and SKUs, to be written anew in the same transaction.
    ///
    /// # Errors
    /// See [`SinkError`].
    fn delete_sales(&mut self) -> Result<(), SinkError>;

    /// Takes an order out of `refused_orders`; false if it was not there.
    ///
    /// # Errors
    /// See [`SinkError`].
    fn delete_refused(&mut self, order: i64) -> Result<bool, SinkError>;

    /// Records what a repair did, and why.
    ///
    /// # Errors
    /// See [`SinkError`].
    fn record_repair(&mut self, reason: &str, what: &str) -> Result<(), SinkError>;
}

/// One connection.
pub trait Session: Sink + Ledger + Send {}

impl<T: Sink + Ledger + Send> Session for T {}
