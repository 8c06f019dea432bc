//! The rules once more, as plainly as possible: maps, sums and no cleverness. It shares no code
//! with the core; where both agree on every answer, entry and figure, both are right or wrong in
//! the same way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Units by SKU.
pub type Units = BTreeMap<u64, u64>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    Held,
    Confirmed,
    Cancelled,
    Expired,
    Returned,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Return {
    pub request: u64,
    pub units: Units,
    pub restock: bool,
    pub right: bool,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Order {
    pub user: u64,
    pub request: u64,
    pub units: Units,
    pub state: State,
    pub deadline: u64,
    pub deadline_first: u64,
    pub payment: Option<String>,
    pub late: Vec<String>,
    pub returns: Vec<Return>,
}

impl Order {
    fn returned(&self, sku: u64, counts: impl Fn(&Return) -> bool) -> u64 {
        let of = |r: &Return| r.units.get(&sku).copied().unwrap_or(0);
        self.returns.iter().filter(|r| counts(r)).map(of).sum()
    }

    /// Units in the order now.
    pub fn has(&self, sku: u64) -> u64 {
        match self.state {
            State::Held | State::Confirmed | State::Returned => {
                self.units.get(&sku).copied().unwrap_or(0) - self.returned(sku, |_| true)
            }
            State::Cancelled | State::Expired => 0,
        }
    }

    /// Units that use up the user's limit.
    pub fn counts(&self, sku: u64) -> u64 {
        match self.state {
            State::Held | State::Confirmed | State::Returned => {
                self.units.get(&sku).copied().unwrap_or(0) - self.returned(sku, |r| r.right)
            }
            State::Cancelled | State::Expired => 0,
        }
    }

    pub fn is_live(&self) -> bool {
        matches!(self.state, State::Held | State::Confirmed)
    }
}

/// A partition of users.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Part {
    pub last: u64,
    pub orders: BTreeMap<u64, Order>,
    pub tombstones: BTreeSet<(u64, u64)>,
    pub log: Vec<&'static str>,
}

/// An entry that is not durable: the partition as it leaves it, and units that come back with it.
#[derive(Clone, Debug)]
pub struct Pending {
    pub partition: u16,
    pub after: Part,
    /// Units back from held orders, and from confirmed ones.
    pub from_held: Units,
    pub from_confirmed: Units,
}

#[derive(Clone, Debug)]
pub struct Config {
    pub hold: u64,
    pub extend_max: u64,
    pub limit_sale: u64,
    pub limit_sku: u64,
    pub order_max: u64,
    pub revive: bool,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Answer {
    Reserve { outcome: &'static str, again: bool, order: Option<u64>, exp: u64, left: i64 },
    Verb { outcome: &'static str, order: Option<u64>, state: &'static str },
    Wait,
}

pub struct Model {
    pub config: Config,
    pub skus: Vec<u64>,
    pub total: Units,
    pub paused: bool,
    pub now: u64,
    /// Units that another turn has.
    pub aside: Units,
    pub parts: BTreeMap<u16, Part>,
    pub durable: BTreeMap<u16, Part>,
    pub tails: Vec<VecDeque<Pending>>,
    pub shard_count: usize,
}

pub fn word(state: State) -> &'static str {
    match state {
        State::Held => "held",
        State::Confirmed => "confirmed",
        State::Cancelled => "cancelled",
        State::Expired => "expired",
        State::Returned => "returned",
    }
}

fn verb(outcome: &'static str, order: u64, state: State) -> Answer {
    Answer::Verb { outcome, order: Some(order), state: word(state) }
}

pub fn id(partition: u16, number: u64) -> u64 {
    u64::from(partition) << 53 | number
}

impl Model {
    pub fn part(&mut self, partition: u16) -> &mut Part {
        self.parts.entry(partition).or_default()
    }

    fn shard(&self, partition: u16) -> usize {
        usize::from(partition) % self.shard_count
    }

    fn pending(&self, sku: u64, of: impl Fn(&Pending) -> &Units) -> u64 {
        let of = |pending: &Pending| of(pending).get(&sku).copied().unwrap_or(0);
        self.tails.iter().flatten().map(of).sum()
    }

    fn orders(&self) -> impl Iterator<Item = &Order> {
        self.parts.values().flat_map(|part| part.orders.values())
    }

    /// (total, free, held, confirmed) as an answer must give them.
    pub fn figures(&self, sku: u64) -> (u64, u64, u64, u64) {
        let sum = |state: fn(State) -> bool| -> u64 {
            self.orders().filter(|o| state(o.state)).map(|o| o.has(sku)).sum()
        };
        let held = sum(|s| s == State::Held) + self.pending(sku, |p| &p.from_held);
        let confirmed = sum(|s| matches!(s, State::Confirmed | State::Returned))
            + self.pending(sku, |p| &p.from_confirmed);
        let gone: u64 = self.durable_removed(sku);
        let total = self.total[&sku] - gone;
        (total, total - held - confirmed, held, confirmed)
    }

