//! `STOCK.*`: from arguments to commands. Malformed arguments of commands with outcomes are
//! answered `bad_request`; of reads and feed commands they are RESP errors that name the argument.

use crate::session::FeedRequest;
use stockade_protocol::command::{Adjust, Line, Lines, Reserve, Return};
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::json::sale_patch;
use stockade_protocol::reply::{
    AdjustReply, OrderReply, RETRY_NEVER, Reply, ReserveReply, SalePutReply,
};
use stockade_protocol::text::{ConsumerName, OrderData, PaymentRef, Reason};
use stockade_protocol::{
    Command, Lsn, OrderId, OrderState, Outcome, PartitionId, RequestId, SaleId, SkuId, UserId,
};

/// Entries of one `STOCK.FEED`.
const FEED_COUNT_MAX: u64 = 10_000;
/// Longest wait of one `STOCK.FEED`, ms.
const FEED_BLOCK_MS_MAX: u64 = 600_000;

/// What a command turned into.
#[derive(Debug, PartialEq)]
pub enum Parsed {
    /// For the shards.
    Command(Command),
    /// For the feed thread.
    Feed(FeedRequest),
    /// Answered at once.
    Reply(Reply),
    /// A RESP error, with its code.
    Error(String),
    /// Not a command of the engine.
    Unknown,
}

/// A decimal without sign, spaces and leading zeros.
pub fn decimal(bytes: &[u8]) -> Option<u64> {
    let plain = !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit);
    if !plain || (bytes.len() > 1 && bytes[0] == b'0') {
        return None;
    }
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

fn signed(bytes: &[u8]) -> Option<i64> {
    match bytes.strip_prefix(b"-") {
        Some(b"0") => None,
        Some(digits) => 0i64.checked_sub_unsigned(decimal(digits)?),
        None => i64::try_from(decimal(bytes)?).ok(),
    }
}

fn sale(bytes: &[u8]) -> Option<SaleId> {
    SaleId::new(decimal(bytes)?)
}

fn sku(bytes: &[u8]) -> Option<SkuId> {
    SkuId::new(decimal(bytes)?)
}

fn user(bytes: &[u8]) -> Option<UserId> {
    UserId::new(decimal(bytes)?)
}

fn order(bytes: &[u8]) -> Option<OrderId> {
    let order = OrderId::new(decimal(bytes)?)?;
    Some(order).filter(|order| order.partition().get() < PartitionId::COUNT_MAX)
}

fn request(bytes: &[u8]) -> Option<RequestId> {
    RequestId::parse(bytes).ok()
}

fn yes_or_no(bytes: &[u8]) -> Option<bool> {
    if bytes.eq_ignore_ascii_case(b"yes") {
        Some(true)
    } else {
        bytes.eq_ignore_ascii_case(b"no").then_some(false)
    }
}

fn pairs(arguments: &[&[u8]]) -> Option<Lines> {
    let line = |pair: &[&[u8]]| {
        let quantity = u32::try_from(decimal(pair[1])?).ok()?;
        Some(Line { sku: sku(pair[0])?, quantity })
    };
    arguments.chunks_exact(2).map(line).collect()
}

