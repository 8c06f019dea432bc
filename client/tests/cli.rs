//! The command line where it needs no server: what is malformed is answered as the engine would,
//! wrong usage is told apart from it, and a server that is not there is a third thing.

#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::{Value, json};
use std::process::{Command, Output};

/// Runs the program against a port where nobody listens.
fn cli(words: &[&str]) -> Output {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    Command::new(env!("CARGO_BIN_EXE_stockade-cli"))
        .args(["--server", &nobody.to_string(), "--timeout", "50ms"])
        .args(words)
        .output()
        .unwrap()
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn reserve_form() -> Value {
    json!({"outcome": "bad_request", "order": "0", "expires_at_ms": 0, "retry_after_ms": -1,
           "left": -1})
}

fn order_form() -> Value {
    json!({"outcome": "bad_request", "order": "0", "state": "unknown"})
}

#[test]
fn malformed_ids_and_quantities_are_bad_requests_in_the_form_of_their_verb() {
    let reserve = "order reserve --sale 1 --user 7 --request r";
    let mut table = vec![
        (format!("{reserve} --line 1001=0x1"), reserve_form()),
        (format!("{reserve} --line 1001=-1"), reserve_form()),
        (format!("{reserve} --line 1001=01"), reserve_form()),
        (format!("{reserve} --line 1001=4294967296"), reserve_form()),
        (format!("{reserve} --line 1001="), reserve_form()),
        (format!("{reserve} --line 0=1"), reserve_form()),
        (format!("{reserve} --line -5=1"), reserve_form()),
        (format!("{reserve} --line x=1"), reserve_form()),
        (format!("{reserve} --line 9223372036854775808=1"), reserve_form()),
        (format!("{reserve} --line 1001=1 --not-after never"), reserve_form()),
    ];
    for bad in ["0", "-7", "+7", "07", "7x", "9223372036854775808", "99999999999999999999999"] {
        let reserve = format!("order reserve --sale 1 --user {bad} --request r --line 1001=1");
        table.push((reserve, reserve_form()));
        let reserve = format!("order reserve --sale {bad} --user 7 --request r --line 1001=1");
        table.push((reserve, reserve_form()));
        for verb in [
            "order show ID",
            "order confirm ID --payment p",
            "order cancel ID",
            "order extend ID --until 1",
            "order return ID --request 1",
            "order withdraw --sale ID --user 7 --request r",
            "order status --sale 1 --user ID --request r",
        ] {
            table.push((verb.replace("ID", bad), order_form()));
        }
        let list = json!({"outcome": "bad_request"});
        table.push((format!("order list --sale {bad}"), list.clone()));
        table.push((format!("order list --sale 1 --user {bad}"), list.clone()));
        table.push((format!("feed tail --partition 1 --count x{bad}"), list));
        let sale = json!({"outcome": "bad_request", "sale": 0});
        for verb in ["sale show", "sale pause", "sale resume", "sale close", "stock show", "top"] {
            table.push((format!("{verb} {bad}"), sale.clone()));
        }
        table.push((format!("stock show 1 {bad}"), sale));
        let adjust = json!({"outcome": "bad_request", "applied": 0, "total": 0, "free": 0});
        table.push((format!("stock adjust {bad} 1 5 --request a"), adjust.clone()));
        table.push((format!("stock adjust 1 {bad} 5 --request a"), adjust));
    }
    let adjust = json!({"outcome": "bad_request", "applied": 0, "total": 0, "free": 0});
    for bad in ["+5", "5.0", "--5", "9223372036854775808", "-9223372036854775809", "-05"] {
        table.push((format!("stock adjust --request a 1 1 -- {bad}"), adjust.clone()));
    }
    table.extend([
        ("stock adjust 1 1 5 --request 0".into(), adjust),
        ("order extend 1 --until -1".into(), order_form()),
        ("order return 1 --request 1 --line 1001=x".into(), order_form()),
        ("order withdraw --sale 1 --user 7 --request 4611686018427387904".into(), order_form()),
        ("order status --sale 1 --user 7 --request 0".into(), order_form()),
        ("feed tail --from 0".into(), json!({"outcome": "bad_request"})),
        ("feed tail --from -1".into(), json!({"outcome": "bad_request"})),
        ("feed tail --partition 65536".into(), json!({"outcome": "bad_request"})),
        ("feed drop a/b".into(), json!({"outcome": "bad_request"})),
    ]);
    for (line, form) in table {
        let mut all = vec!["--json"];
        all.extend(words(&line));
        let output = cli(&all);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{line}: {text}{stderr}");
        assert_eq!(serde_json::from_str::<Value>(&text).ok(), Some(form), "{line}: {text}");
        assert!(stderr.starts_with("bad_request: "), "{line}: {stderr}");
    }
    // The same in words.
    let output = cli(&words("order show 0"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.lines().any(|line| words(line) == ["outcome", "bad_request"]), "{text}");
}

#[test]
fn a_sale_file_that_cannot_be_is_a_bad_request_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let table = [
        ("a.json", r#"{"sale":1,"stok":5}"#, "stok"),
        ("b.json", "{", "EOF"),
        ("c.toml", "sale = 0", "sale"),
        ("d.toml", "sale = 1\nopens_at = 2026-12-04T20:00:00", "offset"),
        ("e.toml", "sale =", "TOML"),
    ];
    for (name, text, word) in table {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        let output = cli(&["--json", "sale", "put", &path.to_string_lossy()]);
        assert_eq!(output.status.code(), Some(1), "{name}");
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&answer["outcome"], &answer["sale"]), (&json!("bad_request"), &json!(0)));
        assert!(answer["why"].as_str().unwrap().contains(word), "{name}: {answer}");
    }
}

#[test]
fn wrong_usage_is_exit_2_and_a_server_that_is_not_there_exit_3() {
    let table = [
        ("nonsense", 2),
        ("order reserve --sale 1", 2),
        ("order reserve --sale 1 --user 7 --request r --line 1001", 2),
        ("order show", 2),
        ("order confirm 1", 2),
        ("order list --sale 1 --state sold", 2),
        ("stock adjust 1 1 5", 2),
        ("sale put /there/is/no/such.toml", 2),
        ("feed tail --from yesterday", 2),
        ("feed tail --from stored", 2),
        ("--timeout 5 sale list", 2),
        ("--help", 0),
        ("--version", 0),
        ("order show 1", 3),
        ("order reserve --sale 1 --user 7 --request 007 --line 1001=1", 3),
        ("order reserve --sale 1 --user 7 --request -1 --line 1001=1 --line 1002=0", 3),
        ("stock adjust 1 1 -5 --request a", 3),
        ("sale list", 3),
        ("feed tail --from 12 --partition 65535", 3),
        ("feed consumers", 3),
    ];
    for (line, code) in table {
        let output = cli(&words(line));
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{line}: {stderr}");
        assert_eq!(stderr.is_empty(), code == 0, "{line}: {stderr}");
    }
}
