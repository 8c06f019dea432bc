//! Counters of the running server and their Prometheus text.
//!
//! Every counter is a relaxed atomic: a scrape is a picture, not a transaction. Memory is fixed.

use crate::histogram::Histogram;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use stockade_protocol::{Outcome, Reply};

/// Numbers of outcomes lie below this.
const OUTCOMES_MAX: usize = 128;

/// Counters of one shard; only its threads add to them.
#[derive(Debug)]
pub struct ShardMetrics {
    /// Reserves decided, by number of outcome.
    reserves: [AtomicU64; OUTCOMES_MAX],
    /// Other commands decided, by number of outcome.
    verbs: [AtomicU64; OUTCOMES_MAX],
    /// Questions answered.
    reads: AtomicU64,
    /// Requests of one turn.
    pub turn_requests: Histogram,
    /// Write and flush of one batch, us.
    pub commit_us: Histogram,
    /// Bytes of one batch.
    pub commit_bytes: Histogram,
    /// Requests that wait for a turn.
    pub queue_depth: AtomicUsize,
    /// Commands on the way here from other shards and HTTP.
    pub mailed: AtomicUsize,
    /// Open connections.
    pub connections: AtomicUsize,
    /// Connections taken since the start.
    pub accepted: AtomicU64,
    /// Connections closed for breaking a bound (time, bytes) or the protocol.
    pub cut: AtomicU64,
}

impl Default for ShardMetrics {
    fn default() -> Self {
        Self {
            reserves: std::array::from_fn(|_| AtomicU64::new(0)),
            verbs: std::array::from_fn(|_| AtomicU64::new(0)),
            reads: AtomicU64::new(0),
            turn_requests: Histogram::default(),
            commit_us: Histogram::default(),
            commit_bytes: Histogram::default(),
            queue_depth: AtomicUsize::new(0),
            mailed: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            accepted: AtomicU64::new(0),
            cut: AtomicU64::new(0),
        }
    }
}

