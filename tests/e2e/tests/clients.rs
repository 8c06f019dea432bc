//! What the world's Redis clients see: each one runs the same scripted sale as a program of its own
//! (`tests/e2e/clients`), and each prints the same lines.
//!
//! redis-py, redis-rb, phpredis and hiredis come from Debian, ioredis and node-redis (RESP2 and
//! RESP3) from npm, redis-cli from Debian too. A client that is not installed is a failure in CI.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use stockade_e2e::{Server, missing};

/// What every script prints.
const EXPECTED: &str = "\
ping True
put created
reserve held True True 0 0
again held True
limit limit True 0
malformed bad_request 0
confirm confirmed
cancel too_late
status confirmed True pay-1 1,1
pipeline 100
sku 1000 899 100 1 live
unknown True
";

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients")
}

/// Runs one client's script against a server of its own.
fn run(program: &str, before: &[&str], after: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &["--shards", "2"]);
    let (host, port) = server.resp_address().rsplit_once(':').unwrap();
    let mut command = Command::new(program);
    command.current_dir(scripts()).args(before).args([host, port, "1"]).args(after);
    let output = command.output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert_eq!(text(&output), EXPECTED, "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success());
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The probe ran and succeeded: the client is there.
fn is_there(program: &str, arguments: &[&str]) -> bool {
    Command::new(program)
        .current_dir(scripts())
        .args(arguments)
        .output()
        .is_ok_and(|output| output.status.success())
}

#[test]
fn redis_py() {
    // Debian's Python has Debian's packages.
    let python = "/usr/bin/python3";
    if !is_there(python, &["-c", "import redis"]) {
        return missing("redis-py (apt install python3-redis)");
    }
    run(python, &["sale.py"], &[]);
}

#[test]
fn redis_rb() {
    if !is_there("ruby", &["-e", "require 'redis'"]) {
        return missing("redis-rb (apt install ruby-redis)");
    }
    run("ruby", &["sale.rb"], &[]);
}

#[test]
fn phpredis() {
    if !is_there("php", &["-r", "exit(class_exists('Redis') ? 0 : 1);"]) {
        return missing("phpredis (apt install php-cli php-redis)");
    }
    run("php", &["sale.php"], &[]);
}

#[test]
fn hiredis() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("sale").display().to_string();
    if !is_there("cc", &["-Wall", "-Werror", "-o", &program, "sale.c", "-lhiredis"]) {
        return missing("hiredis (apt install libhiredis-dev gcc)");
    }
    run(&program, &[], &[]);
}

fn node(kind: &str) {
    let probe = format!("import('{}')", if kind == "ioredis" { "ioredis" } else { "redis" });
    let probe = format!("{probe}.then(() => process.exit(0), () => process.exit(1))");
    let arguments = ["--input-type=module", "-e", &probe];
    let found = Command::new("node")
        .current_dir(scripts().join("node"))
        .args(arguments)
        .output()
        .is_ok_and(|output| output.status.success());
    if !found {
        return missing("ioredis and node-redis (npm ci in tests/e2e/clients/node)");
    }
    run("node", &["node/sale.mjs"], &[kind]);
}

#[test]
fn ioredis() {
    node("ioredis");
}

#[test]
fn node_redis_with_resp2() {
    node("redis2");
}

#[test]
fn node_redis_with_resp3() {
    node("redis3");
}

/// redis-cli for people, redis-benchmark for those who compare.
#[test]
fn redis_cli_and_redis_benchmark() {
    if !is_there("redis-cli", &["--version"]) || !is_there("redis-benchmark", &["--version"]) {
        return missing("redis-cli and redis-benchmark (apt install redis-tools)");
    }
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &["--shards", "2"]);
    let (host, port) = server.resp_address().rsplit_once(':').unwrap();
    let cli = |arguments: &[&str]| {
        let output = Command::new("redis-cli")
            .args(["-3", "-h", host, "-p", port])
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        text(&output)
    };
    let sale = r#"{"sale":1,"name":"cli","opens_at":"now","skus":[{"sku":1,"stock":5000}]}"#;
    assert!(cli(&["STOCK.SALE.PUT", sale]).starts_with("created\n1\n"));
    assert!(cli(&["INFO"]).contains("stockade_durability:group"));
    let arguments = ["STOCK.RESERVE", "1", "7", "__rand_int__", "1", "1"];
    let output = Command::new("redis-benchmark")
        .args(["-h", host, "-p", port, "-c", "20", "-n", "3000", "-r", "1000000", "-q"])
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success() && text(&output).contains("requests per second"));
    let figures = cli(&["STOCK.SKU", "1", "1"]);
    let held: u64 = figures.lines().nth(2).unwrap().parse().unwrap();
    // A request id that is drawn twice finds its order again: no second one.
    assert!(held > 2900 && held <= 3000, "{figures}");
}
