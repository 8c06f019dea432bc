//! Simple sales, decided in memory: stock, limits, request ids, the life of an order, and a log of
//! it all for the feed.
//!
//! It follows the order of the rules, but has no rates, no expiry by itself and no archive; what it
//! remembers ends with it. The figures of a SKU are summed over all orders at each question, which
//! is right for tests and for nothing else.

use std::collections::BTreeMap;
use stockade_protocol::command::{Adjust, Line, Lines, OrderList, Reserve, Return};
use stockade_protocol::entry::{Event, LateReason, OrderKey, Placed};
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::limits::LINES_MAX;
use stockade_protocol::reply::{
    AdjustReply, LEFT_UNLIMITED, OrderReply, OrderView, RETRY_NEVER, Reply, ReserveReply,
    SaleSummary, SaleSwitchReply, SaleView, SkuView, UserSku, UserView,
};
use stockade_protocol::request_id::RequestKey;
use stockade_protocol::routing::partition_of;
use stockade_protocol::text::{PaymentRef, Reason};
use stockade_protocol::{
    Command, Entry, Lsn, OrderId, OrderState, Outcome, PartitionId, RequestId, SaleDefinition,
    SaleId, SaleState, SkuId, SkuState, UserId,
};

/// Partitions of users.
pub(super) const PARTITION_COUNT: u16 = 4;

struct Sale {
    definition: SaleDefinition,
    totals: BTreeMap<SkuId, u64>,
    paused: bool,
    closed: bool,
    adjusts: BTreeMap<RequestKey, (SkuId, i64, AdjustReply)>,
}

impl Sale {
    fn state(&self, now: TimestampMs) -> SaleState {
        let over = self.definition.closes_at.is_some_and(|closes_at| now >= closes_at);
        match (self.closed || over, now < self.definition.opens_at, self.paused) {
            (true, ..) => SaleState::Ended,
            (_, true, _) => SaleState::Armed,
            (_, _, true) => SaleState::Paused,
            _ => SaleState::Live,
        }
    }
}

struct Order {
    sale: SaleId,
    user: UserId,
    lines: Lines,
    state: OrderState,
    expires_at: TimestampMs,
    first_deadline: TimestampMs,
    payment: Option<PaymentRef>,
    returned: BTreeMap<SkuId, u32>,
    rights_returned: BTreeMap<SkuId, u32>,
    returns: Vec<(RequestKey, Lines)>,
}

impl Order {
    fn is_live(&self) -> bool {
        matches!(self.state, OrderState::Held | OrderState::Confirmed)
    }

    fn units(&self, sku: SkuId) -> u64 {
        let line = self.lines.iter().find(|line| line.sku == sku);
        let returned = self.returned.get(&sku).copied().unwrap_or(0);
        line.map_or(0, |line| u64::from(line.quantity - returned))
    }

    /// Units that use up the user's limit.
    fn rights(&self, sku: SkuId) -> u64 {
        if matches!(self.state, OrderState::Cancelled | OrderState::Expired) {
            return 0;
        }
        let line = self.lines.iter().find(|line| line.sku == sku);
        let returned = self.rights_returned.get(&sku).copied().unwrap_or(0);
        line.map_or(0, |line| u64::from(line.quantity - returned))
    }
}

enum Known {
    Order(OrderId, Lines),
    Withdrawn,
}

/// See the module.
#[derive(Default)]
pub(super) struct Engine {
    sales: BTreeMap<SaleId, Sale>,
    orders: BTreeMap<OrderId, Order>,
    known: BTreeMap<(SaleId, UserId, RequestKey), Known>,
    numbers: BTreeMap<PartitionId, u64>,
    /// By partition, from LSN 1.
    pub log: BTreeMap<PartitionId, Vec<Entry>>,
    /// Test clock: added to the wall clock.
    pub ahead_ms: u64,
}

impl Engine {
    pub fn now(&self) -> TimestampMs {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        TimestampMs::new(now.unwrap_or_default().as_millis() as u64).after_ms(self.ahead_ms)
    }

    fn append(&mut self, partition: PartitionId, event: Event) {
        let at = self.now();
        let log = self.log.entry(partition).or_default();
        let lsn = Lsn::new(log.len() as u64 + 1);
        log.push(Entry { partition, lsn, at, event });
    }

