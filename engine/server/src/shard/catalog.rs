//! The catalog driver, on shard 0: commands one at a time, each decided, made durable, shipped to
//! all shards and then answered; and the archiving of sales that are over.

use super::gather::Purpose;
use super::state::{Resting, Shard};
use crate::busy;
use crate::fold::ArchivedSales;
use crate::hub::{Message, Origin};
use std::collections::VecDeque;
use std::sync::Arc;
use stockade_core::catalog::{CatalogChange, CatalogDecision, CatalogMachine};
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::{Command, Entry, Outcome, Reply, SaleId};

/// Catalog commands that wait; beyond it they are answered `busy`.
const CATALOG_QUEUE_MAX: usize = 256;
/// How often sales that are over are looked for, ms.
const ARCHIVE_EVERY_MS: u64 = 1_000;

/// A command whose entry is on its way, and what to answer at the end.
struct Then {
    origin: Origin,
    command: Command,
    reply: Reply,
}

#[derive(Default)]
enum Stage {
    #[default]
    Idle,
    /// All shards are asked how many orders of the sale are held.
    Asking { sale: SaleId, missing: u16, held: u64 },
    /// The entry is in the journal's batch.
    Committing(Option<Then>),
    /// The change is on its way to the shards.
    Shipping { missing: u16, then: Option<Then> },
}

/// See the module.
pub struct CatalogDriver {
    machine: CatalogMachine,
    queue: VecDeque<(Origin, Command)>,
    stage: Stage,
    archived: Arc<ArchivedSales>,
    archive_next: TimestampMs,
}

impl CatalogDriver {
    /// A driver of the recovered catalog. `archived` learns of each sale that is archived.
    pub fn new(machine: CatalogMachine, archived: Arc<ArchivedSales>) -> Self {
        Self {
            machine,
            queue: VecDeque::new(),
            stage: Stage::Idle,
            archived,
            archive_next: TimestampMs::NONE,
        }
    }

    /// Nothing is under way.
    pub fn is_idle(&self) -> bool {
        matches!(self.stage, Stage::Idle) && self.queue.is_empty()
    }
}

impl Shard {
    fn driver(&mut self) -> &mut CatalogDriver {
        self.catalog.as_mut().expect("catalog messages come to shard 0")
    }

    /// Takes a catalog command; what has no room is given back with its answer.
    pub(super) fn catalog_submit(
        &mut self,
        origin: Origin,
        command: Command,
    ) -> Result<(), (Origin, Reply)> {
        let draining = self.draining;
        let driver = self.driver();
        if draining || driver.queue.len() >= CATALOG_QUEUE_MAX {
            return Err((origin, busy::reply(&command)));
        }
        driver.queue.push_back((origin, command));
        self.catalog_step();
        Ok(())
    }

    /// Decides what waits, as long as nothing is under way.
    fn catalog_step(&mut self) {
        loop {
            let (now, failed) = (self.hub.clock.now(), self.failed);
            let driver = self.driver();
            if !matches!(driver.stage, Stage::Idle) {
                return;
            }
            let Some((origin, command)) = driver.queue.pop_front() else { return };
            if failed {
                let reply = busy::reply(&command);
                self.answer(origin, reply);
                continue;
            }
            match driver.machine.decide(&command, now) {
                CatalogDecision::Answer(reply) => self.catalog_answer(origin, &command, reply),
                CatalogDecision::Append { entry, reply } => {
                    driver.stage = Stage::Committing(Some(Then { origin, command, reply }));
                    self.catalog_append(&entry);
                }
            }
        }
    }

    fn catalog_append(&mut self, entry: &Entry) {
        let mut bytes = Vec::new();
        entry.encode(&mut bytes);
        self.ring.append(&mut bytes, self.machine.position());
        #[cfg(feature = "mutations")]
        if stockade_protocol::mutation::is(
            stockade_protocol::mutation::Mutation::CatalogBeforeDurable,
        ) {
            return self.catalog_committed();
        }
        self.ring.rest_on_last(Resting::CatalogEntry);
    }

    /// The entry is durable: it takes force and goes to all shards.
    pub(super) fn catalog_committed(&mut self) {
        let shard_count = self.hub.routing.shard_count;
        let driver = self.driver();
        let change = driver.machine.committed();
        let Stage::Committing(then) = std::mem::take(&mut driver.stage) else {
            panic!("only an entry on its way is committed");
        };
        driver.stage = Stage::Shipping { missing: shard_count, then };
        if let CatalogChange::Archive(sale) = &change {
            driver.archived.add(*sale);
        }
        for shard in 0..shard_count {
            if shard != self.index {
                self.send(shard, Message::Apply(change.clone()));
            }
        }
        self.machine.apply(&change);
        self.catalog_applied();
    }

    /// A shard has applied the change under way.
    pub(super) fn catalog_applied(&mut self) {
        let driver = self.driver();
        let Stage::Shipping { missing, then } = &mut driver.stage else {
            panic!("shards apply only changes that are shipped");
        };
        *missing -= 1;
        if *missing > 0 {
            return;
        }
        let then = then.take();
        driver.stage = Stage::Idle;
        if let Some(Then { origin, command, reply }) = then {
            self.catalog_answer(origin, &command, reply);
        }
        self.catalog_step();
    }

    /// Answers; an adjust with the figures as all shards have them now.
    fn catalog_answer(&mut self, origin: Origin, command: &Command, reply: Reply) {
        self.hub.metrics[usize::from(self.index)].decided(&reply);
        match (command, reply) {
            (Command::Adjust(adjust), Reply::Adjust(reply))
                if reply.outcome == Outcome::Adjusted =>
            {
                let question = Command::SkuGet { sale: adjust.sale, sku: adjust.sku };
                self.gather_for(Purpose::Adjust(origin, reply), question, 0);
            }
            (_, reply) => self.answer(origin, reply),
        }
    }

    /// Looks from time to time for a sale that can be archived, and asks the shards for its held
    /// orders.
    pub(super) fn catalog_tick(&mut self, now: TimestampMs) {
        let (shard_count, stopping) = (self.hub.routing.shard_count, self.draining || self.failed);
        let Some(driver) = &mut self.catalog else { return };
        if stopping || now < driver.archive_next || !driver.is_idle() {
            return;
        }
        driver.archive_next = now.after_ms(ARCHIVE_EVERY_MS);
        let Some(sale) = driver.machine.archive_candidate(now) else { return };
        driver.stage = Stage::Asking { sale, missing: shard_count, held: 0 };
        for shard in 0..shard_count {
            if shard != self.index {
                self.send(shard, Message::HeldAsk(sale));
            }
        }
        let held = self.machine.held_orders(sale);
        self.catalog_held(held);
    }

    /// A shard told how many orders of the candidate are held.
    pub(super) fn catalog_held(&mut self, count: u64) {
        let now = self.hub.clock.now();
        let failed = self.failed;
        let driver = self.driver();
        let Stage::Asking { sale, missing, held } = &mut driver.stage else {
            panic!("shards tell held orders only when asked");
        };
        *held += count;
        *missing -= 1;
        if *missing > 0 {
            return;
        }
        let (sale, held) = (*sale, *held);
        driver.stage = Stage::Idle;
        if held == 0 && !failed {
            let entry = driver.machine.archive(sale, now);
            driver.stage = Stage::Committing(None);
            self.catalog_append(&entry);
        } else {
            self.catalog_step();
        }
    }
}
