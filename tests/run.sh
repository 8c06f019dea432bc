#!/usr/bin/env bash
# Installs what the tests need if it is missing, then runs all of them.
# A test that could not run counts as failed (STOCKADE_TESTS_STRICT=1).
set -euo pipefail
cd "$(dirname "$0")/.."
export STOCKADE_TESTS_STRICT=1

step() { printf '\n== %s\n' "$*"; }
have() { command -v "$1" >/dev/null 2>&1; }

install_packages() {
    local missing=()
    have cc || missing+=(gcc libc6-dev)
    have python3 || missing+=(python3)
    have redis-cli || missing+=(redis-tools)
    have curl || missing+=(curl)
    # The Redis clients of other languages (tests/e2e/clients).
    /usr/bin/python3 -c 'import redis' 2>/dev/null || missing+=(python3-redis)
    ruby -e 'require "redis"' 2>/dev/null || missing+=(ruby ruby-redis)
    php -r 'exit(class_exists("Redis") ? 0 : 1);' 2>/dev/null || missing+=(php-cli php-redis)
    [ -e /usr/include/hiredis/hiredis.h ] || missing+=(libhiredis-dev)
    have node || missing+=(nodejs)
    have npm || missing+=(npm)
    if [ ${#missing[@]} -eq 0 ]; then return; fi
    step "installing ${missing[*]}"
    local sudo=()
    if [ "$(id -u)" -ne 0 ]; then sudo=(sudo); fi
    "${sudo[@]}" apt-get update -qq
    DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get install -y -qq --no-install-recommends \
        "${missing[@]}"
}

install_packages

step "Redis clients from npm"
(cd tests/e2e/clients/node && npm ci --no-audit --no-fund --loglevel=error)

step "programs that the process tests start (release, as users run them)"
cargo build --workspace --bins --release --locked

step "unit, table, property and process tests"
if cargo nextest --version >/dev/null 2>&1; then
    cargo nextest run --workspace --all-targets --locked
else
    cargo test --workspace --all-targets --locked
fi

step "examples in the documentation"
cargo test --workspace --doc --locked
