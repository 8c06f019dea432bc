//! Orders and lines in the binary format of COPY.

use super::moment::Moment;
use crate::rows::OrderRow;
use crate::sink::error::{micros, micros_or_none};
use crate::stored::number;

const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";
const ORDER_COLUMNS: i16 = 12;
const LINE_COLUMNS: i16 = 4;
/// About what a row takes, to reserve memory.
const ROW_BYTES: usize = 160;

/// A COPY stream under way.
struct Stream(Vec<u8>);

impl Stream {
    fn new(rows: usize) -> Self {
        let mut out = Vec::with_capacity(rows * ROW_BYTES);
        out.extend_from_slice(SIGNATURE);
        // No flags, no header extension.
        out.extend_from_slice(&[0; 8]);
        Self(out)
    }

    fn row(&mut self, columns: i16) {
        self.0.extend_from_slice(&columns.to_be_bytes());
    }

    fn bytes(&mut self, value: &[u8]) {
        // A value is bounded by the protocol's limits, far below 2^31 bytes.
        self.0.extend_from_slice(&(value.len() as i32).to_be_bytes());
        self.0.extend_from_slice(value);
    }

    fn null(&mut self) {
        self.0.extend_from_slice(&(-1_i32).to_be_bytes());
    }

    fn bytes_or_null(&mut self, value: Option<&[u8]>) {
        match value {
            Some(value) => self.bytes(value),
            None => self.null(),
        }
    }

    fn int8(&mut self, value: i64) {
        self.bytes(&value.to_be_bytes());
    }

    fn moment(&mut self, us: i64) {
        self.int8(Moment(us).wire());
    }

    fn end(mut self) -> Vec<u8> {
        self.0.extend_from_slice(&(-1_i16).to_be_bytes());
        self.0
    }
}

/// The rows of `orders`.
pub(super) fn orders(rows: &[OrderRow]) -> Vec<u8> {
    let mut out = Stream::new(rows.len());
    for row in rows {
        out.row(ORDER_COLUMNS);
        out.int8(number(row.order.get()));
        out.int8(number(row.sale.get()));
        out.int8(number(row.user.get()));
        out.bytes(&i16::from(row.state.number()).to_be_bytes());
        out.bytes(row.request.as_bytes());
        out.bytes_or_null(row.payment.as_ref().map(|payment| payment.as_str().as_bytes()));
        out.bytes_or_null(Some(row.data.as_bytes()).filter(|data| !data.is_empty()));
        out.bytes(&i32::from(row.order.partition().get()).to_be_bytes());
        out.int8(number(row.lsn.get()));
        out.moment(micros(row.created_at));
        match micros_or_none(row.expires_at) {
            Some(us) => out.moment(us),
            None => out.null(),
        }
        out.moment(micros(row.updated_at));
    }
    out.end()
}

/// The rows of `order_lines`, and which order of `rows` each belongs to.
pub(super) fn lines(rows: &[OrderRow]) -> (Vec<u8>, Vec<usize>) {
    let mut out = Stream::new(rows.len());
    let mut places = Vec::with_capacity(rows.len());
    for (place, row) in rows.iter().enumerate() {
        for line in &row.lines {
            out.row(LINE_COLUMNS);
            out.int8(number(row.order.get()));
            out.int8(number(line.sku.get()));
            out.int8(number(line.quantity));
            out.int8(number(line.returned));
            places.push(place);
        }
    }
    (out.end(), places)
}
