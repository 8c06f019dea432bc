//! `run`: one lane a database, until SIGTERM, an end, or another writer.

use super::Target;
use super::common::{ALARM, DONE, FAILED, FENCED, Failure, databases, engine, tables};
use crate::feed::Engine;
use crate::lane::{CatalogAcks, Lane, LaneEnd, LaneOptions, LaneParts, Stop};
use crate::layout::Layout;
use crate::pipeline::BreakerLimits;
use crate::sink::{Database, SetupError, SinkError};
use crate::source::SourceError;
use clap::Args;
use std::fmt::Display;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How long `--until-drained` waits for an engine or a database that is not there.
const DRAIN_PATIENCE: Duration = Duration::from_secs(30);
/// How often an alarm is repeated while other lanes go on.
const ALARM_EVERY: Duration = Duration::from_secs(30);

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    target: Target,
    /// End with 0 as soon as everything is written that is committed now.
    #[arg(long, alias = "drain")]
    until_drained: bool,
    /// Entries of one transaction at most.
    #[arg(long, default_value_t = 4000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    batch_events_max: u32,
    /// A batch with more than 20 refused orders, and with more than this share of its orders
    /// refused, stops the lane instead of cancelling them.
    #[arg(long, default_value_t = 10, value_name = "PERCENT")]
    refused_percent_max: u32,
    /// More refused orders within a minute stop the lane instead of cancelling them.
    #[arg(long, default_value_t = 200, value_name = "ORDERS")]
    refused_per_minute_max: usize,
}

/// Runs until the end.
pub(super) fn run(args: &RunArgs) -> Result<u8, Failure> {
    let databases = databases(&args.target)?;
    let engine = engine(&args.target)?;
    let stop = Stop::default();
    Engine::stop_on_signals(&stop).map_err(Failure::failed)?;
    let patience = Patience { stop: &stop, started: Instant::now(), ends: args.until_drained };
    let Some(partitions) = patience.insist(|| engine.partitions(), engine_is_away)? else {
        return Ok(DONE);
    };
    let Some(tables) = patience.insist(|| tables(&args.target, &databases), is_away)? else {
        return Ok(DONE);
    };
    let layout = Layout { databases: databases.len() as u16, tables, partitions };
    for (index, database) in databases.iter().enumerate() {
        let prepare = || database.prepare(&layout, index as u16);
        if patience.insist(prepare, is_away)?.is_none() {
            return Ok(DONE);
        }
    }
    let options = LaneOptions {
        batch_events_max: args.batch_events_max as usize,
        breaker: BreakerLimits {
            batch_percent_max: args.refused_percent_max,
            minute_max: args.refused_per_minute_max,
            ..BreakerLimits::default()
        },
        until_drained: args.until_drained,
        ..LaneOptions::default()
    };
    let ready = format!(
        "ready server={} consumer={} databases={} tables={}",
        args.target.server, args.target.consumer, layout.databases, layout.tables
    );
    let ends = start(&databases, layout, &engine, options, &stop, &ready)?;
    Ok(wait(&ends, databases.len(), &stop))
}

/// Waiting for what is not there at the start, as a lane waits for it later.
struct Patience<'a> {
    stop: &'a Stop,
    started: Instant,
    /// Give up after a while.
    ends: bool,
}

impl Patience<'_> {
    /// Tries until it works; `None` if asked to stop before. What waiting does not mend is told at
    /// once.
    fn insist<T, E: Display>(
        &self,
        mut attempt: impl FnMut() -> Result<T, E>,
        is_away: fn(&E) -> bool,
    ) -> Result<Option<T>, Failure>
    where
        Failure: From<E>,
    {
        let mut wait = Duration::from_millis(50);
        loop {
            match attempt() {
                Ok(done) => return Ok(Some(done)),
                Err(error) if !is_away(&error) => return Err(error.into()),
                Err(error) if self.ends && self.started.elapsed() > DRAIN_PATIENCE => {
                    return Err(error.into());
                }
                Err(error) => tracing::warn!(%error, "trying again"),
            }
            if self.stop.wait(wait) {
                return Ok(None);
            }
            wait = (wait * 2).min(Duration::from_secs(5));
        }
    }
}

fn engine_is_away(error: &SourceError) -> bool {
    matches!(error, SourceError::Away(_))
}

fn is_away(error: &SetupError) -> bool {
    matches!(
        error,
        SetupError::Sink { source: SinkError::Away { .. } | SinkError::Retry { .. }, .. }
    )
}

type Ends = mpsc::Receiver<(String, LaneEnd)>;

/// Starts the lanes, each on its own thread. The last one that is ready prints the line.
fn start(
    databases: &[Arc<dyn Database>],
    layout: Layout,
    engine: &Engine,
    options: LaneOptions,
    stop: &Stop,
    ready: &str,
) -> Result<Ends, Failure> {
    let (ended, ends) = mpsc::channel();
    let acks = CatalogAcks::new(databases.len());
    let waiting = Arc::new(AtomicUsize::new(databases.len()));
    let owner = format!("{}-{}", std::process::id(), crate::lane::now().get());
    for (index, database) in databases.iter().enumerate() {
        let (waiting, ready) = (waiting.clone(), ready.to_owned());
        let parts = LaneParts {
            database: database.clone(),
            layout,
            index: index as u16,
            owner: owner.clone(),
            connect: Box::new(engine.follower()),
            options,
            stop: stop.clone(),
            acks: acks.clone(),
            ready: Box::new(move || {
                if waiting.fetch_sub(1, Ordering::SeqCst) == 1 {
                    println!("{ready}");
                    let _ = std::io::stdout().flush();
                }
            }),
        };
        let (name, ended) = (database.name(), ended.clone());
        let lane = move || {
            let end = Lane::new(parts).run();
            // The receiver waits for every lane.
            let _ = ended.send((name, end));
        };
        let thread = std::thread::Builder::new().name(format!("lane-{index}"));
        thread.spawn(lane).map_err(Failure::failed)?;
    }
    Ok(ends)
}

/// Waits for all lanes. A lane that another writer fenced stops the others; one with an alarm does
/// not: its database must not keep the others from being written.
fn wait(ends: &Ends, lanes: usize, stop: &Stop) -> u8 {
    let (mut left, mut code) = (lanes, DONE);
    let mut alarms: Vec<String> = Vec::new();
    while left > 0 {
        let (name, end) = match ends.recv_timeout(ALARM_EVERY) {
            Ok(end) => end,
            Err(RecvTimeoutError::Timeout) => {
                alarms.iter().for_each(|alarm| tracing::error!(alarm, "a lane is stopped"));
                continue;
            }
            // A lane's thread ended without a word: it panicked.
            Err(RecvTimeoutError::Disconnected) => return FAILED,
        };
        left -= 1;
        match &end {
            LaneEnd::Stopped | LaneEnd::Drained => {
                tracing::info!(database = name, %end, "lane ended");
            }
            LaneEnd::Fenced { .. } => {
                tracing::error!(database = name, %end, "lane ended");
                code = FENCED;
                stop.set();
            }
            LaneEnd::Alarm(_) => {
                tracing::error!(database = name, %end, "lane stopped");
                code = code.max(ALARM);
                alarms.push(format!("{name}: {end}"));
            }
        }
    }
    code
}
