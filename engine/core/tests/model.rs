//! Random commands, commits, crashes and snapshots against an independent model (`model/rules.rs`).
//!
//! After every step each answer, each entry and each figure must be what the model says, which
//! covers no oversell (P1), nothing acknowledged lost (P2, of what is durable), no false `sold_out`
//! (P3), limits (P4), one order per request id (P5), one end (P6) and units that are sold again
//! only when their way back is durable (P7).

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;
#[path = "model/rules.rs"]
mod rules;

use common::{Engine, PARTITIONS, START_MS, sale, sku, user};
use proptest::collection::vec;
use proptest::prelude::*;
use rules::{Answer, Config, Model, Units, id};
use std::collections::{BTreeMap, VecDeque};
use stockade_core::fold::fold_partition;
use stockade_protocol::command::{Adjust, Line, Lines, Reserve, Return};
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::routing::partition_of;
use stockade_protocol::sale::SkuPatch;
use stockade_protocol::text::{OrderData, PaymentRef, Reason};
use stockade_protocol::{Command, OrderId, PartitionId, Reply, RequestId, SalePatch};

const USERS: u64 = 4;
const SKUS: [u64; 3] = [10, 11, 12];

#[derive(Clone, Debug)]
enum Verb {
    Reserve { user: u64, request: u64, lines: Vec<(u64, u32)> },
    Confirm { order: (u16, u64), payment: &'static str },
    Cancel { order: (u16, u64) },
    Withdraw { user: u64, request: u64 },
    Extend { order: (u16, u64), until: u64 },
    Return { order: (u16, u64), request: u64, lines: Vec<(u64, u32)>, restock: bool, right: bool },
}

#[derive(Clone, Debug)]
enum Step {
    /// Commands of one turn; they are sorted to their shards.
    Turn(Vec<Verb>),
    Commit {
        shard: usize,
        entries: usize,
    },
    Expire {
        shard: usize,
        most: usize,
    },
    Advance(u64),
    Crash {
        shards: usize,
    },
    Snapshot,
    SetAside {
        sku: u64,
        units: u32,
    },
    PutBack,
    Adjust {
        sku: u64,
        delta: i64,
    },
    Pause(bool),
}

fn a_sku() -> impl Strategy<Value = u64> {
    prop_oneof![20 => proptest::sample::select(&SKUS[..]), 1 => Just(99u64)]
}

fn some_lines() -> impl Strategy<Value = Vec<(u64, u32)>> {
    let quantity = prop_oneof![1 => Just(0u32), 30 => 1u32..3, 10 => 3u32..5];
    let several = vec((a_sku(), quantity), 1..4);
    // Most are alike, so that retries with the same and with other lines are common.
    prop_oneof![3 => Just(vec![(10, 1)]), 2 => Just(vec![(11, 2), (10, 1)]), 3 => several]
}

/// Orders are named by the place of their user, so that most hit one.
fn an_order() -> impl Strategy<Value = (u16, u64)> {
    (1..=USERS, 1u64..4).prop_map(|(n, number)| (partition(n), number))
}

fn a_verb() -> impl Strategy<Value = Verb> {
    let payment = proptest::sample::select(&["p", "q", "r"][..]);
    let lines_or_all = prop_oneof![Just(Vec::new()), some_lines()];
    prop_oneof![
        10 => (1..=USERS, 1u64..6, some_lines())
            .prop_map(|(user, request, lines)| Verb::Reserve { user, request, lines }),
        4 => (an_order(), payment).prop_map(|(order, payment)| Verb::Confirm { order, payment }),
        3 => an_order().prop_map(|order| Verb::Cancel { order }),
        1 => (1..=USERS, 1u64..7).prop_map(|(user, request)| Verb::Withdraw { user, request }),
        1 => (an_order(), 0u64..400).prop_map(|(order, until)| Verb::Extend { order, until }),
        3 => (an_order(), 1u64..4, lines_or_all, any::<bool>(), any::<bool>()).prop_map(
            |(order, request, lines, restock, right)| {
                Verb::Return { order, request, lines, restock, right }
            }
        ),
    ]
}

fn a_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => vec(a_verb(), 1..6).prop_map(Step::Turn),
        6 => (0usize..3, 1usize..6).prop_map(|(shard, entries)| Step::Commit { shard, entries }),
        2 => (0usize..3, 1usize..4).prop_map(|(shard, most)| Step::Expire { shard, most }),
        2 => (1u64..60).prop_map(Step::Advance),
        1 => (1usize..4).prop_map(|shards| Step::Crash { shards }),
        1 => Just(Step::Snapshot),
        1 => (proptest::sample::select(&SKUS[..]), 1u32..4)
            .prop_map(|(sku, units)| Step::SetAside { sku, units }),
        2 => Just(Step::PutBack),
        1 => (proptest::sample::select(&SKUS[..]), -3i64..4)
            .prop_filter("not 0", |(_, delta)| *delta != 0)
            .prop_map(|(sku, delta)| Step::Adjust { sku, delta }),
        1 => proptest::bool::weighted(0.2).prop_map(Step::Pause),
    ]
}