    pub fn decide(&mut self, command: Command) -> Reply {
        match command {
            Command::Reserve(reserve) => Reply::Reserve(self.reserve(&reserve)),
            Command::Confirm { order, payment } => Reply::Order(self.confirm(order, payment)),
            Command::Cancel { order, reason } => Reply::Order(self.cancel(order, reason)),
            Command::Withdraw { sale, user, request } => {
                Reply::Order(self.withdraw(sale, user, request))
            }
            Command::Extend { order, until } => Reply::Order(self.extend(order, until)),
            Command::Return(back) => Reply::Order(self.give_back(back)),
            Command::OrderGet(order) => Reply::OrderView(Box::new(self.view(order))),
            Command::Status { sale, user, request } => {
                let view = match self.known.get(&(sale, user, request.key())) {
                    Some(Known::Order(order, _)) => self.view(*order),
                    Some(Known::Withdrawn) => OrderView::without_order(OrderState::Withdrawn),
                    None => OrderView::without_order(OrderState::Unknown),
                };
                Reply::OrderView(Box::new(view))
            }
            Command::UserGet { sale, user } => Reply::User(self.user(sale, user)),
            Command::OrderList(list) => Reply::Orders(self.list(&list)),
            Command::SkuGet { sale, sku } => Reply::Sku(self.sku(sale, sku)),
            Command::SaleGet(sale) => Reply::Sale(self.sale(sale).map(Box::new)),
            Command::SaleList => Reply::Sales(self.summaries()),
            Command::SalePut(patch) => Reply::SalePut(self.put(&patch)),
            Command::SalePause(sale) => self.switch(sale, Outcome::Paused),
            Command::SaleResume(sale) => self.switch(sale, Outcome::Resumed),
            Command::SaleClose(sale) => self.switch(sale, Outcome::Closed),
            Command::Adjust(adjust) => Reply::Adjust(self.adjust(&adjust)),
        }
    }

    pub fn reserve(&mut self, reserve: &Reserve) -> ReserveReply {
        let never = |outcome| ReserveReply::rejected(outcome, RETRY_NEVER);
        let Some(lines) = merged(&reserve.lines) else { return never(Outcome::BadRequest) };
        let key = (reserve.sale, reserve.user, reserve.request.key());
        match self.known.get(&key) {
            Some(Known::Order(order, known)) => return self.again(*order, *known == lines),
            Some(Known::Withdrawn) => return never(Outcome::Withdrawn),
            None => {}
        }
        let now = self.now();
        if reserve.not_after.is_some_and(|not_after| now > not_after) {
            return never(Outcome::Stale);
        }
        let Some(sale) = self.sales.get(&reserve.sale) else { return never(Outcome::UnknownSale) };
        if lines.iter().any(|line| !sale.totals.contains_key(&line.sku)) {
            return never(Outcome::UnknownSku);
        }
        let to_go = sale.definition.opens_at.since(now) as i64;
        match sale.state(now) {
            SaleState::Armed => return ReserveReply::rejected(Outcome::NotStarted, to_go),
            SaleState::Paused => return ReserveReply::rejected(Outcome::Paused, 1000),
            SaleState::Live => {}
            SaleState::Ended | SaleState::Archived => return never(Outcome::Ended),
        }
        let hold_ms = sale.definition.hold_ms;
        let definitions = &sale.definition.skus;
        let of = |sku: SkuId| definitions.iter().find(|definition| definition.sku == sku);
        let max = |sku: SkuId| of(sku).map_or(0, |definition| definition.max_per_order);
        if lines.iter().any(|line| max(line.sku) != 0 && line.quantity > max(line.sku)) {
            return never(Outcome::BadQuantity);
        }
        let left = self.left(reserve.sale, reserve.user, &lines);
        if left < 0 && left != LEFT_UNLIMITED {
            let order = self.newest_live(reserve.sale, reserve.user);
            let asked = |line: &Line| i64::from(line.quantity);
            let left = left + OVER + lines.iter().map(asked).max().unwrap_or(0);
            return ReserveReply { order, left: left.max(0), ..never(Outcome::Limit) };
        }
        let free = |line: &Line| self.sku(reserve.sale, line.sku).free;
        if lines.iter().any(|line| free(line) < u64::from(line.quantity)) {
            return ReserveReply::rejected(Outcome::SoldOut, RETRY_NEVER);
        }
        self.place(reserve, lines, hold_ms, left)
    }

