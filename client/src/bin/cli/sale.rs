//! `sale put|show|list|pause|resume|close`.

use crate::output::{Failure, Output, exit_of, id};
use clap::Subcommand;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use stockade_client::Client;
use stockade_client::protocol::reply::SaleSwitchReply;
use stockade_client::protocol::{SaleId, SalePatch, json as forms};

/// What to do with sales.
#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Create a sale from a file, or merge the file into it.
    Put {
        /// TOML or JSON.
        file: PathBuf,
    },
    /// A sale with its figures.
    Show {
        /// The sale.
        sale: u64,
    },
    /// All sales that are not archived.
    List,
    /// Stop reserves.
    Pause {
        /// The sale.
        sale: u64,
    },
    /// Let reserves go on.
    Resume {
        /// The sale.
        sale: u64,
    },
    /// End a sale for good.
    Close {
        /// The sale.
        sale: u64,
    },
}

/// Reads a sale file, TOML or JSON by its ending.
pub fn read_file(path: &Path) -> Result<SalePatch, Failure> {
    let named = |why: String| Failure::Usage(format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| named(error.to_string()))?;
    let is_json = path.extension().is_some_and(|extension| extension == "json");
    let value = if is_json {
        serde_json::from_str(&text).map_err(|error| named(error.to_string()))?
    } else {
        let table: toml::Table = text.parse().map_err(|e: toml::de::Error| named(e.to_string()))?;
        to_json(&toml::Value::Table(table))
    };
    forms::sale_patch_from_value(&value).map_err(named)
}

/// TOML as JSON; moments become text, so that those without an offset are refused like any other.
fn to_json(value: &toml::Value) -> Value {
    match value {
        toml::Value::String(text) => json!(text),
        toml::Value::Integer(number) => json!(number),
        toml::Value::Float(number) => json!(number),
        toml::Value::Boolean(value) => json!(value),
        toml::Value::Datetime(moment) => json!(moment.to_string()),
        toml::Value::Array(list) => list.iter().map(to_json).collect(),
        toml::Value::Table(table) => {
            let pairs = table.iter().map(|(key, value)| (key.clone(), to_json(value)));
            Value::Object(pairs.collect())
        }
    }
}

/// Runs a verb.
pub async fn run(
    client: &Client,
    out: &Output,
    verb: Verb,
    patch: Option<SalePatch>,
) -> Result<ExitCode, Failure> {
    let sale = |number: u64| id("sale", SaleId::new(number));
    match verb {
        Verb::Put { .. } => {
            let patch = patch.ok_or_else(|| Failure::Usage("a file is missing".into()))?;
            let reply = client.sale_put(patch).await?;
            out.object(&json!({
                "outcome": reply.outcome.word(),
                "sale": reply.sale.map_or(0, SaleId::get),
                "why": reply.why,
            }));
            Ok(exit_of(reply.outcome))
        }
        Verb::Show { sale: number } => match client.sale(sale(number)?).await? {
            Some(view) => {
                out.object(&forms::sale_view(&view));
                Ok(ExitCode::SUCCESS)
            }
            None => {
                out.object(&json!({"outcome": "unknown_sale", "sale": number}));
                Ok(ExitCode::from(1))
            }
        },
        Verb::List => {
            let sales = client.sales().await?;
            out.rows(&sales.iter().map(forms::sale_summary).collect::<Vec<_>>());
            Ok(ExitCode::SUCCESS)
        }
        Verb::Pause { sale: number } => switched(out, client.sale_pause(sale(number)?).await?),
        Verb::Resume { sale: number } => switched(out, client.sale_resume(sale(number)?).await?),
        Verb::Close { sale: number } => switched(out, client.sale_close(sale(number)?).await?),
    }
}

fn switched(out: &Output, reply: SaleSwitchReply) -> Result<ExitCode, Failure> {
    out.object(&json!({"outcome": reply.outcome.word(), "sale": reply.sale.get()}));
    Ok(exit_of(reply.outcome))
}
