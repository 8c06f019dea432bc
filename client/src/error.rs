//! What can go wrong with a call. The difference that matters: could the command have been decided?

use std::time::Duration;
use stockade_protocol::wire::ErrorCode;
use stockade_protocol::{Command, Lsn, OrderId, PartitionId, RequestId, SaleId, UserId};

/// A call that has no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No connection within the deadline; nothing was sent, so nothing was done.
    #[error("{address} was not reached within {within:?}: {why}")]
    NotReached {
        /// Where.
        address: String,
        /// The deadline.
        within: Duration,
        /// The last failure.
        why: String,
    },
    /// It was sent and no answer came that rules out that it was (or will be) decided. Ask again
    /// with the same request id, or [`crate::Client::resolve`] it.
    ///
    /// Also the end of a call whose first attempt was lost and whose repetition was rejected in a
    /// way that the server does not remember (`sold_out`, say): the lost attempt may still win.
    /// [`crate::Client::withdraw`] makes sure that it does not.
    #[error("in doubt: {0}")]
    InDoubt(InDoubt),
    /// A question was sent and no answer came; nothing can have changed.
    #[error("no answer within {0:?}")]
    NoAnswer(Duration),
    /// Too many calls in flight, and the client was told to fail fast. Nothing was sent.
    #[error("too many calls in flight")]
    Full,
    /// The server said that it failed.
    #[error("the server says: {message} ({code:?})")]
    Server {
        /// What kind of failure.
        code: ErrorCode,
        /// One plain sentence.
        message: String,
    },
    /// The request is larger than the server takes. Nothing was sent.
    #[error("a request of {bytes} bytes; the server takes {bytes_max}")]
    TooLarge {
        /// Of its body.
        bytes: usize,
        /// The server's bound.
        bytes_max: u32,
    },
    /// The feed broke off and was not resumed within its time, or could not be: subscribe again
    /// from the cursors that were processed.
    #[error("the feed broke off: {why}")]
    FeedLost {
        /// The last failure.
        why: String,
    },
    /// The feed left entries out without a word, or gave some twice. The next call subscribes again
    /// at the entry that was expected.
    #[error("the feed of partition {partition} goes on at LSN {found} instead of {expected}")]
    FeedHole {
        /// Where.
        partition: PartitionId,
        /// The LSN that had to come.
        expected: Lsn,
        /// The one that came.
        found: Lsn,
    },
    /// The server sent what this client cannot read.
    #[error("the server sent {0}")]
    Protocol(String),
    /// The client was shut down.
    #[error("the client is shut down")]
    Closed,
}

/// Names what is in doubt, so that it can be asked about later, also by another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InDoubt {
    /// A reserve or withdraw.
    Request {
        /// The sale.
        sale: SaleId,
        /// The buyer.
        user: UserId,
        /// The request id.
        request: RequestId,
    },
    /// A verb on an order.
    Order(OrderId),
    /// A catalog or stock change: send it again, it is idempotent.
    Catalog,
}

impl std::fmt::Display for InDoubt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Request { sale, user, request } => {
                write!(f, "request {request} of user {user} in sale {sale}")
            }
            Self::Order(order) => write!(f, "order {order}"),
            Self::Catalog => f.write_str("a catalog change"),
        }
    }
}

impl InDoubt {
    /// What a command leaves in doubt; `None` for questions.
    pub fn of(command: &Command) -> Option<Self> {
        match command {
            Command::Reserve(reserve) => Some(Self::Request {
                sale: reserve.sale,
                user: reserve.user,
                request: reserve.request.clone(),
            }),
            Command::Withdraw { sale, user, request } => {
                Some(Self::Request { sale: *sale, user: *user, request: request.clone() })
            }
            Command::Confirm { order, .. }
            | Command::Cancel { order, .. }
            | Command::Extend { order, .. } => Some(Self::Order(*order)),
            Command::Return(back) => Some(Self::Order(back.order)),
            Command::SalePut(_)
            | Command::SalePause(_)
            | Command::SaleResume(_)
            | Command::SaleClose(_)
            | Command::Adjust(_) => Some(Self::Catalog),
            Command::OrderGet(_)
            | Command::Status { .. }
            | Command::UserGet { .. }
            | Command::OrderList(_)
            | Command::SkuGet { .. }
            | Command::SaleGet(_)
            | Command::SaleList => None,
        }
    }
}
