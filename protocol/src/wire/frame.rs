//! Headers and the edges of frames; checksums.

use super::{FrameError, HEADER_BYTES, Header};
use crate::le::{Reader, Writer};
use alloc::vec::Vec;

/// Header flag: the last 8 bytes of the body are its CRC32C (u32) and four zeros.
pub const CRC_FLAG: u8 = 1;

/// Bytes of the CRC trailer.
const CRC_TRAILER_BYTES: usize = 8;

/// A frame: its header, its body, and how many bytes it took.
pub type Split<'a> = (Header, &'a [u8], usize);

/// The frame at the front of `buffer`: header, body (without a CRC trailer), and how many bytes it
/// took. `None`: more bytes are needed.
///
/// # Errors
/// See [`FrameError`]. The length is checked against `body_max` as soon as the header is there.
pub fn split(buffer: &[u8], body_max: u32) -> Result<Option<Split<'_>>, FrameError> {
    let mut reader = Reader::new(buffer);
    let Ok(header) = read_header(&mut reader) else { return Ok(None) };
    if header.len > body_max {
        return Err(FrameError::TooLarge { len: header.len, limit: body_max });
    }
    if !header.len.is_multiple_of(8) {
        return Err(FrameError::Header("the length is no multiple of 8"));
    }
    if header.flags & !CRC_FLAG != 0 {
        return Err(FrameError::Header("unknown flags"));
    }
    let Ok(body) = reader.take(header.len as usize) else { return Ok(None) };
    let taken = HEADER_BYTES + body.len();
    if header.flags & CRC_FLAG == 0 {
        return Ok(Some((header, body, taken)));
    }
    let Some(split_at) = body.len().checked_sub(CRC_TRAILER_BYTES) else {
        return Err(FrameError::Header("no room for the checksum"));
    };
    let (body, trailer) = body.split_at(split_at);
    let mut trailer = Reader::new(trailer);
    let (crc, zero) = (trailer.u32(), trailer.u32());
    if zero != Ok(0) || crc != Ok(crc32c(body)) {
        return Err(FrameError::Header("wrong checksum"));
    }
    Ok(Some((header, body, taken)))
}

fn read_header(reader: &mut Reader<'_>) -> Result<Header, crate::le::Malformed> {
    Ok(Header {
        len: reader.u32()?,
        kind: reader.u16()?,
        version: reader.u8()?,
        flags: reader.u8()?,
        correlation: reader.u64()?,
    })
}

/// Puts a checksum on the frame that begins at `start` of `out` and ends at its end.
pub fn add_crc(out: &mut Vec<u8>, start: usize) {
    let crc = crc32c(&out[start + HEADER_BYTES..]);
    out.put_u32(crc);
    out.put_u32(0);
    let len = out.len() - start - HEADER_BYTES;
    out[start..start + 4].copy_from_slice(&(len as u32).to_le_bytes());
    out[start + 7] |= CRC_FLAG;
}

/// Begins a frame; gives its start, for [`end`].
pub(super) fn begin(out: &mut Vec<u8>, kind: u16, correlation: u64) -> usize {
    let start = out.len();
    out.put_u32(0);
    out.put_u16(kind);
    out.put_u8(1);
    out.put_u8(0);
    out.put_u64(correlation);
    start
}

/// Pads the body to a multiple of 8 and writes its length.
pub(super) fn end(out: &mut Vec<u8>, start: usize) {
    while !(out.len() - start).is_multiple_of(8) {
        out.push(0);
    }
    let len = out.len() - start - HEADER_BYTES;
    assert!(len <= u32::MAX as usize, "bodies are bounded by their callers");
    out[start..start + 4].copy_from_slice(&(len as u32).to_le_bytes());
}

/// CRC-32C (Castagnoli), reflected, as iSCSI and ext4 use it.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = table();
    let mut crc = !0u32;
    for byte in bytes {
        crc = (crc >> 8) ^ TABLE[((crc ^ u32::from(*byte)) & 0xff) as usize];
    }
    !crc
}

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82F6_3B78 } else { crc >> 1 };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32c_matches_the_check_value() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    }
}
