//! A small language, so that a test case is one line: steps separated by `;`, each `command =>
//! words`.
//!
//! ```text
//! put KEY=VALUE..        keys of the sale; sku=ID:STOCK[:LIMIT[:MAX]]; opens and closes in ms from
//! the start reserve USER REQ LINES [notafter=MS] [data=N]     LINES: 10*2,11*1 confirm USER/REQ
//! PAYMENT | cancel USER/REQ [REASON] | extend USER/REQ MS | order USER/REQ return USER/REQ RID
//! LINES|all [norestock] [noright] withdraw USER REQ | status USER REQ | user USER | sku ID |
//! adjust SKU DELTA RID | list [WORDS] pause | resume | close | sale | sales | archive at MS
//! moves the clock to the start + MS; holds run out late MS                moves the clock, but the
//! timers have not come to it yet commits off|on | commit | crash [SHARDS] | snapshot log
//! kinds of the entries decided since the last `log`
//! ```
//! Commands are about sale 1 unless `in N` stands before them. An answer is a row of words; the
//! words after `=>` must all be among them, and the first must be the first.

use super::{Engine, START_MS, sale, sku, user};
use std::collections::BTreeMap;
use stockade_protocol::command::{Adjust, Line, Lines, OrderList, Reserve, Return};
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::reply::{OrderView, UserView};
use stockade_protocol::sale::{OpensAt, SkuPatch};
use stockade_protocol::text::{OrderData, PaymentRef, Reason};
use stockade_protocol::{
    Command, OrderId, OrderState, PartitionId, Reply, RequestId, SaleId, SalePatch,
};

pub struct Script {
    pub engine: Engine,
    names: BTreeMap<OrderId, String>,
    logged: usize,
}

/// Runs a table on one, two and three shards: a case a line, `name: steps`; lines that begin with
/// `;` go on with the case before.
pub fn run_table(table: &str) {
    let mut cases: Vec<String> = Vec::new();
    for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match cases.last_mut() {
            Some(case) if line.starts_with(';') => case.push_str(line),
            _ => cases.push(line.into()),
        }
    }
    assert!(!cases.is_empty());
    let run_case = |case: &String| {
        let (name, steps) = case.split_once(": ").expect("name: steps");
        (1..=3).find_map(|shards| run_on(shards, name, steps).err())
    };
    let faults: Vec<String> = cases.iter().filter_map(run_case).collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// Runs a case on so many shards; an error says which step gave what.
pub fn run_on(shards: usize, name: &str, steps: &str) -> Result<(), String> {
    let mut script = Script::new(shards);
    for step in steps.split(';').map(str::trim).filter(|step| !step.is_empty()) {
        let (command, expected) = match step.split_once("=>") {
            Some((command, expected)) => (command.trim(), Some(expected.trim())),
            None => (step, None),
        };
        let got = script.step(command);
        if let Some(expected) = expected {
            let words: Vec<&str> = got.split_whitespace().collect();
            let mut wanted = expected.split_whitespace();
            let first = wanted.next();
            let fits = first == words.first().copied() && wanted.all(|word| words.contains(&word));
            if !fits {
                return Err(format!(
                    "{name} on {shards}: `{command}` gave `{got}`, not `{expected}`"
                ));
            }
        }
    }
    Ok(())
}

fn at(ms: u64) -> TimestampMs {
    TimestampMs::new(START_MS + ms)
}

fn request(text: &str) -> RequestId {
    RequestId::parse(text.as_bytes()).unwrap()
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("a number: {text:?}"))
}

fn lines(text: &str) -> Lines {
    if matches!(text, "all" | "none") {
        return Lines::new();
    }
    let line = |part: &str| {
        let (id, quantity) = part.split_once('*').unwrap_or((part, "1"));
        Line { sku: sku(number(id)), quantity: quantity.parse().unwrap() }
    };
    text.split(',').map(line).collect()
}

fn show_lines(lines: &[Line]) -> String {
    let show = |line: &Line| format!("{}*{}", line.sku, line.quantity);
    lines.iter().map(show).collect::<Vec<_>>().join(",")
}

