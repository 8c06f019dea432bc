//! Bodies of commands.

use crate::command::{Adjust, Command, Line, Lines, OrderList, Reserve, Return};
use crate::entry::codec::{put_counted_lines, take_counted_lines, take_labels};
use crate::ids::{OrderId, PartitionId, UserId};
use crate::le::{Malformed, Reader, Writer};
use crate::limits::SKUS_PER_SALE_MAX;
use crate::request_id::RequestId;
use crate::sale::{OpensAt, SalePatch, SkuPatch};
use crate::state::OrderState;
use crate::text::OrderData;
use crate::wire::RESERVE_MANY_MAX;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// Request kinds of commands.
pub(super) mod kind {
    pub const RESERVE: u16 = 0x10;
    pub const CONFIRM: u16 = 0x11;
    pub const CANCEL: u16 = 0x12;
    pub const WITHDRAW: u16 = 0x13;
    pub const EXTEND: u16 = 0x14;
    pub const RETURN: u16 = 0x15;
    pub const RESERVE_MANY: u16 = 0x16;
    pub const ORDER_GET: u16 = 0x20;
    pub const STATUS: u16 = 0x21;
    pub const USER_GET: u16 = 0x22;
    pub const ORDER_LIST: u16 = 0x23;
    pub const SKU_GET: u16 = 0x24;
    pub const SALE_GET: u16 = 0x25;
    pub const SALE_LIST: u16 = 0x26;
    pub const SALE_PUT: u16 = 0x30;
    pub const SALE_PAUSE: u16 = 0x31;
    pub const SALE_RESUME: u16 = 0x32;
    pub const SALE_CLOSE: u16 = 0x33;
    pub const ADJUST: u16 = 0x34;
}

/// Bytes of one entry of `ReserveMany` in this version.
const MANY_STRIDE: usize = 48;

pub(super) fn kind_of(command: &Command) -> u16 {
    match command {
        Command::Reserve(_) => kind::RESERVE,
        Command::Confirm { .. } => kind::CONFIRM,
        Command::Cancel { .. } => kind::CANCEL,
        Command::Withdraw { .. } => kind::WITHDRAW,
        Command::Extend { .. } => kind::EXTEND,
        Command::Return(_) => kind::RETURN,
        Command::OrderGet(_) => kind::ORDER_GET,
        Command::Status { .. } => kind::STATUS,
        Command::UserGet { .. } => kind::USER_GET,
        Command::OrderList(_) => kind::ORDER_LIST,
        Command::SkuGet { .. } => kind::SKU_GET,
        Command::SaleGet(_) => kind::SALE_GET,
        Command::SaleList => kind::SALE_LIST,
        Command::SalePut(_) => kind::SALE_PUT,
        Command::SalePause(_) => kind::SALE_PAUSE,
        Command::SaleResume(_) => kind::SALE_RESUME,
        Command::SaleClose(_) => kind::SALE_CLOSE,
        Command::Adjust(_) => kind::ADJUST,
    }
}

pub(super) fn put(command: &Command, out: &mut Vec<u8>) {
    match command {
        Command::Reserve(reserve) => put_reserve(reserve, out),
        Command::Confirm { order, payment } => {
            out.put_u64(order.get());
            out.put_text(payment.as_str());
        }
        Command::Cancel { order, reason } => {
            out.put_u64(order.get());
            out.put_text(reason.as_str());
        }
        Command::Withdraw { sale, user, request } | Command::Status { sale, user, request } => {
            out.put_u64(sale.get());
            out.put_u64(user.get());
            out.put_request(request);
        }
        Command::Extend { order, until } => {
            out.put_u64(order.get());
            out.put_u64(until.get());
        }
        Command::Return(back) => {
            out.put_u64(back.order.get());
            out.put_u8(u8::from(back.restock));
            out.put_u8(u8::from(back.right));
            out.put_request(&back.request);
            put_counted_lines(&back.lines, out);
        }
        Command::OrderGet(order) => out.put_u64(order.get()),
        Command::UserGet { sale, user } => {
            out.put_u64(sale.get());
            out.put_u64(user.get());
        }
        Command::OrderList(list) => {
            out.put_u64(list.sale.get());
            out.put_u64(list.user.map_or(0, UserId::get));
            out.put_u64(list.after);
            out.put_u32(list.count);
            out.put_u8(list.state.map_or(0, OrderState::number));
        }
        Command::SkuGet { sale, sku } => {
            out.put_u64(sale.get());
            out.put_u64(sku.get());
        }
        Command::SaleGet(sale)
        | Command::SalePause(sale)
        | Command::SaleResume(sale)
        | Command::SaleClose(sale) => out.put_u64(sale.get()),
        Command::SaleList => {}
        Command::SalePut(patch) => put_patch(patch, out),
        Command::Adjust(adjust) => {
            out.put_u64(adjust.sale.get());
            out.put_u64(adjust.sku.get());
            out.put_i64(adjust.delta);
            out.put_request(&adjust.request);
        }
    }
}

