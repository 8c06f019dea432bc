//! Golden files: the bytes of version 1 of every kind of file, kept in `fixtures/v1`. They are read
//! with the present code, and made anew byte for byte. `STOCKADE_WRITE_FIXTURES=1` writes them;
//! a version that was released is never written again.

#![allow(clippy::unwrap_used, reason = "tests")]

mod samples;

use crate::api::Config;
use crate::archive::volume::{encode_batch, marker_bytes};
use crate::consumers::Consumers;
use crate::directory;
use crate::disk::Disk;
use crate::error::OpenError;
use crate::floor::{Floor, PartitionFloor};
use crate::journal::frame::{FrameHeader, SegmentId, padded, salt};
use crate::recovery::open_on;
use crate::runs::Run;
use crate::snapshot::{self, Image};
use crate::testing::MemoryDisk;
use crate::verify::NoFold;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stockade_protocol::text::ConsumerName;
use stockade_protocol::{Entry, Lsn, PartitionId};

const DIRECTORY: u64 = 0x1122_3344_5566_7788;
const EPOCH: u64 = 3;
const SEGMENT: SegmentId = SegmentId { epoch: EPOCH, shard: 0, number: 1 };
const USERS: PartitionId = PartitionId::new(1);
const CATALOG: PartitionId = PartitionId::CATALOG;

fn encoded(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::new();
    entries.iter().for_each(|entry| entry.encode(&mut bytes));
    bytes
}

fn segment() -> Vec<u8> {
    let (users, catalog) = (samples::user_entries(), samples::catalog_entries());
    let mut bytes = SEGMENT.header(DIRECTORY);
    let mut previous = 0;
    let bodies = [
        encoded(&[&users[4..6], &catalog[2..4]].concat()),
        encoded(&users[6..]),
        encoded(&catalog[4..]),
    ];
    for (body, counter) in bodies.iter().zip(1..) {
        let header = FrameHeader {
            shard: 0,
            epoch: EPOCH,
            counter,
            body_len: body.len() as u32,
            end: false,
            deferred: false,
            previous,
            body_crc: crc32c::crc32c(body),
        };
        previous = header.encode(salt(DIRECTORY), &mut bytes);
        bytes.extend_from_slice(body);
        bytes.resize(padded(bytes.len() as u64) as usize, 0);
    }
    bytes.resize(4096, 0);
    bytes
}

/// The last frame's second half is not there.
fn torn_segment() -> Vec<u8> {
    let mut bytes = segment();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[end - 60..].fill(0);
    bytes
}

fn floor() -> Floor {
    let of = |snapshot, archived| PartitionFloor {
        first_kept: Lsn::FIRST,
        archived: Lsn::new(archived),
        snapshot: Lsn::new(snapshot),
        acked: Lsn::NONE,
    };
    let partitions = [(USERS, of(2, 4)), (CATALOG, of(1, 2))].into();
    Floor { epoch: EPOCH, volume_first: 1, partitions }
}

fn consumers() -> Consumers {
    let mut consumers = Consumers::default();
    for (name, lsn) in [("audit", 0), ("writer", 3)] {
        let name = ConsumerName::new(name.as_bytes()).unwrap();
        let cursors = || [(USERS, Lsn::new(lsn)), (CATALOG, Lsn::new(1))].into();
        consumers.register(&name, cursors).unwrap();
    }
    consumers
}

/// The archive in a form of its own: what sled writes is sled's. Key length u16, value length u32,
/// key, value.
fn archive() -> Vec<u8> {
    let run = |entries: &[Entry]| Run {
        first: entries[0].lsn,
        last: entries[entries.len() - 1].lsn,
        bytes: encoded(entries),
    };
    let (users, catalog) = (samples::user_entries(), samples::catalog_entries());
    let mut bytes = Vec::new();
    for (partition, run) in [(USERS, run(&users[..4])), (CATALOG, run(&catalog[..2]))] {
        for (key, value) in encode_batch(partition, &run) {
            bytes.extend_from_slice(&(key.len() as u16).to_le_bytes());
            bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
            bytes.extend_from_slice(&key);
            bytes.extend_from_slice(&value);
        }
    }
    bytes
}

fn snapshot_name(partition: PartitionId, lsn: u64) -> String {
    let path = snapshot::path(Path::new(""), partition, Lsn::new(lsn));
    path.to_str().unwrap().to_owned()
}

/// Every file by its name.
fn files() -> Vec<(String, Vec<u8>)> {
    let users = Image::Partition(samples::partition_image());
    let catalog = Image::Catalog(samples::catalog_image());
    vec![
        ("meta".into(), directory::encode(DIRECTORY, 4)),
        ("floor".into(), floor().encode(DIRECTORY)),
        ("consumers".into(), consumers().encode(DIRECTORY)),
        (SEGMENT.file_name(), segment()),
        ("torn.seg".into(), torn_segment()),
        ("volume".into(), marker_bytes(DIRECTORY, 1)),
        ("archive.kv".into(), archive()),
        (snapshot_name(USERS, 2), snapshot::encode(&users, DIRECTORY).unwrap()),
        (snapshot_name(CATALOG, 1), snapshot::encode(&catalog, DIRECTORY).unwrap()),
    ]
}

