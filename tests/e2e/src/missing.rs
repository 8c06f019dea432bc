//! A test whose real counterpart is not installed: said loudly, and a failure in CI.

/// Says that the test did not run; fails it if `STOCKADE_TESTS_STRICT` is set, as `tests/run.sh`
/// does.
///
/// # Panics
/// In strict runs.
pub fn missing(what: &str) {
    assert!(std::env::var_os("STOCKADE_TESTS_STRICT").is_none(), "NOT RUN: {what} is missing");
    eprintln!("NOT RUN: {what} is missing");
}
