//! Reading the journals of the last run: every frame in order, a torn tail cut, damage refused with
//! its place.
//!
//! A bad frame with nothing valid behind it was being written when the engine died: it was never
//! acknowledged (one frame in flight). A bad frame with a valid one of a later counter behind it is
//! damage (but for frames of mode `async`, whose order on disk nobody promised).
//!
//! Only segments of the floor's epoch are read: a start archives everything before it raises the
//! epoch, so older ones are left-overs, and newer ones belong to another floor.

use super::frame::{
    FRAME_HEADER_BYTES, FrameHeader, SEGMENT_HEADER_BYTES, SegmentHeader, SegmentId, salt,
};
use crate::directory::Directory;
use crate::error::OpenError;
use crate::files::{damaged, failed};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What was found.
#[derive(Debug, Default)]
pub struct Journals {
    /// Bodies of frames with the file and place of each, by shard, in the order of commit.
    pub frames: BTreeMap<u16, Vec<Frame>>,
    /// Every segment file, to be deleted once the archive has everything; oldest first.
    pub files: Vec<PathBuf>,
    /// Plain sentences for the operator.
    pub warnings: Vec<String>,
}

/// A frame's body and where it stood.
#[derive(Debug)]
pub struct Frame {
    /// The entries.
    pub body: Vec<u8>,
    /// The file.
    pub file: PathBuf,
    /// Where the frame begins.
    pub offset: u64,
}

/// The chain of one shard so far.
#[derive(Default)]
struct Chain {
    frames: Vec<Frame>,
    counter: u64,
    previous: u32,
    /// A place where the chain stopped; anything valid behind it is damage.
    stopped: Option<(PathBuf, u64)>,
    ended: bool,
    /// The number of the segment read last.
    segment: Option<u64>,
    /// That one was still being made: nothing can follow.
    unmade: bool,
}

/// Reads all segments of a directory.
///
/// # Errors
/// Damage, or the operating system refused.
pub fn read(directory: &Directory, epoch: u64) -> Result<Journals, OpenError> {
    let (dir, disk) = (directory.journal(), directory.disk());
    let mut found = Vec::new();
    for path in disk.list(&dir).map_err(failed("list", &dir))? {
        if path.extension().is_none_or(|extension| extension != "seg") {
            continue;
        }
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(id) = SegmentId::from_file_name(name) else {
            return Err(foreign(&path, "no journal segment has such a name"));
        };
        if id.epoch > epoch {
            let what = format!("it is of epoch {}, and the floor of epoch {epoch}", id.epoch);
            return Err(foreign(&path, what));
        }
        found.push((id, path));
    }
    found.sort();
    let mut chains = BTreeMap::<u16, Chain>::new();
    let mut unmade = None;
    for (id, path) in found.iter().filter(|(id, _)| id.epoch == epoch) {
        let bytes = disk.read(path).map_err(failed("read", path))?;
        let reading = Reading { id: *id, path, bytes: &bytes, salt: salt(directory.id) };
        let made = reading.is_made(directory.id)?;
        reading.follow(chains.entry(id.shard).or_default(), made)?;
        if !made && id.number == 1 {
            unmade.get_or_insert(path);
        }
    }
    // Every shard has its first segment before any has an entry.
    if let Some(path) = unmade.filter(|_| chains.values().any(|chain| chain.counter > 0)) {
        return Err(damaged(path, 0, "the segment is empty, although its run had begun"));
    }
    let mut journals = Journals::default();
    journals.files.extend(found.into_iter().map(|(_, path)| path));
    for (shard, chain) in chains {
        if let Some((path, offset)) = chain.stopped.filter(|_| !chain.ended) {
            let end =
                if chain.frames.is_empty() { "the beginning" } else { "the last whole frame" };
            journals.warnings.push(format!(
                "{} has a torn frame at byte {offset} (epoch {epoch}, shard {shard}); it was never \
                 acknowledged and is cut behind {end}",
                path.display()
            ));
        }
        journals.frames.insert(shard, chain.frames);
    }
    Ok(journals)
}

fn foreign(path: &Path, what: impl Into<String>) -> OpenError {
    OpenError::Foreign { file: path.into(), what: what.into() }
}

/// One segment that is being read.
struct Reading<'a> {
    id: SegmentId,
    path: &'a Path,
    bytes: &'a [u8],
    salt: u32,
}

