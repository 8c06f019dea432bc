//! What damage does, file kind by file kind: the right state (a torn tail of what was never
//! acknowledged, a derived file that is made anew) or a refusal that names the file. Never another
//! state, and never a shorter one.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use stockade_log::testing::{Fault, FaultKind, MemoryDisk};
use stockade_log::{Config, Disk, OpenError, Recovery, Stepped, open_on};
use stockade_protocol::text::ConsumerName;
use stockade_protocol::{Entry, Lsn, PartitionId};
use support::{Content, Digest, contents, digest, encode, entry};

fn config() -> Config {
    let mut config = support::config(2, 4);
    config.segment_bytes = 1500;
    config.volume_bytes = 700;
    config.snapshot_bytes = 300;
    config
}

fn open(disk: &MemoryDisk) -> Result<Recovery, OpenError> {
    open_on(disk.storage(), config(), Arc::new(Digest))
}

/// All entries of each partition, out of whatever snapshot and log hold; the snapshot is checked
/// against `truth`.
fn state(disk: &MemoryDisk, truth: &Truth) -> Result<BTreeMap<u16, Vec<Entry>>, String> {
    let mut recovery = open(disk).map_err(|error| error.to_string())?;
    let found = contents(&mut recovery).map_err(|error| error.to_string())?;
    let whole = |(partition, content): (u16, Content)| {
        let (snapshot, image, behind) = content;
        let mut entries = truth[&partition][..snapshot as usize].to_vec();
        if partition != u16::MAX {
            assert_eq!(entries.iter().fold(0, digest), image, "a wrong snapshot was taken");
        }
        entries.extend(behind);
        (partition, entries)
    };
    Ok(found.into_iter().map(whole).collect())
}

type Truth = BTreeMap<u16, Vec<Entry>>;

struct Live {
    disk: MemoryDisk,
    stepped: Stepped,
    truth: Truth,
}

impl Live {
    fn new(seed: u64) -> Self {
        let disk = MemoryDisk::new(seed);
        let stepped = open(&disk).unwrap().start_stepped().unwrap();
        Self { disk, stepped, truth: Truth::new() }
    }

    fn commit(&mut self, shard: usize, partitions: &[u16]) {
        let mut batch = Vec::new();
        for partition in partitions {
            let told = self.truth.entry(*partition).or_default();
            let entry = entry(*partition, told.len() as u64 + 1, 7);
            told.push(entry.clone());
            batch.push(entry);
        }
        self.stepped.journals[shard].commit(&encode(&batch)).unwrap();
    }
}

/// A directory with archive, snapshots, consumers, and journals of two shards whose last entries
/// are nowhere else; as a kill leaves it.
fn killed() -> (MemoryDisk, Truth) {
    let mut live = Live::new(1);
    let name = ConsumerName::new(b"writer").unwrap();
    live.stepped.log.consumer_register(&name).unwrap();
    for round in 0..12 {
        live.commit(0, &[0, 2, u16::MAX]);
        live.commit(1, &[1, 1, 3]);
        live.stepped.side.make_segments().unwrap();
        if round % 3 == 2 {
            let now = Duration::from_secs(3 * (round + 1));
            live.stepped.side.round(now).unwrap();
        }
    }
    for _ in 0..6 {
        live.commit(0, &[0, 2]);
        live.commit(1, &[3, 1]);
    }
    live.stepped.side.make_segments().unwrap();
    (live.disk.kill(), live.truth)
}

fn files(disk: &MemoryDisk, dir: &str) -> Vec<PathBuf> {
    Disk::list(disk, Path::new(dir)).unwrap()
}

fn read(disk: &MemoryDisk, path: &Path) -> Vec<u8> {
    Disk::read(disk, path).unwrap()
}

/// The newest segment of a shard that has frames.
fn newest(disk: &MemoryDisk, shard: u16) -> PathBuf {
    let of_shard = |path: &PathBuf| path.to_str().unwrap().contains(&format!("-s{shard:04}-"));
    let used = |path: &PathBuf| read(disk, path)[64..].iter().any(|byte| *byte != 0);
    files(disk, "/data/journal").into_iter().rfind(|p| of_shard(p) && used(p)).unwrap()
}

