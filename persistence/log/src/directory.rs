//! The data directory: one process at a time, the settings that it was made with, and an id that
//! every file in it carries, so that a file of another directory is never taken for its own.

use crate::disk::{Disk, DiskLock};
use crate::error::OpenError;
use crate::files::{damaged, failed, read_optional, replace};
use crate::sealed::{self, HEADER_BYTES, Kind, seal};
use crate::storage::Storage;
use std::io;
use std::path::{Path, PathBuf};

const KIND: Kind = Kind { magic: b"STKMETA\0", version: 1 };

/// A directory that this process has.
pub struct Directory {
    /// Its path.
    pub path: PathBuf,
    /// Its id.
    pub id: u64,
    /// Partitions of users that it was made with.
    pub partitions: u16,
    /// What it stands on.
    pub storage: Storage,
    /// Held until the end.
    _lock: DiskLock,
}

impl std::fmt::Debug for Directory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Directory").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Directory {
    /// Takes the directory, making it if it is not there.
    ///
    /// # Errors
    /// In use, made with another number of partitions, damaged, or refused by the operating system.
    pub fn take(storage: Storage, path: &Path, partitions: u16) -> Result<Self, OpenError> {
        let disk = storage.disk.clone();
        disk.create_dir_all(path).map_err(failed("make", path))?;
        let lock = Self::lock(&*disk, path)?;
        let meta = path.join("meta");
        let found = match read_optional(&*disk, &meta).map_err(failed("read", &meta))? {
            Some(bytes) => Some(decode(&meta, &bytes)?),
            None => None,
        };
        let made = found.is_none();
        let (id, found) = match found {
            Some(found) => found,
            None if ["journal", "archive", "floor"].iter().any(|n| disk.exists(&path.join(n))) => {
                let what = "the file is missing although the directory holds data";
                return Err(damaged(&meta, 0, what));
            }
            None => {
                let id = disk.unique();
                let written = replace(&*disk, &meta, &encode(id, partitions));
                written.map_err(failed("write", &meta))?;
                (id, partitions)
            }
        };
        if found != partitions {
            return Err(OpenError::Settings {
                path: path.into(),
                what: "partitions",
                made: found.to_string(),
                asked: partitions.to_string(),
            });
        }
        for name in ["journal", "archive", "snapshots"] {
            let dir = path.join(name);
            disk.create_dir_all(&dir).map_err(failed("make", &dir))?;
        }
        disk.sync_dir(path).map_err(failed("sync", path))?;
        // Each time: the process that made the directory may have died before it came to this.
        for (above, parent) in path.ancestors().skip(1).enumerate() {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            match disk.sync_dir(parent) {
                // Further up a file system may refuse; and who may not read the directory above
                // did not make this one now.
                Err(_) if above > 0 => {}
                Err(error) if !made && error.kind() == io::ErrorKind::PermissionDenied => {}
                synced => synced.map_err(failed("sync", parent))?,
            }
        }
        Ok(Self { path: path.into(), id, partitions, storage, _lock: lock })
    }

    /// Takes a directory that must be there, with whatever settings it has.
    ///
    /// # Errors
    /// Not there, in use, or damaged.
    pub fn take_existing(storage: Storage, path: &Path) -> Result<Self, OpenError> {
        let meta = path.join("meta");
        let bytes = storage.disk.read(&meta).map_err(failed("read", &meta))?;
        let (id, partitions) = decode(&meta, &bytes)?;
        let lock = Self::lock(&*storage.disk, path)?;
        Ok(Self { path: path.into(), id, partitions, storage, _lock: lock })
    }

    fn lock(disk: &dyn Disk, path: &Path) -> Result<DiskLock, OpenError> {
        let name = path.join("lock");
        let lock: io::Result<_> = disk.lock(&name);
        let lock = lock.map_err(failed("lock", &name))?;
        lock.ok_or_else(|| OpenError::InUse { path: path.into() })
    }

    /// Its files.
    pub fn disk(&self) -> &dyn Disk {
        &*self.storage.disk
    }

    /// Where segments are.
    pub fn journal(&self) -> PathBuf {
        self.path.join("journal")
    }

    /// Where volumes are.
    pub fn archive(&self) -> PathBuf {
        self.path.join("archive")
    }

    /// Where snapshots are.
    pub fn snapshots(&self) -> PathBuf {
        self.path.join("snapshots")
    }

    /// The floor's file.
    pub fn floor(&self) -> PathBuf {
        self.path.join("floor")
    }

    /// The consumers' file.
    pub fn consumers(&self) -> PathBuf {
        self.path.join("consumers")
    }
}

/// The marker's bytes.
pub fn encode(id: u64, partitions: u16) -> Vec<u8> {
    seal(KIND, id, &partitions.to_le_bytes())
}

/// The directory's id and its partitions.
///
/// # Errors
/// Damage, or another version.
pub fn decode(path: &Path, bytes: &[u8]) -> Result<(u64, u16), OpenError> {
    let (id, body) = sealed::open(path, KIND, bytes)?;
    let value: Option<[u8; 2]> = body.try_into().ok();
    let value = value.ok_or_else(|| damaged(path, HEADER_BYTES as u64, "a wrong length"))?;
    Ok((id, u16::from_le_bytes(value)))
}
