//! `refused list|retry|drop`: orders that the database did not take.

use super::Target;
use super::common::{DIFFERENT, DONE, Failure, databases, engine, written};
use crate::recon::Recon;
use crate::recon::fix::Retried;
use crate::rows::RefusedState;
use crate::sink::Database;
use crate::stored::RefusedStored;
use clap::{Args, Subcommand};
use serde_json::json;
use std::sync::Arc;
use stockade_protocol::OrderId;

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Print them.
    List {
        #[command(flatten)]
        target: Target,
        /// Only in this state: open, sent, done, reviewed.
        #[arg(long)]
        state: Option<String>,
        /// One JSON object a line.
        #[arg(long)]
        json: bool,
    },
    /// Write them from the log, once the database takes them.
    Retry(Which),
    /// Mark them as reviewed; the rows stay for the record.
    Drop(Which),
}

#[derive(Debug, Args)]
pub(super) struct Which {
    #[command(flatten)]
    target: Target,
    /// The orders.
    orders: Vec<u64>,
    /// All that are not reviewed.
    #[arg(long, conflicts_with = "orders")]
    all: bool,
    /// For the table `repairs`.
    #[arg(long, default_value = "refused retry")]
    reason: String,
}

pub(super) fn refused(verb: Verb) -> Result<u8, Failure> {
    match verb {
        Verb::List { target, state, json } => list(&target, state.as_deref(), json),
        Verb::Retry(which) => retry(&which),
        Verb::Drop(which) => drop_all(&which),
    }
}

fn list(target: &Target, state: Option<&str>, json: bool) -> Result<u8, Failure> {
    let wanted = match state.map(RefusedState::from_word) {
        Some(None) => return Err(Failure::usage("--state is open, sent, done or reviewed")),
        Some(state) => state,
        None => None,
    };
    let databases = databases(target)?;
    for row in read(target, &databases)? {
        if wanted.is_none_or(|state| state == row.state) {
            print(&row, json);
        }
    }
    Ok(DONE)
}

fn read(target: &Target, databases: &[Arc<dyn Database>]) -> Result<Vec<RefusedStored>, Failure> {
    let layout = written(target, databases)?;
    let mut out = Vec::new();
    for database in databases {
        let rows = database.reader(&layout).and_then(|mut session| session.refused());
        out.extend(rows.map_err(|e| Failure::failed(format!("{}: {e}", database.name())))?);
    }
    Ok(out)
}

fn print(row: &RefusedStored, json: bool) {
    if json {
        let object = json!({
            "order": row.order.to_string(),
            "sale": row.sale,
            "user": row.user.map(|user| user.to_string()),
            "lines": row.lines,
            "class": row.class,
            "code": row.code,
            "message": row.message,
            "state": row.state.word(),
            "at_ms": row.at.get(),
        });
        println!("{object}");
    } else {
        let RefusedStored { order, class, code, message, lines, .. } = row;
        println!("order {order} {}: {class} {code}: {message}; lines {lines}", row.state.word());
    }
}

/// The orders that are meant, all of which are refused.
fn chosen(which: &Which, databases: &[Arc<dyn Database>]) -> Result<Vec<OrderId>, Failure> {
    if which.orders.is_empty() && !which.all {
        return Err(Failure::usage("name orders, or give --all"));
    }
    let rows = read(&which.target, databases)?;
    if which.all {
        let open = rows.iter().filter(|row| row.state != RefusedState::Reviewed);
        return Ok(open.filter_map(|row| OrderId::new(row.order.unsigned_abs())).collect());
    }
    let is_refused = |order: u64| rows.iter().any(|row| row.order.unsigned_abs() == order);
    let check = |order: &u64| {
        let id = OrderId::new(*order).filter(|_| is_refused(*order));
        let message = format!("order {order} is not refused");
        id.ok_or(Failure { code: DIFFERENT, message })
    };
    which.orders.iter().map(check).collect()
}

fn retry(which: &Which) -> Result<u8, Failure> {
    let databases = databases(&which.target)?;
    let orders = chosen(which, &databases)?;
    let mut connect = engine(&which.target)?.reader();
    let layout = written(&which.target, &databases)?;
    let mut recon = Recon { layout, databases: &databases, connect: &mut connect, tally: false };
    let mut code = DONE;
    for order in orders {
        match recon.retry(order, &which.reason).map_err(Failure::failed)? {
            Retried::Written => println!("order {order}: written"),
            Retried::Refused(why) => {
                code = DIFFERENT;
                println!("order {order}: still refused: {why}");
            }
            Retried::Unknown => {
                code = DIFFERENT;
                println!("order {order}: the log does not have it any more");
            }
        }
    }
    Ok(code)
}

fn drop_all(which: &Which) -> Result<u8, Failure> {
    let databases = databases(&which.target)?;
    let layout = written(&which.target, &databases)?;
    for order in chosen(which, &databases)? {
        let database = &databases[usize::from(layout.database_of(order.partition()))];
        let from = [RefusedState::Open, RefusedState::Sent, RefusedState::Done];
        let marked = database
            .admin(&layout)
            .and_then(|mut session| session.refused_mark(order, &from, RefusedState::Reviewed));
        marked.map_err(|e| Failure::failed(format!("{}: {e}", database.name())))?;
        println!("order {order}: reviewed");
    }
    Ok(DONE)
}
