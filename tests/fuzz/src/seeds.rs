//! The seeds of each target: every golden and every wrong vector of the wire, every kind of entry,
//! sale files, commands of Redis clients, one change of each file, and stories for the core.

use crate::mutate::Random;
use crate::{commands, log_files};
use std::collections::BTreeMap;

/// The frames of `protocol/vectors/`, right ones and wrong ones.
const FRAMES: &str = include_str!("../../../protocol/vectors/frames.txt");

/// Sale files, right ones and wrong ones, and moments.
const SALE_FILES: &[&str] = &[
    r#"{"sale":1}"#,
    r#"{"sale":1,"name":"n","opens_at":"now","closes_at":null,"hold_ms":1800000,"extend_max_ms":0,"grace_ms":86400000,"limit_per_user":0,"rate_per_s":0,"burst":0,"user_rate_per_s":0,"revive":false,"skus":[{"sku":1001,"stock":100,"limit_per_user":1,"max_per_order":1,"labels":{"spec":"500g"}}]}"#,
    r#"{"sale":9223372036854775807,"opens_at":1790000000000,"closes_at":"2026-12-04T20:00:00+01:00"}"#,
    r#"{"sale":1,"skus":[{"sku":"7","stock":1},{"sku":8,"stock":4294967295}]}"#,
    r#"{"sale":1,"skus":[{"sku":7},{"sku":"7"}]}"#,
    r#"{"sale":0,"skus":[]}"#,
    r#"{"sale":1,"opens_at":"20:00"}"#,
    r#"{"sale":1e3,"hold_ms":-1,"burst":4294967296}"#,
    r#"{"sale":1,"opens":1}"#,
    r#"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["#,
    "2026-02-29T23:59:60.999999999-23:59",
    "2024-02-29T00:00:00Z",
    "1969-12-31T23:59:59Z",
    "9999-12-31T23:59:59+00:00",
];

const RESP: &[&[u8]] = &[
    b"*1\r\n$4\r\nPING\r\n",
    b"*3\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$4\r\nAUTH\r\n",
    b"*6\r\n$13\r\nSTOCK.RESERVE\r\n$1\r\n1\r\n$1\r\n7\r\n$1\r\na\r\n$2\r\n10\r\n$1\r\n1\r\n",
    b"*2\r\n$4\r\nECHO\r\n$0\r\n\r\n*1\r\n$4\r\nQUIT\r\n",
    b"PING\r\nSTOCK.ORDER 42\n\r\n",
    b"*0\r\n*-1\r\n",
    b"*1\r\n$-1\r\n",
    b"*1\r\n+PING\r\n",
    b"*x\r\n",
    b"*1025\r\n",
    b"*1\r\n$5000000\r\n",
    b"*1\r\n$4\r\nPINGxx",
    b"*99999999999999999999\r\n",
    b"*+1\r\n$+4\r\nPING\r\n",
    b"*01\r\n$04\r\nPING\r\n",
    b"*2\r\n$4\r\nECHO\r\n$6\r\n\r\n\x00\xff\r\n\r\n",
];

/// A script for [`commands`]: two sales, then commands by chance.
fn story_of(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    // Two shards; a sale of three SKUs with a limit, one that confirms at once, without.
    let mut bytes = vec![1, 3, 0, 0b110, 2, 1, 1, 1, 3, 1, 0, 2, 1, 1, 0];
    bytes.extend((0..len).map(|_| random.number() as u8));
    bytes
}

/// The story whose log fills the directory of [`log_files`].
pub fn story() -> Vec<u8> {
    story_of(5, 900)
}

/// By name, ascending.
pub fn of(target: &str) -> BTreeMap<String, Vec<u8>> {
    match target {
        "wire" => frames(),
        "entry" => entries(),
        "json" => numbered(SALE_FILES.iter().map(|text| text.as_bytes().to_vec())),
        "resp" => numbered(RESP.iter().map(|bytes| bytes.to_vec())),
        "commands" => numbered((1..=8).map(|seed| story_of(seed, 300))),
        "log_files" => changes(),
        other => panic!("no target {other}"),
    }
}

fn numbered(all: impl Iterator<Item = Vec<u8>>) -> BTreeMap<String, Vec<u8>> {
    all.enumerate().map(|(n, bytes)| (format!("{n:02}"), bytes)).collect()
}

fn frames() -> BTreeMap<String, Vec<u8>> {
    let lines = FRAMES.lines().filter(|line| !line.starts_with('#'));
    let frame = |line: &str| {
        let mut parts = line.split(" | ");
        let name = parts.next().expect("a name").replace(": ", "-").replace(' ', "-");
        let hex = parts.next().expect("the bytes").as_bytes();
        let byte = |pair: &[u8]| {
            let pair = std::str::from_utf8(pair).expect("hex");
            u8::from_str_radix(pair, 16).expect("hex")
        };
        (name.replace('^', ""), hex.chunks(2).map(byte).collect())
    };
    lines.map(frame).collect()
}

/// The first entry of each kind that the stories leave in their logs.
fn entries() -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for log in (1..=40).map(|seed| commands::run(&story_of(seed, 900))) {
        for entry in log.into_values().flatten() {
            found.entry(format!("kind-{:02}", entry.event.kind())).or_insert_with(|| {
                let mut bytes = Vec::new();
                entry.encode(&mut bytes);
                bytes
            });
        }
    }
    found
}

/// One bit flipped in each file, as it is and with checksums made right.
fn changes() -> BTreeMap<String, Vec<u8>> {
    let change = |file: usize, mend: u8| vec![file as u8, mend, 40, 0, 0, 1];
    let files = 0..log_files::file_count();
    let both = files.flat_map(|file| [change(file, 0), change(file, 1)]);
    numbered(std::iter::once(vec![0, 0]).chain(both))
}