impl ShardMetrics {
    /// Counts a decision.
    pub fn decided(&self, reply: &Reply) {
        let (counters, outcome) = match reply {
            Reply::Reserve(reply) => (&self.reserves, reply.outcome),
            Reply::Order(reply) => (&self.verbs, reply.outcome),
            Reply::SalePut(reply) => (&self.verbs, reply.outcome),
            Reply::SaleSwitch(reply) => (&self.verbs, reply.outcome),
            Reply::Adjust(reply) => (&self.verbs, reply.outcome),
            Reply::Busy { .. } => (&self.verbs, Outcome::Busy),
            Reply::OrderView(_)
            | Reply::User(_)
            | Reply::Orders(_)
            | Reply::Sku(_)
            | Reply::Sale(_)
            | Reply::Sales(_) => {
                self.reads.fetch_add(1, Ordering::Relaxed);
                return;
            }
        };
        if let Some(counter) = counters.get(usize::from(outcome.number())) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Figures that are taken when somebody asks.
#[derive(Debug, Default)]
pub struct Gauges {
    /// Per consumer: entries committed and not acknowledged.
    pub feed_lag: Vec<(String, u64)>,
    /// Journals, archive and snapshots.
    pub disk_bytes: u64,
    /// Reserves are answered `busy` because archive or disk are behind.
    pub pressure: bool,
    /// Wall-clock steps since the start.
    pub clock_steps: u64,
    /// The engine's clock, ms.
    pub clock_ms: u64,
}

/// Prometheus text of all shards and the gauges.
pub fn render(shards: &[ShardMetrics], gauges: &Gauges) -> String {
    let mut out = String::with_capacity(16 << 10);
    decisions(shards, &mut out);
    per_shard(shards, &mut out);
    histograms(shards, &mut out);
    head("stockade_feed_lag_entries", "gauge", "Entries a consumer has not acknowledged", &mut out);
    for (consumer, lag) in &gauges.feed_lag {
        let _ = writeln!(out, "stockade_feed_lag_entries{{consumer=\"{consumer}\"}} {lag}");
    }
    let pressure = u64::from(gauges.pressure);
    for (name, kind, help, value) in [
        ("stockade_disk_bytes", "gauge", "Bytes in the data directory", gauges.disk_bytes),
        ("stockade_log_pressure", "gauge", "1: reserves are answered busy", pressure),
        ("stockade_clock_steps_total", "counter", "Steps of the wall clock", gauges.clock_steps),
        ("stockade_clock_ms", "gauge", "The engine's clock", gauges.clock_ms),
    ] {
        head(name, kind, help, &mut out);
        let _ = writeln!(out, "{name} {value}");
    }
    out
}

fn head(name: &str, kind: &str, help: &str, out: &mut String) {
    let _ = writeln!(out, "# HELP {name} {help}.\n# TYPE {name} {kind}");
}

fn decisions(shards: &[ShardMetrics], out: &mut String) {
    let sum = |pick: fn(&ShardMetrics) -> &[AtomicU64; OUTCOMES_MAX], outcome: Outcome| -> u64 {
        let at = usize::from(outcome.number());
        shards.iter().map(|shard| pick(shard)[at].load(Ordering::Relaxed)).sum()
    };
    head("stockade_decisions_total", "counter", "Decisions by verb and outcome", out);
    for outcome in Outcome::ALL {
        let word = outcome.word();
        let reserves = sum(|shard| &shard.reserves, *outcome);
        let verbs = sum(|shard| &shard.verbs, *outcome);
        for (verb, count) in [("reserve", reserves), ("other", verbs)] {
            let _ = writeln!(
                out,
                "stockade_decisions_total{{verb=\"{verb}\",outcome=\"{word}\"}} {count}"
            );
        }
    }
    let reads: u64 = shards.iter().map(|shard| shard.reads.load(Ordering::Relaxed)).sum();
    head("stockade_reads_total", "counter", "Questions answered", out);
    let _ = writeln!(out, "stockade_reads_total {reads}");
}

fn per_shard(shards: &[ShardMetrics], out: &mut String) {
    type Pick = fn(&ShardMetrics) -> u64;
    let series: [(&str, &str, &str, Pick); 5] = [
        ("stockade_connections", "gauge", "Open connections", |shard| {
            shard.connections.load(Ordering::Relaxed) as u64
        }),
        ("stockade_connections_accepted_total", "counter", "Connections taken", |shard| {
            shard.accepted.load(Ordering::Relaxed)
        }),
        ("stockade_connections_cut_total", "counter", "Connections closed by a bound", |shard| {
            shard.cut.load(Ordering::Relaxed)
        }),
        ("stockade_queue_depth", "gauge", "Requests that wait for a turn", |shard| {
            shard.queue_depth.load(Ordering::Relaxed) as u64
        }),
        ("stockade_mailed", "gauge", "Commands on their way to the shard", |shard| {
            shard.mailed.load(Ordering::Relaxed) as u64
        }),
    ];
    for (name, kind, help, pick) in series {
        head(name, kind, help, out);
        for (index, shard) in shards.iter().enumerate() {
            let _ = writeln!(out, "{name}{{shard=\"{index}\"}} {}", pick(shard));
        }
    }
}

fn histograms(shards: &[ShardMetrics], out: &mut String) {
    type Pick = fn(&ShardMetrics) -> &Histogram;
    let series: [(&str, &str, f64, Pick); 3] = [
        ("stockade_commit_seconds", "Write and flush of a batch", 1e-6, |shard| &shard.commit_us),
        ("stockade_commit_bytes", "Bytes of a batch", 1.0, |shard| &shard.commit_bytes),
        ("stockade_turn_requests", "Requests of a turn", 1.0, |shard| &shard.turn_requests),
    ];
    for (name, help, unit, pick) in series {
        head(name, "histogram", help, out);
        for (index, shard) in shards.iter().enumerate() {
            pick(shard).render(name, &format!("shard=\"{index}\""), unit, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stockade_protocol::reply::ReserveReply;

    #[test]
    fn decisions_are_counted_by_outcome_over_all_shards() {
        let shards = [ShardMetrics::default(), ShardMetrics::default()];
        for shard in &shards {
            shard.decided(&Reply::Reserve(ReserveReply::rejected(Outcome::SoldOut, -1)));
        }
        shards[1].decided(&Reply::Sales(Vec::new()));
        let text = render(&shards, &Gauges::default());
        for line in [
            "stockade_decisions_total{verb=\"reserve\",outcome=\"sold_out\"} 2",
            "stockade_decisions_total{verb=\"reserve\",outcome=\"held\"} 0",
            "stockade_reads_total 1",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn every_outcome_has_a_counter() {
        assert!(Outcome::ALL.iter().all(|o| usize::from(o.number()) < OUTCOMES_MAX));
    }
}
