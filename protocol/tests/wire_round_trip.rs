//! Every request and response kind goes out and comes back equal, and no truncation or garbage does
//! harm.

#![allow(clippy::unwrap_used, reason = "tests")]

use stockade_protocol::command::{Adjust, Line, Lines, OrderList, Reserve, Return};
use stockade_protocol::ids::{PartitionId, TimestampMs};
use stockade_protocol::reply::{
    AdjustReply, OrderReply, OrderView, ReserveReply, SalePutReply, SaleSummary, SaleSwitchReply,
    SaleView, SkuView, UserSku, UserView,
};
use stockade_protocol::sale::{OpensAt, SkuPatch};
use stockade_protocol::text::{ConsumerName, OrderData, PaymentRef, Reason};
use stockade_protocol::wire::*;
use stockade_protocol::*;

fn sale(id: u64) -> SaleId {
    SaleId::new(id).unwrap()
}
fn sku(id: u64) -> SkuId {
    SkuId::new(id).unwrap()
}
fn user(id: u64) -> UserId {
    UserId::new(id).unwrap()
}
fn order(number: u64) -> OrderId {
    OrderId::from_parts(PartitionId::new(3), number).unwrap()
}
fn request(text: &str) -> RequestId {
    RequestId::parse(text.as_bytes()).unwrap()
}
fn lines(of: &[(u64, u32)]) -> Lines {
    of.iter().map(|(id, quantity)| Line { sku: sku(*id), quantity: *quantity }).collect()
}
fn payment() -> PaymentRef {
    PaymentRef::new(b"psp-1").unwrap()
}
fn consumer() -> ConsumerName {
    ConsumerName::new(b"writer-1").unwrap()
}

fn reserve(text: &str, of: &[(u64, u32)], data: &[u8]) -> Reserve {
    Reserve {
        sale: sale(1),
        user: user(7),
        request: request(text),
        lines: lines(of),
        data: OrderData::new(data).unwrap(),
        not_after: Some(TimestampMs::new(5)),
    }
}

fn commands() -> Vec<Command> {
    let (sale, user) = (sale(1), user(7));
    let mut patch = SalePatch::new(sale);
    let mut full = patch.clone();
    full.name = Some("n".into());
    full.opens_at = Some(OpensAt::Now);
    full.closes_at = Some(None);
    full.hold_ms = Some(0);
    full.revive = Some(false);
    full.burst = Some(9);
    full.skus.push(SkuPatch {
        sku: sku(9),
        stock: Some(0),
        limit_per_user: None,
        max_per_order: Some(2),
        labels: Some(vec![("spec".into(), "500g".into())]),
    });
    patch.opens_at = Some(OpensAt::At(TimestampMs::new(77)));
    patch.closes_at = Some(Some(TimestampMs::new(99)));
    let back = Return {
        order: order(1),
        request: request("t"),
        lines: lines(&[]),
        restock: true,
        right: false,
    };
    let list =
        OrderList { sale, user: Some(user), state: Some(OrderState::Held), after: 4, count: 10 };
    let adjust = Adjust { sale, sku: sku(1), delta: -4, request: request("a") };
    vec![
        Command::Reserve(reserve("5", &[(1, 1)], b"")),
        Command::Reserve(reserve("uuid", &[(1, 0), (2, 3)], b"data")),
        Command::Confirm { order: order(1), payment: payment() },
        Command::Cancel { order: order(1), reason: Reason::none() },
        Command::Withdraw { sale, user, request: request("w") },
        Command::Extend { order: order(1), until: TimestampMs::new(1) },
        Command::Return(back),
        Command::OrderGet(order(2)),
        Command::Status { sale, user, request: request("8") },
        Command::UserGet { sale, user },
        Command::OrderList(list.clone()),
        Command::OrderList(OrderList { user: None, state: None, ..list }),
        Command::SkuGet { sale, sku: sku(1) },
        Command::SaleGet(sale),
        Command::SaleList,
        Command::SalePut(Box::new(patch)),
        Command::SalePut(Box::new(full)),
        Command::SalePause(sale),
        Command::SaleResume(sale),
        Command::SaleClose(sale),
        Command::Adjust(adjust),
    ]
}

fn requests() -> Vec<Request> {
    let mut out: Vec<Request> = commands().into_iter().map(Request::Command).collect();
    out.extend([
        Request::Hello(Hello {
            version_min: 1,
            version_max: 2,
            features: 1,
            name: "t".into(),
            token: "x".into(),
        }),
        Request::Ping,
        Request::ReserveMany(vec![Some(reserve("5", &[(1, 1)], b"")), None]),
        Request::Subscribe(Subscribe {
            consumer: None,
            partitions: vec![],
            from: FeedFrom::Newest,
            credit_bytes: 9,
        }),
        Request::Subscribe(Subscribe {
            consumer: Some(consumer()),
            partitions: vec![PartitionId::CATALOG],
            from: FeedFrom::Lsns(vec![(PartitionId::new(1), Lsn::new(4))]),
            credit_bytes: 9,
        }),
        Request::Credit { bytes: 7 },
        Request::Ack { consumer: consumer(), cursors: vec![(PartitionId::new(1), Lsn::new(4))] },
        Request::Unsubscribe,
        Request::Consumers,
        Request::ConsumerDrop(consumer()),
    ]);
    out
}

