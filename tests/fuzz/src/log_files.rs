//! Any change to a file of a stopped data directory: the start refuses, or gives the entries that
//! were committed: all of them, or all but a torn tail. Never other ones, never a panic. Checksums
//! can be made right again behind a change, so that the decoders behind them are reached too; then
//! only the absence of panics (and of endless work) is asked.
//!
//! Input: one byte chooses the file, one whether checksums are mended, then changes of four bytes:
//! place (u16), what (u8), value (u8).

use crate::commands::{self, Log, PARTITIONS};
use crate::seeds;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use stockade_core::fold::{fold_catalog, fold_partition};
use stockade_log::testing::MemoryDisk;
use stockade_log::{Config, Disk, Fold, open_on};
use stockade_protocol::image::{CatalogImage, PartitionImage};
use stockade_protocol::{Entry, PartitionId};

const DIR: &str = "/data";
const SEALED_HEADER_BYTES: usize = 32;
const SEGMENT_HEADER_BYTES: usize = 64;
const FRAME_HEADER_BYTES: usize = 48;

struct Rules;

impl Fold for Rules {
    fn partition(
        &self,
        partition: PartitionId,
        image: PartitionImage,
        entries: &[Entry],
    ) -> Result<PartitionImage, String> {
        fold_partition(partition, image, entries, &[]).map_err(|error| error.to_string())
    }

    fn catalog(&self, image: CatalogImage, entries: &[Entry]) -> Result<CatalogImage, String> {
        fold_catalog(image, entries).map_err(|error| error.to_string())
    }
}

/// A directory with everything in it: archive, snapshots, floor, consumers, journals with a tail.
struct Made {
    disk: MemoryDisk,
    files: Vec<PathBuf>,
    log: Log,
}

fn config() -> Config {
    let mut config = Config::new(DIR, 1, PARTITIONS);
    (config.segment_bytes, config.volume_bytes, config.snapshot_bytes) = (8192, 4096, 64);
    config
}

fn made() -> &'static Made {
    static MADE: OnceLock<Made> = OnceLock::new();
    MADE.get_or_init(|| {
        let disk = MemoryDisk::new(1);
        let log = commands::run(&seeds::story());
        let recovery = open_on(disk.storage(), config(), Arc::new(Rules)).expect("an empty one");
        let mut stepped = recovery.start_stepped().expect("an empty one starts");
        let consumer = stockade_protocol::text::ConsumerName::new(b"writer").expect("a name");
        stepped.log.consumer_register(&consumer).expect("room for one");
        let mut commit = |entries: &[Entry]| {
            let mut batch = Vec::new();
            entries.iter().for_each(|entry| entry.encode(&mut batch));
            stepped.journals[0].commit(&batch).expect("the disk is well");
        };
        // Half of each partition goes into archive and snapshots; the rest stays in the journal.
        let half = |entries: &[Entry]| entries.len() / 2;
        log.values().for_each(|entries| commit(&entries[..half(entries)]));
        for second in 0..8 {
            stepped.side.round(Duration::from_secs(3 * second)).expect("the disk is well");
        }
        for entries in log.values() {
            entries[half(entries)..].chunks(4).for_each(&mut commit);
        }
        let disk = disk.kill();
        let mut files = Vec::new();
        list(&disk, Path::new(DIR), &mut files);
        assert!(files.len() > 6, "{files:?}");
        Made { disk, files, log }
    })
}

fn list(disk: &MemoryDisk, dir: &Path, files: &mut Vec<PathBuf>) {
    for path in disk.list(dir).expect("a directory") {
        match disk.read(&path) {
            Ok(_) => files.push(path),
            Err(_) => list(disk, &path, files),
        }
    }
}