fn frames(bytes: &[u8]) -> Vec<usize> {
    (64..bytes.len() - 4).step_by(8).filter(|at| &bytes[*at..at + 4] == b"SFRM").collect()
}

#[test]
fn an_undamaged_directory_gives_everything() {
    let (disk, truth) = killed();
    assert_eq!(state(&disk, &truth).unwrap(), truth);
    let kinds = ["/data/archive", "/data/snapshots", "/data/journal"];
    for kind in kinds {
        assert!(files(&disk, kind).len() >= 3, "{kind} is worth damaging");
    }
}

/// redis#5177, valkey#1148: after a power loss the tail is zeros or garbage, and the server would
/// not start. Each byte of the last two frames is tried as the place where the bytes end.
#[test]
fn every_torn_tail_is_cut_and_what_stands_before_it_stays() {
    let (disk, truth) = killed();
    let path = newest(&disk, 0);
    let good = read(&disk, &path);
    let starts = frames(&good);
    let [.., before_last, last] = starts[..] else { panic!("two frames") };
    let end = good.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let garbage: Vec<u8> = (0..good.len()).map(|i| (i * 7 + 13) as u8).collect();
    for cut in before_last..end {
        let kept = if cut > last { 1 } else { 2 };
        let mut shapes = vec![
            ("zeros", [&good[..cut], &vec![0; good.len() - cut]].concat()),
            ("the end of the file", good[..cut].to_vec()),
        ];
        if cut >= last {
            // Garbage begins where the device stopped; frames before it are whole.
            shapes.push(("garbage", [&good[..cut], &garbage[cut..]].concat()));
            shapes.push(("half a sector", {
                let mut bytes = good.clone();
                bytes[cut..end.min(cut / 512 * 512 + 512)].fill(0);
                bytes
            }));
        }
        for (name, bytes) in shapes {
            let disk = disk.fork();
            disk.put(&path, bytes);
            let found = state(&disk, &truth).unwrap_or_else(|e| panic!("{name} at {cut}: {e}"));
            for (partition, told) in &truth {
                let entries = &found[partition];
                assert!(told.starts_with(entries), "{name} at {cut}: partition {partition}");
                let lost = told.len() - entries.len();
                assert!(lost <= kept, "{name} at {cut}: {lost} entries of {partition} are gone");
                if [1, 3, u16::MAX].contains(partition) {
                    assert_eq!(lost, 0, "another shard's are untouched");
                }
            }
        }
    }
}

