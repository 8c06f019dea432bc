//! Twins for tests and simulation: a disk in memory that loses power, fills up and fails, and a
//! table on it that behaves as sled does. Everything follows from a seed.
//!
//! ```
//! use stockade_log::testing::{Fault, MemoryDisk};
//! use stockade_log::{Config, open_on};
//! # use std::sync::Arc;
//! # use stockade_protocol::{Entry, PartitionId, image::{CatalogImage, PartitionImage}};
//! # struct Rules;
//! # impl stockade_log::Fold for Rules {
//! #     fn partition(&self, _: PartitionId, image: PartitionImage, _: &[Entry])
//! #         -> Result<PartitionImage, String> { Ok(image) }
//! #     fn catalog(&self, image: CatalogImage, _: &[Entry]) -> Result<CatalogImage, String> {
//! #         Ok(image)
//! #     }
//! # }
//! let disk = MemoryDisk::new(7);
//! let mut config = Config::new("/data", 2, 4);
//! config.segment_bytes = 4096;
//! let started = open_on(disk.storage(), config.clone(), Arc::new(Rules)).unwrap();
//! let stepped = started.start_stepped().unwrap();
//! disk.inject(Fault::sync("journal"));
//! let after = disk.power_loss();
//! assert!(disk.is_down());
//! assert!(open_on(after.storage(), config, Arc::new(Rules)).is_ok());
//! ```

mod data;
mod faults;
mod memory_disk;
mod rng;
mod table;
mod tree;

pub use faults::{Fault, FaultKind};
pub use memory_disk::MemoryDisk;
pub use rng::Rng;
