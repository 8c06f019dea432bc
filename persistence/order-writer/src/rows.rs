//! The rows that SQL holds, as plain data, and the change of an order that one or many events make.
//!
//! Ids and times keep the engine's types; a sink turns them into its own. Nothing here knows a
//! database.

use stockade_protocol::entry::{LateReason, OrderKey, Placed};
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::sale::SaleDefinition;
use stockade_protocol::text::{OrderData, PaymentRef};
use stockade_protocol::{Entry, Event, Lsn, OrderId, OrderState, SaleId, SkuId, UserId};

/// A line of an order: `order_lines`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LineRow {
    /// The SKU.
    pub sku: SkuId,
    /// Units ordered.
    pub quantity: u64,
    /// Units given back after confirmation.
    pub returned: u64,
}

/// An order: `orders`, with its lines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrderRow {
    /// The order.
    pub order: OrderId,
    /// Its sale.
    pub sale: SaleId,
    /// Its buyer.
    pub user: UserId,
    /// 1 held, 2 confirmed, 3 cancelled, 4 expired, 5 returned.
    pub state: OrderState,
    /// The buyer's request id, as text.
    pub request: String,
    /// The payment that confirmed it.
    pub payment: Option<PaymentRef>,
    /// Opaque bytes.
    pub data: OrderData,
    /// The last entry applied to the row.
    pub lsn: Lsn,
    /// When it was placed.
    pub created_at: TimestampMs,
    /// The last deadline that it was given; `NONE` for an order born confirmed.
    pub expires_at: TimestampMs,
    /// The time of the last entry applied.
    pub updated_at: TimestampMs,
    /// Its lines, ascending.
    pub lines: Vec<LineRow>,
}

impl OrderRow {
    /// The row that a new order begins with.
    pub fn placed(placed: &Placed, state: OrderState, lsn: Lsn, at: TimestampMs) -> Self {
        let line = |line: &stockade_protocol::command::Line| LineRow {
            sku: line.sku,
            quantity: u64::from(line.quantity),
            returned: 0,
        };
        Self {
            order: placed.order,
            sale: placed.sale,
            user: placed.user,
            state,
            request: placed.request.to_text(),
            payment: None,
            data: placed.data.clone(),
            lsn,
            created_at: at,
            expires_at: placed.expires_at,
            updated_at: at,
            lines: placed.lines.iter().map(line).collect(),
        }
    }

    /// Applies a later change; false if it returns units of a SKU that the order does not have.
    pub fn absorb(&mut self, change: &OrderChange) -> bool {
        self.state = change.state.unwrap_or(self.state);
        self.payment = change.payment.clone().or(self.payment.take());
        self.expires_at = change.expires_at.unwrap_or(self.expires_at);
        self.lsn = change.lsn;
        self.updated_at = change.updated_at;
        change.returned.iter().all(|&(sku, units)| {
            let line = self.lines.iter_mut().find(|line| line.sku == sku);
            line.map(|line| line.returned += units).is_some()
        })
    }
}

/// What later events changed of an order whose row is there already.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrderChange {
    /// Which order, of which sale, whose.
    pub key: OrderKey,
    /// Its state, where it changed.
    pub state: Option<OrderState>,
    /// The payment, where one came.
    pub payment: Option<PaymentRef>,
    /// The deadline, where it moved.
    pub expires_at: Option<TimestampMs>,
    /// Units that came back, by SKU, ascending.
    pub returned: Vec<(SkuId, u64)>,
    /// The last entry in it.
    pub lsn: Lsn,
    /// The time of that entry.
    pub updated_at: TimestampMs,
}

impl OrderChange {
    /// The change that one event makes to an order, if it makes one.
    pub fn of(entry: &Entry) -> Option<Self> {
        let change = |key: &OrderKey, state| Self {
            key: *key,
            state,
            payment: None,
            expires_at: None,
            returned: Vec::new(),
            lsn: entry.lsn,
            updated_at: entry.at,
        };
        Some(match &entry.event {
            Event::Confirmed { key, payment } | Event::Revived { key, payment, .. } => {
                Self { payment: Some(payment.clone()), ..change(key, Some(OrderState::Confirmed)) }
            }
            Event::Cancelled { key, .. } => change(key, Some(OrderState::Cancelled)),
            Event::Expired { key } => change(key, Some(OrderState::Expired)),
            Event::Extended { key, expires_at } => {
                Self { expires_at: Some(*expires_at), ..change(key, None) }
            }
            Event::Returned { key, lines, whole, .. } => {
                let returned = lines.iter().map(|line| (line.sku, u64::from(line.quantity)));
                let state = whole.then_some(OrderState::Returned);
                Self { returned: returned.collect(), ..change(key, state) }
            }
            _ => return None,
        })
    }

