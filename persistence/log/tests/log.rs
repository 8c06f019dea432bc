//! The log as its users see it: commit, read, restart, torn tails, damage, cursors, trimming.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stockade_log::{Config, Fold, Journal, Log, OpenError, ReadOutcome, Recovery, open};
use stockade_protocol::entry::{Entry, Event};
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::image::{CatalogImage, PartitionImage};
use stockade_protocol::text::ConsumerName;
use stockade_protocol::{Lsn, PartitionId, RequestId, SaleId, UserId};

/// Counts entries: enough to see that each is folded once and in order.
struct Count;

impl Fold for Count {
    fn partition(
        &self,
        _: PartitionId,
        mut image: PartitionImage,
        entries: &[Entry],
    ) -> Result<PartitionImage, String> {
        for entry in entries {
            assert_eq!(entry.lsn, image.lsn.next());
            image.lsn = entry.lsn;
            image.at = entry.at;
            image.order_number_last += 1;
        }
        Ok(image)
    }

    fn catalog(&self, mut image: CatalogImage, entries: &[Entry]) -> Result<CatalogImage, String> {
        if let Some(last) = entries.last() {
            image.lsn = last.lsn;
        }
        Ok(image)
    }
}

fn config(dir: &Path, shards: u16) -> Config {
    let mut config = Config::new(dir, shards, 4);
    config.segment_bytes = 64 << 10;
    config
}

fn try_open(dir: &Path) -> Result<Recovery, OpenError> {
    open(config(dir, 1), Arc::new(Count))
}

fn start(dir: &Path, shards: u16) -> (Arc<Log>, Vec<Journal>) {
    open(config(dir, shards), Arc::new(Count)).unwrap().start().unwrap()
}

fn entry(partition: u16, lsn: u64) -> Entry {
    Entry {
        partition: PartitionId::new(partition),
        lsn: Lsn::new(lsn),
        at: TimestampMs::new(1000 + lsn),
        event: Event::Withdrawn {
            sale: SaleId::new(1).unwrap(),
            user: UserId::new(lsn).unwrap(),
            request: RequestId::parse(format!("r{lsn}").as_bytes()).unwrap(),
        },
    }
}

fn batch(entries: &[(u16, u64)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (partition, lsn) in entries {
        entry(*partition, *lsn).encode(&mut bytes);
    }
    bytes
}

/// All entries of a partition, as a recovery hands them out behind the snapshot.
fn replayed(recovery: &Recovery, partition: u16) -> Vec<u64> {
    let mut lsns = Vec::new();
    let mut see = |entry: Entry| {
        assert_eq!(entry, self::entry(partition, entry.lsn.get()));
        lsns.push(entry.lsn.get());
        Ok(())
    };
    recovery.replay(PartitionId::new(partition), &mut see).unwrap();
    lsns
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let list = fs::read_dir(dir.join("journal")).unwrap();
    let mut paths: Vec<PathBuf> = list.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// Copies a directory as a kill would leave it.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()) {
        let target = to.join(entry.file_name().unwrap());
        if entry.is_dir() {
            copy(&entry, &target);
        } else {
            fs::copy(&entry, &target).unwrap();
        }
    }
}

/// A directory with three frames of partition 1 that were committed and not archived, as after a
/// kill; and where each frame begins.
fn killed(dir: &Path) -> (PathBuf, Vec<usize>) {
    let live = dir.join("live");
    let (log, mut journals) = start(&live, 1);
    let empty = dir.join("killed");
    copy(&live, &empty);
    for lsns in [vec![(1, 1), (1, 2)], vec![(1, 3)], vec![(1, 4), (2, 1)]] {
        journals[0].commit(&batch(&lsns)).unwrap();
    }
    // Only the segment goes over: sled's files as they were before the archiver saw anything.
    let segment = segments(&live).remove(0);
    let name = segment.file_name().unwrap().to_owned();
    fs::copy(&segment, empty.join("journal").join(&name)).unwrap();
    journals.remove(0).close().unwrap();
    log.shutdown().unwrap();
    let bytes = fs::read(empty.join("journal").join(&name)).unwrap();
    let starts = (64..bytes.len() - 4).step_by(8).filter(|at| &bytes[*at..at + 4] == b"SFRM");
    (empty, starts.collect())
}