    fn durable_removed(&self, sku: u64) -> u64 {
        let orders = self.durable.values().flat_map(|part| part.orders.values());
        orders.map(|o| o.returned(sku, |r| !r.restock)).sum()
    }

    /// Units in the pool.
    fn free(&self, sku: u64) -> u64 {
        self.figures(sku).1 - self.aside.get(&sku).copied().unwrap_or(0)
    }

    /// An entry: the partition is as it is now, and these units wait for it.
    fn entry(&mut self, partition: u16, kind: &'static str, held: Units, confirmed: Units) {
        self.part(partition).log.push(kind);
        let after = self.part(partition).clone();
        let shard = self.shard(partition);
        self.tails[shard].push_back(Pending {
            partition,
            after,
            from_held: held,
            from_confirmed: confirmed,
        });
    }

    fn plain_entry(&mut self, partition: u16, kind: &'static str) {
        self.entry(partition, kind, Units::new(), Units::new());
    }

    pub fn commit(&mut self, shard: usize, entries: usize) {
        for _ in 0..entries {
            let Some(pending) = self.tails[shard].pop_front() else { return };
            self.durable.insert(pending.partition, pending.after);
        }
    }

    pub fn crash(&mut self, shard_count: usize, grace: u64) {
        self.parts = self.durable.clone();
        self.shard_count = shard_count;
        self.tails = vec![VecDeque::new(); shard_count];
        self.aside.clear();
        for shard in 0..shard_count {
            for (_, partition, number) in self.due(shard) {
                let until = self.now + grace;
                self.part(partition).orders.get_mut(&number).unwrap().deadline = until;
                self.plain_entry(partition, "extended");
            }
        }
    }

    /// Holds of a shard that ran out: (deadline, partition, number) ascending.
    pub fn due(&self, shard: usize) -> Vec<(u64, u16, u64)> {
        let mut due = Vec::new();
        for (partition, part) in &self.parts {
            if self.shard(*partition) != shard {
                continue;
            }
            for (number, order) in &part.orders {
                if order.state == State::Held && order.deadline < self.now {
                    due.push((order.deadline, *partition, *number));
                }
            }
        }
        due.sort_unstable();
        due
    }

    pub fn expire(&mut self, shard: usize, most: usize) {
        for (_, partition, number) in self.due(shard).into_iter().take(most) {
            self.end(partition, number, State::Expired);
        }
    }

    fn end(&mut self, partition: u16, number: u64, state: State) {
        let order = self.part(partition).orders.get_mut(&number).unwrap();
        order.state = state;
        let units = order.units.clone();
        self.entry(partition, word(state), units, Units::new());
    }

    fn expire_if_due(&mut self, partition: u16, number: u64) {
        let now = self.now;
        let order = &self.part(partition).orders[&number];
        if order.state == State::Held && order.deadline < now {
            self.end(partition, number, State::Expired);
        }
    }

    fn order(&mut self, partition: u16, number: u64) -> &mut Order {
        self.part(partition).orders.get_mut(&number).unwrap()
    }

    pub fn find(&self, partition: u16, user: u64, request: u64) -> Option<u64> {
        let part = self.parts.get(&partition)?;
        let mut found = part.orders.iter().filter(|(_, o)| o.user == user && o.request == request);
        let number = found.next().map(|(number, _)| *number);
        assert!(found.next().is_none(), "one order per request id");
        number
    }

    pub fn counted(&self, partition: u16, user: u64, sku: u64) -> u64 {
        let orders = self.parts.get(&partition).map(|part| part.orders.values());
        orders.into_iter().flatten().filter(|o| o.user == user).map(|o| o.counts(sku)).sum()
    }

    /// What the user may still have; `None`: no limit.
    pub fn left(&self, partition: u16, user: u64, units: &Units) -> Option<u64> {
        let mut left = Vec::new();
        if self.config.limit_sku > 0 {
            let each = |sku: &u64| {
                self.config.limit_sku.checked_sub(self.counted(partition, user, *sku)).unwrap()
            };
            left.extend(units.keys().map(each));
        }
        if self.config.limit_sale > 0 {
            let all: u64 = self.skus.iter().map(|sku| self.counted(partition, user, *sku)).sum();
            left.push(self.config.limit_sale.checked_sub(all).unwrap());
        }
        left.into_iter().min()
    }