/// One bit anywhere: the same entries, or (in the last frame of a journal, which nobody can tell
/// from a torn one) all but those of that frame, or a refusal that names a file of the directory.
#[test]
fn one_flipped_bit_never_gives_another_state() {
    let (disk, truth) = killed();
    let mut paths: Vec<PathBuf> =
        ["meta", "floor", "consumers"].map(|name| Path::new("/data").join(name)).into();
    paths.extend(files(&disk, "/data/journal"));
    paths.extend(files(&disk, "/data/snapshots"));
    for volume in files(&disk, "/data/archive") {
        paths.extend(files(&disk, volume.to_str().unwrap()));
    }
    let (mut refused, mut same) = (0, 0);
    for path in paths {
        let good = read(&disk, &path);
        let segment = path.extension().is_some_and(|extension| extension == "seg");
        let last_frame = if segment { frames(&good).last().copied() } else { None };
        let newest = [0, 1].map(|shard| newest(&disk, shard)).contains(&path);
        // Beyond the frames of a segment every eighth byte will do.
        let end = good.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        for byte in (0..good.len()).filter(|byte| *byte < end || byte % 8 == 3) {
            let disk = disk.fork();
            disk.flip(&path, byte, (byte % 8) as u8);
            match state(&disk, &truth) {
                Ok(found) if found == truth => same += 1,
                Ok(found) => {
                    let at = format!("{} byte {byte}", path.display());
                    assert!(newest && last_frame.is_some_and(|last| byte >= last), "{at}");
                    for (partition, entries) in &found {
                        assert!(truth[partition].starts_with(entries), "{at}");
                        assert!(truth[partition].len() - entries.len() <= 1, "{at}");
                    }
                }
                Err(sentence) => {
                    assert!(sentence.contains("/data"), "{sentence}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 1000 && same > 100, "{refused} refused, {same} without harm");
}

/// A bad frame with a whole one behind it was acknowledged.
#[test]
fn damage_in_the_middle_is_refused_with_file_and_offset() {
    let (disk, _) = killed();
    for shard in [0, 1] {
        let path = newest(&disk, shard);
        let good = read(&disk, &path);
        let starts = frames(&good);
        let middle = starts[starts.len() - 2];
        for (name, range) in [
            ("a flipped bit", middle + 50..middle + 51),
            ("a lost sector", { middle..middle + 60 }),
        ] {
            let disk = disk.fork();
            let mut bytes = good.clone();
            bytes[range].iter_mut().for_each(|byte| *byte = !*byte);
            disk.put(&path, bytes);
            match open(&disk).err() {
                Some(OpenError::Damaged { file, offset, .. }) => {
                    assert_eq!((file, offset), (path.clone(), middle as u64), "{name}");
                }
                other => panic!("{name}: {other:?}"),
            }
        }
    }
}

enum Expect {
    /// Everything is there all the same.
    Whole,
    /// A refusal whose sentence contains this.
    Refused(&'static str),
}

/// What a hand can do to a directory.
#[test]
fn what_a_hand_removed_swapped_or_brought_is_refused_or_does_no_harm() {
    let (disk, truth) = killed();
    let other = {
        let mut live = Live::new(99);
        live.commit(0, &[0, 0, 0, 2]);
        live.commit(1, &[1, 1, 3]);
        live.disk.kill()
    };
    let segments = files(&disk, "/data/journal");
    let of_shard_1: Vec<&PathBuf> =
        segments.iter().filter(|path| path.to_str().unwrap().contains("-s0001-")).collect();
    let volumes = files(&disk, "/data/archive");
    let snapshots = files(&disk, "/data/snapshots");
    let with = |change: &dyn Fn(&MemoryDisk)| {
        let disk = disk.fork();
        change(&disk);
        disk
    };
    let copy = |disk: &MemoryDisk, from: &Path, to: &str| disk.put(to, read(disk, from));
    let bring = |disk: &MemoryDisk, name: &str| disk.put(name, read(&other, Path::new(name)));
    let foreign_segment = files(&other, "/data/journal")[0].clone();
    let cases: Vec<(&str, MemoryDisk, Expect)> = vec![
        (
            "a segment in the middle is missing",
            with(&|disk| disk.remove(of_shard_1[1])),
            Expect::Refused("is missing"),
        ),
        (
            "the newest segment with frames is missing",
            with(&|disk| disk.remove(newest(disk, 1))),
            Expect::Refused("is missing"),
        ),
        (
            "two segments are swapped",
            with(&|disk| {
                let (a, b) = (read(disk, of_shard_1[0]), read(disk, of_shard_1[1]));
                disk.put(of_shard_1[0], b);
                disk.put(of_shard_1[1], a);
            }),
            Expect::Refused("does not belong here"),
        ),
        (
            "a segment is there twice",
            with(&|disk| copy(disk, of_shard_1[0], "/data/journal/copy of it.seg")),
            Expect::Refused("does not belong here"),
        ),
        (
            "a segment is copied to the next number",
            with(&|disk| {
                let next = of_shard_1.last().unwrap();
                disk.put(next, read(disk, of_shard_1[0]));
            }),
            Expect::Refused("does not belong here"),
        ),
        (
            "a segment of another directory",
            with(&|disk| {
                let name = of_shard_1[0];
                disk.put(name, read(&other, &foreign_segment));
            }),
            Expect::Refused("another data directory"),
        ),
        (
            "a segment is emptied",
            with(&|disk| disk.put(newest(disk, 1), Vec::new())),
            Expect::Refused("is empty"),
        ),
        (
            "a segment's header is gone",
            with(&|disk| {
                let path = newest(disk, 1);
                let mut bytes = read(disk, &path);
                bytes[..64].fill(0);
                disk.put(&path, bytes);
            }),
            Expect::Refused("header is gone"),
        ),
        ("the floor of another directory", with(&|d| bring(d, "/data/floor")), {
            Expect::Refused("another data directory")
        }),
        ("the consumers of another directory", with(&|d| bring(d, "/data/consumers")), {
            Expect::Refused("another data directory")
        }),
        ("the marker of another directory", with(&|d| bring(d, "/data/meta")), {
            Expect::Refused("another data directory")
        }),
        ("the marker is missing", with(&|disk| disk.remove("/data/meta")), {
            Expect::Refused("/data/meta")
        }),
        ("the floor is missing", with(&|disk| disk.remove("/data/floor")), {
            Expect::Refused("/data/floor")
        }),
        ("the consumers are missing", with(&|disk| disk.remove("/data/consumers")), {
            Expect::Refused("/data/consumers")
        }),
        ("the floor is empty", with(&|disk| disk.put("/data/floor", Vec::new())), {
            Expect::Refused("/data/floor")
        }),
        ("a volume is missing", with(&|d| d.remove(&volumes[0])), Expect::Refused("are missing")),
        ("the archive is missing", with(&|disk| disk.remove("/data/archive")), {
            Expect::Refused("are missing")
        }),
        (
            "a volume under another number",
            with(&|disk| {
                let marker = volumes[0].join("volume");
                disk.put(volumes[1].join("volume"), read(disk, &marker));
            }),
            Expect::Refused("does not belong here"),
        ),
        (
            "a volume without its marker",
            with(&|disk| disk.remove(volumes[0].join("volume"))),
            Expect::Refused("are missing"),
        ),
        (
            "something else in the archive",
            with(&|disk| disk.put("/data/archive/notes", vec![1])),
            { Expect::Refused("does not belong here") },
        ),
        ("a snapshot is missing", with(&|d| d.remove(&snapshots[0])), Expect::Whole),
        ("a snapshot is empty", with(&|d| d.put(&snapshots[0], Vec::new())), Expect::Whole),
        (
            "a snapshot under another name",
            with(&|disk| disk.put(&snapshots[0], read(disk, &snapshots[1]))),
            Expect::Whole,
        ),
        ("something else beside", with(&|disk| disk.put("/data/notes", vec![1])), Expect::Whole),
        (
            "files written aside and never renamed",
            with(&|disk| {
                disk.put("/data/floor.tmp", vec![1]);
                disk.put("/data/snapshots/p00001-00000000000000000009.tmp", vec![1]);
            }),
            Expect::Whole,
        ),
    ];
    for (name, disk, expect) in cases {
        match (state(&disk, &truth), expect) {
            (Ok(found), Expect::Whole) => assert_eq!(found, truth, "{name}"),
            (Err(sentence), Expect::Refused(words)) => {
                assert!(sentence.contains(words), "{name}: {sentence}");
                assert!(sentence.contains("/data"), "{name}: {sentence}");
            }
            (found, _) => panic!("{name}: {:?}", found.map(|_| ())),
        }
    }
}

/// The floor says that a snapshot goes further than the log: somebody put an old archive back.
#[test]
fn a_snapshot_ahead_of_the_log_is_refused() {
    let mut live = Live::new(5);
    for round in 1..=6 {
        live.commit(1, &[1, 1, 1]);
        live.stepped.side.round(Duration::from_secs(3 * round)).unwrap();
    }
    let disk = live.disk.kill();
    let volumes = files(&disk, "/data/archive");
    for volume in &volumes[1..] {
        disk.remove(volume);
    }
    let error = state(&disk, &live.truth).unwrap_err();
    assert!(error.contains("are missing"), "{error}");
}

#[test]
fn another_shard_count_and_a_clean_stop_give_the_same() {
    let (disk, truth) = killed();
    for shards in [1, 2, 3, 7] {
        let disk = disk.fork();
        let config = Config { shards, ..config() };
        let recovery = open_on(disk.storage(), config.clone(), Arc::new(Digest)).unwrap();
        let Stepped { log, journals, side } = recovery.start_stepped().unwrap();
        assert_eq!(journals.len(), usize::from(shards));
        for journal in journals {
            journal.close().unwrap();
        }
        side.finish(Duration::from_secs(1)).unwrap();
        drop(log);
        assert_eq!(state(&disk, &truth).unwrap(), truth);
    }
}

#[test]
fn a_directory_that_cannot_be_written_is_refused_by_its_name() {
    let (disk, _) = killed();
    disk.set_read_only(true);
    let recovery = open(&disk);
    let error = recovery.and_then(|recovery| recovery.start_stepped().map(|_| ())).unwrap_err();
    assert!(error.to_string().starts_with("cannot ") && error.to_string().contains("/data"));
}

#[test]
fn a_file_that_cannot_be_read_is_refused_by_its_name() {
    let (disk, truth) = killed();
    for part in ["meta", "floor", "consumers", ".seg", ".snap", "volume", "db"] {
        let disk = disk.fork();
        disk.inject(Fault::new(FaultKind::Read, part));
        let error = state(&disk, &truth).unwrap_err();
        assert!(error.contains("/data") && error.contains("injected"), "{part}: {error}");
    }
}

/// A consumer that registers after a trim begins at the oldest entry that is kept. Its cursor must
/// be there after a restart, too: the cursors that trimming relied on were those of others.
#[test]
fn a_consumer_that_came_after_a_trim_misses_nothing_after_a_restart() {
    let mut live = Live::new(3);
    let (first, second) =
        (ConsumerName::new(b"first").unwrap(), ConsumerName::new(b"second").unwrap());
    let partition = PartitionId::new(1);
    live.stepped.log.consumer_register(&first).unwrap();
    let mut now = Duration::ZERO;
    while live.stepped.log.first_kept(partition) == Lsn::FIRST {
        live.commit(1, &[1, 1, 1]);
        let last = live.stepped.log.committed(partition);
        live.stepped.log.consumer_ack(&first, partition, last).unwrap();
        now += Duration::from_secs(3);
        assert!(now < Duration::from_secs(3000), "nothing is trimmed");
        live.stepped.side.round(now).unwrap();
    }
    live.stepped.log.consumer_register(&second).unwrap();
    live.stepped.side.round(now).unwrap();
    let at = |stepped: &Stepped| {
        let cursors = stepped.log.consumer_cursors(&second).unwrap();
        cursors.iter().find(|cursor| cursor.partition == partition).unwrap().acked
    };
    let before = at(&live.stepped);
    assert_eq!(before.next(), live.stepped.log.first_kept(partition));
    let disk = live.disk.kill();
    let stepped = open(&disk).unwrap().start_stepped().unwrap();
    assert_eq!(at(&stepped), before);
}

/// Partitions with few entries never get a snapshot because of their size. They must not keep every
/// volume for ever.
#[test]
fn partitions_with_few_entries_do_not_hold_up_trimming() {
    let mut live = Live::new(4);
    let name = ConsumerName::new(b"writer").unwrap();
    live.stepped.log.consumer_register(&name).unwrap();
    live.commit(0, &[u16::MAX]);
    let mut now = Duration::ZERO;
    for _ in 0..200 {
        live.commit(1, &[1, 1, 1]);
        for partition in [PartitionId::new(1), PartitionId::CATALOG] {
            let last = live.stepped.log.committed(partition);
            live.stepped.log.consumer_ack(&name, partition, last).unwrap();
        }
        now += Duration::from_secs(3);
        live.stepped.side.round(now).unwrap();
    }
    assert!(live.stepped.log.first_kept(PartitionId::new(1)) > Lsn::new(300));
    assert!(files(&live.disk, "/data/archive").len() < 5, "volumes are given back");
}
