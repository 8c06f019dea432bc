//! The rules of a turn once more: what each command must be answered and which entry it must make.
//!
//! Written from the contract, sharing no code with the core. [`Turn`] sees the state of one shard
//! and the pool, decides one command, and says what the answer rests on.

use super::catalog::View;
use super::state::{Order, Part};
use super::{Model, Pool, Units};
use std::rc::Rc;
use stockade_protocol::command::{Command, Line, Lines, Reserve, Return};
use stockade_protocol::entry::{LateReason, OrderKey, Placed};
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::reply::{OrderReply, OrderView, ReserveReply, UserSku, UserView};
use stockade_protocol::routing::partition_of;
use stockade_protocol::text::{PaymentRef, Reason};
use stockade_protocol::{
    Event, OrderId, OrderState, Outcome, PartitionId, Reply, RequestId, SaleId, SaleState, SkuId,
    UserId,
};

/// The entry that an answer rests on: partition and LSN. `None`: it may go at once.
pub type Rest = Option<(u16, u64)>;

/// What must become of a command.
#[derive(Debug)]
pub enum Verdict {
    /// This answer.
    Answer(Reply, Rest),
    /// Another turn has its units.
    Wait,
}

/// Of `retry_after_ms` after `sold_out`: units may come back.
pub const RETRY_LATER: i64 = 1_000;

fn reserve_reply(outcome: Outcome, retry_after_ms: i64) -> ReserveReply {
    ReserveReply {
        outcome,
        again: false,
        order: None,
        expires_at: TimestampMs::NONE,
        retry_after_ms,
        left: -1,
    }
}

fn rejected(outcome: Outcome, retry_after_ms: i64) -> Verdict {
    Verdict::Answer(Reply::Reserve(reserve_reply(outcome, retry_after_ms)), None)
}

/// Lines of one SKU added together, ascending; `None` if they make no sense.
fn added(lines: &[Line]) -> Option<Lines> {
    let mut sums: Vec<(SkuId, u64)> = Vec::new();
    for line in lines {
        if line.quantity == 0 {
            return None;
        }
        match sums.iter_mut().find(|(sku, _)| *sku == line.sku) {
            Some((_, sum)) => *sum += u64::from(line.quantity),
            None => sums.push((line.sku, u64::from(line.quantity))),
        }
    }
    sums.sort_unstable();
    let whole = |(sku, sum): (SkuId, u64)| Some(Line { sku, quantity: u32::try_from(sum).ok()? });
    (sums.len() <= 64).then(|| sums.into_iter().map(whole).collect()).flatten()
}

/// What a user may have.
struct Allowance {
    left: Option<u64>,
    left_after: Option<u64>,
    passed: bool,
}

fn told(left: Option<u64>) -> i64 {
    left.map_or(-1, |left| left as i64)
}

/// Decides the commands of one shard.
pub struct Turn<'a> {
    /// Everything.
    pub model: &'a mut Model,
    /// The shard.
    pub shard: usize,
}

