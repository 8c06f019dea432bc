//! What the tests share: entries that carry a mark, rules whose state tells which entries were
//! folded, and the whole content of a directory as one value.

#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use stockade_log::{Config, Fold, Log, OpenError, ReadOutcome, Recovery};
use stockade_protocol::entry::{Entry, Event};
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::image::{CatalogImage, PartitionImage};
use stockade_protocol::{Lsn, PartitionId, RequestId, SaleId, UserId};

/// A state that is a digest of every entry in it, in order.
pub struct Digest;

pub fn digest(before: u64, entry: &Entry) -> u64 {
    let mut bytes = before.to_le_bytes().to_vec();
    entry.encode(&mut bytes);
    u64::from(crc32c::crc32c(&bytes)) << 20 | entry.lsn.get() & 0xF_FFFF
}

impl Fold for Digest {
    fn partition(
        &self,
        _: PartitionId,
        mut image: PartitionImage,
        entries: &[Entry],
    ) -> Result<PartitionImage, String> {
        for entry in entries {
            assert_eq!(entry.lsn, image.lsn.next(), "folded in order, once");
            image.lsn = entry.lsn;
            image.at = entry.at;
            image.order_number_last = digest(image.order_number_last, entry);
        }
        Ok(image)
    }

    fn catalog(&self, mut image: CatalogImage, entries: &[Entry]) -> Result<CatalogImage, String> {
        for entry in entries {
            assert_eq!(entry.lsn, image.lsn.next(), "folded in order, once");
            image.lsn = entry.lsn;
            image.at = entry.at;
        }
        Ok(image)
    }
}

/// A small log in memory.
pub fn config(shards: u16, partitions: u16) -> Config {
    let mut config = Config::new("/data", shards, partitions);
    config.segment_bytes = 4096;
    config.keep_after_ack = std::time::Duration::ZERO;
    config
}

/// An entry with a mark, so that two tries at the same place differ; a long one if the mark is odd.
pub fn entry(partition: u16, lsn: u64, mark: u64) -> Entry {
    let text = format!("{mark}-{}", "x".repeat(if mark % 2 == 1 { 40 } else { 3 }));
    Entry {
        partition: PartitionId::new(partition),
        lsn: Lsn::new(lsn),
        at: TimestampMs::new(1000 + lsn),
        event: Event::Withdrawn {
            sale: SaleId::new(1).unwrap(),
            user: UserId::new(lsn).unwrap(),
            request: RequestId::parse(text.as_bytes()).unwrap(),
        },
    }
}

pub fn encode<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Vec<u8> {
    let mut bytes = Vec::new();
    entries.into_iter().for_each(|entry| entry.encode(&mut bytes));
    bytes
}

pub fn decode(mut bytes: &[u8]) -> Vec<Entry> {
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let (entry, taken) = Entry::decode(bytes).unwrap();
        entries.push(entry);
        bytes = &bytes[taken..];
    }
    entries
}

/// What a start would hand out of a partition: where its snapshot ends, the snapshot's digest, and
/// the entries behind it.
pub type Content = (u64, u64, Vec<Entry>);

/// All partitions with content.
pub fn contents(recovery: &mut Recovery) -> Result<BTreeMap<u16, Content>, OpenError> {
    let catalog = recovery.catalog();
    let images = recovery.take_images();
    let partitions = recovery.partition_count();
    let mut found = BTreeMap::new();
    for partition in (0..partitions).map(PartitionId::new).chain([PartitionId::CATALOG]) {
        let (lsn, digest) = match images.get(&partition) {
            Some(image) => (image.lsn.get(), image.order_number_last),
            None if partition == PartitionId::CATALOG => (catalog.lsn.get(), 0),
            None => (0, 0),
        };
        let mut entries = Vec::new();
        recovery.replay(partition, &mut |entry| {
            entries.push(entry);
            Ok(())
        })?;
        if lsn > 0 || !entries.is_empty() {
            found.insert(partition.get(), (lsn, digest, entries));
        }
    }
    Ok(found)
}

/// The feed of a partition from its oldest entry on, read in small pieces.
pub fn feed(log: &Log, partition: u16) -> Vec<Entry> {
    let partition = PartitionId::new(partition);
    let (mut entries, mut next) = (Vec::new(), log.first_kept(partition));
    loop {
        match log.read(partition, next, 300).unwrap() {
            ReadOutcome::Entries { bytes, last } => {
                entries.extend(decode(&bytes));
                next = last.next();
            }
            ReadOutcome::End => return entries,
            ReadOutcome::Gap { first_kept } => panic!("a gap up to {first_kept} behind the front"),
        }
    }
}
