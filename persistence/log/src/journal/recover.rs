//! Reading the journals of the last run: every frame in order, a torn tail cut, damage refused with
//! its place.
//!
//! A bad frame with nothing valid behind it was being written when the engine died: it was never
//! acknowledged (one frame in flight). A bad frame with a valid one of a later counter behind it is
//! damage (but for frames of mode `async`, whose order on disk nobody promised).

use super::frame::{FRAME_HEADER_BYTES, FrameHeader, SEGMENT_HEADER_BYTES, SegmentId};
use crate::error::OpenError;
use crate::files::{damaged, failed, list};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// What was found.
#[derive(Debug, Default)]
pub struct Journals {
    /// Bodies of frames with the file and place of each, by (epoch, shard), in the order of commit.
    pub frames: BTreeMap<(u64, u16), Vec<Frame>>,
    /// Every segment file, to be deleted once the archive has everything.
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

/// The chain so far, within one epoch and shard.
struct Chain {
    frames: Vec<Frame>,
    counter: u64,
    previous: u32,
    /// A place where the chain stopped; anything valid behind it is damage.
    stopped: Option<(PathBuf, u64)>,
    ended: bool,
    segment: u64,
}

/// Reads all segments of a directory.
///
/// # Errors
/// Damage, or the operating system refused.
pub fn read(dir: &Path) -> Result<Journals, OpenError> {
    let mut journals = Journals::default();
    let mut segments = Vec::new();
    for path in list(dir).map_err(failed("list", dir))? {
        if path.extension().is_none_or(|extension| extension != "seg") {
            continue;
        }
        let bytes = fs::read(&path).map_err(failed("read", &path))?;
        journals.files.push(path.clone());
        let named = path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
        match SegmentId::parse(&bytes).map_err(|what| damaged(&path, 0, what))? {
            None => journals.warnings.push(format!("{} was being made", path.display())),
            Some(id) if named.as_deref() != Some(&id.file_name()) => {
                return Err(damaged(&path, 0, "the segment's header names another file"));
            }
            Some(id) => segments.push((id, path, bytes)),
        }
    }
    segments.sort_by_key(|(id, ..)| *id);
    let mut chains = BTreeMap::<(u64, u16), Chain>::new();
    for (id, path, bytes) in segments {
        let chain = chains.entry((id.epoch, id.shard)).or_insert_with(|| Chain {
            frames: Vec::new(),
            counter: 0,
            previous: 0,
            stopped: None,
            ended: false,
            segment: id.number - 1,
        });
        if id.number != chain.segment + 1 && !bytes_unused(&bytes) {
            return Err(damaged(&path, 0, "the segment before it is missing"));
        }
        chain.segment = id.number;
        read_segment(chain, id, &path, &bytes)?;
    }
    for ((epoch, shard), chain) in chains {
        if let Some((path, offset)) = chain.stopped.filter(|_| !chain.ended) {
            let end =
                if chain.frames.is_empty() { "the beginning" } else { "the last whole frame" };
            journals.warnings.push(format!(
                "{} has a torn frame at byte {offset} (epoch {epoch}, shard {shard}); it was never \
                 acknowledged and is cut behind {end}",
                path.display()
            ));
        }
        journals.frames.insert((epoch, shard), chain.frames);
    }
    Ok(journals)
}

fn bytes_unused(bytes: &[u8]) -> bool {
    bytes[SEGMENT_HEADER_BYTES as usize..].iter().all(|byte| *byte == 0)
}

fn read_segment(
    chain: &mut Chain,
    id: SegmentId,
    path: &Path,
    bytes: &[u8],
) -> Result<(), OpenError> {
    let mut at = SEGMENT_HEADER_BYTES as usize;
    let first_of_chain = chain.counter == 0 && chain.frames.is_empty();
    let mut first = true;
    while chain.stopped.is_none() {
        let rest = bytes.get(at..).unwrap_or(&[]);
        let Some((header, crc)) = FrameHeader::parse(rest) else { break };
        let Some(body) = rest
            .get(FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + header.body_len as usize)
            .filter(|body| crc32c::crc32c(body) == header.body_crc)
        else {
            break;
        };
        if (header.epoch, header.shard) != (id.epoch, id.shard) {
            return Err(damaged(path, at as u64, "a frame of another journal"));
        }
        // Segments before this one may be gone: what they held is in the archive.
        let joins = (first && first_of_chain)
            || (header.counter == chain.counter + 1 && header.previous == chain.previous);
        if !joins {
            return Err(damaged(path, at as u64, "a frame does not follow the one before it"));
        }
        if chain.ended {
            return Err(damaged(path, at as u64, "a frame behind the end of a clean stop"));
        }
        first = false;
        chain.counter = header.counter;
        chain.previous = crc;
        chain.ended = header.end;
        if !header.end {
            let (body, file) = (body.to_vec(), path.to_path_buf());
            chain.frames.push(Frame { body, file, offset: at as u64 });
        }
        at += header.frame_bytes() as usize;
    }
    let rest = bytes.get(at..).unwrap_or(&[]);
    if rest.iter().all(|byte| *byte == 0) {
        return Ok(());
    }
    refuse_if_valid_behind(chain, id, path, at, rest)?;
    if chain.stopped.is_none() {
        chain.stopped = Some((path.into(), at as u64));
    }
    Ok(())
}

/// A valid frame behind the place where the chain stopped means that the place is damaged, not
/// torn.
fn refuse_if_valid_behind(
    chain: &Chain,
    id: SegmentId,
    path: &Path,
    at: usize,
    rest: &[u8],
) -> Result<(), OpenError> {
    let (file, offset) = chain.stopped.clone().unwrap_or((path.into(), at as u64));
    if chain.ended {
        return Err(damaged(path, at as u64, "bytes behind the end of a clean stop"));
    }
    let mut step = if chain.stopped.is_some() { 0 } else { 8 };
    while step + FRAME_HEADER_BYTES <= rest.len() {
        if let Some((header, _)) = FrameHeader::parse(&rest[step..])
            && header.epoch == id.epoch
            && header.shard == id.shard
            && header.counter > chain.counter
            && !header.deferred
        {
            let what = format!("a frame is bad, and frame {} behind it is whole", header.counter);
            return Err(damaged(&file, offset, what));
        }
        step += 8;
    }
    Ok(())
}
