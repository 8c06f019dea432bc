#!/usr/bin/env bash
# Format, lints, documentation and dependency checks. Installs cargo-deny from crates.io if it is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

step() { printf '\n== %s\n' "$*"; }

step "format"
cargo fmt --all --check

step "clippy, warnings are errors"
cargo clippy --workspace --all-targets --locked -- -D warnings

step "documentation, warnings are errors"
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet

step "dependencies: licences, sources, bans"
if ! command -v cargo-deny >/dev/null; then
    # A debug build: it runs once and for a second, so its compile time is what counts.
    CARGO_PROFILE_DEV_DEBUG=0 cargo install cargo-deny --locked --debug --quiet
fi
cargo deny --locked --log-level error check bans licenses sources
