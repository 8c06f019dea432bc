//! The demo and the replay: a sale from end to end with real processes, and the books at the end.

use crate::audit::{Faults, SqlBooks, audit};
use crate::baskets::{Basket, read_baskets, read_departments};
use crate::build::programs;
use crate::plan::{Plan, PlanSettings, plan};
use crate::processes::{Program, Server};
use crate::shop::{Ledger, sale_id, trade};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use stockade_client::protocol::{OrderState, Outcome};
use stockade_client::{Client, ClientBuilder};

/// Settings that demo and replay share.
#[derive(Args, Clone, Debug)]
pub struct Settings {
    /// Buyers at the same time.
    #[arg(long, default_value_t = 512)]
    buyers: usize,
    /// Which part of the demand is in stock.
    #[arg(long, default_value_t = 0.5)]
    stock_share: f64,
    /// Units of one SKU that one user may have.
    #[arg(long, default_value_t = 6)]
    limit: u32,
    /// How long an order holds its units, ms.
    #[arg(long, default_value_t = 4000)]
    hold_ms: u64,
    /// Decides who pays and who does not.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Shards of the server; 0: as many as cores.
    #[arg(long, default_value_t = 0)]
    shards: u16,
    /// Only the first so many baskets.
    #[arg(long)]
    baskets: Option<usize>,
    /// Leave the server alone in the middle.
    #[arg(long)]
    no_kill: bool,
    /// Keep the directory with log and database.
    #[arg(long)]
    keep: bool,
    /// An empty database for the orders, postgres://... or mysql://...; they stay there afterwards.
    /// If not given, SQLite in the directory.
    #[arg(long, value_name = "URL")]
    db: Option<String>,
}

/// Of `demo`.
#[derive(Args, Debug)]
pub struct DemoArguments {
    #[command(flatten)]
    settings: Settings,
}

/// Of `replay`.
#[derive(Args, Debug)]
pub struct ReplayArguments {
    /// A CSV file, plain or .gz, with the columns at,user,basket,sku,qty.
    file: PathBuf,
    /// A CSV file with the columns sku,department.
    #[arg(long)]
    labels: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

/// Runs the demo; true if the books balance.
///
/// # Errors
/// It could not be carried out: one plain sentence.
pub fn demo(arguments: &DemoArguments) -> Result<bool, String> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let baskets = read_baskets(&fixtures.join("baskets-2017h1.csv.gz"))?;
    let departments = read_departments(&fixtures.join("skus-2017h1.csv.gz"))?;
    run(baskets, &departments, &arguments.settings)
}

/// Runs a user's own file; true if the books balance.
///
/// # Errors
/// It could not be carried out, or the file has a fault: one plain sentence.
pub fn replay(arguments: &ReplayArguments) -> Result<bool, String> {
    let baskets = read_baskets(&arguments.file)?;
    let departments = match &arguments.labels {
        Some(file) => read_departments(file)?,
        None => BTreeMap::new(),
    };
    run(baskets, &departments, &arguments.settings)
}

fn run(
    mut baskets: Vec<Basket>,
    departments: &BTreeMap<u64, String>,
    settings: &Settings,
) -> Result<bool, String> {
    baskets.truncate(settings.baskets.unwrap_or(usize::MAX));
    let plan = plan(
        &baskets,
        PlanSettings {
            stock_share: settings.stock_share,
            limit: settings.limit,
            hold_ms: settings.hold_ms,
            seed: settings.seed,
        },
    )?;
    let binaries = programs()?;
    let dir = tempfile::Builder::new().prefix("stockade-demo-").tempdir();
    let mut dir = dir.map_err(|error| format!("a temporary directory: {error}"))?;
    if settings.keep {
        dir.disable_cleanup(true);
        println!("directory {}", dir.path().display());
    }
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().map_err(|e| e.to_string())?;
    runtime.block_on(async {
        tokio::select! {
            result = evening(&plan, departments, settings, &binaries, dir.path()) => result,
            // The handles of the processes are dropped, and with them the processes end.
            _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
        }
    })
}

/// What is measured on the way.
struct Measured {
    trading: Duration,
    restart: Option<Duration>,
    draining: Duration,
    log_bytes: u64,
    lag: String,
}