/// Reads a command of the engine; `name` is in upper case, `a` the arguments behind it.
pub fn parse(name: &str, a: &[&[u8]]) -> Parsed {
    let (least, most) = match name {
        "STOCK.RESERVE" => (5, usize::MAX),
        "STOCK.CONFIRM" | "STOCK.EXTEND" | "STOCK.SKU" | "STOCK.USER" => (2, 2),
        "STOCK.CANCEL" => (1, 2),
        "STOCK.RETURN" => (6, usize::MAX),
        "STOCK.WITHDRAW" | "STOCK.STATUS" | "STOCK.FEED.ACK" => (3, 3),
        "STOCK.ORDER" | "STOCK.SALE" | "STOCK.SALE.PUT" | "STOCK.SALE.PAUSE"
        | "STOCK.SALE.RESUME" | "STOCK.SALE.CLOSE" => (1, 1),
        "STOCK.ADJUST" => (4, 4),
        "STOCK.FEED" => (3, 5),
        _ => return Parsed::Unknown,
    };
    if a.len() < least || a.len() > most {
        return wrong_number(name);
    }
    match name {
        "STOCK.RESERVE" => reserve(name, a),
        "STOCK.RETURN" => return_units(name, a),
        "STOCK.CONFIRM" | "STOCK.CANCEL" | "STOCK.EXTEND" | "STOCK.WITHDRAW" => {
            verb(name, a).map_or_else(bad_order, Parsed::Command)
        }
        "STOCK.SALE.PUT" => sale_put(a[0]),
        "STOCK.ADJUST" => adjust(a).map_or_else(bad_adjust, Parsed::Command),
        "STOCK.FEED" => feed(name, a),
        _ => read(name, a),
    }
}

fn wrong_number(name: &str) -> Parsed {
    let name = name.to_lowercase();
    Parsed::Error(format!("ERR wrong number of arguments for '{name}' command"))
}

fn argument(what: &str) -> Parsed {
    Parsed::Error(format!("ERR {what} is out of range or malformed"))
}

fn bad_reserve() -> Parsed {
    let reply = ReserveReply::rejected(Outcome::BadRequest, RETRY_NEVER);
    Parsed::Reply(Reply::Reserve(reply))
}

fn bad_order() -> Parsed {
    let (outcome, state) = (Outcome::BadRequest, OrderState::Unknown);
    Parsed::Reply(Reply::Order(OrderReply { outcome, order: None, state }))
}

fn bad_adjust() -> Parsed {
    let outcome = Outcome::BadRequest;
    Parsed::Reply(Reply::Adjust(AdjustReply { outcome, applied: 0, total: 0, free: 0 }))
}

fn reserve(name: &str, a: &[&[u8]]) -> Parsed {
    let is_option =
        |word: &&[u8]| word.eq_ignore_ascii_case(b"DATA") || word.eq_ignore_ascii_case(b"NOTAFTER");
    // Options stand behind the lines; a SKU is a number and never one of their names.
    let lines_end = a[3..].iter().step_by(2).position(is_option);
    let lines_end = lines_end.map_or(a.len(), |pairs| 3 + 2 * pairs);
    let whole = (lines_end - 3).is_multiple_of(2) && (a.len() - lines_end).is_multiple_of(2);
    if !whole || lines_end == 3 {
        return wrong_number(name);
    }
    let (mut data, mut not_after) = (None, None);
    for option in a[lines_end..].chunks_exact(2) {
        let known = if option[0].eq_ignore_ascii_case(b"DATA") && data.is_none() {
            data = OrderData::new(option[1]);
            data.is_some()
        } else if option[0].eq_ignore_ascii_case(b"NOTAFTER") && not_after.is_none() {
            not_after = decimal(option[1]).filter(|ms| *ms > 0).map(TimestampMs::new);
            not_after.is_some()
        } else {
            false
        };
        if !known {
            return bad_reserve();
        }
    }
    let parts = (sale(a[0]), user(a[1]), request(a[2]), pairs(&a[3..lines_end]));
    let (Some(sale), Some(user), Some(request), Some(lines)) = parts else { return bad_reserve() };
    let data = data.unwrap_or_default();
    Parsed::Command(Command::Reserve(Reserve { sale, user, request, lines, data, not_after }))
}

fn verb(name: &str, a: &[&[u8]]) -> Option<Command> {
    Some(match name {
        "STOCK.CONFIRM" => {
            Command::Confirm { order: order(a[0])?, payment: PaymentRef::new(a[1]).ok()? }
        }
        "STOCK.CANCEL" => {
            let reason = Reason::new(a.get(1).copied().unwrap_or_default()).ok()?;
            Command::Cancel { order: order(a[0])?, reason }
        }
        "STOCK.EXTEND" => {
            Command::Extend { order: order(a[0])?, until: TimestampMs::new(decimal(a[1])?) }
        }
        _ => Command::Withdraw { sale: sale(a[0])?, user: user(a[1])?, request: request(a[2])? },
    })
}

