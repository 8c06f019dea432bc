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

impl SegmentId {
    /// The file's name: sorts by epoch, shard, number.
    pub fn file_name(self) -> String {
        format!("e{:010}-s{:04}-{:010}.seg", self.epoch, self.shard, self.number)
    }

    /// The segment's first bytes.
    pub fn header(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(SEGMENT_HEADER_BYTES as usize);
        out.extend_from_slice(SEGMENT_MAGIC);
        out.put_u32(VERSION);
        out.put_u32(u32::from(self.shard));
        out.put_u64(self.epoch);
        out.put_u64(self.number);
        let crc = crc32c::crc32c(&out);
        out.put_u32(crc);
        out.resize(SEGMENT_HEADER_BYTES as usize, 0);
        out
    }

    /// Reads the segment's first bytes. `Ok(None)`: all zero, a segment that was being made.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, &'static str> {
        let Some(head) = bytes.get(..SEGMENT_HEADER_BYTES as usize) else {
            return if bytes.iter().all(|byte| *byte == 0) { Ok(None) } else { Err("too short") };
        };
        if head.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        if &head[..8] != SEGMENT_MAGIC {
            return Err("the magic is wrong");
        }
        if head[36..].iter().any(|byte| *byte != 0) {
            return Err("reserved bytes are not zero");
        }
        let mut r = Reader::new(&head[8..]);
        let fields = (r.u32(), r.u32(), r.u64(), r.u64(), r.u32());
        let (Ok(version), Ok(shard), Ok(epoch), Ok(number), Ok(crc)) = fields else {
            return Err("too short");
        };
        if crc != crc32c::crc32c(&head[..32]) {
            return Err("the checksum of the segment's header is wrong");
        }
        if version != VERSION {
            return Err("the version is not known");
        }
        let shard = u16::try_from(shard).map_err(|_| "the shard is out of range")?;
        Ok(Some(Self { epoch, shard, number }))
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
    pub fn encode(&self, out: &mut Vec<u8>) -> u32 {
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
        let crc = crc32c::crc32c(&out[start..]);
        out.put_u32(crc);
        out.put_u32(0);
        crc
    }

    /// Reads the header at the front of `bytes` and its checksum; `None` if it is none.
    pub fn parse(bytes: &[u8]) -> Option<(Self, u32)> {
        let head = bytes.get(..FRAME_HEADER_BYTES)?;
        let mut r = Reader::new(head);
        let (magic, version, shard) = (r.u32().ok()?, r.u16().ok()?, r.u16().ok()?);
        let (epoch, counter) = (r.u64().ok()?, r.u64().ok()?);
        let (body_len, flags) = (r.u32().ok()?, r.u32().ok()?);
        let (previous, body_crc) = (r.u32().ok()?, r.u32().ok()?);
        let (crc, zero) = (r.u32().ok()?, r.u32().ok()?);
        let sound = magic == FRAME_MAGIC
            && u32::from(version) == VERSION
            && crc == crc32c::crc32c(&head[..40])
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