fn a_config() -> impl Strategy<Value = (Config, Units)> {
    let hold = prop_oneof![1 => Just(0u64), 3 => Just(100u64)];
    let limits = (prop_oneof![Just(0u64), Just(4u64)], prop_oneof![Just(0u64), Just(3u64)]);
    let stock = vec(0u64..14, SKUS.len());
    (hold, limits, prop_oneof![3 => Just(0u64), 1 => Just(2u64)], any::<bool>(), stock).prop_map(
        |(hold, (limit_sale, limit_sku), order_max, revive, stock)| {
            let config = Config { hold, extend_max: 150, limit_sale, limit_sku, order_max, revive };
            (config, SKUS.into_iter().zip(stock).collect())
        },
    )
}

fn partition(of_user: u64) -> u16 {
    partition_of(user(of_user), PARTITIONS).get()
}

fn to_lines(lines: &[(u64, u32)]) -> Lines {
    lines.iter().map(|(id, quantity)| Line { sku: sku(*id), quantity: *quantity }).collect()
}

/// Units by SKU; a quantity of 0 anywhere makes the whole senseless, which 0 units stand for.
fn to_units(lines: &[(u64, u32)]) -> Units {
    let mut units = Units::new();
    for (sku, quantity) in lines {
        *units.entry(*sku).or_default() += u64::from(*quantity);
    }
    for (sku, _) in lines.iter().filter(|(_, quantity)| *quantity == 0) {
        units.insert(*sku, 0);
    }
    units
}

struct Run {
    engine: Engine,
    model: Model,
    adjusts: u64,
    /// What each waiting or new ticket asks.
    asked: BTreeMap<u64, Verb>,
    /// Everything that was answered, for comparing two runs.
    transcript: String,
}

impl Run {
    fn new(shards: usize, config: &Config, stock: &Units) -> Self {
        let mut engine = Engine::new(shards);
        engine.commit_at_once = false;
        let mut patch = SalePatch::new(sale(1));
        patch.hold_ms = Some(config.hold);
        patch.extend_max_ms = Some(config.extend_max);
        patch.limit_per_user = Some(config.limit_sale as u32);
        patch.revive = Some(config.revive);
        for (id, stock) in stock {
            patch.skus.push(SkuPatch {
                sku: sku(*id),
                stock: Some(*stock as u32),
                limit_per_user: Some(config.limit_sku as u32),
                max_per_order: Some(config.order_max as u32),
                labels: None,
            });
        }
        engine.run(Command::SalePut(Box::new(patch)));
        let model = Model {
            config: config.clone(),
            skus: SKUS.to_vec(),
            total: stock.clone(),
            paused: false,
            now: START_MS,
            aside: Units::new(),
            parts: BTreeMap::new(),
            durable: BTreeMap::new(),
            tails: vec![VecDeque::new(); shards],
            shard_count: shards,
        };
        let (asked, transcript) = (BTreeMap::new(), String::new());
        Self { engine, model, adjusts: 0, asked, transcript }
    }

    fn step(&mut self, step: &Step) {
        let shards = self.model.shard_count;
        match step {
            Step::Turn(verbs) => {
                for shard in 0..shards {
                    let mine = |verb: &&Verb| usize::from(place(verb)) % shards == shard;
                    self.turn(shard, &verbs.iter().filter(mine).cloned().collect::<Vec<_>>());
                }
            }
            Step::Commit { shard, entries } => {
                self.engine.commit(shard % shards, *entries);
                self.model.commit(shard % shards, *entries);
            }
            Step::Expire { shard, most } => {
                let more = self.engine.expire(shard % shards, *most);
                self.model.expire(shard % shards, *most);
                assert_eq!(more, !self.model.due(shard % shards).is_empty());
            }
            Step::Advance(ms) => {
                self.model.now += ms;
                self.engine.now = TimestampMs::new(self.model.now);
            }
            Step::Crash { shards } => {
                self.asked.clear();
                self.engine.crash(*shards);
                self.model.crash(*shards, self.engine.restart_grace_ms);
            }
            Step::Snapshot => self.engine.snapshot(),
            Step::SetAside { sku: id, units } => {
                let taken = self.engine.set_aside(sale(1), sku(*id), *units);
                *self.model.aside.entry(*id).or_default() += u64::from(taken);
            }
            Step::PutBack => {
                self.engine.put_back();
                self.model.aside.clear();
            }
            Step::Adjust { sku: id, delta } => self.adjust(*id, *delta),
            Step::Pause(pause) => {
                let command =
                    if *pause { Command::SalePause(sale(1)) } else { Command::SaleResume(sale(1)) };
                self.engine.run(command);
                self.model.paused = *pause;
            }
        }
        self.compare();
    }

