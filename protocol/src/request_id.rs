//! The caller's idempotency key.
//!
//! A decimal in 1..2^62 without leading zeros stands for itself. Any other text of 1..=64 bytes (a
//! UUID, say) is folded to 62 bits with bit 62 set, so the two kinds never meet. The text itself is
//! kept for log, feed and SQL. All-digit texts that are no such decimal (`0`, 2^62 and more) are
//! refused, except that one with a leading zero (`007`) is text.

use crate::limits::REQUEST_TEXT_BYTES_MAX;
use crate::routing::mix;
use crate::text::{TextError, check};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use core::fmt;
use core::num::NonZeroU64;

/// Set in the key of every request id that is text.
const TEXT_BIT: u64 = 1 << 62;

/// The key that request ids are compared by: a decimal's value, or the fold of a text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestKey(NonZeroU64);

impl RequestKey {
    /// The plain number.
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// From a stored number; `None` for 0.
    pub const fn from_raw(raw: u64) -> Option<Self> {
        match NonZeroU64::new(raw) {
            Some(raw) => Some(Self(raw)),
            None => None,
        }
    }

    /// True if the request id was text.
    pub const fn is_text(self) -> bool {
        self.get() & TEXT_BIT != 0
    }
}

/// A request id: its key and, where it was text, the text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RequestId {
    key: RequestKey,
    text: Option<Box<str>>,
}

impl RequestId {
    /// A decimal request id; `None` outside 1..2^62.
    pub const fn from_number(number: u64) -> Option<Self> {
        if number >= TEXT_BIT {
            return None;
        }
        match RequestKey::from_raw(number) {
            Some(key) => Some(Self { key, text: None }),
            None => None,
        }
    }

    /// Reads a request id as callers write it.
    ///
    /// # Errors
    /// Empty, longer than 64 bytes, not UTF-8, with control characters, or all digits but outside
    /// 1..2^62.
    pub fn parse(bytes: &[u8]) -> Result<Self, TextError> {
        let error = TextError { what: "request id", least: 1, most: REQUEST_TEXT_BYTES_MAX };
        let text = check(error.what, bytes, error.least, error.most)?;
        let digits = text.bytes().all(|b| b.is_ascii_digit());
        if digits && (text == "0" || !text.starts_with('0')) {
            let what = "request id (of digits alone: 1 to 2^62 - 1)";
            let error = TextError { what, ..error };
            return text.parse().ok().and_then(Self::from_number).ok_or(error);
        }
        let key = NonZeroU64::new(fold(bytes)).map(RequestKey).ok_or(error)?;
        Ok(Self { key, text: Some(text.into()) })
    }

    /// What request ids are compared by.
    pub const fn key(&self) -> RequestKey {
        self.key
    }

    /// The text, if the id is not a decimal.
    pub fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// The id as callers write it.
    pub fn to_text(&self) -> String {
        match &self.text {
            Some(text) => String::from(&**text),
            None => format!("{}", self.key.get()),
        }
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.text {
            Some(text) => write!(f, "RequestId({text:?})"),
            None => write!(f, "RequestId({})", self.key.get()),
        }
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.text {
            Some(text) => f.write_str(text),
            None => fmt::Display::fmt(&self.key.get(), f),
        }
    }
}

/// The documented fold: `h = length`, then for each 8 bytes (little-endian, the last zero-padded)
/// `h = mix(h ^ chunk)`; the low 62 bits, bit 62 set.
fn fold(bytes: &[u8]) -> u64 {
    let mut h = bytes.len() as u64;
    for chunk in bytes.chunks(8) {
        let mut word = [0u8; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        h = mix(h ^ u64::from_le_bytes(word));
    }
    (h & (TEXT_BIT - 1)) | TEXT_BIT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_stand_for_themselves_and_texts_set_bit_62() {
        for (input, key) in [("1", Some(1)), ("4611686018427387903", Some(TEXT_BIT - 1))] {
            assert_eq!(RequestId::parse(input.as_bytes()).ok().map(|r| r.key().get()), key);
        }
        for refused in ["", "0", "4611686018427387904", "99999999999999999999999", "a\nb"] {
            assert!(RequestId::parse(refused.as_bytes()).is_err(), "{refused:?}");
        }
        assert!(RequestId::parse(&[b'x'; 65]).is_err());
        assert!(RequestId::parse(&[0xff]).is_err());
        for text in ["007", "a", "-1", "+1", " 1", "1.0", "b1946ac9-2492-4d23"] {
            let id = RequestId::parse(text.as_bytes()).unwrap();
            assert!(id.key().is_text() && id.key().get() < 1 << 63);
            assert_eq!(id.to_text(), text);
        }
    }
}