    fn passes_limit(&self, partition: u16, user: u64, units: &Units) -> bool {
        let sku = |(sku, n): (&u64, &u64)| {
            let limit = self.config.limit_sku;
            limit > 0 && self.counted(partition, user, *sku) + n > limit
        };
        let all: u64 = self.skus.iter().map(|sku| self.counted(partition, user, *sku)).sum();
        let sum: u64 = units.values().sum();
        let limit = self.config.limit_sale;
        units.iter().any(sku) || (limit > 0 && all + sum > limit)
    }

    fn told(left: Option<u64>) -> i64 {
        left.map_or(-1, |left| left as i64)
    }

    /// `None`: the units are there. Else sold out (true) or with another turn (false).
    fn shortage(&self, units: &Units) -> Option<bool> {
        let aside = |sku: &u64| self.aside.get(sku).copied().unwrap_or(0);
        if units.iter().any(|(sku, n)| self.free(*sku) + aside(sku) < *n) {
            return Some(true);
        }
        units.iter().any(|(sku, n)| self.free(*sku) < *n).then_some(false)
    }

    pub fn reserve(&mut self, partition: u16, user: u64, request: u64, units: &Units) -> Answer {
        let plain =
            |outcome| Answer::Reserve { outcome, again: false, order: None, exp: 0, left: -1 };
        if units.is_empty() || units.values().any(|n| *n == 0) {
            return plain("bad_request");
        }
        if let Some(number) = self.find(partition, user, request) {
            self.expire_if_due(partition, number);
            let order = self.parts[&partition].orders[&number].clone();
            let same = order.units == *units;
            return Answer::Reserve {
                outcome: if same { word(order.state) } else { "id_conflict" },
                again: same,
                order: Some(id(partition, number)),
                exp: order.deadline,
                left: if same { Self::told(self.left(partition, user, units)) } else { -1 },
            };
        }
        if self.part(partition).tombstones.contains(&(user, request)) {
            return plain("withdrawn");
        }
        if units.keys().any(|sku| !self.skus.contains(sku)) {
            return plain("unknown_sku");
        }
        if self.paused {
            return plain("paused");
        }
        if self.config.order_max > 0 && units.values().any(|n| *n > self.config.order_max) {
            return plain("bad_quantity");
        }
        if self.passes_limit(partition, user, units) {
            let live = self.part(partition).orders.iter();
            let live = live.filter(|(_, o)| o.user == user && o.is_live());
            let newest = live.max_by_key(|(number, _)| **number);
            let newest = newest.map(|(number, o)| (*number, o.deadline));
            return Answer::Reserve {
                outcome: "limit",
                again: false,
                order: newest.map(|(number, _)| id(partition, number)),
                exp: newest.map_or(0, |(_, deadline)| deadline),
                left: Self::told(self.left(partition, user, units)),
            };
        }
        match self.shortage(units) {
            Some(true) => return plain("sold_out"),
            Some(false) => return Answer::Wait,
            None => {}
        }
        self.place(partition, user, request, units)
    }

    fn place(&mut self, partition: u16, user: u64, request: u64, units: &Units) -> Answer {
        let held = self.config.hold > 0;
        let deadline = if held { self.now + self.config.hold } else { 0 };
        let state = if held { State::Held } else { State::Confirmed };
        let part = self.part(partition);
        part.last += 1;
        let number = part.last;
        part.orders.insert(
            number,
            Order {
                user,
                request,
                units: units.clone(),
                state,
                deadline,
                deadline_first: deadline,
                payment: None,
                late: Vec::new(),
                returns: Vec::new(),
            },
        );
        self.plain_entry(partition, word(state));
        Answer::Reserve {
            outcome: word(state),
            again: false,
            order: Some(id(partition, number)),
            exp: deadline,
            left: Self::told(self.left(partition, user, units)),
        }
    }

    pub fn unknown(&mut self, partition: u16, number: u64) -> Option<Answer> {
        let known = self.part(partition).orders.contains_key(&number);
        let order = Some(id(partition, number));
        (!known).then_some(Answer::Verb { outcome: "unknown_order", order, state: "unknown" })
    }