fn show_at(at: TimestampMs) -> String {
    if at == TimestampMs::NONE { "none".into() } else { (at.get() - START_MS).to_string() }
}

impl Script {
    pub fn new(shards: usize) -> Self {
        Self { engine: Engine::new(shards), names: BTreeMap::new(), logged: 0 }
    }

    /// Runs a command and shows the answer.
    pub fn step(&mut self, command: &str) -> String {
        let mut words: Vec<&str> = command.split_whitespace().collect();
        let mut of = sale(1);
        if words[0] == "in" {
            of = sale(number(words[1]));
            words.drain(..2);
        }
        let args = &words[1..];
        match words[0] {
            "at" => self.engine.advance_to(at(number(args[0]))),
            "late" => self.engine.now = at(number(args[0])),
            "commits" => self.engine.commit_at_once = args[0] == "on",
            "commit" => self.engine.commit_all(),
            "snapshot" => self.engine.snapshot(),
            "changes_last" => self.engine.changes_last = true,
            "crash" => {
                let shards = args.first().map_or(self.engine.shards.len(), |n| n.parse().unwrap());
                self.engine.crash(shards);
            }
            "archive" => {
                let archived = self.engine.archive();
                return archived.iter().map(|s| s.to_string()).collect::<Vec<_>>().join(",") + ".";
            }
            "log" => return self.log(),
            _ => {
                let command = self.parse(of, words[0], args);
                return self.ask(command);
            }
        }
        String::new()
    }

    /// An adjust of sale 1 whose answer does not matter.
    pub fn adjust(&mut self, id: u64, delta: i64, request: u64) {
        let request = RequestId::from_number(request).unwrap();
        self.engine.run(Command::Adjust(Adjust { sale: sale(1), sku: sku(id), delta, request }));
    }

    fn log(&mut self) -> String {
        let durable = self.engine.log.values().flatten();
        let tail = self.engine.shards.iter().flat_map(|shard| &shard.tail);
        let users = |e: &&stockade_protocol::Entry| e.partition != PartitionId::CATALOG;
        let all: Vec<_> = durable.chain(tail.map(|(_, entry)| entry)).filter(users).collect();
        let mut kinds: Vec<&str> = all.iter().map(|entry| entry.event.word()).collect();
        let count = kinds.len();
        // Tests of the log use one user, so that all entries stand in one partition.
        kinds.drain(..self.logged.min(count));
        self.logged = count;
        format!("[{}]", kinds.join(","))
    }

    fn ask(&mut self, command: Command) -> String {
        let key = match &command {
            Command::Reserve(reserve) => Some((reserve.user, reserve.request.to_text())),
            _ => None,
        };
        let (reply, rests) = self.engine.run_resting(command);
        if let (Some((user, request)), Reply::Reserve(reply)) = (key, &reply)
            && let (Some(order), false) = (reply.order, reply.outcome.is_rejection())
        {
            self.names.insert(order, format!("{user}/{request}"));
        }
        let mut shown = self.show(&reply);
        shown.push_str(if rests { " rests" } else { " at_once" });
        shown
    }

    /// An order as `user/request`, or `pN/M` for the order number M of partition N.
    fn order(&mut self, of: SaleId, text: &str) -> OrderId {
        let (who, what) = text.split_once('/').expect("user/request");
        if let Some(partition) = who.strip_prefix('p') {
            let id = number(partition) << 53 | number(what);
            return OrderId::new(id).unwrap();
        }
        let named = self.names.iter().find(|(_, name)| *name == text).map(|(order, _)| *order);
        named
            .or_else(|| self.engine.order_of(of, user(number(who)), what))
            .unwrap_or_else(|| panic!("no order {text}"))
    }

