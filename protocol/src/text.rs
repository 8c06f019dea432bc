//! Short checked texts: payment references, reasons, consumer names.

use crate::limits::{CONSUMER_NAME_BYTES_MAX, DATA_BYTES_MAX, TEXT_BYTES_MAX};
use alloc::boxed::Box;
use core::fmt;

/// A text that breaks the rules of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} must be {least}..={most} bytes of UTF-8 without control characters")]
pub struct TextError {
    /// The argument at fault.
    pub what: &'static str,
    /// Least bytes.
    pub least: usize,
    /// Most bytes.
    pub most: usize,
}

/// Checks bytes against a length range and the common rule: UTF-8, no control characters (SQL and
/// logs choke on them).
pub fn check<'a>(
    what: &'static str,
    bytes: &'a [u8],
    least: usize,
    most: usize,
) -> Result<&'a str, TextError> {
    let error = TextError { what, least, most };
    if bytes.len() < least || bytes.len() > most {
        return Err(error);
    }
    let text = core::str::from_utf8(bytes).map_err(|_| error)?;
    if text.chars().any(char::is_control) { Err(error) } else { Ok(text) }
}

macro_rules! text_type {
    ($(#[$doc:meta])* $name:ident, $what:literal, $least:expr, $most:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Box<str>);

        impl $name {
            /// Checks and copies.
            ///
            /// # Errors
            /// Too short, too long, not UTF-8, or with control characters.
            pub fn new(bytes: &[u8]) -> Result<Self, TextError> {
                check($what, bytes, $least, $most).map(|text| Self(text.into()))
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text_type! {
    /// The payment provider's reference, 1..=128 bytes.
    PaymentRef, "payment reference", 1, TEXT_BYTES_MAX
}
text_type! {
    /// Why an order was cancelled, 0..=128 bytes.
    Reason, "reason", 0, TEXT_BYTES_MAX
}

impl Reason {
    /// The reason of a cancel that came from `withdraw`.
    pub fn withdrawn() -> Self {
        Self("withdrawn".into())
    }

    /// No reason given.
    pub fn none() -> Self {
        Self("".into())
    }
}

/// The name of a feed consumer: 1..=64 of letters, digits, `-`, `_` and `.`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConsumerName(Box<str>);

impl ConsumerName {
    /// Checks and copies.
    ///
    /// # Errors
    /// Empty, too long, or with other characters.
    pub fn new(bytes: &[u8]) -> Result<Self, TextError> {
        let (what, most) = ("consumer", CONSUMER_NAME_BYTES_MAX);
        let text = check(what, bytes, 1, most)?;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if text.chars().all(plain) {
            Ok(Self(text.into()))
        } else {
            Err(TextError { what, least: 1, most })
        }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ConsumerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Opaque bytes that travel with an order into the feed and SQL, 0..=512.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct OrderData(Option<Box<[u8]>>);

impl OrderData {
    /// Checks the length and copies; `None` if too long.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        match bytes.len() {
            0 => Some(Self(None)),
            1..=DATA_BYTES_MAX => Some(Self(Some(bytes.into()))),
            _ => None,
        }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or(&[])
    }
}