impl Turn<'_> {
    /// What must become of the command.
    pub fn decide(&mut self, command: &Command) -> Verdict {
        match command {
            Command::Reserve(reserve) => self.reserve(reserve),
            Command::Confirm { order, payment } => self.confirm(*order, payment),
            Command::Cancel { order, reason } => match self.order(*order) {
                Ok(part) => self.end(part, order.number(), reason),
                Err(answer) => answer,
            },
            Command::Withdraw { sale, user, request } => self.withdraw(*sale, *user, request),
            Command::Extend { order, until } => self.extend(*order, until.get()),
            Command::Return(back) => self.give_back(back),
            Command::OrderGet(order) => self.order_get(*order),
            Command::Status { sale, user, request } => self.status(*sale, *user, request),
            Command::UserGet { sale, user } => self.user_get(*sale, *user),
            Command::OrderList(list) => {
                let part = self.part_of(list.user.expect("routed by user"));
                let views = self.list(part, list.sale, list.user, list.state, list.after);
                let views = views.into_iter().take(list.count.min(1000) as usize).collect();
                Verdict::Answer(Reply::Orders(views), self.rest(part))
            }
            other => panic!("not a command of a turn: {other:?}"),
        }
    }

    fn now(&self) -> u64 {
        self.model.now
    }

    fn part_of(&self, user: UserId) -> usize {
        usize::from(partition_of(user, self.model.partition_count()).get())
    }

    fn part(&self, part: usize) -> &Part {
        &self.model.live[part]
    }

    fn rest(&self, part: usize) -> Rest {
        // What was recovered is durable; only entries of this life are waited for.
        Some((part as u16, self.part(part).lsn))
    }

    fn view(&self, sale: SaleId) -> Option<Rc<View>> {
        self.model.shards[self.shard].views.get(&sale).cloned()
    }

    fn is_archived(&self, sale: SaleId) -> bool {
        self.model.shards[self.shard].archived.contains(&sale)
    }

    fn emit(&mut self, part: usize, event: Event) {
        self.model.emit(self.shard, part, event);
    }

    fn key(&self, part: usize, number: u64) -> OrderKey {
        let order = &self.part(part).orders[&number];
        let id = OrderId::from_parts(PartitionId::new(part as u16), number);
        OrderKey {
            order: id.expect("an order's own id"),
            sale: Some(order.sale),
            user: Some(order.user),
        }
    }

    fn say(&self, part: usize, number: u64, outcome: Outcome) -> Verdict {
        let (order, state) = (self.key(part, number).order, self.part(part).orders[&number].state);
        let reply = OrderReply { outcome, order: Some(order), state };
        Verdict::Answer(Reply::Order(reply), self.rest(part))
    }

    /// A hold that has run out ends before anything else happens to it.
    fn run_out(&mut self, part: usize, number: u64) {
        let order = &self.part(part).orders[&number];
        if order.state == OrderState::Held && order.deadline < self.now() {
            let key = self.key(part, number);
            self.emit(part, Event::Expired { key });
        }
    }

    /// The order of a verb; `Err`: the answer where there is none.
    fn order(&mut self, id: OrderId) -> Result<usize, Verdict> {
        let part = usize::from(id.partition().get());
        let say = |outcome, state, rest| {
            let reply = OrderReply { outcome, order: Some(id), state };
            Err(Verdict::Answer(Reply::Order(reply), rest))
        };
        if part >= self.model.live.len() {
            return say(Outcome::UnknownOrder, OrderState::Unknown, None);
        }
        if id.number() == 0 || id.number() > self.part(part).number_last {
            return say(Outcome::UnknownOrder, OrderState::Unknown, self.rest(part));
        }
        if !self.part(part).orders.contains_key(&id.number()) {
            return say(Outcome::TooLate, OrderState::Archived, self.rest(part));
        }
        self.run_out(part, id.number());
        Ok(part)
    }

    fn allowance(&self, part: usize, sale: SaleId, user: UserId, lines: &[Line]) -> Allowance {
        let mut has: Vec<(SkuId, u64)> = Vec::new();
        for (_, order) in self.part(part).orders_of(sale, user) {
            has.extend(order.counted());
        }
        let view = self.view(sale);
        let mut allowance = Allowance { left: None, left_after: None, passed: false };
        let mut bound = |limit: u32, used: u64, asked: u64| {
            if limit > 0 {
                let limit = u64::from(limit);
                let least = |old: Option<u64>, new: u64| Some(old.map_or(new, |old| old.min(new)));
                allowance.left = least(allowance.left, limit.saturating_sub(used));
                let after = limit.saturating_sub(used + asked);
                allowance.left_after = least(allowance.left_after, after);
                allowance.passed |= used + asked > limit;
            }
        };
        let sum = |sku: Option<SkuId>| -> u64 {
            let of = has.iter().filter(|(of, _)| sku.is_none_or(|sku| sku == *of));
            of.map(|(_, units)| units).sum()
        };
        for line in lines {
            let limit = view.as_ref().and_then(|view| Some(view.sku(line.sku)?.limit_per_user));
            bound(limit.unwrap_or(0), sum(Some(line.sku)), u64::from(line.quantity));
        }
        let asked = lines.iter().map(|line| u64::from(line.quantity)).sum();
        bound(view.map_or(0, |view| view.definition.limit_per_user), sum(None), asked);
        allowance
    }

    fn reserve(&mut self, reserve: &Reserve) -> Verdict {
        let Reserve { sale, user, ref request, .. } = *reserve;
        let Some(lines) = added(&reserve.lines).filter(|lines| !lines.is_empty()) else {
            return rejected(Outcome::BadRequest, -1);
        };
        let part = self.part_of(user);
        if let Some(number) = self.part(part).find(sale, user, request) {
            self.run_out(part, number);
            return self.again(part, number, &lines);
        }
        if self.part(part).is_withdrawn(sale, user, request) {
            let reply = reserve_reply(Outcome::Withdrawn, -1);
            return Verdict::Answer(Reply::Reserve(reply), self.rest(part));
        }
        if reserve.not_after.is_some_and(|at| at.get() < self.now()) {
            return rejected(Outcome::Stale, -1);
        }
        let Some(view) = self.view(sale) else {
            let ended = self.is_archived(sale);
            return rejected(if ended { Outcome::Ended } else { Outcome::UnknownSale }, -1);
        };
        if lines.iter().any(|line| view.sku(line.sku).is_none()) {
            return rejected(Outcome::UnknownSku, -1);
        }
        match view.state(self.now()) {
            SaleState::Live => {}
            SaleState::Armed => {
                let to_go = view.definition.opens_at.get() - self.now();
                return rejected(Outcome::NotStarted, to_go as i64);
            }
            SaleState::Paused => return rejected(Outcome::Paused, RETRY_LATER),
            _ => return rejected(Outcome::Ended, -1),
        }
        let over = |line: &Line| {
            let most = view.sku(line.sku).map_or(0, |sku| sku.max_per_order);
            most > 0 && line.quantity > most
        };
        if lines.iter().any(over) {
            return rejected(Outcome::BadQuantity, -1);
        }
        let allowance = self.allowance(part, sale, user, &lines);
        if allowance.passed {
            return self.limit(part, sale, user, &allowance);
        }
        if let Err(verdict) = self.take(sale, user, &view, &lines) {
            return verdict;
        }
        self.place(part, reserve, &view, lines, told(allowance.left_after))
    }

    fn again(&mut self, part: usize, number: u64, lines: &Lines) -> Verdict {
        let order = self.part(part).orders[&number].clone();
        let same = order.lines == *lines;
        let outcome = match order.state {
            _ if !same => Outcome::IdConflict,
            OrderState::Held => Outcome::Held,
            OrderState::Confirmed => Outcome::Confirmed,
            OrderState::Cancelled => Outcome::Cancelled,
            OrderState::Expired => Outcome::Expired,
            _ => Outcome::Returned,
        };
        let left = self.allowance(part, order.sale, order.user, lines).left;
        let reply = ReserveReply {
            outcome,
            again: same,
            order: Some(self.key(part, number).order),
            expires_at: TimestampMs::new(order.deadline),
            retry_after_ms: if same { 0 } else { -1 },
            left: if same { told(left) } else { -1 },
        };
        Verdict::Answer(Reply::Reserve(reply), self.rest(part))
    }

    fn limit(&self, part: usize, sale: SaleId, user: UserId, allowance: &Allowance) -> Verdict {
        let live = self.part(part).orders_of(sale, user).filter(|(_, order)| order.is_live());
        let uses = live.filter(|(_, order)| !order.counted().is_empty());
        let newest = uses.max_by_key(|(number, _)| *number);
        let to_go = |order: &Order| (order.deadline.saturating_sub(self.now()) as i64).max(1);
        let held = newest.filter(|(_, order)| order.state == OrderState::Held);
        let reply = ReserveReply {
            outcome: Outcome::Limit,
            again: false,
            order: newest.map(|(number, _)| self.key(part, number).order),
            expires_at: TimestampMs::new(newest.map_or(0, |(_, order)| order.deadline)),
            retry_after_ms: held.map_or(-1, |(_, order)| to_go(order)),
            left: told(allowance.left),
        };
        Verdict::Answer(Reply::Reserve(reply), self.rest(part))
    }

    /// Is a SKU sold out for these lines? Then when to come back.
    fn sold_out(&self, sale: SaleId, lines: &[Line]) -> Option<i64> {
        let short = lines.iter().find(|line| {
            let units = self.model.pool.of(sale, line.sku);
            units.free + units.aside() < u64::from(line.quantity)
        });
        short.map(|line| {
            let held = self.model.pool.of(sale, line.sku).held > 0;
            if held { RETRY_LATER } else { -1 }
        })
    }

    fn waits(&self, sale: SaleId, lines: &[Line]) -> bool {
        let free = |line: &Line| self.model.pool.of(sale, line.sku).free;
        lines.iter().any(|line| free(line) < u64::from(line.quantity))
    }

    /// Rules 7 to 9 but for the grant.
    fn take(
        &mut self,
        sale: SaleId,
        user: UserId,
        view: &View,
        lines: &[Line],
    ) -> Result<(), Verdict> {
        if let Some(retry) = self.sold_out(sale, lines) {
            return Err(rejected(Outcome::SoldOut, retry));
        }
        let now = self.now();
        let definition = &view.definition;
        let of_user = Rate::of(definition.user_rate_per_s, 0);
        let of_sale = Rate::of(definition.rate_per_s, definition.burst);
        let key = (sale, user);
        let user_full = self.model.shards[self.shard].user_full.get(&key).copied().unwrap_or(0);
        let sale_full = self.model.sale_full.get(&sale).copied().unwrap_or(0);
        for (rate, full_at) in [(of_user, user_full), (of_sale, sale_full)] {
            if let Some(wait_ms) = rate.and_then(|rate| rate.wait_ms(full_at, now)) {
                return Err(rejected(Outcome::Throttled, wait_ms));
            }
        }
        if self.waits(sale, lines) {
            return Err(Verdict::Wait);
        }
        if let Some(rate) = of_sale {
            self.model.sale_full.insert(sale, rate.after(sale_full, now));
        }
        if let Some(rate) = of_user {
            let after = rate.after(user_full, now);
            self.model.shards[self.shard].user_full.insert(key, after);
        }
        Ok(())
    }

    fn place(
        &mut self,
        part: usize,
        reserve: &Reserve,
        view: &View,
        lines: Lines,
        left: i64,
    ) -> Verdict {
        let id = PartitionId::new(part as u16);
        let number = self.part(part).number_last + 1;
        let hold = view.definition.hold_ms;
        let deadline = if hold > 0 { self.now() + hold } else { 0 };
        let placed = Placed {
            order: OrderId::from_parts(id, number).expect("small numbers"),
            sale: reserve.sale,
            user: reserve.user,
            request: reserve.request.clone(),
            expires_at: TimestampMs::new(deadline),
            lines,
            data: reserve.data.clone(),
        };
        let (order, expires_at) = (Some(placed.order), placed.expires_at);
        let (outcome, event) = if hold > 0 {
            (Outcome::Held, Event::Held(placed))
        } else {
            (Outcome::Confirmed, Event::BornConfirmed(placed))
        };
        self.emit(part, event);
        let (again, retry_after_ms) = (false, 0);
        let reply = ReserveReply { outcome, again, order, expires_at, retry_after_ms, left };
        Verdict::Answer(Reply::Reserve(reply), self.rest(part))
    }

    fn confirm(&mut self, id: OrderId, payment: &PaymentRef) -> Verdict {
        let number = id.number();
        let part = match self.order(id) {
            Ok(part) => part,
            Err(Verdict::Answer(reply, rest)) => {
                return self.archived_money(id, payment, reply, rest);
            }
            Err(wait) => return wait,
        };
        let order = self.part(part).orders[&number].clone();
        let own = order.payment.as_ref() == Some(payment);
        let (reason, outcome) = match order.state {
            OrderState::Held => return self.pay(part, number, payment),
            OrderState::Confirmed if order.payment.is_none() => {
                return self.pay(part, number, payment);
            }
            OrderState::Confirmed if own => {
                return self.say(part, number, Outcome::AlreadyConfirmed);
            }
            OrderState::Confirmed => (LateReason::SecondPayment, Outcome::IdConflict),
            OrderState::Returned if own => return self.say(part, number, Outcome::TooLate),
            OrderState::Returned => (LateReason::Returned, Outcome::TooLate),
            OrderState::Cancelled => (LateReason::Cancelled, Outcome::TooLate),
            _ => {
                if let Some(verdict) = self.revive(part, number, &order, payment) {
                    return verdict;
                }
                (LateReason::Expired, Outcome::TooLate)
            }
        };
        if !order.late.contains(payment) {
            if order.late.len() + usize::from(order.payment.is_some()) >= 16 {
                return self.say(part, number, Outcome::Refused);
            }
            let key = self.key(part, number);
            self.emit(part, Event::LatePayment { key, payment: payment.clone(), reason });
        }
        self.say(part, number, outcome)
    }

    fn archived_money(
        &mut self,
        id: OrderId,
        payment: &PaymentRef,
        reply: Reply,
        rest: Rest,
    ) -> Verdict {
        let Reply::Order(OrderReply { outcome: Outcome::TooLate, .. }) = reply else {
            return Verdict::Answer(reply, rest);
        };
        let part = usize::from(id.partition().get());
        let key = OrderKey { order: id, sale: None, user: None };
        let (payment, reason) = (payment.clone(), LateReason::Archived);
        self.emit(part, Event::LatePayment { key, payment, reason });
        Verdict::Answer(reply, self.rest(part))
    }

    fn pay(&mut self, part: usize, number: u64, payment: &PaymentRef) -> Verdict {
        let key = self.key(part, number);
        self.emit(part, Event::Confirmed { key, payment: payment.clone() });
        self.say(part, number, Outcome::Confirmed)
    }

    /// `None`: the money is late.
    fn revive(
        &mut self,
        part: usize,
        number: u64,
        order: &Order,
        payment: &PaymentRef,
    ) -> Option<Verdict> {
        let view = self.view(order.sale)?;
        let full = order.late.len() + usize::from(order.payment.is_some()) >= 16;
        if !view.definition.revive || full || order.late.contains(payment) {
            return None;
        }
        if self.allowance(part, order.sale, order.user, &order.lines).passed
            || self.sold_out(order.sale, &order.lines).is_some()
        {
            return None;
        }
        if self.waits(order.sale, &order.lines) {
            return Some(Verdict::Wait);
        }
        let (key, lines) = (self.key(part, number), order.lines.clone());
        self.emit(part, Event::Revived { key, payment: payment.clone(), lines });
        Some(self.say(part, number, Outcome::Confirmed))
    }

    fn end(&mut self, part: usize, number: u64, reason: &Reason) -> Verdict {
        match self.part(part).orders[&number].state {
            OrderState::Held => {
                let key = self.key(part, number);
                self.emit(part, Event::Cancelled { key, reason: reason.clone() });
                self.say(part, number, Outcome::Cancelled)
            }
            OrderState::Cancelled => self.say(part, number, Outcome::AlreadyCancelled),
            _ => self.say(part, number, Outcome::TooLate),
        }
    }

    fn withdraw(&mut self, sale: SaleId, user: UserId, request: &RequestId) -> Verdict {
        let part = self.part_of(user);
        if let Some(number) = self.part(part).find(sale, user, request) {
            self.run_out(part, number);
            let reason = Reason::new(b"withdrawn").expect("a short text");
            return self.end(part, number, &reason);
        }
        let say = |outcome, state, rest| {
            Verdict::Answer(Reply::Order(OrderReply { outcome, order: None, state }), rest)
        };
        if self.is_archived(sale) {
            return say(Outcome::TooLate, OrderState::Archived, self.rest(part));
        }
        if self.view(sale).is_none() {
            return say(Outcome::UnknownSale, OrderState::Unknown, None);
        }
        if !self.part(part).is_withdrawn(sale, user, request) {
            if self.part(part).tombstones_of(sale, user) >= 64 {
                return say(Outcome::Refused, OrderState::Unknown, self.rest(part));
            }
            self.emit(part, Event::Withdrawn { sale, user, request: request.clone() });
        }
        say(Outcome::Withdrawn, OrderState::Withdrawn, self.rest(part))
    }

    fn extend(&mut self, id: OrderId, until: u64) -> Verdict {
        let number = id.number();
        let part = match self.order(id) {
            Ok(part) => part,
            Err(answer) => return answer,
        };
        let order = &self.part(part).orders[&number];
        if order.state != OrderState::Held {
            return self.say(part, number, Outcome::TooLate);
        }
        let span = self.view(order.sale).map_or(0, |view| view.definition.extend_max_ms);
        if until > order.deadline && until > order.deadline_first + span {
            return self.say(part, number, Outcome::Refused);
        }
        if until > order.deadline {
            let (key, expires_at) = (self.key(part, number), TimestampMs::new(until));
            self.emit(part, Event::Extended { key, expires_at });
        }
        self.say(part, number, Outcome::Extended)
    }

    fn give_back(&mut self, back: &Return) -> Verdict {
        let number = back.order.number();
        let Some(lines) = added(&back.lines) else {
            let (outcome, order) = (Outcome::BadRequest, Some(back.order));
            let reply = OrderReply { outcome, order, state: OrderState::Unknown };
            return Verdict::Answer(Reply::Order(reply), None);
        };
        let part = match self.order(back.order) {
            Ok(part) => part,
            Err(answer) => return answer,
        };
        let order = self.part(part).orders[&number].clone();
        if let Some(at) = order.returns.iter().position(|known| known.request == back.request) {
            let known = &order.returns[at];
            let last = at + 1 == order.returns.len() && order.state == OrderState::Returned;
            let lines_same = if lines.is_empty() { last } else { known.lines == lines };
            let same = lines_same && known.restock == back.restock && known.right == back.right;
            let outcome = if same { Outcome::AlreadyReturned } else { Outcome::IdConflict };
            return self.say(part, number, outcome);
        }
        if order.state != OrderState::Confirmed {
            return self.say(part, number, Outcome::TooLate);
        }
        let left = order.left();
        let lines = if lines.is_empty() { left.clone() } else { lines };
        let has =
            |line: &Line| left.iter().any(|of| of.sku == line.sku && of.quantity >= line.quantity);
        if !lines.iter().all(has) {
            return self.say(part, number, Outcome::BadQuantity);
        }
        let whole = lines == left;
        if order.returns.len() >= 64 && !whole {
            return self.say(part, number, Outcome::Refused);
        }
        let (key, request) = (self.key(part, number), back.request.clone());
        let (restock, right) = (back.restock, back.right);
        self.emit(part, Event::Returned { key, request, lines, restock, right, whole });
        self.say(part, number, Outcome::Returned)
    }

    fn order_get(&self, id: OrderId) -> Verdict {
        let part = usize::from(id.partition().get());
        let answer = |view, rest| Verdict::Answer(Reply::OrderView(Box::new(view)), rest);
        let Some(of) = self.model.live.get(part) else {
            return answer(OrderView::without_order(OrderState::Unknown), None);
        };
        let view = match of.orders.get(&id.number()) {
            Some(order) => shown(id, order),
            None if id.number() == 0 || id.number() > of.number_last => {
                OrderView::without_order(OrderState::Unknown)
            }
            None => OrderView::without_order(OrderState::Archived),
        };
        answer(view, self.rest(part))
    }

    fn status(&self, sale: SaleId, user: UserId, request: &RequestId) -> Verdict {
        let part = self.part_of(user);
        let of = self.part(part);
        let view = match of.find(sale, user, request) {
            Some(number) => shown(self.key(part, number).order, &of.orders[&number]),
            None if of.is_withdrawn(sale, user, request) => {
                OrderView::without_order(OrderState::Withdrawn)
            }
            None if self.is_archived(sale) => OrderView::without_order(OrderState::Archived),
            None => OrderView::without_order(OrderState::Unknown),
        };
        Verdict::Answer(Reply::OrderView(Box::new(view)), self.rest(part))
    }

    fn user_get(&self, sale: SaleId, user: UserId) -> Verdict {
        let part = self.part_of(user);
        let mut units: std::collections::BTreeMap<SkuId, u64> = Default::default();
        let mut orders = Vec::new();
        for (number, order) in self.part(part).orders_of(sale, user) {
            let counted = order.counted();
            if order.is_live() && !counted.is_empty() {
                orders.push(self.key(part, number).order);
            }
            counted.into_iter().for_each(|(sku, n)| *units.entry(sku).or_default() += n);
        }
        let view = self.view(sale);
        let sum: u64 = units.values().sum();
        let of_sale = view.as_ref().map_or(0, |view| view.definition.limit_per_user);
        let left =
            |limit: u32, used: u64| (limit > 0).then(|| u64::from(limit).saturating_sub(used));
        let sku = |(sku, units): (&SkuId, &u64)| {
            let limit = view.as_ref().and_then(|view| Some(view.sku(*sku)?.limit_per_user));
            let both = [left(limit.unwrap_or(0), *units), left(of_sale, sum)];
            let least = both.into_iter().flatten().min();
            UserSku { sku: *sku, units: *units, left: told(least) }
        };
        let reply = Reply::User(UserView { skus: units.iter().map(sku).collect(), orders });
        Verdict::Answer(reply, self.rest(part))
    }

    fn list(
        &self,
        part: usize,
        sale: SaleId,
        user: Option<UserId>,
        state: Option<OrderState>,
        after: u64,
    ) -> Vec<OrderView> {
        let id = |number| OrderId::from_parts(PartitionId::new(part as u16), number);
        let orders = self.part(part).orders.iter();
        let fits = orders.filter(|(_, order)| {
            order.sale == sale
                && user.is_none_or(|user| user == order.user)
                && state.is_none_or(|state| state == order.state)
        });
        let named = fits.filter_map(|(number, order)| Some((id(*number)?, order)));
        named.filter(|(id, _)| id.get() > after).map(|(id, order)| shown(id, order)).collect()
    }
}