#[test]
fn committed_entries_are_there_after_a_kill_and_after_a_clean_stop() {
    let dir = tempfile::tempdir().unwrap();
    let (killed, frames) = killed(dir.path());
    assert_eq!(frames.len(), 3);
    let recovery = try_open(&killed).unwrap();
    assert_eq!(replayed(&recovery, 1), [1, 2, 3, 4]);
    assert_eq!(replayed(&recovery, 2), [1]);
    assert_eq!(recovery.newest_at(), TimestampMs::new(1004));
    let (log, mut journals) = recovery.start().unwrap();
    journals[0].commit(&batch(&[(1, 5)])).unwrap();
    assert_eq!(log.committed(PartitionId::new(1)), Lsn::new(5));
    journals.remove(0).close().unwrap();
    log.shutdown().unwrap();
    drop(log);
    let again = open(config(&killed, 3), Arc::new(Count)).unwrap();
    assert!(again.warnings().is_empty(), "{:?}", again.warnings());
    assert_eq!(replayed(&again, 1), [1, 2, 3, 4, 5]);
}

/// Every way in which the frame in flight can be half there. What was acknowledged before it stays.
#[test]
fn a_torn_last_frame_is_cut_with_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let (killed, frames) = killed(dir.path());
    let segment = segments(&killed).remove(0);
    let good = fs::read(&segment).unwrap();
    let last = frames[2];
    let end = good.len() - good.iter().rev().position(|byte| *byte != 0).unwrap();
    let shapes: Vec<(&str, Vec<u8>)> = vec![
        ("only the header", [&good[..last + 48], &vec![0; good.len() - last - 48]].concat()),
        ("half a header", [&good[..last + 20], &vec![0; good.len() - last - 20]].concat()),
        ("half a body", [&good[..last + 80], &vec![0; good.len() - last - 80]].concat()),
        ("a body without its header", {
            let mut bytes = good.clone();
            bytes[last..last + 48].fill(0);
            bytes
        }),
        ("garbage", {
            let mut bytes = good.clone();
            for (i, byte) in bytes[last..end].iter_mut().enumerate() {
                *byte = (i * 7 + 13) as u8;
            }
            bytes
        }),
        ("one bit", {
            let mut bytes = good.clone();
            bytes[end - 1] ^= 1;
            bytes
        }),
    ];
    for (name, bytes) in shapes {
        fs::write(&segment, bytes).unwrap();
        let recovery = try_open(&killed).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(replayed(&recovery, 1), [1, 2, 3], "{name}");
        assert_eq!(recovery.warnings().len(), 1, "{name}");
    }
}

/// A bad frame with a whole one behind it was acknowledged: the start refuses and names the place.
#[test]
fn damage_before_the_last_frame_is_refused_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let (killed, frames) = killed(dir.path());
    let segment = segments(&killed).remove(0);
    let good = fs::read(&segment).unwrap();
    for frame in &frames[..2] {
        for at in [frame + 1, frame + 30, frame + 60] {
            let mut bytes = good.clone();
            bytes[at] ^= 0x10;
            fs::write(&segment, bytes).unwrap();
            match try_open(&killed) {
                Err(OpenError::Damaged { file, offset, .. }) => {
                    assert_eq!((file, offset), (segment.clone(), *frame as u64));
                }
                other => panic!("byte {at}: {:?}", other.map(|r| r.warnings().to_vec())),
            }
        }
    }
}

#[test]
fn a_damaged_small_file_is_refused_with_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let (killed, _) = killed(dir.path());
    for name in ["meta", "floor"] {
        let path = killed.join(name);
        let good = fs::read(&path).unwrap();
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 1;
            fs::write(&path, bytes).unwrap();
            match try_open(&killed) {
                Err(OpenError::Damaged { file, .. }) => assert_eq!(file, path),
                other => panic!("{name} byte {at}: {:?}", other.map(|r| r.warnings().to_vec())),
            }
        }
        fs::write(&path, good).unwrap();
    }
}

