//! The report for the meeting after a sale, in Markdown: does SQL have what was sold, SKU by SKU;
//! what differs; which orders the database refused; whose money came for nothing. Pure.

use super::diff::Report;
use super::tally::Units;
use std::fmt::Write;

/// Rows of one list at most; the rest is counted.
const ROWS_MAX: usize = 200;

/// Writes the report. `names`: the databases, without secrets; `at`: the moment as text.
pub fn markdown(report: &Report, names: &[String], server: &str, at: &str) -> String {
    let mut out = String::new();
    let verdict = match report.differences.len() {
        0 => "**SQL is what the log says.**".to_owned(),
        1 => "**One difference.**".to_owned(),
        count => format!("**{count} differences.**"),
    };
    let entries: u64 = report.vector.values().map(|lsn| lsn.get()).sum();
    let _ = write!(
        out,
        "# Reconciliation\n\n{verdict}\n\n\
         * Compared {at}, engine {server}.\n\
         * {} orders of the log up to {entries} entries in {} partitions; {} rows were read one by \
         one, the others by checksum.\n\
         * {} refused orders are left out and listed below.\n",
        report.orders,
        report.vector.len(),
        report.rows_read,
        report.refused,
    );
    for name in names {
        let _ = writeln!(out, "* Database: {}", cell(name));
    }
    for note in &report.notes {
        let _ = writeln!(out, "* Note: {}", cell(note));
    }
    units(report, &mut out);
    differences(report, names, &mut out);
    refused(report, &mut out);
    late(report, &mut out);
    out
}

/// A text that does not break a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ")
}

fn units(report: &Report, out: &mut String) {
    out.push_str(
        "\n## Units\n\nlog / SQL, and what the engine says where it stood at the same point\n\n\
         | sale | SKU | held | confirmed | cancelled | expired | returned | engine held, confirmed \
         | same |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for ((sale, sku), tally) in report.tallies.0.iter().take(ROWS_MAX) {
        let Units { held, confirmed, cancelled, expired, returned } = tally.log;
        let sql = tally.sql;
        let engine = tally.engine.map_or("not compared".into(), |(h, c)| format!("{h}, {c}"));
        let same = tally.log == sql && tally.engine.is_none_or(|e| e == tally.live());
        let same = if same { "yes" } else { "**no**" };
        let _ = writeln!(
            out,
            "| {sale} | {sku} | {held} / {} | {confirmed} / {} | {cancelled} / {} | {expired} / {} \
             | {returned} / {} | {engine} | {same} |",
            sql.held, sql.confirmed, sql.cancelled, sql.expired, sql.returned
        );
    }
    rest(report.tallies.0.len(), out);
}

fn differences(report: &Report, names: &[String], out: &mut String) {
    out.push_str("\n## Differences\n\n");
    if report.differences.is_empty() {
        out.push_str("none\n");
    }
    for (index, difference) in report.differences.iter().take(ROWS_MAX) {
        let name = names.get(*index).map(String::as_str).unwrap_or_default();
        let _ = writeln!(out, "* {}: {}", cell(name), cell(&difference.to_string()));
    }
    rest(report.differences.len(), out);
    if !report.differences.is_empty() {
        out.push_str("\n`stockade-writer recon fix` makes SQL as the log says.\n");
    }
}

fn refused(report: &Report, out: &mut String) {
    out.push_str("\n## Orders that the database refused\n\n");
    if report.refused_orders.is_empty() {
        out.push_str("none\n");
        return;
    }
    out.push_str("| order | sale | user | state | class | why |\n");
    out.push_str("| --- | --- | --- | --- | --- | --- |\n");
    let number = |id: Option<i64>| id.map_or_else(String::new, |id| id.to_string());
    for row in report.refused_orders.iter().take(ROWS_MAX) {
        let (sale, user) = (number(row.sale), number(row.user));
        let (state, why) = (row.state.word(), cell(&format!("{} {}", row.code, row.message)));
        let class = cell(&row.class);
        let _ = writeln!(out, "| {} | {sale} | {user} | {state} | {class} | {why} |", row.order);
    }
    rest(report.refused_orders.len(), out);
}

fn late(report: &Report, out: &mut String) {
    out.push_str("\n## Payments that came for nothing (to be given back)\n\n");
    if report.late_payments.is_empty() {
        out.push_str("none\n");
    }
    for (reason, count) in &report.late_payments {
        let _ = writeln!(out, "* {}: {count}", cell(reason));
    }
}

fn rest(count: usize, out: &mut String) {
    if count > ROWS_MAX {
        let _ = writeln!(out, "\nand {} more", count - ROWS_MAX);
    }
}