    fn place(&mut self, reserve: &Reserve, lines: Lines, hold_ms: u64, left: i64) -> ReserveReply {
        let partition = partition_of(reserve.user, PARTITION_COUNT);
        let number = self.numbers.entry(partition).or_default();
        *number += 1;
        let order = OrderId::from_parts(partition, *number).expect("tests make few orders");
        let born_confirmed = hold_ms == 0;
        let expires_at =
            if born_confirmed { TimestampMs::NONE } else { self.now().after_ms(hold_ms) };
        let placed = Placed {
            order,
            sale: reserve.sale,
            user: reserve.user,
            request: reserve.request.clone(),
            expires_at,
            lines: lines.clone(),
            data: reserve.data.clone(),
        };
        let (event, state, outcome) = if born_confirmed {
            (Event::BornConfirmed(placed), OrderState::Confirmed, Outcome::Confirmed)
        } else {
            (Event::Held(placed), OrderState::Held, Outcome::Held)
        };
        self.append(partition, event);
        let key = (reserve.sale, reserve.user, reserve.request.key());
        self.known.insert(key, Known::Order(order, lines.clone()));
        self.orders.insert(
            order,
            Order {
                sale: reserve.sale,
                user: reserve.user,
                lines,
                state,
                expires_at,
                first_deadline: expires_at,
                payment: None,
                returned: BTreeMap::new(),
                rights_returned: BTreeMap::new(),
                returns: Vec::new(),
            },
        );
        let order = Some(order);
        ReserveReply { outcome, again: false, order, expires_at, retry_after_ms: 0, left }
    }

    fn again(&self, order: OrderId, same: bool) -> ReserveReply {
        let known = &self.orders[&order];
        let outcome = match known.state {
            _ if !same => Outcome::IdConflict,
            OrderState::Held => Outcome::Held,
            OrderState::Confirmed => Outcome::Confirmed,
            OrderState::Cancelled => Outcome::Cancelled,
            OrderState::Returned => Outcome::Returned,
            _ => Outcome::Expired,
        };
        let left = match self.left(known.sale, known.user, &[]) {
            left if left < LEFT_UNLIMITED => 0,
            left => left,
        };
        let (again, expires_at) = (true, known.expires_at);
        ReserveReply { outcome, again, order: Some(order), expires_at, retry_after_ms: 0, left }
    }

    /// Units that the user may still have after these lines, the smallest over SKUs and sale; -1
    /// without a limit, and [`OVER`] lower where the limit is passed.
    fn left(&self, sale: SaleId, user: UserId, lines: &[Line]) -> i64 {
        let Some(known) = self.sales.get(&sale) else { return LEFT_UNLIMITED };
        let orders = || self.orders.values().filter(|o| o.sale == sale && o.user == user);
        let mut least: Option<i64> = None;
        let mut see = |limit: u32, used: u64, asked: u64| {
            if limit != 0 {
                let left = i64::from(limit) - used as i64 - asked as i64;
                let left = if left < 0 { left - OVER } else { left };
                least = Some(least.map_or(left, |least| least.min(left)));
            }
        };
        for line in lines {
            let sku = known.definition.skus.iter().find(|d| d.sku == line.sku);
            let used = orders().map(|order| order.rights(line.sku)).sum();
            see(sku.map_or(0, |d| d.limit_per_user), used, u64::from(line.quantity));
        }
        let of_order = |o: &Order| o.lines.iter().map(|line| o.rights(line.sku)).sum::<u64>();
        let asked = lines.iter().map(|line| u64::from(line.quantity)).sum();
        see(known.definition.limit_per_user, orders().map(of_order).sum(), asked);
        least.unwrap_or(LEFT_UNLIMITED)
    }

    fn newest_live(&self, sale: SaleId, user: UserId) -> Option<OrderId> {
        let live = |o: &Order| o.sale == sale && o.user == user && o.is_live();
        self.orders.iter().rev().find(|(_, order)| live(order)).map(|(id, _)| *id)
    }

    /// One of the user's own verbs: the order's reply.
    fn told(&self, order: OrderId, outcome: Outcome) -> OrderReply {
        let state = self.orders.get(&order).map_or(OrderState::Unknown, |order| order.state);
        OrderReply { outcome, order: Some(order), state }
    }

    fn log_order(&mut self, order: OrderId, event: impl FnOnce(OrderKey) -> Event) {
        let known = &self.orders[&order];
        let key = OrderKey { order, sale: Some(known.sale), user: Some(known.user) };
        self.append(order.partition(), event(key));
    }

