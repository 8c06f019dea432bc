//! A volume: one table with batches of entries. Volumes roll at a size and are deleted whole,
//! because sled gives no space back for removed keys.
//!
//! Key: partition u16, first LSN u64, part u16, all big-endian so that byte order is LSN order.
//! Value: 40-byte header, then a part of the batch (see `FORMAT.md`). A key is written once and
//! never again.
//!
//! A volume counts only with its marker, which is written once the table itself is durable. What a
//! table holds is never trusted beyond the floor: sled may lose what was not synced, and more, and
//! does not say so. After a failed put or sync, and where it holds something beyond the floor when
//! it is opened, a volume takes nothing more; all that is put again stands in newer ones, which
//! count before it.

use super::table::{Pair, Table};
use crate::directory::Directory;
use crate::error::OpenError;
use crate::files::{damaged, failed, read_optional, replace};
use crate::runs::Run;
use crate::sealed::{HEADER_BYTES as SEALED_BYTES, Kind, seal, unseal};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use stockade_protocol::le::{Reader, Writer};
use stockade_protocol::{Lsn, PartitionId};

/// Largest value but for its header: sled moves larger leaves to files that it never syncs.
pub const VALUE_BYTES_MAX: usize = 128 << 10;
const HEADER_BYTES: usize = 40;
const MAGIC: u32 = 0x5641_5453; // "STAV"
const VERSION: u16 = 1;
const KIND: Kind = Kind { magic: b"STKVOLM\0", version: 1 };

/// An open volume.
#[derive(Debug)]
pub struct Volume {
    /// Counts up from 1.
    pub number: u64,
    /// Its directory.
    pub path: PathBuf,
    table: Box<dyn Table>,
    /// First and last LSN by partition, of what counts.
    pub spans: BTreeMap<PartitionId, (Lsn, Lsn)>,
    /// Bytes of values, about.
    pub bytes: u64,
    /// Put since the last sync.
    pub dirty: bool,
    /// It takes nothing more.
    pub closed: bool,
}

/// The name of a volume's directory.
pub fn directory_name(number: u64) -> String {
    format!("v{number:010}")
}

impl Volume {
    /// Makes a volume: table, then marker, then name, all durable.
    ///
    /// # Errors
    /// The device refused; what is left has no marker and does not count.
    pub fn create(directory: &Directory, number: u64) -> Result<Self, OpenError> {
        let (archive, disk) = (directory.archive(), directory.disk());
        let path = archive.join(directory_name(number));
        disk.remove_dir_all(&path).map_err(failed("delete", &path))?;
        let table = open_table(directory, &path)?;
        table.sync().map_err(failed("sync", &path))?;
        let marker = path.join("volume");
        let sealed = marker_bytes(directory.id, number);
        replace(disk, &marker, &sealed).map_err(failed("write", &marker))?;
        disk.sync_dir(&archive).map_err(failed("sync", &archive))?;
        Ok(Self::new(number, path, table))
    }

    fn new(number: u64, path: PathBuf, table: Box<dyn Table>) -> Self {
        let spans = BTreeMap::new();
        Self { number, path, table, spans, bytes: 0, dirty: false, closed: false }
    }

    /// Opens a volume and finds what it holds: of each partition the first run of whole, contiguous
    /// batches up to the floor. `None`: it was being made.
    ///
    /// # Errors
    /// The table refuses, a batch is damaged, or the volume is not of this directory.
    pub fn open(
        directory: &Directory,
        number: u64,
        floor: &dyn Fn(PartitionId) -> Lsn,
    ) -> Result<Option<Self>, OpenError> {
        let path = directory.archive().join(directory_name(number));
        let marker = path.join("volume");
        let sealed = read_optional(directory.disk(), &marker).map_err(failed("read", &marker))?;
        let Some(sealed) = sealed else { return Ok(None) };
        let found = read_marker(&marker, directory.id, &sealed)?;
        if found != number {
            let what = format!("it was made as {}", directory_name(found));
            return Err(OpenError::Foreign { file: path, what });
        }
        let mut volume = Self::new(number, path.clone(), open_table(directory, &path)?);
        volume.find_spans(floor)?;
        volume.bytes = volume.table.bytes() / 2;
        Ok(Some(volume))
    }

    fn find_spans(&mut self, floor: &dyn Fn(PartitionId) -> Lsn) -> Result<(), OpenError> {
        let mut from = Vec::new();
        while let Some((key, value)) = self.next(&from)? {
            // The key just behind.
            from.clone_from(&key);
            from.push(0);
            let (partition, first, part) = parse_key(&key).ok_or_else(|| self.bad("a key"))?;
            if part > 0 {
                // Judged with its first part.
                continue;
            }
            let header = self.header(partition, first, &value)?;
            let follows = match self.spans.get(&partition) {
                Some((_, last)) => first == last.next(),
                None => true,
            };
            let whole = self.parts_are_there(partition, first, header.parts)?;
            if follows && whole && header.last <= floor(partition) {
                let span = self.spans.entry(partition).or_insert((first, first));
                span.1 = header.last;
            } else {
                // It was put and never known to be durable, and may stand in the page cache only:
                // what is put behind it could be lost with it.
                self.closed = true;
            }
        }
        Ok(())
    }