    fn parse(&mut self, of: SaleId, verb: &str, args: &[&str]) -> Command {
        let flag = |key: &str| args.iter().find_map(|arg| arg.strip_prefix(key));
        match verb {
            "put" => Command::SalePut(Box::new(patch(of, args))),
            "reserve" => Command::Reserve(Reserve {
                sale: of,
                user: user(number(args[0])),
                request: request(args[1]),
                lines: lines(args[2]),
                data: OrderData::new(&vec![7; flag("data=").map_or(0, |n| n.parse().unwrap())])
                    .unwrap(),
                not_after: flag("notafter=").map(|ms| at(number(ms))),
            }),
            "confirm" => Command::Confirm {
                order: self.order(of, args[0]),
                payment: PaymentRef::new(args[1].as_bytes()).unwrap(),
            },
            "cancel" => Command::Cancel {
                order: self.order(of, args[0]),
                reason: args
                    .get(1)
                    .map_or_else(Reason::none, |reason| Reason::new(reason.as_bytes()).unwrap()),
            },
            "extend" => {
                Command::Extend { order: self.order(of, args[0]), until: at(number(args[1])) }
            }
            "return" => Command::Return(Return {
                order: self.order(of, args[0]),
                request: request(args[1]),
                lines: lines(args[2]),
                restock: !args.contains(&"norestock"),
                right: !args.contains(&"noright"),
            }),
            "withdraw" => Command::Withdraw {
                sale: of,
                user: user(number(args[0])),
                request: request(args[1]),
            },
            "order" => Command::OrderGet(self.order(of, args[0])),
            "status" => {
                Command::Status { sale: of, user: user(number(args[0])), request: request(args[1]) }
            }
            "user" => Command::UserGet { sale: of, user: user(number(args[0])) },
            "sku" => Command::SkuGet { sale: of, sku: sku(number(args[0])) },
            "sale" => Command::SaleGet(of),
            "sales" => Command::SaleList,
            "list" => Command::OrderList(OrderList {
                sale: of,
                user: flag("user=").map(|n| user(number(n))),
                state: flag("state=").map(|word| OrderState::from_word(word).unwrap()),
                after: flag("after=").map_or(0, |name| self.order(of, name).get()),
                count: flag("count=").map_or(100, |n| n.parse().unwrap()),
            }),
            "adjust" => Command::Adjust(Adjust {
                sale: of,
                sku: sku(number(args[0])),
                delta: args[1].parse().unwrap(),
                request: request(args[2]),
            }),
            "pause" => Command::SalePause(of),
            "resume" => Command::SaleResume(of),
            "close" => Command::SaleClose(of),
            other => panic!("unknown step {other}"),
        }
    }

    fn name(&self, order: Option<OrderId>) -> String {
        match order {
            None => "none".into(),
            Some(order) => self
                .names
                .get(&order)
                .cloned()
                .unwrap_or_else(|| format!("p{}/{}", order.partition(), order.number())),
        }
    }

    fn show(&self, reply: &Reply) -> String {
        match reply {
            Reply::Reserve(r) => {
                let again = if r.again { " again" } else { "" };
                let (order, exp) = (self.name(r.order), show_at(r.expires_at));
                let (retry, left) = (r.retry_after_ms, r.left);
                let word = r.outcome.word();
                format!("{word}{again} order={order} exp={exp} retry={retry} left={left}")
            }
            Reply::Order(r) => {
                let (word, state) = (r.outcome.word(), r.state.word());
                format!("{word} state={state} order={}", self.name(r.order))
            }
            Reply::OrderView(view) => self.show_view(view),
            Reply::User(view) => self.show_user(view),
            Reply::Orders(views) => {
                let names: Vec<_> = views.iter().map(|view| self.name(view.order)).collect();
                format!("[{}]", names.join(","))
            }
            Reply::Sku(v) => {
                let (total, free, held, confirmed) = (v.total, v.free, v.held, v.confirmed);
                assert_eq!(free + held + confirmed, total);
                let word = v.state.word();
                format!("{word} total={total} free={free} held={held} confirmed={confirmed}")
            }
            Reply::Sale(None) => "null".into(),
            Reply::Sale(Some(view)) => {
                let (state, d) = (view.state.word(), &view.definition);
                let (opens, closes) = (show_at(d.opens_at), d.closes_at.map_or(0, |at| at.get()));
                let skus: Vec<_> =
                    view.skus.iter().map(|s| format!("{}:{}", s.sku, s.free)).collect();
                format!(
                    "{state} opens={opens} closes={closes} hold={} skus={}",
                    d.hold_ms,
                    skus.join(",")
                )
            }
            Reply::Sales(sales) => {
                let show = |s: &stockade_protocol::reply::SaleSummary| {
                    format!("{}:{}:{}", s.sale, s.state.word(), s.sku_count)
                };
                format!("[{}]", sales.iter().map(show).collect::<Vec<_>>().join(","))
            }
            Reply::SalePut(r) => {
                format!("{} {}", r.outcome.word(), r.why.replace([';', ','], " "))
            }
            Reply::SaleSwitch(r) => r.outcome.word().into(),
            Reply::Adjust(r) => {
                let (applied, total, free) = (r.applied, r.total, r.free);
                format!("{} applied={applied} total={total} free={free}", r.outcome.word())
            }
            Reply::Busy { retry_after_ms } => format!("busy retry={retry_after_ms}"),
        }
    }