#[test]
fn a_second_process_and_another_partition_count_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _journals) = start(dir.path(), 1);
    assert!(matches!(try_open(dir.path()), Err(OpenError::InUse { .. })));
    log.shutdown().unwrap();
    drop((log, _journals));
    // The threads that prepare segments end a moment later and let the directory go.
    wait_until("the directory is free", || {
        !matches!(try_open(dir.path()), Err(OpenError::InUse { .. }))
    });
    let other = Config::new(dir.path(), 1, 8);
    assert!(matches!(open(other, Arc::new(Count)), Err(OpenError::Settings { .. })));
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The whole feed of a partition, read in small pieces.
fn feed(log: &Log, partition: u16, from: u64) -> Vec<u64> {
    let (mut lsns, mut next) = (Vec::new(), Lsn::new(from));
    loop {
        match log.read(PartitionId::new(partition), next, 500).unwrap() {
            ReadOutcome::Entries { mut bytes, last } => {
                while !bytes.is_empty() {
                    let (entry, taken) = Entry::decode(&bytes).unwrap();
                    lsns.push(entry.lsn.get());
                    bytes.drain(..taken);
                }
                next = last.next();
            }
            ReadOutcome::End => return lsns,
            ReadOutcome::Gap { first_kept } => next = first_kept,
        }
    }
}

/// Thousands of frames over many segments: readers see every entry once, in order, while the
/// archiver moves them into sled and segments go; and after a restart too.
#[test]
fn the_feed_is_whole_while_segments_roll_and_are_archived() {
    let dir = tempfile::tempdir().unwrap();
    let (log, mut journals) = start(dir.path(), 2);
    for lsn in 1..=3000u64 {
        journals[0].commit(&batch(&[(0, 2 * lsn - 1), (0, 2 * lsn), (2, lsn)])).unwrap();
        journals[1].commit(&batch(&[(1, lsn)])).unwrap();
        if lsn % 500 == 0 {
            assert_eq!(feed(&log, 0, 1), (1..=2 * lsn).collect::<Vec<_>>());
        }
    }
    wait_until("segments are let go", || segments(dir.path()).len() <= 6);
    for (partition, last) in [(0, 6000), (1, 3000), (2, 3000)] {
        assert_eq!(feed(&log, partition, 1), (1..=last).collect::<Vec<u64>>());
    }
    assert_eq!(feed(&log, 0, 5990), (5990..=6000).collect::<Vec<u64>>());
    for journal in journals {
        journal.close().unwrap();
    }
    log.shutdown().unwrap();
    drop(log);
    let report = stockade_log::verify(dir.path()).unwrap();
    assert_eq!(report.entries, 12_000);
    let mut text = Vec::new();
    stockade_log::dump(dir.path(), &mut text).unwrap();
    assert_eq!(String::from_utf8(text).unwrap().lines().count(), 12_000);
    let mut recovery = try_open(dir.path()).unwrap();
    let images = recovery.take_images();
    let image = &images[&PartitionId::new(0)];
    assert_eq!(image.order_number_last, image.lsn.get(), "each entry was folded once");
    let replayed = replayed(&recovery, 0);
    assert_eq!(image.lsn.get() + replayed.len() as u64, 6000);
}

#[test]
fn a_large_entry_passes_through_journal_archive_and_feed() {
    let dir = tempfile::tempdir().unwrap();
    let mut definition = stockade_protocol::SaleDefinition {
        sale: SaleId::new(1).unwrap(),
        name: "large".into(),
        opens_at: TimestampMs::new(1),
        closes_at: None,
        hold_ms: 1,
        extend_max_ms: 0,
        grace_ms: 0,
        limit_per_user: 0,
        rate_per_s: 0,
        burst: 0,
        user_rate_per_s: 0,
        revive: false,
        skus: Vec::new(),
    };
    for sku in 1..=10_000u64 {
        definition.skus.push(stockade_protocol::SkuDefinition {
            sku: stockade_protocol::SkuId::new(sku).unwrap(),
            stock: 1,
            limit_per_user: 0,
            max_per_order: 0,
            labels: vec![("spec".into(), "x".repeat(60))],
        });
    }
    let large = Entry {
        partition: PartitionId::CATALOG,
        lsn: Lsn::FIRST,
        at: TimestampMs::new(5),
        event: Event::SalePut(Box::new(definition)),
    };
    let mut bytes = Vec::new();
    large.encode(&mut bytes);
    let (log, mut journals) = start(dir.path(), 1);
    journals[0].commit(&bytes).unwrap();
    journals.remove(0).close().unwrap();
    log.shutdown().unwrap();
    drop(log);
    let (log, _journals) = start(dir.path(), 1);
    let read = log.read(PartitionId::CATALOG, Lsn::FIRST, 1).unwrap();
    assert_eq!(read, ReadOutcome::Entries { bytes, last: Lsn::FIRST });
}

