//! A segment file: zero-filled to its size and synced before it is used, so that a commit changes
//! no metadata.

use super::frame::{SEGMENT_HEADER_BYTES, SegmentId};
use crate::directory::Directory;
use crate::disk::{DiskFile, OpenHow};
use crate::shared::lock;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

static ZEROS: [u8; 1 << 20] = [0; 1 << 20];

/// What was done to the file since its last sync.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Clean,
    Dirty,
    /// A write or sync failed: what was written may be lost although a later sync succeeds, so
    /// there is no later one.
    Failed,
}

/// An open segment.
#[derive(Debug)]
pub struct Segment {
    /// Who wrote it.
    pub id: SegmentId,
    /// Where it is.
    pub path: PathBuf,
    /// Its bytes, header included.
    pub size: u64,
    file: Arc<dyn DiskFile>,
    /// Held during a sync: who comes second waits until the bytes are durable.
    state: Mutex<State>,
}

impl Segment {
    /// Makes a segment of `size` bytes, all written and durable, its name too.
    ///
    /// # Errors
    /// No space, or the operating system refused; nothing is left behind.
    pub fn create(directory: &Directory, id: SegmentId, size: u64) -> io::Result<Self> {
        let (dir, disk) = (directory.journal(), directory.disk());
        let path = dir.join(id.file_name());
        let file = disk.open(&path, OpenHow::New)?;
        let made = (|| {
            file.write_all_at(&id.header(directory.id), 0)?;
            let mut at = SEGMENT_HEADER_BYTES;
            while at < size {
                let count = (size - at).min(ZEROS.len() as u64) as usize;
                file.write_all_at(&ZEROS[..count], at)?;
                at += count as u64;
            }
            file.sync()?;
            disk.sync_dir(&dir)
        })();
        if let Err(error) = made {
            let _ = disk.remove_file(&path);
            return Err(error);
        }
        Ok(Self { id, path, size, file, state: Mutex::new(State::Clean) })
    }

    /// Writes a frame.
    ///
    /// # Errors
    /// The operating system refused, or did so before.
    pub fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let mut state = lock(&self.state);
        Self::refuse_failed(*state)?;
        let written = self.file.write_all_at(bytes, at);
        *state = if written.is_ok() { State::Dirty } else { State::Failed };
        written
    }

    /// Makes what was written durable.
    ///
    /// # Errors
    /// The operating system refused, or did so before: what was written counts as lost.
    pub fn sync(&self) -> io::Result<()> {
        let mut state = lock(&self.state);
        Self::refuse_failed(*state)?;
        if *state == State::Dirty {
            let synced = self.file.sync();
            *state = if synced.is_ok() { State::Clean } else { State::Failed };
            synced?;
        }
        Ok(())
    }

    fn refuse_failed(state: State) -> io::Result<()> {
        match state {
            State::Failed => Err(io::Error::other("a write or flush of the file failed before")),
            State::Clean | State::Dirty => Ok(()),
        }
    }
}