/// `None`: not a command's kind.
pub(super) fn take(kind: u16, r: &mut Reader<'_>) -> Result<Option<Command>, Malformed> {
    Ok(Some(match kind {
        kind::RESERVE => Command::Reserve(take_reserve(r)?),
        kind::CONFIRM => Command::Confirm { order: take_order(r)?, payment: r.payment()? },
        kind::CANCEL => Command::Cancel { order: take_order(r)?, reason: r.reason()? },
        kind::WITHDRAW => {
            Command::Withdraw { sale: r.sale()?, user: r.user()?, request: r.request()? }
        }
        kind::EXTEND => Command::Extend { order: take_order(r)?, until: r.timestamp()? },
        kind::RETURN => {
            let order = take_order(r)?;
            let (restock, right) = (r.bool("restock")?, r.bool("right")?);
            let request = r.request()?;
            let lines = take_counted_lines(r)?;
            Command::Return(Return { order, request, lines, restock, right })
        }
        kind::ORDER_GET => Command::OrderGet(take_order(r)?),
        kind::STATUS => Command::Status { sale: r.sale()?, user: r.user()?, request: r.request()? },
        kind::USER_GET => Command::UserGet { sale: r.sale()?, user: r.user()? },
        kind::ORDER_LIST => take_order_list(r)?,
        kind::SKU_GET => Command::SkuGet { sale: r.sale()?, sku: r.sku()? },
        kind::SALE_GET => Command::SaleGet(r.sale()?),
        kind::SALE_LIST => Command::SaleList,
        kind::SALE_PUT => Command::SalePut(Box::new(take_patch(r)?)),
        kind::SALE_PAUSE => Command::SalePause(r.sale()?),
        kind::SALE_RESUME => Command::SaleResume(r.sale()?),
        kind::SALE_CLOSE => Command::SaleClose(r.sale()?),
        kind::ADJUST => {
            let (sale, sku, delta) = (r.sale()?, r.sku()?, r.i64()?);
            Command::Adjust(Adjust { sale, sku, delta, request: r.request()? })
        }
        _ => return Ok(None),
    }))
}

/// An order id that a partition of users can own.
fn take_order(r: &mut Reader<'_>) -> Result<OrderId, Malformed> {
    let order = r.order()?;
    if order.partition().get() >= PartitionId::COUNT_MAX {
        return Err(Malformed::Range("order"));
    }
    Ok(order)
}

fn put_reserve(reserve: &Reserve, out: &mut Vec<u8>) {
    out.put_u64(reserve.sale.get());
    out.put_u64(reserve.user.get());
    out.put_moment(reserve.not_after);
    out.put_request(&reserve.request);
    put_counted_lines(&reserve.lines, out);
    let data = reserve.data.as_bytes();
    out.put_u16(data.len() as u16);
    out.extend_from_slice(data);
}

fn take_reserve(r: &mut Reader<'_>) -> Result<Reserve, Malformed> {
    let (sale, user) = (r.sale()?, r.user()?);
    let not_after = r.moment()?;
    let request = r.request()?;
    let lines = take_counted_lines(r)?;
    let data_len = usize::from(r.u16()?);
    let data = OrderData::new(r.take(data_len)?).ok_or(Malformed::Range("data"))?;
    Ok(Reserve { sale, user, request, lines, data, not_after })
}

fn take_order_list(r: &mut Reader<'_>) -> Result<Command, Malformed> {
    let sale = r.sale()?;
    let user = match r.u64()? {
        0 => None,
        user => Some(UserId::new(user).ok_or(Malformed::Range("user"))?),
    };
    let (after, count) = (r.u64()?, r.u32()?);
    let state = match r.u8()? {
        0 => None,
        state => Some(OrderState::from_number(state).ok_or(Malformed::Range("state"))?),
    };
    Ok(Command::OrderList(OrderList { sale, user, state, after, count }))
}

/// True if a reserve can stand in a `ReserveMany`: one line, decimal request id, no data.
pub fn fits_many(reserve: &Reserve) -> bool {
    reserve.lines.len() == 1
        && reserve.request.text().is_none()
        && reserve.data.as_bytes().is_empty()
}

pub(super) fn put_many(reserves: &[Option<Reserve>], out: &mut Vec<u8>) {
    out.put_u32(reserves.len() as u32);
    out.put_u32(MANY_STRIDE as u32);
    for reserve in reserves {
        match reserve.as_ref().filter(|reserve| fits_many(reserve)) {
            Some(reserve) => {
                out.put_u64(reserve.sale.get());
                out.put_u64(reserve.user.get());
                out.put_moment(reserve.not_after);
                out.put_u64(reserve.request.key().get());
                out.put_u64(reserve.lines[0].sku.get());
                out.put_u32(reserve.lines[0].quantity);
                out.put_u32(0);
            }
            None => out.extend_from_slice(&[0; MANY_STRIDE]),
        }
    }
}

