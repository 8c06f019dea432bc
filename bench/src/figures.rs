//! The first figures, as Markdown: throughput and latency of one hot SKU, restart, memory.
//! Conditions go with them.

use crate::build::programs;
use crate::load::{LoadArguments, measure};
use crate::machine::{describe, pin, resident_bytes};
use crate::processes::Server;
use clap::Args;
use std::time::Instant;
use stockade_client::protocol::command::{Line, Reserve};
use stockade_client::protocol::sale::{OpensAt, SkuPatch};
use stockade_client::protocol::wire::{RESERVE_MANY_MAX, Request, Response};
use stockade_client::protocol::{RequestId, SaleId, SalePatch, SkuId, UserId};
use stockade_client::{RawConnection, blocking};

/// Of `figures`.
#[derive(Args, Debug)]
pub struct FiguresArguments {
    /// How long each load is measured.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// How often each load is repeated; the median is printed.
    #[arg(long, default_value_t = 3)]
    repeats: usize,
    /// Orders for restart and memory.
    #[arg(long, default_value_t = 1_000_000)]
    orders: u64,
}

/// Measures everything and prints it.
///
/// # Errors
/// It could not be carried out.
pub fn run(arguments: &FiguresArguments) -> Result<bool, String> {
    let binaries = programs()?;
    println!("{}", describe());
    println!(
        "server: 1 shard, pinned to core 0 with all its threads; load: one thread on core 1\n"
    );
    println!(
        "| one hot SKU, every user new, group | /s median (min-max) | p50 us | p99 us | p99.9 us | generator |"
    );
    println!("| --- | --- | --- | --- | --- | --- |");
    let mut valid = true;
    pin(std::process::id(), 1)?;
    for (connections, pipeline) in [(50, 1), (200, 1), (50, 16), (16, 128)] {
        let mut runs = Vec::new();
        for _ in 0..arguments.repeats {
            let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
            let one = ["--shards".to_owned(), "1".to_owned()];
            let server = Server::start(&binaries, dir.path(), &one, Some(0))?;
            let load =
                LoadArguments::hot(server.address(), connections, pipeline, arguments.seconds);
            runs.push(measure(&load, &server.address())?);
        }
        runs.sort_by(|a, b| a.rate.total_cmp(&b.rate));
        let (least, median, most) = (&runs[0], &runs[runs.len() / 2], &runs[runs.len() - 1]);
        valid &= runs.iter().all(crate::load::Measured::is_valid);
        println!(
            "| {connections} x {pipeline} | {:.0} ({:.0}-{:.0}) | {} | {} | {} | {:.2}{} |",
            median.rate,
            least.rate,
            most.rate,
            median.p50,
            median.p99,
            median.p999,
            median.generator,
            if median.is_valid() { "" } else { " INVALID" }
        );
    }
    restart_and_memory(&binaries, arguments.orders)?;
    Ok(valid)
}

/// Fills a server with orders, one a user; kills it; measures until it is ready and until the first
/// answer.
fn restart_and_memory(binaries: &std::path::Path, orders: u64) -> Result<(), String> {
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let one = ["--shards".to_owned(), "1".to_owned()];
    let mut server = Server::start(binaries, dir.path(), &one, Some(0))?;
    let client = blocking::Client::connect(stockade_client::Client::builder(server.address()));
    let client = client.map_err(|error| error.to_string())?;
    let sale = SaleId::new(1).ok_or("sale")?;
    let mut patch = SalePatch::new(sale);
    patch.opens_at = Some(OpensAt::Now);
    patch.hold_ms = Some(86_400_000);
    let sku = SkuId::new(1).ok_or("sku")?;
    let (stock, limit_per_user) = (Some(u32::MAX), Some(1));
    patch.skus.push(SkuPatch { sku, stock, limit_per_user, max_per_order: None, labels: None });
    let put = client.wait(|client| async move { client.sale_put(patch).await });
    put.map_err(|error| error.to_string())?;
    let before = resident_bytes(server.program.id());
    fill(&server.address(), sale, sku, orders)?;
    let after = resident_bytes(server.program.id());
    println!(
        "\nmemory: {:.0} bytes resident per user holding one order ({orders} users)",
        after.saturating_sub(before) as f64 / orders as f64
    );
    let started = Instant::now();
    let ready = server.kill_and_restart()?;
    let user = UserId::new(orders).ok_or("user")?;
    let client = blocking::Client::connect(stockade_client::Client::builder(server.address()));
    let client = client.map_err(|error| error.to_string())?;
    let view = client.wait(move |client| async move { client.user(sale, user).await });
    let view = view.map_err(|error| error.to_string())?;
    if view.orders.len() != 1 {
        return Err(format!("the last user's order is not there: {view:?}"));
    }
    println!(
        "restart after kill -9 with {orders} orders: ready {ready:.2?}, first answer {:.2?}",
        started.elapsed()
    );
    Ok(())
}

/// One order for each user, in large frames.
fn fill(address: &str, sale: SaleId, sku: SkuId, orders: u64) -> Result<(), String> {
    let timeout = std::time::Duration::from_secs(30);
    let raw = RawConnection::connect(address, "figures", "", timeout);
    let mut raw = raw.map_err(|error| error.to_string())?;
    let batch_max = RESERVE_MANY_MAX.min(raw.welcome.in_flight_max as usize).max(1) as u64;
    let mut user = 0;
    while user < orders {
        let count = batch_max.min(orders - user);
        let reserve = |user: u64| {
            Some(Reserve {
                sale,
                user: UserId::new(user)?,
                request: RequestId::from_number(user)?,
                lines: [Line { sku, quantity: 1 }].into_iter().collect(),
                data: Default::default(),
                not_after: None,
            })
        };
        let batch = (user + 1..=user + count).map(reserve).collect();
        user += count;
        raw.send(&Request::ReserveMany(batch));
        raw.flush().map_err(|error| error.to_string())?;
        match raw.recv().map_err(|error| error.to_string())? {
            (_, Response::ReserveMany(replies)) => {
                if let Some(bad) = replies.iter().find(|reply| reply.order.is_none()) {
                    return Err(format!("not every user got an order: {bad:?}"));
                }
            }
            (_, other) => return Err(format!("an unexpected answer: {other:?}")),
        }
    }
    Ok(())
}
