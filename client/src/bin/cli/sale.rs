//! `sale put|show|list|pause|resume|close`.

use crate::Server;
use crate::output::{Failure, Output, exit_of, id};
use clap::Subcommand;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
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
        #[arg(allow_negative_numbers = true)]
        sale: String,
    },
    /// All sales that are not archived.
    List,
    /// Stop reserves.
    Pause {
        /// The sale.
        #[arg(allow_negative_numbers = true)]
        sale: String,
    },
    /// Let reserves go on.
    Resume {
        /// The sale.
        #[arg(allow_negative_numbers = true)]
        sale: String,
    },
    /// End a sale for good.
    Close {
        /// The sale.
        #[arg(allow_negative_numbers = true)]
        sale: String,
    },
}

/// Reads a sale file, TOML or JSON by its ending. A file that is not there is wrong usage; one that
/// says what cannot be is a bad request.
fn read_file(path: &Path) -> Result<SalePatch, Failure> {
    let place = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::Usage(format!("{place}: {error}")))?;
    let named = |why: String| {
        let form = json!({"outcome": "bad_request", "sale": 0, "why": why});
        Failure::BadRequest(format!("{place}: {why}"), form)
    };
    if text.len() > forms::SALE_FILE_BYTES_MAX {
        return Err(named(format!("larger than {} bytes", forms::SALE_FILE_BYTES_MAX)));
    }
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
pub async fn run(server: &Server, out: &Output, verb: Verb) -> Result<ExitCode, Failure> {
    let sale = |text: &str| {
        let form = json!({"outcome": "bad_request", "sale": 0});
        id("sale", text, SaleId::new).map_err(|failure| failure.shaped(&form))
    };
    match verb {
        Verb::Put { file } => {
            let patch = read_file(&file)?;
            let reply = server.connect().await?.sale_put(patch).await?;
            out.object(&json!({
                "outcome": reply.outcome.word(),
                "sale": reply.sale.map_or(0, SaleId::get),
                "why": reply.why,
            }));
            Ok(exit_of(reply.outcome))
        }
        Verb::Show { sale: text } => {
            let sale = sale(&text)?;
            match server.connect().await?.sale(sale).await? {
                Some(view) => {
                    out.object(&forms::sale_view(&view));
                    Ok(ExitCode::SUCCESS)
                }
                None => Ok(unknown_sale(out, sale)),
            }
        }
        Verb::List => {
            let sales = server.connect().await?.sales().await?;
            out.rows(&sales.iter().map(forms::sale_summary).collect::<Vec<_>>());
            Ok(ExitCode::SUCCESS)
        }
        Verb::Pause { sale: text } => {
            let sale = sale(&text)?;
            switched(out, server.connect().await?.sale_pause(sale).await?)
        }
        Verb::Resume { sale: text } => {
            let sale = sale(&text)?;
            switched(out, server.connect().await?.sale_resume(sale).await?)
        }
        Verb::Close { sale: text } => {
            let sale = sale(&text)?;
            switched(out, server.connect().await?.sale_close(sale).await?)
        }
    }
}

/// There is no such sale, or it is archived.
pub fn unknown_sale(out: &Output, sale: SaleId) -> ExitCode {
    out.object(&json!({"outcome": "unknown_sale", "sale": sale.get()}));
    ExitCode::from(1)
}

fn switched(out: &Output, reply: SaleSwitchReply) -> Result<ExitCode, Failure> {
    out.object(&json!({"outcome": reply.outcome.word(), "sale": reply.sale.get()}));
    Ok(exit_of(reply.outcome))
}
