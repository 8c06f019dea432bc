//! The bytes of entries: a 24-byte header, then the body of its kind. All numbers are
//! little-endian.
//!
//! ```text
//! off size field
//!   0    4 len        bytes of the whole entry, header included
//!   4    1 kind       Event::kind
//!   5    1 version    of the kind's body, from 1 on; fields are only appended
//!   6    2 partition
//!   8    8 lsn
//!  16    8 at         ms since the epoch
//! ```
//! There is no checksum here: journal frames, archive batches and wire frames carry their own.

use super::{Entry, Event, LateReason, OrderKey, Placed};
use crate::command::Lines;
use crate::ids::{Lsn, PartitionId, SaleId, TimestampMs, UserId};
use crate::le::{LINE_BYTES, Malformed, Reader, Writer};
use crate::limits::{ENTRY_BYTES_MAX, LABELS_PER_SKU_MAX, SKUS_PER_SALE_MAX};
use crate::sale::{Labels, SaleDefinition, SkuDefinition};
use crate::text::OrderData;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// Bytes of an entry before its body.
pub const ENTRY_HEADER_BYTES: usize = 24;

/// The only version of every kind so far.
const VERSION: u8 = 1;

/// Bytes that are no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// The bytes end within the entry.
    #[error("entry ends too early")]
    Short,
    /// The length field is below the header's size or above the bound.
    #[error("entry length {0} is out of range")]
    Length(u32),
    /// An entry of a later version of this software.
    #[error("unknown entry kind {kind} version {version}")]
    Unknown {
        /// The kind found.
        kind: u8,
        /// The version found.
        version: u8,
    },
    /// A field makes no sense.
    #[error("entry of kind {kind}: {source}")]
    Body {
        /// The kind found.
        kind: u8,
        /// What is wrong.
        source: Malformed,
    },
}

/// What can be told of an entry without reading its body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryHeader {
    /// Bytes of the whole entry.
    pub len: usize,
    /// [`Event::kind`].
    pub kind: u8,
    /// Version of the body.
    pub version: u8,
    /// Its partition.
    pub partition: PartitionId,
    /// Its place.
    pub lsn: Lsn,
    /// Its time.
    pub at: TimestampMs,
}

/// Reads the header at the front of `bytes` and makes sure that the whole entry is there.
///
/// # Errors
/// [`EntryError::Short`] and [`EntryError::Length`].
pub fn peek(bytes: &[u8]) -> Result<EntryHeader, EntryError> {
    let mut reader = Reader::new(bytes);
    let header = (|| {
        Ok::<_, Malformed>(EntryHeader {
            len: reader.u32()? as usize,
            kind: reader.u8()?,
            version: reader.u8()?,
            partition: PartitionId::new(reader.u16()?),
            lsn: Lsn::new(reader.u64()?),
            at: TimestampMs::new(reader.u64()?),
        })
    })()
    .map_err(|_| EntryError::Short)?;
    if header.len < ENTRY_HEADER_BYTES || header.len > ENTRY_BYTES_MAX {
        return Err(EntryError::Length(header.len as u32));
    }
    if header.len > bytes.len() { Err(EntryError::Short) } else { Ok(header) }
}

impl Entry {
    /// Appends the entry's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.put_u32(0);
        out.put_u8(self.event.kind());
        out.put_u8(VERSION);
        out.put_u16(self.partition.get());
        out.put_u64(self.lsn.get());
        out.put_u64(self.at.get());
        put_body(&self.event, out);
        let len = out.len() - start;
        assert!(len <= ENTRY_BYTES_MAX, "the rules bound every entry");
        out[start..start + 4].copy_from_slice(&(len as u32).to_le_bytes());
    }

    /// Reads the entry at the front of `bytes`; the header's `len` says where the next one begins.
    ///
    /// # Errors
    /// See [`EntryError`]. Bytes behind the last known field of a known version are an error too.
    pub fn decode(bytes: &[u8]) -> Result<(Self, usize), EntryError> {
        let header = peek(bytes)?;
        let EntryHeader { len, kind, version, partition, lsn, at } = header;
        if version != VERSION {
            return Err(EntryError::Unknown { kind, version });
        }
        let mut reader = Reader::new(&bytes[ENTRY_HEADER_BYTES..len]);
        let event = take_body(kind, &mut reader)
            .map_err(|source| EntryError::Body { kind, source })?
            .ok_or(EntryError::Unknown { kind, version })?;
        if !reader.rest().is_empty() {
            return Err(EntryError::Body { kind, source: Malformed::Range("length") });
        }
        Ok((Self { partition, lsn, at, event }, len))
    }
}

