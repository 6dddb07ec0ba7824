//! How many instructions does the engine take for a workflow of one step?
//!
//! Runs 10,000 of them, to be counted from outside, where the count does not depend on the load
//! of the machine: `valgrind --tool=callgrind target/release/deps/instructions-*`.

mod one_step;
use one_step::Bench;

fn main() {
    const RUNS: usize = 10_000;
    let mut one = Bench::new(1);
    let bytes: usize = (0..RUNS).map(|_| one.run()).sum();
    println!("{RUNS} runs, {} bytes of history each", bytes / RUNS);
}
