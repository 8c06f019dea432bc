//! The command line against the real server: every verb, exit codes, and JSON for scripts.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use stockade_e2e::{Server, cli};

const SALE: &str = r#"
sale = 1
name = "cherries"
opens_at = "now"
hold_ms = 600000
extend_max_ms = 60000

[[skus]]
sku = 1001
stock = 10
limit_per_user = 3
labels = { spec = "500 g" }
"#;

/// Runs a verb with `--json`; exit code and the parsed answer (null if there is none).
fn run(server: &Server, line: &str) -> (i32, serde_json::Value) {
    let mut arguments = vec!["--json"];
    arguments.extend(line.split_whitespace());
    let output = cli(server, &arguments);
    let text = String::from_utf8_lossy(&output.stdout);
    let json = serde_json::from_str(text.lines().next().unwrap_or("null"));
    (output.status.code().unwrap(), json.unwrap_or(serde_json::Value::Null))
}

fn sale_file(dir: &Path) -> String {
    let path = dir.join("sale.toml");
    std::fs::write(&path, SALE).unwrap();
    path.to_string_lossy().into_owned()
}

#[test]
fn every_verb_answers_with_its_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"), &["--shards", "2"]);
    let file = sale_file(dir.path());
    let (code, put) = run(&server, &format!("sale put {file}"));
    assert_eq!((code, put["outcome"].as_str()), (0, Some("created")));
    assert_eq!(run(&server, &format!("sale put {file}")).1["outcome"], "unchanged");
    assert_eq!(run(&server, "sale show 1").1["state"], "live");
    assert_eq!(run(&server, "sale list").0, 0);
    let (code, held) = run(&server, "order reserve --sale 1 --user 7 --request r1 --line 1001=2");
    assert_eq!((code, held["outcome"].as_str()), (0, Some("held")));
    let order = held["order"].as_str().unwrap().to_owned();
    let (code, limit) = run(&server, "order reserve --sale 1 --user 7 --request r2 --line 1001=2");
    assert_eq!((code, limit["outcome"].as_str()), (1, Some("limit")));
    assert_eq!(run(&server, &format!("order extend {order} --until 1")).0, 0);
    assert_eq!(run(&server, &format!("order confirm {order} --payment p")).0, 0);
    assert_eq!(run(&server, &format!("order cancel {order} --reason x")).0, 1);
    let (code, back) =
        run(&server, &format!("order return {order} --request t1 --line 1001=1 --no-restock"));
    assert_eq!((code, back["outcome"].as_str()), (0, Some("returned")));
    assert_eq!(run(&server, &format!("order show {order}")).1["state"], "confirmed");
    assert_eq!(run(&server, "order list --sale 1 --user 7").0, 0);
    assert_eq!(run(&server, "order list --sale 1 --state confirmed").0, 0);
    let (_, stock) = run(&server, "stock show 1 1001");
    let stock = if stock.is_array() { stock[0].clone() } else { stock };
    let row = if stock["skus"].is_array() { stock["skus"][0].clone() } else { stock };
    assert_eq!((row["total"].as_u64(), row["free"].as_u64()), (Some(9), Some(8)), "{row}");
    assert_eq!(run(&server, "stock adjust 1 1001 5 --request a1").1["applied"], 5);
    assert_eq!(run(&server, "sale pause 1").1["outcome"], "paused");
    assert_eq!(run(&server, "sale resume 1").1["outcome"], "resumed");
    assert_eq!(run(&server, "feed consumers").0, 0);
    let tail = cli(&server, &["feed", "tail", "--from", "oldest", "--count", "3"]);
    let text = String::from_utf8_lossy(&tail.stdout).into_owned();
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(text.lines().all(|line| line.starts_with('{')), "{text}");
    assert_eq!(run(&server, "sale close 1").1["outcome"], "closed");
    assert_eq!(run(&server, "order show 99").0, 1);
    assert_eq!(run(&server, "order reserve --sale 1").0, 2);
    assert_eq!(run(&server, "nonsense").0, 2);
}

#[test]
fn a_server_that_is_not_there_is_exit_3() {
    let output = std::process::Command::new(stockade_e2e::program("stockade-cli"))
        .args(["--server", &format!("127.0.0.1:{}", stockade_e2e::free_port())])
        .args(["--timeout", "1s", "sale", "list"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(!output.stderr.is_empty());
}
