//! The simulated world: one clock, one queue of things that will happen, one source of chance.
//!
//! Everything between the real machines lives here: the network (`net`), the disk, processes that
//! end and start (`life`), and mischief (`mischief`). A step takes the next thing off the
//! queue; the auditor looks after each.

mod finish;
mod life;
mod mischief;
mod net;

use crate::clients::{Link, Sent};
use crate::engine::Engine;
use crate::faults::{Counts, Fault};
use crate::model::{Found, Model};
use crate::rng::{Map, Rng};
use crate::store::Store;
use crate::trace::Trace;
use crate::workload::Workload;
use crate::writer::Writer;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use stockade_engine::commit::Batch;
use stockade_engine::shard::state::Next;
use stockade_protocol::{OrderId, OrderState, RequestId, SaleId, SkuId, UserId};

/// Connections of clients.
const LINKS: usize = 10;
/// The world's wall clock at the beginning, ms.
const WALL_MS: u64 = 1_700_000_000_000;
/// A shard looks at its deadlines at least this often, us.
const TICK_US: u64 = 1_000_000;

/// What is run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Everything follows from it.
    pub seed: u64,
    /// Commands that clients send.
    pub steps: u64,
    /// Commands left out, by number: first and the one behind the last.
    pub skip: Vec<(u64, u64)>,
    /// Faults that do not happen.
    pub mute: Vec<Fault>,
    /// Keep a readable trace.
    pub trace: bool,
}

impl Plan {
    /// A seed with everything that may go wrong.
    pub const fn new(seed: u64, steps: u64) -> Self {
        Self { seed, steps, skip: Vec::new(), mute: Vec::new(), trace: false }
    }
}

/// Something that will happen.
#[derive(Debug)]
enum Event {
    /// A shard's task runs.
    Shard { life: u32, shard: u16 },
    /// A batch reaches the disk.
    Disk { life: u32, shard: u16 },
    /// The commit thread tells its shard.
    Told { life: u32, shard: u16, buffer: Vec<u8> },
    /// Bytes reach the server.
    ToServer { link: usize, life: u32, bytes: Vec<u8> },
    /// Bytes reach the client.
    ToClient { link: usize, life: u32, bytes: Vec<u8> },
    /// A client does something.
    Client { link: usize },
    /// A client reads again.
    Hear { link: usize, life: u32 },
    /// The order writer does something.
    Writer,
    /// Something goes wrong, maybe.
    Mischief,
    /// Units that were held up come back.
    Unstall { life: u32, sale: SaleId, sku: SkuId, units: u32 },
    /// The archiver works.
    Archive { life: u32 },
    /// The process starts.
    Start,
    /// The process ends: told to, or because a commit failed.
    Exit { life: u32 },
}

#[derive(Debug)]
struct Timed {
    at_us: u64,
    number: u64,
    event: Event,
}

impl PartialEq for Timed {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Timed {}

impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timed {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at_us, other.number).cmp(&(self.at_us, self.number))
    }
}

/// How bad the day is: chances in a thousand.
#[derive(Clone, Copy, Debug)]
struct Weather {
    /// Of messages.
    network: u64,
    /// Of commits.
    disk: u64,
    /// Of a piece of mischief, each time one is due.
    mischief: u64,
    /// Between two of them, us.
    mischief_every_us: u64,
    /// Between two acts of a client, us.
    think_us: u64,
}

/// See the module.
pub struct World {
    plan: Plan,
    now_us: u64,
    queue: BinaryHeap<Timed>,
    number: u64,
    rng: Rng,
    weather: Weather,
    store: Store,
    engine: Option<Engine>,
    /// Counts up with each process.
    life: u32,
    /// When each shard's task runs next.
    runs_at: Vec<Option<u64>>,
    stalled_until: Vec<u64>,
    flights: Vec<Option<Batch>>,
    stopping: bool,
    quiet: bool,
    links: Vec<Link>,
    retries: VecDeque<Sent>,
    workload: Workload,
    sent: u64,
    arrival_last_us: u64,
    skew_ms: i64,
    promised: Map<(SaleId, UserId, RequestId), OrderId>,
    ended: Map<OrderId, OrderState>,
    writer: Writer,
    /// The auditor.
    pub model: Model,
    /// Faults that happened.
    pub counts: Counts,
    /// What happened last, in words.
    pub trace: Trace,
}

impl World {
    /// The world of a plan, before its first moment.
    pub fn new(plan: Plan) -> Self {
        let mut rng = Rng::new(plan.seed);
        let partition_count = rng.pick(&[1, 4, 7, 16]);
        let weather = Weather {
            network: rng.pick(&[0, 4, 20]),
            disk: rng.pick(&[0, 2, 15]),
            mischief: rng.pick(&[100, 500, 900]),
            mischief_every_us: rng.pick(&[2_000, 20_000, 100_000]),
            think_us: rng.pick(&[200, 1_000, 4_000]),
        };
        let writer = Writer::new(partition_count, rng.fork(), rng.pick(&[0, 3, 15]));
        let workload = Workload::new(rng.fork(), partition_count);
        let trace = Trace::new(plan.trace);
        Self {
            plan,
            now_us: 0,
            queue: BinaryHeap::new(),
            number: 0,
            weather,
            store: Store::new(partition_count, rng.fork()),
            rng,
            engine: None,
            life: 0,
            runs_at: Vec::new(),
            stalled_until: Vec::new(),
            flights: Vec::new(),
            stopping: false,
            quiet: false,
            links: (0..LINKS).map(|_| Link::default()).collect(),
            retries: VecDeque::new(),
            workload,
            sent: 0,
            arrival_last_us: 0,
            skew_ms: 0,
            promised: Map::default(),
            writer,
            ended: Map::default(),
            model: Model::new(partition_count, 1),
            counts: Counts::default(),
            trace,
        }
    }

