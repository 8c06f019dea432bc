//! The life of the process: start everything, say that it is ready, wait for a signal, stop
//! everything.

use crate::clock::{self, Clock};
use crate::commit;
use crate::feed;
use crate::gateway::HubGateway;
use crate::hub::{Hub, Limits, Message};
use crate::listen::{self, ShardSockets, Sockets};
use crate::os;
use crate::recover::{Recovered, recover};
use crate::routing::{CATALOG_SHARD, RoutingTable};
use crate::session::{Gateway, ServerInfo};
use crate::settings::Settings;
use crate::shard::catalog::CatalogDriver;
use crate::shard::{self, Start};
use crossbeam::channel::{Receiver, Sender, bounded};
use glommio::ExecutorJoinHandle;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use stockade_core::shard::ShardMachine;
use stockade_log::{Durability, Journal};

/// How long a shard may take from its start to its first possible answer.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// How long what was begun may take to finish at a stop.
const DRAIN_WITHIN: Duration = Duration::from_secs(10);

struct Running {
    hub: Arc<Hub>,
    shards: Vec<ExecutorJoinHandle<()>>,
    commits: Vec<JoinHandle<()>>,
    feed: Vec<JoinHandle<()>>,
}

/// Runs the server until it is told to stop. An error is one plain sentence.
///
/// # Errors
/// Whatever keeps it from starting or from stopping cleanly.
pub fn run(settings: Settings, cores: usize) -> Result<(), String> {
    os::block_signals();
    os::probe_io_uring().map_err(|error| {
        format!("the kernel does not let this process use io_uring ({error}); see `check`")
    })?;
    let sockets = listen::open(settings.listen, settings.resp, settings.http, settings.shards)?;
    let recovered = recover(settings.log_config())?;
    let addresses = [sockets.listen_at, sockets.resp_at, sockets.http_at];
    let running = start(&settings, cores, sockets, recovered)?;
    running.hub.ready.store(true, Ordering::Release);
    let [listen, resp, http] = addresses;
    let line = format!("ready listen={listen} resp={resp} http={http} shards={}", settings.shards);
    let mut out = std::io::stdout().lock();
    // Whoever started us may not listen any more.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    drop(out);
    os::wait_signal();
    std::thread::spawn(|| {
        os::wait_signal();
        eprintln!("stopped at once by a second signal");
        std::process::exit(130);
    });
    stop(running)
}

fn start(
    settings: &Settings,
    cores: usize,
    sockets: Sockets,
    recovered: Recovered,
) -> Result<Running, String> {
    let (clock, warning) = Clock::start(clock::wall(), recovered.newest_at);
    if let Some(warning) = warning {
        tracing::warn!("{warning}");
    }
    let Recovered { machines, catalog, archived, log, journals, .. } = recovered;
    let routing =
        RoutingTable { partition_count: settings.partitions, shard_count: settings.shards };
    let info = Arc::new(server_info(settings, &sockets, &clock, log.epoch()));
    let hub = Arc::new(Hub {
        routing,
        clock,
        mailboxes: machines.iter().map(|_| Default::default()).collect(),
        metrics: machines.iter().map(|_| Default::default()).collect(),
        feed: feed::FeedInbox::default(),
        log,
        info,
        limits: Limits {
            connections_max: settings.connections_max as usize,
            in_flight_max: settings.in_flight_max,
            queue_max: settings.queue_max as usize,
        },
        connections: AtomicUsize::new(0),
        ready: AtomicBool::new(false),
        drained: AtomicUsize::new(0),
        failed: AtomicBool::new(false),
    });
    let Sockets { shards: shard_sockets, http, .. } = sockets;
    let (ready, readies) = bounded(usize::from(settings.shards));
    let pin = cores >= usize::from(settings.shards);
    let mut catalog = Some(CatalogDriver::new(catalog, archived));
    let mut running =
        Running { hub: hub.clone(), shards: Vec::new(), commits: Vec::new(), feed: Vec::new() };
    let parts = machines.into_iter().zip(shard_sockets).zip(journals);
    for (index, ((machine, sockets), journal)) in (0u16..).zip(parts) {
        let catalog = if index == CATALOG_SHARD { catalog.take() } else { None };
        let core = pin.then_some(usize::from(index));
        let grace_ms = settings.restart_grace.as_millis() as u64;
        let ready = ready.clone();
        let part = Part { index, core, machine, catalog, sockets, journal, grace_ms, ready };
        part.start(&mut running)?;
    }
    drop(ready);
    running.feed = start_feed(&hub)?;
    start_http(http, &hub)?;
    await_ready(&readies, settings.shards)?;
    Ok(running)
}

/// What one shard is made of.
struct Part {
    index: u16,
    core: Option<usize>,
    machine: ShardMachine,
    catalog: Option<CatalogDriver>,
    sockets: ShardSockets,
    journal: Journal,
    grace_ms: u64,
    ready: Sender<()>,
}

