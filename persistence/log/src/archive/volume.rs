//! A volume: one sled directory with batches of entries. Volumes roll at a size and are deleted
//! whole, because sled gives no space back for removed keys.
//!
//! Key: partition u16, first LSN u64, part u16, all big-endian so that byte order is LSN order.
//! Value: 40-byte header, then a part of the batch (see `FORMAT.md`). A key is written once and
//! never again.

use crate::error::OpenError;
use crate::files::{damaged, sync_tree};
use crate::runs::Run;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use stockade_protocol::le::{Reader, Writer};
use stockade_protocol::{Lsn, PartitionId};

/// Largest value but for its header: sled moves larger leaves to files that it never syncs.
pub const VALUE_BYTES_MAX: usize = 128 << 10;
const HEADER_BYTES: usize = 40;
const MAGIC: u32 = 0x5641_5453; // "STAV"

/// An open volume.
#[derive(Debug)]
pub struct Volume {
    /// Counts up from 1.
    pub number: u64,
    /// Its directory.
    pub path: PathBuf,
    db: sled::Db,
    /// First and last LSN by partition.
    pub spans: BTreeMap<PartitionId, (Lsn, Lsn)>,
    /// Bytes of values put in this run (0 for one that was opened).
    pub bytes: u64,
}

/// The name of a volume's directory.
pub fn directory_name(number: u64) -> String {
    format!("v{number:010}")
}

impl Volume {
    /// Opens or makes a volume and finds what it holds. Only whole, contiguous batches count.
    ///
    /// # Errors
    /// sled refuses, or a batch is damaged.
    pub fn open(archive: &Path, number: u64) -> Result<Self, OpenError> {
        let path = archive.join(directory_name(number));
        let db = open_sled(&path)?;
        let mut volume = Self { number, path, db, spans: BTreeMap::new(), bytes: 0 };
        volume.find_spans()?;
        volume.bytes = volume.db.size_on_disk().unwrap_or(0) / 2;
        Ok(volume)
    }

    fn find_spans(&mut self) -> Result<(), OpenError> {
        let mut probe = 0u32;
        while probe <= u32::from(u16::MAX) {
            let start = key(PartitionId::new(probe as u16), Lsn::NONE, 0);
            let Some(found) = self.db.range(start.to_vec()..).next() else { break };
            let (found, _) = found.map_err(|error| self.error(&error))?;
            let (partition, first, _) = parse_key(&found).ok_or_else(|| self.bad("a key"))?;
            let end = key(partition, Lsn::new(u64::MAX), u16::MAX);
            let last = self.db.range(start.to_vec()..=end.to_vec()).next_back();
            let last = last.ok_or_else(|| self.bad("an index"))?;
            let (last_key, _) = last.map_err(|error| self.error(&error))?;
            let (_, last_first, _) = parse_key(&last_key).ok_or_else(|| self.bad("a key"))?;
            let run = self.batch(partition, last_first)?;
            // A last batch whose parts are not all there was never synced: it does not count.
            let last = run.map_or(Lsn::new(last_first.get() - 1), |run| run.last);
            if last >= first {
                self.spans.insert(partition, (first, last));
            }
            probe = u32::from(partition.get()) + 1;
        }
        Ok(())
    }

    /// Puts a batch. Durable after [`Self::sync`].
    ///
    /// # Errors
    /// sled refuses.
    pub fn put(&mut self, partition: PartitionId, run: &Run) -> Result<(), OpenError> {
        let parts = run.bytes.len().div_ceil(VALUE_BYTES_MAX).max(1);
        for (part, bytes) in run.bytes.chunks(VALUE_BYTES_MAX).enumerate() {
            let mut value = Vec::with_capacity(HEADER_BYTES + bytes.len());
            value.put_u32(MAGIC);
            value.put_u16(1);
            value.put_u16(parts as u16);
            value.put_u64(run.first.get());
            value.put_u64(run.last.get());
            value.put_u32(run.bytes.len() as u32);
            value.put_u32(crc32c::crc32c(bytes));
            let crc = crc32c::crc32c(&value);
            value.put_u32(crc);
            value.put_u32(0);
            value.extend_from_slice(bytes);
            let key = key(partition, run.first, part as u16);
            self.db.insert(key, value).map_err(|error| self.error(&error))?;
        }
        let span = self.spans.entry(partition).or_insert((run.first, run.last));
        span.1 = run.last;
        self.bytes += run.bytes.len() as u64;
        Ok(())
    }

    /// Makes everything that was put durable: sled's flush is no fsync, so its files are synced
    /// here.
    ///
    /// # Errors
    /// sled or the operating system refused.
    pub fn sync(&self) -> io::Result<()> {
        self.db.flush().map_err(|error| io::Error::other(error.to_string()))?;
        sync_tree(&self.path)
    }