    /// Adds a later change of the same order.
    pub fn merge(&mut self, later: Self) {
        self.state = later.state.or(self.state);
        self.payment = later.payment.or(self.payment.take());
        self.expires_at = later.expires_at.or(self.expires_at);
        self.lsn = later.lsn;
        self.updated_at = later.updated_at;
        for (sku, units) in later.returned {
            match self.returned.binary_search_by_key(&sku, |&(sku, _)| sku) {
                Ok(at) => self.returned[at].1 += units,
                Err(at) => self.returned.insert(at, (sku, units)),
            }
        }
    }
}

/// True if an order in this state holds no units any more.
pub const fn is_over(state: OrderState) -> bool {
    matches!(state, OrderState::Cancelled | OrderState::Expired | OrderState::Returned)
}

/// Money that came for nothing: `late_payments`. The first reason for (order, payment) stays.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LateRow {
    /// The order.
    pub order: OrderId,
    /// The payment.
    pub payment: PaymentRef,
    /// Why.
    pub reason: LateReason,
    /// When.
    pub at: TimestampMs,
    /// Its sale, where the engine still knows it; not stored.
    pub sale: Option<SaleId>,
    /// Its buyer, where the engine still knows it; not stored.
    pub user: Option<UserId>,
}

/// A catalog entry, as `sales` and `skus` follow it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CatalogChange {
    /// The sale is there, with these SKUs; totals of known SKUs and the state of a known sale stay.
    Put(Box<SaleDefinition>),
    /// The operator's switch.
    State(SaleId, SaleRowState),
    /// Units were added to a SKU's total (negative: taken).
    Adjust(SaleId, SkuId, i64),
}

/// The state of a row of `sales`: what operators did. Whether an open sale has begun or run out is
/// in `opens_at` and `closes_at`; no entry tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SaleRowState {
    /// Reserves are taken within the window.
    Live = 2,
    /// Reserves are stopped.
    Paused = 3,
    /// Closed by hand.
    Ended = 4,
    /// The engine dropped it; the rows stay.
    Archived = 5,
}

/// How far along a refused order's way out is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RefusedState {
    /// Nothing was done yet.
    Open,
    /// The engine took the cancel or the return; its event has not come back yet.
    Sent,
    /// The engine's own event said that the order holds nothing any more.
    Done,
    /// A person looked at it.
    Reviewed,
}

impl RefusedState {
    /// All states.
    pub const ALL: [Self; 4] = [Self::Open, Self::Sent, Self::Done, Self::Reviewed];

    /// The word in SQL.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Sent => "sent",
            Self::Done => "done",
            Self::Reviewed => "reviewed",
        }
    }

    /// The state of this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }
}

/// The class of a refused late payment; its order is not given back.
pub const CLASS_LATE_PAYMENT: &str = "late_payment";

/// A row that the database refuses: `refused_orders`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RefusedRow {
    /// The order.
    pub order: OrderId,
    /// Its sale, where the entry says it.
    pub sale: Option<SaleId>,
    /// Its buyer, where the entry says it.
    pub user: Option<UserId>,
    /// Its lines, where the entries in hand say them; `None`: those in `order_lines`.
    pub lines: Option<Vec<LineRow>>,
    /// What was refused: `insert`, `update` or `late_payment`.
    pub class: &'static str,
    /// The database's own code.
    pub code: String,
    /// The database's own words.
    pub message: String,
    /// How far along its way out is.
    pub state: RefusedState,
    /// When it was refused.
    pub at: TimestampMs,
}

/// A cursor: `cursors`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CursorRow {
    /// The partition.
    pub partition: stockade_protocol::PartitionId,
    /// Counts up with every writer that takes over.
    pub epoch: u64,
    /// Everything up to here is in the tables.
    pub lsn: Lsn,
    /// The time of the last entry; `NONE` before the first.
    pub event_at: TimestampMs,
}