impl Part {
    /// Starts the commit thread and the executor.
    fn start(self, running: &mut Running) -> Result<(), String> {
        let Self { index, core, machine, catalog, sockets, journal, grace_ms, ready } = self;
        let (batches, receiver) = bounded(1);
        let hub = running.hub.clone();
        let commit_hub = hub.clone();
        let commit = thread(&format!("commit-{index}"), move || {
            run_commit(&commit_hub, index, journal, &receiver);
        })?;
        running.commits.push(commit);
        let start = Start { index, core, machine, catalog, batches, sockets, grace_ms, hub, ready };
        running.shards.push(shard::spawn(start)?);
        Ok(())
    }
}

fn run_commit(hub: &Hub, index: u16, journal: Journal, batches: &Receiver<commit::Batch>) {
    let shard = usize::from(index);
    let done = |committed: commit::Committed| {
        hub.metrics[shard].commit_us.add(committed.took.as_micros() as u64);
        hub.mailboxes[shard].push(Message::Committed(committed));
    };
    if let Err(error) = commit::run(journal, batches, done) {
        hub.fail(&format!("a commit of shard {index} failed ({error}); the engine stops"));
    }
}

fn start_feed(hub: &Arc<Hub>) -> Result<Vec<JoinHandle<()>>, String> {
    let (feed_hub, watch_hub) = (hub.clone(), hub.clone());
    Ok(vec![
        thread("feed", move || feed::thread::run(&feed_hub))?,
        thread("feed-watch", move || feed::inbox::watch(&watch_hub.log, &watch_hub.feed))?,
    ])
}

fn start_http(listener: std::net::TcpListener, hub: &Arc<Hub>) -> Result<(), String> {
    let gateway: Arc<dyn Gateway> = Arc::new(HubGateway::new(hub.clone()));
    thread("http", move || {
        // It serves to the end: what it is asked while the shards drain is answered `busy`.
        if let Err(error) = crate::http::serve(listener, gateway) {
            tracing::error!(%error, "the HTTP port is closed");
        }
    })
    .map(drop)
}

fn thread(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, String> {
    let builder = std::thread::Builder::new().name(name.into());
    builder.spawn(body).map_err(|error| format!("cannot start the thread {name}: {error}"))
}

fn server_info(settings: &Settings, sockets: &Sockets, clock: &Clock, epoch: u64) -> ServerInfo {
    ServerInfo {
        version: concat!("stockade ", env!("CARGO_PKG_VERSION")).into(),
        durability: match settings.durability {
            Durability::Group => "group",
            Durability::Async { .. } => "async",
        },
        epoch,
        partition_count: settings.partitions,
        shard_ports: sockets.shard_ports.clone(),
        ports: [sockets.listen_at, sockets.resp_at, sockets.http_at].map(|at| at.port()),
        started_at: clock.now(),
        tokens: settings.tokens.clone(),
        in_flight_max: settings.in_flight_max,
        scripts: settings.scripts.clone(),
    }
}

/// An executor's `spawn` says nothing of what happens on its thread: each shard tells when it is
/// there.
fn await_ready(readies: &Receiver<()>, shards: u16) -> Result<(), String> {
    let deadline = Instant::now() + READY_WITHIN;
    for _ in 0..shards {
        readies.recv_deadline(deadline).map_err(|_| {
            "a shard did not start; see the lines above, or run `check`".to_string()
        })?;
    }
    Ok(())
}

/// Drains, closes the journals with their end frames, and brings the archive up to date.
fn stop(running: Running) -> Result<(), String> {
    let Running { hub, shards, commits, feed } = running;
    tracing::info!("stopping: no new requests, waiting for commits");
    hub.ready.store(false, Ordering::Release);
    for mailbox in &hub.mailboxes {
        mailbox.push(Message::Drain);
    }
    let deadline = Instant::now() + DRAIN_WITHIN;
    while hub.drained.load(Ordering::SeqCst) < shards.len() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    let drained = hub.drained.load(Ordering::SeqCst) == shards.len();
    for mailbox in &hub.mailboxes {
        mailbox.push(Message::Exit);
    }
    for shard in shards {
        shard.join().map_err(|error| format!("a shard ended badly: {error}"))?;
    }
    for commit in commits {
        commit.join().map_err(|_| "a commit thread panicked".to_string())?;
    }
    hub.feed.stop();
    hub.log.wake();
    for thread in feed {
        thread.join().map_err(|_| "the feed thread panicked".to_string())?;
    }
    hub.log.shutdown().map_err(|error| format!("the archive could not be closed: {error}"))?;
    if drained { Ok(()) } else { Err("some requests could not be finished in time".into()) }
}