    fn show_view(&self, view: &OrderView) -> String {
        let id = |id: Option<String>| id.unwrap_or_else(|| "none".into());
        format!(
            "{} order={} sale={} user={} exp={} pay={} lines={} back={}",
            view.state.word(),
            self.name(view.order),
            id(view.sale.map(|sale| sale.to_string())),
            id(view.user.map(|user| user.to_string())),
            show_at(view.expires_at),
            id(view.payment.as_ref().map(|payment| payment.to_string())),
            show_lines(&view.lines),
            show_lines(&view.returned),
        )
    }

    fn show_user(&self, view: &UserView) -> String {
        let skus: Vec<_> =
            view.skus.iter().map(|s| format!("{}*{}:{}", s.sku, s.units, s.left)).collect();
        let live: Vec<_> = view.orders.iter().map(|order| self.name(Some(*order))).collect();
        format!("user units={} live={}", skus.join(","), live.join(","))
    }
}

fn patch(of: SaleId, args: &[&str]) -> SalePatch {
    let mut patch = SalePatch::new(of);
    for arg in args {
        let (key, value) = arg.split_once('=').unwrap_or((arg, ""));
        match key {
            "name" => patch.name = Some(value.into()),
            "opens" if value == "now" => patch.opens_at = Some(OpensAt::Now),
            "opens" => patch.opens_at = Some(OpensAt::At(at(number(value)))),
            "opens_raw" => {
                patch.opens_at = Some(OpensAt::At(TimestampMs::new(number(value))));
            }
            "closes" if value == "never" => patch.closes_at = Some(None),
            "closes" => patch.closes_at = Some(Some(at(number(value)))),
            "hold" => patch.hold_ms = Some(number(value)),
            "extend" => patch.extend_max_ms = Some(number(value)),
            "grace" => patch.grace_ms = Some(number(value)),
            "limit" => patch.limit_per_user = Some(value.parse().unwrap()),
            "rate" => patch.rate_per_s = Some(value.parse().unwrap()),
            "burst" => patch.burst = Some(value.parse().unwrap()),
            "urate" => patch.user_rate_per_s = Some(value.parse().unwrap()),
            "revive" => patch.revive = Some(value != "no"),
            "sku" => {
                let parts: Vec<&str> = value.split(':').collect();
                let part =
                    |n: usize| parts.get(n).filter(|p| !p.is_empty()).map(|p| p.parse().unwrap());
                patch.skus.push(SkuPatch {
                    sku: sku(number(parts[0])),
                    stock: part(1),
                    limit_per_user: part(2),
                    max_per_order: part(3),
                    labels: parts.get(4).map(|labels| {
                        let label = |l: &str| (l.to_string(), "x".to_string());
                        labels.split('+').map(label).collect()
                    }),
                });
            }
            other => panic!("unknown key {other}"),
        }
    }
    patch
}
