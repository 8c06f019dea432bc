//! Random histories of commits, archiving, snapshots, trimming, restarts and failing devices, with
//! the power lost or the process killed at any operation, recovery included.
//!
//! After each: every entry whose commit returned is there, in order, with its bytes; of the batch
//! in flight all or nothing; nothing else; LSNs without a hole; consumers are where they were or a
//! little before, and everything behind them can be read; reading a directory twice gives the same.
//! `STOCKADE_SEED` runs one seed, `STOCKADE_SEEDS` so many.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stockade_log::testing::{Fault, FaultKind, MemoryDisk, Rng};
use stockade_log::{Config, Durability, Stepped, open_on};
use stockade_protocol::entry::Entry;
use stockade_protocol::text::ConsumerName;
use stockade_protocol::{Lsn, PartitionId};
use support::{Digest, contents, digest, encode, entry, feed};

/// What the engine was told about a partition.
#[derive(Default)]
struct Told {
    /// Committed entries, from LSN 1 on.
    entries: Vec<Entry>,
    /// So many of them survive a power loss for certain.
    durable: usize,
}

/// A consumer's cursors: the last acknowledged LSN, and what is durable of it.
#[derive(Default, Clone)]
struct Cursor {
    acked: BTreeMap<u16, u64>,
    durable: Option<BTreeMap<u16, u64>>,
}

struct World {
    rng: Rng,
    disk: MemoryDisk,
    partitions: Vec<u16>,
    told: BTreeMap<u16, Told>,
    /// Batches whose commit failed: all there or not there.
    doubt: Vec<Vec<Entry>>,
    consumers: BTreeMap<ConsumerName, Cursor>,
    now: Duration,
    marks: u64,
    epoch: u64,
    group: bool,
    /// The end of the run in words, for messages.
    ended: &'static str,
}

