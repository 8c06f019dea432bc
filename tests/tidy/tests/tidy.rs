//! Rules of the house that a machine can hold: dependency directions, the shape of files, the top
//! level.
//!
//! The checks read files as text; each failure names every place, so that one run is enough to mend
//! them.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const LINES_MAX: usize = 800;
const COLUMNS_MAX: usize = 100;
const FILE_BYTES_MAX: u64 = 256 << 10;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Files below `dir`, without build output and hidden folders.
fn files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        let name = entry.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with('.') || name == "target" || name == "node_modules" {
            continue;
        }
        if entry.is_dir() { files(&entry, out) } else { out.push(entry) }
    }
}

fn all_files() -> Vec<PathBuf> {
    let mut out = Vec::new();
    files(&root(), &mut out);
    out.sort();
    assert!(out.len() > 50, "the tree was not found");
    out
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().to_string_lossy().into_owned()
}

fn none(faults: &[String], rule: &str) {
    assert!(faults.is_empty(), "{rule}:\n  {}", faults.join("\n  "));
}

/// Dependencies of a member, by table.
fn dependencies(member: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let text = fs::read_to_string(root().join(member).join("Cargo.toml")).unwrap();
    let manifest: toml::Table = text.parse().unwrap();
    let names = |table: &str| -> BTreeSet<String> {
        let table = manifest.get(table).and_then(toml::Value::as_table);
        table.map(|table| table.keys().cloned().collect()).unwrap_or_default()
    };
    (names("dependencies"), names("dev-dependencies"))
}

#[test]
fn crates_import_only_what_they_may() {
    let allowed: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("protocol", &[] as &[&str]),
        ("engine/core", &["stockade-protocol"]),
        ("persistence/log", &["stockade-protocol"]),
        ("client", &["stockade-protocol"]),
        ("engine/server", &["stockade-protocol", "stockade-core", "stockade-log"]),
        ("persistence/order-writer", &["stockade-protocol", "stockade-client"]),
        ("bench", &["stockade-client", "stockade-protocol"]),
    ]);
    let homes = [
        ("glommio", "engine/server"),
        ("sled", "persistence/log"),
        ("rusqlite", "persistence/order-writer"),
        ("sqlx", "persistence/order-writer"),
    ];
    let mut faults = Vec::new();
    for (member, allowed) in allowed {
        let (normal, dev) = dependencies(member);
        for name in normal.union(&dev) {
            if name.starts_with("stockade-") && !allowed.contains(&name.as_str()) {
                faults.push(format!("{member} imports {name}"));
            }
            for (library, home) in homes {
                if name == library && member != home {
                    faults.push(format!("{member} imports {library}, which belongs to {home}"));
                }
            }
        }
    }
    none(&faults, "dependency directions (docs/ARCHITECTURE.md)");
}

#[test]
fn pure_crates_cannot_reach_the_world() {
    for member in ["protocol", "engine/core"] {
        let text = fs::read_to_string(root().join(member).join("src/lib.rs")).unwrap();
        assert!(text.contains("#![cfg_attr(not(test), no_std)]"), "{member} must be no_std");
    }
}

#[test]
fn the_top_level_holds_what_it_must_and_nothing_else() {
    let expected: BTreeSet<String> = [
        "Cargo.toml",
        "Cargo.lock",
        "README.md",
        "engine",
        "protocol",
        "client",
        "persistence",
        "bench",
        "tests",
        "docs",
    ]
    .map(String::from)
    .into();
    let found: BTreeSet<String> = fs::read_dir(root())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| !name.starts_with('.') && name != "target")
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn rust_files_open_with_their_purpose_and_stay_small() {
    let mut faults = Vec::new();
    for path in all_files().iter().filter(|path| path.extension().is_some_and(|e| e == "rs")) {
        let text = fs::read_to_string(path).unwrap();
        let name = relative(path);
        if !text.starts_with("//!") {
            faults.push(format!("{name}: does not open with //!"));
        }
        let lines = text.lines().count();
        if lines > LINES_MAX {
            faults.push(format!("{name}: {lines} lines"));
        }
        for (number, line) in text.lines().enumerate() {
            // The formatter does not break strings, and data in tests reads best in one line.
            let has_text = line.contains('"') || line.contains("http");
            if line.chars().count() > COLUMNS_MAX && !has_text {
                faults.push(format!("{name}:{}: wider than {COLUMNS_MAX}", number + 1));
            }
        }
    }
    none(&faults, "every file says what it is for, in at most 800 lines of 100 columns");
}

