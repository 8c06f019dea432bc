//! The comparison itself: rows as stored against rows as the log says. Pure.
//!
//! One difference is one line and names one thing: an order with its lines, a late payment, a sale,
//! a SKU.

use super::books::Books;
use crate::catalog_json;
use crate::rows::{CatalogChange, SaleRowState};
use crate::sink::error::micros;
use crate::stored::{
    CatalogStored, LatePayments, LateStored, OrderStored, SaleStored, SkuStored, number,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug};
use stockade_protocol::OrderState;

/// What differs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Subject {
    /// An order, with its lines.
    Order(i64),
    /// A late payment of an order.
    Late(i64, String),
    /// A sale.
    Sale(i64),
    /// A SKU of a sale.
    Sku(i64, i64),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Order(order) => write!(f, "order {order}"),
            Self::Late(order, payment) => write!(f, "late payment {payment} of order {order}"),
            Self::Sale(sale) => write!(f, "sale {sale}"),
            Self::Sku(sale, sku) => write!(f, "sku {sku} of sale {sale}"),
        }
    }
}

/// One difference.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Difference {
    /// Of what.
    pub subject: Subject,
    /// In words.
    pub what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.what)
    }
}

const EXTRA: &str = "is in SQL, the log does not have it";

/// True if the log was read from its first entry.
pub fn is_complete(books: &Books) -> bool {
    !books.trimmed && books.first.get() <= 1
}

/// Orders of a partition. Rows that an incomplete log does not have are left to others.
pub fn orders(
    sql: &BTreeMap<i64, OrderStored>,
    books: &Books,
    refused: &BTreeSet<i64>,
) -> Vec<Difference> {
    orders_within(sql, books, refused, &|_| true)
}

/// The same for a part of the orders, of which `sql` has the rows.
pub fn orders_within(
    sql: &BTreeMap<i64, OrderStored>,
    books: &Books,
    refused: &BTreeSet<i64>,
    within: &dyn Fn(i64) -> bool,
) -> Vec<Difference> {
    let mut out = Vec::new();
    let mut known: BTreeSet<i64> = BTreeSet::new();
    for row in books.orders.values().filter(|row| within(number(row.order.get()))) {
        let log = OrderStored::from(row);
        known.insert(log.order);
        if refused.contains(&log.order) {
            continue;
        }
        match sql.get(&log.order) {
            Some(stored) => out.extend(order(stored, &log)),
            None => out.push(Difference {
                subject: Subject::Order(log.order),
                what: format!(
                    "is not in SQL, the log has it {} at entry {}",
                    row.state.word(),
                    row.lsn
                ),
            }),
        }
    }
    if is_complete(books) {
        let extra = sql.keys().filter(|order| !known.contains(order) && !refused.contains(order));
        out.extend(extra.map(|order| extra_order(*order)));
    }
    out
}

/// A row that the log does not have.
pub fn extra_order(order: i64) -> Difference {
    Difference { subject: Subject::Order(order), what: EXTRA.into() }
}

/// Collects the columns that differ.
struct Columns(Vec<String>);

impl Columns {
    fn check<T: PartialEq + Debug>(&mut self, name: &str, sql: &T, log: &T) {
        if sql != log {
            self.0.push(format!("{name} is {sql:?}, the log says {log:?}"));
        }
    }

    fn difference(self, subject: Subject) -> Option<Difference> {
        (!self.0.is_empty()).then(|| Difference { subject, what: self.0.join("; ") })
    }
}

fn order(sql: &OrderStored, log: &OrderStored) -> Option<Difference> {
    let mut columns = Columns(Vec::new());
    columns.check("sale_id", &sql.sale, &log.sale);
    columns.check("user_id", &sql.user, &log.user);
    columns.check("state", &state(sql.state), &state(log.state));
    columns.check("request_id", &sql.request, &log.request);
    columns.check("payment_ref", &sql.payment, &log.payment);
    columns.check("data", &sql.data, &log.data);
    columns.check("partition_id", &sql.partition, &log.partition);
    columns.check("lsn", &sql.lsn, &log.lsn);
    columns.check("created_at", &sql.created_us, &log.created_us);
    columns.check("expires_at", &sql.expires_us, &log.expires_us);
    columns.check("updated_at", &sql.updated_us, &log.updated_us);
    lines(&mut columns, &sql.lines, &log.lines);
    columns.difference(Subject::Order(log.order))
}

fn lines(columns: &mut Columns, sql: &BTreeMap<i64, (i64, i64)>, log: &BTreeMap<i64, (i64, i64)>) {
    for (sku, (quantity, returned)) in log {
        match sql.get(sku) {
            None => columns.0.push(format!("sku {sku} has no line, the log says {quantity}")),
            Some(stored) => {
                columns.check(&format!("sku {sku} qty"), &stored.0, quantity);
                columns.check(&format!("sku {sku} returned_qty"), &stored.1, returned);
            }
        }
    }
    for sku in sql.keys().filter(|sku| !log.contains_key(sku)) {
        columns.0.push(format!("sku {sku} has a line, the log has none"));
    }
}

