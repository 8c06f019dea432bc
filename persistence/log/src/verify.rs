//! Looks through a stopped directory: everything that a start would read, and every archived batch
//! besides.

use crate::api::{Config, Fold};
use crate::archive::decode;
use crate::directory::Directory;
use crate::error::OpenError;
use crate::recovery::{Recovery, read};
use crate::storage::Storage;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use stockade_protocol::image::{CatalogImage, PartitionImage};
use stockade_protocol::{Entry, Lsn, PartitionId};

/// What a look found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Partitions with entries.
    pub partitions: u64,
    /// Entries that can be read.
    pub entries: u64,
    /// Plain sentences (a torn tail that a start would cut, say).
    pub warnings: Vec<String>,
}

/// Rules that nothing calls.
pub(crate) struct NoFold;

impl Fold for NoFold {
    fn partition(
        &self,
        _: PartitionId,
        _: PartitionImage,
        _: &[Entry],
    ) -> Result<PartitionImage, String> {
        Err("a directory that is looked at is not folded".into())
    }

    fn catalog(&self, _: CatalogImage, _: &[Entry]) -> Result<CatalogImage, String> {
        Err("a directory that is looked at is not folded".into())
    }
}

/// Checks every byte that matters.
///
/// # Errors
/// The directory is in use, or damaged: the place is named.
pub fn verify(dir: &Path) -> Result<Report, OpenError> {
    let mut report = Report::default();
    walk(dir, &mut report, &mut |_| Ok(()))?;
    Ok(report)
}

/// Writes every entry that can be read, one a line, partition by partition.
///
/// # Errors
/// As [`verify`]; or the output cannot be written.
pub fn dump(dir: &Path, out: &mut dyn Write) -> Result<Report, OpenError> {
    let mut report = Report::default();
    walk(dir, &mut report, &mut |entry| {
        let Entry { partition, lsn, at, event } = entry;
        writeln!(out, "partition={partition} lsn={lsn} at={at} kind={} {event:?}", event.word())
    })?;
    Ok(report)
}

fn walk(
    dir: &Path,
    report: &mut Report,
    see: &mut dyn FnMut(Entry) -> io::Result<()>,
) -> Result<(), OpenError> {
    let directory = Directory::take_existing(Storage::local(), dir)?;
    let config = Config::new(dir, 1, directory.partitions);
    let recovery = read(config, Arc::new(NoFold), directory)?;
    report.warnings = recovery.warnings().to_vec();
    for partition in recovery.partitions() {
        let before = report.entries;
        walk_partition(&recovery, partition, report, see)?;
        report.partitions += u64::from(report.entries > before);
    }
    Ok(())
}

fn walk_partition(
    recovery: &Recovery,
    partition: PartitionId,
    report: &mut Report,
    see: &mut dyn FnMut(Entry) -> io::Result<()>,
) -> Result<(), OpenError> {
    let mut next = recovery.first_kept(partition);
    let mut take = |entries: Vec<Entry>| -> Result<(), OpenError> {
        for entry in entries {
            report.entries += 1;
            see(entry).map_err(|source| OpenError::Io {
                doing: "write",
                path: "standard output".into(),
                source,
            })?;
        }
        Ok(())
    };
    while let Some((entries, last)) = recovery.batch(partition, next)? {
        take(entries)?;
        next = last.next();
    }
    Ok(())
}

impl Recovery {
    fn first_kept(&self, partition: PartitionId) -> Lsn {
        self.floor().of(partition).first_kept
    }

    /// Decoded entries from `from` to the end of the run that holds it; `None` behind the last.
    fn batch(
        &self,
        partition: PartitionId,
        from: Lsn,
    ) -> Result<Option<(Vec<Entry>, Lsn)>, OpenError> {
        let Some(run) = self.run(partition, from)? else { return Ok(None) };
        let entries = decode(&run, from)
            .map_err(|what| OpenError::Archive { path: "archive".into(), what })?;
        Ok(Some((entries, run.last)))
    }
}