fn put_body(event: &Event, out: &mut Vec<u8>) {
    match event {
        Event::Held(placed) | Event::BornConfirmed(placed) => put_placed(placed, out),
        Event::Confirmed { key, payment } => {
            put_key(key, out);
            out.put_text(payment.as_str());
        }
        Event::Revived { key, payment, lines } => {
            put_key(key, out);
            out.put_text(payment.as_str());
            put_counted_lines(lines, out);
        }
        Event::Cancelled { key, reason } => {
            put_key(key, out);
            out.put_text(reason.as_str());
        }
        Event::Expired { key } => put_key(key, out),
        Event::Extended { key, expires_at } => {
            put_key(key, out);
            out.put_u64(expires_at.get());
        }
        Event::Returned { key, request, lines, restock, right, whole } => {
            put_key(key, out);
            out.put_request(request);
            out.put_u8(u8::from(*restock));
            out.put_u8(u8::from(*right));
            out.put_u8(u8::from(*whole));
            put_counted_lines(lines, out);
        }
        Event::LatePayment { key, payment, reason } => {
            put_key(key, out);
            out.put_u8(*reason as u8);
            out.put_text(payment.as_str());
        }
        Event::Withdrawn { sale, user, request } => {
            out.put_u64(sale.get());
            out.put_u64(user.get());
            out.put_request(request);
        }
        Event::SalePut(definition) => put_definition(definition, out),
        Event::SalePaused(sale)
        | Event::SaleResumed(sale)
        | Event::SaleClosed(sale)
        | Event::SaleArchived(sale) => out.put_u64(sale.get()),
        Event::Adjusted { sale, sku, request, delta, applied, total } => {
            out.put_u64(sale.get());
            out.put_u64(sku.get());
            out.put_request(request);
            out.put_i64(*delta);
            out.put_i64(*applied);
            out.put_u64(*total);
        }
    }
}

/// `None` for a kind that is not known.
fn take_body(kind: u8, r: &mut Reader<'_>) -> Result<Option<Event>, Malformed> {
    Ok(Some(match kind {
        1 => Event::Held(take_placed(r)?),
        2 => Event::Confirmed { key: take_key(r)?, payment: r.payment()? },
        3 => Event::BornConfirmed(take_placed(r)?),
        4 => {
            let key = take_key(r)?;
            let payment = r.payment()?;
            Event::Revived { key, payment, lines: take_counted_lines(r)? }
        }
        5 => Event::Cancelled { key: take_key(r)?, reason: r.reason()? },
        6 => Event::Expired { key: take_key(r)? },
        7 => Event::Extended { key: take_key(r)?, expires_at: r.timestamp()? },
        8 => Event::Returned {
            key: take_key(r)?,
            request: r.request()?,
            restock: r.bool("restock")?,
            right: r.bool("right")?,
            whole: r.bool("whole")?,
            lines: take_counted_lines(r)?,
        },
        9 => {
            let key = take_key(r)?;
            let reason = LateReason::from_number(r.u8()?).ok_or(Malformed::Range("reason"))?;
            Event::LatePayment { key, payment: r.payment()?, reason }
        }
        10 => Event::Withdrawn { sale: r.sale()?, user: r.user()?, request: r.request()? },
        32 => Event::Adjusted {
            sale: r.sale()?,
            sku: r.sku()?,
            request: r.request()?,
            delta: r.i64()?,
            applied: r.i64()?,
            total: r.u64()?,
        },
        33 => Event::SalePut(Box::new(take_definition(r)?)),
        34 => Event::SalePaused(r.sale()?),
        35 => Event::SaleResumed(r.sale()?),
        36 => Event::SaleClosed(r.sale()?),
        37 => Event::SaleArchived(r.sale()?),
        _ => return Ok(None),
    }))
}

fn put_key(key: &OrderKey, out: &mut Vec<u8>) {
    out.put_u64(key.order.get());
    out.put_u64(key.sale.map_or(0, SaleId::get));
    out.put_u64(key.user.map_or(0, UserId::get));
}

