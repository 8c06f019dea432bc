//! Units by sale and SKU, side by side: what the log says, what SQL has, what the engine says of
//! itself.

use crate::rows::OrderRow;
use crate::stored::UnitsStored;
use std::collections::BTreeMap;
use stockade_protocol::OrderState;

/// Units of one SKU by the state of their orders.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Units {
    /// In held orders.
    pub held: u64,
    /// In confirmed orders, less what came back.
    pub confirmed: u64,
    /// In cancelled orders.
    pub cancelled: u64,
    /// In expired orders.
    pub expired: u64,
    /// Came back after confirmation.
    pub returned: u64,
}

impl Units {
    fn add(&mut self, state: OrderState, ordered: u64, returned: u64) {
        match state {
            OrderState::Held => self.held += ordered,
            OrderState::Confirmed => self.confirmed += ordered.saturating_sub(returned),
            OrderState::Cancelled => self.cancelled += ordered,
            OrderState::Expired => self.expired += ordered,
            _ => {}
        }
        self.returned += returned;
    }
}

/// One SKU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// The fold of the log, but for refused orders.
    pub log: Units,
    /// Refused orders: the log and the engine have them, SQL does not.
    pub refused: Units,
    /// The rows; nothing where they were not counted.
    pub sql: Units,
    /// Held and confirmed, where the engine stood at the same point.
    pub engine: Option<(u64, u64)>,
}

impl Tally {
    /// Held and confirmed units of the log, refused orders included: what the engine must have.
    pub const fn live(&self) -> (u64, u64) {
        (self.log.held + self.refused.held, self.log.confirmed + self.refused.confirmed)
    }
}

/// By (sale, SKU).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tallies(pub BTreeMap<(u64, u64), Tally>);

impl Tallies {
    pub(super) fn log(&mut self, row: &OrderRow, is_refused: bool) {
        for line in &row.lines {
            let tally = self.0.entry((row.sale.get(), line.sku.get())).or_default();
            let units = if is_refused { &mut tally.refused } else { &mut tally.log };
            units.add(row.state, line.quantity, line.returned);
        }
    }

    pub(super) fn sql(&mut self, units: &UnitsStored) {
        let key = (units.sale.unsigned_abs(), units.sku.unsigned_abs());
        let state = u8::try_from(units.state).ok().and_then(OrderState::from_number);
        let tally = self.0.entry(key).or_default();
        let (ordered, returned) = (units.ordered.unsigned_abs(), units.returned.unsigned_abs());
        tally.sql.add(state.unwrap_or(OrderState::Unknown), ordered, returned);
    }

    /// Takes the engine's figures (held, confirmed); returns the log's.
    pub(super) fn engine(&mut self, key: (u64, u64), figures: (u64, u64)) -> (u64, u64) {
        let tally = self.0.entry(key).or_default();
        tally.engine = Some(figures);
        tally.live()
    }
}
