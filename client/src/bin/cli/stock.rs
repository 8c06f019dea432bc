//! `stock show|adjust`, and `top`.

use crate::output::{Failure, Output, exit_of, id};
use clap::Subcommand;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::Duration;
use stockade_client::Client;
use stockade_client::protocol::command::Adjust;
use stockade_client::protocol::{RequestId, SaleId, SkuId, SkuState, json as forms};

/// What to do with stock.
#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Figures of a sale's SKUs, or of one.
    Show {
        /// The sale.
        sale: u64,
        /// Only this SKU.
        sku: Option<u64>,
    },
    /// Add units, or take free ones away.
    #[command(allow_negative_numbers = true)]
    Adjust {
        /// The sale.
        sale: u64,
        /// The SKU.
        sku: u64,
        /// Units; negative to take away.
        delta: i64,
        /// Makes a repetition harmless.
        #[arg(long)]
        request: String,
    },
}

/// Runs a verb.
pub async fn run(client: &Client, out: &Output, verb: Verb) -> Result<ExitCode, Failure> {
    match verb {
        Verb::Show { sale, sku: Some(sku) } => {
            let (sale, sku) = (id("sale", SaleId::new(sale))?, id("sku", SkuId::new(sku))?);
            let view = client.sku(sale, sku).await?;
            out.object(&forms::sku_view(&view));
            Ok(ExitCode::from(u8::from(view.state == SkuState::Unknown)))
        }
        Verb::Show { sale, sku: None } => {
            let rows = rows(client, id("sale", SaleId::new(sale))?).await?;
            match rows {
                Some(rows) => out.rows(&rows),
                None => out.object(&json!({"outcome": "unknown_sale", "sale": sale})),
            }
            Ok(ExitCode::SUCCESS)
        }
        Verb::Adjust { sale, sku, delta, request } => {
            let adjust = Adjust {
                sale: id("sale", SaleId::new(sale))?,
                sku: id("sku", SkuId::new(sku))?,
                delta,
                request: id("request", RequestId::parse(request.as_bytes()).ok())?,
            };
            let reply = client.adjust(adjust).await?;
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

async fn rows(client: &Client, sale: SaleId) -> Result<Option<Vec<Value>>, Failure> {
    let view = client.sale(sale).await?;
    Ok(view.map(|view| view.skus.iter().map(forms::sku_view).collect()))
}

/// A table that is drawn anew every second, until interrupted.
pub async fn top(
    client: &Client,
    out: &Output,
    sale: Option<u64>,
    once: bool,
) -> Result<ExitCode, Failure> {
    let mut sold_before: Option<u64> = None;
    loop {
        let table = match sale {
            Some(sale) => {
                let rows = rows(client, id("sale", SaleId::new(sale))?).await?.unwrap_or_default();
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
