//! The golden vectors: the crate writes exactly these bytes, and an independent reader finds in
//! them what is meant.
//!
//! `STOCKADE_WRITE_VECTORS=1` writes the hex anew (after a deliberate change of the format); the
//! fields beside it come from the Python reader and are to be read by a person.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command as Process;
use stockade_protocol::command::{Adjust, Line, Lines, Reserve, Return};
use stockade_protocol::entry::{Entry, Event, OrderKey, Placed};
use stockade_protocol::ids::{PartitionId, TimestampMs};
use stockade_protocol::reply::{AdjustReply, OrderReply, OrderView, ReserveReply, SkuView};
use stockade_protocol::routing::partition_of;
use stockade_protocol::text::{ConsumerName, OrderData, PaymentRef};
use stockade_protocol::wire::*;
use stockade_protocol::*;

fn sale() -> SaleId {
    SaleId::new(1).unwrap()
}
fn user() -> UserId {
    UserId::new(5_000_000_000).unwrap()
}
fn order() -> OrderId {
    OrderId::from_parts(PartitionId::new(7), 42).unwrap()
}
fn lines(of: &[(u64, u32)]) -> Lines {
    of.iter().map(|(s, q)| Line { sku: SkuId::new(*s).unwrap(), quantity: *q }).collect()
}
fn request(text: &str) -> RequestId {
    RequestId::parse(text.as_bytes()).unwrap()
}
fn payment() -> PaymentRef {
    PaymentRef::new(b"psp-31337").unwrap()
}

fn reserve(text: &str, of: &[(u64, u32)], data: &[u8], not_after: Option<u64>) -> Request {
    Request::Command(Command::Reserve(Reserve {
        sale: sale(),
        user: user(),
        request: request(text),
        lines: lines(of),
        data: OrderData::new(data).unwrap(),
        not_after: not_after.map(TimestampMs::new),
    }))
}

fn placed() -> Placed {
    Placed {
        order: order(),
        sale: sale(),
        user: user(),
        request: request("cart-1"),
        expires_at: TimestampMs::new(1_800_000_000_000),
        lines: lines(&[(1001, 2)]),
        data: OrderData::new(b"x").unwrap(),
    }
}

fn of_request(request: &Request) -> Vec<u8> {
    let mut out = Vec::new();
    encode_request(request, 9, &mut out);
    out
}

fn of_response(response: &Response, correlation: u64) -> Vec<u8> {
    let mut out = Vec::new();
    encode_response(response, correlation, &mut out);
    out
}

fn requests() -> Vec<(&'static str, Vec<u8>)> {
    let hello = Hello {
        version_min: 1,
        version_max: 1,
        features: 0,
        name: "py".into(),
        token: "secret".into(),
    };
    let (sale, order) = (sale(), order());
    let back = Return {
        order,
        request: request("back"),
        lines: lines(&[(1001, 1)]),
        restock: true,
        right: false,
    };
    let adjust = Adjust { sale, sku: SkuId::new(9).unwrap(), delta: -5, request: request("a1") };
    let ack = Request::Ack {
        consumer: ConsumerName::new(b"writer").unwrap(),
        cursors: vec![(PartitionId::new(3), Lsn::new(8)), (PartitionId::CATALOG, Lsn::new(1))],
    };
    let withdraw = Command::Withdraw { sale, user: user(), request: request("77") };
    let mut crc = of_request(&reserve("5", &[(1001, 1)], b"", None));
    add_crc(&mut crc, 0);
    vec![
        ("hello", of_request(&Request::Hello(hello))),
        ("ping", of_request(&Request::Ping)),
        ("reserve", of_request(&reserve("5", &[(1001, 1)], b"", None))),
        ("reserve_crc", crc),
        ("reserve_basket", of_request(&reserve("5f-a", &[(7, 2), (8, 0)], b"gift", Some(99)))),
        ("confirm", of_request(&Request::Command(Command::Confirm { order, payment: payment() }))),
        ("withdraw", of_request(&Request::Command(withdraw))),
        ("return", of_request(&Request::Command(Command::Return(back)))),
        ("adjust", of_request(&Request::Command(Command::Adjust(adjust)))),
        ("ack", of_request(&ack)),
    ]
}