    pub fn confirm(&mut self, partition: u16, number: u64, payment: &str) -> Answer {
        if let Some(unknown) = self.unknown(partition, number) {
            return unknown;
        }
        self.expire_if_due(partition, number);
        let order = self.order(partition, number).clone();
        let id = id(partition, number);
        let own = order.payment.as_deref() == Some(payment);
        let (outcome, late) = match order.state {
            State::Held => ("confirmed", false),
            State::Confirmed if order.payment.is_none() => ("confirmed", false),
            State::Confirmed if own => return verb("already_confirmed", id, order.state),
            State::Confirmed => ("id_conflict", true),
            State::Returned if own => return verb("too_late", id, order.state),
            State::Expired if self.config.revive && !order.late.iter().any(|p| p == payment) => {
                match self.revival(partition, &order) {
                    Some(false) => return Answer::Wait,
                    Some(true) => ("too_late", true),
                    None => ("confirmed", false),
                }
            }
            _ => ("too_late", true),
        };
        if late {
            if !order.late.iter().any(|p| p == payment) {
                self.order(partition, number).late.push(payment.into());
                self.plain_entry(partition, "late_payment");
            }
        } else {
            let order = self.order(partition, number);
            order.state = State::Confirmed;
            order.payment = Some(payment.into());
            self.plain_entry(partition, "confirmed");
        }
        let state = self.order(partition, number).state;
        verb(outcome, id, state)
    }

    /// `None`: it can be revived. Else too late (true) or its units are with another turn (false).
    fn revival(&self, partition: u16, order: &Order) -> Option<bool> {
        if self.passes_limit(partition, order.user, &order.units) {
            return Some(true);
        }
        self.shortage(&order.units)
    }

    pub fn cancel(&mut self, partition: u16, number: u64) -> Answer {
        if let Some(unknown) = self.unknown(partition, number) {
            return unknown;
        }
        self.expire_if_due(partition, number);
        let id = id(partition, number);
        match self.order(partition, number).state {
            State::Held => {
                self.end(partition, number, State::Cancelled);
                verb("cancelled", id, State::Cancelled)
            }
            State::Cancelled => verb("already_cancelled", id, State::Cancelled),
            state => verb("too_late", id, state),
        }
    }

    pub fn withdraw(&mut self, partition: u16, user: u64, request: u64) -> Answer {
        if let Some(number) = self.find(partition, user, request) {
            return self.cancel(partition, number);
        }
        if self.part(partition).tombstones.insert((user, request)) {
            self.plain_entry(partition, "withdrawn");
        }
        Answer::Verb { outcome: "withdrawn", order: None, state: "withdrawn" }
    }

    pub fn extend(&mut self, partition: u16, number: u64, until: u64) -> Answer {
        if let Some(unknown) = self.unknown(partition, number) {
            return unknown;
        }
        self.expire_if_due(partition, number);
        let (now_max, id) = (self.config.extend_max, id(partition, number));
        let order = self.order(partition, number);
        if order.state != State::Held {
            return verb("too_late", id, order.state);
        }
        if until <= order.deadline {
            return verb("extended", id, State::Held);
        }
        if until > order.deadline_first + now_max {
            return verb("refused", id, State::Held);
        }
        order.deadline = until;
        self.plain_entry(partition, "extended");
        verb("extended", id, State::Held)
    }

    /// No units means all that is left.
    pub fn give_back(&mut self, partition: u16, number: u64, back: Return) -> Answer {
        if back.units.values().any(|n| *n == 0) {
            let order = Some(id(partition, number));
            return Answer::Verb { outcome: "bad_request", order, state: "unknown" };
        }
        if let Some(unknown) = self.unknown(partition, number) {
            return unknown;
        }
        self.expire_if_due(partition, number);
        let id = id(partition, number);
        let order = self.order(partition, number);
        let state = order.state;
        if let Some(at) = order.returns.iter().position(|r| r.request == back.request) {
            let known = &order.returns[at];
            let emptied = state == State::Returned && at + 1 == order.returns.len();
            let same_units =
                if back.units.is_empty() { emptied } else { back.units == known.units };
            let same = same_units && known.restock == back.restock && known.right == back.right;
            return verb(if same { "already_returned" } else { "id_conflict" }, id, state);
        }
        if state != State::Confirmed {
            return verb("too_late", id, state);
        }
        let left: Units = order.units.keys().map(|sku| (*sku, order.has(*sku))).collect();
        let left: Units = left.into_iter().filter(|(_, n)| *n > 0).collect();
        let units = if back.units.is_empty() { left.clone() } else { back.units.clone() };
        if units.iter().any(|(sku, n)| left.get(sku).is_none_or(|most| n > most)) {
            return verb("bad_quantity", id, state);
        }
        order.returns.push(Return { units: units.clone(), ..back });
        let whole = units == left;
        if whole {
            order.state = State::Returned;
        }
        let state = order.state;
        self.entry(partition, "returned", Units::new(), units);
        verb("returned", id, state)
    }

    /// What an adjust does.
    pub fn adjust(&mut self, sku: u64, delta: i64) -> i64 {
        let applied = delta.max(-(self.free(sku) as i64));
        let total = self.total.get_mut(&sku).unwrap();
        *total = total.checked_add_signed(applied).unwrap();
        applied
    }
}
