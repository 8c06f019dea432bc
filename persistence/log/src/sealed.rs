//! A checksummed envelope for small whole files. Its layout never changes, so that every release
//! can tell a version that it does not know from damage.
//!
//! ```text
//! off size field
//!   0    8 magic
//!   8    4 crc        CRC32C of everything behind it
//!  12    4 version    of the body
//!  16    8 directory  the id of the data directory that the file belongs to
//!  24    8 len        bytes of the body
//!  32      body
//! ```

use crate::error::OpenError;
use crate::files::damaged;
use std::path::Path;

/// Bytes before the body.
pub const HEADER_BYTES: usize = 32;
const CRC_END: usize = 12;

/// What kind of file it is.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// First bytes.
    pub magic: &'static [u8; 8],
    /// Version of the body that is written and read.
    pub version: u32,
}

/// Wraps a body.
pub fn seal(kind: Kind, directory: u64, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_BYTES + body.len());
    out.extend_from_slice(kind.magic);
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&kind.version.to_le_bytes());
    out.extend_from_slice(&directory.to_le_bytes());
    out.extend_from_slice(&(body.len() as u64).to_le_bytes());
    out.extend_from_slice(body);
    let crc = crc32c::crc32c(&out[CRC_END..]);
    out[8..CRC_END].copy_from_slice(&crc.to_le_bytes());
    out
}

/// Checks and unwraps: the directory's id and the body.
///
/// # Errors
/// Any byte is not what was written, or the version is another one.
pub fn open<'a>(path: &Path, kind: Kind, bytes: &'a [u8]) -> Result<(u64, &'a [u8]), OpenError> {
    let Some((head, body)) = bytes.split_at_checked(HEADER_BYTES) else {
        return Err(damaged(path, bytes.len() as u64, "the file ends within its header"));
    };
    let word = |at: usize| head[at..].first_chunk().map_or(0, |c| u32::from_le_bytes(*c));
    let long = |at: usize| head[at..].first_chunk().map_or(0, |c| u64::from_le_bytes(*c));
    if &head[..8] != kind.magic {
        return Err(damaged(path, 0, "the magic is wrong"));
    }
    if word(8) != crc32c::crc32c(&bytes[CRC_END..]) {
        return Err(damaged(path, 8, "the checksum is wrong"));
    }
    if word(12) != kind.version {
        return Err(OpenError::Version { file: path.into(), found: word(12), known: kind.version });
    }
    if long(24) != body.len() as u64 {
        return Err(damaged(path, 24, "the length is wrong"));
    }
    Ok((long(16), body))
}

/// As [`open`], for a file of a directory that is known.
///
/// # Errors
/// As [`open`]; or the file is another directory's.
pub fn unseal<'a>(
    path: &Path,
    kind: Kind,
    directory: u64,
    bytes: &'a [u8],
) -> Result<&'a [u8], OpenError> {
    let (found, body) = open(path, kind, bytes)?;
    if found != directory {
        return Err(OpenError::Foreign {
            file: path.into(),
            what: "it was written in another data directory".into(),
        });
    }
    Ok(body)
}
