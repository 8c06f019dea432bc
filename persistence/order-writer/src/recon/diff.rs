//! `recon diff`: reads all databases at their cursors and compares them with the log.

use super::books::Books;
use super::compare::{self, Difference, Subject, extra_order, is_complete};
use super::live::Live;
use super::tally::Tallies;
use super::{Recon, ReconError, digest, live, log};
use crate::rows::{CursorRow, OrderRow};
use crate::sink::{Session, SinkError};
use crate::stored::{OrderStored, RefusedStored, bucket, bucket_range, number, order_range};
use std::collections::{BTreeMap, BTreeSet};
use stockade_protocol::{Command, Lsn, PartitionId, Reply, SaleId};

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
    /// Units by (sale, SKU), side by side.
    pub tallies: Tallies,
    /// Every refused order.
    pub refused_orders: Vec<RefusedStored>,
    /// Money that came for nothing, by reason.
    pub late_payments: BTreeMap<String, u64>,
    /// Orders that were read row by row, because a checksum differed or there are none.
    pub rows_read: u64,
    incomplete: bool,
}

impl Report {
    fn count(&mut self, row: &OrderRow, refused: &BTreeSet<i64>) {
        self.orders += 1;
        self.tallies.log(row, refused.contains(&number(row.order.get())));
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
        let rows = session.refused().map_err(&failed)?;
        let refused: BTreeSet<i64> = rows.iter().map(|row| row.order).collect();
        report.refused += refused.len() as u64;
        report.refused_orders.extend(rows);
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
            books.orders.values().for_each(|row| report.count(row, &refused));
            let late = session.late_payments(cursor.partition).map_err(&failed)?;
            for row in late.values() {
                *report.late_payments.entry(row.reason.clone()).or_default() += 1;
            }
            let partition = cursor.partition;
            let sql = self
                .orders(session.as_mut(), partition, whole, &books, &refused, &mut found, report)
                .map_err(&failed)?;
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
        for table in (0..self.layout.tables).filter(|_| self.tally) {
            let units = session.units(table).map_err(&failed)?;
            units.iter().for_each(|units| report.tallies.sql(units));
        }
        report.differences.extend(found.into_iter().map(|found| (index, found)));
        Ok(())
    }

    /// Compares a partition's orders and returns the rows that were read. Where the log is whole
    /// and the database has checksums, only buckets that differ are read.
    #[expect(clippy::too_many_arguments, reason = "the parts of one comparison")]
    fn orders(
        &self,
        session: &mut dyn Session,
        partition: PartitionId,
        whole: bool,
        books: &Books,
        refused: &BTreeSet<i64>,
        found: &mut Vec<Difference>,
        report: &mut Report,
    ) -> Result<BTreeMap<i64, OrderStored>, SinkError> {
        let (table, range) = (self.layout.table_of(partition), order_range(partition));
        let digests = if whole { session.digests(table, range)? } else { None };
        let mut sql = BTreeMap::new();
        if let Some(digests) = digests {
            let buckets = digest::different(&digests, &digest::digests(books, refused));
            for bucket in &buckets {
                sql.extend(session.orders(table, bucket_range(*bucket))?);
            }
            let within = |order: i64| buckets.contains(&bucket(order));
            found.extend(compare::orders_within(&sql, books, refused, &within));
        } else {
            sql = session.orders(table, range)?;
            found.extend(compare::orders(&sql, books, refused));
        }
        report.rows_read += sql.len() as u64;
        Ok(sql)
    }

    /// Rows that can belong to no order of their table, and lines without an order.
    fn strays(
        &self,
        session: &mut dyn Session,
        refused: &BTreeSet<i64>,
        found: &mut Vec<Difference>,
    ) -> Result<(), SinkError> {
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
            let log = report.tallies.engine((sale, sku), (held, confirmed));
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
