//! One batch as one transaction, for every dialect: guard, updates, inserts, late payments,
//! catalog, refused rows, commit.
//!
//! Updates come before inserts, rows in ascending order of key, tables in ascending order, so that
//! two writers cannot deadlock and a unique key that an update frees is free for the insert. The
//! first attempt has no savepoints: they cost a turn each. If a row is refused, the batch is begun
//! again with care: inside savepoints the refused row is found by halving (or at once, where the
//! dialect names it), and the rest of the batch is written. The cursor moves in the same
//! transaction, first, and only for the epoch that owns it.

use super::{Found, Session, SinkError};
use crate::pipeline::{Batch, Breaker, TableBatch, Tripped};
use crate::rows::{
    CLASS_LATE_PAYMENT, LateRow, OrderChange, OrderRow, RefusedRow, RefusedState, is_over,
};
use stockade_protocol::OrderId;
use stockade_protocol::ids::TimestampMs;

/// What a committed batch did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Applied {
    /// Orders inserted or updated.
    pub orders: usize,
    /// Orders that the database refused, with its words.
    pub refused: Vec<(OrderId, String)>,
    /// Changes that were in their rows already.
    pub stale: usize,
}

/// Why a batch was not committed, or not surely.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ApplyError {
    /// The database.
    #[error(transparent)]
    Sink(#[from] SinkError),
    /// The cursor stands elsewhere or belongs to another writer: read the cursors again.
    #[error("a cursor is not where this writer left it")]
    NotMine,
    /// Too many refusals.
    #[error(transparent)]
    Tripped(#[from] Tripped),
}

type Refusal = (RefusedRow, u16);
type Put<'a, T> = dyn FnMut(&mut dyn Session, &[T]) -> Result<(), SinkError> + 'a;

/// Rows that one savepoint holds at most: what is sent again after a refusal.
const CAREFUL_ROWS: usize = 512;

/// Writes a batch. After an error the session must be dropped.
///
/// # Errors
/// See [`ApplyError`]; a [`SinkError::Refused`] in it is a row that belongs to no order.
pub fn apply(
    session: &mut dyn Session,
    batch: &Batch,
    epoch: u64,
    now: TimestampMs,
    breaker: &mut Breaker,
) -> Result<Applied, ApplyError> {
    if !breaker.is_recent(now) {
        match attempt(session, batch, epoch, now, breaker, false) {
            Err(ApplyError::Sink(SinkError::Refused { .. })) => session.rollback()?,
            other => return other,
        }
    }
    attempt(session, batch, epoch, now, breaker, true)
}

/// One transaction. `careful`: with savepoints, so that a refused row is found.
fn attempt(
    session: &mut dyn Session,
    batch: &Batch,
    epoch: u64,
    now: TimestampMs,
    breaker: &mut Breaker,
    careful: bool,
) -> Result<Applied, ApplyError> {
    session.begin()?;
    if !batch.advances.is_empty() && !session.guard(&batch.advances, epoch)? {
        return Err(ApplyError::NotMine);
    }
    let mut work = Work { now, careful, applied: Applied::default(), refused: Vec::new() };
    for table in &batch.tables {
        work.put_table(session, table)?;
    }
    work.put_late(session, &batch.late)?;
    session.catalog(&batch.catalog)?;
    let Work { mut applied, refused, .. } = work;
    breaker.check(now, refused.len(), batch.orders())?;
    for (row, table) in &refused {
        session.refuse(*table, row)?;
    }
    session.commit()?;
    breaker.record(now, refused.len());
    applied.orders = batch.orders() - refused.len().min(batch.orders());
    let words =
        |(row, _): Refusal| (row.order, format!("{} {}: {}", row.class, row.code, row.message));
    applied.refused = refused.into_iter().map(words).collect();
    Ok(applied)
}

/// A transaction under way.
struct Work {
    now: TimestampMs,
    careful: bool,
    applied: Applied,
    refused: Vec<Refusal>,
}

impl Work {
    fn put_table(
        &mut self,
        session: &mut dyn Session,
        batch: &TableBatch,
    ) -> Result<(), SinkError> {
        let (table, now, careful) = (batch.table, self.now, self.careful);
        let mut missed: Vec<OrderChange> = Vec::new();
        let mut update = |session: &mut dyn Session, changes: &[OrderChange]| {
            let places = session.update(table, changes)?;
            missed.extend(places.into_iter().map(|place| changes[place].clone()));
            Ok(())
        };
        put(session, &batch.updates, careful, &mut update, &mut |change, code, message| {
            self.refused.push((refused_change(change, code, message, now), table));
        })?;
        for change in missed {
            settle_missed(session, table, &change, &mut self.applied)?;
        }
        let mut insert = |session: &mut dyn Session, rows: &[OrderRow]| session.insert(table, rows);
        put(session, &batch.inserts, careful, &mut insert, &mut |row, code, message| {
            self.refused.push((refused_order(row, code, message, now), table));
        })
    }

    fn put_late(&mut self, session: &mut dyn Session, rows: &[LateRow]) -> Result<(), SinkError> {
        let mut late = |session: &mut dyn Session, rows: &[LateRow]| session.late(rows);
        let (now, refused) = (self.now, &mut self.refused);
        put(session, rows, self.careful, &mut late, &mut |row: &LateRow, code, message| {
            // An order that was refused in this batch keeps its own refusal.
            if refused.iter().all(|(other, _)| other.order != row.order) {
                let row = RefusedRow {
                    order: row.order,
                    sale: row.sale,
                    user: row.user,
                    lines: Some(Vec::new()),
                    class: CLASS_LATE_PAYMENT,
                    code,
                    message: format!("{message} (payment {})", row.payment),
                    state: RefusedState::Open,
                    at: now,
                };
                refused.push((row, 0));
            }
        })
    }
}

/// A change hit no row: its order was refused before, or it is in the row already. Anything else
/// means that SQL lost an order.
fn settle_missed(
    session: &mut dyn Session,
    table: u16,
    change: &OrderChange,
    applied: &mut Applied,
) -> Result<(), SinkError> {
    let order = change.key.order;
    match session.find(table, order)? {
        Found::Refused => {
            if change.state.is_some_and(is_over) {
                let from = [RefusedState::Open, RefusedState::Sent];
                session.refused_mark(order, &from, RefusedState::Done)?;
            }
            Ok(())
        }
        Found::Row(lsn) if lsn >= change.lsn => {
            applied.stale += 1;
            Ok(())
        }
        _ => Err(SinkError::bug(format!(
            "order {order} is not in SQL although its first entry was written; \
             `stockade-writer recon fix` puts it back"
        ))),
    }
}

/// Puts all rows; with care, all but the refused ones.
fn put<T>(
    session: &mut dyn Session,
    rows: &[T],
    careful: bool,
    put: &mut Put<'_, T>,
    refuse: &mut dyn FnMut(&T, String, String),
) -> Result<(), SinkError> {
    if careful {
        return rows.chunks(CAREFUL_ROWS).try_for_each(|rows| halve(session, rows, put, refuse));
    }
    if rows.is_empty() { Ok(()) } else { put(session, rows) }
}

/// Puts all rows but the refused ones, halving where the dialect cannot name the refused one. Each
/// row is tried at most `2 + log2(rows)` times for each refused one.
fn halve<T>(
    session: &mut dyn Session,
    rows: &[T],
    put: &mut Put<'_, T>,
    refuse: &mut dyn FnMut(&T, String, String),
) -> Result<(), SinkError> {
    if rows.is_empty() {
        return Ok(());
    }
    session.savepoint()?;
    match put(session, rows) {
        Ok(()) => session.release(true),
        Err(SinkError::Refused { at, code, message }) => {
            session.release(false)?;
            if let [row] = rows {
                refuse(row, code, message);
                return Ok(());
            }
            let middle = at.filter(|at| *at < rows.len()).unwrap_or(rows.len() / 2);
            halve(session, &rows[..middle], put, refuse)?;
            if at.is_none() {
                return halve(session, &rows[middle..], put, refuse);
            }
            refuse(&rows[middle], code, message);
            halve(session, &rows[middle + 1..], put, refuse)
        }
        Err(other) => Err(other),
    }
}

fn refused_order(row: &OrderRow, code: String, message: String, now: TimestampMs) -> RefusedRow {
    RefusedRow {
        order: row.order,
        sale: Some(row.sale),
        user: Some(row.user),
        lines: Some(row.lines.clone()),
        class: "insert",
        code,
        message,
        state: if is_over(row.state) { RefusedState::Done } else { RefusedState::Open },
        at: now,
    }
}

fn refused_change(
    change: &OrderChange,
    code: String,
    message: String,
    now: TimestampMs,
) -> RefusedRow {
    let over = change.state.is_some_and(is_over);
    RefusedRow {
        order: change.key.order,
        sale: change.key.sale,
        user: change.key.user,
        lines: None,
        class: "update",
        code,
        message,
        state: if over { RefusedState::Done } else { RefusedState::Open },
        at: now,
    }
}