enum Verdict {
    /// The power went; everything in doubt is.
    Down,
    /// A clean stop.
    Stopped,
    /// The journal failed: the process ends.
    Failed,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let count = 1 + rng.below(4) as u16;
        let partitions: Vec<u16> = (0..count).chain([PartitionId::CATALOG.get()]).collect();
        Self {
            disk: MemoryDisk::new(seed),
            told: partitions.iter().map(|p| (*p, Told::default())).collect(),
            partitions,
            doubt: Vec::new(),
            consumers: BTreeMap::new(),
            now: Duration::ZERO,
            marks: 0,
            epoch: 0,
            group: rng.below(5) > 0,
            ended: "a first start",
            rng,
        }
    }

    fn config(&mut self) -> Config {
        let shards = 1 + self.rng.below(3) as u16;
        let mut config = support::config(shards, self.partitions.len() as u16 - 1);
        config.segment_bytes = 600 + self.rng.below(3000);
        config.volume_bytes = 300 + self.rng.below(3000);
        config.snapshot_bytes = 200 + self.rng.below(3000);
        if !self.group {
            config.durability = Durability::Async { flush_every: Duration::from_secs(1) };
        }
        config
    }

    /// One life of the engine: recovery with any number of crashes in it, then work until an end.
    fn live(&mut self) {
        let config = self.config();
        let mut stepped = self.recover(&config);
        self.check_feed(&stepped);
        if self.rng.below(4) > 0 {
            let within = self.rng.below(120);
            self.disk.crash_at(self.disk.operations() + 1 + within);
        }
        if self.rng.once_in(3) {
            self.inject();
        }
        let steps = 1 + self.rng.below(60);
        let mut verdict = None;
        for _ in 0..steps {
            verdict = self.step(&config, &mut stepped);
            if verdict.is_some() {
                break;
            }
        }
        let verdict = verdict.unwrap_or_else(|| self.stop(stepped));
        self.end(&verdict);
    }

    /// How the run ends, and the disk of the next.
    fn end(&mut self, verdict: &Verdict) {
        let kill = !matches!(verdict, Verdict::Down) && self.rng.once_in(2);
        if kill {
            self.ended = "a kill";
            self.disk = self.disk.kill();
            return;
        }
        self.lose_power();
    }

    fn lose_power(&mut self) {
        self.ended = "a power loss";
        self.disk = self.disk.power_loss();
        if !self.group {
            for told in self.told.values_mut() {
                // Committed and not flushed: in doubt entry by entry.
                let lost = told.entries.split_off(told.durable);
                self.doubt.extend(lost.into_iter().map(|entry| vec![entry]));
            }
        }
    }

    fn inject(&mut self) {
        let kinds = [
            FaultKind::Sync,
            FaultKind::Sync,
            FaultKind::Write,
            FaultKind::ShortWrite,
            FaultKind::NoSpace,
            FaultKind::Name,
        ];
        let paths = ["journal", "archive", "floor", "snapshots", "consumers", "db", ".seg"];
        let kind = kinds[self.rng.below(kinds.len() as u64) as usize];
        let path = paths[self.rng.below(paths.len() as u64) as usize];
        let after = self.rng.below(20) as u32;
        self.disk.inject(Fault::new(kind, path).after(after));
    }

    fn step(&mut self, config: &Config, stepped: &mut Stepped) -> Option<Verdict> {
        match self.rng.below(12) {
            0..=5 => return self.commit(config, stepped),
            6..=7 => self.round(stepped),
            8 => {
                let _ = stepped.side.make_segments();
            }
            9 => self.consume(stepped),
            10 => self.check_feed(stepped),
            _ => {
                self.now += Duration::from_millis(700);
                if stepped.side.flush().is_ok() && !self.disk.is_down() {
                    self.all_durable();
                }
            }
        }
        self.disk.is_down().then_some(Verdict::Down)
    }

    fn all_durable(&mut self) {
        for told in self.told.values_mut() {
            told.durable = told.entries.len();
        }
    }

    fn commit(&mut self, config: &Config, stepped: &mut Stepped) -> Option<Verdict> {
        let shard = self.rng.below(u64::from(config.shards)) as u16;
        let owned: Vec<u16> = self
            .partitions
            .iter()
            .copied()
            .filter(|p| if *p == u16::MAX { shard == 0 } else { p % config.shards == shard })
            .collect();
        if owned.is_empty() {
            return None;
        }
        let mut next: BTreeMap<u16, u64> =
            owned.iter().map(|p| (*p, self.told[p].entries.len() as u64 + 1)).collect();
        let mut batch = Vec::new();
        for _ in 0..=self.rng.below(8) {
            let partition = owned[self.rng.below(owned.len() as u64) as usize];
            let lsn = next.get_mut(&partition).unwrap();
            self.marks += 1;
            batch.push(entry(partition, *lsn, self.marks));
            *lsn += 1;
        }
        match stepped.journals[usize::from(shard)].commit(&encode(&batch)) {
            Ok(()) => {
                for entry in batch {
                    let told = self.told.get_mut(&entry.partition.get()).unwrap();
                    told.entries.push(entry);
                    if self.group {
                        told.durable = told.entries.len();
                    }
                }
                None
            }
            Err(_) => {
                // A poisoned journal stays poisoned.
                let again = stepped.journals[usize::from(shard)].commit(&encode(&batch));
                assert!(again.is_err(), "a failed journal went on");
                self.doubt.push(batch);
                Some(if self.disk.is_down() { Verdict::Down } else { Verdict::Failed })
            }
        }
    }

    fn round(&mut self, stepped: &mut Stepped) {
        self.now += Duration::from_millis(400 + self.rng.below(3000));
        if stepped.side.round(self.now).is_ok() && !self.disk.is_down() {
            self.settled();
        }
        let lens: Vec<usize> = self.told.values().map(|told| told.entries.len()).collect();
        for (p, len) in self.told.keys().zip(lens) {
            assert_eq!(stepped.log.committed(PartitionId::new(*p)).get(), len as u64);
        }
    }

    /// A round without an error: entries and cursors are durable.
    fn settled(&mut self) {
        self.all_durable();
        for cursor in self.consumers.values_mut() {
            cursor.durable = Some(cursor.acked.clone());
        }
    }

    fn consume(&mut self, stepped: &Stepped) {
        let name = ConsumerName::new(format!("c{}", self.rng.below(3)).as_bytes()).unwrap();
        let log = &stepped.log;
        let Some(cursor) = self.consumers.get_mut(&name) else {
            log.consumer_register(&name).unwrap();
            let cursors = log.consumer_cursors(&name).unwrap();
            let acked = cursors.iter().map(|c| (c.partition.get(), c.acked.get())).collect();
            self.consumers.insert(name, Cursor { acked, durable: None });
            return;
        };
        for (partition, acked) in &mut cursor.acked {
            let partition = *partition;
            let last = log.committed(PartitionId::new(partition)).get();
            let to = last - self.rng.below(1 + (last - *acked).min(5));
            if to >= *acked {
                log.consumer_ack(&name, PartitionId::new(partition), Lsn::new(to)).unwrap();
                *acked = to;
            }
        }
    }

    /// Every kept entry can be read, and nothing that a consumer has not seen is gone.
    fn check_feed(&self, stepped: &Stepped) {
        for (partition, told) in &self.told {
            let first = stepped.log.first_kept(PartitionId::new(*partition)).get();
            assert_eq!(feed(&stepped.log, *partition), told.entries[first as usize - 1..]);
            for (name, cursor) in &self.consumers {
                let acked = cursor.acked.get(partition).copied().unwrap_or_default();
                assert!(first <= acked + 1, "{name:?} would miss {acked}..{first}");
            }
        }
    }

    fn stop(&mut self, stepped: Stepped) -> Verdict {
        let Stepped { log, journals, side } = stepped;
        for journal in journals {
            if journal.close().is_err() {
                return if self.disk.is_down() { Verdict::Down } else { Verdict::Failed };
            }
        }
        if side.finish(self.now).is_err() {
            return if self.disk.is_down() { Verdict::Down } else { Verdict::Failed };
        }
        assert!(log.shutdown().is_ok());
        if !self.disk.is_down() {
            self.settled();
        }
        Verdict::Stopped
    }

    fn recover(&mut self, config: &Config) -> Stepped {
        loop {
            if self.rng.once_in(3) {
                let within = self.rng.below(40);
                self.disk.crash_at(1 + within);
            }
            match self.try_recover(config) {
                Some(stepped) => return stepped,
                None if self.disk.is_down() => self.lose_power(),
                None => unreachable!("only a power loss fails a start"),
            }
        }
    }

    fn try_recover(&mut self, config: &Config) -> Option<Stepped> {
        let opened = open_on(self.disk.storage(), config.clone(), Arc::new(Digest));
        if self.disk.is_down() {
            return None;
        }
        let mut recovery = opened.unwrap_or_else(|e| panic!("after {}: {e}", self.ended));
        let found = contents(&mut recovery).unwrap();
        if self.disk.is_down() {
            return None;
        }
        // A copy of the disk tells the same story.
        let twin = self.disk.fork();
        let mut again = open_on(twin.storage(), config.clone(), Arc::new(Digest)).unwrap();
        assert_eq!(contents(&mut again).unwrap(), found, "a second reading");
        let started = recovery.start_stepped();
        if self.disk.is_down() {
            return None;
        }
        let stepped = started.unwrap();
        self.accept(&found);
        assert!(stepped.log.epoch() > self.epoch, "epochs count up");
        self.epoch = stepped.log.epoch();
        self.accept_cursors(&stepped);
        Some(stepped)
    }

    /// Compares what was found with what was told, and takes over what was in doubt.
    fn accept(&mut self, found: &BTreeMap<u16, support::Content>) {
        let nothing = (0, 0, Vec::new());
        for (partition, told) in &mut self.told {
            let (snapshot, image, entries) = found.get(partition).unwrap_or(&nothing);
            let last = *snapshot as usize + entries.len();
            assert!(
                last >= told.entries.len(),
                "after {}: partition {partition} lost {last}..{}",
                self.ended,
                told.entries.len()
            );
            for (entry, lsn) in entries.iter().zip(snapshot + 1..) {
                assert_eq!(entry.lsn.get(), lsn, "no hole");
            }
            // What is beyond must have been in doubt, with these very bytes.
            while told.entries.len() < last {
                let next = told.entries.len() as u64 + 1;
                let behind_snapshot = (next as usize).checked_sub(*snapshot as usize + 1);
                let was = |entry: &&Entry| {
                    entry.partition.get() == *partition
                        && entry.lsn.get() == next
                        && behind_snapshot.is_none_or(|at| &entries[at] == *entry)
                };
                let doubt = self.doubt.iter().flatten().find(was);
                let doubt = doubt.unwrap_or_else(|| panic!("{partition}/{next} was invented"));
                told.entries.push(doubt.clone());
            }
            let prefix = &told.entries[..*snapshot as usize];
            if *partition != u16::MAX {
                assert_eq!(prefix.iter().fold(0, digest), *image, "the snapshot's content");
            }
            assert_eq!(entries[..], told.entries[*snapshot as usize..], "content");
            told.durable = told.entries.len();
        }
        for batch in std::mem::take(&mut self.doubt) {
            let there = |entry: &&Entry| {
                let told = &self.told[&entry.partition.get()].entries;
                told.get(entry.lsn.get() as usize - 1) == Some(entry)
            };
            let count = batch.iter().filter(there).count();
            assert!(count == 0 || count == batch.len(), "a batch is there in part");
        }
    }

    /// Consumers are where they said, or where they were durably, or between.
    fn accept_cursors(&mut self, stepped: &Stepped) {
        let names = stepped.log.consumers();
        for name in self.consumers.keys() {
            let durable = self.consumers[name].durable.as_ref().is_some_and(|d| !d.is_empty());
            assert!(names.contains(name) || !durable, "{name:?} is forgotten");
        }
        self.consumers.retain(|name, _| names.contains(name));
        for (name, cursor) in &mut self.consumers {
            for found in stepped.log.consumer_cursors(name).unwrap() {
                let partition = found.partition.get();
                let acked = cursor.acked[&partition];
                let durable = cursor.durable.as_ref().and_then(|d| d.get(&partition)).copied();
                // Mode `async`: not beyond what is left of the log.
                let last = self.told[&partition].entries.len() as u64;
                let (least, acked) = (durable.unwrap_or_default().min(last), acked.min(last));
                let at = found.acked.get();
                assert!((least..=acked).contains(&at), "{name:?}: {least} <= {at} <= {acked}");
                cursor.acked.insert(partition, at);
            }
            cursor.durable = Some(cursor.acked.clone());
        }
    }
}

