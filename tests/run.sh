#!/usr/bin/env bash
# Installs what the tests need if it is missing, then runs all of them.
# A test that could not run counts as failed (STOCKADE_TESTS_STRICT=1).
set -euo pipefail
cd "$(dirname "$0")/.."
export STOCKADE_TESTS_STRICT=1

step() { printf '\n== %s\n' "$*"; }
have() { command -v "$1" >/dev/null 2>&1; }

# The tests start their own servers; the packages must not leave one running.
policy=/usr/sbin/policy-rc.d
without_services() {
    [ ! -e "$policy" ] || return 0
    made_policy=yes
    trap with_services EXIT
    printf '#!/bin/sh\nexit 101\n' | "${sudo[@]}" tee "$policy" >/dev/null
    "${sudo[@]}" chmod 755 "$policy"
}
with_services() {
    [ "${made_policy:-no}" = yes ] || return 0
    made_policy=no
    "${sudo[@]}" rm -f "$policy"
}

sudo=()
if [ "$(id -u)" -ne 0 ]; then sudo=(sudo); fi

install_packages() {
    local missing=()
    have cc || missing+=(gcc libc6-dev)
    python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3 python3-venv)
    have redis-cli || missing+=(redis-tools)
    have curl || missing+=(curl)
    # The Redis clients of other languages (tests/e2e/clients).
    /usr/bin/python3 -c 'import redis' 2>/dev/null || missing+=(python3-redis)
    ruby -e 'require "redis"' 2>/dev/null || missing+=(ruby ruby-redis)
    php -r 'exit(class_exists("Redis") ? 0 : 1);' 2>/dev/null || missing+=(php-cli php-redis)
    [ -e /usr/include/hiredis/hiredis.h ] || missing+=(libhiredis-dev)
    have node || missing+=(nodejs)
    have npm || missing+=(npm)
    ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing+=(postgresql)
    [ -x /usr/sbin/mariadbd ] || missing+=(mariadb-server)
    if [ ${#missing[@]} -eq 0 ]; then return; fi
    step "installing ${missing[*]}"
    "${sudo[@]}" apt-get update -qq
    without_services
    DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get install -y -qq --no-install-recommends \
        "${missing[@]}"
    with_services
}

install_packages

step "Redis clients from npm"
(cd tests/e2e/clients/node && npm ci --no-audit --no-fund --loglevel=error)

step "schemathesis, which holds HTTP against its document"
tools=target/tools/schemathesis
if [ ! -x "$tools/bin/schemathesis" ]; then
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet --disable-pip-version-check schemathesis==4.32.5
fi

step "programs that the process tests start (release, as users run them)"
cargo build --workspace --bins --release --locked

step "unit, table, property and process tests"
if cargo nextest --version >/dev/null 2>&1; then
    cargo nextest run --workspace --all-targets --locked
else
    cargo test --workspace --all-targets --locked
fi

step "the pool under loom and shuttle (half a minute each to build, seconds to run)"
for model in loom shuttle; do
    CARGO_TARGET_DIR="target/$model" RUSTFLAGS="--cfg $model" \
        timeout 600 cargo test --release --locked -p stockade-core --test "${model}_pool"
done

step "deliberate faults that the simulator must find"
CARGO_TARGET_DIR=target/mutations cargo test --locked -p stockade-sim --features mutations \
    --test mutations -- --nocapture

step "the log's process dies at each named point"
cargo test --locked -p stockade-log --features crash-points --test crash_points

step "examples in the documentation"
cargo test --workspace --doc --locked