    fn adjust(&mut self, id: u64, delta: i64) {
        self.adjusts += 1;
        let request = RequestId::from_number(self.adjusts).unwrap();
        let adjust = Adjust { sale: sale(1), sku: sku(id), delta, request };
        let Reply::Adjust(reply) = self.engine.run(Command::Adjust(adjust)) else {
            panic!("an adjust is answered")
        };
        assert_eq!(reply.applied, self.model.adjust(id, delta));
    }

    fn turn(&mut self, shard: usize, verbs: &[Verb]) {
        let waiting: Vec<u64> =
            self.engine.shards[shard].waiting.iter().map(|request| request.ticket).collect();
        let mut commands = Vec::new();
        for verb in verbs {
            commands.push(to_command(verb));
        }
        let first = self.engine.next_ticket();
        let fresh: Vec<u64> = (first..).take(verbs.len()).collect();
        for (ticket, verb) in fresh.iter().zip(verbs) {
            self.asked.insert(*ticket, verb.clone());
        }
        let answers = self.engine.turn(shard, commands);
        let mut answers = answers.into_iter().peekable();
        for ticket in waiting.into_iter().chain(fresh) {
            let verb = self.asked[&ticket].clone();
            let expected = self.expect(&verb);
            if expected == Answer::Wait {
                let waits = self.engine.shards[shard].waiting.iter().any(|r| r.ticket == ticket);
                assert!(waits, "{verb:?} should wait");
                continue;
            }
            self.asked.remove(&ticket);
            let answer = answers.next().unwrap_or_else(|| panic!("no answer to {verb:?}"));
            assert_eq!(answer.ticket, ticket, "{verb:?}");
            self.transcript.push_str(&format!("{:?}\n", answer));
            assert_eq!(to_answer(&answer.reply), expected, "{verb:?}");
        }
        assert!(answers.next().is_none());
    }

    fn expect(&mut self, verb: &Verb) -> Answer {
        let model = &mut self.model;
        match verb {
            Verb::Reserve { user, request, lines } => {
                model.reserve(partition(*user), *user, *request, &to_units(lines))
            }
            Verb::Confirm { order: (p, n), payment } => model.confirm(*p, *n, payment),
            Verb::Cancel { order: (p, n) } => model.cancel(*p, *n),
            Verb::Withdraw { user, request } => model.withdraw(partition(*user), *user, *request),
            Verb::Extend { order: (p, n), until } => model.extend(*p, *n, START_MS + until),
            Verb::Return { order: (p, n), request, lines, restock, right } => {
                let (restock, right) = (*restock, *right);
                let units = to_units(lines);
                let back = rules::Return { request: *request, units, restock, right };
                model.give_back(*p, *n, back)
            }
        }
    }

    /// Figures, entries and users are as the model says.
    fn compare(&mut self) {
        for id in SKUS {
            let get = Command::SkuGet { sale: sale(1), sku: sku(id) };
            let Reply::Sku(view) = self.engine.gather(&get) else { panic!("a SKU's figures") };
            let figures = (view.total, view.free, view.held, view.confirmed);
            assert_eq!(figures, self.model.figures(id), "figures of {id}");
        }
        for (shard, tail) in self.model.tails.iter().enumerate() {
            let kinds = |partition, part: &rules::Part| (partition, *part.log.last().unwrap());
            let expected: Vec<_> =
                tail.iter().map(|pending| kinds(pending.partition, &pending.after)).collect();
            let entries = self.engine.shards[shard].tail.iter();
            let entries: Vec<_> =
                entries.map(|(_, e)| (e.partition.get(), e.event.word())).collect();
            assert_eq!(entries, expected, "entries of shard {shard}");
        }
        for n in 1..=USERS {
            self.compare_user(n);
        }
    }

