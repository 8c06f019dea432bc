//! The verbs, typed: each is one command and the one shape of answer that it has.

use crate::client::Client;
use crate::error::{Error, InDoubt};
use crate::sale_cache;
use stockade_protocol::command::{Adjust, OrderList, Reserve, Return};
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::reply::{
    AdjustReply, OrderReply, OrderView, ReserveReply, SalePutReply, SaleSummary, SaleSwitchReply,
    SaleView, SkuView, UserView,
};
use stockade_protocol::text::{ConsumerName, PaymentRef, Reason};
use stockade_protocol::wire::{ConsumerInfo, Request, Response};
use stockade_protocol::{Command, OrderId, Reply, RequestId, SaleId, SalePatch, SkuId, UserId};
use tokio::time::Instant;

pub(crate) fn unexpected(reply: &Reply) -> Error {
    match reply {
        // A question that the engine could not decide now.
        Reply::Busy { retry_after_ms } => Error::Server {
            code: stockade_protocol::wire::ErrorCode::Failed,
            message: format!("busy, try again in {retry_after_ms} ms"),
        },
        other => Error::Protocol(format!("{other:?} as the answer to another command")),
    }
}

macro_rules! verb {
    ($self:ident, $command:expr, $pattern:pat => $value:expr) => {
        match $self.call($command).await? {
            $pattern => Ok($value),
            other => Err(unexpected(&other)),
        }
    };
}

impl Client {
    /// May this user have these units? The request id makes a retry safe, also from another
    /// process.
    ///
    /// # Errors
    /// See [`Error`]. Rejections are answers.
    pub async fn reserve(&self, reserve: Reserve) -> Result<ReserveReply, Error> {
        let Some(cache) = self.cache() else {
            return verb!(self, Command::Reserve(reserve), Reply::Reserve(reply) => reply);
        };
        let asked = Instant::now();
        let command = Command::Reserve(reserve.clone());
        let reply = verb!(self, command, Reply::Reserve(reply) => reply)?;
        sale_cache::lock(cache).learn(&reserve, &reply, asked);
        Ok(reply)
    }

    /// As [`Self::reserve`], for a request id that was never sent before, by nobody: a sale that is
    /// known to grant nothing is answered without a packet, where
    /// [`crate::ClientBuilder::sale_cache`] is set.
    ///
    /// Repetitions must use [`Self::reserve`]: it alone knows whether the request has an order. A
    /// rejection from here can be older than the call by the cache's time to live, and does not
    /// look at the user's own limits first.
    ///
    /// # Errors
    /// See [`Error`]. Rejections are answers.
    pub async fn reserve_new(&self, reserve: Reserve) -> Result<ReserveReply, Error> {
        let now = Instant::now();
        let answer = |cache| sale_cache::lock(cache).answer(&reserve, now);
        match self.cache().and_then(answer) {
            Some(reply) => Ok(reply),
            None => self.reserve(reserve).await,
        }
    }

