//! `order reserve|show|list|status|confirm|cancel|withdraw|extend|return`.

use crate::Server;
use crate::output::{Failure, Output, exit_of, good, id, moment, request_id};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::process::ExitCode;
use stockade_client::protocol::command::{Line, Lines, OrderList, Reserve, Return};
use stockade_client::protocol::reply::{OrderReply, OrderView, RETRY_NEVER, ReserveReply};
use stockade_client::protocol::text::{OrderData, PaymentRef, Reason};
use stockade_client::protocol::{
    OrderId, OrderState, Outcome, RequestId, SaleId, SkuId, UserId, json as forms,
};

/// What to do with orders.
#[derive(Subcommand, Debug)]
pub enum Verb {
    /// May this user have these units?
    Reserve(ReserveArguments),
    /// An order as it stands.
    Show {
        /// The order.
        #[arg(allow_negative_numbers = true)]
        order: String,
    },
    /// A sale's orders.
    List {
        /// The sale.
        #[arg(long, allow_negative_numbers = true)]
        sale: String,
        /// Only this user's.
        #[arg(long, allow_negative_numbers = true)]
        user: Option<String>,
        /// Only in this state.
        #[arg(long)]
        state: Option<String>,
    },
    /// What became of a request id.
    Status(RequestArguments),
    /// The order is paid.
    Confirm {
        /// The order.
        #[arg(allow_negative_numbers = true)]
        order: String,
        /// The payment provider's reference.
        #[arg(long)]
        payment: String,
    },
    /// Give a held order back.
    Cancel {
        /// The order.
        #[arg(allow_negative_numbers = true)]
        order: String,
        /// Why.
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// Make sure that a request id holds nothing and never will.
    Withdraw(RequestArguments),
    /// Move a held order's deadline.
    Extend {
        /// The order.
        #[arg(allow_negative_numbers = true)]
        order: String,
        /// The new deadline, ms since 1970.
        #[arg(long, allow_negative_numbers = true)]
        until: String,
    },
    /// Give units of a confirmed order back.
    Return {
        /// The order.
        #[arg(allow_negative_numbers = true)]
        order: String,
        /// Makes a repetition harmless.
        #[arg(long, allow_negative_numbers = true)]
        request: String,
        /// SKU=QTY; none: all that is left.
        #[arg(long, allow_hyphen_values = true)]
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
    #[arg(long, required = true, allow_hyphen_values = true)]
    line: Vec<String>,
    /// Opaque text that travels with the order.
    #[arg(long, default_value = "")]
    data: String,
    /// Later than this (ms since 1970) nothing is done.
    #[arg(long, allow_negative_numbers = true)]
    not_after: Option<String>,
}

/// Names a purchase.
#[derive(Args, Debug)]
pub struct RequestArguments {
    /// The sale.
    #[arg(long, allow_negative_numbers = true)]
    sale: String,
    /// The buyer.
    #[arg(long, allow_negative_numbers = true)]
    user: String,
    /// The request id: the same one, the same order.
    #[arg(long, allow_negative_numbers = true)]
    request: String,
}

impl RequestArguments {
    fn ids(&self) -> Result<(SaleId, UserId, RequestId), Failure> {
        Ok((
            id("sale", &self.sale, SaleId::new)?,
            id("user", &self.user, UserId::new)?,
            request_id(&self.request)?,
        ))
    }
}

fn lines(texts: &[String]) -> Result<Lines, Failure> {
    let line = |text: &String| {
        let usage = || Failure::Usage(format!("{text:?} is not SKU=QTY"));
        let (sku, quantity) = text.split_once('=').ok_or_else(usage)?;
        let sku = id("sku", sku, SkuId::new)?;
        let quantity = id("quantity", quantity, |units| u32::try_from(units).ok())?;
        Ok(Line { sku, quantity })
    };
    texts.iter().map(line).collect()
}

fn order_id(text: &str) -> Result<OrderId, Failure> {
    id("order", text, OrderId::new)
}

/// How a verb answers to what is malformed.
fn bad_request_of(verb: &Verb) -> Value {
    let outcome = Outcome::BadRequest;
    match verb {
        Verb::Reserve(_) => forms::reserve_reply(&ReserveReply::rejected(outcome, RETRY_NEVER)),
        Verb::List { .. } => json!({"outcome": outcome.word()}),
        _ => forms::order_reply(&OrderReply { outcome, order: None, state: OrderState::Unknown }),
    }
}

/// Runs a verb.
pub async fn run(server: &Server, out: &Output, verb: Verb) -> Result<ExitCode, Failure> {
    let form = bad_request_of(&verb);
    decide(server, out, verb).await.map_err(|failure| failure.shaped(&form))
}

async fn decide(server: &Server, out: &Output, verb: Verb) -> Result<ExitCode, Failure> {
    match verb {
        Verb::Reserve(arguments) => reserve(server, out, arguments).await,
        Verb::Show { order } => {
            let order = order_id(&order)?;
            shown(out, &server.connect().await?.order(order).await?)
        }
        Verb::List { sale, user, state } => list(server, out, (sale, user, state)).await,
        Verb::Status(key) => {
            let (sale, user, request) = key.ids()?;
            shown(out, &server.connect().await?.status(sale, user, request).await?)
        }
        Verb::Confirm { order, payment } => {
            let order = order_id(&order)?;
            let payment = good("payment", &payment, PaymentRef::new(payment.as_bytes()).ok())?;
            done(out, server.connect().await?.confirm(order, payment).await?)
        }
        Verb::Cancel { order, reason } => {
            let order = order_id(&order)?;
            let reason = good("reason", &reason, Reason::new(reason.as_bytes()).ok())?;
            done(out, server.connect().await?.cancel(order, reason).await?)
        }
        Verb::Withdraw(key) => {
            let (sale, user, request) = key.ids()?;
            done(out, server.connect().await?.withdraw(sale, user, request).await?)
        }
        Verb::Extend { order, until } => {
            let (order, until) = (order_id(&order)?, moment("until", &until)?);
            done(out, server.connect().await?.extend(order, until).await?)
        }
        Verb::Return { order, request, line, no_restock, right_stays_used } => {
            let back = Return {
                order: order_id(&order)?,
                request: request_id(&request)?,
                lines: lines(&line)?,
                restock: !no_restock,
                right: !right_stays_used,
            };
            done(out, server.connect().await?.return_units(back).await?)
        }
    }
}

fn shown(out: &Output, view: &OrderView) -> Result<ExitCode, Failure> {
    out.object(&forms::order_view(view));
    Ok(ExitCode::from(u8::from(view.state == OrderState::Unknown)))
}

fn done(out: &Output, reply: OrderReply) -> Result<ExitCode, Failure> {
    out.object(&forms::order_reply(&reply));
    Ok(exit_of(reply.outcome))
}

async fn reserve(
    server: &Server,
    out: &Output,
    arguments: ReserveArguments,
) -> Result<ExitCode, Failure> {
    let (sale, user, request) = arguments.key.ids()?;
    let reserve = Reserve {
        sale,
        user,
        request,
        lines: lines(&arguments.line)?,
        data: good("data", &arguments.data, OrderData::new(arguments.data.as_bytes()))?,
        not_after: arguments.not_after.map(|at| moment("not-after", &at)).transpose()?,
    };
    let reply = server.connect().await?.reserve(reserve).await?;
    out.object(&forms::reserve_reply(&reply));
    // As an answer to a reserve, `paused` grants nothing.
    let paused = reply.outcome == Outcome::Paused;
    Ok(if paused { ExitCode::from(1) } else { exit_of(reply.outcome) })
}

/// All pages.
async fn list(
    server: &Server,
    out: &Output,
    (sale, user, state): (String, Option<String>, Option<String>),
) -> Result<ExitCode, Failure> {
    let state = match state {
        Some(word) => Some(
            OrderState::from_word(&word)
                .ok_or_else(|| Failure::Usage(format!("{word:?} is no state of an order")))?,
        ),
        None => None,
    };
    let user = user.map(|text| id("user", &text, UserId::new)).transpose()?;
    let mut page = OrderList {
        sale: id("sale", &sale, SaleId::new)?,
        user,
        state,
        after: 0,
        count: stockade_client::protocol::limits::ORDER_PAGE_MAX,
    };
    let client = server.connect().await?;
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
