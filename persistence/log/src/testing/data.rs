//! A file's bytes: as processes see them, and as they are on the device.
//!
//! Writes since the last sync may reach the device or not, sector by sector, in any order. A sector
//! is whole or not there.

use super::rng::Rng;

const SECTOR: u64 = 512;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct FileData {
    /// What a process reads.
    pub now: Vec<u8>,
    /// What is on the device for certain.
    durable: Vec<u8>,
    /// Writes since the last sync.
    pending: Vec<(u64, Vec<u8>)>,
}

/// How much of what was not synced a power loss leaves.
#[derive(Clone, Copy)]
enum Luck {
    All,
    Nothing,
    /// The first so many sectors that were written.
    Front(u64),
    /// Each sector by itself, once in so many lost.
    Sectors(u64),
}

impl FileData {
    pub fn write(&mut self, bytes: &[u8], at: u64) {
        put(&mut self.now, bytes, at);
        self.pending.push((at, bytes.to_vec()));
    }

    /// So many bytes more are needed for a write.
    pub fn growth(&self, bytes: &[u8], at: u64) -> u64 {
        (at + bytes.len() as u64).saturating_sub(self.now.len() as u64)
    }

    pub fn sync(&mut self) {
        for (at, bytes) in std::mem::take(&mut self.pending) {
            put(&mut self.durable, &bytes, at);
        }
    }

    /// A sync that failed: what is lost now does not come back with a later sync, although
    /// processes still read it.
    pub fn fail_sync(&mut self, rng: &mut Rng) {
        self.durable = self.survivor(rng);
        self.pending.clear();
    }

    /// The bytes after a power loss.
    pub fn survivor(&self, rng: &mut Rng) -> Vec<u8> {
        let sectors: u64 =
            self.pending.iter().map(|(_, b)| (b.len() as u64).div_ceil(SECTOR)).sum();
        let luck = match rng.below(5) {
            0 => Luck::All,
            1 => Luck::Nothing,
            2 => Luck::Front(rng.below(sectors + 1)),
            3 => Luck::Sectors(2),
            _ => Luck::Sectors(1 + rng.below(sectors + 1)),
        };
        let mut bytes = self.durable.clone();
        let mut seen = 0;
        for (at, written) in &self.pending {
            let mut from = 0;
            while from < written.len() {
                let sector_left = (SECTOR - (at + from as u64) % SECTOR) as usize;
                let to = (from + sector_left).min(written.len());
                let kept = match luck {
                    Luck::All => true,
                    Luck::Nothing => false,
                    Luck::Front(front) => seen < front,
                    Luck::Sectors(once_in) => !rng.once_in(once_in),
                };
                if kept {
                    put(&mut bytes, &written[from..to], at + from as u64);
                }
                (seen, from) = (seen + 1, to);
            }
        }
        // A file's length may be there before its bytes.
        if rng.once_in(4) {
            bytes.resize(self.now.len().max(bytes.len()), 0);
        }
        bytes
    }

    /// A file that is on the device with these bytes.
    pub fn durable(bytes: Vec<u8>) -> Self {
        Self { now: bytes.clone(), durable: bytes, pending: Vec::new() }
    }
}

fn put(into: &mut Vec<u8>, bytes: &[u8], at: u64) {
    let (from, to) = (at as usize, at as usize + bytes.len());
    if into.len() < to {
        into.resize(to, 0);
    }
    into[from..to].copy_from_slice(bytes);
}