pub(super) fn take_many(r: &mut Reader<'_>) -> Result<Vec<Option<Reserve>>, Malformed> {
    let (count, stride) = (r.u32()? as usize, r.u32()? as usize);
    if count == 0 || count > RESERVE_MANY_MAX || stride < MANY_STRIDE {
        return Err(Malformed::Range("count or stride"));
    }
    if r.rest().len() < count.saturating_mul(stride) {
        return Err(Malformed::Short);
    }
    let mut out = Vec::with_capacity(count);
    for _ in 0..count {
        out.push(take_many_entry(&mut Reader::new(r.take(stride)?)).ok());
    }
    Ok(out)
}

fn take_many_entry(r: &mut Reader<'_>) -> Result<Reserve, Malformed> {
    let (sale, user) = (r.sale()?, r.user()?);
    let not_after = r.moment()?;
    let request = RequestId::from_number(r.u64()?).ok_or(Malformed::Range("request id"))?;
    let mut lines = Lines::new();
    lines.push(Line { sku: r.sku()?, quantity: r.u32()? });
    Ok(Reserve { sale, user, request, lines, data: OrderData::default(), not_after })
}

/// Presence bits of a patch, in the order of its fields.
fn patch_mask(p: &SalePatch) -> u32 {
    let bits = [
        p.name.is_some(),
        p.opens_at.is_some(),
        p.closes_at.is_some(),
        p.hold_ms.is_some(),
        p.extend_max_ms.is_some(),
        p.grace_ms.is_some(),
        p.limit_per_user.is_some(),
        p.rate_per_s.is_some(),
        p.burst.is_some(),
        p.user_rate_per_s.is_some(),
        p.revive.is_some(),
    ];
    bits.iter().enumerate().fold(0, |mask, (bit, set)| mask | u32::from(*set) << bit)
}

fn put_patch(p: &SalePatch, out: &mut Vec<u8>) {
    out.put_u64(p.sale.get());
    out.put_u32(patch_mask(p));
    out.put_text(p.name.as_deref().unwrap_or(""));
    // No moment stands for "now", and for "never".
    out.put_moment(match p.opens_at {
        Some(OpensAt::At(at)) => Some(at),
        _ => None,
    });
    out.put_moment(p.closes_at.flatten());
    for span in [p.hold_ms, p.extend_max_ms, p.grace_ms] {
        out.put_u64(span.unwrap_or(0));
    }
    for number in [p.limit_per_user, p.rate_per_s, p.burst, p.user_rate_per_s] {
        out.put_u32(number.unwrap_or(0));
    }
    out.put_u8(u8::from(p.revive.unwrap_or(false)));
    out.put_u32(p.skus.len() as u32);
    for sku in &p.skus {
        out.put_u64(sku.sku.get());
        let numbers = [sku.stock, sku.limit_per_user, sku.max_per_order];
        let mut mask = u8::from(sku.labels.is_some()) << 3;
        for (bit, number) in numbers.iter().enumerate() {
            mask |= u8::from(number.is_some()) << bit;
        }
        out.put_u8(mask);
        for number in numbers {
            out.put_u32(number.unwrap_or(0));
        }
        let labels = sku.labels.as_deref().unwrap_or(&[]);
        let count = out.put_count(labels.len());
        for (name, value) in &labels[..count] {
            out.put_text(name);
            out.put_text(value);
        }
    }
}

fn take_patch(r: &mut Reader<'_>) -> Result<SalePatch, Malformed> {
    let mut p = SalePatch::new(r.sale()?);
    let mask = r.u32()?;
    let has = |bit: u32| mask >> bit & 1 == 1;
    p.name = Some(String::from(r.text("name")?)).filter(|_| has(0));
    p.opens_at = Some(r.moment()?.map_or(OpensAt::Now, OpensAt::At)).filter(|_| has(1));
    p.closes_at = Some(r.moment()?).filter(|_| has(2));
    p.hold_ms = Some(r.u64()?).filter(|_| has(3));
    p.extend_max_ms = Some(r.u64()?).filter(|_| has(4));
    p.grace_ms = Some(r.u64()?).filter(|_| has(5));
    p.limit_per_user = Some(r.u32()?).filter(|_| has(6));
    p.rate_per_s = Some(r.u32()?).filter(|_| has(7));
    p.burst = Some(r.u32()?).filter(|_| has(8));
    p.user_rate_per_s = Some(r.u32()?).filter(|_| has(9));
    p.revive = Some(r.bool("revive")?).filter(|_| has(10));
    let count = r.u32()? as usize;
    if count > SKUS_PER_SALE_MAX {
        return Err(Malformed::Range("skus"));
    }
    for _ in 0..count {
        let sku = r.sku()?;
        let mask = r.u8()?;
        let mut number = |bit: u8| Ok(Some(r.u32()?).filter(|_| mask >> bit & 1 == 1));
        let (stock, limit_per_user, max_per_order) = (number(0)?, number(1)?, number(2)?);
        let labels = Some(take_labels(r)?).filter(|_| mask >> 3 & 1 == 1);
        p.skus.push(SkuPatch { sku, stock, limit_per_user, max_per_order, labels });
    }
    Ok(p)
}
