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

# Crashes at length: SEEDS simulated power cuts, disk errors, damage, KILLS kills of a process that
# appends (another process checks what it finds), then a program killed in the middle of its work.
# The power cuts take three minutes of one processor and 18 MB, the kills about ten minutes.
crash SEEDS="20000" KILLS="2000":
    MILLRUN_CRASH_SEEDS={{SEEDS}} MILLRUN_KILLS={{KILLS}} cargo test --release -p millrun-persistence --test it -- --nocapture crash
    cargo test --workspace --exclude millrun-persistence -- crash kill
    cargo run --release -- demo --crash

# The pipeline of `examples/pipeline.rs`, killed with SIGKILL at KILLS moments that a SEED chooses, while orders come in; judged by
# a ledger of its customers, in another process. Two hundred kills take about a minute.
pipeline KILLS="200" SEED="1":
    MILLRUN_KILLS={{KILLS}} MILLRUN_PIPELINE_SEED={{SEED}} cargo test --release -p millrun-examples --test it -- --nocapture pipeline

# The seeded world at length: parts killed at every step, SEEDS programs (or FIRST+SEEDS). A seed that fails is
# printed with its last steps: `just world 417+1`.
world SEEDS="50000":
    MILLRUN_WORLD_SEEDS={{SEEDS}} cargo test --release -p millrun --test it -- --nocapture lives::whatever

# Partitions that move between two runtimes under 1,024 callers, SEEDS programs (or FIRST+SEEDS).
moving SEEDS="500":
    MILLRUN_MOVING_SEEDS={{SEEDS}} cargo test --release -p millrun --test it -- --nocapture moving::

# Three nodes on the database of this URL, killed KILLS times among 100,000 workflows.
crash-nodes URL KILLS="50" *ARGS:
    cargo run --release -p millrun-node --features postgres -- demo --crash --store {{quote(URL)}} --kills {{KILLS}} {{ARGS}}

# Two nodes on a PostgreSQL server with a synchronous standby: the server is killed and the standby promoted ROUNDS times, and all that was
# acknowledged must be there. Tells how long after a promotion runs ended again.
failover ROUNDS="20":
    MILLRUN_POSTGRES_FAILOVERS={{ROUNDS}} cargo test --release -p millrun-postgres --test it -- --nocapture standby::

# The whole runtime under load, with everything around it breaking, for about SECONDS; judged by a ledger
# in another process (see chaos/README.md). `--seed N`, `--only parts` and others: `--help`.
chaos SECONDS="60" *ARGS:
    cargo run --release -p millrun-chaos -- run --seconds {{SECONDS}} {{ARGS}}

# Plants each repaired mistake again, or the one of this NAME, in a copy of the tree, and expects its test and
# the chaos suite to find it.
planted *NAME:
    cargo run --release -p millrun-chaos -- planted {{NAME}}

# FLIPS single bits flipped in a store that was killed, one region of the file after the other, by a
# flipper that shares no code with the store: how many runs a salvage brings back, per region.
salvage FLIPS="700":
    MILLRUN_SALVAGE_FLIPS={{FLIPS}} cargo test --release -p millrun-persistence --test it -- --nocapture salvage::

# Coverage-guided fuzzing of one decoder (see fuzz/README.md), for SECONDS or until stopped:
# `just fuzz row 60`. Without cargo-fuzz and a nightly compiler: the same function on stable Rust.
fuzz TARGET SECONDS="0":
    #!/usr/bin/env bash
    set -euo pipefail
    if cargo fuzz --version && rustup run nightly rustc --version; then
        cargo +nightly fuzz run --fuzz-dir fuzz {{TARGET}} -- -max_total_time={{SECONDS}} -max_len=65536
    else
        echo "for coverage-guided fuzzing: rustup toolchain install nightly; cargo install cargo-fuzz" >&2
        just fuzz-stable
    fi

# All decoders on stable Rust: the corpus, and CASES random mutations for each.
fuzz-stable CASES="2000000":
    MILLRUN_FUZZ_CASES={{CASES}} cargo test --release -p millrun-persistence -p millrun-workflow -p millrun-broker -p millrun --test it -- fuzz::

# CASES random inputs for each property test whose name contains TARGET: `just properties decode`.
properties TARGET CASES="1000000":
    PROPTEST_CASES={{CASES}} cargo test --release --workspace -- {{TARGET}}

# The types that share memory between threads, under every interleaving.
loom:
    RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test --release -p millrun-core -p millrun-broker --lib loom

# Licences, sources and advisories of the dependencies (needs cargo-deny).
deny:
    cargo deny check

# The page over RUNS live runs, in a browser (see http/README.md): when each part can be used, its nodes and heap.
page RUNS="1000000":
    MILLRUN_REQUIRE=browser MILLRUN_PAGE_RUNS={{RUNS}} cargo test --release -p millrun-http --all-features --test browser -- --nocapture crowded soon long

# Requests that schemathesis makes of the OpenAPI document, for SECONDS, with this SEED, against the program
# (`.ci/setup-schemathesis FOLDER` installs it; FOLDER/bin must be in the PATH).
api SECONDS="60" SEED="1":
    cargo build --release -p millrun-node
    .ci/check-api {{SECONDS}} {{SEED}}

# Exactly what the build machine runs.
ci:
    .ci/run

# Messages per second from actor to actor through a topic, beside other actor libraries.
# `--quick` takes less than a minute; `--help` lists the rest.
bench-a2a *ARGS:
    cargo run --release -p millrun-benches --bin bench-a2a -- {{ARGS}}

