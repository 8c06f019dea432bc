//! Processes: how the engine starts, how batches become durable or do not, how the archiver
//! follows, and how all of it ends.

use super::{Event, WALL_MS, World};
use crate::clients::Sent;
use crate::engine::Engine;
use crate::faults::Fault;
use crate::model::Found;
use crate::store::{End, Mishap};
use std::time::Duration;
use stockade_protocol::ids::TimestampMs;

/// Holds that ran out while the engine was down get so long, ms.
const GRACE_MS: u64 = 40;
/// After a failed commit the process goes on for so long, us.
const FAIL_US: u64 = 3_000;

impl World {
    /// The wall clock, ms.
    fn wall(&self) -> TimestampMs {
        TimestampMs::new((WALL_MS + self.now_us / 1000).saturating_add_signed(self.skew_ms))
    }

    fn since_start(&self) -> Duration {
        Duration::from_micros(self.now_us)
    }

    /// The process starts: recovery, then the first turn.
    pub(super) fn start(&mut self) -> Found {
        let shard_count = self.rng.range(1, 4) as u16;
        if shard_count != self.model.shards_len() {
            self.counts.hit(Fault::OtherShards);
        }
        let mishap = self.dying(Fault::KillInRecovery, Fault::PowerLossInRecovery);
        let recovered = match self.store.open(shard_count, mishap) {
            Ok(recovered) => recovered,
            Err(_) if self.store.is_down() => {
                let power = mishap == Mishap::Die { power: true };
                let fault = [Fault::KillInRecovery, Fault::PowerLossInRecovery];
                self.hit(fault[usize::from(power)]);
                self.store.crash(power);
                self.after(1_000, Event::Start);
                return Ok(());
            }
            Err(why) => return Err(format!("P2: the engine does not start: {why}")),
        };
        let partition_count = self.model.partition_count();
        let images = Engine::images(&recovered, partition_count);
        self.model.recovered(shard_count, &images, &recovered.catalog.to_image())?;
        self.life += 1;
        let (wall, now_us) = (self.wall(), self.now_us);
        let (engine, first) =
            Engine::start(recovered, partition_count, wall, now_us, GRACE_MS, &mut self.model)?;
        self.trace.say(now_us, || format!("life {} starts: {shard_count} shards", self.life));
        let (now, newest) = (engine.hub.clock.now(), self.model.newest_at());
        if now < newest {
            return Err(format!("P6: the clock starts at {now}, the log is at {newest} already"));
        }
        self.writer.engine(Some(engine.hub.log.clone()));
        self.engine = Some(engine);
        self.stopping = false;
        self.runs_at = vec![None; usize::from(shard_count)];
        self.stalled_until = vec![0; usize::from(shard_count)];
        self.flights = first;
        let life = self.life;
        for shard in 0..shard_count {
            self.wake(shard, 10);
            if self.flights[usize::from(shard)].is_some() {
                let us = self.commit_us();
                self.after(us, Event::Disk { life, shard });
            }
        }
        self.after(2_000, Event::Archive { life });
        Ok(())
    }

    /// Maybe the process is to end within the next piece of work.
    fn dying(&mut self, kill: Fault, power: Fault) -> Mishap {
        if self.quiet || !self.rng.per_mille(4 * self.weather.disk) {
            return Mishap::None;
        }
        let lost = self.rng.below(2) == 0;
        let fault = if lost { power } else { kill };
        if self.may(fault) { Mishap::Die { power: lost } } else { Mishap::None }
    }

