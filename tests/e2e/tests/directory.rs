//! The data directory: a clean stop and restart, a second process, damage, other settings. The
//! engine refuses with one plain sentence, or the state is right; never a wrong state.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::Command;
use stockade_e2e::{Program, Server, program};

const SALE: &str =
    r#"{"sale":1,"name":"dir","opens_at":"now","hold_ms":600000,"skus":[{"sku":1,"stock":1000}]}"#;

/// A server with 100 orders that was stopped; gives its directory.
fn traded(dir: &Path, arguments: &[&str], kill: bool) {
    let mut server = Server::start(dir, arguments);
    let mut resp = server.resp();
    resp.call(&["STOCK.SALE.PUT", SALE]).unwrap();
    for user in 1..=100 {
        let answer = resp.call(&["STOCK.RESERVE", "1", &user.to_string(), "1", "1", "1"]).unwrap();
        assert_eq!(answer.items()[0].text(), "held");
    }
    if kill {
        server.program().kill();
    } else {
        assert!(server.program().stop().success(), "SIGTERM ends with 0");
    }
}

fn start_again(dir: &Path, arguments: &[&str]) -> Result<Program, String> {
    let mut all = vec!["--listen", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    all.extend(arguments);
    let all: Vec<String> = all.into_iter().map(str::to_owned).collect();
    Program::start(&mut Server::command(dir, &all))
}

fn held(program: &Program) -> i64 {
    let mut resp = stockade_e2e::Resp::connect(program.ready_value("resp")).unwrap();
    resp.call(&["STOCK.SKU", "1", "1"]).unwrap().items()[2].number()
}

#[test]
fn orders_are_there_after_a_clean_stop_and_with_other_shards() {
    let dir = tempfile::tempdir().unwrap();
    traded(dir.path(), &["--shards", "1"], false);
    for shards in ["2", "1", "3"] {
        let mut again = start_again(dir.path(), &["--shards", shards]).unwrap();
        assert_eq!(held(&again), 100);
        assert!(again.stop().success());
    }
    let verify = Command::new(program("stockade-server"))
        .args(["log", "verify", "--data-dir"])
        .arg(dir.path())
        .output()
        .unwrap();
    assert!(verify.status.success(), "{}", String::from_utf8_lossy(&verify.stderr));
    let dump = Command::new(program("stockade-server"))
        .args(["log", "dump", "--data-dir"])
        .arg(dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&dump.stdout).into_owned();
    assert_eq!(text.lines().filter(|line| line.contains("held")).count(), 100, "{text}");
}

#[test]
fn a_second_process_and_other_settings_are_refused_in_one_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(dir.path(), &["--partitions", "16"]);
    let refused = start_again(dir.path(), &["--partitions", "16"]).unwrap_err();
    assert!(refused.contains("in use"), "{refused}");
    assert!(server.program().stop().success());
    let refused = start_again(dir.path(), &["--partitions", "32"]).unwrap_err();
    assert!(refused.contains("partitions"), "{refused}");
    assert!(!refused.contains("panicked"), "{refused}");
}

fn files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() { files(&entry, out) } else { out.push(entry) }
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()) {
        let target = to.join(entry.file_name().unwrap());
        if entry.is_dir() { copy(&entry, &target) } else { drop(std::fs::copy(&entry, target)) }
    }
}

/// One flipped byte in any file, at several places: all 100 orders are there, or the start is
/// refused.
#[test]
fn damage_gives_the_right_state_or_a_refusal() {
    for kill in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        traded(&dir.path().join("good"), &["--shards", "1"], kill);
        let mut all = Vec::new();
        files(&dir.path().join("good"), &mut all);
        let (mut right, mut refused) = (0, 0);
        for path in &all {
            let name = path.strip_prefix(dir.path().join("good")).unwrap();
            let size = std::fs::metadata(path).unwrap().len();
            for at in [0, 20, size / 3, size.saturating_sub(2)] {
                if at >= size {
                    continue;
                }
                let bad = dir.path().join("bad");
                let _ = std::fs::remove_dir_all(&bad);
                copy(&dir.path().join("good"), &bad);
                let mut bytes = std::fs::read(bad.join(name)).unwrap();
                bytes[at as usize] ^= 0x55;
                std::fs::write(bad.join(name), bytes).unwrap();
                match start_again(&bad, &["--shards", "1"]) {
                    Ok(again) => {
                        assert_eq!(
                            held(&again),
                            100,
                            "{} byte {at}: a wrong state",
                            name.display()
                        );
                        right += 1;
                    }
                    Err(sentence) => {
                        assert!(!sentence.trim().is_empty());
                        refused += 1;
                    }
                }
            }
        }
        println!("kill {kill}: {} files, {right} right, {refused} refused", all.len());
        assert!(right + refused > 10);
    }
}