    /// The batch that holds `lsn`, if this volume has it.
    ///
    /// # Errors
    /// Damage.
    pub fn find(&self, partition: PartitionId, lsn: Lsn) -> Result<Option<Run>, OpenError> {
        match self.spans.get(&partition) {
            Some((first, last)) if (*first..=*last).contains(&lsn) => {}
            _ => return Ok(None),
        }
        let bounds = key(partition, Lsn::NONE, 0).to_vec()..=key(partition, lsn, u16::MAX).to_vec();
        let Some(found) = self.db.range(bounds).next_back() else {
            return Err(self.bad("a batch is missing"));
        };
        let (found, _) = found.map_err(|error| self.error(&error))?;
        let (_, first, _) = parse_key(&found).ok_or_else(|| self.bad("a key"))?;
        match self.batch(partition, first)? {
            Some(run) if run.last >= lsn => Ok(Some(run)),
            _ => Err(self.bad(format!("partition {partition} lsn {lsn} is missing"))),
        }
    }

    /// The batch that begins at `first`; `None` if a part of it is missing.
    fn batch(&self, partition: PartitionId, first: Lsn) -> Result<Option<Run>, OpenError> {
        let mut bytes = Vec::new();
        let (mut part, mut parts, mut last, mut len) = (0, 1, first, 0);
        while part < parts {
            let value = self.db.get(key(partition, first, part)).map_err(|e| self.error(&e))?;
            let Some(value) = value else { return Ok(None) };
            let header = ValueHeader::parse(&value)
                .filter(|header| header.first == first && header.last >= first)
                .ok_or_else(|| {
                    self.bad(format!("partition {partition} lsn {first}: a wrong checksum"))
                })?;
            (parts, last, len) = (header.parts, header.last, header.len);
            bytes.extend_from_slice(&value[HEADER_BYTES..]);
            part += 1;
        }
        if bytes.len() != len as usize {
            return Err(self.bad(format!("partition {partition} lsn {first}: a wrong length")));
        }
        Ok(Some(Run { first, last, bytes }))
    }

    fn bad(&self, what: impl Into<String>) -> OpenError {
        damaged(&self.path, 0, what)
    }

    fn error(&self, error: &sled::Error) -> OpenError {
        OpenError::Archive { path: self.path.clone(), what: error.to_string() }
    }
}

/// Opens sled with settings that fit: large segments so that values stay out of blob files, no
/// background flusher, a small cache. sled panics on some kinds of damage; that becomes an error,
/// or, in builds whose panics abort, at least one plain sentence.
fn open_sled(path: &Path) -> Result<sled::Db, OpenError> {
    let config = sled::Config::new()
        .path(path)
        .segment_size(16 << 20)
        .cache_capacity(16 << 20)
        .flush_every_ms(None)
        .mode(sled::Mode::LowSpace);
    let opening = std::thread::current().id();
    let previous = std::sync::Arc::new(std::panic::take_hook());
    let (others, named) = (previous.clone(), path.to_path_buf());
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().id() != opening {
            return others(info);
        }
        eprintln!("the archive {} is damaged; restore a backup", named.display());
    }));
    let opened = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| config.open()));
    std::panic::set_hook(Box::new(move |info| previous(info)));
    let fail = |what: String| OpenError::Archive { path: path.into(), what };
    match opened {
        Ok(Ok(db)) => Ok(db),
        Ok(Err(error)) => Err(fail(error.to_string())),
        Err(_) => Err(fail("it is damaged; restore the directory from a backup".into())),
    }
}

struct ValueHeader {
    parts: u16,
    first: Lsn,
    last: Lsn,
    len: u32,
}

impl ValueHeader {
    fn parse(value: &[u8]) -> Option<Self> {
        let (head, bytes) = value.split_at_checked(HEADER_BYTES)?;
        let mut r = Reader::new(head);
        let (magic, version, parts) = (r.u32().ok()?, r.u16().ok()?, r.u16().ok()?);
        let (first, last) = (Lsn::new(r.u64().ok()?), Lsn::new(r.u64().ok()?));
        let (len, crc, head_crc) = (r.u32().ok()?, r.u32().ok()?, r.u32().ok()?);
        let sound = magic == MAGIC
            && version == 1
            && parts > 0
            && head_crc == crc32c::crc32c(&head[..32])
            && crc == crc32c::crc32c(bytes);
        sound.then_some(Self { parts, first, last, len })
    }
}

fn key(partition: PartitionId, first: Lsn, part: u16) -> [u8; 12] {
    let mut key = [0; 12];
    key[..2].copy_from_slice(&partition.get().to_be_bytes());
    key[2..10].copy_from_slice(&first.get().to_be_bytes());
    key[10..].copy_from_slice(&part.to_be_bytes());
    key
}

fn parse_key(key: &[u8]) -> Option<(PartitionId, Lsn, u16)> {
    let key: [u8; 12] = key.try_into().ok()?;
    let partition = PartitionId::new(u16::from_be_bytes([key[0], key[1]]));
    let first = u64::from_be_bytes(*key[2..].first_chunk::<8>()?);
    Some((partition, Lsn::new(first), u16::from_be_bytes([key[10], key[11]])))
}