fn return_units(name: &str, a: &[&[u8]]) -> Parsed {
    if !a.len().is_multiple_of(2) {
        return wrong_number(name);
    }
    let words = a[2].eq_ignore_ascii_case(b"RESTOCK") && a[4].eq_ignore_ascii_case(b"RIGHT");
    let read = || {
        Some(Return {
            order: order(a[0])?,
            request: request(a[1])?,
            restock: yes_or_no(a[3]).filter(|_| words)?,
            right: yes_or_no(a[5])?,
            lines: pairs(&a[6..])?,
        })
    };
    read().map_or_else(bad_order, |back| Parsed::Command(Command::Return(back)))
}

fn sale_put(bytes: &[u8]) -> Parsed {
    let text = std::str::from_utf8(bytes).map_err(|_| "not UTF-8".to_owned());
    match text.and_then(sale_patch) {
        Ok(patch) => Parsed::Command(Command::SalePut(Box::new(patch))),
        Err(why) => {
            // The sale is named where it can be read.
            let value: Option<serde_json::Value> = serde_json::from_slice(bytes).ok();
            let sale = value.and_then(|value| SaleId::new(value.get("sale")?.as_u64()?));
            let outcome = Outcome::BadRequest;
            Parsed::Reply(Reply::SalePut(SalePutReply { outcome, sale, why }))
        }
    }
}

fn adjust(a: &[&[u8]]) -> Option<Command> {
    Some(Command::Adjust(Adjust {
        sale: sale(a[0])?,
        sku: sku(a[1])?,
        delta: signed(a[2])?,
        request: request(a[3])?,
    }))
}

/// Reads, switches and acknowledgements: each argument that is malformed is named.
fn read(name: &str, a: &[&[u8]]) -> Parsed {
    macro_rules! get {
        ($read:ident, $at:literal, $what:literal) => {
            match $read(a[$at]) {
                Some(value) => value,
                None => return argument($what),
            }
        };
    }
    Parsed::Command(match name {
        "STOCK.ORDER" => Command::OrderGet(get!(order, 0, "order")),
        "STOCK.STATUS" => Command::Status {
            sale: get!(sale, 0, "sale"),
            user: get!(user, 1, "user"),
            request: get!(request, 2, "request id"),
        },
        "STOCK.SKU" => Command::SkuGet { sale: get!(sale, 0, "sale"), sku: get!(sku, 1, "sku") },
        "STOCK.USER" => {
            Command::UserGet { sale: get!(sale, 0, "sale"), user: get!(user, 1, "user") }
        }
        "STOCK.SALE" => Command::SaleGet(get!(sale, 0, "sale")),
        "STOCK.SALE.PAUSE" => Command::SalePause(get!(sale, 0, "sale")),
        "STOCK.SALE.RESUME" => Command::SaleResume(get!(sale, 0, "sale")),
        "STOCK.SALE.CLOSE" => Command::SaleClose(get!(sale, 0, "sale")),
        _ => {
            let Ok(consumer) = ConsumerName::new(a[0]) else { return argument("consumer") };
            let partition = decimal(a[1]).and_then(|number| u16::try_from(number).ok());
            let Some(partition) = partition.map(PartitionId::new) else {
                return argument("partition");
            };
            let Some(lsn) = decimal(a[2]).map(Lsn::new) else { return argument("lsn") };
            return Parsed::Feed(FeedRequest::Ack { consumer, cursors: vec![(partition, lsn)] });
        }
    })
}

