//! The file layer: everything that the log does with files goes through [`Disk`], so that tests can
//! run the same code on a disk that loses power, fills up and fails (`testing::MemoryDisk`).
//!
//! What the log relies on: a file's bytes are durable after `sync`, a name (made, renamed, removed)
//! after `sync_dir` of its directory; a rename within a directory is one step; changes of names in
//! one directory become durable in the order in which they were made (as ext4, xfs and btrfs do).
//! After a failed `sync` the written bytes count as lost: nobody syncs again and goes on.
//!
//! sled does its own I/O and is behind `archive::table` instead.

use std::any::Any;
use std::fmt::Debug;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a file is opened for writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenHow {
    /// It must not be there.
    New,
    /// It is emptied if it is there.
    Truncate,
    /// It must be there.
    Existing,
}

/// A file that is open for writing.
pub trait DiskFile: Send + Sync + Debug {
    /// Writes all bytes at an offset.
    ///
    /// # Errors
    /// The device refused; any part of the bytes may be written.
    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;

    /// Makes everything written durable, the file's length too.
    ///
    /// # Errors
    /// The device refused: what was written since the last sync may be lost, although a later call
    /// succeeds.
    fn sync(&self) -> io::Result<()>;
}

/// A held lock; let go when dropped.
pub type DiskLock = Box<dyn Any + Send + Sync>;

/// Files and directories. All paths are those of the data directory.
pub trait Disk: Send + Sync + Debug + 'static {
    /// Opens a file for writing.
    ///
    /// # Errors
    /// As [`OpenHow`] says, or the device refused.
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Arc<dyn DiskFile>>;

    /// The whole file.
    ///
    /// # Errors
    /// There is none, or the device refused.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Gives a file another name in its directory, replacing what has it.
    ///
    /// # Errors
    /// The device refused.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// There is none, or the device refused.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory with everything in it; one that is not there is no error.
    ///
    /// # Errors
    /// The device refused; a part may be gone.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Makes a directory and those above it; one that is there is no error.
    ///
    /// # Errors
    /// The device refused.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// The device refused.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// What is in a directory, by name; nothing if there is no directory.
    ///
    /// # Errors
    /// The device refused.
    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>>;

    /// Something has this name.
    fn exists(&self, path: &Path) -> bool;

    /// Bytes of all files below a directory; what vanishes meanwhile does not count.
    fn bytes_below(&self, path: &Path) -> u64;

    /// Locks a file, making it; `None` if somebody has it.
    ///
    /// # Errors
    /// The device refused.
    fn lock(&self, path: &Path) -> io::Result<Option<DiskLock>>;

    /// A number that no other directory has.
    fn unique(&self) -> u64;
}

/// The operating system's files.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalDisk;

#[derive(Debug)]
struct LocalFile(File);

impl DiskFile for LocalFile {
    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, at)
    }

    fn sync(&self) -> io::Result<()> {
        // fdatasync covers the length and everything else that reading the bytes needs.
        self.0.sync_data()
    }
}

impl Disk for LocalDisk {
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        match how {
            OpenHow::New => options.create_new(true),
            OpenHow::Truncate => options.create(true).truncate(true),
            OpenHow::Existing => &mut options,
        };
        Ok(Arc::new(LocalFile(options.open(path)?)))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let entries = match fs::read_dir(path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        paths.sort();
        Ok(paths)
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn bytes_below(&self, path: &Path) -> u64 {
        let Ok(paths) = self.list(path) else { return 0 };
        paths
            .iter()
            .map(|path| match fs::symlink_metadata(path) {
                Ok(metadata) if metadata.is_dir() => self.bytes_below(path),
                Ok(metadata) => metadata.blocks() * 512,
                Err(_) => 0,
            })
            .sum()
    }

    fn lock(&self, path: &Path) -> io::Result<Option<DiskLock>> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Box::new(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn unique(&self) -> u64 {
        // Seeded by the operating system for each process, and counted up for each state.
        RandomState::new().hash_one(std::time::SystemTime::now()).max(1)
    }
}
