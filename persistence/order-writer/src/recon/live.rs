//! Where the log is trimmed, the engine itself is asked: its list of orders against the rows.
//!
//! The engine answers for now, the rows stand at the cursor. An order that changed in between (the
//! log's tail tells which) is left out, and so are orders of archived sales, which only SQL still
//! knows.

use super::books::Books;
use super::compare::{Difference, Subject, extra_order};
use super::diff::{Report, sales};
use super::log;
use crate::rows::CursorRow;
use crate::sink::error::micros_or_none;
use crate::source::{Connect, Source, SourceError};
use crate::stored::{OrderStored, number};
use std::collections::{BTreeMap, BTreeSet};
use stockade_protocol::command::OrderList;
use stockade_protocol::entry::OrderKey;
use stockade_protocol::limits::ORDER_PAGE_MAX;
use stockade_protocol::reply::OrderView;
use stockade_protocol::{Command, Entry, Event, Lsn, PartitionId, Reply, SaleId};

/// All orders of the engine, as they were before `committed` was read.
#[derive(Clone, Debug)]
pub struct Live {
    views: BTreeMap<i64, OrderView>,
    sales: BTreeSet<i64>,
    committed: BTreeMap<PartitionId, Lsn>,
}

/// Asks the engine for all its orders.
///
/// # Errors
/// It is away or busy.
pub fn fetch(connect: &mut dyn Connect) -> Result<Live, SourceError> {
    let mut source = connect.connect(&[(PartitionId::CATALOG, Lsn::FIRST)])?;
    let mut live =
        Live { views: BTreeMap::new(), sales: BTreeSet::new(), committed: BTreeMap::new() };
    for sale in sales(source.as_mut())? {
        live.sales.insert(number(sale.get()));
        list(source.as_mut(), sale, &mut live.views)?;
    }
    live.committed = source.committed()?;
    Ok(live)
}

fn list(
    source: &mut dyn Source,
    sale: SaleId,
    views: &mut BTreeMap<i64, OrderView>,
) -> Result<(), SourceError> {
    let mut after = 0;
    loop {
        let page = OrderList { sale, user: None, state: None, after, count: ORDER_PAGE_MAX };
        let page = match source.call(Command::OrderList(page))? {
            Reply::Orders(page) => page,
            other => return Err(SourceError::Away(format!("order list: {other:?}"))),
        };
        let Some(last) = page.iter().filter_map(|view| view.order).max() else { return Ok(()) };
        after = last.get();
        let with_ids = page.into_iter().filter_map(|view| Some((view.order?, view)));
        views.extend(with_ids.map(|(order, view)| (number(order.get()), view)));
    }
}

impl Live {
    /// Compares a partition's rows that the remaining log does not have.
    ///
    /// # Errors
    /// The engine is away.
    pub(super) fn compare(
        &self,
        connect: &mut dyn Connect,
        cursor: &CursorRow,
        sql: &BTreeMap<i64, OrderStored>,
        books: &Books,
        refused: &BTreeSet<i64>,
        report: &mut Report,
    ) -> Result<Vec<Difference>, SourceError> {
        let partition = cursor.partition;
        let mut moved: BTreeSet<i64> = BTreeSet::new();
        let to = self.committed.get(&partition).copied().unwrap_or_default();
        log::read_each(connect, partition, cursor.lsn.next(), to, &mut |entry| {
            moved.extend(order_of(entry));
        })?;
        let known: BTreeSet<i64> = books.orders.keys().map(|id| number(id.get())).collect();
        let skip = |order: &i64| known.contains(order) || refused.contains(order);
        let (mut out, mut moving, mut archived) = (Vec::new(), 0u64, 0u64);
        for (order, row) in sql.iter().filter(|(order, _)| !skip(order)) {
            match self.views.get(order) {
                _ if moved.contains(order) => moving += 1,
                Some(view) => out.extend(compare(row, view)),
                None if self.sales.contains(&row.sale) => out.push(extra_order(*order)),
                None => archived += 1,
            }
        }
        for (order, view) in &self.views {
            let here = view.order.is_some_and(|order| order.partition() == partition);
            if here && !skip(order) && !moved.contains(order) && !sql.contains_key(order) {
                out.push(Difference {
                    subject: Subject::Order(*order),
                    what: format!("is not in SQL, the engine has it {}", view.state.word()),
                });
            }
        }
        report.notes.push(format!(
            "partition {partition}: the log begins at {}; older orders were compared with the \
             engine's list, but for {moving} that changed meanwhile and {archived} of archived \
             sales",
            books.first
        ));
        Ok(out)
    }
}

/// The order that an entry is about.
fn order_of(entry: &Entry) -> Option<i64> {
    let order = match &entry.event {
        Event::Held(placed) | Event::BornConfirmed(placed) => placed.order,
        Event::Confirmed { key, .. }
        | Event::Revived { key, .. }
        | Event::Cancelled { key, .. }
        | Event::Expired { key }
        | Event::Extended { key, .. }
        | Event::Returned { key, .. }
        | Event::LatePayment { key, .. } => {
            let OrderKey { order, .. } = *key;
            order
        }
        _ => return None,
    };
    Some(number(order.get()))
}

fn compare(row: &OrderStored, view: &OrderView) -> Option<Difference> {
    let mut what: Vec<String> = Vec::new();
    let mut check = |name: &str, sql: String, engine: String| {
        if sql != engine {
            what.push(format!("{name} is {sql}, the engine says {engine}"));
        }
    };
    check("state", row.state.to_string(), view.state.number().to_string());
    let id = |id: Option<u64>| id.map_or_else(|| "none".into(), |id| id.to_string());
    check("sale_id", row.sale.to_string(), id(view.sale.map(SaleId::get)));
    check("user_id", row.user.to_string(), id(view.user.map(|user| user.get())));
    let payment = view.payment.as_ref().map(|payment| payment.as_str().to_owned());
    check("payment_ref", format!("{:?}", row.payment), format!("{payment:?}"));
    let expires = micros_or_none(view.expires_at);
    check("expires_at", format!("{:?}", row.expires_us), format!("{expires:?}"));
    let mut lines: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
    for line in &view.lines {
        lines.entry(number(line.sku.get())).or_default().0 += i64::from(line.quantity);
    }
    for line in &view.returned {
        lines.entry(number(line.sku.get())).or_default().1 += i64::from(line.quantity);
    }
    check("lines", format!("{:?}", row.lines), format!("{lines:?}"));
    let subject = Subject::Order(row.order);
    (!what.is_empty()).then(|| Difference { subject, what: what.join("; ") })
}