#[test]
fn cursors_move_forward_only_and_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (log, mut journals) = start(dir.path(), 1);
    journals[0].commit(&batch(&[(1, 1), (1, 2), (1, 3)])).unwrap();
    let (name, p) = (ConsumerName::new(b"w").unwrap(), PartitionId::new(1));
    assert!(log.consumer_ack(&name, p, Lsn::new(1)).is_err(), "unknown");
    log.consumer_register(&name).unwrap();
    log.consumer_ack(&name, p, Lsn::new(2)).unwrap();
    log.consumer_ack(&name, p, Lsn::new(1)).unwrap();
    assert!(log.consumer_ack(&name, p, Lsn::new(4)).is_err(), "beyond what is committed");
    journals.remove(0).close().unwrap();
    log.shutdown().unwrap();
    drop(log);
    let (log, _journals) = start(dir.path(), 1);
    let cursors = log.consumer_cursors(&name).unwrap();
    let cursor = cursors.iter().find(|cursor| cursor.partition == p).unwrap();
    assert_eq!((cursor.acked, cursor.committed), (Lsn::new(2), Lsn::new(3)));
    log.consumer_drop(&name).unwrap();
    assert!(log.consumers().is_empty());
}

/// Entries go when they are in a snapshot and every consumer is past them; a reader below is told.
#[test]
fn trimmed_entries_are_a_gap_and_their_space_is_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path(), 1);
    config.volume_bytes = 64 << 10;
    config.snapshot_bytes = 16 << 10;
    config.keep_after_ack = Duration::ZERO;
    let (log, mut journals) = open(config, Arc::new(Count)).unwrap().start().unwrap();
    let (name, p) = (ConsumerName::new(b"w").unwrap(), PartitionId::new(1));
    log.consumer_register(&name).unwrap();
    let mut next = 1u64;
    let started = Instant::now();
    while log.first_kept(p) <= Lsn::FIRST {
        assert!(started.elapsed() < Duration::from_secs(60), "nothing is trimmed");
        let lsns: Vec<(u16, u64)> = (next..next + 200).map(|lsn| (1, lsn)).collect();
        journals[0].commit(&batch(&lsns)).unwrap();
        next += 200;
        log.consumer_ack(&name, p, Lsn::new(next - 1)).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    let first = log.first_kept(p);
    assert_eq!(log.read(p, Lsn::FIRST, 1).unwrap(), ReadOutcome::Gap { first_kept: first });
    assert_eq!(feed(&log, 1, first.get()), (first.get()..next).collect::<Vec<u64>>());
    journals.remove(0).close().unwrap();
    log.shutdown().unwrap();
    drop(log);
    let recovery = try_open(dir.path()).unwrap();
    assert_eq!(recovery.last_lsn(p), Lsn::new(next - 1));
}

