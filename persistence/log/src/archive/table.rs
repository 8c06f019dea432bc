//! The key-value volume as the archive needs it: sled in the engine, a twin on any [`crate::Disk`]
//! in tests.
//!
//! What the archive relies on, and no more: after `sync` everything put before is there after a
//! power loss. What was put since may be there or not, and damage may take anything away without a
//! word: the archive checks for itself what it finds.

use std::fmt::Debug;
use std::io;
use std::path::Path;

/// A key with its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// Opens tables.
pub trait Tables: Send + Sync + Debug {
    /// Opens or makes the table in a directory.
    ///
    /// # Errors
    /// It is damaged, or the device refused; the message is one plain sentence.
    fn open(&self, dir: &Path) -> io::Result<Box<dyn Table>>;
}

/// An ordered map of bytes to bytes. After a failed `put` or `sync` nothing more may be put.
pub trait Table: Send + Sync + Debug {
    /// Puts a value. Durable after `sync`.
    ///
    /// # Errors
    /// The device refused.
    fn put(&self, key: &[u8], value: &[u8]) -> io::Result<()>;

    /// The value of a key.
    ///
    /// # Errors
    /// The device refused.
    fn get(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>>;

    /// The first pair at or behind a key.
    ///
    /// # Errors
    /// The device refused.
    fn next(&self, from: &[u8]) -> io::Result<Option<Pair>>;

    /// The last pair from one key to another, both included.
    ///
    /// # Errors
    /// The device refused.
    fn last(&self, from: &[u8], to: &[u8]) -> io::Result<Option<Pair>>;

    /// Makes everything durable.
    ///
    /// # Errors
    /// The device refused: what was put since the last sync counts as lost.
    fn sync(&self) -> io::Result<()>;

    /// Bytes on disk, about.
    fn bytes(&self) -> u64;
}