    /// The order is paid with this reference.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn confirm(&self, order: OrderId, payment: PaymentRef) -> Result<OrderReply, Error> {
        verb!(self, Command::Confirm { order, payment }, Reply::Order(reply) => reply)
    }

    /// Gives a held order's units and right back.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn cancel(&self, order: OrderId, reason: Reason) -> Result<OrderReply, Error> {
        verb!(self, Command::Cancel { order, reason }, Reply::Order(reply) => reply)
    }

    /// Makes sure that a request id holds nothing and never will.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn withdraw(
        &self,
        sale: SaleId,
        user: UserId,
        request: RequestId,
    ) -> Result<OrderReply, Error> {
        verb!(self, Command::Withdraw { sale, user, request }, Reply::Order(reply) => reply)
    }

    /// Moves a held order's deadline.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn extend(&self, order: OrderId, until: TimestampMs) -> Result<OrderReply, Error> {
        verb!(self, Command::Extend { order, until }, Reply::Order(reply) => reply)
    }

    /// Gives units of a confirmed order back.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn return_units(&self, back: Return) -> Result<OrderReply, Error> {
        verb!(self, Command::Return(back), Reply::Order(reply) => reply)
    }

    /// Reads an order.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn order(&self, order: OrderId) -> Result<OrderView, Error> {
        verb!(self, Command::OrderGet(order), Reply::OrderView(view) => *view)
    }

    /// What became of a request id?
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn status(
        &self,
        sale: SaleId,
        user: UserId,
        request: RequestId,
    ) -> Result<OrderView, Error> {
        verb!(self, Command::Status { sale, user, request }, Reply::OrderView(view) => *view)
    }

    /// What became of a call that is in doubt; `None` for catalog changes (send them again).
    ///
    /// A state of `unknown` is not final: the request may still be on its way. Withdraw it to make
    /// it so.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn resolve(&self, doubt: &InDoubt) -> Result<Option<OrderView>, Error> {
        match doubt.clone() {
            InDoubt::Request { sale, user, request } => {
                self.status(sale, user, request).await.map(Some)
            }
            InDoubt::Order(order) => self.order(order).await.map(Some),
            InDoubt::Catalog => Ok(None),
        }
    }

    /// Reads a user's orders and rights in a sale.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn user(&self, sale: SaleId, user: UserId) -> Result<UserView, Error> {
        verb!(self, Command::UserGet { sale, user }, Reply::User(view) => view)
    }

    /// One page of a sale's orders, in ascending order of id.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn orders(&self, list: OrderList) -> Result<Vec<OrderView>, Error> {
        verb!(self, Command::OrderList(list), Reply::Orders(views) => views)
    }

    /// Reads a SKU's figures.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn sku(&self, sale: SaleId, sku: SkuId) -> Result<SkuView, Error> {
        verb!(self, Command::SkuGet { sale, sku }, Reply::Sku(view) => view)
    }

    /// Reads a sale with its figures; `None` if it is unknown or archived.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn sale(&self, sale: SaleId) -> Result<Option<Box<SaleView>>, Error> {
        verb!(self, Command::SaleGet(sale), Reply::Sale(view) => view)
    }

    /// Lists the sales that are not archived.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn sales(&self) -> Result<Vec<SaleSummary>, Error> {
        verb!(self, Command::SaleList, Reply::Sales(sales) => sales)
    }

    /// Creates a sale or merges with it.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn sale_put(&self, patch: SalePatch) -> Result<SalePutReply, Error> {
        verb!(self, Command::SalePut(Box::new(patch)), Reply::SalePut(reply) => reply)
    }

    /// Stops reserves.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn sale_pause(&self, sale: SaleId) -> Result<SaleSwitchReply, Error> {
        verb!(self, Command::SalePause(sale), Reply::SaleSwitch(reply) => reply)
    }

    /// Lets reserves go on.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn sale_resume(&self, sale: SaleId) -> Result<SaleSwitchReply, Error> {
        verb!(self, Command::SaleResume(sale), Reply::SaleSwitch(reply) => reply)
    }

    /// Ends a sale for good.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn sale_close(&self, sale: SaleId) -> Result<SaleSwitchReply, Error> {
        verb!(self, Command::SaleClose(sale), Reply::SaleSwitch(reply) => reply)
    }

    /// Changes a SKU's total.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn adjust(&self, adjust: Adjust) -> Result<AdjustReply, Error> {
        verb!(self, Command::Adjust(adjust), Reply::Adjust(reply) => reply)
    }

    /// The feed's consumers.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn consumers(&self) -> Result<Vec<ConsumerInfo>, Error> {
        match self.ask(Request::Consumers).await? {
            Response::Consumers(consumers) => Ok(consumers),
            other => Err(Error::Protocol(format!("{other:?} as a list of consumers"))),
        }
    }

    /// Ends a consumer.
    ///
    /// # Errors
    /// See [`Error`]; a name that is not known is a [`Error::Server`].
    pub async fn consumer_drop(&self, name: ConsumerName) -> Result<(), Error> {
        self.ask(Request::ConsumerDrop(name)).await.map(|_| ())
    }

    /// Asks the server for its clock.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn ping(&self) -> Result<TimestampMs, Error> {
        match self.ask(Request::Ping).await? {
            Response::Pong { server_time } => Ok(server_time),
            other => Err(Error::Protocol(format!("{other:?} as a pong"))),
        }
    }
}
