//! The books, from both sides: what the engine says, what SQL says (through `stockade-writer`), and
//! what the buyers were told. Each fault is a sentence; the books balance when there is none.

use crate::plan::Plan;
use crate::shop::{Ledger, sale_id};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::Command;
use stockade_client::Client;
use stockade_client::protocol::{OrderId, OrderState, UserId};

/// Faults listed at most.
const FAULTS_SHOWN_MAX: usize = 10;

/// An order as SQL has it.
#[derive(Clone, Debug)]
pub struct SqlOrder {
    /// The buyer.
    pub user: u64,
    /// Its state.
    pub state: OrderState,
    /// (SKU, units, units returned).
    pub lines: Vec<(u64, u64, u64)>,
}

/// All orders of SQL.
#[derive(Debug, Default)]
pub struct SqlBooks {
    /// By id.
    pub orders: HashMap<u64, SqlOrder>,
}

impl SqlBooks {
    /// Reads them with `stockade-writer books`.
    ///
    /// # Errors
    /// The program fails, or prints what cannot be read.
    pub fn read(binaries: &Path, url: &str) -> Result<Self, String> {
        let output = Command::new(binaries.join("stockade-writer"))
            .args(["books", "--db", url])
            .output()
            .map_err(|error| format!("stockade-writer: {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let mut books = Self::default();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let row: serde_json::Value =
                serde_json::from_str(line).map_err(|error| format!("{error}: {line}"))?;
            let number = |value: &serde_json::Value| value.as_u64().unwrap_or(0);
            let lines = row["lines"].as_array().map(Vec::as_slice).unwrap_or_default();
            let lines = lines.iter().map(|l| (number(&l[0]), number(&l[1]), number(&l[2])));
            let state = u8::try_from(number(&row["state"])).unwrap_or(0);
            let order = SqlOrder {
                user: number(&row["user"]),
                state: OrderState::from_number(state).unwrap_or(OrderState::Unknown),
                lines: lines.collect(),
            };
            books.orders.insert(number(&row["order"]), order);
        }
        Ok(books)
    }

    /// Units by SKU of orders that hold or own them: (held, confirmed less returned).
    pub fn by_sku(&self) -> BTreeMap<u64, (u64, u64)> {
        let mut units = BTreeMap::<u64, (u64, u64)>::new();
        for order in self.orders.values() {
            for (sku, quantity, returned) in &order.lines {
                let entry = units.entry(*sku).or_default();
                match order.state {
                    OrderState::Held => entry.0 += quantity,
                    OrderState::Confirmed => entry.1 += quantity.saturating_sub(*returned),
                    _ => {}
                }
            }
        }
        units
    }

    /// Units by user and SKU that use up the limit.
    pub fn by_user(&self) -> BTreeMap<(u64, u64), u64> {
        let mut units = BTreeMap::new();
        for order in self.orders.values() {
            if matches!(order.state, OrderState::Held | OrderState::Confirmed) {
                for (sku, quantity, returned) in &order.lines {
                    *units.entry((order.user, *sku)).or_default() +=
                        quantity.saturating_sub(*returned);
                }
            }
        }
        units
    }

    /// How many orders are in each state.
    pub fn by_state(&self) -> BTreeMap<&'static str, u64> {
        let mut states = BTreeMap::new();
        for order in self.orders.values() {
            *states.entry(order.state.word()).or_default() += 1;
        }
        states
    }
}

/// What is wrong, if anything.
#[derive(Debug, Default)]
pub struct Faults {
    /// The first ones.
    pub shown: Vec<String>,
    /// How many.
    pub count: u64,
}

impl Faults {
    /// Notes one.
    pub fn add(&mut self, fault: impl FnOnce() -> String) {
        self.count += 1;
        if self.shown.len() < FAULTS_SHOWN_MAX {
            self.shown.push(fault());
        }
    }

