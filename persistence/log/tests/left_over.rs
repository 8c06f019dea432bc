//! A volume whose making was cut short leaves a directory behind. The next start makes a volume of
//! the same name and puts into it what only the journals hold; it used to delete that volume with
//! the left-overs, after the floor was written and before the journals went: everything in it was
//! lost. Found by the simulator (a failed sync, then a kill, then a restart).

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;
use stockade_log::testing::{Fault, MemoryDisk};
use stockade_log::{Config, Fold, open_on};
use stockade_protocol::entry::Entry;
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::image::{CatalogImage, PartitionImage};
use stockade_protocol::{Event, Lsn, PartitionId, SaleId};

struct Rules;

impl Fold for Rules {
    fn partition(
        &self,
        _: PartitionId,
        image: PartitionImage,
        _: &[Entry],
    ) -> Result<PartitionImage, String> {
        Ok(image)
    }

    fn catalog(&self, image: CatalogImage, _: &[Entry]) -> Result<CatalogImage, String> {
        Ok(image)
    }
}

#[test]
fn a_volume_made_anew_in_recovery_is_no_left_over() {
    let config = Config::new("/data", 1, 1);
    let open =
        |disk: &MemoryDisk| open_on(disk.storage(), config.clone(), Arc::new(Rules)).unwrap();
    let entry = Entry {
        partition: PartitionId::CATALOG,
        lsn: Lsn::FIRST,
        at: TimestampMs::new(1),
        event: Event::SalePaused(SaleId::new(1).unwrap()),
    };
    let disk = MemoryDisk::new(1);
    let mut run = open(&disk).start_stepped().unwrap();
    let mut batch = Vec::new();
    entry.encode(&mut batch);
    run.journals[0].commit(&batch).unwrap();
    // The archiver begins its first volume, and cannot finish it.
    disk.inject(Fault::sync("/data/archive/v"));
    assert!(run.side.round(Duration::from_secs(1)).is_err());
    let disk = disk.kill();
    drop(open(&disk).start_stepped().unwrap());
    let recovery = open(&disk.power_loss());
    assert_eq!(recovery.last_lsn(PartitionId::CATALOG), Lsn::FIRST);
    let mut seen = Vec::new();
    let mut see = |entry| {
        seen.push(entry);
        Ok(())
    };
    recovery.replay(PartitionId::CATALOG, &mut see).unwrap();
    assert_eq!(seen, [entry]);
}
