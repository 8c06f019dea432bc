//! Little-endian reading and writing of fixed fields; the one place where bytes become numbers.
//!
//! The reader never panics and never allocates more than the bytes that are really there.

use crate::command::{Line, Lines};
use crate::ids::{OrderId, SaleId, SkuId, TimestampMs, UserId};
use crate::limits::LINES_MAX;
use crate::request_id::{RequestId, RequestKey};
use crate::text::{PaymentRef, Reason};
use alloc::vec::Vec;

/// Bytes of one line: SKU u64, quantity u32.
pub const LINE_BYTES: usize = 12;

/// Bytes that do not say what they must.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Fewer bytes than the fields need.
    #[error("ends too early")]
    Short,
    /// A field's value is out of range.
    #[error("{0} is out of range")]
    Range(&'static str),
}

/// Reads fields from the front of a slice.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader over these bytes.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// What was not read yet.
    pub const fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (head, tail) = self.bytes.split_at_checked(count).ok_or(Malformed::Short)?;
        self.bytes = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, tail) = self.bytes.split_first_chunk::<N>().ok_or(Malformed::Short)?;
        self.bytes = tail;
        Ok(*head)
    }

    /// A byte.
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    /// Two bytes.
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    /// Four bytes.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// Eight bytes, signed.
    pub fn i64(&mut self) -> Result<i64, Malformed> {
        self.array().map(i64::from_le_bytes)
    }

    /// A byte that is 0 or 1.
    pub fn bool(&mut self, what: &'static str) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed::Range(what)),
        }
    }

    /// A moment in ms; 0 stands for none.
    pub fn moment(&mut self) -> Result<Option<TimestampMs>, Malformed> {
        Ok(Some(self.timestamp()?).filter(|at| *at != TimestampMs::NONE))
    }

    /// A moment in ms.
    pub fn timestamp(&mut self) -> Result<TimestampMs, Malformed> {
        self.u64().map(TimestampMs::new)
    }

    /// A sale.
    pub fn sale(&mut self) -> Result<SaleId, Malformed> {
        SaleId::new(self.u64()?).ok_or(Malformed::Range("sale"))
    }

    /// A SKU.
    pub fn sku(&mut self) -> Result<SkuId, Malformed> {
        SkuId::new(self.u64()?).ok_or(Malformed::Range("sku"))
    }

    /// A buyer.
    pub fn user(&mut self) -> Result<UserId, Malformed> {
        UserId::new(self.u64()?).ok_or(Malformed::Range("user"))
    }

    /// An order.
    pub fn order(&mut self) -> Result<OrderId, Malformed> {
        OrderId::new(self.u64()?).ok_or(Malformed::Range("order"))
    }

    /// Text with its length in front (u16).
    pub fn text(&mut self, what: &'static str) -> Result<&'a str, Malformed> {
        let length = usize::from(self.u16()?);
        core::str::from_utf8(self.take(length)?).map_err(|_| Malformed::Range(what))
    }

    /// A payment reference.
    pub fn payment(&mut self) -> Result<PaymentRef, Malformed> {
        let text = self.text("payment reference")?;
        PaymentRef::new(text.as_bytes()).map_err(|_| Malformed::Range("payment reference"))
    }

    /// A reason.
    pub fn reason(&mut self) -> Result<Reason, Malformed> {
        let text = self.text("reason")?;
        Reason::new(text.as_bytes()).map_err(|_| Malformed::Range("reason"))
    }

    /// A request id: key u64, then the text (empty for a decimal), whose fold must be the key.
    pub fn request(&mut self) -> Result<RequestId, Malformed> {
        let error = Malformed::Range("request id");
        let key = RequestKey::from_raw(self.u64()?).ok_or(error)?;
        let text = self.text("request id")?;
        let id = if text.is_empty() {
            RequestId::from_number(key.get()).ok_or(error)?
        } else {
            RequestId::parse(text.as_bytes()).map_err(|_| error)?
        };
        if id.key() == key { Ok(id) } else { Err(error) }
    }

    /// `count` lines; quantities may be 0 (the rules judge them).
    pub fn lines(&mut self, count: usize) -> Result<Lines, Malformed> {
        if count > LINES_MAX {
            return Err(Malformed::Range("lines"));
        }
        let mut lines = Lines::with_capacity(count);
        for _ in 0..count {
            let sku = self.sku()?;
            let quantity = self.u32()?;
            lines.push(Line { sku, quantity });
        }
        Ok(lines)
    }
}

/// Appends fields to a vector.
pub trait Writer {
    /// A byte.
    fn put_u8(&mut self, value: u8);
    /// Two bytes.
    fn put_u16(&mut self, value: u16);
    /// Four bytes.
    fn put_u32(&mut self, value: u32);
    /// Eight bytes.
    fn put_u64(&mut self, value: u64);
    /// Eight bytes, signed.
    fn put_i64(&mut self, value: i64);
    /// A count that fits its field: how many of `len` things may follow. All bounds are far below
    /// 65,535, so a reader refuses a list that was cut here; one whose count wrapped would be
    /// taken for another list.
    fn put_count(&mut self, len: usize) -> usize;
    /// Text with its length in front (u16), cut as [`Self::put_count`] cuts lists.
    fn put_text(&mut self, text: &str);
    /// A moment, or 0 for none. The epoch itself, which would read as none, becomes the ms behind
    /// it: both are long past, but "never" is not.
    fn put_moment(&mut self, at: Option<TimestampMs>);
    /// Key and text of a request id.
    fn put_request(&mut self, request: &RequestId);
    /// Lines without their count.
    fn put_lines(&mut self, lines: &[Line]);
}

impl Writer for Vec<u8> {
    fn put_u8(&mut self, value: u8) {
        self.push(value);
    }

    fn put_u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_i64(&mut self, value: i64) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_count(&mut self, len: usize) -> usize {
        let count = u16::try_from(len).unwrap_or(u16::MAX);
        self.put_u16(count);
        usize::from(count)
    }

    fn put_text(&mut self, text: &str) {
        let mut len = text.len().min(usize::from(u16::MAX));
        while !text.is_char_boundary(len) {
            len -= 1;
        }
        self.put_count(len);
        self.extend_from_slice(&text.as_bytes()[..len]);
    }

    fn put_moment(&mut self, at: Option<TimestampMs>) {
        self.put_u64(at.map_or(0, |at| at.get().max(1)));
    }

    fn put_request(&mut self, request: &RequestId) {
        self.put_u64(request.key().get());
        self.put_text(request.text().unwrap_or(""));
    }

    fn put_lines(&mut self, lines: &[Line]) {
        for line in lines {
            self.put_u64(line.sku.get());
            self.put_u32(line.quantity);
        }
    }
}