fn shown(id: OrderId, order: &Order) -> OrderView {
    let back = |line: &Line| Line { sku: line.sku, quantity: order.back(line.sku, |_| true) };
    OrderView {
        order: Some(id),
        state: order.state,
        sale: Some(order.sale),
        user: Some(order.user),
        expires_at: TimestampMs::new(order.deadline),
        payment: order.payment.clone(),
        lines: order.lines.clone(),
        returned: order.lines.iter().map(back).filter(|line| line.quantity > 0).collect(),
    }
}

/// A token bucket as the moment when it is full again, ns.
#[derive(Clone, Copy)]
struct Rate {
    every_ns: u64,
    spare_ns: u64,
}

impl Rate {
    fn of(per_s: u32, burst: u32) -> Option<Self> {
        let burst = if burst > 0 { burst } else { (per_s / 10).max(1) };
        (per_s > 0).then(|| {
            let every_ns = 1_000_000_000u64.div_ceil(u64::from(per_s));
            Self { every_ns, spare_ns: every_ns * u64::from(burst - 1) + 999_999 }
        })
    }

    fn wait_ms(self, full_at_ns: u64, now_ms: u64) -> Option<i64> {
        let ahead = full_at_ns.saturating_sub(now_ms * 1_000_000);
        let over = ahead.checked_sub(self.spare_ns).filter(|over| *over > 0)?;
        Some(over.div_ceil(1_000_000) as i64)
    }

    fn after(self, full_at_ns: u64, now_ms: u64) -> u64 {
        full_at_ns.max(now_ms * 1_000_000) + self.every_ns
    }
}

impl Pool {
    /// The units of a SKU.
    pub fn of(&self, sale: SaleId, sku: SkuId) -> Units {
        self.0.get(&(sale, sku)).copied().unwrap_or_default()
    }
}
