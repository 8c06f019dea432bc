//! The end of a run: nothing goes wrong any more, everything that was begun ends, and the books
//! must balance, in the engine, after one more loss of power, and in what was written.

use super::World;
use crate::faults::Fault;
use crate::model::Found;
use stockade_protocol::PartitionId;

/// How long what was begun may take to end, us.
const END_US: u64 = 20_000_000;

impl World {
    pub(super) fn finish(&mut self) -> Found {
        self.quiet = true;
        self.writer.quiet();
        self.trace.say(self.now_us, || "the end begins".into());
        self.settle()?;
        self.compare()?;
        // What was acknowledged survives, whatever the disk does.
        self.counts.hit(Fault::PowerLoss);
        self.end_life(true);
        self.settle()?;
        self.compare()
    }

    /// Lets everything end that was begun.
    fn settle(&mut self) -> Found {
        let until = self.now_us + END_US;
        while !self.is_settled() {
            if self.now_us > until {
                return Err(format!(
                    "no end: {} commands wait to be sent, and these are without an answer: {:#?}",
                    self.retries.len(),
                    self.model.open_commands()
                ));
            }
            self.step()?;
        }
        Ok(())
    }

    fn is_settled(&self) -> bool {
        self.engine.is_some()
            && !self.stopping
            && self.retries.is_empty()
            && self.model.open() == 0
            && self.links.iter().all(|link| link.in_flight() == 0)
            && self.flights.iter().all(Option::is_none)
            && self.model.is_quiet()
            && self.writer.is_drained(&self.model)
    }

    /// Engine and model agree on everything.
    fn compare(&mut self) -> Found {
        let Some(engine) = &self.engine else { return Err("the engine is down".into()) };
        for n in 0..self.model.partition_count() {
            let id = PartitionId::new(n);
            let image = engine.image(id).ok_or("a partition without a shard")?;
            self.model.compare(id, &image)?;
        }
        self.trace.say(self.now_us, || "engine and model agree".into());
        self.writer.compare(&self.model)
    }
}