async fn evening(
    plan: &Plan,
    departments: &BTreeMap<u64, String>,
    settings: &Settings,
    binaries: &Path,
    dir: &Path,
) -> Result<bool, String> {
    let url = match &settings.db {
        Some(url) => empty_database(binaries, url)?,
        None => format!("sqlite://{}", dir.join("orders.db").display()),
    };
    let mut further = Vec::new();
    if settings.shards > 0 {
        further.extend(["--shards".to_owned(), settings.shards.to_string()]);
    }
    let mut server = Server::start(binaries, dir, &further, None)?;
    println!("server  {}", server.program.ready);
    let address = server.address();
    let mut command = Command::new(binaries.join("stockade-writer"));
    command.args(["run", "--server", &address, "--db", &url]).env("RUST_LOG", "warn");
    let mut writer = Program::start(&mut command, &dir.join("writer.log"))?;
    println!("writer  {}", writer.ready);
    let client = ClientBuilder::new(&address)
        .name("stockade-bench")
        .request_timeout(Duration::from_secs(20))
        .in_flight_max(4096)
        .connect()
        .await
        .map_err(|error| error.to_string())?;
    let put = client.sale_put(plan.patch.clone()).await.map_err(|error| error.to_string())?;
    if put.outcome != Outcome::Created {
        return Err(format!("the sale was not taken: {} {}", put.outcome.word(), put.why));
    }
    let (ledger, trading, restart) = open_doors(plan, settings, &client, &mut server).await?;
    wait_for_expiries(&client).await?;
    let lag = lag(binaries, &address, &url);
    let started = Instant::now();
    writer.stop()?;
    finish(binaries, &["run", "--until-drained"], &address, &url)?;
    let draining = started.elapsed();
    let sql = SqlBooks::read(binaries, &url)?;
    let mut faults = audit(&client, plan, &ledger, &sql).await?;
    if let Err(differences) = finish(binaries, &["recon", "diff"], &address, &url) {
        faults.add(|| format!("P9: recon diff: {differences}"));
    }
    let log_bytes = directory_bytes(&dir.join("data"));
    client.shutdown(Duration::from_secs(1)).await;
    server.program.stop()?;
    let measured = Measured { trading, restart, draining, log_bytes, lag };
    print_report(plan, departments, &ledger, &sql, &measured);
    Ok(print_verdict(&faults))
}

/// The sale itself, with the kill in the middle.
async fn open_doors(
    plan: &Plan,
    settings: &Settings,
    client: &Client,
    server: &mut Server,
) -> Result<(Ledger, Duration, Option<Duration>), String> {
    let total = plan.attempts.len();
    let bar = ProgressBar::new(total as u64);
    let style = "{bar:40} {pos}/{len} orders tried, {per_sec}, {msg}";
    bar.set_style(ProgressStyle::with_template(style).map_err(|error| error.to_string())?);
    let done = Arc::new(AtomicUsize::new(0));
    let attempts = Arc::new(plan.attempts.clone());
    let started = Instant::now();
    let trading = trade(client, attempts, settings.buyers, done.clone());
    tokio::pin!(trading);
    let mut restart = None;
    let ledger = loop {
        tokio::select! {
            ledger = &mut trading => break ledger?,
            () = tokio::time::sleep(Duration::from_millis(20)) => {}
        }
        let tried = done.load(Ordering::Relaxed);
        bar.set_position(tried as u64);
        if restart.is_none() && !settings.no_kill && tried * 5 >= total * 2 {
            bar.set_message("kill -9 and restart");
            let killed = tokio::task::block_in_place(|| server.kill_and_restart())?;
            bar.set_message(format!("was killed, and ready again after {killed:.0?}"));
            restart = Some(killed);
        }
    };
    let took = started.elapsed();
    bar.set_position(total as u64);
    bar.abandon();
    Ok((ledger, took, restart))
}

