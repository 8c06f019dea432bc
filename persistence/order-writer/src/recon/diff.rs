//! `recon diff`: reads all databases at their cursors and compares them with the log.

use super::books::Books;
use super::compare::{self, Difference, Subject, extra_order, is_complete};
use super::live::Live;
use super::{Recon, ReconError, live, log};
use crate::rows::{CursorRow, OrderRow};
use crate::sink::Session;
use std::collections::{BTreeMap, BTreeSet};
use stockade_protocol::{Command, Lsn, OrderState, PartitionId, Reply, SaleId};

/// What was found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// By database, one a line.
    pub differences: Vec<(usize, Difference)>,
    /// What could not be compared, and why.
    pub notes: Vec<String>,
    /// Orders of the log that were compared.
    pub orders: u64,
    /// Orders that are in `refused_orders` and were left out.
    pub refused: u64,
    /// Where it was compared: the cursors, of the catalog the lowest.
    pub vector: BTreeMap<PartitionId, Lsn>,
    /// Units by (sale, SKU): held, confirmed and not returned.
    units: BTreeMap<(u64, u64), (u64, u64)>,
    incomplete: bool,
}

impl Report {
    fn count(&mut self, row: &OrderRow) {
        self.orders += 1;
        for line in &row.lines {
            let units = self.units.entry((row.sale.get(), line.sku.get())).or_default();
            match row.state {
                OrderState::Held => units.0 += line.quantity,
                OrderState::Confirmed => units.1 += line.quantity.saturating_sub(line.returned),
                _ => {}
            }
        }
    }
}

impl Recon<'_> {
    /// Compares everything.
    ///
    /// # Errors
    /// See [`ReconError`].
    pub fn diff(&mut self) -> Result<Report, ReconError> {
        let mut report = Report::default();
        let mut live: Option<Live> = None;
        for index in 0..self.databases.len() {
            self.database(index, &mut report, &mut live)?;
        }
        if report.incomplete {
            report.notes.push("units per SKU: not compared, the log is not whole".into());
        } else {
            self.units(&mut report)?;
        }
        report.differences.sort();
        report.differences.dedup();
        Ok(report)
    }

    fn database(
        &mut self,
        index: usize,
        report: &mut Report,
        live: &mut Option<Live>,
    ) -> Result<(), ReconError> {
        let database = self.databases[index].clone();
        let failed = ReconError::sink(database.as_ref());
        let mut session = database.reader(&self.layout).map_err(&failed)?;
        session.begin_read().map_err(&failed)?;
        let refused = session.refused().map_err(&failed)?;
        let refused: BTreeSet<i64> = refused.iter().map(|row| row.order).collect();
        report.refused += refused.len() as u64;
        let mut found: Vec<Difference> = Vec::new();
        for cursor in session.cursors().map_err(&failed)? {
            let lowest = report.vector.entry(cursor.partition).or_insert(cursor.lsn);
            *lowest = (*lowest).min(cursor.lsn);
            let mut books = Books::default();
            log::read(self.connect, cursor.partition, cursor.lsn, &mut books)?;
            let whole = is_complete(&books);
            report.incomplete |= !whole;
            if cursor.partition == PartitionId::CATALOG {
                if whole {
                    let sql = session.sales().map_err(&failed)?;
                    found.extend(compare::catalog(&sql, &compare::catalog_of(&books.catalog)));
                } else {
                    report.notes.push("catalog: not compared, the log is not whole".into());
                }
                continue;
            }
            books.orders.values().for_each(|row| report.count(row));
            let table = self.layout.table_of(cursor.partition);
            let sql = session.orders(table, cursor.partition).map_err(&failed)?;
            let late = session.late_payments(cursor.partition).map_err(&failed)?;
            found.extend(compare::orders(&sql, &books, &refused));
            found.extend(compare::late_payments(&late, &books, &refused));
            if !whole {
                if live.is_none() {
                    *live = Some(live::fetch(self.connect)?);
                }
                if let Some(live) = live {
                    let at: &CursorRow = &cursor;
                    found.extend(live.compare(self.connect, at, &sql, &books, &refused, report)?);
                }
            }
        }
        self.strays(session.as_mut(), &refused, &mut found).map_err(&failed)?;
        report.differences.extend(found.into_iter().map(|found| (index, found)));
        Ok(())
    }

    /// Rows that can belong to no order of their table, and lines without an order.
    fn strays(
        &self,
        session: &mut dyn Session,
        refused: &BTreeSet<i64>,
        found: &mut Vec<Difference>,
    ) -> Result<(), crate::sink::SinkError> {
        let named: BTreeSet<Subject> =
            found.iter().map(|difference| difference.subject.clone()).collect();
        for table in 0..self.layout.tables {
            let strays = session.strays(table)?;
            let fresh =
                |order: &i64| !refused.contains(order) && !named.contains(&Subject::Order(*order));
            found.extend(strays.into_iter().filter(fresh).map(extra_order));
        }
        Ok(())
    }

    /// Compares the log's units per SKU with the engine's own figures, if the engine stands where
    /// the databases stand. SQL's units follow from its rows, which were compared one by one.
    fn units(&mut self, report: &mut Report) -> Result<(), ReconError> {
        let mut source = self.connect.connect(&[(PartitionId::CATALOG, Lsn::FIRST)])?;
        let mut figures: Vec<(u64, u64, u64, u64)> = Vec::new();
        let at = |committed: &BTreeMap<PartitionId, Lsn>| {
            let lsn = |partition: &PartitionId| committed.get(partition).copied();
            report.vector.iter().all(|(partition, at)| lsn(partition).unwrap_or_default() == *at)
        };
        let still = at(&source.committed()?);
        if still {
            for sale in sales(source.as_mut())? {
                if let Reply::Sale(Some(view)) = source.call(Command::SaleGet(sale))? {
                    let units = view.skus.iter();
                    figures.extend(units.map(|u| (sale.get(), u.sku.get(), u.held, u.confirmed)));
                }
            }
        }
        if !still || !at(&source.committed()?) {
            let note = "units per SKU: not compared, the engine is ahead of the databases";
            report.notes.push(note.into());
            return Ok(());
        }
        for (sale, sku, held, confirmed) in figures {
            let log = report.units.get(&(sale, sku)).copied().unwrap_or_default();
            if log != (held, confirmed) {
                let what = format!(
                    "the engine has {held} held and {confirmed} confirmed, the log {} and {}",
                    log.0, log.1
                );
                let subject = Subject::Sku(sale as i64, sku as i64);
                report.differences.push((0, Difference { subject, what }));
            }
        }
        Ok(())
    }
}

/// The sales that the engine has.
pub(super) fn sales(
    source: &mut dyn crate::source::Source,
) -> Result<Vec<SaleId>, crate::source::SourceError> {
    match source.call(Command::SaleList)? {
        Reply::Sales(sales) => Ok(sales.into_iter().map(|sale| sale.sale).collect()),
        other => Err(crate::source::SourceError::Away(format!("sale list: {other:?}"))),
    }
}
