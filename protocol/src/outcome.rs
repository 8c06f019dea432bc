//! What the rules answered. An outcome that grants nothing is a *rejection*, not an error.
//!
//! Numbers and words are part of the contract: they are never reused and never change.

macro_rules! outcomes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $word:literal;)*) => {
        /// The answer of the rules to a command.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u16)]
        pub enum Outcome {
            $($(#[$doc])* $name = $number,)*
        }

        impl Outcome {
            /// All outcomes, by number.
            pub const ALL: &'static [Outcome] = &[$(Outcome::$name,)*];

            /// The outcome of this number.
            pub const fn from_number(number: u16) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// The word that RESP, HTTP and the command line use.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)*
                }
            }
        }
    };
}

outcomes! {
    /// The units are held for the order until its deadline.
    Held = 1, "held";
    /// The order is paid for (or was born so).
    Confirmed = 2, "confirmed";
    /// The order is cancelled; units and right are back.
    Cancelled = 3, "cancelled";
    /// The order ran out unpaid.
    Expired = 4, "expired";
    /// The units were given back after confirmation.
    Returned = 5, "returned";
    /// The same payment reference again.
    AlreadyConfirmed = 6, "already_confirmed";
    /// The order was cancelled before.
    AlreadyCancelled = 7, "already_cancelled";
    /// The same return again.
    AlreadyReturned = 8, "already_returned";
    /// The request id is withdrawn: it can buy nothing any more.
    Withdrawn = 9, "withdrawn";
    /// The deadline is as asked or later.
    Extended = 10, "extended";
    /// The stock was changed.
    Adjusted = 11, "adjusted";
    /// The sale is new.
    Created = 12, "created";
    /// The sale was merged with what was put.
    Changed = 13, "changed";
    /// Nothing was different.
    Unchanged = 14, "unchanged";
    /// The sale is paused (as an answer to `reserve`: a rejection).
    Paused = 15, "paused";
    /// The sale goes on.
    Resumed = 16, "resumed";
    /// The sale is closed for good.
    Closed = 17, "closed";

    /// The command makes no sense: an id, quantity, text or sum out of range.
    BadRequest = 100, "bad_request";
    /// The request id is known with other content.
    IdConflict = 101, "id_conflict";
    /// `not_after` had passed; nothing was done.
    Stale = 102, "stale";
    /// No such sale.
    UnknownSale = 103, "unknown_sale";
    /// No such SKU in the sale.
    UnknownSku = 104, "unknown_sku";
    /// No such order.
    UnknownOrder = 105, "unknown_order";
    /// The sale is not open yet.
    NotStarted = 106, "not_started";
    /// The sale is over.
    Ended = 107, "ended";
    /// More than one order may have of a SKU, or more than can be returned.
    BadQuantity = 108, "bad_quantity";
    /// The user's limit would be passed.
    Limit = 109, "limit";
    /// Fewer units are outside orders than asked.
    SoldOut = 110, "sold_out";
    /// A rate is used up; try again later.
    Throttled = 111, "throttled";
    /// The engine cannot decide now; nothing was done, try again later.
    Busy = 112, "busy";
    /// The order's state does not allow it any more.
    TooLate = 113, "too_late";
    /// A bound of this sale or order forbids it.
    Refused = 114, "refused";
}

impl Outcome {
    /// The number on wire and disk.
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// True if nothing was granted or changed: numbers from 100 on. `paused` as an answer to
    /// `reserve` is a rejection too; the number cannot tell, the verb does.
    pub const fn is_rejection(self) -> bool {
        self.number() >= 100
    }

    /// True if the same command with the same request id may win later.
    pub const fn may_win_later(self) -> bool {
        matches!(
            self,
            Self::NotStarted
                | Self::SoldOut
                | Self::Throttled
                | Self::Busy
                | Self::Paused
                | Self::Limit
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_words_are_distinct() {
        for (i, a) in Outcome::ALL.iter().enumerate() {
            assert_eq!(Outcome::from_number(a.number()), Some(*a));
            for b in &Outcome::ALL[i + 1..] {
                assert_ne!(a.word(), b.word());
            }
        }
    }
}
