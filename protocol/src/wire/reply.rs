//! Bodies of replies. A reply's kind names its shape, not the command.

use crate::entry::codec::{put_counted_lines, put_definition, take_counted_lines, take_definition};
use crate::ids::{OrderId, SaleId, UserId};
use crate::le::{Malformed, Reader, Writer};
use crate::limits::{ORDER_PAGE_MAX, SALES_MAX, SKUS_PER_SALE_MAX};
use crate::outcome::Outcome;
use crate::reply::{
    AdjustReply, OrderReply, OrderView, Reply, ReserveReply, SalePutReply, SaleSummary,
    SaleSwitchReply, SaleView, SkuView, UserSku, UserView,
};
use crate::state::{OrderState, SaleState, SkuState};
use crate::text::PaymentRef;
use crate::wire::RESERVE_MANY_MAX;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// Kinds of replies.
pub(super) mod kind {
    pub const RESERVE: u16 = 0x8010;
    pub const ORDER: u16 = 0x8011;
    pub const RESERVE_MANY: u16 = 0x8016;
    pub const ORDER_VIEW: u16 = 0x8020;
    pub const USER: u16 = 0x8022;
    pub const ORDERS: u16 = 0x8023;
    pub const SKU: u16 = 0x8024;
    pub const SALE: u16 = 0x8025;
    pub const SALES: u16 = 0x8026;
    pub const SALE_PUT: u16 = 0x8030;
    pub const SALE_SWITCH: u16 = 0x8031;
    pub const ADJUST: u16 = 0x8034;
    pub const BUSY: u16 = 0xFFFE;
}

/// Bytes of a reserve's answer, also as an entry of `ReserveMany`'s.
const RESERVE_STRIDE: usize = 40;

pub(super) fn kind_of(reply: &Reply) -> u16 {
    match reply {
        Reply::Reserve(_) => kind::RESERVE,
        Reply::Order(_) => kind::ORDER,
        Reply::OrderView(_) => kind::ORDER_VIEW,
        Reply::User(_) => kind::USER,
        Reply::Orders(_) => kind::ORDERS,
        Reply::Sku(_) => kind::SKU,
        Reply::Sale(_) => kind::SALE,
        Reply::Sales(_) => kind::SALES,
        Reply::SalePut(_) => kind::SALE_PUT,
        Reply::SaleSwitch(_) => kind::SALE_SWITCH,
        Reply::Adjust(_) => kind::ADJUST,
        Reply::Busy { .. } => kind::BUSY,
    }
}

pub(super) fn put(reply: &Reply, out: &mut Vec<u8>) {
    match reply {
        Reply::Reserve(reply) => put_reserve(reply, out),
        Reply::Order(reply) => {
            out.put_u16(reply.outcome.number());
            out.put_u8(reply.state.number());
            out.put_u8(0);
            out.put_u32(0);
            out.put_u64(reply.order.map_or(0, OrderId::get));
        }
        Reply::OrderView(view) => put_view(view, out),
        Reply::User(view) => put_user(view, out),
        Reply::Orders(views) => {
            out.put_u32(views.len() as u32);
            for view in views {
                put_view(view, out);
            }
        }
        Reply::Sku(view) => put_sku(view, out),
        Reply::Sale(None) => out.put_u8(0),
        Reply::Sale(Some(view)) => {
            out.put_u8(1);
            out.put_u8(view.state.number());
            out.put_u64(view.server_time.get());
            put_definition(&view.definition, out);
            out.put_u32(view.skus.len() as u32);
            for sku in &view.skus {
                put_sku(sku, out);
            }
        }
        Reply::Sales(sales) => {
            out.put_u32(sales.len() as u32);
            for sale in sales {
                put_summary(sale, out);
            }
        }
        Reply::SalePut(reply) => {
            out.put_u16(reply.outcome.number());
            out.put_u64(reply.sale.map_or(0, SaleId::get));
            out.put_text(&reply.why);
        }
        Reply::SaleSwitch(reply) => {
            out.put_u16(reply.outcome.number());
            out.put_u64(reply.sale.get());
        }
        Reply::Adjust(reply) => {
            out.put_u16(reply.outcome.number());
            out.put_i64(reply.applied);
            out.put_u64(reply.total);
            out.put_u64(reply.free);
        }
        Reply::Busy { retry_after_ms } => out.put_u32(*retry_after_ms),
    }
}

