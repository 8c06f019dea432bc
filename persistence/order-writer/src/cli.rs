//! The command line of `stockade-writer`.
//!
//! Exit codes: 0 done; 1 differences, or something was refused; 2 usage, or a database that was
//! written with other counts; 3 not reached, or failed; 4 fenced by another writer; 5 stopped by an
//! alarm, a person must look.

mod books;
mod common;
mod recon;
mod refused;
mod run;
mod status;

use crate::sink::{mysql, postgres, sqlite};
use clap::{Args, Parser, Subcommand};
use std::io::IsTerminal;
use std::process::ExitCode;

/// Follows the feed of a Stockade engine into SQL, exactly once.
#[derive(Debug, Parser)]
#[command(name = "stockade-writer", version)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

/// Where everything is.
#[derive(Clone, Debug, Args)]
struct Target {
    /// The engine's binary port.
    #[arg(long, default_value = "127.0.0.1:7421", value_name = "ADDR")]
    server: String,
    /// A database: sqlite://FILE, postgres://USER:PASSWORD@HOST[,HOST...]/NAME or mysql://...;
    /// several times for several databases, always in the same order.
    #[arg(long = "db", required = true, value_name = "URL")]
    databases: Vec<String>,
    /// Where status, lists and recon read instead; as often as --db, in the same order.
    #[arg(long = "replica", value_name = "URL")]
    replicas: Vec<String>,
    /// Order tables in each database; if not given, as the data was written, or 1.
    #[arg(long, value_name = "T")]
    tables: Option<u16>,
    /// The consumer's name in the feed.
    #[arg(long, default_value = "order-writer", value_name = "NAME")]
    consumer: String,
    /// The token, where the engine asks for one.
    #[arg(long, default_value = "", hide_default_value = true)]
    token: String,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Follow the feed until SIGTERM.
    Run(run::RunArgs),
    /// Print the statements that make the schema.
    Ddl(DdlArgs),
    /// Print how far the databases are behind the engine.
    Status {
        #[command(flatten)]
        target: Target,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Print every order of the databases, one JSON object a line.
    Books {
        #[command(flatten)]
        target: Target,
    },
    /// Look at orders that the database refused.
    #[command(subcommand)]
    Refused(refused::Verb),
    /// Compare SQL with the log, or repair it.
    #[command(subcommand)]
    Recon(recon::Verb),
}

#[derive(Debug, Args)]
struct DdlArgs {
    /// Whose statements.
    #[arg(long, default_value = "sqlite")]
    dialect: Dialect,
    /// How many databases there will be.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    databases: u16,
    /// Which of them, counted from 1.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    database: u16,
    /// Order tables in each database.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=100))]
    tables: u16,
    /// The engine's partitions.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    partitions: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Dialect {
    Sqlite,
    Postgres,
    Mariadb,
    Mysql,
}

/// Reads the arguments and does what they say.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    let done = match cli.verb {
        Verb::Run(args) => run::run(&args),
        Verb::Ddl(args) => ddl(&args),
        Verb::Status { target, json } => status::status(&target, json),
        Verb::Books { target } => books::books(&target),
        Verb::Refused(verb) => refused::refused(verb),
        Verb::Recon(verb) => recon::recon(verb),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            eprintln!("stockade-writer: {}", failure.message);
            ExitCode::from(failure.code)
        }
    }
}

fn ddl(args: &DdlArgs) -> Result<u8, common::Failure> {
    if args.database > args.databases {
        return Err(common::Failure::usage("--database must be at most --databases"));
    }
    let layout = crate::layout::Layout {
        databases: args.databases,
        tables: args.tables,
        partitions: args.partitions,
    };
    let index = args.database - 1;
    let statements = match args.dialect {
        Dialect::Sqlite => sqlite::ddl(&layout, index),
        Dialect::Postgres => postgres::ddl(&layout, index),
        Dialect::Mariadb => mysql::ddl(mysql::Kind::Mariadb, &layout, index),
        Dialect::Mysql => mysql::ddl(mysql::Kind::Mysql, &layout, index),
    };
    statements.iter().for_each(|statement| println!("{statement};"));
    Ok(common::DONE)
}
