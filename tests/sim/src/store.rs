//! The disk of the world: the engine's own log (journals, archive, snapshots, floor, recovery) on a
//! disk in memory that fails, fills up and loses power where it is told.

use crate::faults::Fault;
use crate::rng::Rng;
use std::time::Duration;
use stockade_engine::recover::{Recovered, recover_stepped};
use stockade_log::testing::{Fault as Failure, FaultKind, MemoryDisk};
use stockade_log::{Config, Journal, SideWork};

/// What is to happen to a piece of work of the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mishap {
    /// Nothing.
    None,
    /// The process ends within it, maybe because the power goes.
    Die {
        /// The power goes.
        power: bool,
    },
    /// It fails in this way.
    Fail(Fault),
}

/// What became of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It is done: what was written is durable.
    Done,
    /// The process is gone.
    Died {
        /// The power went.
        power: bool,
    },
    /// It failed.
    Failed(Fault),
}

/// See the module.
#[derive(Debug)]
pub struct Store {
    rng: Rng,
    disk: MemoryDisk,
    config: Config,
    journals: Vec<Journal>,
    side: Option<SideWork>,
    /// What was written may be torn if the power goes now.
    unsynced: bool,
}

impl Store {
    /// An empty disk. Segments, volumes and snapshots are small, so that they roll often.
    pub fn new(partition_count: u16, mut rng: Rng) -> Self {
        let config = Config {
            segment_bytes: rng.pick(&[2 << 10, 16 << 10, 64 << 10]),
            volume_bytes: rng.pick(&[4 << 10, 32 << 10, 256 << 10]),
            snapshot_bytes: rng.pick(&[1 << 10, 8 << 10, 64 << 10]),
            segments_unarchived_max: rng.pick(&[6, 16, 40]),
            keep_after_ack: Duration::from_millis(rng.pick(&[0, 50, 3_600_000])),
            ..Config::new("/data", 1, partition_count)
        };
        let disk = MemoryDisk::new(rng.bits());
        Self { rng, disk, config, journals: Vec::new(), side: None, unsynced: false }
    }

    /// Recovers. An error is the log's own sentence.
    ///
    /// # Errors
    /// It does not start: because it died on the way ([`Self::is_down`]), or because it refuses.
    pub fn open(&mut self, shard_count: u16, mishap: Mishap) -> Result<Recovered, String> {
        self.config.shards = shard_count;
        if let Mishap::Die { power } = mishap {
            let within = self.rng.range(1, 24);
            self.die_within(power, within);
        }
        let (mut recovered, side) = recover_stepped(self.disk.storage(), self.config.clone())?;
        self.live_on();
        self.journals = std::mem::take(&mut recovered.journals);
        self.side = Some(side);
        Ok(recovered)
    }

    fn die_within(&self, power: bool, operations: u64) {
        let at = self.disk.operations() + operations;
        if power { self.disk.crash_at(at) } else { self.disk.kill_at(at) }
    }

    /// The chance went by unused.
    fn live_on(&self) {
        self.disk.crash_at(u64::MAX);
        self.disk.kill_at(u64::MAX);
    }

    /// The process died on the way.
    pub fn is_down(&self) -> bool {
        self.disk.is_down()
    }

    /// A batch becomes durable, or not.
    pub fn commit(&mut self, shard: u16, bytes: &[u8], mishap: Mishap) -> End {
        match mishap {
            Mishap::None => {}
            Mishap::Die { power } => {
                let step = self.rng.range(1, 2);
                self.unsynced = step == 2;
                self.die_within(power, step);
            }
            Mishap::Fail(fault) => self.disk.inject(Failure::new(kind_of(fault), "journal")),
        }
        let result = self.journals[usize::from(shard)].commit(bytes);
        match (result, mishap) {
            (Ok(()), _) => {
                self.live_on();
                self.disk.clear_faults();
                End::Done
            }
            (Err(_), Mishap::Die { power }) => End::Died { power },
            (Err(_), Mishap::Fail(fault)) => End::Failed(fault),
            (Err(_), Mishap::None) => End::Failed(Fault::DiskFull),
        }
    }

    /// One round of the archiver and of the makers of segments.
    pub fn side_work(&mut self, now: Duration, mishap: Mishap) -> End {
        match mishap {
            Mishap::None => {}
            Mishap::Die { power } => {
                let within = self.rng.range(1, 30);
                self.die_within(power, within);
            }
            Mishap::Fail(_) => {
                let places = ["archive", "floor", "snapshots", "consumers"];
                let kinds =
                    [FaultKind::Write, FaultKind::Sync, FaultKind::NoSpace, FaultKind::Name];
                let (place, kind) = (self.rng.pick(&places), self.rng.pick(&kinds));
                self.disk.inject(Failure::new(kind, place).after(self.rng.below(3) as u32));
            }
        }
        let Some(side) = &mut self.side else { return End::Done };
        let made = side.make_segments().is_ok();
        let done = side.round(now).is_ok();
        let down = self.disk.is_down();
        self.disk.clear_faults();
        if !down {
            self.live_on();
        }
        match mishap {
            Mishap::Die { power } if down => End::Died { power },
            _ if made && done => End::Done,
            _ => End::Failed(Fault::ArchiverFailed),
        }
    }

    /// The process is gone; true if the power went while a frame was not synced.
    pub fn crash(&mut self, power: bool) -> bool {
        self.journals.clear();
        self.side = None;
        self.disk = if power { self.disk.power_loss() } else { self.disk.kill() };
        std::mem::take(&mut self.unsynced) && power
    }

    /// A clean stop: end frames, and everything into the archive.
    ///
    /// # Errors
    /// The disk failed, which it was not told to.
    pub fn close(&mut self, now: Duration) -> Result<(), String> {
        for journal in self.journals.drain(..) {
            journal.close().map_err(|error| error.to_string())?;
        }
        let side = self.side.take();
        side.map_or(Ok(()), |side| side.finish(now).map_err(|error| error.to_string()))
    }
}

const fn kind_of(fault: Fault) -> FaultKind {
    match fault {
        Fault::ShortWrite => FaultKind::ShortWrite,
        Fault::FailedSync => FaultKind::Sync,
        Fault::DiskFull => FaultKind::NoSpace,
        _ => FaultKind::Write,
    }
}
