# One-line recipes; `.ci/run` runs the same commands.

# Everything CI does.
ci:
    .ci/run

# Format, lints, docs, dependencies.
check:
    tests/check.sh

# All tests; installs what they need if it is missing.
test:
    tests/run.sh

# A real sale on real baskets, from reserve to SQL.
demo:
    cargo run --release --bin stockade-bench -- demo

# kill -9 under load, 200 rounds.
kill-loop rounds="200":
    STOCKADE_KILL_ROUNDS={{rounds}} cargo test --release -p stockade-e2e --test kill_loop -- --nocapture