fn responses() -> Vec<(&'static str, Vec<u8>)> {
    let welcome = Welcome {
        version: 1,
        features: 0,
        body_bytes_max: 4 << 20,
        in_flight_max: 1024,
        durability: 0,
        epoch: 3,
        server_time: TimestampMs::new(1_790_000_000_000),
        partition_count: 64,
        shards: vec![ShardPort { port: 7001 }, ShardPort { port: 7002 }],
        server: "stockade".into(),
    };
    let held = ReserveReply {
        outcome: Outcome::Held,
        again: false,
        order: Some(order()),
        expires_at: TimestampMs::new(1_800_000_000_000),
        retry_after_ms: 0,
        left: 1,
    };
    let view = OrderView {
        order: Some(order()),
        state: OrderState::Confirmed,
        sale: Some(sale()),
        user: Some(user()),
        expires_at: TimestampMs::new(5),
        payment: Some(payment()),
        lines: lines(&[(7, 2)]),
        returned: lines(&[(7, 1)]),
    };
    let sku = SkuView {
        sku: SkuId::new(7).unwrap(),
        total: 10,
        free: 4,
        held: 1,
        confirmed: 5,
        state: SkuState::Live,
    };
    let late =
        OrderReply { outcome: Outcome::TooLate, order: Some(order()), state: OrderState::Expired };
    let adjusted = AdjustReply { outcome: Outcome::Adjusted, applied: -4, total: 6, free: 0 };
    let key = OrderKey { order: order(), sale: Some(sale()), user: Some(user()) };
    let (partition, at) = (PartitionId::new(7), TimestampMs::new(1_790_000_000_000));
    let mut bytes = Vec::new();
    let event = Event::Held(placed());
    Entry { partition, lsn: Lsn::new(1), at, event }.encode(&mut bytes);
    let event = Event::Confirmed { key, payment: payment() };
    Entry { partition, lsn: Lsn::new(2), at, event }.encode(&mut bytes);
    let (first, last) = (Lsn::new(1), Lsn::new(2));
    let rejected = ReserveReply::rejected(Outcome::SoldOut, -1);
    let error = Response::Error { code: ErrorCode::Argument, message: "no".into() };
    vec![
        ("welcome", of_response(&Response::Welcome(welcome), 1)),
        ("held", of_response(&Response::Reply(Reply::Reserve(held)), 9)),
        ("sold_out", of_response(&Response::Reply(Reply::Reserve(rejected)), 9)),
        ("too_late", of_response(&Response::Reply(Reply::Order(late)), 9)),
        ("order", of_response(&Response::Reply(Reply::OrderView(Box::new(view))), 9)),
        ("sku", of_response(&Response::Reply(Reply::Sku(sku)), 9)),
        ("adjusted", of_response(&Response::Reply(Reply::Adjust(adjusted)), 9)),
        ("entries", of_response(&Response::Entries { partition, first, last, bytes }, 0)),
        ("gap", of_response(&Response::Gap { partition, from: first, to: last }, 0)),
        ("error", of_response(&error, 9)),
    ]
}

