# Messages per second from actor to actor through a topic, beside other actor libraries.
# `--quick` takes less than a minute; `--help` lists the rest.
bench-a2a *ARGS:
    cargo run --release -p millrun-benches --bin bench-a2a -- {{ARGS}}
