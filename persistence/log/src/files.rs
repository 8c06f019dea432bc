//! Small durable files: written aside, synced, renamed, and the directory synced. And the error for
//! what the operating system refuses.

use crate::disk::{Disk, OpenHow};
use crate::error::OpenError;
use std::io;
use std::path::Path;

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

/// Replaces a file as one step: after a crash it is the old one or the new one, whole.
pub fn replace(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let aside = path.with_extension("tmp");
    let file = disk.open(&aside, OpenHow::Truncate)?;
    file.write_all_at(bytes, 0)?;
    file.sync()?;
    drop(file);
    disk.rename(&aside, path)?;
    disk.sync_dir(path.parent().unwrap_or(Path::new(".")))
}

/// The whole file, or `None` if there is none.
pub fn read_optional(disk: &dyn Disk, path: &Path) -> io::Result<Option<Vec<u8>>> {
    match disk.read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes files that were written aside and never renamed.
pub fn remove_asides(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    for path in disk.list(dir)? {
        if path.extension().is_some_and(|extension| extension == "tmp") {
            disk.remove_file(&path)?;
        }
    }
    Ok(())
}
