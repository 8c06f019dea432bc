//! `recon diff|fix`: differences one a line on standard output, remarks on standard error.

use super::Target;
use super::common::{DIFFERENT, DONE, Failure, databases, engine, written};
use crate::recon::Recon;
use crate::recon::compare::{Difference, Subject};
use crate::recon::diff::Report;
use crate::recon::report;
use crate::sink::error::now_us;
use crate::sink::{Database, civil};
use clap::Subcommand;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Print every difference; exit 1 if there is one.
    Diff {
        #[command(flatten)]
        target: Target,
        /// One JSON object.
        #[arg(long)]
        json: bool,
        /// Write a report in Markdown too.
        #[arg(long, value_name = "FILE")]
        report: Option<PathBuf>,
    },
    /// Make SQL as the log says; exit 1 if something is left.
    Fix {
        #[command(flatten)]
        target: Target,
        /// Only say what would be done.
        #[arg(long)]
        dry_run: bool,
        /// Why, for the table `repairs`.
        #[arg(long, default_value = "recon fix")]
        reason: String,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
}

pub(super) fn recon(verb: Verb) -> Result<u8, Failure> {
    let (target, json) = match &verb {
        Verb::Diff { target, json, .. } | Verb::Fix { target, json, .. } => (target.clone(), *json),
    };
    let databases = databases(&target)?;
    let layout = written(&target, &databases)?;
    let mut connect = engine(&target)?.reader();
    let tally = matches!(&verb, Verb::Diff { report: Some(_), .. });
    let mut recon = Recon { layout, databases: &databases, connect: &mut connect, tally };
    match verb {
        Verb::Diff { report: file, .. } => {
            let report = recon.diff().map_err(Failure::failed)?;
            if let Some(file) = file {
                let names: Vec<String> = databases.iter().map(|of| of.name()).collect();
                let at = format!("{} UTC", civil::text(now_us()).split('.').next().unwrap_or(""));
                let text = report::markdown(&report, &names, &target.server, &at);
                std::fs::write(&file, text)
                    .map_err(|e| Failure::failed(format!("{}: {e}", file.display())))?;
            }
            print(&report, &databases, json);
            Ok(if report.differences.is_empty() { DONE } else { DIFFERENT })
        }
        Verb::Fix { dry_run: true, .. } => {
            let report = recon.diff().map_err(Failure::failed)?;
            print(&report, &databases, json);
            if !json {
                println!("would repair {}", report.differences.len());
            }
            Ok(DONE)
        }
        Verb::Fix { reason, .. } => fix(&mut recon, &reason, &databases, json),
    }
}

fn fix(
    recon: &mut Recon<'_>,
    reason: &str,
    databases: &[Arc<dyn Database>],
    json: bool,
) -> Result<u8, Failure> {
    let done = recon.fix(reason).map_err(Failure::failed)?;
    if json {
        let list = |found: &[(usize, Difference)]| objects(found, databases);
        println!("{}", json!({ "repaired": list(&done.repaired), "left": list(&done.left) }));
    } else {
        lines(&done.repaired, databases, "repaired: ");
        lines(&done.left, databases, "left, the log cannot tell: ");
        println!("repaired {}, left {}", done.repaired.len(), done.left.len());
    }
    Ok(if done.left.is_empty() { DONE } else { DIFFERENT })
}

fn print(report: &Report, databases: &[Arc<dyn Database>], json: bool) {
    if json {
        let vector = report.vector.iter();
        let vector: Vec<Value> =
            vector.map(|(partition, lsn)| json!([partition.get(), lsn.get()])).collect();
        let object = json!({
            "differences": objects(&report.differences, databases),
            "notes": report.notes,
            "orders": report.orders,
            "rows_read": report.rows_read,
            "refused": report.refused,
            "vector": vector,
        });
        println!("{object}");
        return;
    }
    lines(&report.differences, databases, "");
    report.notes.iter().for_each(|note| eprintln!("note: {note}"));
    eprintln!(
        "{} differences in {} orders; {} refused orders left out",
        report.differences.len(),
        report.orders,
        report.refused
    );
}

fn lines(found: &[(usize, Difference)], databases: &[Arc<dyn Database>], before: &str) {
    for (index, difference) in found {
        if databases.len() == 1 {
            println!("{before}{difference}");
        } else {
            println!("{before}{}: {difference}", databases[*index].name());
        }
    }
}

fn objects(found: &[(usize, Difference)], databases: &[Arc<dyn Database>]) -> Vec<Value> {
    let object = |(index, difference): &(usize, Difference)| {
        let mut object = json!({
            "database": databases[*index].name(),
            "difference": difference.what,
        });
        match &difference.subject {
            Subject::Order(order) => object["order"] = order.to_string().into(),
            Subject::Late(order, payment) => {
                object["order"] = order.to_string().into();
                object["payment"] = payment.as_str().into();
            }
            Subject::Sale(sale) => object["sale"] = (*sale).into(),
            Subject::Sku(sale, sku) => {
                object["sale"] = (*sale).into();
                object["sku"] = sku.to_string().into();
            }
        }
        object
    };
    found.iter().map(object).collect()
}