# Durable workflows per second, and how long one takes; memory of those that wait, recovery after a
# kill, replay, signals, timers.
bench-workflows *ARGS:
    cargo run --release -p millrun-benches --bin bench-workflows -- {{ARGS}}

# Events per second that the journal makes durable, beside redb and fdatasync alone; recovery; a
# fixed pace for long.
bench-journal *ARGS:
    cargo run --release -p millrun-benches --bin bench-journal -- {{ARGS}}

# The Fibonacci workloads that other engines publish, with their figures beside ours.
bench-fibo *ARGS:
    cargo run --release -p millrun-benches --bin bench-fibo -- {{ARGS}}

# A sweep over concurrency, with the system's allocator and with mimalloc; a level that fails does not
# keep the other allocator from its turn.
bench-peak *ARGS:
    #!/usr/bin/env bash
    set -uo pipefail
    trap 'exit 130' INT TERM
    status=0
    cargo run --release -p millrun-benches --bin bench-peak -- {{ARGS}} || status=$?
    [ "$status" -lt 2 ] || exit "$status" # the arguments are wrong, or it was interrupted
    cargo run --release -p millrun-benches --features mimalloc --bin bench-peak -- {{ARGS}} || status=$?
    exit "$status"

# Simple, parallel and pipeline workflows: `--iterations`, `--concurrency`.
bench-patterns *ARGS:
    cargo run --release -p millrun-benches --bin bench-patterns -- {{ARGS}}

# How cost grows: waiting instances, long histories, checkpoints, threads, payloads, minutes under load.
bench-scale *ARGS:
    cargo run --release -p millrun-benches --bin bench-scale -- {{ARGS}}

# The HTTP routes under load, beside axum's hello world and beside calls in the same process. With `--minutes 10`
# also whether memory stays where it is.
bench-http *ARGS:
    cargo run --release -p millrun-benches --bin bench-http -- {{ARGS}}

# Entities: commands over many keys and to one, beside signals to one run and runs of one step.
bench-entities *ARGS:
    cargo run --release -p millrun-benches --bin bench-entities -- {{ARGS}}

# Nodes on PostgreSQL, with a server of its own where PostgreSQL is installed: runs beside bare statements, an idle node, a
# server and a node that are killed.
bench-scale-out *ARGS:
    cargo run --release -p millrun-benches --features scale-out --bin bench-scale-out -- {{ARGS}}

# Durable topics: publishes beside the journal's own appends, and beside NATS JetStream where nats-server is installed; a
# reader's wait, catching up, acknowledgements, workflows by records, a subscription that is stuck.
bench-topics *ARGS:
    #!/usr/bin/env bash
    set -euo pipefail
    if command -v nats-server >/dev/null; then
        cargo build --release --manifest-path benches/peers/jetstream/Cargo.toml
        export MILLRUN_BENCH_JETSTREAM=${CARGO_TARGET_DIR:-benches/peers/jetstream/target}/release/bench-peer-jetstream
    fi
    cargo run --release -p millrun-benches --bin bench-topics -- {{ARGS}}

# The same workloads on engines that can be embedded as well, run live; each builds on its own. The
# last table has all of them beside each other. One that does not build or fails is left out, and said.
bench-peers *ARGS:
    #!/usr/bin/env bash
    set -uo pipefail
    trap 'exit 130' INT TERM
    left_out=()
    run() {
        local status=0
        ${under:-} cargo run --release "${@:2}" -- {{ARGS}} || status=$?
        [ "$status" -eq 2 ] || [ "$status" -eq 130 ] && exit "$status" # wrong arguments, or interrupted
        [ "$status" -eq 0 ] || left_out+=("$1")
    }
    run millrun -p millrun-benches --bin bench-workflows
    run duroxide --manifest-path benches/peers/duroxide/Cargo.toml
    run cloacina --manifest-path benches/peers/cloacina/Cargo.toml
    run durare --manifest-path benches/peers/durare/Cargo.toml
    under=benches/peers/dbos/with-postgres run dbos --manifest-path benches/peers/dbos/Cargo.toml
    cargo run --release -p millrun-benches --bin bench-report
    [ "${#left_out[@]}" -eq 0 ] || { echo "not run, or not to its end: ${left_out[*]}" >&2; exit 1; }

# Instructions of the hot paths, counted by valgrind's callgrind: a guard that no noise can reach.
bench-instructions *ARGS:
    cargo run --release -p millrun-benches --bin bench-instructions -- {{ARGS}}

# Where the instructions of a one-step run go (needs valgrind), and the microseconds of a durable one
# (needs perf): the tables of docs/performance.md.
where:
    cargo run --release -p millrun-benches --bin bench-instructions -- --breakdown one-step
    cargo run --release -p millrun-benches --bin bench-instructions -- --times

# One HTML page and one Markdown file of all results so far; prints engines and allocators beside each
# other.
bench-report *ARGS:
    cargo run --release -p millrun-benches --bin bench-report -- {{ARGS}}

# What moved by more than the noise between two folders of results.
bench-compare BEFORE AFTER *ARGS:
    cargo run --release -p millrun-benches --bin bench-compare -- {{BEFORE}} {{AFTER}} {{ARGS}}

# A flame graph of a benchmark program, target/bench/flame-SUITE.svg (needs perf):
# `just profile workflows --quick --only one-step`.
profile SUITE *ARGS:
    cargo build --release -p millrun-benches --bin bench-{{SUITE}}
    cargo run --release -p millrun-benches --bin bench-profile -- {{SUITE}} {{ARGS}}
