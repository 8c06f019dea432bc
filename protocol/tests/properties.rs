//! Properties of the bytes: whatever can be said comes back equal; entries have one form only; what
//! is too large for its field is refused by the reader and never taken for something else.

#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use stockade_protocol::command::{Adjust, Line, Lines, Reserve, Return};
use stockade_protocol::entry::{LateReason, OrderKey, Placed};
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::sale::{OpensAt, SkuPatch};
use stockade_protocol::text::{OrderData, PaymentRef, Reason};
use stockade_protocol::wire::{
    BODY_BYTES_MAX, Request, RequestError, decode_request, encode_request, split,
};
use stockade_protocol::*;

fn id() -> impl Strategy<Value = u64> {
    prop_oneof![1..10u64, 1..=i64::MAX as u64, Just(i64::MAX as u64)]
}

fn sale() -> impl Strategy<Value = SaleId> {
    id().prop_map(|n| SaleId::new(n).unwrap())
}

fn sku() -> impl Strategy<Value = SkuId> {
    id().prop_map(|n| SkuId::new(n).unwrap())
}

fn user() -> impl Strategy<Value = UserId> {
    id().prop_map(|n| UserId::new(n).unwrap())
}

fn order() -> impl Strategy<Value = OrderId> {
    id().prop_map(|n| OrderId::new(n).unwrap())
}

fn request() -> impl Strategy<Value = RequestId> {
    let number = (1..1u64 << 62).prop_map(|n| RequestId::from_number(n).unwrap());
    let text = "[a-zA-Zäß€ -]{1,16}".prop_map(|text| RequestId::parse(text.as_bytes()).unwrap());
    prop_oneof![number, text]
}

fn lines() -> impl Strategy<Value = Lines> {
    let line = (sku(), any::<u32>()).prop_map(|(sku, quantity)| Line { sku, quantity });
    vec(line, 0..=64).prop_map(Lines::from_vec)
}

fn data() -> impl Strategy<Value = OrderData> {
    vec(any::<u8>(), 0..=512).prop_map(|bytes| OrderData::new(&bytes).unwrap())
}

fn payment() -> impl Strategy<Value = PaymentRef> {
    "[a-z0-9ü-]{1,32}".prop_map(|text| PaymentRef::new(text.as_bytes()).unwrap())
}

fn reason() -> impl Strategy<Value = Reason> {
    "[a-z ]{0,32}".prop_map(|text| Reason::new(text.as_bytes()).unwrap())
}

fn moment() -> impl Strategy<Value = TimestampMs> {
    (1..u64::MAX).prop_map(TimestampMs::new)
}

fn reserve() -> impl Strategy<Value = Reserve> {
    let parts = (sale(), user(), request(), lines(), data(), option::of(moment()));
    parts.prop_map(|(sale, user, request, lines, data, not_after)| Reserve {
        sale,
        user,
        request,
        lines,
        data,
        not_after,
    })
}

fn give_back() -> impl Strategy<Value = Return> {
    let parts = (order(), request(), lines(), any::<bool>(), any::<bool>());
    parts.prop_map(|(order, request, lines, restock, right)| Return {
        order,
        request,
        lines,
        restock,
        right,
    })
}

fn patch() -> impl Strategy<Value = SalePatch> {
    let number = || option::of(any::<u32>());
    let label = ("[a-z]{1,8}", "[a-zé]{0,8}");
    let labels = option::of(vec(label, 0..4));
    let sku = (sku(), number(), number(), number(), labels);
    let sku = sku.prop_map(|(sku, stock, limit_per_user, max_per_order, labels)| SkuPatch {
        sku,
        stock,
        limit_per_user,
        max_per_order,
        labels,
    });
    let opens = prop_oneof![Just(OpensAt::Now), moment().prop_map(OpensAt::At)];
    let times = (option::of(opens), option::of(option::of(moment())));
    let span = || option::of(any::<u64>());
    let numbers = (number(), number(), number(), number());
    let name = option::of("[a-z ]{0,40}");
    let more = (vec(sku, 0..5), option::of(any::<bool>()), name);
    (sale(), times, (span(), span(), span()), numbers, more).prop_map(
        |(sale, times, spans, numbers, more)| SalePatch {
            sale,
            name: more.2,
            opens_at: times.0,
            closes_at: times.1,
            hold_ms: spans.0,
            extend_max_ms: spans.1,
            grace_ms: spans.2,
            limit_per_user: numbers.0,
            rate_per_s: numbers.1,
            burst: numbers.2,
            user_rate_per_s: numbers.3,
            revive: more.1,
            skus: more.0,
        },
    )
}