    /// The commit thread writes and syncs its batch.
    pub(super) fn commit(&mut self, shard: u16) -> Found {
        let Some(batch) = self.flights[usize::from(shard)].take() else { return Ok(()) };
        let mishap = self.commit_mishap();
        match self.store.commit(shard, &batch.bytes, mishap) {
            End::Done => {
                self.model.synced(usize::from(shard));
                let (life, us) = (self.life, self.rng.range(1, 60));
                self.after(us, Event::Told { life, shard, buffer: batch.bytes });
            }
            End::Died { power } => {
                let died = if power { Fault::PowerLossInCommit } else { Fault::KillInCommit };
                self.hit(died);
                self.end_life(power);
            }
            End::Failed(fault) => {
                self.hit(fault);
                if let Some(engine) = &self.engine {
                    engine.hub.stop_deciding();
                }
                self.after_engine();
                let life = self.life;
                self.after(FAIL_US, Event::Exit { life });
            }
        }
        Ok(())
    }

    fn commit_mishap(&mut self) -> Mishap {
        if self.quiet || !self.rng.per_mille(self.weather.disk / 2) {
            return Mishap::None;
        }
        let (fault, mishap) = match self.rng.below(6) {
            0 => (Fault::KillInCommit, Mishap::Die { power: false }),
            1 => (Fault::PowerLossInCommit, Mishap::Die { power: true }),
            2 => (Fault::FailedWrite, Mishap::Fail(Fault::FailedWrite)),
            3 => (Fault::ShortWrite, Mishap::Fail(Fault::ShortWrite)),
            4 => (Fault::FailedSync, Mishap::Fail(Fault::FailedSync)),
            _ => (Fault::DiskFull, Mishap::Fail(Fault::DiskFull)),
        };
        if self.may(fault) { mishap } else { Mishap::None }
    }

    /// The archiver's round.
    pub(super) fn archive(&mut self) -> Found {
        let us = self.rng.range(1_000, 40_000);
        let life = self.life;
        self.after(us, Event::Archive { life });
        let mut mishap = self.dying(Fault::KillInArchiving, Fault::PowerLossInArchiving);
        let fails = !self.quiet && self.rng.per_mille(4 * self.weather.disk);
        if mishap == Mishap::None && fails && self.may(Fault::ArchiverFailed) {
            mishap = Mishap::Fail(Fault::ArchiverFailed);
        }
        match self.store.side_work(self.since_start(), mishap) {
            End::Done => {}
            End::Failed(fault) => self.hit(fault),
            End::Died { power } => {
                let fault = [Fault::KillInArchiving, Fault::PowerLossInArchiving];
                self.hit(fault[usize::from(power)]);
                self.end_life(power);
            }
        }
        if self.engine.as_ref().is_some_and(|engine| engine.hub.log.pressure()) {
            self.hit(Fault::Pressure);
        }
        Ok(())
    }

    /// The order writer takes some steps.
    pub(super) fn write(&mut self) -> Found {
        let us = self.rng.range(500, 12_000);
        self.after(us, Event::Writer);
        let ended = self.writer.step(self.now_us, &self.model)?;
        for fault in self.writer.happened().into_iter().chain(ended) {
            self.hit(fault);
        }
        for command in self.writer.calls() {
            self.retries.push_back(Sent { command, at_us: 0, tries: 0 });
        }
        Ok(())
    }

    /// The process is gone at this very moment, with or without the machine's power; it comes back.
    pub(super) fn end_life(&mut self, power: bool) {
        self.trace.say(self.now_us, || format!("life {} ends, power lost: {power}", self.life));
        self.engine = None;
        self.writer.engine(None);
        self.life += 1;
        if self.store.crash(power) {
            self.hit(Fault::TornSectors);
        }
        for link in 0..self.links.len() {
            self.cut(link);
        }
        let us = self.rng.pick(&[500, 5_000, 60_000, 300_000]);
        self.after(us, Event::Start);
    }

    /// The process ends by itself: after a drain, or after a commit failed.
    pub(super) fn exit(&mut self) -> Found {
        let clean = self.engine.as_ref().is_some_and(Engine::is_drained);
        if clean && self.flights.iter().all(Option::is_none) {
            let now = self.since_start();
            self.store.close(now).map_err(|why| format!("P2: a clean stop fails: {why}"))?;
        }
        self.end_life(false);
        Ok(())
    }
}
