//! `recon fix`: the log wins. Each partition is repaired in one transaction in which the cursor
//! stands still, and every repair is recorded in `repairs` with the operator's reason.
//!
//! Also the way back for refused orders: `refused retry` writes them from the log once the database
//! takes them.

use super::books::Books;
use super::compare::{self, Difference, Subject, is_complete};
use super::{Recon, ReconError, log};
use crate::rows::{CLASS_LATE_PAYMENT, LateRow, OrderRow};
use crate::sink::{Session, SinkError};
use crate::stored::{number, order_range};
use std::collections::BTreeSet;
use stockade_protocol::{Lsn, OrderId, PartitionId};

/// How often a repair waits for a moving cursor.
const TRIES_MAX: usize = 20;

/// What was repaired.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Repaired {
    /// By database, what was different and is not any more.
    pub repaired: Vec<(usize, Difference)>,
    /// Differences that the log cannot mend.
    pub left: Vec<(usize, Difference)>,
}

/// What became of a refused order that was tried again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Retried {
    /// It is in its tables now.
    Written,
    /// The database still refuses it.
    Refused(String),
    /// The log no longer has it.
    Unknown,
}

impl Recon<'_> {
    /// Repairs everything that the log tells.
    ///
    /// # Errors
    /// See [`ReconError`]. What was repaired before stays repaired.
    pub fn fix(&mut self, reason: &str) -> Result<Repaired, ReconError> {
        let report = self.diff()?;
        let mut out = Repaired::default();
        let mut wanted: BTreeSet<(usize, PartitionId)> = BTreeSet::new();
        for (index, difference) in &report.differences {
            wanted.insert((*index, partition_of(&difference.subject)));
        }
        for (index, partition) in wanted {
            let repaired = self.fix_partition(index, partition, reason)?;
            out.repaired.extend(repaired.into_iter().map(|difference| (index, difference)));
        }
        let done: BTreeSet<&Subject> = out.repaired.iter().map(|(_, d)| &d.subject).collect();
        let left = report.differences.iter().filter(|(_, d)| !done.contains(&d.subject));
        out.left = left.cloned().collect();
        Ok(out)
    }

    fn fix_partition(
        &mut self,
        index: usize,
        partition: PartitionId,
        reason: &str,
    ) -> Result<Vec<Difference>, ReconError> {
        let layout = self.layout;
        self.still(index, partition, &mut |session, books| {
            let refused: BTreeSet<i64> =
                session.refused()?.iter().map(|refused| refused.order).collect();
            let mut found = Vec::new();
            if partition == PartitionId::CATALOG {
                if is_complete(books) {
                    let log = compare::catalog_of(&books.catalog);
                    found = compare::catalog(&session.sales()?, &log);
                }
                if !found.is_empty() {
                    session.delete_sales()?;
                    session.catalog(&books.catalog)?;
                }
            } else if layout.is_in(partition, index as u16) {
                let table = layout.table_of(partition);
                let sql = session.orders(table, order_range(partition))?;
                found = compare::orders(&sql, books, &refused);
                let late = session.late_payments(partition)?;
                found.extend(compare::late_payments(&late, books, &refused));
                for difference in &found {
                    repair(session, table, &difference.subject, books)?;
                }
            }
            if partition != PartitionId::CATALOG {
                found.extend(delete_strays(session, &layout, partition, books, &refused)?);
            }
            for difference in &found {
                session.record_repair(reason, &difference.to_string())?;
            }
            Ok(found)
        })
    }

    /// Writes a refused order, or a refused late payment, from the log.
    ///
    /// # Errors
    /// See [`ReconError`].
    pub fn retry(&mut self, order: OrderId, reason: &str) -> Result<Retried, ReconError> {
        let partition = order.partition();
        let index = usize::from(self.layout.database_of(partition));
        let table = self.layout.table_of(partition);
        self.still(index, partition, &mut |session, books| {
            let row: Option<OrderRow> = books.orders.get(&order).cloned();
            let late = books.late.iter().filter(|((of, _), _)| *of == order);
            let late: Vec<LateRow> = late.map(|(_, row)| row.clone()).collect();
            let refused = session.refused()?;
            let class = refused.iter().find(|refused| refused.order == number(order.get()));
            let only_late = class.is_some_and(|refused| refused.class == CLASS_LATE_PAYMENT);
            if class.is_none() || row.is_none() {
                return Ok(Retried::Unknown);
            }
            session.savepoint()?;
            let written = (|| {
                if let Some(row) = row.filter(|_| !only_late) {
                    session.delete_order(table, number(order.get()))?;
                    session.insert(table, &[row])?;
                }
                session.late(&late)
            })();
            match written {
                Ok(()) => session.release(true)?,
                Err(SinkError::Refused { code, message, .. }) => {
                    session.release(false)?;
                    return Ok(Retried::Refused(format!("{code}: {message}")));
                }
                Err(other) => return Err(other),
            }
            session.delete_refused(number(order.get()))?;
            session.record_repair(reason, &format!("order {order}: written after a refusal"))?;
            Ok(Retried::Written)
        })
    }

    /// Runs `work` in a transaction of a database with the partition's books at its cursor.
    fn still<T>(
        &mut self,
        index: usize,
        partition: PartitionId,
        work: &mut dyn FnMut(&mut dyn Session, &Books) -> Result<T, SinkError>,
    ) -> Result<T, ReconError> {
        let database = self.databases[index].clone();
        let failed = ReconError::sink(database.as_ref());
        let mut books = Books::default();
        for _ in 0..TRIES_MAX {
            let mut session = database.admin(&self.layout).map_err(&failed)?;
            let cursor = cursor(session.as_mut(), partition).map_err(&failed)?;
            log::read(self.connect, partition, cursor, &mut books)?;
            session.begin().map_err(&failed)?;
            if session.lock(partition).map_err(&failed)? != cursor {
                session.rollback().map_err(&failed)?;
                continue;
            }
            let done = work(session.as_mut(), &books).map_err(&failed)?;
            session.commit().map_err(&failed)?;
            return Ok(done);
        }
        Err(ReconError::Moving(partition))
    }
}