fn command() -> impl Strategy<Value = Command> {
    let adjust = (sale(), sku(), any::<i64>(), request());
    prop_oneof![
        4 => reserve().prop_map(Command::Reserve),
        2 => patch().prop_map(|patch| Command::SalePut(Box::new(patch))),
        1 => give_back().prop_map(Command::Return),
        1 => adjust.prop_map(|(sale, sku, delta, request)| {
            Command::Adjust(Adjust { sale, sku, delta, request })
        }),
        1 => (order(), payment()).prop_map(|(order, payment)| Command::Confirm { order, payment }),
        1 => (order(), reason()).prop_map(|(order, reason)| Command::Cancel { order, reason }),
        1 => (order(), moment()).prop_map(|(order, until)| Command::Extend { order, until }),
        1 => (sale(), user(), request()).prop_map(|(sale, user, request)| {
            Command::Withdraw { sale, user, request }
        }),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let key = || {
        // Both are known, or neither is.
        (order(), option::of((sale(), user()))).prop_map(|(order, whose)| {
            let (sale, user) = whose.unzip();
            OrderKey { order, sale, user }
        })
    };
    let placed = || {
        let parts = (order(), sale(), user(), request(), any::<u64>(), lines(), data());
        parts.prop_map(|(order, sale, user, request, expires_at, lines, data)| Placed {
            order,
            sale,
            user,
            request,
            expires_at: TimestampMs::new(expires_at),
            lines,
            data,
        })
    };
    let late = (1..=5u8).prop_map(|n| LateReason::from_number(n).unwrap());
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let adjusted = (sale(), sku(), request(), any::<i64>(), any::<i64>(), any::<u64>());
    prop_oneof![
        placed().prop_map(Event::Held),
        placed().prop_map(Event::BornConfirmed),
        (key(), payment()).prop_map(|(key, payment)| Event::Confirmed { key, payment }),
        (key(), payment(), lines()).prop_map(|(key, payment, lines)| Event::Revived {
            key,
            payment,
            lines
        }),
        (key(), reason()).prop_map(|(key, reason)| Event::Cancelled { key, reason }),
        key().prop_map(|key| Event::Expired { key }),
        (key(), moment()).prop_map(|(key, expires_at)| Event::Extended { key, expires_at }),
        (key(), request(), lines(), flags).prop_map(|(key, request, lines, flags)| {
            let (restock, right, whole) = flags;
            Event::Returned { key, request, lines, restock, right, whole }
        }),
        (key(), payment(), late).prop_map(|(key, payment, reason)| Event::LatePayment {
            key,
            payment,
            reason
        }),
        (sale(), user(), request()).prop_map(|(sale, user, request)| Event::Withdrawn {
            sale,
            user,
            request
        }),
        adjusted.prop_map(|(sale, sku, request, delta, applied, total)| Event::Adjusted {
            sale,
            sku,
            request,
            delta,
            applied,
            total
        }),
        sale().prop_map(Event::SaleArchived),
    ]
}

fn frame_of(command: Command) -> Vec<u8> {
    let mut frame = Vec::new();
    encode_request(&Request::Command(command), 1, &mut frame);
    frame
}

fn read(frame: &[u8]) -> Result<Request, RequestError> {
    let (header, body, taken) = split(frame, BODY_BYTES_MAX).unwrap().unwrap();
    assert_eq!(taken, frame.len());
    decode_request(&header, body)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 512, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn commands_come_back_equal(command in command()) {
        prop_assert_eq!(read(&frame_of(command.clone())), Ok(Request::Command(command)));
    }

    #[test]
    fn entries_come_back_equal_and_have_one_form(event in event(), lsn in 1..u64::MAX) {
        let (partition, lsn, at) = (PartitionId::new(3), Lsn::new(lsn), TimestampMs::new(lsn));
        let entry = Entry { partition, lsn, at, event };
        let mut bytes = Vec::new();
        entry.encode(&mut bytes);
        prop_assert_eq!(Entry::decode(&bytes), Ok((entry, bytes.len())));
        // Another byte anywhere is another entry, or none.
        for at in 0..bytes.len().min(200) {
            let mut other = bytes.clone();
            other[at] ^= 0x21;
            if let Ok((entry, len)) = Entry::decode(&other) {
                let mut again = Vec::new();
                entry.encode(&mut again);
                prop_assert_eq!(&again[..], &other[..len]);
            }
        }
    }

    #[test]
    #[cfg(feature = "json")]
    fn sale_files_come_back_equal(mut patch in patch()) {
        // Keys of an object are there once, in order.
        for labels in patch.skus.iter_mut().filter_map(|sku| sku.labels.as_mut()) {
            labels.sort();
            labels.dedup_by(|a, b| a.0 == b.0);
        }
        let mut seen = std::collections::BTreeSet::new();
        patch.skus.retain(|sku| seen.insert(sku.sku));
        let text = stockade_protocol::json::sale_patch_to_json(&patch);
        prop_assert_eq!(stockade_protocol::json::sale_patch(&text), Ok(patch));
    }
}

fn plain_reserve(lines: usize, not_after: Option<TimestampMs>) -> Command {
    let line = |n: usize| Line { sku: SkuId::new(n as u64 + 1).unwrap(), quantity: 1 };
    Command::Reserve(Reserve {
        sale: SaleId::new(1).unwrap(),
        user: UserId::new(1).unwrap(),
        request: RequestId::from_number(1).unwrap(),
        lines: (0..lines).map(line).collect(),
        data: OrderData::default(),
        not_after,
    })
}

/// The counts of lists are two bytes: 65,537 lines were written as one, and the bytes behind it
/// were read as the order's data.
#[test]
fn a_list_too_long_for_its_count_is_refused_and_not_cut() {
    for lines in [65, 65_535, 65_536, 65_537, 70_000] {
        let got = read(&frame_of(plain_reserve(lines, None)));
        assert!(matches!(got, Err(RequestError::Rejected(_))), "{lines} lines: {got:?}");
    }
    let mut patch = SalePatch::new(SaleId::new(1).unwrap());
    patch.skus.push(SkuPatch {
        sku: SkuId::new(1).unwrap(),
        stock: Some(1),
        limit_per_user: None,
        max_per_order: None,
        labels: Some((0..65_540).map(|n| (n.to_string(), String::new())).collect()),
    });
    let got = read(&frame_of(Command::SalePut(Box::new(patch))));
    assert!(matches!(got, Err(RequestError::Rejected(_))), "labels: {got:?}");
}

/// A text longer than its two bytes of length ended the caller's process.
#[test]
fn a_text_too_long_for_its_length_reaches_the_rules_that_refuse_it() {
    let mut patch = SalePatch::new(SaleId::new(1).unwrap());
    patch.name = Some("é".repeat(50_000));
    let Ok(Request::Command(Command::SalePut(patch))) =
        read(&frame_of(Command::SalePut(Box::new(patch))))
    else {
        panic!("a name is judged by the rules");
    };
    assert!(patch.name.unwrap().len() > limits::NAME_BYTES_MAX);
}

/// 0 stands for "none" in a frame, so a deadline at the epoch was no deadline, and a sale that
/// closed at the epoch never closed.
#[test]
fn a_moment_at_the_epoch_is_not_taken_for_none() {
    let epoch = TimestampMs::new(0);
    let Ok(Request::Command(Command::Reserve(reserve))) =
        read(&frame_of(plain_reserve(1, Some(epoch))))
    else {
        panic!("a reserve");
    };
    assert_eq!(reserve.not_after, Some(TimestampMs::new(1)));
    let mut patch = SalePatch::new(SaleId::new(1).unwrap());
    (patch.opens_at, patch.closes_at) = (Some(OpensAt::At(epoch)), Some(Some(epoch)));
    let Ok(Request::Command(Command::SalePut(patch))) =
        read(&frame_of(Command::SalePut(Box::new(patch))))
    else {
        panic!("a put");
    };
    assert_eq!(patch.opens_at, Some(OpensAt::At(TimestampMs::new(1))));
    assert_eq!(patch.closes_at, Some(Some(TimestampMs::new(1))));
}