/// Frames that are wrong, each in one way.
fn wrong() -> Vec<(&'static str, Vec<u8>)> {
    let good = of_request(&reserve("5", &[(1001, 1)], b"", None));
    let with = |at: usize, bytes: &[u8]| {
        let mut changed = good.clone();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        changed
    };
    let mut short = good.clone();
    short.truncate(16 + 24);
    short[0] = 24;
    let mut crc = good.clone();
    add_crc(&mut crc, 0);
    let last = crc.len() - 8;
    crc[last] ^= 1;
    vec![
        ("wrong: half a header", good[..10].to_vec()),
        ("wrong: half a body", good[..40].to_vec()),
        ("wrong: length above the limit", with(0, &[0, 0, 0, 1])),
        ("wrong: length no multiple of 8", with(0, &[65])),
        ("wrong: unknown flag", with(7, &[2])),
        ("wrong: checksum", crc),
        ("wrong: unknown kind", with(4, &[0x77, 0x77])),
        ("wrong: body ends too early", short),
        ("wrong: sale 0", with(16, &[0; 8])),
        ("wrong: user 2^63", with(24, &[0, 0, 0, 0, 0, 0, 0, 0x80])),
        ("wrong: request id 0", with(40, &[0; 8])),
        ("wrong: request id 2^62", with(40, &[0, 0, 0, 0, 0, 0, 0, 0x40])),
        ("wrong: 65 lines", with(50, &[65, 0])),
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn python(argument: &[&str]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors/read_vectors.py");
    let output = Process::new("python3").arg(script).args(argument).output();
    let output = output.expect("python3 is needed to read the vectors independently");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn the_crate_writes_the_golden_bytes_and_python_reads_them() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors/frames.txt");
    let all: Vec<_> = [requests(), responses(), wrong()].concat();
    if std::env::var_os("STOCKADE_WRITE_VECTORS").is_some() {
        let mut text = String::new();
        for (name, bytes) in &all {
            writeln!(text, "{name} | {} | null", hex(bytes)).unwrap();
        }
        std::fs::write(&path, text).unwrap();
        let shown = python(&["print"]);
        let shown = shown.trim_end().strip_suffix("vectors read").unwrap().trim_end();
        let head = "# name | frame | what it says, or in one word what is wrong (see SPEC.md)";
        std::fs::write(&path, format!("{head}\n{shown}\n")).unwrap();
    }
    let text = std::fs::read_to_string(&path).unwrap();
    let golden: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(golden.len(), all.len());
    for ((name, bytes), line) in all.iter().zip(golden) {
        let mut parts = line.split(" | ");
        assert_eq!((parts.next(), parts.next()), (Some(*name), Some(hex(bytes).as_str())));
    }
    assert!(python(&[]).contains("vectors read"));
}

/// What is wrong is refused in the way that the vector says.
#[test]
fn wrong_frames_are_refused_as_the_vectors_say() {
    let text = include_str!("../vectors/frames.txt");
    for (name, bytes) in wrong() {
        let line = text.lines().find(|line| line.starts_with(&format!("{name} |"))).unwrap();
        let expected = line.rsplit(" | ").next().unwrap().trim_matches('"');
        let found = match split(&bytes, BODY_BYTES_MAX) {
            Ok(None) => "wait",
            Err(FrameError::TooLarge { .. }) => "too_large",
            Err(FrameError::Header(_)) => "header",
            Ok(Some((header, body, _))) => match decode_request(&header, body) {
                Ok(_) => "taken",
                Err(RequestError::Rejected(_)) => "out_of_range",
                Err(RequestError::Error { code: ErrorCode::UnknownKind, .. }) => "unknown_kind",
                Err(RequestError::Error { .. }) => "protocol",
            },
        };
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn routing_and_request_ids_follow_the_vectors() {
    for line in include_str!("../vectors/routing.txt").lines() {
        let parts: Vec<&str> = line.split('|').map(str::trim).collect();
        match parts.as_slice() {
            ["partition", user, count, expected] => {
                let user = UserId::new(user.parse().unwrap()).unwrap();
                let found = partition_of(user, count.parse().unwrap());
                assert_eq!(found.get().to_string(), *expected, "{line}");
            }
            ["fold", text, expected] => {
                assert_eq!(request(text).key().get().to_string(), *expected, "{line}");
            }
            _ => assert!(line.starts_with('#') || line.is_empty(), "{line}"),
        }
    }
}