    fn parts_are_there(&self, p: PartitionId, first: Lsn, parts: u16) -> Result<bool, OpenError> {
        for part in 1..parts {
            if self.table.get(&key(p, first, part)).map_err(|e| self.error(&e))?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Puts a batch. Durable after [`Self::sync`].
    ///
    /// # Errors
    /// The table refuses.
    pub fn put(&mut self, partition: PartitionId, run: &Run) -> Result<(), OpenError> {
        for (key, value) in encode_batch(partition, run) {
            self.dirty = true;
            self.table.put(&key, &value).map_err(|error| self.error(&error))?;
        }
        let span = self.spans.entry(partition).or_insert((run.first, run.last));
        span.1 = run.last;
        self.bytes += run.bytes.len() as u64;
        Ok(())
    }

    /// Makes everything that was put durable.
    ///
    /// # Errors
    /// The table or the operating system refused.
    pub fn sync(&mut self) -> io::Result<()> {
        if self.dirty {
            self.table.sync()?;
            self.dirty = false;
        }
        Ok(())
    }

    /// A put or sync failed: nothing is put here any more, and what is not known to be durable does
    /// not count.
    pub fn close(&mut self, floor: &dyn Fn(PartitionId) -> Lsn) {
        self.closed = true;
        self.dirty = false;
        for (partition, span) in &mut self.spans {
            span.1 = span.1.min(floor(*partition));
        }
        self.spans.retain(|_, (first, last)| first <= last);
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
        let (from, to) = (key(partition, Lsn::NONE, 0), key(partition, lsn, u16::MAX));
        let found = self.table.last(&from, &to).map_err(|error| self.error(&error))?;
        let (found, _) = found.ok_or_else(|| self.bad("a batch is missing"))?;
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
            let value = self.table.get(&key(partition, first, part)).map_err(|e| self.error(&e))?;
            let Some(value) = value else { return Ok(None) };
            let header = self.header(partition, first, &value)?;
            if header.crc != crc32c::crc32c(&value[HEADER_BYTES..]) {
                return Err(
                    self.bad(format!("partition {partition} lsn {first}: a wrong checksum"))
                );
            }
            (parts, last, len) = (header.parts, header.last, header.len);
            bytes.extend_from_slice(&value[HEADER_BYTES..]);
            part += 1;
        }
        if bytes.len() != len as usize {
            return Err(self.bad(format!("partition {partition} lsn {first}: a wrong length")));
        }
        Ok(Some(Run { first, last, bytes }))
    }

    fn header(&self, p: PartitionId, first: Lsn, value: &[u8]) -> Result<ValueHeader, OpenError> {
        let header = ValueHeader::parse(value)
            .filter(|header| header.first == first && header.last >= first)
            .ok_or_else(|| self.bad(format!("partition {p} lsn {first}: a wrong header")))?;
        if header.version != VERSION {
            let (found, known) = (header.version.into(), VERSION.into());
            return Err(OpenError::Version { file: self.path.clone(), found, known });
        }
        Ok(header)
    }

    fn next(&self, from: &[u8]) -> Result<Option<Pair>, OpenError> {
        self.table.next(from).map_err(|error| self.error(&error))
    }

    fn bad(&self, what: impl Into<String>) -> OpenError {
        damaged(&self.path, 0, what)
    }

    fn error(&self, error: &io::Error) -> OpenError {
        OpenError::Archive { path: self.path.clone(), what: error.to_string() }
    }
}

fn open_table(directory: &Directory, path: &Path) -> Result<Box<dyn Table>, OpenError> {
    directory
        .storage
        .tables
        .open(path)
        .map_err(|error| OpenError::Archive { path: path.into(), what: error.to_string() })
}

/// The marker's bytes.
pub fn marker_bytes(directory: u64, number: u64) -> Vec<u8> {
    seal(KIND, directory, &number.to_le_bytes())
}

/// The volume's number.
///
/// # Errors
/// Damage, another version or directory.
pub fn read_marker(path: &Path, directory: u64, bytes: &[u8]) -> Result<u64, OpenError> {
    let body = unseal(path, KIND, directory, bytes)?;
    let number: Option<[u8; 8]> = body.try_into().ok();
    let number = number.ok_or_else(|| damaged(path, SEALED_BYTES as u64, "a wrong length"))?;
    Ok(u64::from_le_bytes(number))
}

/// A batch as keys and values.
pub fn encode_batch(partition: PartitionId, run: &Run) -> Vec<([u8; 12], Vec<u8>)> {
    let parts = run.bytes.len().div_ceil(VALUE_BYTES_MAX).max(1);
    let encode = |(part, bytes): (usize, &[u8])| {
        let mut value = Vec::with_capacity(HEADER_BYTES + bytes.len());
        value.put_u32(MAGIC);
        value.put_u16(VERSION);
        value.put_u16(parts as u16);
        value.put_u64(run.first.get());
        value.put_u64(run.last.get());
        value.put_u32(run.bytes.len() as u32);
        value.put_u32(crc32c::crc32c(bytes));
        let crc = crc32c::crc32c(&value);
        value.put_u32(crc);
        value.put_u32(0);
        value.extend_from_slice(bytes);
        (key(partition, run.first, part as u16), value)
    };
    run.bytes.chunks(VALUE_BYTES_MAX).enumerate().map(encode).collect()
}

struct ValueHeader {
    version: u16,
    parts: u16,
    first: Lsn,
    last: Lsn,
    len: u32,
    /// Checksum of this part.
    crc: u32,
}

impl ValueHeader {
    /// `None`: it is none; a version that is not known is one.
    fn parse(value: &[u8]) -> Option<Self> {
        let head = value.get(..HEADER_BYTES)?;
        let mut r = Reader::new(head);
        let (magic, version, parts) = (r.u32().ok()?, r.u16().ok()?, r.u16().ok()?);
        let (first, last) = (Lsn::new(r.u64().ok()?), Lsn::new(r.u64().ok()?));
        let (len, crc, head_crc) = (r.u32().ok()?, r.u32().ok()?, r.u32().ok()?);
        let zero = r.u32().ok()?;
        let sound = magic == MAGIC && parts > 0 && head_crc == crc32c::crc32c(&head[..32]);
        (sound && zero == 0).then_some(Self { version, parts, first, last, len, crc })
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