    fn confirm(&mut self, order: OrderId, payment: PaymentRef) -> OrderReply {
        let Some(known) = self.orders.get_mut(&order) else {
            return self.told(order, Outcome::UnknownOrder);
        };
        let first = known.payment.is_none();
        let reason = match (known.state, &known.payment) {
            (OrderState::Held, _) | (OrderState::Confirmed, None) if first => {
                known.state = OrderState::Confirmed;
                known.payment = Some(payment.clone());
                self.log_order(order, |key| Event::Confirmed { key, payment });
                return self.told(order, Outcome::Confirmed);
            }
            (OrderState::Confirmed, Some(paid)) if *paid == payment => {
                return self.told(order, Outcome::AlreadyConfirmed);
            }
            (OrderState::Confirmed, _) => LateReason::SecondPayment,
            (OrderState::Cancelled, _) => LateReason::Cancelled,
            (OrderState::Returned, _) => LateReason::Returned,
            _ => LateReason::Expired,
        };
        let second = reason == LateReason::SecondPayment;
        self.log_order(order, |key| Event::LatePayment { key, payment, reason });
        self.told(order, if second { Outcome::IdConflict } else { Outcome::TooLate })
    }

    fn cancel(&mut self, order: OrderId, reason: Reason) -> OrderReply {
        match self.orders.get_mut(&order).map(|order| &mut order.state) {
            None => self.told(order, Outcome::UnknownOrder),
            Some(state @ OrderState::Held) => {
                *state = OrderState::Cancelled;
                self.log_order(order, |key| Event::Cancelled { key, reason });
                self.told(order, Outcome::Cancelled)
            }
            Some(OrderState::Cancelled) => self.told(order, Outcome::AlreadyCancelled),
            Some(_) => self.told(order, Outcome::TooLate),
        }
    }

    /// Ends a held order as its timer would.
    pub fn expire(&mut self, order: OrderId) -> bool {
        match self.orders.get_mut(&order).map(|order| &mut order.state) {
            Some(state @ OrderState::Held) => {
                *state = OrderState::Expired;
                self.log_order(order, |key| Event::Expired { key });
                true
            }
            _ => false,
        }
    }

    fn withdraw(&mut self, sale: SaleId, user: UserId, request: RequestId) -> OrderReply {
        let none = |outcome, state| OrderReply { outcome, order: None, state };
        if !self.sales.contains_key(&sale) {
            return none(Outcome::UnknownSale, OrderState::Unknown);
        }
        match self.known.get(&(sale, user, request.key())) {
            Some(Known::Withdrawn) => none(Outcome::Withdrawn, OrderState::Withdrawn),
            Some(Known::Order(order, _)) => self.cancel(*order, Reason::withdrawn()),
            None => {
                self.known.insert((sale, user, request.key()), Known::Withdrawn);
                let partition = partition_of(user, PARTITION_COUNT);
                self.append(partition, Event::Withdrawn { sale, user, request });
                none(Outcome::Withdrawn, OrderState::Withdrawn)
            }
        }
    }

    fn extend(&mut self, order: OrderId, until: TimestampMs) -> OrderReply {
        let Some(known) = self.orders.get_mut(&order) else {
            return self.told(order, Outcome::UnknownOrder);
        };
        let extend_max_ms = self.sales[&known.sale].definition.extend_max_ms;
        if known.state != OrderState::Held {
            return self.told(order, Outcome::TooLate);
        }
        if until > known.first_deadline.after_ms(extend_max_ms) {
            return self.told(order, Outcome::Refused);
        }
        if until > known.expires_at {
            known.expires_at = until;
            self.log_order(order, |key| Event::Extended { key, expires_at: until });
        }
        self.told(order, Outcome::Extended)
    }