fn take_key(r: &mut Reader<'_>) -> Result<OrderKey, Malformed> {
    let order = r.order()?;
    let (sale, user) = (r.u64()?, r.u64()?);
    if sale == 0 && user == 0 {
        return Ok(OrderKey { order, sale: None, user: None });
    }
    Ok(OrderKey {
        order,
        sale: Some(SaleId::new(sale).ok_or(Malformed::Range("sale"))?),
        user: Some(UserId::new(user).ok_or(Malformed::Range("user"))?),
    })
}

pub(crate) fn put_counted_lines(lines: &Lines, out: &mut Vec<u8>) {
    let count = out.put_count(lines.len());
    out.put_lines(&lines[..count]);
}

pub(crate) fn take_counted_lines(r: &mut Reader<'_>) -> Result<Lines, Malformed> {
    let count = usize::from(r.u16()?);
    r.lines(count)
}

fn put_placed(placed: &Placed, out: &mut Vec<u8>) {
    out.reserve(64 + LINE_BYTES * placed.lines.len());
    out.put_u64(placed.order.get());
    out.put_u64(placed.sale.get());
    out.put_u64(placed.user.get());
    out.put_u64(placed.expires_at.get());
    out.put_request(&placed.request);
    put_counted_lines(&placed.lines, out);
    let data = placed.data.as_bytes();
    out.put_u16(data.len() as u16);
    out.extend_from_slice(data);
}

fn take_placed(r: &mut Reader<'_>) -> Result<Placed, Malformed> {
    let order = r.order()?;
    let (sale, user) = (r.sale()?, r.user()?);
    let expires_at = r.timestamp()?;
    let request = r.request()?;
    let lines = take_counted_lines(r)?;
    let data_len = usize::from(r.u16()?);
    let data = OrderData::new(r.take(data_len)?).ok_or(Malformed::Range("data"))?;
    Ok(Placed { order, sale, user, request, expires_at, lines, data })
}

pub(crate) fn put_definition(definition: &SaleDefinition, out: &mut Vec<u8>) {
    let d = definition;
    out.put_u64(d.sale.get());
    out.put_text(&d.name);
    out.put_u64(d.opens_at.get());
    out.put_u64(d.closes_at.map_or(0, TimestampMs::get));
    out.put_u64(d.hold_ms);
    out.put_u64(d.extend_max_ms);
    out.put_u64(d.grace_ms);
    out.put_u32(d.limit_per_user);
    out.put_u32(d.rate_per_s);
    out.put_u32(d.burst);
    out.put_u32(d.user_rate_per_s);
    out.put_u8(u8::from(d.revive));
    out.put_u32(d.skus.len() as u32);
    for sku in &d.skus {
        out.put_u64(sku.sku.get());
        out.put_u32(sku.stock);
        out.put_u32(sku.limit_per_user);
        out.put_u32(sku.max_per_order);
        out.put_u16(sku.labels.len() as u16);
        for (name, value) in &sku.labels {
            out.put_text(name);
            out.put_text(value);
        }
    }
}

pub(crate) fn take_definition(r: &mut Reader<'_>) -> Result<SaleDefinition, Malformed> {
    let sale = r.sale()?;
    let name = String::from(r.text("name")?);
    let opens_at = r.timestamp()?;
    let closes_at = Some(r.timestamp()?).filter(|at| *at != TimestampMs::NONE);
    let mut definition = SaleDefinition {
        sale,
        name,
        opens_at,
        closes_at,
        hold_ms: r.u64()?,
        extend_max_ms: r.u64()?,
        grace_ms: r.u64()?,
        limit_per_user: r.u32()?,
        rate_per_s: r.u32()?,
        burst: r.u32()?,
        user_rate_per_s: r.u32()?,
        revive: r.bool("revive")?,
        skus: Vec::new(),
    };
    let count = r.u32()? as usize;
    if count > SKUS_PER_SALE_MAX {
        return Err(Malformed::Range("skus"));
    }
    for _ in 0..count {
        definition.skus.push(SkuDefinition {
            sku: r.sku()?,
            stock: r.u32()?,
            limit_per_user: r.u32()?,
            max_per_order: r.u32()?,
            labels: take_labels(r)?,
        });
    }
    Ok(definition)
}

pub(crate) fn take_labels(r: &mut Reader<'_>) -> Result<Labels, Malformed> {
    let count = usize::from(r.u16()?);
    if count > LABELS_PER_SKU_MAX {
        return Err(Malformed::Range("labels"));
    }
    let mut labels = Labels::with_capacity(count);
    for _ in 0..count {
        labels.push((String::from(r.text("label")?), String::from(r.text("label")?)));
    }
    Ok(labels)
}
