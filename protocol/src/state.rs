//! States of orders, sales and SKUs, with their words and numbers.

/// Where an order is in its life.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum OrderState {
    /// No such order or request id.
    Unknown = 0,
    /// Units are held until the deadline.
    Held = 1,
    /// Paid for.
    Confirmed = 2,
    /// Given back before payment.
    Cancelled = 3,
    /// Ran out unpaid.
    Expired = 4,
    /// All units given back after confirmation.
    Returned = 5,
    /// Of a status question: the request id was withdrawn before it came.
    Withdrawn = 6,
    /// The order's sale is archived; its rows are in SQL.
    Archived = 7,
}

impl OrderState {
    /// All states, by number.
    pub const ALL: [Self; 8] = [
        Self::Unknown,
        Self::Held,
        Self::Confirmed,
        Self::Cancelled,
        Self::Expired,
        Self::Returned,
        Self::Withdrawn,
        Self::Archived,
    ];

    /// The state of this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// The number on wire and disk; 1..=5 also in SQL.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The state of this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }

    /// The word in texts.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Held => "held",
            Self::Confirmed => "confirmed",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
            Self::Returned => "returned",
            Self::Withdrawn => "withdrawn",
            Self::Archived => "archived",
        }
    }
}

/// Where a sale is in its life: armed -> live (or paused) -> ended -> archived.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum SaleState {
    /// Not open yet.
    Armed = 1,
    /// Selling.
    Live = 2,
    /// Open, but reserves are stopped.
    Paused = 3,
    /// Over; orders are still paid, cancelled and returned.
    Ended = 4,
    /// State dropped; the id cannot be used again.
    Archived = 5,
}

impl SaleState {
    /// The state of this number.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Armed),
            2 => Some(Self::Live),
            3 => Some(Self::Paused),
            4 => Some(Self::Ended),
            5 => Some(Self::Archived),
            _ => None,
        }
    }

    /// The number on wire, disk and in SQL.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The word in texts.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Armed => "armed",
            Self::Live => "live",
            Self::Paused => "paused",
            Self::Ended => "ended",
            Self::Archived => "archived",
        }
    }
}

/// What a buyer sees of a SKU; the first that applies, in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum SkuState {
    /// No such SKU or sale (an archived sale's SKUs too).
    Unknown = 0,
    /// The sale is not open yet.
    Armed = 1,
    /// The sale is over.
    Ended = 2,
    /// The sale is paused.
    Paused = 3,
    /// No unit is free.
    SoldOut = 4,
    /// Units are free.
    Live = 5,
}

impl SkuState {
    /// The state of this number.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Unknown),
            1 => Some(Self::Armed),
            2 => Some(Self::Ended),
            3 => Some(Self::Paused),
            4 => Some(Self::SoldOut),
            5 => Some(Self::Live),
            _ => None,
        }
    }

    /// The number on the wire.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The word in texts.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Armed => "armed",
            Self::Ended => "ended",
            Self::Paused => "paused",
            Self::SoldOut => "sold_out",
            Self::Live => "live",
        }
    }

    /// The state of a known SKU.
    pub const fn of(sale: SaleState, free: u64) -> Self {
        match sale {
            SaleState::Archived => Self::Unknown,
            SaleState::Armed => Self::Armed,
            SaleState::Ended => Self::Ended,
            SaleState::Paused => Self::Paused,
            SaleState::Live if free == 0 => Self::SoldOut,
            SaleState::Live => Self::Live,
        }
    }
}