fn stored(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/v1").join(name)
}

fn read(name: &str) -> Vec<u8> {
    let path = stored(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A data directory made of the stored files.
fn directory_of_fixtures(segment: &str) -> MemoryDisk {
    let disk = MemoryDisk::new(1);
    for dir in ["journal", "archive/v0000000001", "snapshots"] {
        disk.create_dir_all(&Path::new("/data").join(dir)).unwrap();
    }
    for name in ["meta", "floor", "consumers"] {
        disk.put(Path::new("/data").join(name), read(name));
    }
    disk.put(Path::new("/data/journal").join(SEGMENT.file_name()), read(segment));
    for name in [snapshot_name(USERS, 2), snapshot_name(CATALOG, 1)] {
        disk.put(Path::new("/data/snapshots").join(&name), read(&name));
    }
    let volume = Path::new("/data/archive/v0000000001");
    disk.put(volume.join("volume"), read("volume"));
    let table = disk.storage().tables.open(volume).unwrap();
    let bytes = read("archive.kv");
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let key_len = usize::from(u16::from_le_bytes([rest[0], rest[1]]));
        let value_len = u32::from_le_bytes(rest[2..6].try_into().unwrap()) as usize;
        let (key, value) = rest[6..6 + key_len + value_len].split_at(key_len);
        table.put(key, value).unwrap();
        rest = &rest[6 + key_len + value_len..];
    }
    table.sync().unwrap();
    disk
}

fn config() -> Config {
    let mut config = Config::new("/data", 2, 4);
    config.segment_bytes = 4096;
    config
}

#[test]
fn files_of_version_1_are_made_byte_for_byte() {
    if std::env::var("STOCKADE_WRITE_FIXTURES").is_ok() {
        std::fs::create_dir_all(stored("")).unwrap();
        for (name, bytes) in files() {
            std::fs::write(stored(&name), bytes).unwrap();
        }
    }
    for (name, bytes) in files() {
        assert!(read(&name) == bytes, "{name} is not made as it was");
    }
}

#[test]
fn files_of_version_1_are_read() {
    for (segment, catalog_last) in [(SEGMENT.file_name(), 6), ("torn.seg".into(), 4)] {
        let disk = directory_of_fixtures(&segment);
        let mut recovery = open_on(disk.storage(), config(), Arc::new(NoFold)).unwrap();
        assert_eq!(recovery.warnings().len(), usize::from(catalog_last == 4));
        assert_eq!(recovery.catalog(), samples::catalog_image());
        assert_eq!(recovery.take_images()[&USERS], samples::partition_image());
        let replayed = |partition| {
            let mut entries = Vec::new();
            let mut see = |entry| {
                entries.push(entry);
                Ok(())
            };
            recovery.replay(partition, &mut see).unwrap();
            entries
        };
        assert_eq!(replayed(USERS), samples::user_entries()[2..]);
        assert_eq!(replayed(CATALOG), samples::catalog_entries()[1..catalog_last]);
        let stepped = recovery.start_stepped().unwrap();
        assert_eq!(stepped.log.epoch(), EPOCH + 1);
        let names: Vec<ConsumerName> = stepped.log.consumers();
        assert_eq!(names.iter().map(ConsumerName::as_str).collect::<Vec<_>>(), ["audit", "writer"]);
        let cursors = stepped.log.consumer_cursors(&names[1]).unwrap();
        assert_eq!(cursors.iter().find(|c| c.partition == USERS).unwrap().acked, Lsn::new(3));
    }
}

type Change<'a> = &'a dyn Fn(&mut Vec<u8>);

/// A later release's file is told from damage: one sentence with file and version.
#[test]
fn a_file_of_an_unknown_version_is_refused_by_its_name() {
    let sealed = |bytes: &mut Vec<u8>| {
        bytes[12..16].copy_from_slice(&2u32.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[12..]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    };
    let segment = |bytes: &mut Vec<u8>| {
        bytes[8..12].copy_from_slice(&2u32.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..40]);
        bytes[40..44].copy_from_slice(&crc.to_le_bytes());
    };
    let snapshot = format!("snapshots/{}", snapshot_name(USERS, 2));
    let journal = format!("journal/{}", SEGMENT.file_name());
    let cases: [(&str, Change<'_>); 6] = [
        ("meta", &sealed),
        ("floor", &sealed),
        ("consumers", &sealed),
        ("archive/v0000000001/volume", &sealed),
        (&snapshot, &sealed),
        (&journal, &segment),
    ];
    for (name, change) in cases {
        let disk = directory_of_fixtures(&SEGMENT.file_name());
        let path = Path::new("/data").join(name);
        let mut bytes = disk.read(&path).unwrap();
        change(&mut bytes);
        disk.put(&path, bytes);
        let error = open_on(disk.storage(), config(), Arc::new(NoFold)).err().unwrap();
        let sentence = error.to_string();
        match error {
            OpenError::Version { file, found: 2, known: 1 } => assert_eq!(file, path),
            other => panic!("{name}: {other}"),
        }
        assert!(sentence.contains(name) && sentence.contains("version 2"), "{sentence}");
    }
}
