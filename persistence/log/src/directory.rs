//! The data directory: one process at a time, and the settings that it was made with.

use crate::error::OpenError;
use crate::files::{failed, read_optional, replace, sync_dir};
use crate::sealed::{seal, unseal};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"STKMETA\0";
const VERSION: u32 = 1;

/// A directory that this process has.
#[derive(Debug)]
pub struct Directory {
    /// Its path.
    pub path: PathBuf,
    /// Partitions of users that it was made with.
    pub partitions: u16,
    /// Held until the end.
    _lock: File,
}

impl Directory {
    /// Takes the directory, making it if it is not there.
    ///
    /// # Errors
    /// In use, made with another number of partitions, damaged, or refused by the operating system.
    pub fn take(path: &Path, partitions: u16) -> Result<Self, OpenError> {
        fs::create_dir_all(path).map_err(failed("make", path))?;
        let lock = Self::lock(path)?;
        let meta = path.join("meta");
        let found = match read_optional(&meta).map_err(failed("read", &meta))? {
            Some(bytes) => Some(Self::read_meta(&meta, &bytes)?),
            None => None,
        };
        let found = match found {
            Some(found) => found,
            None if path.join("journal").exists() || path.join("archive").exists() => {
                return Err(OpenError::Damaged {
                    file: meta,
                    offset: 0,
                    what: "the file is missing although the directory holds data".into(),
                });
            }
            None => {
                let bytes = seal(MAGIC, VERSION, &partitions.to_le_bytes());
                replace(&meta, &bytes).map_err(failed("write", &meta))?;
                if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty())
                {
                    sync_dir(parent).map_err(failed("sync", parent))?;
                }
                partitions
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
            fs::create_dir_all(&dir).map_err(failed("make", &dir))?;
        }
        sync_dir(path).map_err(failed("sync", path))?;
        Ok(Self { path: path.into(), partitions, _lock: lock })
    }

    /// Takes a directory that must be there, with whatever settings it has.
    ///
    /// # Errors
    /// Not there, in use, or damaged.
    pub fn take_existing(path: &Path) -> Result<Self, OpenError> {
        let meta = path.join("meta");
        let bytes = fs::read(&meta).map_err(failed("read", &meta))?;
        let partitions = Self::read_meta(&meta, &bytes)?;
        let lock = Self::lock(path)?;
        Ok(Self { path: path.into(), partitions, _lock: lock })
    }

    fn lock(path: &Path) -> Result<File, OpenError> {
        let name = path.join("lock");
        let lock = OpenOptions::new().write(true).create(true).truncate(false).open(&name);
        let lock = lock.map_err(failed("open", &name))?;
        match lock.try_lock() {
            Ok(()) => Ok(lock),
            Err(TryLockError::WouldBlock) => Err(OpenError::InUse { path: path.into() }),
            Err(TryLockError::Error(error)) => Err(failed("lock", &name)(error)),
        }
    }

    fn read_meta(path: &Path, bytes: &[u8]) -> Result<u16, OpenError> {
        let body = unseal(path, MAGIC, VERSION, bytes)?;
        let value = body.first_chunk::<2>().map(|chunk| u16::from_le_bytes(*chunk));
        value.ok_or_else(|| crate::files::damaged(path, 24, "the body is too short"))
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
}