fn definition() -> SaleDefinition {
    SaleDefinition {
        sale: sale(1),
        name: "n".into(),
        opens_at: TimestampMs::new(1),
        closes_at: None,
        hold_ms: 2,
        extend_max_ms: 3,
        grace_ms: 4,
        limit_per_user: 5,
        rate_per_s: 6,
        burst: 7,
        user_rate_per_s: 8,
        revive: true,
        skus: vec![SkuDefinition {
            sku: sku(1),
            stock: 1,
            limit_per_user: 2,
            max_per_order: 3,
            labels: vec![("a".into(), "b".into())],
        }],
    }
}

fn replies() -> Vec<Reply> {
    let reserve = ReserveReply {
        outcome: Outcome::Held,
        again: true,
        order: Some(order(1)),
        expires_at: TimestampMs::new(9),
        retry_after_ms: 0,
        left: -1,
    };
    let view = OrderView {
        order: Some(order(1)),
        state: OrderState::Confirmed,
        sale: Some(sale(1)),
        user: Some(user(7)),
        expires_at: TimestampMs::new(1),
        payment: Some(payment()),
        lines: lines(&[(1, 2)]),
        returned: lines(&[(1, 1)]),
    };
    let figures =
        SkuView { sku: sku(1), total: 9, free: 1, held: 3, confirmed: 5, state: SkuState::Live };
    let whole = SaleView {
        definition: definition(),
        state: SaleState::Live,
        server_time: TimestampMs::new(1),
        skus: vec![figures],
    };
    let summary = SaleSummary {
        sale: sale(1),
        name: "n".into(),
        state: SaleState::Armed,
        opens_at: TimestampMs::new(1),
        closes_at: Some(TimestampMs::new(2)),
        sku_count: 3,
    };
    vec![
        Reply::Reserve(reserve),
        Reply::Reserve(ReserveReply::rejected(Outcome::SoldOut, -1)),
        Reply::Order(OrderReply {
            outcome: Outcome::TooLate,
            order: Some(order(1)),
            state: OrderState::Expired,
        }),
        Reply::OrderView(Box::new(view.clone())),
        Reply::OrderView(Box::new(OrderView::without_order(OrderState::Unknown))),
        Reply::User(UserView {
            skus: vec![UserSku { sku: sku(1), units: 2, left: -1 }],
            orders: vec![order(1)],
        }),
        Reply::Orders(vec![view]),
        Reply::Sku(figures),
        Reply::Sale(None),
        Reply::Sale(Some(Box::new(whole))),
        Reply::Sales(vec![summary]),
        Reply::SalePut(SalePutReply { outcome: Outcome::BadRequest, sale: None, why: "no".into() }),
        Reply::SaleSwitch(SaleSwitchReply { outcome: Outcome::Paused, sale: sale(1) }),
        Reply::Adjust(AdjustReply { outcome: Outcome::Adjusted, applied: -3, total: 4, free: 1 }),
        Reply::Busy { retry_after_ms: 5 },
    ]
}

fn responses() -> Vec<Response> {
    let mut out: Vec<Response> = replies().into_iter().map(Response::Reply).collect();
    let many = vec![ReserveReply::rejected(Outcome::Busy, 3); 2];
    out.extend([
        Response::Welcome(Welcome {
            version: 1,
            features: 0,
            body_bytes_max: 4,
            in_flight_max: 5,
            durability: 1,
            epoch: 6,
            server_time: TimestampMs::new(1),
            partition_count: 64,
            shards: vec![ShardPort { port: 1 }, ShardPort { port: 2 }],
            server: "s".into(),
        }),
        Response::Pong { server_time: TimestampMs::new(1) },
        Response::ReserveMany(many),
        Response::Done,
        Response::Consumers(vec![ConsumerInfo {
            name: consumer(),
            cursors: vec![(PartitionId::CATALOG, Lsn::new(1), Lsn::new(2))],
        }]),
        Response::Error { code: ErrorCode::TooMany, message: "m".into() },
        Response::Entries {
            partition: PartitionId::new(1),
            first: Lsn::new(1),
            last: Lsn::new(2),
            bytes: vec![1, 2, 3],
        },
        Response::Gap { partition: PartitionId::new(1), from: Lsn::new(1), to: Lsn::new(2) },
        Response::GoAway { reconnect_after_ms: 9 },
    ]);
    out
}

