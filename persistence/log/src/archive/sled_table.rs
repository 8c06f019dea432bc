//! A table that is a sled 0.34 directory.
//!
//! sled's flush is no fsync, so its files are synced here. Values stay below the size at which
//! sled moves them to files of their own, which it never syncs.

use super::table::{Pair, Table, Tables};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Opens sled directories.
#[derive(Clone, Copy, Debug, Default)]
pub struct SledTables;

#[derive(Debug)]
struct SledTable {
    path: PathBuf,
    db: sled::Db,
}

impl Tables for SledTables {
    fn open(&self, dir: &Path) -> io::Result<Box<dyn Table>> {
        Ok(Box::new(SledTable { path: dir.into(), db: open_sled(dir)? }))
    }
}

static OPENING: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Opens sled with settings that fit: large segments so that values stay out of blob files, no
/// background flusher, a small cache. sled panics on some kinds of damage; that becomes an error,
/// or, in builds whose panics abort, at least one plain sentence.
fn open_sled(path: &Path) -> io::Result<sled::Db> {
    let config = sled::Config::new()
        .path(path)
        .segment_size(16 << 20)
        .cache_capacity(16 << 20)
        .flush_every_ms(None)
        .mode(sled::Mode::LowSpace);
    // The hook is the process's: one opening at a time.
    let _one = OPENING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
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
    match opened {
        Ok(Ok(db)) => Ok(db),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(io::Error::other("it is damaged; restore the directory from a backup")),
    }
}

fn pair((key, value): (sled::IVec, sled::IVec)) -> Pair {
    (key.to_vec(), value.to_vec())
}

impl Table for SledTable {
    fn put(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.db.insert(key, value)?;
        Ok(())
    }

    fn get(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        Ok(self.db.get(key)?.map(|value| value.to_vec()))
    }

    fn next(&self, from: &[u8]) -> io::Result<Option<Pair>> {
        Ok(self.db.range(from.to_vec()..).next().transpose()?.map(pair))
    }

    fn last(&self, from: &[u8], to: &[u8]) -> io::Result<Option<Pair>> {
        let range = self.db.range(from.to_vec()..=to.to_vec());
        Ok({ range }.next_back().transpose()?.map(pair))
    }

    fn sync(&self) -> io::Result<()> {
        self.db.flush()?;
        sync_tree(&self.path)
    }

    fn bytes(&self) -> u64 {
        self.db.size_on_disk().unwrap_or(0)
    }
}

/// Syncs every file below a directory, and the directories themselves.
fn sync_tree(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            sync_tree(&path)?;
        } else {
            match File::open(&path).and_then(|file| file.sync_all()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    File::open(dir)?.sync_all()
}
