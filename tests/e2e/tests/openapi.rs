//! The OpenAPI document is what HTTP really does: schemathesis asks everything that the document
//! allows, and much that it does not, and holds each answer against it.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::Command;
use stockade_e2e::{Server, http, missing};

const SALE: &str = r#"{"sale":1,"name":"api","opens_at":"now","hold_ms":600000,
    "skus":[{"sku":1001,"stock":100000}]}"#;

/// Where `tests/run.sh` puts it, else the one on the path.
fn schemathesis() -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../target/tools/schemathesis/bin/schemathesis");
    [own, PathBuf::from("schemathesis")]
        .into_iter()
        .find(|program| Command::new(program).arg("--version").output().is_ok())
}

#[test]
fn http_answers_as_its_document_says() {
    let Some(program) = schemathesis() else { return missing("schemathesis (PyPI)") };
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &["--shards", "2"]);
    server.resp().call(&["STOCK.SALE.PUT", SALE]).unwrap();
    let document = format!("http://{}/openapi.json", server.http());
    // The stream of a sale does not end; it has its own test.
    let output = Command::new(program)
        .current_dir(dir.path())
        .args(["run", &document, "--exclude-path", "/v1/sales/{sale}/events"])
        .args(["--max-examples", "25", "--seed", "1", "--no-color"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn every_path_of_the_document_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &["--shards", "1"]);
    let answer = http::request(server.http(), "GET", "/openapi.json", &[], "").unwrap();
    let document = answer.json();
    let paths = document["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 10);
    for (path, methods) in paths {
        let path = path.replace("{sale}", "1").replace("{order}", "1");
        for method in methods.as_object().unwrap().keys().filter(|key| *key != "parameters") {
            let method = method.to_uppercase();
            let answer = http::request(server.http(), &method, &path, &[], "").unwrap();
            let text = answer.body;
            assert!(!text.contains("there is no such path"), "{method} {path}: {text}");
            assert_ne!(answer.status, 405, "{method} {path}");
        }
    }
}