fn history(seed: u64) {
    let mut world = World::new(seed);
    for _ in 0..6 {
        world.live();
    }
    // The last word is a quiet start.
    let config = world.config();
    let stepped = world.recover(&config);
    world.check_feed(&stepped);
}

#[test]
fn what_was_committed_survives_a_power_loss_at_any_operation() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    if let Some(seed) = number("STOCKADE_SEED") {
        return history(seed);
    }
    for seed in 0..number("STOCKADE_SEEDS").unwrap_or(300) {
        let done = std::panic::catch_unwind(|| history(seed));
        assert!(done.is_ok(), "run again with STOCKADE_SEED={seed}");
    }
}

#[test]
fn the_same_seed_makes_the_same_disk() {
    let run = |seed| {
        let mut world = World::new(seed);
        (0..4).for_each(|_| world.live());
        let disk = world.disk.storage().disk;
        let mut bytes = Vec::new();
        for dir in ["/data", "/data/journal", "/data/archive", "/data/snapshots"] {
            for path in disk.list(dir.as_ref()).unwrap() {
                bytes.push((path.clone(), disk.read(&path).unwrap_or_default()));
            }
        }
        bytes
    };
    for seed in [1, 2, 3] {
        assert_eq!(run(seed), run(seed));
    }
    assert_ne!(run(1), run(2));
}