/// The cursor of a partition; nothing for one that the database does not follow.
fn cursor(session: &mut dyn Session, partition: PartitionId) -> Result<Lsn, SinkError> {
    let cursors = session.cursors()?;
    let found = cursors.iter().find(|cursor| cursor.partition == partition);
    Ok(found.map(|cursor| cursor.lsn).unwrap_or_default())
}

/// The partition whose log tells about a subject.
fn partition_of(subject: &Subject) -> PartitionId {
    match subject {
        Subject::Order(order) | Subject::Late(order, _) => {
            let order = u64::try_from(*order).ok().and_then(OrderId::new);
            order.map_or(PartitionId::new(0), OrderId::partition)
        }
        Subject::Sale(_) | Subject::Sku(..) => PartitionId::CATALOG,
    }
}

/// Makes one order or late payment as the log has it.
fn repair(
    session: &mut dyn Session,
    table: u16,
    subject: &Subject,
    books: &Books,
) -> Result<(), SinkError> {
    match subject {
        Subject::Order(order) => {
            session.delete_order(table, *order)?;
            let id = u64::try_from(*order).ok().and_then(OrderId::new);
            match id.and_then(|id| books.orders.get(&id)) {
                Some(row) => session.insert(table, std::slice::from_ref(row)),
                None => Ok(()),
            }
        }
        Subject::Late(order, payment) => {
            session.delete_late(*order, payment)?;
            let id = u64::try_from(*order).ok().and_then(OrderId::new);
            match id.and_then(|id| books.late.get(&(id, payment.clone()))) {
                Some(row) => session.late(std::slice::from_ref(row)),
                None => Ok(()),
            }
        }
        Subject::Sale(_) | Subject::Sku(..) => Ok(()),
    }
}

/// Deletes rows that stand where no order of theirs can be. Lines without an order go only where
/// the log is whole and does not have the order either.
fn delete_strays(
    session: &mut dyn Session,
    layout: &crate::layout::Layout,
    partition: PartitionId,
    books: &Books,
    refused: &BTreeSet<i64>,
) -> Result<Vec<Difference>, SinkError> {
    let mut out = Vec::new();
    for table in 0..layout.tables {
        for order in session.strays(table)? {
            let id = u64::try_from(order).ok().and_then(OrderId::new);
            let known = id.is_some_and(|id| books.orders.contains_key(&id));
            let mine = partition_of(&Subject::Order(order)) == partition;
            let at_home = id.is_some_and(|id| layout.table_of(id.partition()) == table);
            let keep = at_home && (known || !is_complete(books));
            if mine && !keep && !refused.contains(&order) {
                session.delete_order(table, order)?;
                out.push(compare::extra_order(order));
            }
        }
    }
    Ok(out)
}
