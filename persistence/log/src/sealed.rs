//! A checksummed envelope for small whole files: magic, version, length, CRC32C, body.
//!
//! ```text
//! off size field
//!   0    8 magic
//!   8    4 version
//!  12    4 crc        CRC32C of the body
//!  16    8 len        bytes of the body
//!  24      body
//! ```

use crate::error::OpenError;
use crate::files::damaged;
use std::path::Path;

/// Bytes before the body.
pub const HEADER_BYTES: usize = 24;

/// Wraps a body.
pub fn seal(magic: &[u8; 8], version: u32, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_BYTES + body.len());
    out.extend_from_slice(magic);
    out.extend_from_slice(&version.to_le_bytes());
    out.extend_from_slice(&crc32c::crc32c(body).to_le_bytes());
    out.extend_from_slice(&(body.len() as u64).to_le_bytes());
    out.extend_from_slice(body);
    out
}

/// Checks and unwraps.
///
/// # Errors
/// Any byte is not what was written, or the version is another one.
pub fn unseal<'a>(
    path: &Path,
    magic: &[u8; 8],
    version: u32,
    bytes: &'a [u8],
) -> Result<&'a [u8], OpenError> {
    let Some((head, body)) = bytes.split_at_checked(HEADER_BYTES) else {
        return Err(damaged(path, bytes.len() as u64, "the file ends within its header"));
    };
    if &head[..8] != magic {
        return Err(damaged(path, 0, "the magic is wrong"));
    }
    let word =
        |at: usize| head[at..].first_chunk::<4>().map_or(0, |chunk| u32::from_le_bytes(*chunk));
    let len = head[16..].first_chunk::<8>().map_or(0, |chunk| u64::from_le_bytes(*chunk));
    if word(8) != version {
        return Err(damaged(path, 8, format!("version {} is not known", word(8))));
    }
    if len != body.len() as u64 {
        return Err(damaged(path, 16, "the length is wrong"));
    }
    if word(12) != crc32c::crc32c(body) {
        return Err(damaged(path, HEADER_BYTES as u64, "the checksum is wrong"));
    }
    Ok(body)
}
