//! The bytes of segments and frames. See `FORMAT.md`.

use stockade_protocol::le::{Reader, Writer};

/// First bytes of a segment file.
pub const SEGMENT_MAGIC: &[u8; 8] = b"STKJRNL\0";
/// Version of segments and frames.
pub const VERSION: u32 = 1;
/// Bytes of a segment before its first frame.
pub const SEGMENT_HEADER_BYTES: u64 = 64;
/// Bytes of a frame before its body.
pub const FRAME_HEADER_BYTES: usize = 48;
/// Largest body of a frame.
pub const BODY_BYTES_MAX: usize = 64 << 20;

const FRAME_MAGIC: u32 = 0x4D52_4653; // "SFRM"
const END_FLAG: u32 = 1;
const DEFERRED_FLAG: u32 = 2;

/// Who wrote a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentId {
    /// The run of the engine.
    pub epoch: u64,
    /// The shard of that run.
    pub shard: u16,
    /// Counts up from 1 within the run and shard.
    pub number: u64,
}

/// What a segment's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentHeader {
    /// All zero, or shorter than a header and zero: a segment that was being made.
    Unmade,
    /// Who wrote it, in which data directory.
    Made(SegmentId, u64),
    /// Of a version that is not known.
    Version(u32),
}

/// The checksum that every frame header of a directory begins with: bytes that a client brought
/// into a body are never taken for a frame, and no frame of another directory is.
pub fn salt(directory: u64) -> u32 {
    crc32c::crc32c(&directory.to_le_bytes())
}

impl SegmentId {
    /// The file's name: sorts by epoch, shard, number.
    pub fn file_name(self) -> String {
        format!("e{:010}-s{:04}-{:010}.seg", self.epoch, self.shard, self.number)
    }

    /// The id in a file's name.
    pub fn from_file_name(name: &str) -> Option<Self> {
        let rest = name.strip_prefix('e')?.strip_suffix(".seg")?;
        let (epoch, rest) = rest.split_once("-s")?;
        let (shard, number) = rest.split_once('-')?;
        let (epoch, shard) = (epoch.parse().ok()?, shard.parse().ok()?);
        let id = Self { epoch, shard, number: number.parse().ok()? };
        (id.file_name() == name).then_some(id)
    }

    /// The segment's first bytes.
    pub fn header(self, directory: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(SEGMENT_HEADER_BYTES as usize);
        out.extend_from_slice(SEGMENT_MAGIC);
        out.put_u32(VERSION);
        out.put_u32(u32::from(self.shard));
        out.put_u64(self.epoch);
        out.put_u64(self.number);
        out.put_u64(directory);
        let crc = crc32c::crc32c(&out);
        out.put_u32(crc);
        out.resize(SEGMENT_HEADER_BYTES as usize, 0);
        out
    }

    /// Reads the segment's first bytes.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn parse(bytes: &[u8]) -> Result<SegmentHeader, &'static str> {
        let Some(head) = bytes.get(..SEGMENT_HEADER_BYTES as usize) else {
            let zero = bytes.iter().all(|byte| *byte == 0);
            return if zero { Ok(SegmentHeader::Unmade) } else { Err("too short") };
        };
        if head.iter().all(|byte| *byte == 0) {
            return Ok(SegmentHeader::Unmade);
        }
        if &head[..8] != SEGMENT_MAGIC {
            return Err("the magic is wrong");
        }
        if head[44..].iter().any(|byte| *byte != 0) {
            return Err("reserved bytes are not zero");
        }
        let mut r = Reader::new(&head[8..]);
        let fields = (r.u32(), r.u32(), r.u64(), r.u64(), r.u64(), r.u32());
        let (Ok(version), Ok(shard), Ok(epoch), Ok(number), Ok(directory), Ok(crc)) = fields else {
            return Err("too short");
        };
        if crc != crc32c::crc32c(&head[..40]) {
            return Err("the checksum of the segment's header is wrong");
        }
        if version != VERSION {
            return Ok(SegmentHeader::Version(version));
        }
        let shard = u16::try_from(shard).map_err(|_| "the shard is out of range")?;
        Ok(SegmentHeader::Made(Self { epoch, shard, number }, directory))
    }
}

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// The shard that wrote it.
    pub shard: u16,
    /// The run that wrote it.
    pub epoch: u64,
    /// Counts up from 1 within run and shard.
    pub counter: u64,
    /// Bytes of the body, padding not included.
    pub body_len: u32,
    /// Nothing follows: a clean stop.
    pub end: bool,
    /// Written in mode `async`: frames before it may have been lost with the power.
    pub deferred: bool,
    /// The header checksum of the frame before; 0 for the first.
    pub previous: u32,
    /// Checksum of the body.
    pub body_crc: u32,
}

impl FrameHeader {
    /// Appends the header's bytes; gives its checksum, the next frame's `previous`.
    pub fn encode(&self, salt: u32, out: &mut Vec<u8>) -> u32 {
        let start = out.len();
        out.put_u32(FRAME_MAGIC);
        out.put_u16(VERSION as u16);
        out.put_u16(self.shard);
        out.put_u64(self.epoch);
        out.put_u64(self.counter);
        out.put_u32(self.body_len);
        let end = if self.end { END_FLAG } else { 0 };
        out.put_u32(end | if self.deferred { DEFERRED_FLAG } else { 0 });
        out.put_u32(self.previous);
        out.put_u32(self.body_crc);
        let crc = crc32c::crc32c_append(salt, &out[start..]);
        out.put_u32(crc);
        out.put_u32(0);
        crc
    }

    /// Reads the header at the front of `bytes` and its checksum; `None` if it is none.
    pub fn parse(salt: u32, bytes: &[u8]) -> Option<(Self, u32)> {
        let head = bytes.get(..FRAME_HEADER_BYTES)?;
        let mut r = Reader::new(head);
        let (magic, version, shard) = (r.u32().ok()?, r.u16().ok()?, r.u16().ok()?);
        let (epoch, counter) = (r.u64().ok()?, r.u64().ok()?);
        let (body_len, flags) = (r.u32().ok()?, r.u32().ok()?);
        let (previous, body_crc) = (r.u32().ok()?, r.u32().ok()?);
        let (crc, zero) = (r.u32().ok()?, r.u32().ok()?);
        let sound = magic == FRAME_MAGIC
            && u32::from(version) == VERSION
            && crc == crc32c::crc32c_append(salt, &head[..40])
            && flags & !(END_FLAG | DEFERRED_FLAG) == 0
            && body_len as usize <= BODY_BYTES_MAX
            && zero == 0;
        let header = Self {
            shard,
            epoch,
            counter,
            body_len,
            end: flags & END_FLAG != 0,
            deferred: flags & DEFERRED_FLAG != 0,
            previous,
            body_crc,
        };
        sound.then_some((header, crc))
    }

    /// Bytes of the frame in its segment, padded to 8.
    pub const fn frame_bytes(&self) -> u64 {
        padded(FRAME_HEADER_BYTES as u64 + self.body_len as u64)
    }
}

/// Rounded up to a multiple of 8.
pub const fn padded(bytes: u64) -> u64 {
    bytes.div_ceil(8) * 8
}
