//! `stockade-bench`: see `--help`.

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use stockade_bench::{demo, figures, load};

/// Shows a sale from end to end, and measures the engine.
#[derive(Parser, Debug)]
#[command(name = "stockade-bench", version, about)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Half a year of real grocery baskets as one flash sale, with a kill -9 in the middle.
    Demo(demo::DemoArguments),
    /// The same with your own baskets: a CSV file with at,user,basket,sku,qty.
    Replay(demo::ReplayArguments),
    /// Load on a server: throughput and latency.
    Load(load::LoadArguments),
    /// The first figures, as a Markdown table: load, restart, memory.
    Figures(figures::FiguresArguments),
    /// Side by side with Redis, Valkey and PostgreSQL.
    Compare,
    /// A page with plots.
    Report,
    /// Failure drills.
    Drill,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().verb {
        Verb::Demo(arguments) => demo::demo(&arguments),
        Verb::Replay(arguments) => demo::replay(&arguments),
        Verb::Load(arguments) => load::run(&arguments),
        Verb::Figures(arguments) => figures::run(&arguments),
        Verb::Compare | Verb::Report | Verb::Drill => {
            eprintln!("this verb is not there yet; `load` and `figures` measure the engine alone");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}