    fn give_back(&mut self, back: Return) -> OrderReply {
        let order = back.order;
        let Some(known) = self.orders.get_mut(&order) else {
            return self.told(order, Outcome::UnknownOrder);
        };
        let asked = merged(&back.lines).unwrap_or_default();
        if let Some((_, before)) = known.returns.iter().find(|(id, _)| *id == back.request.key()) {
            let same = *before == asked;
            let outcome = if same { Outcome::AlreadyReturned } else { Outcome::IdConflict };
            return self.told(order, outcome);
        }
        if known.state != OrderState::Confirmed {
            return self.told(order, Outcome::TooLate);
        }
        let rest = |line: &Line| Line { sku: line.sku, quantity: known.units(line.sku) as u32 };
        let lines: Lines = match back.lines.is_empty() {
            true => known.lines.iter().map(rest).filter(|line| line.quantity > 0).collect(),
            false => asked.clone(),
        };
        let fits = |line: &Line| u64::from(line.quantity) <= known.units(line.sku);
        if lines.is_empty() || !lines.iter().all(fits) {
            return self.told(order, Outcome::BadQuantity);
        }
        for line in &lines {
            *known.returned.entry(line.sku).or_default() += line.quantity;
            if back.right {
                *known.rights_returned.entry(line.sku).or_default() += line.quantity;
            }
            if !back.restock
                && let Some(sale) = self.sales.get_mut(&known.sale)
                && let Some(total) = sale.totals.get_mut(&line.sku)
            {
                *total -= u64::from(line.quantity);
            }
        }
        known.returns.push((back.request.key(), asked));
        let whole = known.lines.iter().all(|line| known.units(line.sku) == 0);
        if whole {
            known.state = OrderState::Returned;
        }
        let Return { request, restock, right, .. } = back;
        self.log_order(order, |key| Event::Returned { key, request, lines, restock, right, whole });
        self.told(order, Outcome::Returned)
    }

    fn view(&self, id: OrderId) -> OrderView {
        let Some(order) = self.orders.get(&id) else {
            return OrderView::without_order(OrderState::Unknown);
        };
        let line = |(sku, quantity): (&SkuId, &u32)| Line { sku: *sku, quantity: *quantity };
        OrderView {
            order: Some(id),
            state: order.state,
            sale: Some(order.sale),
            user: Some(order.user),
            expires_at: order.expires_at,
            payment: order.payment.clone(),
            lines: order.lines.clone(),
            returned: order.returned.iter().map(line).collect(),
        }
    }

    fn user(&self, sale: SaleId, user: UserId) -> UserView {
        let orders = || self.orders.iter().filter(|(_, o)| o.sale == sale && o.user == user);
        let definitions = self.sales.get(&sale).map(|sale| &sale.definition.skus);
        let of_sku = |definition: &stockade_protocol::SkuDefinition| {
            let units: u64 = orders().map(|(_, order)| order.rights(definition.sku)).sum();
            let left = match definition.limit_per_user {
                0 => LEFT_UNLIMITED,
                limit => (i64::from(limit) - units as i64).max(0),
            };
            (units > 0).then_some(UserSku { sku: definition.sku, units, left })
        };
        UserView {
            skus: definitions.into_iter().flatten().filter_map(of_sku).collect(),
            orders: orders().filter(|(_, order)| order.is_live()).map(|(id, _)| *id).collect(),
        }
    }

    fn list(&self, list: &OrderList) -> Vec<OrderView> {
        let fits = |id: OrderId, order: &Order| {
            order.sale == list.sale
                && list.user.is_none_or(|user| user == order.user)
                && list.state.is_none_or(|state| state == order.state)
                && id.get() > list.after
        };
        let found = self.orders.iter().filter(|(id, order)| fits(**id, order));
        found.take(list.count as usize).map(|(id, _)| self.view(*id)).collect()
    }

    fn sku(&self, sale: SaleId, sku: SkuId) -> SkuView {
        let known = self.sales.get(&sale);
        let total = known.and_then(|sale| sale.totals.get(&sku)).copied();
        let (Some(known), Some(total)) = (known, total) else {
            let (total, free, held, confirmed) = (0, 0, 0, 0);
            return SkuView { sku, total, free, held, confirmed, state: SkuState::Unknown };
        };
        let units = |state: OrderState| -> u64 {
            let orders = self.orders.values().filter(|o| o.sale == sale && o.state == state);
            orders.map(|order| order.units(sku)).sum()
        };
        let (held, confirmed) = (units(OrderState::Held), units(OrderState::Confirmed));
        let free = total.saturating_sub(held + confirmed);
        let state = SkuState::of(known.state(self.now()), free);
        SkuView { sku, total, free, held, confirmed, state }
    }

    fn sale(&self, sale: SaleId) -> Option<SaleView> {
        let known = self.sales.get(&sale)?;
        let skus = known.definition.skus.iter().map(|d| self.sku(sale, d.sku)).collect();
        let (state, server_time) = (known.state(self.now()), self.now());
        Some(SaleView { definition: known.definition.clone(), state, server_time, skus })
    }