fn feed(name: &str, a: &[&[u8]]) -> Parsed {
    if a.len() == 4 {
        return wrong_number(name);
    }
    let Ok(consumer) = ConsumerName::new(a[0]) else { return argument("consumer") };
    let count = decimal(a[2]).filter(|count| (1..=FEED_COUNT_MAX).contains(count));
    let Some(count) = count.filter(|_| a[1].eq_ignore_ascii_case(b"COUNT")) else {
        return argument("COUNT");
    };
    let block_ms = match a.get(3) {
        None => Some(0),
        Some(word) => decimal(a[4]).filter(|_| word.eq_ignore_ascii_case(b"BLOCK")),
    };
    let Some(block_ms) = block_ms.filter(|ms| *ms <= FEED_BLOCK_MS_MAX) else {
        return argument("BLOCK");
    };
    Parsed::Feed(FeedRequest::Pull { consumer, count: count as u32, block_ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `words` of a command, and the beginning of what it must turn into (as Debug text).
    #[test]
    fn arguments_are_read_strictly() {
        let table = [
            ("STOCK.RESERVE 1 7 r 1001 1", "Command(Reserve"),
            ("STOCK.RESERVE 1 7 r 1001 1 1002 2 DATA x notafter 5", "Command(Reserve"),
            ("STOCK.RESERVE 1 7 r 1001 1 NOTAFTER 5 DATA x", "Command(Reserve"),
            ("STOCK.RESERVE 1 7 r 1001", "Error(\"ERR wrong number"),
            ("STOCK.RESERVE 1 7 r 1001 1 1002", "Error(\"ERR wrong number"),
            ("STOCK.RESERVE 1 7 r 1001 1 DATA", "Error(\"ERR wrong number"),
            ("STOCK.RESERVE 1 7 r 1001 1 DATA x DATA y", "Reply(Reserve"),
            ("STOCK.RESERVE 01 7 r 1001 1", "Reply(Reserve"),
            ("STOCK.RESERVE 1 -7 r 1001 1", "Reply(Reserve"),
            ("STOCK.RESERVE 1 7 0 1001 1", "Reply(Reserve"),
            ("STOCK.RESERVE 1 7 r 1001 4294967296", "Reply(Reserve"),
            ("STOCK.CONFIRM 1", "Error(\"ERR wrong number"),
            ("STOCK.CONFIRM x p", "Reply(Order"),
            ("STOCK.RETURN 1 t RESTOCK yes RIGHT no", "Command(Return"),
            ("STOCK.RETURN 1 t RESTOCK yes RIGHT maybe", "Reply(Order"),
            ("STOCK.RETURN 1 t RIGHT yes RESTOCK no", "Reply(Order"),
            ("STOCK.RETURN 1 t RESTOCK yes RIGHT no 5", "Error(\"ERR wrong number"),
            ("STOCK.ADJUST 1 1 -5 a", "Command(Adjust"),
            ("STOCK.ADJUST 1 1 +5 a", "Reply(Adjust"),
            ("STOCK.ADJUST 1 1 -0 a", "Reply(Adjust"),
            ("STOCK.SKU x 1", "Error(\"ERR sale"),
            ("STOCK.FEED c COUNT 10", "Feed(Pull"),
            ("STOCK.FEED c COUNT 10 BLOCK 5", "Feed(Pull"),
            ("STOCK.FEED c COUNT 10001", "Error(\"ERR COUNT"),
            ("STOCK.FEED c LIMIT 10", "Error(\"ERR COUNT"),
            ("STOCK.FEED c COUNT 10 BLOCK", "Error(\"ERR wrong number"),
            ("STOCK.FEED.ACK c 65535 9", "Feed(Ack"),
            ("STOCK.FEED.ACK c 65536 9", "Error(\"ERR partition"),
            ("STOCK.NOTHING", "Unknown"),
        ];
        for (text, expected) in table {
            let words: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
            let name = std::str::from_utf8(words[0]).unwrap();
            let shown = format!("{:?}", parse(name, &words[1..]));
            assert!(shown.starts_with(expected), "{text}: {shown}");
        }
    }
}