#[test]
fn requests_come_back_equal_with_and_without_checksum() {
    for request in requests() {
        for crc in [false, true] {
            let mut bytes = Vec::new();
            encode_request(&request, 42, &mut bytes);
            if crc {
                add_crc(&mut bytes, 0);
            }
            let (header, body, taken) = split(&bytes, BODY_BYTES_MAX).unwrap().unwrap();
            assert_eq!((taken, header.correlation), (bytes.len(), 42));
            assert_eq!(decode_request(&header, body), Ok(request.clone()));
        }
    }
}

#[test]
fn responses_come_back_equal() {
    for response in responses() {
        let mut bytes = Vec::new();
        encode_response(&response, 43, &mut bytes);
        let (header, body, taken) = split(&bytes, BODY_BYTES_MAX).unwrap().unwrap();
        assert_eq!((taken, header.correlation), (bytes.len(), 43));
        assert_eq!(decode_response(&header, body), Ok(response));
    }
}

#[test]
fn a_truncated_frame_waits_and_a_truncated_body_is_an_error() {
    for request in requests() {
        let mut bytes = Vec::new();
        encode_request(&request, 1, &mut bytes);
        for cut in 0..bytes.len() {
            assert_eq!(split(&bytes[..cut], BODY_BYTES_MAX), Ok(None));
        }
        let (header, body, _) = split(&bytes, BODY_BYTES_MAX).unwrap().unwrap();
        for cut in 0..body.len().saturating_sub(8) {
            // Whatever comes out, it is an answer: an error, a rejection, or a shorter request.
            let _ = decode_request(&header, &body[..cut]);
        }
    }
    for response in responses() {
        let mut bytes = Vec::new();
        encode_response(&response, 1, &mut bytes);
        let (header, body, _) = split(&bytes, BODY_BYTES_MAX).unwrap().unwrap();
        for cut in 0..body.len() {
            let _ = decode_response(&header, &body[..cut]);
        }
    }
}

#[test]
fn frames_that_break_the_rules_are_refused_before_they_are_buffered() {
    let mut bytes = Vec::new();
    encode_request(&Request::Ping, 1, &mut bytes);
    let with = |at: usize, value: u8| {
        let mut changed = bytes.clone();
        changed[at] = value;
        split(&changed, 1024).map(|_| ())
    };
    assert!(matches!(with(1, 0xff), Err(FrameError::TooLarge { .. })), "length above the limit");
    assert!(matches!(with(0, 1), Err(FrameError::Header(_))), "length no multiple of 8");
    assert!(matches!(with(7, 2), Err(FrameError::Header(_))), "unknown flag");
    assert!(matches!(with(7, 1), Err(FrameError::Header(_))), "no room for a checksum");
    let mut checked = Vec::new();
    encode_request(&Request::Credit { bytes: 5 }, 1, &mut checked);
    add_crc(&mut checked, 0);
    checked[HEADER_BYTES] ^= 1;
    assert!(matches!(split(&checked, 1024), Err(FrameError::Header("wrong checksum"))));
}

#[test]
fn values_out_of_range_are_rejections_where_the_command_has_outcomes() {
    let mut bytes = Vec::new();
    encode_request(
        &Request::Command(Command::Reserve(reserve("5", &[(1, 1)], b""))),
        1,
        &mut bytes,
    );
    bytes[HEADER_BYTES..HEADER_BYTES + 8].fill(0);
    let (header, body, _) = split(&bytes, BODY_BYTES_MAX).unwrap().unwrap();
    let Err(RequestError::Rejected(Reply::Reserve(reply))) = decode_request(&header, body) else {
        panic!("a sale of 0 is a bad request");
    };
    assert_eq!(reply.outcome, Outcome::BadRequest);
    let mut header = header;
    header.kind = 0x7777;
    let unknown = decode_request(&header, body);
    assert!(matches!(unknown, Err(RequestError::Error { code: ErrorCode::UnknownKind, .. })));
}

#[test]
fn garbage_never_panics() {
    let mut state = 1u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u32
    };
    let kinds: Vec<u16> = (0..0x50).chain(0x8000..0x8050).chain([0x4000, 0x4001, 0xFFFF]).collect();
    for _ in 0..200_000 {
        let length = random() as usize % 160;
        let body: Vec<u8> =
            (0..length).map(|_| if random() % 3 == 0 { 0 } else { random() as u8 }).collect();
        let kind = kinds[random() as usize % kinds.len()];
        let header = Header { len: length as u32, kind, version: 1, flags: 0, correlation: 1 };
        let _ = decode_request(&header, &body);
        let _ = decode_response(&header, &body);
        let _ = split(&body, 1024);
        let _ = Entry::decode(&body);
    }
}
