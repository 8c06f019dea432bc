//! Small durable files: written aside, synced, renamed, and the directory synced. And the error for
//! what the operating system refuses.

use crate::error::OpenError;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Names the operation and the file of an I/O error.
pub fn failed<'a>(
    doing: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> OpenError + use<'a> {
    move |source| OpenError::Io { doing, path: path.into(), source }
}

/// Damage at a place.
pub fn damaged(file: &Path, offset: u64, what: impl Into<String>) -> OpenError {
    OpenError::Damaged { file: file.into(), offset, what: what.into() }
}

/// Makes the names in a directory durable.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Replaces a file as one step: after a crash it is the old one or the new one, whole.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let aside = path.with_extension("tmp");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&aside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    drop(file);
    fs::rename(&aside, path)?;
    sync_dir(path.parent().unwrap_or(Path::new(".")))
}

/// The whole file, or `None` if there is none.
pub fn read_optional(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Files of a directory, by name; empty if there is no directory.
pub fn list(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// Bytes of all files below a directory; what vanishes meanwhile does not count.
pub fn disk_bytes(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(paths) = list(dir) else { return 0 };
    paths
        .iter()
        .map(|path| match fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_dir() => disk_bytes(path),
            Ok(metadata) => metadata.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}

/// Syncs every file below a directory, and the directories themselves.
pub fn sync_tree(dir: &Path) -> io::Result<()> {
    for path in list(dir)? {
        if path.is_dir() {
            sync_tree(&path)?;
        } else {
            match File::open(&path).and_then(|file| file.sync_all()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    sync_dir(dir)
}
