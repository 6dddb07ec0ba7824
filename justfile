# The daily loop. `just` lists what there is.
default:
    @just --list --unsorted

# Format, clippy, documentation and unit tests: before every commit.
check:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --all-features -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --all-features
    cargo test --workspace --lib --bins

# Everything that is deterministic.
test:
    cargo test --workspace

# Power cuts, kills and restarts: the tests about crashes, then a program killed in the middle of its work.
crash:
    cargo test --workspace -- crash kill
    cargo run --release -- demo --crash

# A million random inputs for each property test whose name contains TARGET: `just fuzz decode`.
fuzz TARGET CASES="1000000":
    PROPTEST_CASES={{CASES}} cargo test --release --workspace -- {{TARGET}}

# The types that share memory between threads, under every interleaving.
loom:
    RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test --release -p millrun-broker --lib loom

# Licences, sources and advisories of the dependencies (needs cargo-deny).
deny:
    cargo deny check

# Exactly what the build machine runs.
ci:
    .ci/run

# Messages per second from actor to actor through a topic, beside other actor libraries.
# `--quick` takes less than a minute; `--help` lists the rest.
bench-a2a *ARGS:
    cargo run --release -p millrun-benches --bin bench-a2a -- {{ARGS}}

# Durable workflows per second, and how long one takes.
bench-workflows *ARGS:
    cargo run --release -p millrun-benches --bin bench-workflows -- {{ARGS}}