/// A state as its number and word.
fn state(state: i64) -> String {
    let word = u8::try_from(state).ok().and_then(OrderState::from_number).map(OrderState::word);
    format!("{state} ({})", word.unwrap_or("no state"))
}

/// Late payments of a partition.
pub fn late_payments(
    sql: &LatePayments,
    books: &Books,
    refused: &BTreeSet<i64>,
) -> Vec<Difference> {
    let mut out = Vec::new();
    let mut known: BTreeSet<(i64, String)> = BTreeSet::new();
    for ((order, payment), row) in &books.late {
        let key = (number(order.get()), payment.clone());
        let log = LateStored::from(row);
        if !refused.contains(&key.0) {
            let subject = Subject::Late(key.0, key.1.clone());
            match sql.get(&key) {
                None => out.push(Difference {
                    subject,
                    what: format!("is not in SQL, the log has it ({})", log.reason),
                }),
                // In a log without its beginning an earlier entry may have had the first word.
                Some(_) if !is_complete(books) => {}
                Some(stored) => {
                    let mut columns = Columns(Vec::new());
                    columns.check("reason", &stored.reason, &log.reason);
                    columns.check("at", &stored.at_us, &log.at_us);
                    out.extend(columns.difference(subject));
                }
            }
        }
        known.insert(key);
    }
    if is_complete(books) {
        let extra = sql.keys().filter(|key| !known.contains(key) && !refused.contains(&key.0));
        out.extend(extra.map(|(order, payment)| Difference {
            subject: Subject::Late(*order, payment.clone()),
            what: EXTRA.into(),
        }));
    }
    out
}

/// The catalog that these changes make.
pub fn catalog_of(changes: &[CatalogChange]) -> CatalogStored {
    let mut out = CatalogStored::default();
    for change in changes {
        match change {
            CatalogChange::Put(definition) => {
                let sale = number(definition.sale.get());
                let before = out.sales.get(&sale).map(|sale| sale.state);
                let row = SaleStored {
                    name: definition.name.clone(),
                    opens_us: micros(definition.opens_at),
                    closes_us: definition.closes_at.map(micros),
                    state: before.unwrap_or(SaleRowState::Live as i64),
                    definition: catalog_json::definition(definition),
                };
                out.sales.insert(sale, row);
                for sku in &definition.skus {
                    let labels = catalog_json::labels(&sku.labels).to_string();
                    let fresh = SkuStored { total: i64::from(sku.stock), labels: labels.clone() };
                    let key = (sale, number(sku.sku.get()));
                    out.skus.entry(key).or_insert(fresh).labels = labels;
                }
            }
            CatalogChange::State(sale, state) => {
                if let Some(row) = out.sales.get_mut(&number(sale.get())) {
                    row.state = *state as i64;
                }
            }
            CatalogChange::Adjust(sale, sku, applied) => {
                let key = (number(sale.get()), number(sku.get()));
                if let Some(row) = out.skus.get_mut(&key) {
                    row.total += applied;
                }
            }
        }
    }
    out
}

/// Sales and SKUs.
pub fn catalog(sql: &CatalogStored, log: &CatalogStored) -> Vec<Difference> {
    let mut out = Vec::new();
    rows(&sql.sales, &log.sales, &|sale| Subject::Sale(*sale), &mut out, &|columns, sql, log| {
        columns.check("name", &sql.name, &log.name);
        columns.check("opens_at", &sql.opens_us, &log.opens_us);
        columns.check("closes_at", &sql.closes_us, &log.closes_us);
        columns.check("state", &sql.state, &log.state);
        columns.check("definition", &sql.definition, &log.definition);
    });
    let subject = |(sale, sku): &(i64, i64)| Subject::Sku(*sale, *sku);
    rows(&sql.skus, &log.skus, &subject, &mut out, &|columns, sql, log| {
        columns.check("total", &sql.total, &log.total);
        columns.check("labels", &sql.labels, &log.labels);
    });
    out
}

fn rows<K: Ord, V>(
    sql: &BTreeMap<K, V>,
    log: &BTreeMap<K, V>,
    subject: &dyn Fn(&K) -> Subject,
    out: &mut Vec<Difference>,
    check: &dyn Fn(&mut Columns, &V, &V),
) {
    for (key, row) in log {
        match sql.get(key) {
            Some(stored) => {
                let mut columns = Columns(Vec::new());
                check(&mut columns, stored, row);
                out.extend(columns.difference(subject(key)));
            }
            None => out.push(Difference {
                subject: subject(key),
                what: "is not in SQL, the log has it".into(),
            }),
        }
    }
    let extra = sql.keys().filter(|key| !log.contains_key(key));
    out.extend(extra.map(|key| Difference { subject: subject(key), what: EXTRA.into() }));
}