impl Reading<'_> {
    /// Whether it was ever ready for use: one that was being made is no segment yet.
    fn is_made(&self, directory: u64) -> Result<bool, OpenError> {
        if self.bytes.len() < SEGMENT_HEADER_BYTES as usize
            && self.id.header(directory).starts_with(self.bytes)
        {
            return Ok(false);
        }
        let header = SegmentId::parse(self.bytes).map_err(|what| damaged(self.path, 0, what))?;
        match header {
            SegmentHeader::Unmade if self.bytes.iter().all(|byte| *byte == 0) => Ok(false),
            SegmentHeader::Unmade => {
                Err(damaged(self.path, 0, "the segment's header is gone, its frames are not"))
            }
            SegmentHeader::Version(found) => {
                let (file, known) = (self.path.into(), super::frame::VERSION);
                Err(OpenError::Version { file, found, known })
            }
            SegmentHeader::Made(_, found) if found != directory => {
                Err(foreign(self.path, "it was written in another data directory"))
            }
            SegmentHeader::Made(id, _) if id != self.id => {
                let what = format!("its header says that it is {}", id.file_name());
                Err(foreign(self.path, what))
            }
            SegmentHeader::Made(..) => Ok(true),
        }
    }

    fn is_unused(&self) -> bool {
        let frames = self.bytes.get(SEGMENT_HEADER_BYTES as usize..).unwrap_or(&[]);
        frames.iter().all(|byte| *byte == 0)
    }

    /// The segments of a shard are numbered from 1 on without a hole, but that the oldest may be
    /// archived and deleted; then the newest one with frames is still there.
    fn follow(&self, chain: &mut Chain, made: bool) -> Result<(), OpenError> {
        let missing = match chain.segment {
            Some(before) => self.id.number != before + 1,
            None => self.id.number > 1 && self.is_unused(),
        };
        if missing {
            let before = SegmentId { number: self.id.number - 1, ..self.id };
            let what = format!("the segment before it, {}, is missing", before.file_name());
            return Err(damaged(self.path, 0, what));
        }
        if chain.unmade {
            let before = SegmentId { number: self.id.number - 1, ..self.id };
            let what = format!("the segment before it, {}, is empty", before.file_name());
            return Err(damaged(self.path, 0, what));
        }
        chain.unmade = !made;
        let first_of_chain = chain.segment.is_none();
        chain.segment = Some(self.id.number);
        if made { self.read_frames(chain, first_of_chain) } else { Ok(()) }
    }

    fn read_frames(&self, chain: &mut Chain, mut any_start: bool) -> Result<(), OpenError> {
        let mut at = SEGMENT_HEADER_BYTES as usize;
        // The first segment of a run begins with frame 1; before a later one may be others that are
        // archived and deleted.
        any_start &= self.id.number > 1;
        while chain.stopped.is_none() {
            let Some((header, crc, body)) = self.frame(at) else { break };
            if (header.epoch, header.shard) != (self.id.epoch, self.id.shard) {
                return Err(damaged(self.path, at as u64, "a frame of another journal"));
            }
            let joins = any_start
                || (header.counter == chain.counter + 1 && header.previous == chain.previous);
            if !joins {
                let what = "a frame does not follow the one before it";
                return Err(damaged(self.path, at as u64, what));
            }
            if chain.ended {
                let what = "a frame behind the end of a clean stop";
                return Err(damaged(self.path, at as u64, what));
            }
            any_start = false;
            chain.counter = header.counter;
            chain.previous = crc;
            chain.ended = header.end;
            if !header.end {
                let (body, file) = (body.to_vec(), self.path.to_path_buf());
                chain.frames.push(Frame { body, file, offset: at as u64 });
            }
            at += header.frame_bytes() as usize;
        }
        let rest = self.bytes.get(at..).unwrap_or(&[]);
        if rest.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        self.refuse_if_valid_behind(chain, at)?;
        if chain.stopped.is_none() {
            chain.stopped = Some((self.path.into(), at as u64));
        }
        Ok(())
    }

    /// The whole frame at an offset.
    fn frame(&self, at: usize) -> Option<(FrameHeader, u32, &[u8])> {
        let rest = self.bytes.get(at..)?;
        let (header, crc) = FrameHeader::parse(self.salt, rest)?;
        let body = rest.get(FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + header.body_len as usize)?;
        (crc32c::crc32c(body) == header.body_crc).then_some((header, crc, body))
    }

    /// A valid frame behind the place where the chain stopped means that the place is damaged, not
    /// torn.
    fn refuse_if_valid_behind(&self, chain: &Chain, at: usize) -> Result<(), OpenError> {
        if chain.ended {
            let what = "bytes behind the end of a clean stop";
            return Err(damaged(self.path, at as u64, what));
        }
        let (file, offset) = chain.stopped.clone().unwrap_or((self.path.into(), at as u64));
        let mut probe = if chain.stopped.is_some() { at } else { at + 8 };
        while probe + FRAME_HEADER_BYTES <= self.bytes.len() {
            if let Some((header, ..)) = self.frame(probe)
                && header.epoch == self.id.epoch
                && header.shard == self.id.shard
                && header.counter > chain.counter
                && !header.deferred
            {
                let what =
                    format!("a frame is bad, and frame {} behind it is whole", header.counter);
                return Err(damaged(&file, offset, what));
            }
            probe += 8;
        }
        Ok(())
    }
}