#[test]
fn no_file_is_huge_but_the_fixtures() {
    let mut faults = Vec::new();
    for path in all_files() {
        let name = relative(&path);
        let size = fs::metadata(&path).unwrap().len();
        if size > FILE_BYTES_MAX && !name.contains("fixtures/") {
            faults.push(format!("{name}: {size} bytes"));
        }
    }
    none(&faults, "files stay below 256 KiB");
}

/// Statements that corrupt silently: INSERT IGNORE truncates values, LOAD DATA LOCAL does the same
/// even in strict mode, ON DUPLICATE KEY UPDATE fires on any unique key and rewrites another
/// order's row.
#[test]
fn banned_sql_does_not_come_back() {
    let banned = ["insert ignore", "load data", "on duplicate key"];
    let mut faults = Vec::new();
    let mut paths = Vec::new();
    files(&root().join("persistence/order-writer/src"), &mut paths);
    for path in paths {
        for (number, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            let code = line.split("//").next().unwrap_or("").to_lowercase();
            for word in banned {
                if code.contains(word) {
                    faults.push(format!("{}:{}: {word}", relative(&path), number + 1));
                }
            }
        }
    }
    none(&faults, "banned SQL");
}

#[test]
fn unfinished_work_is_not_on_main() {
    let markers =
        [["to", "do!("].concat(), ["unimple", "mented!("].concat(), ["FIX", "ME"].concat()];
    let mut faults = Vec::new();
    for path in all_files().iter().filter(|path| path.extension().is_some_and(|e| e == "rs")) {
        for (number, line) in fs::read_to_string(path).unwrap().lines().enumerate() {
            if markers.iter().any(|marker| line.contains(marker.as_str())) {
                faults.push(format!("{}:{}: {}", relative(path), number + 1, line.trim()));
            }
        }
    }
    none(&faults, "no stubs");
}

/// All Rust sources, as one text.
fn sources() -> String {
    let mut sources = String::new();
    for path in all_files().iter().filter(|path| path.extension().is_some_and(|e| e == "rs")) {
        sources.push_str(&fs::read_to_string(path).unwrap());
    }
    sources
}

/// The tests that a row names in backticks, and those of them that do not exist.
fn named_tests<'a>(row: &'a str, sources: &str) -> (Vec<&'a str>, Vec<&'a str>) {
    let named: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
    let exists = |test: &&&str| {
        let name = test.rsplit("::").next().unwrap_or(test);
        sources.contains(&format!("fn {name}("))
    };
    let absent = named.iter().filter(|test| !exists(test)).copied().collect();
    (named, absent)
}

/// Each of the ten promises is named in ARCHITECTURE.md with at least one test, and the test
/// exists.
#[test]
fn every_promise_names_a_test_that_exists() {
    let text = fs::read_to_string(root().join("docs/ARCHITECTURE.md")).unwrap();
    let sources = sources();
    let mut faults = Vec::new();
    for promise in 1..=10 {
        let head = format!("| P{promise} ");
        let Some(line) = text.lines().find(|line| line.starts_with(&head)) else {
            faults.push(format!("P{promise} is not in the table"));
            continue;
        };
        let (named, absent) = named_tests(line, &sources);
        if named.is_empty() {
            faults.push(format!("P{promise} names no test"));
        }
        faults.extend(absent.iter().map(|test| format!("P{promise}: there is no test {test}")));
    }
    none(&faults, "promises and their tests (docs/ARCHITECTURE.md)");
}

/// Each scenario of SCENARIOS.md names tests that exist, or says what is missing.
#[test]
fn every_scenario_names_a_test_that_exists_or_says_what_is_missing() {
    let text = fs::read_to_string(root().join("docs/SCENARIOS.md")).unwrap();
    let sources = sources();
    let mut faults = Vec::new();
    let mut rows = 0;
    for line in text.lines().filter(|line| line.starts_with("| ")).skip(2) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [number, wrong, ours, tests] = cells.as_slice() else {
            faults.push(format!("a row needs four cells: {line}"));
            continue;
        };
        rows += 1;
        let numbered = number.split(", ").all(|n| n.parse::<u16>().is_ok());
        if !numbered || wrong.is_empty() || ours.is_empty() {
            faults.push(format!("{number}: no number, no fault, or nothing done about it"));
        }
        let (named, absent) = named_tests(tests, &sources);
        if named.is_empty() && !line.contains("missing: ") {
            faults.push(format!("{number}: no test, and nothing said to be missing"));
        }
        faults.extend(absent.iter().map(|test| format!("{number}: there is no test {test}")));
    }
    assert!(rows >= 70, "{rows} rows");
    none(&faults, "scenarios and their tests (docs/SCENARIOS.md)");
}
