//! The binary `stockade-server`: reads the command line and hands over to the library.

use clap::{Args, Parser, Subcommand};
use std::io::{BufWriter, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use stockade_engine::settings::{Flags, Machine, Settings};
use stockade_engine::{check, os, server};
use tracing_subscriber::EnvFilter;

/// A stock engine for flash sales.
#[derive(Parser)]
#[command(name = "stockade-server", version, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    flags: Flags,
}

#[derive(Subcommand)]
enum Verb {
    /// Says in plain words whether the server can run here.
    Check,
    /// Looks into the log of a stopped server.
    Log {
        #[command(subcommand)]
        verb: LogVerb,
    },
}

#[derive(Subcommand)]
enum LogVerb {
    /// Reads everything and names the place of any damage.
    Verify(Directory),
    /// Prints every entry, one a line.
    Dump(Directory),
}

#[derive(Args)]
struct Directory {
    /// The data directory.
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let filter = EnvFilter::try_from_env("STOCKADE_LOG");
    tracing_subscriber::fmt()
        .with_env_filter(filter.unwrap_or_else(|_| EnvFilter::new("info,sled=warn")))
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
    let result = match arguments.verb {
        None => serve(&arguments.flags),
        Some(Verb::Check) => check_here(),
        Some(Verb::Log { verb }) => look(&verb),
    };
    match result {
        Ok(code) => code,
        Err(sentence) => {
            eprintln!("{sentence}");
            ExitCode::FAILURE
        }
    }
}

fn serve(flags: &Flags) -> Result<ExitCode, String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let open_files = os::raise_open_files_limit()
        .map_err(|error| format!("cannot read the limit on open files: {error}"))?;
    let settings = Settings::load(flags, Machine { cores, open_files })?;
    server::run(settings, cores)?;
    Ok(ExitCode::SUCCESS)
}

fn check_here() -> Result<ExitCode, String> {
    let can = check::run(&mut std::io::stdout()).map_err(|error| error.to_string())?;
    Ok(if can { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn look(verb: &LogVerb) -> Result<ExitCode, String> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    let report = match verb {
        LogVerb::Verify(directory) => stockade_log::verify(&directory.data_dir),
        LogVerb::Dump(directory) => stockade_log::dump(&directory.data_dir, &mut out),
    };
    let report = report.map_err(|error| error.to_string());
    // What could be read is shown even if damage follows.
    out.flush().map_err(|error| format!("cannot write: {error}"))?;
    let report = report?;
    for warning in &report.warnings {
        eprintln!("warning: {warning}");
    }
    if matches!(verb, LogVerb::Verify(_)) {
        let (entries, partitions) = (report.entries, report.partitions);
        println!("ok: {entries} entries in {partitions} partitions");
    }
    Ok(ExitCode::SUCCESS)
}
