//! A table on any disk that behaves as sled does where it matters: what was put is there after a
//! sync; what was put since may be lost; damage anywhere silently takes away everything behind it;
//! after a failed operation nothing more can be put.
//!
//! One file of records: checksum u32 (chained over the ones before), key length u16, value length
//! u32, key, value.

use crate::archive::table::{Pair, Table, Tables};
use crate::disk::{Disk, DiskFile, OpenHow};
use crate::shared::lock;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

const HEADER_BYTES: usize = 10;

/// Opens tables on a disk.
#[derive(Clone, Debug)]
pub(super) struct MemoryTables(pub Arc<dyn Disk>);

#[derive(Debug)]
struct MemoryTable {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    file: Arc<dyn DiskFile>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pairs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Where the next record goes.
    end: u64,
    /// The last record's checksum.
    chain: u32,
    failed: bool,
}

impl Tables for MemoryTables {
    fn open(&self, dir: &Path) -> io::Result<Box<dyn Table>> {
        let disk = self.0.clone();
        disk.create_dir_all(dir)?;
        let path = dir.join("db");
        let mut state = State::default();
        let file = if disk.exists(&path) {
            state.replay(&disk.read(&path)?);
            disk.open(&path, OpenHow::Existing)?
        } else {
            disk.open(&path, OpenHow::New)?
        };
        Ok(Box::new(MemoryTable { disk, dir: dir.into(), file, state: Mutex::new(state) }))
    }
}

impl State {
    fn replay(&mut self, bytes: &[u8]) {
        while let Some((record, crc)) = self.record(&bytes[self.end as usize..]) {
            let key_len = usize::from(u16::from_le_bytes([record[4], record[5]]));
            let (key, value) = record[HEADER_BYTES..].split_at(key_len);
            self.pairs.insert(key.into(), value.into());
            self.end += record.len() as u64;
            self.chain = crc;
        }
    }

    /// The record at the front and its checksum, if it is whole and follows the one before.
    fn record<'a>(&self, bytes: &'a [u8]) -> Option<(&'a [u8], u32)> {
        let head = bytes.get(..HEADER_BYTES)?;
        let crc = u32::from_le_bytes(*head.first_chunk()?);
        let key_len = usize::from(u16::from_le_bytes([head[4], head[5]]));
        let value_len = u32::from_le_bytes(*head[6..].first_chunk()?) as usize;
        let record = bytes.get(..HEADER_BYTES + key_len + value_len)?;
        (crc == crc32c::crc32c_append(self.chain, &record[4..])).then_some((record, crc))
    }
}

impl MemoryTable {
    fn append(&self, state: &mut State, key: &[u8], value: &[u8]) -> io::Result<()> {
        refuse_failed(state)?;
        let mut record = vec![0; 4];
        record.extend_from_slice(&(key.len() as u16).to_le_bytes());
        record.extend_from_slice(&(value.len() as u32).to_le_bytes());
        record.extend_from_slice(key);
        record.extend_from_slice(value);
        let crc = crc32c::crc32c_append(state.chain, &record[4..]);
        record[..4].copy_from_slice(&crc.to_le_bytes());
        let written = self.file.write_all_at(&record, state.end);
        state.failed = written.is_err();
        written?;
        state.end += record.len() as u64;
        state.chain = crc;
        Ok(())
    }
}

fn refuse_failed(state: &State) -> io::Result<()> {
    if state.failed { Err(io::Error::other("the table failed before")) } else { Ok(()) }
}

impl Table for MemoryTable {
    fn put(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let mut state = lock(&self.state);
        self.append(&mut state, key, value)?;
        state.pairs.insert(key.into(), value.into());
        Ok(())
    }

    fn get(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        Ok(lock(&self.state).pairs.get(key).cloned())
    }

    fn next(&self, from: &[u8]) -> io::Result<Option<Pair>> {
        let state = lock(&self.state);
        let next = state.pairs.range(from.to_vec()..).next();
        Ok(next.map(|(key, value)| (key.clone(), value.clone())))
    }

    fn last(&self, from: &[u8], to: &[u8]) -> io::Result<Option<Pair>> {
        let state = lock(&self.state);
        let last = state.pairs.range(from.to_vec()..=to.to_vec()).next_back();
        Ok(last.map(|(key, value)| (key.clone(), value.clone())))
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = lock(&self.state);
        refuse_failed(&state)?;
        let synced = self.file.sync().and_then(|()| self.disk.sync_dir(&self.dir));
        state.failed = synced.is_err();
        synced
    }

    fn bytes(&self) -> u64 {
        lock(&self.state).end
    }
}
