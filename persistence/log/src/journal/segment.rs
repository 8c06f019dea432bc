//! A segment file: zero-filled to its size and synced before it is used, so that a commit changes
//! no metadata.

use super::frame::{SEGMENT_HEADER_BYTES, SegmentId};
use crate::files::sync_dir;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

static ZEROS: [u8; 1 << 20] = [0; 1 << 20];

/// An open segment.
#[derive(Debug)]
pub struct Segment {
    /// Who wrote it.
    pub id: SegmentId,
    /// Where it is.
    pub path: PathBuf,
    /// Its bytes, header included.
    pub size: u64,
    file: File,
    /// Written since the last sync (mode `async`).
    dirty: AtomicBool,
}

impl Segment {
    /// Makes a segment of `size` bytes, all written and durable, its name too.
    ///
    /// # Errors
    /// No space, or the operating system refused; nothing is left behind.
    pub fn create(dir: &Path, id: SegmentId, size: u64) -> io::Result<Self> {
        let path = dir.join(id.file_name());
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        let made = (|| {
            file.write_all_at(&id.header(), 0)?;
            let mut at = SEGMENT_HEADER_BYTES;
            while at < size {
                let count = (size - at).min(ZEROS.len() as u64) as usize;
                file.write_all_at(&ZEROS[..count], at)?;
                at += count as u64;
            }
            file.sync_all()?;
            sync_dir(dir)
        })();
        if let Err(error) = made {
            let _ = std::fs::remove_file(&path);
            return Err(error);
        }
        Ok(Self { id, path, size, file, dirty: AtomicBool::new(false) })
    }

    /// Writes a frame.
    ///
    /// # Errors
    /// The operating system refused.
    pub fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.dirty.store(true, Ordering::Release);
        self.file.write_all_at(bytes, at)
    }

    /// Makes what was written durable.
    ///
    /// # Errors
    /// The operating system refused; what was written may be lost although a later call succeeds.
    pub fn sync(&self) -> io::Result<()> {
        if self.dirty.swap(false, Ordering::AcqRel) {
            self.file.sync_data()?;
        }
        Ok(())
    }
}