/// The engine's own timer ends what nobody paid for.
async fn wait_for_expiries(client: &Client) -> Result<(), String> {
    let started = Instant::now();
    loop {
        let view = client.sale(sale_id()).await.map_err(|error| error.to_string())?;
        let held: u64 = view.iter().flat_map(|view| &view.skus).map(|sku| sku.held).sum();
        if held == 0 {
            return Ok(());
        }
        if started.elapsed() > Duration::from_secs(90) {
            return Err(format!("{held} units are still held although every hold has run out"));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The address, if nothing of an earlier run is in it: the orders of another engine are no part of
/// this sale.
fn empty_database(binaries: &Path, url: &str) -> Result<String, String> {
    let output = Command::new(binaries.join("stockade-writer"))
        .args(["books", "--db", url])
        .output()
        .map_err(|error| format!("stockade-writer: {error}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => Err("--db: it holds the orders of an earlier run; give an empty one".into()),
        Some(2) if errors.contains("holds no Stockade tables") => Ok(url.into()),
        _ => Err(errors.lines().last().unwrap_or("--db: it cannot be read").to_owned()),
    }
}

/// Runs a verb of the writer to its end.
fn finish(binaries: &Path, verb: &[&str], address: &str, url: &str) -> Result<String, String> {
    let output = Command::new(binaries.join("stockade-writer"))
        .args(verb)
        .args(["--server", address, "--db", url])
        .env("RUST_LOG", "error")
        .output()
        .map_err(|error| format!("stockade-writer: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        Ok(text)
    } else {
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let lines: Vec<&str> = text.lines().chain(errors.lines()).take(5).collect();
        Err(format!("{} ({})", lines.join("; "), output.status))
    }
}

/// What `status` says of the writer's distance.
fn lag(binaries: &Path, address: &str, url: &str) -> String {
    let text = finish(binaries, &["status", "--json"], address, url).unwrap_or_default();
    let value: serde_json::Value = serde_json::from_str(text.trim()).unwrap_or_default();
    let object = value.get(0).unwrap_or(&value);
    let object = object.get("databases").and_then(|list| list.get(0)).unwrap_or(object);
    match (&object["lag_entries"], &object["lag_seconds"]) {
        (serde_json::Value::Null, _) => "unknown".into(),
        (entries, seconds) => format!("{entries} entries, {seconds} s"),
    }
}

fn directory_bytes(dir: &Path) -> u64 {
    let output = Command::new("du").args(["-sb"]).arg(dir).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let first = text.ok().and_then(|text| text.split_whitespace().next()?.parse().ok());
    first.unwrap_or(0)
}

fn print_report(
    plan: &Plan,
    departments: &BTreeMap<u64, String>,
    ledger: &Ledger,
    sql: &SqlBooks,
    measured: &Measured,
) {
    println!("\norders by state (SQL)");
    for (state, count) in sql.by_state() {
        println!("  {count:>8}  {state}");
    }
    println!("answers");
    for ((verb, outcome), count) in &ledger.answers {
        println!("  {count:>8}  {verb}: {outcome}");
    }
    println!(
        "  {} lines asked for 0 units; {} baskets asked for nothing else; {} were split over \
         several orders",
        plan.zero_lines, plan.empty, plan.split
    );
    let by_sku = sql.by_sku();
    let mut sold = BTreeMap::<&str, (u64, u64)>::new();
    for (sku, stock) in &plan.stock {
        let department = departments.get(sku).map_or("unknown", String::as_str);
        let entry = sold.entry(department).or_default();
        entry.0 += by_sku.get(sku).map_or(0, |(_, confirmed)| *confirmed);
        entry.1 += u64::from(*stock);
    }
    println!("units sold per department, of the stock");
    for (department, (units, stock)) in &sold {
        println!("  {units:>8}  of {stock:>8}  {:>5.1} %  {department}", percent(*units, *stock));
    }
    let (units, stock) = sold.values().fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
    println!("sell-through {:.1} % ({units} of {stock} units)", percent(units, stock));
    let decisions = ledger.decisions();
    let rate = decisions as f64 / measured.trading.as_secs_f64();
    println!("{decisions} decisions in {:.2?}: {rate:.0} decisions/s", measured.trading);
    let at = |quantile: f64| ledger.latency.value_at_quantile(quantile) as f64 / 1000.0;
    println!(
        "latency p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms (restart included)",
        at(0.5),
        at(0.99),
        at(0.999)
    );
    if let Some(restart) = measured.restart {
        println!(
            "killed with -9 once; ready again after {restart:.0?}; {} calls were in doubt and \
                  asked again by the buyers",
            ledger.doubts
        );
    }
    println!("data directory {:.1} MB", measured.log_bytes as f64 / 1e6);
    let rows =
        sql.orders.len() as u64 + sql.orders.values().map(|o| o.lines.len() as u64).sum::<u64>();
    println!(
        "writer {rows} rows; behind by {} when the last hold had run out; drained {:.2?} later",
        measured.lag, measured.draining
    );
    let held = ledger.orders.values().filter(|told| told.state == OrderState::Held).count();
    println!("{} orders acknowledged, {held} of them never paid", ledger.orders.len());
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

fn print_verdict(faults: &Faults) -> bool {
    for fault in &faults.shown {
        println!("FAULT {fault}");
    }
    if faults.count > faults.shown.len() as u64 {
        println!("FAULT ... {} in all", faults.count);
    }
    let balanced = faults.count == 0;
    println!("books balance: {}", if balanced { "yes" } else { "NO" });
    balanced
}