/// Bits flipped in sled's own files, and the files and directories taken away. sled opens many of
/// them and hands out less than it had: what the floor says is missing then, and the start refuses.
#[test]
fn damaged_sled_files_are_refused_or_do_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let live = dir.path().join("live");
    let (log, mut journals) = start(&live, 1);
    for lsn in 1..=600u64 {
        journals[0].commit(&batch(&[(0, 2 * lsn - 1), (0, 2 * lsn), (2, lsn)])).unwrap();
    }
    journals.remove(0).close().unwrap();
    log.shutdown().unwrap();
    drop(log);
    let volume = fs::read_dir(live.join("archive")).unwrap().next().unwrap().unwrap().path();
    let mut files: Vec<PathBuf> =
        fs::read_dir(&volume).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.is_file());
    files.sort();
    let (mut refused, mut whole) = (0, 0);
    let mut judge = |what: &str| match try_open(&live) {
        Ok(recovery) => {
            let behind = |p: u16, last: u64| {
                let found = replayed(&recovery, p);
                assert_eq!(found.last().copied().unwrap_or(last), last, "{what}");
                assert_eq!(recovery.last_lsn(PartitionId::new(p)).get(), last, "{what}");
            };
            behind(0, 1200);
            behind(2, 600);
            whole += 1;
        }
        Err(error) => {
            assert!(error.to_string().contains("archive") || error.to_string().contains("missing"));
            refused += 1;
        }
    };
    for path in files {
        let good = fs::read(&path).unwrap();
        let used = good.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        for step in 0..24 {
            let at = used * step / 24;
            if at >= good.len() {
                continue;
            }
            let mut bytes = good.clone();
            bytes[at] ^= 0x10;
            fs::write(&path, bytes).unwrap();
            judge(&format!("{} byte {at}", path.display()));
        }
        fs::remove_file(&path).unwrap();
        judge(&format!("{} is gone", path.display()));
        fs::write(&path, &good[..used / 2]).unwrap();
        judge(&format!("{} is cut", path.display()));
        fs::write(&path, &good).unwrap();
    }
    judge("nothing is damaged");
    assert!(refused > 5 && whole > 1, "{refused} refused, {whole} whole");
    fs::remove_dir_all(&volume).unwrap();
    assert!(matches!(try_open(&live), Err(OpenError::Missing { .. })));
    fs::remove_dir_all(live.join("archive")).unwrap();
    assert!(matches!(try_open(&live), Err(OpenError::Missing { .. })));
}

/// A backlog that fills several volumes in one round: each of them is synced before the floor says
/// that it is durable. (Only the last two were.)
#[test]
fn every_volume_of_a_round_is_durable_before_the_floor_says_so() {
    use stockade_log::testing::MemoryDisk;
    for seed in 0..20 {
        let disk = MemoryDisk::new(seed);
        let mut config = Config::new("/data", 1, 4);
        config.segment_bytes = 4096;
        config.volume_bytes = 1000;
        let storage = disk.storage();
        let opened = stockade_log::open_on(storage, config.clone(), Arc::new(Count)).unwrap();
        let mut stepped = opened.start_stepped().unwrap();
        for lsn in 1..=100 {
            let lsns: Vec<(u16, u64)> = (0..4).map(|p| (p, lsn)).collect();
            stepped.journals[0].commit(&batch(&lsns)).unwrap();
        }
        stepped.side.round(Duration::ZERO).unwrap();
        let archive = stockade_log::Disk::list(&disk, Path::new("/data/archive")).unwrap();
        assert!(archive.len() > 3, "{} volumes in one round", archive.len());
        let after = disk.power_loss();
        let again = stockade_log::open_on(after.storage(), config, Arc::new(Count)).unwrap();
        for partition in 0..4 {
            assert_eq!(again.last_lsn(PartitionId::new(partition)), Lsn::new(100));
        }
    }
}

/// The journal's bytes of a client are never taken for a frame, even when a torn write leaves them
/// standing without their own frame's header.
#[test]
fn a_frame_inside_a_clients_bytes_is_no_frame() {
    let dir = tempfile::tempdir().unwrap();
    let (killed, frames) = killed(dir.path());
    let segment = segments(&killed).remove(0);
    let good = fs::read(&segment).unwrap();
    // A frame as another directory would write it, at a later place of this one's journal.
    let mut forged = good[frames[0]..frames[0] + 48].to_vec();
    forged[16..24].copy_from_slice(&99u64.to_le_bytes());
    forged[24..28].copy_from_slice(&0u32.to_le_bytes());
    forged[36..40].copy_from_slice(&crc32c::crc32c(&[]).to_le_bytes());
    let crc = crc32c::crc32c(&forged[..40]);
    forged[40..44].copy_from_slice(&crc.to_le_bytes());
    let mut bytes = good.clone();
    let torn = frames[2];
    bytes[torn..torn + 48].fill(0);
    bytes[torn + 64..torn + 112].copy_from_slice(&forged);
    fs::write(&segment, bytes).unwrap();
    let recovery = try_open(&killed).unwrap();
    assert_eq!(replayed(&recovery, 1), [1, 2, 3]);
}
