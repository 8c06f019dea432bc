//! `order reserve|show|list|status|confirm|cancel|withdraw|extend|return`.

use crate::output::{Failure, Output, exit_of, id};
use clap::{Args, Subcommand};
use serde_json::json;
use std::process::ExitCode;
use stockade_client::Client;
use stockade_client::protocol::command::{Line, Lines, OrderList, Reserve, Return};
use stockade_client::protocol::ids::TimestampMs;
use stockade_client::protocol::reply::OrderReply;
use stockade_client::protocol::text::{OrderData, PaymentRef, Reason};
use stockade_client::protocol::{
    OrderId, OrderState, RequestId, SaleId, SkuId, UserId, json as forms,
};

/// What to do with orders.
#[derive(Subcommand, Debug)]
pub enum Verb {
    /// May this user have these units?
    Reserve(ReserveArguments),
    /// An order as it stands.
    Show {
        /// The order.
        order: u64,
    },
    /// A sale's orders.
    List {
        /// The sale.
        #[arg(long)]
        sale: u64,
        /// Only this user's.
        #[arg(long)]
        user: Option<u64>,
        /// Only in this state.
        #[arg(long)]
        state: Option<String>,
    },
    /// What became of a request id.
    Status(RequestArguments),
    /// The order is paid.
    Confirm {
        /// The order.
        order: u64,
        /// The payment provider's reference.
        #[arg(long)]
        payment: String,
    },
    /// Give a held order back.
    Cancel {
        /// The order.
        order: u64,
        /// Why.
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// Make sure that a request id holds nothing and never will.
    Withdraw(RequestArguments),
    /// Move a held order's deadline.
    Extend {
        /// The order.
        order: u64,
        /// The new deadline, ms since 1970.
        #[arg(long)]
        until: u64,
    },
    /// Give units of a confirmed order back.
    Return {
        /// The order.
        order: u64,
        /// Makes a repetition harmless.
        #[arg(long)]
        request: String,
        /// SKU=QTY; none: all that is left.
        #[arg(long)]
        line: Vec<String>,
        /// The units leave the sale.
        #[arg(long)]
        no_restock: bool,
        /// The user's limit stays used.
        #[arg(long)]
        right_stays_used: bool,
    },
}

/// Of `reserve`.
#[derive(Args, Debug)]
pub struct ReserveArguments {
    #[command(flatten)]
    key: RequestArguments,
    /// SKU=QTY; several times for a basket.
    #[arg(long, required = true)]
    line: Vec<String>,
    /// Opaque text that travels with the order.
    #[arg(long, default_value = "")]
    data: String,
    /// Later than this (ms since 1970) nothing is done.
    #[arg(long)]
    not_after: Option<u64>,
}

/// Names a purchase.
#[derive(Args, Debug)]
pub struct RequestArguments {
    /// The sale.
    #[arg(long)]
    sale: u64,
    /// The buyer.
    #[arg(long)]
    user: u64,
    /// The request id: the same one, the same order.
    #[arg(long)]
    request: String,
}

impl RequestArguments {
    fn ids(&self) -> Result<(SaleId, UserId, RequestId), Failure> {
        Ok((
            id("sale", SaleId::new(self.sale))?,
            id("user", UserId::new(self.user))?,
            id("request", RequestId::parse(self.request.as_bytes()).ok())?,
        ))
    }
}

fn lines(texts: &[String]) -> Result<Lines, Failure> {
    let line = |text: &String| {
        let usage = || Failure::Usage(format!("{text:?} is not SKU=QTY"));
        let (sku, quantity) = text.split_once('=').ok_or_else(usage)?;
        let number = sku.parse().map_err(|_| usage())?;
        let quantity = quantity.parse().map_err(|_| usage())?;
        Ok(Line { sku: id("sku", SkuId::new(number))?, quantity })
    };
    texts.iter().map(line).collect()
}

fn order_id(number: u64) -> Result<OrderId, Failure> {
    id("order", OrderId::new(number))
}

/// Runs a verb.
pub async fn run(client: &Client, out: &Output, verb: Verb) -> Result<ExitCode, Failure> {
    match verb {
        Verb::Reserve(arguments) => reserve(client, out, arguments).await,
        Verb::Show { order } => {
            let view = client.order(order_id(order)?).await?;
            out.object(&forms::order_view(&view));
            Ok(ExitCode::from(u8::from(view.state == OrderState::Unknown)))
        }
        Verb::List { sale, user, state } => list(client, out, (sale, user, state)).await,
        Verb::Status(key) => {
            let (sale, user, request) = key.ids()?;
            let view = client.status(sale, user, request).await?;
            out.object(&forms::order_view(&view));
            Ok(ExitCode::from(u8::from(view.state == OrderState::Unknown)))
        }
        Verb::Confirm { order, payment } => {
            let payment = id("payment", PaymentRef::new(payment.as_bytes()).ok())?;
            done(out, client.confirm(order_id(order)?, payment).await?)
        }
        Verb::Cancel { order, reason } => {
            let reason = id("reason", Reason::new(reason.as_bytes()).ok())?;
            done(out, client.cancel(order_id(order)?, reason).await?)
        }
        Verb::Withdraw(key) => {
            let (sale, user, request) = key.ids()?;
            done(out, client.withdraw(sale, user, request).await?)
        }
        Verb::Extend { order, until } => {
            done(out, client.extend(order_id(order)?, TimestampMs::new(until)).await?)
        }
        Verb::Return { order, request, line, no_restock, right_stays_used } => {
            let back = Return {
                order: order_id(order)?,
                request: id("request", RequestId::parse(request.as_bytes()).ok())?,
                lines: lines(&line)?,
                restock: !no_restock,
                right: !right_stays_used,
            };
            done(out, client.return_units(back).await?)
        }
    }
}

fn done(out: &Output, reply: OrderReply) -> Result<ExitCode, Failure> {
    out.object(&forms::order_reply(&reply));
    Ok(exit_of(reply.outcome))
}

async fn reserve(
    client: &Client,
    out: &Output,
    arguments: ReserveArguments,
) -> Result<ExitCode, Failure> {
    let (sale, user, request) = arguments.key.ids()?;
    let reserve = Reserve {
        sale,
        user,
        request,
        lines: lines(&arguments.line)?,
        data: id("data", OrderData::new(arguments.data.as_bytes()))?,
        not_after: arguments.not_after.map(TimestampMs::new),
    };
    let reply = client.reserve(reserve).await?;
    out.object(&forms::reserve_reply(&reply));
    // As an answer to a reserve, `paused` grants nothing.
    let paused = reply.outcome == stockade_client::protocol::Outcome::Paused;
    Ok(if paused { ExitCode::from(1) } else { exit_of(reply.outcome) })
}

/// All pages.
async fn list(
    client: &Client,
    out: &Output,
    (sale, user, state): (u64, Option<u64>, Option<String>),
) -> Result<ExitCode, Failure> {
    let state = match state {
        Some(word) => Some(
            OrderState::from_word(&word)
                .ok_or_else(|| Failure::Usage(format!("{word:?} is no state of an order")))?,
        ),
        None => None,
    };
    let user = user.map(|number| id("user", UserId::new(number))).transpose()?;
    let mut page = OrderList {
        sale: id("sale", SaleId::new(sale))?,
        user,
        state,
        after: 0,
        count: stockade_client::protocol::limits::ORDER_PAGE_MAX,
    };
    let mut rows = Vec::new();
    loop {
        let orders = client.orders(page.clone()).await?;
        rows.extend(orders.iter().map(|view| {
            let mut row = forms::order_view(view);
            if !out.json {
                row["lines"] = json!(view.lines.len());
            }
            row
        }));
        match orders.last().and_then(|view| view.order) {
            Some(last) if orders.len() == page.count as usize => page.after = last.get(),
            _ => break,
        }
    }
    out.rows(&rows);
    Ok(ExitCode::SUCCESS)
}