/// Changes of one file.
pub fn body(data: &[u8]) {
    let [file, mend, changes @ ..] = data else { return };
    let made = made();
    let path = &made.files[usize::from(*file) % made.files.len()];
    let disk = made.disk.fork();
    let before = disk.read(path).expect("it is there");
    let mut bytes = before.clone();
    for change in changes.chunks_exact(4) {
        apply(change, &mut bytes);
    }
    let mended = mend % 2 == 1;
    if mended {
        mend_checksums(&mut bytes);
    }
    disk.put(path, bytes.clone());

    let Ok(recovery) = open_on(disk.storage(), config(), Arc::new(Rules)) else {
        assert_ne!(bytes, before, "a sound directory opens");
        return;
    };
    let mut found = Log::new();
    let users = (0..PARTITIONS).map(PartitionId::new);
    for partition in users.chain([PartitionId::CATALOG]) {
        let entries = found.entry(partition).or_default();
        let replayed = recovery.replay(partition, &mut |entry| {
            entries.push(entry);
            Ok(())
        });
        if replayed.is_err() {
            return;
        }
    }
    if mended && bytes != before {
        return;
    }
    for (partition, entries) in &found {
        // A snapshot may stand for the first entries.
        let Some(first) = entries.first() else { continue };
        let real = made.log.get(partition).map_or(&[][..], Vec::as_slice);
        let from = real.iter().position(|entry| entry.lsn == first.lsn);
        let real = &real[from.expect("an entry that was never committed")..];
        assert!(entries.len() <= real.len(), "entries that were never committed");
        assert_eq!(entries[..], real[..entries.len()], "other entries than were committed");
    }
}

fn apply(change: &[u8], bytes: &mut Vec<u8>) {
    if bytes.is_empty() {
        return;
    }
    let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % bytes.len();
    match change[2] % 5 {
        0 => bytes[at] ^= change[3],
        1 => bytes[at] = change[3],
        2 => bytes.truncate(at),
        3 => {
            let end = (at + usize::from(change[3])).min(bytes.len());
            bytes[at..end].fill(0);
        }
        _ => bytes.extend(std::iter::repeat_n(change[3], at % 64)),
    }
}

/// Makes the checksums of a sealed file, or of a segment's frames, right again.
fn mend_checksums(bytes: &mut [u8]) {
    let put = |bytes: &mut [u8], at: usize, crc: u32| {
        bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    };
    if bytes.starts_with(b"STKJRNL\0") && bytes.len() >= SEGMENT_HEADER_BYTES {
        let crc = crc32c::crc32c(&bytes[..40]);
        put(bytes, 40, crc);
        let directory = crc32c::crc32c(&bytes[32..40]);
        let mut at = SEGMENT_HEADER_BYTES;
        let mut previous = 0u32;
        while bytes.get(at..at + 4) == Some(b"SFRM") && at + FRAME_HEADER_BYTES <= bytes.len() {
            let length: [u8; 4] = bytes[at + 24..at + 28].try_into().expect("four bytes");
            let length = u32::from_le_bytes(length) as usize;
            let start = at + FRAME_HEADER_BYTES;
            let Some(body) = bytes.get(start..start.saturating_add(length)) else { return };
            let crc = crc32c::crc32c(body);
            put(bytes, at + 36, crc);
            if at == SEGMENT_HEADER_BYTES {
                let first: [u8; 4] = bytes[at + 32..at + 36].try_into().expect("four bytes");
                previous = u32::from_le_bytes(first);
            }
            put(bytes, at + 32, previous);
            let crc = crc32c::crc32c_append(directory, &bytes[at..at + 40]);
            put(bytes, at + 40, crc);
            previous = crc;
            at = (start + length).div_ceil(8) * 8;
        }
    } else if bytes.starts_with(b"STK") && bytes.len() >= SEALED_HEADER_BYTES {
        let length = (bytes.len() - SEALED_HEADER_BYTES) as u64;
        bytes[24..32].copy_from_slice(&length.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[12..]);
        put(bytes, 8, crc);
    }
}

/// How many files there are to change.
pub fn file_count() -> usize {
    made().files.len()
}
