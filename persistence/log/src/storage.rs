//! What a log stands on: files, and the key-value volumes of its archive.

use crate::archive::sled_table::SledTables;
use crate::archive::table::Tables;
use crate::disk::{Disk, LocalDisk};
use std::sync::Arc;

/// The operating system's files and sled, or a twin of both (`testing::MemoryDisk::storage`).
#[derive(Clone, Debug)]
pub struct Storage {
    /// Files and directories.
    pub disk: Arc<dyn Disk>,
    /// Key-value volumes.
    pub tables: Arc<dyn Tables>,
}

impl Storage {
    /// The real ones.
    pub fn local() -> Self {
        Self { disk: Arc::new(LocalDisk), tables: Arc::new(SledTables) }
    }
}
