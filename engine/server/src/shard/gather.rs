//! Answers that need a part of every shard.
//!
//! The shard that has the request asks all, each part comes when what it rests on is committed, and
//! the last one completes the answer. Parts that do not fit together are gathered again. A part of
//! a list of orders is found in steps, one a turn, so that it never holds up the shard.

use super::state::{Resting, Shard};
use crate::busy;
use crate::hub::{Message, Origin};
use std::collections::{BTreeMap, VecDeque};
use stockade_core::gather::{Part, merge};
use stockade_core::shard::OrderScan;
use stockade_protocol::reply::AdjustReply;
use stockade_protocol::{Command, Reply};

/// Gathered answers under way at one shard; beyond it questions are answered `busy`.
const GATHERS_MAX: usize = 1024;
/// How often parts may fail to fit before the question is answered `busy`.
const TRIES_MAX: u16 = 64;

/// Orders looked at in one turn for lists of orders.
const SCAN_ORDERS_MAX: usize = 2048;

/// What the merged answer is for.
pub enum Purpose {
    /// It is the answer.
    Answer(Origin),
    /// Its figures complete the answer to an adjust.
    Adjust(Origin, AdjustReply),
}

struct Gather {
    command: Command,
    purpose: Purpose,
    parts: Vec<Part>,
    missing: u16,
    tries: u16,
}

/// A list of orders that is looked for here, for a gathered answer.
struct Scanning {
    shard: u16,
    gather: u64,
    scan: OrderScan,
}

/// The gathered answers under way.
#[derive(Default)]
pub struct Gathers {
    last: u64,
    running: BTreeMap<u64, Gather>,
    scans: VecDeque<Scanning>,
}

impl Gathers {
    /// Nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.scans.is_empty()
    }

    /// Lists of orders are looked for here.
    pub(super) fn is_scanning(&self) -> bool {
        !self.scans.is_empty()
    }
}

impl Shard {
    /// Begins to gather; what cannot be begun is given back with its answer.
    pub(super) fn gather(
        &mut self,
        origin: Origin,
        command: Command,
    ) -> Result<(), (Origin, Reply)> {
        if self.draining || self.gathers.running.len() >= GATHERS_MAX {
            return Err((origin, busy::reply(&command)));
        }
        self.gather_for(Purpose::Answer(origin), command, 0);
        Ok(())
    }

    /// Asks every shard for its part.
    pub(super) fn gather_for(&mut self, purpose: Purpose, command: Command, tries: u16) {
        let missing = self.hub.routing.shard_count;
        self.gathers.last += 1;
        let gather = self.gathers.last;
        let asked = command.clone();
        let parts = Vec::with_capacity(usize::from(missing));
        self.gathers.running.insert(gather, Gather { command, purpose, parts, missing, tries });
        for shard in 0..missing {
            if shard != self.index {
                let command = asked.clone();
                self.send(shard, Message::PartAsk { shard: self.index, gather, command });
            }
        }
        self.part_asked(self.index, gather, &asked);
    }

    /// Another shard, or this one, wants this shard's part.
    pub(super) fn part_asked(&mut self, shard: u16, gather: u64, command: &Command) {
        if let Command::OrderList(list) = command {
            let scan = OrderScan::new(list.clone());
            self.gathers.scans.push_back(Scanning { shard, gather, scan });
            return;
        }
        let part = self.machine.part(command);
        self.part_found(shard, gather, part);
    }

    /// One step of the lists under way here: the first one goes on and then stands last.
    pub(super) fn scan_step(&mut self) {
        let Some(mut scanning) = self.gathers.scans.pop_front() else { return };
        if self.machine.scan(&mut scanning.scan, SCAN_ORDERS_MAX) {
            self.part_found(scanning.shard, scanning.gather, scanning.scan.into_part());
        } else {
            self.gathers.scans.push_back(scanning);
        }
    }

    fn part_found(&mut self, shard: u16, gather: u64, part: Part) {
        let resting = Resting::Part { shard, gather, part };
        if let Some(resting) = self.ring.rest(self.machine.position(), resting) {
            self.release(resting);
        }
    }

    /// A part came.
    pub(super) fn part_came(&mut self, id: u64, part: Part) {
        let Some(gather) = self.gathers.running.get_mut(&id) else { return };
        gather.parts.push(part);
        gather.missing -= 1;
        if gather.missing > 0 {
            return;
        }
        let gather = self.gathers.running.remove(&id).expect("it was just there");
        match merge(&gather.command, gather.parts, self.hub.clock.now()) {
            Some(reply) => self.gathered(gather.purpose, reply),
            None if gather.tries < TRIES_MAX => {
                self.gather_for(gather.purpose, gather.command, gather.tries + 1);
            }
            None => self.gathered(gather.purpose, busy::reply(&gather.command)),
        }
    }

    fn gathered(&mut self, purpose: Purpose, reply: Reply) {
        let (origin, reply) = match purpose {
            Purpose::Answer(origin) => (origin, reply),
            Purpose::Adjust(origin, mut adjusted) => {
                // Without figures (the sale was archived meanwhile) those of the decision stand.
                if let Reply::Sku(view) = reply {
                    (adjusted.total, adjusted.free) = (view.total, view.free);
                }
                (origin, Reply::Adjust(adjusted))
            }
        };
        self.answer(origin, reply);
    }
}