    fn summaries(&self) -> Vec<SaleSummary> {
        let summary = |(sale, known): (&SaleId, &Sale)| SaleSummary {
            sale: *sale,
            name: known.definition.name.clone(),
            state: known.state(self.now()),
            opens_at: known.definition.opens_at,
            closes_at: known.definition.closes_at,
            sku_count: known.definition.skus.len() as u32,
        };
        self.sales.iter().map(summary).collect()
    }

    fn switch(&mut self, sale: SaleId, outcome: Outcome) -> Reply {
        let told = |outcome| Reply::SaleSwitch(SaleSwitchReply { outcome, sale });
        let Some(known) = self.sales.get_mut(&sale) else { return told(Outcome::UnknownSale) };
        let before = (known.paused, known.closed);
        let event = match outcome {
            Outcome::Paused => {
                known.paused = true;
                Event::SalePaused(sale)
            }
            Outcome::Resumed => {
                known.paused = false;
                Event::SaleResumed(sale)
            }
            _ => {
                known.closed = true;
                Event::SaleClosed(sale)
            }
        };
        if before == (known.paused, known.closed) {
            return told(Outcome::Unchanged);
        }
        self.append(PartitionId::CATALOG, event);
        told(outcome)
    }

    fn adjust(&mut self, adjust: &Adjust) -> AdjustReply {
        let view = self.sku(adjust.sale, adjust.sku);
        let told =
            |outcome| AdjustReply { outcome, applied: 0, total: view.total, free: view.free };
        let Some(sale) = self.sales.get_mut(&adjust.sale) else {
            return told(Outcome::UnknownSale);
        };
        let asked = (adjust.sku, adjust.delta);
        match sale.adjusts.get(&adjust.request.key()) {
            Some((sku, delta, reply)) if (*sku, *delta) == asked => return *reply,
            Some(_) => return told(Outcome::IdConflict),
            None => {}
        }
        let Some(total) = sale.totals.get_mut(&adjust.sku) else {
            return told(Outcome::UnknownSku);
        };
        let applied = adjust.delta.max(-(view.free as i64));
        let after = total.checked_add_signed(applied).filter(|after| *after < 1 << 32);
        let (Some(after), true) = (after, adjust.delta != 0) else {
            return told(Outcome::BadRequest);
        };
        *total = after;
        let free = view.free.saturating_add_signed(applied);
        let reply = AdjustReply { outcome: Outcome::Adjusted, applied, total: after, free };
        sale.adjusts.insert(adjust.request.key(), (adjust.sku, adjust.delta, reply));
        let Adjust { sale, sku, delta, request } = adjust.clone();
        let event = Event::Adjusted { sale, sku, request, delta, applied, total: after };
        self.append(PartitionId::CATALOG, event);
        reply
    }

    pub(super) fn definition(&self, sale: SaleId) -> Option<&SaleDefinition> {
        self.sales.get(&sale).map(|sale| &sale.definition)
    }

    /// Takes a checked definition in; logs it.
    pub(super) fn define(&mut self, definition: SaleDefinition) {
        let sale = self.sales.entry(definition.sale).or_insert_with(|| Sale {
            definition: definition.clone(),
            totals: BTreeMap::new(),
            paused: false,
            closed: false,
            adjusts: BTreeMap::new(),
        });
        for sku in &definition.skus {
            sale.totals.entry(sku.sku).or_insert(u64::from(sku.stock));
        }
        sale.definition = definition.clone();
        self.append(PartitionId::CATALOG, Event::SalePut(Box::new(definition)));
    }
}

/// Below every number of units that can be left: marks a passed limit.
const OVER: i64 = 1 << 40;

/// Lines of one SKU as one, ascending; `None` where they are malformed.
fn merged(lines: &[Line]) -> Option<Lines> {
    let mut sums: BTreeMap<SkuId, u32> = BTreeMap::new();
    for line in lines {
        let sum = sums.entry(line.sku).or_default();
        *sum = sum.checked_add(line.quantity).filter(|_| line.quantity > 0)?;
    }
    let fits = (1..=LINES_MAX).contains(&lines.len());
    fits.then(|| sums.into_iter().map(|(sku, quantity)| Line { sku, quantity }).collect())
}
