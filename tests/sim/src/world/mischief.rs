//! What goes wrong by itself: processes end, power goes, shards and clients stall, clocks step.

use super::{Event, World};
use crate::faults::Fault;

impl World {
    /// Maybe something goes wrong now.
    pub(super) fn mischief(&mut self) {
        let us = self.rng.range(1, 2 * self.weather.mischief_every_us);
        self.after(us, Event::Mischief);
        if self.quiet || !self.rng.per_mille(self.weather.mischief) {
            return;
        }
        let fault = self.rng.pick(&[
            Fault::Kill,
            Fault::PowerLoss,
            Fault::CleanStop,
            Fault::ShardStall,
            Fault::ShardStall,
            Fault::TurnStall,
            Fault::TurnStall,
            Fault::TurnStall,
            Fault::Cut,
            Fault::Cut,
            Fault::SlowClient,
            Fault::ClockStep,
            Fault::ClockSkew,
            Fault::WriterKill,
            Fault::SqlFenced,
        ]);
        if self.may(fault) {
            self.strike(fault);
        }
    }

    fn strike(&mut self, fault: Fault) {
        let Some(engine) = &mut self.engine else { return };
        let shards = u64::from(engine.shard_count());
        match fault {
            Fault::Kill | Fault::PowerLoss => {
                // Ends of processes are dear: the others come more often.
                if self.rng.below(3) > 0 {
                    return;
                }
                self.hit(fault);
                self.end_life(fault == Fault::PowerLoss);
            }
            Fault::CleanStop => {
                if self.stopping || self.rng.below(3) > 0 {
                    return;
                }
                engine.drain();
                self.stopping = true;
                self.hit(fault);
                self.after_engine();
            }
            Fault::ShardStall => {
                let shard = self.rng.below(shards) as usize;
                self.stalled_until[shard] = self.now_us + self.rng.range(1_000, 120_000);
                self.hit(fault);
            }
            Fault::TurnStall => {
                let (pick, units) = (self.rng.bits() >> 8, self.rng.range(1, 8) as u32);
                if let Some((at, taken)) = engine.stall(pick, units, &mut self.model)
                    && taken > 0
                {
                    let (sale, sku) = engine.sku_at(at);
                    let (life, units) = (self.life, taken);
                    let us = self.rng.range(100, 20_000);
                    self.after(us, Event::Unstall { life, sale, sku, units });
                    self.hit(fault);
                }
            }
            Fault::Cut => {
                let link = self.rng.below(self.links.len() as u64) as usize;
                if self.links[link].in_flight() > 0 {
                    self.hit(fault);
                    self.cut(link);
                }
            }
            Fault::SlowClient => {
                let link = self.rng.below(self.links.len() as u64) as usize;
                let us = self.rng.range(1_000, 200_000);
                self.links[link].deaf_until_us = self.now_us + us;
                let life = self.links[link].life;
                self.after(us, Event::Hear { link, life });
                self.hit(fault);
            }
            Fault::WriterKill => {
                if self.writer.kill() {
                    self.hit(fault);
                }
            }
            Fault::SqlFenced => self.writer.fence(),
            Fault::ClockStep => {
                let step = self.rng.pick(&[-3_600_000, -2_000, 2_000, 3_600_000]);
                self.skew_ms += step;
                self.hit(fault);
            }
            _ => {
                self.skew_ms += self.rng.range(0, 20) as i64 - 10;
                self.hit(fault);
            }
        }
    }
}