    fn check(&mut self, holds: bool, fault: impl FnOnce() -> String) {
        if !holds {
            self.add(fault);
        }
    }
}

/// Holds everything against everything.
///
/// # Errors
/// The engine does not answer.
pub async fn audit(
    client: &Client,
    plan: &Plan,
    ledger: &Ledger,
    sql: &SqlBooks,
) -> Result<Faults, String> {
    let mut faults = Faults::default();
    check_stock(client, plan, sql, &mut faults).await?;
    check_limits(client, plan, sql, &mut faults).await?;
    check_told(ledger, sql, &mut faults);
    Ok(faults)
}

/// P1: from the engine, and from SQL by itself, and the two alike.
async fn check_stock(
    client: &Client,
    plan: &Plan,
    sql: &SqlBooks,
    faults: &mut Faults,
) -> Result<(), String> {
    let view = client.sale(sale_id()).await.map_err(|error| error.to_string())?;
    let view = view.ok_or("the engine does not know the sale any more")?;
    let by_sku = sql.by_sku();
    faults.check(view.skus.len() == plan.stock.len(), || "SKUs are missing".into());
    for sku in &view.skus {
        let id = sku.sku.get();
        let stock = u64::from(plan.stock.get(&id).copied().unwrap_or(0));
        let (held, confirmed) = by_sku.get(&id).copied().unwrap_or_default();
        faults.check(sku.total == stock, || format!("P1: sku {id} has total {}", sku.total));
        faults.check(sku.free + sku.held + sku.confirmed == sku.total, || {
            format!("P1: the engine's figures of sku {id} do not add up: {sku:?}")
        });
        faults.check(held + confirmed <= stock, || {
            format!("P1: SQL has {held} held and {confirmed} confirmed of {stock} of sku {id}")
        });
        faults.check((held, confirmed) == (sku.held, sku.confirmed), || {
            format!("P9: sku {id}: SQL has ({held}, {confirmed}), the engine {sku:?}")
        });
    }
    Ok(())
}

/// P4: from SQL, and from the engine's view of every user.
async fn check_limits(
    client: &Client,
    plan: &Plan,
    sql: &SqlBooks,
    faults: &mut Faults,
) -> Result<(), String> {
    let by_user = sql.by_user();
    for ((user, sku), units) in &by_user {
        faults.check(*units <= u64::from(plan.limit), || {
            format!("P4: user {user} has {units} units of sku {sku}")
        });
    }
    let mut users: Vec<u64> = by_user.keys().map(|(user, _)| *user).collect();
    users.dedup();
    for user in users {
        let Some(id) = UserId::new(user) else { continue };
        let view = client.user(sale_id(), id).await.map_err(|error| error.to_string())?;
        for sku in &view.skus {
            let units = by_user.get(&(user, sku.sku.get())).copied().unwrap_or(0);
            faults.check(units == sku.units && sku.left >= 0, || {
                format!("P4: user {user}, {sku:?}: SQL has {units}")
            });
        }
    }
    Ok(())
}

/// P2 and P9: every order that a buyer was told of is in SQL, in the state that follows.
fn check_told(ledger: &Ledger, sql: &SqlBooks, faults: &mut Faults) {
    for (order, told) in &ledger.orders {
        let Some(row) = sql.orders.get(&order.get()) else {
            faults.add(|| format!("P2: order {order} was acknowledged and is not in SQL"));
            continue;
        };
        // Nobody paid and nobody cancelled: it ran out.
        let expected = match told.state {
            OrderState::Held => OrderState::Expired,
            state => state,
        };
        faults.check(row.state == expected && row.user == told.user.get(), || {
            format!("P2: order {order} was {:?}, SQL has {row:?}", told.state)
        });
    }
    for id in sql.orders.keys() {
        let known = OrderId::new(*id).is_some_and(|order| ledger.orders.contains_key(&order));
        faults.check(known, || format!("P5: order {id} is in SQL and nobody was told of it"));
    }
}
