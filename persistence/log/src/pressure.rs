//! Why reserves must be answered `busy`: reasons that come and go by themselves, each cleared only
//! by the part that set it.
//!
//! One word, so that a shard's turn looks at it with one load.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A reason that one part of the log sets and clears.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Reason {
    /// More segments are not archived than `segments_unarchived_max`; by whoever changes the list.
    ArchiverBehind = 1,
    /// The archiver's last round failed; by the archiver.
    ArchiverFails = 2,
    /// The directory is larger than `disk_bytes_max`; by the archiver's housekeeping.
    DiskCap = 4,
}

/// One journal cannot get its next segment.
const STARVING: u32 = 1 << 8;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Pressure(Arc<AtomicU32>);

/// A journal has no next segment as long as this is there.
#[derive(Debug)]
pub struct Starving(Pressure);

impl Pressure {
    /// There is a reason.
    pub fn any(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }

    /// Sets or clears a reason; only its owner calls this.
    pub fn set(&self, reason: Reason, holds: bool) {
        if holds {
            self.0.fetch_or(reason as u32, Ordering::AcqRel);
        } else {
            self.0.fetch_and(!(reason as u32), Ordering::AcqRel);
        }
    }

    /// A journal cannot get its next segment, until the guard is dropped.
    pub fn starve(&self) -> Starving {
        self.0.fetch_add(STARVING, Ordering::AcqRel);
        Starving(self.clone())
    }

    /// The reasons that hold, as words for people.
    pub fn reasons(&self) -> Vec<&'static str> {
        let word = self.0.load(Ordering::Acquire);
        let has = |reason: Reason| word & reason as u32 != 0;
        let reasons = [
            (has(Reason::ArchiverBehind), "the archiver is behind"),
            (has(Reason::ArchiverFails), "the archiver fails"),
            (has(Reason::DiskCap), "the disk cap is reached"),
            (word >= STARVING, "there is no next journal segment"),
        ];
        reasons.iter().filter(|(holds, _)| *holds).map(|(_, words)| *words).collect()
    }
}

impl Drop for Starving {
    fn drop(&mut self) {
        self.0.0.fetch_sub(STARVING, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_cleared_only_by_its_owner() {
        let pressure = Pressure::default();
        let starving = [pressure.starve(), pressure.starve()];
        pressure.set(Reason::ArchiverFails, true);
        pressure.set(Reason::ArchiverBehind, false);
        pressure.set(Reason::ArchiverFails, false);
        assert_eq!(pressure.reasons(), ["there is no next journal segment"]);
        let [one, other] = starving;
        drop(one);
        assert!(pressure.any(), "the other journal still has none");
        drop(other);
        assert!(!pressure.any());
    }
}