/// `None`: not a reply's kind.
pub(super) fn take(kind: u16, r: &mut Reader<'_>) -> Result<Option<Reply>, Malformed> {
    Ok(Some(match kind {
        kind::RESERVE => Reply::Reserve(take_reserve(r)?),
        kind::ORDER => {
            let outcome = take_outcome(r)?;
            let state = take_state(r)?;
            r.take(5)?;
            Reply::Order(OrderReply { outcome, order: take_order(r)?, state })
        }
        kind::ORDER_VIEW => Reply::OrderView(Box::new(take_view(r)?)),
        kind::USER => Reply::User(take_user(r)?),
        kind::ORDERS => {
            let count = take_count(r, ORDER_PAGE_MAX as usize)?;
            let mut views = Vec::new();
            for _ in 0..count {
                views.push(take_view(r)?);
            }
            Reply::Orders(views)
        }
        kind::SKU => Reply::Sku(take_sku(r)?),
        kind::SALE => Reply::Sale(take_sale(r)?),
        kind::SALES => {
            let count = take_count(r, SALES_MAX)?;
            let mut sales = Vec::new();
            for _ in 0..count {
                sales.push(take_summary(r)?);
            }
            Reply::Sales(sales)
        }
        kind::SALE_PUT => {
            let (outcome, sale) = (take_outcome(r)?, r.u64()?);
            let why = String::from(r.text("why")?);
            Reply::SalePut(SalePutReply { outcome, sale: SaleId::new(sale), why })
        }
        kind::SALE_SWITCH => {
            Reply::SaleSwitch(SaleSwitchReply { outcome: take_outcome(r)?, sale: r.sale()? })
        }
        kind::ADJUST => Reply::Adjust(AdjustReply {
            outcome: take_outcome(r)?,
            applied: r.i64()?,
            total: r.u64()?,
            free: r.u64()?,
        }),
        kind::BUSY => Reply::Busy { retry_after_ms: r.u32()? },
        _ => return Ok(None),
    }))
}

fn take_outcome(r: &mut Reader<'_>) -> Result<Outcome, Malformed> {
    Outcome::from_number(r.u16()?).ok_or(Malformed::Range("outcome"))
}

fn take_state(r: &mut Reader<'_>) -> Result<OrderState, Malformed> {
    OrderState::from_number(r.u8()?).ok_or(Malformed::Range("state"))
}

/// 0 stands for no order.
fn take_order(r: &mut Reader<'_>) -> Result<Option<OrderId>, Malformed> {
    match r.u64()? {
        0 => Ok(None),
        order => OrderId::new(order).map(Some).ok_or(Malformed::Range("order")),
    }
}

fn take_count(r: &mut Reader<'_>, most: usize) -> Result<usize, Malformed> {
    let count = r.u32()? as usize;
    if count > most { Err(Malformed::Range("count")) } else { Ok(count) }
}

fn put_reserve(reply: &ReserveReply, out: &mut Vec<u8>) {
    out.put_u16(reply.outcome.number());
    out.put_u8(u8::from(reply.again));
    out.put_u8(0);
    out.put_u32(0);
    out.put_u64(reply.order.map_or(0, OrderId::get));
    out.put_u64(reply.expires_at.get());
    out.put_i64(reply.retry_after_ms);
    out.put_i64(reply.left);
}

fn take_reserve(r: &mut Reader<'_>) -> Result<ReserveReply, Malformed> {
    let outcome = take_outcome(r)?;
    let again = r.bool("again")?;
    r.take(5)?;
    Ok(ReserveReply {
        outcome,
        again,
        order: take_order(r)?,
        expires_at: r.timestamp()?,
        retry_after_ms: r.i64()?,
        left: r.i64()?,
    })
}

pub(super) fn put_many(replies: &[ReserveReply], out: &mut Vec<u8>) {
    out.put_u32(replies.len() as u32);
    out.put_u32(RESERVE_STRIDE as u32);
    for reply in replies {
        put_reserve(reply, out);
    }
}

pub(super) fn take_many(r: &mut Reader<'_>) -> Result<Vec<ReserveReply>, Malformed> {
    let count = take_count(r, RESERVE_MANY_MAX)?;
    let stride = r.u32()? as usize;
    if stride < RESERVE_STRIDE {
        return Err(Malformed::Range("stride"));
    }
    if r.rest().len() < count.saturating_mul(stride) {
        return Err(Malformed::Short);
    }
    let mut replies = Vec::with_capacity(count);
    for _ in 0..count {
        replies.push(take_reserve(&mut Reader::new(r.take(stride)?))?);
    }
    Ok(replies)
}