    /// Runs the plan to its end.
    ///
    /// # Errors
    /// What the auditor found.
    pub fn run(&mut self) -> Found {
        self.retries = self
            .workload
            .opening()
            .into_iter()
            .map(|command| Sent { command, at_us: 0, tries: 0 })
            .collect();
        self.at(0, Event::Start);
        for link in 0..LINKS {
            self.at(500 + 90 * link as u64, Event::Client { link });
        }
        self.at(self.weather.mischief_every_us, Event::Mischief);
        self.at(3_000, Event::Writer);
        while self.sent < self.plan.steps {
            self.step()?;
        }
        self.finish()
    }

    fn at(&mut self, at_us: u64, event: Event) {
        self.number += 1;
        self.queue.push(Timed { at_us, number: self.number, event });
    }

    fn after(&mut self, us: u64, event: Event) {
        self.at(self.now_us + us, event);
    }

    /// Really does it: unless it is muted.
    fn may(&self, fault: Fault) -> bool {
        !self.quiet && !self.plan.mute.contains(&fault)
    }

    fn hit(&mut self, fault: Fault) {
        self.counts.hit(fault);
        self.trace.say(self.now_us, || format!("fault: {}", fault.word()));
    }

    /// The next thing happens.
    fn step(&mut self) -> Found {
        let Some(Timed { at_us, event, .. }) = self.queue.pop() else {
            return Err("the world stands still".into());
        };
        self.now_us = at_us;
        if let Some(engine) = &self.engine {
            engine.tick(at_us, &mut self.model);
        }
        match event {
            Event::Shard { life, shard } if life == self.life => self.run_shard(shard),
            Event::Disk { life, shard } if life == self.life => self.commit(shard),
            Event::Told { life, shard, buffer } if life == self.life => {
                if let Some(engine) = &self.engine {
                    engine.committed(shard, buffer);
                }
                self.wake(shard, 5);
                Ok(())
            }
            Event::ToServer { link, life, bytes } => self.reach_server(link, life, &bytes),
            Event::ToClient { link, life, bytes } => self.reach_client(link, life, bytes),
            Event::Client { link } => {
                self.client(link);
                Ok(())
            }
            Event::Hear { link, life } => self.hear(link, life),
            Event::Writer => self.write(),
            Event::Mischief => {
                self.mischief();
                Ok(())
            }
            Event::Unstall { life, sale, sku, units } if life == self.life => {
                if let Some(engine) = &mut self.engine {
                    engine.unstall(sale, sku, units, &mut self.model);
                }
                Ok(())
            }
            Event::Start => self.start(),
            Event::Archive { life } if life == self.life => self.archive(),
            Event::Exit { life } if life == self.life => self.exit(),
            _ => Ok(()),
        }
    }

    /// A shard's task runs soon.
    fn wake(&mut self, shard: u16, us: u64) {
        let at = self.now_us + us;
        let slot = &mut self.runs_at[usize::from(shard)];
        if slot.is_none_or(|known| at < known) {
            *slot = Some(at);
            let life = self.life;
            self.at(at, Event::Shard { life, shard });
        }
    }

    fn run_shard(&mut self, shard: u16) -> Found {
        let index = usize::from(shard);
        if self.runs_at[index] != Some(self.now_us) {
            return Ok(());
        }
        self.runs_at[index] = None;
        if self.now_us < self.stalled_until[index] {
            self.wake(shard, self.stalled_until[index] - self.now_us);
            return Ok(());
        }
        let Some(engine) = &mut self.engine else { return Ok(()) };
        let after = engine.step(shard, &mut self.model)?;
        let now = engine.hub.clock.now();
        let wait_us = match (after.next, after.deadline) {
            (Next::Turn, _) => 10,
            (Next::Pause, _) => 100,
            (Next::Idle, Some(at)) => (at.since(now) * 1000).clamp(200, TICK_US),
            (Next::Idle, None) => TICK_US,
        };
        self.wake(shard, wait_us);
        if let Some(batch) = after.batch {
            self.trace.say(self.now_us, || {
                format!(
                    "shard {shard}: a batch of {} bytes, {:?}",
                    batch.bytes.len(),
                    batch.position
                )
            });
            self.flights[index] = Some(batch);
            let us = self.commit_us();
            let life = self.life;
            self.after(us, Event::Disk { life, shard });
        }
        self.after_engine();
        if self.stopping && self.engine.as_ref().is_some_and(Engine::is_drained) {
            self.stopping = false;
            let life = self.life;
            self.after(50, Event::Exit { life });
        }
        Ok(())
    }

    fn commit_us(&mut self) -> u64 {
        if self.may(Fault::SlowCommit) && self.rng.per_mille(self.weather.disk) {
            self.hit(Fault::SlowCommit);
            return self.rng.range(5_000, 80_000);
        }
        self.rng.range(60, 700)
    }

    /// Mail for shards and bytes for clients go on their way.
    fn after_engine(&mut self) {
        let Some(engine) = &self.engine else { return };
        for shard in 0..engine.shard_count() {
            if self.engine.as_ref().is_some_and(|engine| engine.has_mail(shard)) {
                let us = self.rng.range(1, 20);
                self.wake(shard, us);
            }
        }
        for link in 0..LINKS {
            self.flush(link);
        }
    }
}
