//! Sale files: one case a line. Events and answers in their JSON forms.
#![cfg(feature = "json")]
#![allow(clippy::unwrap_used, reason = "tests")]

use stockade_protocol::entry::{Entry, Event, LateReason, OrderKey, Placed};
use stockade_protocol::ids::{PartitionId, TimestampMs};
use stockade_protocol::json::{entry_to_json, gap_to_json, sale_patch, sale_patch_to_json};
use stockade_protocol::text::{OrderData, PaymentRef};
use stockade_protocol::*;

/// `Err` part: words that the sentence must contain.
#[test]
fn sale_files_are_read_or_refused_with_the_key_named() {
    let table: &[(&str, Result<(), &str>)] = &[
        (r#"{"sale":1}"#, Ok(())),
        (r#"{"sale":1,"opens_at":"now","closes_at":null}"#, Ok(())),
        (r#"{"sale":1,"opens_at":1790000000000}"#, Ok(())),
        (r#"{"sale":1,"opens_at":"2026-12-04T20:00:00+01:00"}"#, Ok(())),
        (r#"{"sale":1,"skus":[{"sku":"7","stock":1},{"sku":8,"stock":2}]}"#, Ok(())),
        (r#"{"sale":"1"}"#, Err("sale must be a number")),
        (r#"{"sale":0}"#, Err("sale must be")),
        (r#"{}"#, Err("sale is missing")),
        (r#"[]"#, Err("must be an object")),
        (r#"{"sale":1"#, Err("not JSON")),
        (r#"{"sale":1,"opens_at":"20:00"}"#, Err("opens_at")),
        (r#"{"sale":1,"opens_at":0}"#, Err("opens_at must be later than 1970")),
        (r#"{"sale":1,"closes_at":0}"#, Err("closes_at must be later than 1970")),
        (r#"{"sale":1,"closes_at":"1970-01-01T01:00:00+01:00"}"#, Err("later than 1970")),
        (r#"{"sale":1,"opens_at":"2026-12-04T20:00:00"}"#, Err("offset is missing")),
        (r#"{"sale":1,"open_at":"now"}"#, Err("did you mean \"opens_at\"")),
        (r#"{"sale":1,"zzzzzzzzzzzzz":1}"#, Err("unknown key")),
        (r#"{"sale":1,"hold_ms":-1}"#, Err("hold_ms must be a whole number")),
        (r#"{"sale":1,"hold_ms":1.5}"#, Err("hold_ms must be a whole number")),
        (r#"{"sale":1,"revive":1}"#, Err("revive must be true or false")),
        (r#"{"sale":1,"burst":4294967296}"#, Err("burst must be")),
        (r#"{"sale":1,"skus":[{"stock":1}]}"#, Err("skus[0]: sku is missing")),
        (r#"{"sale":1,"skus":[{"sku":7,"stok":1}]}"#, Err("sku 7: unknown key \"stok\"")),
        (r#"{"sale":1,"skus":[{"sku":7},{"sku":"7"}]}"#, Err("sku 7 is there twice")),
        (r#"{"sale":1,"skus":[{"sku":"007"}]}"#, Err("skus[0]: sku must be")),
        (r#"{"sale":1,"skus":[{"sku":7,"labels":{"a":1}}]}"#, Err("sku 7: labels must be texts")),
    ];
    for (text, expected) in table {
        match (sale_patch(text), expected) {
            (Ok(patch), Ok(())) => assert_eq!(sale_patch(&sale_patch_to_json(&patch)), Ok(patch)),
            (Err(sentence), Err(words)) => assert!(sentence.contains(words), "{text}: {sentence}"),
            (got, _) => panic!("{text}: {got:?}"),
        }
    }
}

/// Refusals repeated what they refused, up to the megabytes of a whole file.
#[test]
fn a_refusal_is_a_sentence_whatever_the_file_says() {
    let long = "x".repeat(100_000);
    let texts = [
        format!(r#"{{"sale":1,"hold_ms":"{long}"}}"#),
        format!(r#"{{"sale":1,"burst":["{long}"]}}"#),
        format!(r#"{{"sale":1,"opens_at":"{long}"}}"#),
        format!(r#"{{"sale":1,"opens_at":{{"{long}":1}}}}"#),
        format!(r#"{{"sale":1,"{long}":1}}"#),
        format!(r#"{{"sale":1,"skus":[{{"sku":1,"{long}":1}}]}}"#),
        format!(r#"{{"sale":1,"skus":[{{"sku":1,"labels":{{"{long}":1}}}}]}}"#),
    ];
    for text in texts {
        let sentence = sale_patch(&text).unwrap_err();
        assert!(sentence.len() < 400, "{} bytes: {}", sentence.len(), &sentence[..80]);
    }
}

fn key() -> OrderKey {
    OrderKey {
        order: OrderId::from_parts(PartitionId::new(1), 5).unwrap(),
        sale: SaleId::new(1),
        user: UserId::new(7),
    }
}

fn shown(event: Event) -> String {
    let (partition, lsn, at) = (PartitionId::new(1), Lsn::new(12), TimestampMs::new(99));
    entry_to_json(&Entry { partition, lsn, at, event })
}

#[test]
fn events_show_the_keys_that_apply() {
    let placed = Placed {
        order: key().order,
        sale: SaleId::new(1).unwrap(),
        user: UserId::new(7).unwrap(),
        request: RequestId::parse(b"abc").unwrap(),
        expires_at: TimestampMs::new(100),
        lines: [command::Line { sku: SkuId::new(1001).unwrap(), quantity: 2 }]
            .into_iter()
            .collect(),
        data: OrderData::new(b"hi").unwrap(),
    };
    let held: serde_json::Value = serde_json::from_str(&shown(Event::Held(placed))).unwrap();
    let expected = serde_json::json!({
        "partition": 1, "lsn": 12, "at_ms": 99, "kind": "held", "sale": 1,
        "order": "9007199254740997", "user": "7", "request": "abc", "lines": [["1001", 2]],
        "expires_at_ms": 100, "data": "hi",
    });
    assert_eq!(held, expected);
    let late = shown(Event::LatePayment {
        key: OrderKey { sale: None, user: None, ..key() },
        payment: PaymentRef::new(b"p").unwrap(),
        reason: LateReason::Archived,
    });
    assert!(late.contains(r#""reason":"archived""#) && late.contains(r#""user":"0""#), "{late}");
    let adjusted = shown(Event::Adjusted {
        sale: SaleId::new(1).unwrap(),
        sku: SkuId::new(3).unwrap(),
        request: RequestId::parse(b"a").unwrap(),
        delta: -9,
        applied: -4,
        total: 6,
    });
    assert!(adjusted.contains(r#""lines":[["3",4]]"#) && adjusted.contains(r#""applied":-4"#));
    let gap = gap_to_json(PartitionId::new(7), Lsn::new(1), Lsn::new(9));
    assert_eq!(gap, r#"{"from":1,"kind":"gap","partition":7,"to":9}"#);
}
