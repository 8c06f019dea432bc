//! Writing RESP values, and the answers of the engine in their documented shapes.

use crate::session::FeedRun;
use stockade_protocol::command::Lines;
use stockade_protocol::json;
use stockade_protocol::reply::{OrderView, Reply, ReserveReply, UserView};
use stockade_protocol::text::PaymentRef;
use stockade_protocol::{Entry, OrderId, SaleId, UserId};

/// Appends values in the protocol version of the connection.
#[derive(Debug)]
pub struct Writer<'a> {
    /// Where they go.
    pub out: &'a mut Vec<u8>,
    /// RESP3.
    pub three: bool,
}

impl Writer<'_> {
    fn head(&mut self, kind: u8, number: i64) {
        self.out.push(kind);
        self.out.extend_from_slice(number.to_string().as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }

    /// `:number`
    pub fn integer(&mut self, number: i64) {
        self.head(b':', number);
    }

    /// A count or time as an integer; those of the engine are below 2^63.
    pub fn count(&mut self, number: u64) {
        self.integer(i64::try_from(number).unwrap_or(i64::MAX));
    }

    /// `$text`
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.head(b'$', bytes.len() as i64);
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// `$text`
    pub fn text(&mut self, text: &str) {
        self.bulk(text.as_bytes());
    }

    /// `$number`, for ids that pass 2^53.
    pub fn id(&mut self, id: u64) {
        self.text(&id.to_string());
    }

    /// `+text`
    pub fn simple(&mut self, text: &str) {
        self.out.push(b'+');
        self.out.extend_from_slice(text.as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }

    /// `-text`; line ends in the text become spaces.
    pub fn error(&mut self, text: &str) {
        self.out.push(b'-');
        self.out.extend(text.bytes().map(|b| if b == b'\r' || b == b'\n' { b' ' } else { b }));
        self.out.extend_from_slice(b"\r\n");
    }

    /// `*count`, the items follow.
    pub fn array(&mut self, count: usize) {
        self.head(b'*', count as i64);
    }

    /// A map of `count` pairs; flat in RESP2.
    pub fn map(&mut self, count: usize) {
        if self.three { self.head(b'%', count as i64) } else { self.array(2 * count) }
    }

    /// Nothing.
    pub fn null(&mut self) {
        self.out.extend_from_slice(if self.three { b"_\r\n" } else { b"$-1\r\n" });
    }

    fn order(&mut self, order: Option<OrderId>) {
        self.id(order.map_or(0, OrderId::get));
    }

    fn lines(&mut self, lines: &Lines) {
        self.array(2 * lines.len());
        for line in lines {
            self.id(line.sku.get());
            self.count(u64::from(line.quantity));
        }
    }

    /// An answer of the engine.
    pub fn reply(&mut self, reply: &Reply) {
        match reply {
            Reply::Reserve(reply) => self.reserve(reply),
            Reply::Order(reply) => {
                self.array(3);
                self.text(reply.outcome.word());
                self.order(reply.order);
                self.text(reply.state.word());
            }
            Reply::OrderView(view) => self.view(view),
            Reply::User(view) => self.user(view),
            Reply::Sku(view) => {
                self.array(5);
                for number in [view.total, view.free, view.held, view.confirmed] {
                    self.count(number);
                }
                self.text(view.state.word());
            }
            Reply::Sale(None) => self.null(),
            Reply::Sale(Some(view)) => self.text(&json::sale_view_to_json(view)),
            Reply::SalePut(reply) => {
                self.array(3);
                self.text(reply.outcome.word());
                self.count(reply.sale.map_or(0, SaleId::get));
                self.text(&reply.why);
            }
            Reply::SaleSwitch(reply) => {
                self.array(2);
                self.text(reply.outcome.word());
                self.count(reply.sale.get());
            }
            Reply::Adjust(reply) => {
                self.array(4);
                self.text(reply.outcome.word());
                self.integer(reply.applied);
                self.count(reply.total);
                self.count(reply.free);
            }
            Reply::Busy { retry_after_ms } => {
                self.error(&format!("BUSY try again in {retry_after_ms} ms"));
            }
            Reply::Orders(_) | Reply::Sales(_) => self.error("ERR no such answer over RESP"),
        }
    }

    fn reserve(&mut self, reply: &ReserveReply) {
        self.array(5);
        self.text(reply.outcome.word());
        self.order(reply.order);
        self.count(reply.expires_at.get());
        self.integer(reply.retry_after_ms);
        self.integer(reply.left);
    }

    fn view(&mut self, view: &OrderView) {
        self.array(8);
        self.text(view.state.word());
        self.order(view.order);
        self.count(view.sale.map_or(0, SaleId::get));
        self.id(view.user.map_or(0, UserId::get));
        self.count(view.expires_at.get());
        self.text(view.payment.as_ref().map_or("", PaymentRef::as_str));
        self.lines(&view.lines);
        self.lines(&view.returned);
    }

    fn user(&mut self, view: &UserView) {
        self.array(3);
        self.count(view.orders.len() as u64);
        self.array(3 * view.skus.len());
        for sku in &view.skus {
            self.id(sku.sku.get());
            self.count(sku.units);
            self.integer(sku.left);
        }
        self.array(view.orders.len());
        for order in &view.orders {
            self.id(order.get());
        }
    }

    /// Events of the feed as JSON texts.
    pub fn feed(&mut self, runs: &[FeedRun]) {
        let mut events = Vec::new();
        for run in runs {
            match run {
                FeedRun::Gap { partition, from, to } => {
                    events.push(json::gap_to_json(*partition, *from, *to));
                }
                FeedRun::Entries { bytes, .. } => {
                    let mut rest = bytes.as_slice();
                    while let Ok((entry, taken)) = Entry::decode(rest) {
                        events.push(json::entry_to_json(&entry));
                        rest = &rest[taken..];
                    }
                }
            }
        }
        self.array(events.len());
        for event in &events {
            self.text(event);
        }
    }
}
