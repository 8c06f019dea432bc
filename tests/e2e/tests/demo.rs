//! The demo as a newcomer runs it, with a part of the baskets: exit 0 and balanced books, after a
//! kill -9.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::Command;
use stockade_e2e::program;

#[test]
fn the_demo_balances_its_books() {
    let output = Command::new(program("stockade-bench"))
        .args(["demo", "--baskets", "4000"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(text.contains("books balance: yes"), "{text}");
}

#[test]
fn a_file_with_a_fault_is_refused_with_line_and_column() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mine.csv");
    let text = "at,user,basket,sku,qty\n2017-01-01T11:53:26,9,1,5,1\n2017-01-01T11:53:26,9,1,x,1\n";
    std::fs::write(&path, text).unwrap();
    let output = Command::new(program("stockade-bench")).arg("replay").arg(&path).output().unwrap();
    assert!(!output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(errors.contains("line 3") && errors.contains("sku"), "{errors}");
}
