//! The process dies at each named point, on real files and real sled, and what it acknowledged is
//! there. Needs the feature `crash-points`.
//!
//! The child is this very program: it commits, prints each acknowledged LSN, and dies at its point.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use stockade_log::{Config, open};
use stockade_protocol::text::ConsumerName;
use stockade_protocol::{Lsn, PartitionId};
use support::{Digest, contents, encode, entry};

const ENTRIES: u64 = 1500;

fn config(dir: &Path) -> Config {
    let mut config = Config::new(dir, 1, 1);
    config.segment_bytes = 16 << 10;
    config.volume_bytes = 24 << 10;
    config.snapshot_bytes = 8 << 10;
    config.keep_after_ack = Duration::ZERO;
    config
}

/// What the child does; nothing when the test runs by itself.
#[test]
fn child() {
    let Ok(dir) = std::env::var("STOCKADE_LOG_DIR") else { return };
    let recovery = open(config(Path::new(&dir)), Arc::new(Digest)).unwrap();
    let partition = PartitionId::new(0);
    let mut last = recovery.last_lsn(partition);
    println!("found {last}");
    let (log, mut journals) = recovery.start().unwrap();
    println!("started");
    let name = ConsumerName::new(b"child").unwrap();
    log.consumer_register(&name).unwrap();
    for _ in 0..ENTRIES {
        let entry = entry(0, last.next().get(), 1);
        journals[0].commit(&encode([&entry])).unwrap();
        last = last.next();
        println!("acked {last}");
        log.consumer_ack(&name, partition, last).unwrap();
        // Rounds and trims go by the clock; the points in them come sooner or later.
        std::thread::sleep(Duration::from_millis(4));
    }
    println!("survived");
}

/// Runs the child until it dies; the last LSN that it was told.
fn run(dir: &Path, point: &str) -> (u64, bool) {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env("STOCKADE_LOG_DIR", dir)
        .env("STOCKADE_CRASH_AT", point)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&child.stdout);
    let number = |line: &str| line.split_once("acked ").map(|(_, lsn)| lsn.parse().unwrap());
    let acked = out.lines().filter_map(number).next_back().unwrap_or(0);
    let died = String::from_utf8_lossy(&child.stderr).contains("crash point");
    assert!(died || out.contains("survived"), "{point}: {out}");
    (acked, died)
}

#[test]
fn what_was_acknowledged_survives_a_death_at_each_point() {
    let points = [
        "before_write:40",
        "after_write:41",
        "after_sync:42",
        "in_roll:2",
        "in_archive:2",
        "in_snapshot:1",
        "in_trim:1",
        "in_recovery:1",
        "in_recovery:2",
    ];
    let dir = tempfile::tempdir().unwrap();
    let mut told = 0;
    for point in points {
        let (acked, died) = run(dir.path(), point);
        assert!(died, "{point} was never reached");
        told = acked.max(told);
        let mut recovery = open(config(dir.path()), Arc::new(Digest)).unwrap();
        let last = recovery.last_lsn(PartitionId::new(0));
        assert!(last >= Lsn::new(told), "{point}: {last} of {told}");
        assert!(last <= Lsn::new(told + 1), "{point}: at most the one in flight more");
        let (snapshot, _, behind) = contents(&mut recovery).unwrap().remove(&0).unwrap();
        for (found, lsn) in behind.iter().zip(snapshot + 1..) {
            assert_eq!(*found, entry(0, lsn, 1), "{point}");
        }
        told = last.get();
    }
}
