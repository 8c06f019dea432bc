//! Trimming: which volumes nobody needs any more, and their removal.

use super::archiver::{AckSample, Archiver};
use crate::crash;
use crate::error::OpenError;
use crate::files::failed;
use crate::shared::lock;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use stockade_protocol::{Lsn, PartitionId};

impl Archiver {
    /// Deletes volumes whose entries nobody needs: below the newest snapshot, and below what every
    /// consumer acknowledged `keep_after_ack` ago.
    pub(super) fn trim(&mut self, now: Duration) -> Result<(), OpenError> {
        let Some(acked) = self.acked_long_ago(now) else { return Ok(()) };
        let floor = lock(&self.shared.floor).clone();
        let needed = |partition: PartitionId| {
            let acked = acked.get(&partition).copied().unwrap_or_default();
            floor.of(partition).snapshot.min(acked)
        };
        let (mut gone, mut kept_from) = (Vec::new(), BTreeMap::new());
        {
            let archive = lock(&self.shared.archive);
            let count = archive.volumes.len();
            for volume in archive.volumes.iter().take(count.saturating_sub(1)) {
                let held = volume.spans.iter().filter(|(p, (_, last))| *last > needed(**p));
                let held: BTreeSet<PartitionId> = held.map(|(p, _)| *p).collect();
                if !held.is_empty() {
                    // Partitions with few entries get no snapshot of their own accord.
                    let read = |p: &PartitionId| acked.get(p) >= volume.spans.get(p).map(|s| &s.1);
                    if held.iter().all(read) {
                        self.blocking = held;
                    }
                    break;
                }
                gone.push((volume.number, volume.path.clone()));
                kept_from.extend(volume.spans.iter().map(|(p, (_, last))| (*p, last.next())));
            }
        }
        let Some((last_number, _)) = gone.last() else { return Ok(()) };
        let volume_first = last_number + 1;
        self.change_floor(|floor| {
            floor.volume_first = volume_first;
            for (partition, first) in &kept_from {
                let of = floor.partitions.entry(*partition).or_default();
                of.first_kept = *first;
                of.acked = acked.get(partition).copied().unwrap_or_default();
            }
        })?;
        crash::point("in_trim");
        lock(&self.shared.archive).volumes.retain(|volume| volume.number >= volume_first);
        for (_, path) in gone {
            self.shared.directory.disk().remove_dir_all(&path).map_err(failed("delete", &path))?;
        }
        Ok(())
    }

    /// Cursors as they were at least `keep_after_ack` ago; `None` without consumers or too early.
    fn acked_long_ago(&mut self, now: Duration) -> Option<BTreeMap<PartitionId, Lsn>> {
        let keep = self.shared.config.keep_after_ack;
        let acked: Option<BTreeMap<_, _>> = {
            let consumers = lock(&self.shared.consumers);
            self.shared.partitions().map(|p| Some((p, consumers.acked_by_all(p)?))).collect()
        };
        let Some(acked) = acked else {
            self.samples.clear();
            return None;
        };
        // A consumer that joined since may be behind every sample.
        for sample in &mut self.samples {
            for (partition, lsn) in &mut sample.acked {
                *lsn = (*lsn).min(acked.get(partition).copied().unwrap_or_default());
            }
        }
        if self.samples.back().is_none_or(|sample| now - sample.at >= keep / 16) {
            self.samples.push_back(AckSample { at: now, acked });
        }
        let mut found = None;
        while self.samples.front().is_some_and(|sample| now - sample.at >= keep) {
            found = self.samples.pop_front().map(|sample| sample.acked);
        }
        found
    }
}
