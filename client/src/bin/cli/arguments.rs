//! What can be asked on the command line.

use crate::{feed, lua, order, sale, stock};
use clap::{Parser, Subcommand};
use std::time::Duration;

/// Operate a Stockade engine.
#[derive(Parser, Debug)]
#[command(name = "stockade-cli", version, about)]
pub struct Arguments {
    /// The server's address.
    #[arg(long, global = true, default_value = "127.0.0.1:7421")]
    pub server: String,
    /// Answers as one JSON object a line.
    #[arg(long, global = true)]
    pub json: bool,
    /// How long to wait in all: 5s, 500ms, 1m.
    #[arg(long, global = true, default_value = "5s", value_parser = duration)]
    pub timeout: Duration,
    /// The token, where the server asks for one.
    #[arg(long, global = true, env = "STOCKADE_TOKEN", default_value = "", hide_env_values = true)]
    pub token: String,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Sales: what is sold, when, under which limits.
    #[command(subcommand)]
    Sale(sale::Verb),
    /// Stock: figures and changes.
    #[command(subcommand)]
    Stock(stock::Verb),
    /// Orders.
    #[command(subcommand)]
    Order(order::Verb),
    /// The feed of committed events.
    #[command(subcommand)]
    Feed(feed::Verb),
    /// Lua scripts of shops that come from Redis.
    #[command(subcommand)]
    Lua(lua::Verb),
    /// A live table of the sales, or of one sale's SKUs.
    Top {
        /// Only this sale, SKU by SKU.
        #[arg(allow_negative_numbers = true)]
        sale: Option<String>,
        /// Print once and end.
        #[arg(long)]
        once: bool,
    },
}

fn duration(text: &str) -> Result<Duration, String> {
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let number: u64 = number.parse().map_err(|_| "a duration begins with a number".to_owned())?;
    match unit {
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        "m" => Ok(Duration::from_secs(number.saturating_mul(60))),
        _ => Err("a duration ends with ms, s or m".into()),
    }
}