    fn compare_user(&mut self, n: u64) {
        let p = partition(n);
        let image = self.engine.shards[usize::from(p) % self.model.shard_count]
            .machine
            .image(PartitionId::new(p))
            .unwrap();
        let of_user = image.orders.iter().filter(|order| order.user.get() == n);
        let orders: Vec<_> = of_user
            .map(|order| {
                let late: Vec<_> = order.late_payments.iter().map(|p| p.to_string()).collect();
                let payment = order.payment.as_ref().map(|p| p.to_string());
                (order.order.get(), order.state.word(), order.expires_at.get(), payment, late)
            })
            .collect();
        let part = self.model.part(p);
        let of_user = part.orders.iter().filter(|(_, order)| order.user == n);
        let expected: Vec<_> = of_user
            .map(|(number, o)| {
                let (payment, late) = (o.payment.clone(), o.late.clone());
                (id(p, *number), rules::word(o.state), o.deadline, payment, late)
            })
            .collect();
        assert_eq!(orders, expected, "orders of user {n}");
        let units: Vec<u64> = SKUS.iter().map(|sku| self.model.counted(p, n, *sku)).collect();
        let limit = self.model.config.limit_sku;
        assert!(limit == 0 || units.iter().all(|units| *units <= limit), "P4");
        let limit = self.model.config.limit_sale;
        assert!(limit == 0 || units.iter().sum::<u64>() <= limit, "P4");
    }

    /// At the end: a fold of the log, the shards, and shards that start from either are the same.
    fn finish(&mut self) {
        for shard in 0..self.model.shard_count {
            self.engine.commit(shard, usize::MAX);
            self.model.commit(shard, usize::MAX);
        }
        self.compare();
        let before = self.engine.images();
        for (n, image) in before.iter().enumerate() {
            let id = PartitionId::new(n as u16);
            let base = self.engine.images.get(&id).cloned().unwrap_or_default();
            let entries = self.engine.log.get(&id).cloned().unwrap_or_default();
            assert_eq!(fold_partition(id, base, &entries, &[]).unwrap(), *image);
            self.transcript.push_str(&format!("{image:?}\n"));
        }
        // No grace: nothing is extended, so that the states can be compared.
        self.engine.restart_grace_ms = 0;
        for (shards, snapshot) in [(2, false), (3, true), (1, false)] {
            if snapshot {
                self.engine.snapshot();
            }
            self.engine.crash(shards);
            assert_eq!(self.engine.images(), before);
        }
    }
}

fn place(verb: &Verb) -> u16 {
    match verb {
        Verb::Reserve { user, .. } | Verb::Withdraw { user, .. } => partition(*user),
        Verb::Confirm { order, .. }
        | Verb::Cancel { order }
        | Verb::Extend { order, .. }
        | Verb::Return { order, .. } => order.0,
    }
}

fn to_command(verb: &Verb) -> Command {
    let order = |(p, n): (u16, u64)| OrderId::new(id(p, n)).unwrap();
    let number = |n: u64| RequestId::from_number(n).unwrap();
    match verb {
        Verb::Reserve { user: n, request, lines } => Command::Reserve(Reserve {
            sale: sale(1),
            user: user(*n),
            request: number(*request),
            lines: to_lines(lines),
            data: OrderData::default(),
            not_after: None,
        }),
        Verb::Confirm { order: o, payment } => Command::Confirm {
            order: order(*o),
            payment: PaymentRef::new(payment.as_bytes()).unwrap(),
        },
        Verb::Cancel { order: o } => Command::Cancel { order: order(*o), reason: Reason::none() },
        Verb::Withdraw { user: n, request } => {
            Command::Withdraw { sale: sale(1), user: user(*n), request: number(*request) }
        }
        Verb::Extend { order: o, until } => {
            Command::Extend { order: order(*o), until: TimestampMs::new(START_MS + until) }
        }
        Verb::Return { order: o, request, lines, restock, right } => Command::Return(Return {
            order: order(*o),
            request: number(*request),
            lines: to_lines(lines),
            restock: *restock,
            right: *right,
        }),
    }
}

fn to_answer(reply: &Reply) -> Answer {
    match reply {
        Reply::Reserve(r) => Answer::Reserve {
            outcome: r.outcome.word(),
            again: r.again,
            order: r.order.map(OrderId::get),
            exp: r.expires_at.get(),
            left: r.left,
        },
        Reply::Order(r) => Answer::Verb {
            outcome: r.outcome.word(),
            order: r.order.map(OrderId::get),
            state: r.state.word(),
        },
        other => panic!("not an answer of a verb: {other:?}"),
    }
}

fn run(shards: usize, config: &Config, stock: &Units, steps: &[Step]) -> String {
    let mut run = Run::new(shards, config, stock);
    for step in steps {
        run.step(step);
    }
    run.finish();
    run.transcript
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn every_answer_entry_and_figure_is_what_the_model_says(
        shards in 1usize..4,
        (config, stock) in a_config(),
        steps in vec(a_step(), 1..60),
    ) {
        let first = run(shards, &config, &stock, &steps);
        // The same inputs give the same answers and states.
        prop_assert_eq!(first, run(shards, &config, &stock, &steps));
    }
}
