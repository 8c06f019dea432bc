//! `stock show|adjust`, and `top`.

use crate::Server;
use crate::output::{Failure, Output, decimal, exit_of, good, id, request_id};
use crate::sale::unknown_sale;
use clap::Subcommand;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::Duration;
use stockade_client::Client;
use stockade_client::protocol::command::Adjust;
use stockade_client::protocol::{SaleId, SkuId, SkuState, json as forms};

/// What to do with stock.
#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Figures of a sale's SKUs, or of one.
    Show {
        /// The sale.
        #[arg(allow_negative_numbers = true)]
        sale: String,
        /// Only this SKU.
        #[arg(allow_negative_numbers = true)]
        sku: Option<String>,
    },
    /// Add units, or take free ones away.
    #[command(allow_negative_numbers = true)]
    Adjust {
        /// The sale.
        sale: String,
        /// The SKU.
        sku: String,
        /// Units; negative to take away.
        delta: String,
        /// Makes a repetition harmless.
        #[arg(long)]
        request: String,
    },
}

/// Runs a verb.
pub async fn run(server: &Server, out: &Output, verb: Verb) -> Result<ExitCode, Failure> {
    match verb {
        Verb::Show { sale, sku } => show(server, out, &sale, sku.as_deref()).await,
        Verb::Adjust { sale, sku, delta, request } => {
            let form = json!({"outcome": "bad_request", "applied": 0, "total": 0, "free": 0});
            let adjust = adjust(&sale, &sku, &delta, &request);
            let adjust = adjust.map_err(|failure| failure.shaped(&form))?;
            let reply = server.connect().await?.adjust(adjust).await?;
            out.object(&json!({
                "outcome": reply.outcome.word(),
                "applied": reply.applied,
                "total": reply.total,
                "free": reply.free,
            }));
            Ok(exit_of(reply.outcome))
        }
    }
}

fn adjust(sale: &str, sku: &str, delta: &str, request: &str) -> Result<Adjust, Failure> {
    Ok(Adjust {
        sale: id("sale", sale, SaleId::new)?,
        sku: id("sku", sku, SkuId::new)?,
        delta: good("delta", delta, signed(delta))?,
        request: request_id(request)?,
    })
}

/// A strict decimal that may have a minus.
fn signed(text: &str) -> Option<i64> {
    match text.strip_prefix('-') {
        Some(digits) => decimal(digits).and_then(|units| 0i64.checked_sub_unsigned(units)),
        None => decimal(text).and_then(|units| i64::try_from(units).ok()),
    }
}

async fn show(
    server: &Server,
    out: &Output,
    sale: &str,
    sku: Option<&str>,
) -> Result<ExitCode, Failure> {
    let parse = || {
        let sku = sku.map(|sku| id("sku", sku, SkuId::new)).transpose()?;
        Ok((id("sale", sale, SaleId::new)?, sku))
    };
    let form = json!({"outcome": "bad_request", "sale": 0});
    let (sale, sku) = parse().map_err(|failure: Failure| failure.shaped(&form))?;
    let client = server.connect().await?;
    match sku {
        Some(sku) => {
            let view = client.sku(sale, sku).await?;
            out.object(&forms::sku_view(&view));
            Ok(ExitCode::from(u8::from(view.state == SkuState::Unknown)))
        }
        None => match rows(&client, sale).await? {
            Some(rows) => {
                out.rows(&rows);
                Ok(ExitCode::SUCCESS)
            }
            None => Ok(unknown_sale(out, sale)),
        },
    }
}

async fn rows(client: &Client, sale: SaleId) -> Result<Option<Vec<Value>>, Failure> {
    let view = client.sale(sale).await?;
    Ok(view.map(|view| view.skus.iter().map(forms::sku_view).collect()))
}

/// A table that is drawn anew every second, until interrupted.
pub async fn top(
    server: &Server,
    out: &Output,
    sale: Option<String>,
    once: bool,
) -> Result<ExitCode, Failure> {
    let form = json!({"outcome": "bad_request", "sale": 0});
    let sale = sale.map(|text| id("sale", &text, SaleId::new)).transpose();
    let sale = sale.map_err(|failure| failure.shaped(&form))?;
    let client = server.connect().await?;
    let mut sold_before: Option<u64> = None;
    loop {
        let table = match sale {
            Some(sale) => {
                let Some(rows) = rows(&client, sale).await? else {
                    return Ok(unknown_sale(out, sale));
                };
                let units = |row: &Value, key: &str| row[key].as_u64().unwrap_or(0);
                let sold = rows.iter().map(|row| units(row, "held") + units(row, "confirmed"));
                let sold: u64 = sold.sum();
                let rate = sold_before.map_or(0, |before| sold.saturating_sub(before));
                sold_before = Some(sold);
                if !once && !out.json {
                    out.line("\x1b[2J\x1b[H");
                    out.line(&format!("sale {sale}: {sold} units in orders, {rate} a second"));
                }
                rows
            }
            None => client.sales().await?.iter().map(forms::sale_summary).collect(),
        };
        out.rows(&table);
        if once {
            return Ok(ExitCode::SUCCESS);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