fn put_view(view: &OrderView, out: &mut Vec<u8>) {
    out.put_u64(view.order.map_or(0, OrderId::get));
    out.put_u8(view.state.number());
    out.put_u64(view.sale.map_or(0, SaleId::get));
    out.put_u64(view.user.map_or(0, UserId::get));
    out.put_u64(view.expires_at.get());
    out.put_text(view.payment.as_ref().map_or("", PaymentRef::as_str));
    put_counted_lines(&view.lines, out);
    put_counted_lines(&view.returned, out);
}

fn take_view(r: &mut Reader<'_>) -> Result<OrderView, Malformed> {
    let order = take_order(r)?;
    let state = take_state(r)?;
    let (sale, user) = (SaleId::new(r.u64()?), UserId::new(r.u64()?));
    let expires_at = r.timestamp()?;
    let payment = match r.text("payment")? {
        "" => None,
        text => {
            let payment = PaymentRef::new(text.as_bytes());
            Some(payment.map_err(|_| Malformed::Range("payment"))?)
        }
    };
    let lines = take_counted_lines(r)?;
    let returned = take_counted_lines(r)?;
    Ok(OrderView { order, state, sale, user, expires_at, payment, lines, returned })
}

fn put_user(view: &UserView, out: &mut Vec<u8>) {
    out.put_u32(view.skus.len() as u32);
    for sku in &view.skus {
        out.put_u64(sku.sku.get());
        out.put_u64(sku.units);
        out.put_i64(sku.left);
    }
    out.put_u32(view.orders.len() as u32);
    for order in &view.orders {
        out.put_u64(order.get());
    }
}

fn take_user(r: &mut Reader<'_>) -> Result<UserView, Malformed> {
    let mut view = UserView::default();
    for _ in 0..take_count(r, SKUS_PER_SALE_MAX)? {
        let (sku, units, left) = (r.sku()?, r.u64()?, r.i64()?);
        view.skus.push(UserSku { sku, units, left });
    }
    // A user's live orders are bounded by the body's size alone.
    for _ in 0..r.u32()? {
        view.orders.push(r.order()?);
    }
    Ok(view)
}

fn put_sku(view: &SkuView, out: &mut Vec<u8>) {
    out.put_u64(view.sku.get());
    out.put_u64(view.total);
    out.put_u64(view.free);
    out.put_u64(view.held);
    out.put_u64(view.confirmed);
    out.put_u64(u64::from(view.state.number()));
}

fn take_sku(r: &mut Reader<'_>) -> Result<SkuView, Malformed> {
    let sku = r.sku()?;
    let (total, free, held, confirmed) = (r.u64()?, r.u64()?, r.u64()?, r.u64()?);
    let state = u8::try_from(r.u64()?).ok().and_then(SkuState::from_number);
    let state = state.ok_or(Malformed::Range("state"))?;
    Ok(SkuView { sku, total, free, held, confirmed, state })
}

fn take_sale(r: &mut Reader<'_>) -> Result<Option<Box<SaleView>>, Malformed> {
    if !r.bool("presence")? {
        return Ok(None);
    }
    let state = SaleState::from_number(r.u8()?).ok_or(Malformed::Range("state"))?;
    let server_time = r.timestamp()?;
    let definition = take_definition(r)?;
    let mut skus = Vec::new();
    for _ in 0..take_count(r, SKUS_PER_SALE_MAX)? {
        skus.push(take_sku(r)?);
    }
    Ok(Some(Box::new(SaleView { definition, state, server_time, skus })))
}

fn put_summary(sale: &SaleSummary, out: &mut Vec<u8>) {
    out.put_u64(sale.sale.get());
    out.put_u8(sale.state.number());
    out.put_u64(sale.opens_at.get());
    out.put_moment(sale.closes_at);
    out.put_u32(sale.sku_count);
    out.put_text(&sale.name);
}

fn take_summary(r: &mut Reader<'_>) -> Result<SaleSummary, Malformed> {
    let sale = r.sale()?;
    let state = SaleState::from_number(r.u8()?).ok_or(Malformed::Range("state"))?;
    let opens_at = r.timestamp()?;
    let closes_at = r.moment()?;
    let sku_count = r.u32()?;
    let name = String::from(r.text("name")?);
    Ok(SaleSummary { sale, name, state, opens_at, closes_at, sku_count })
}
