//! How long does the engine alone take for a workflow of one step, and of forty?
//!
//! No disk, no threads: machine and encoding only. `cargo bench -p millrun-workflow`.

#![allow(missing_docs, reason = "criterion's macros make public items")]

use criterion::{Criterion, criterion_group, criterion_main};

mod one_step;
use one_step::Bench;

fn workflows(criterion: &mut Criterion) {
    let mut one = Bench::new(1);
    criterion.bench_function("one step", |bencher| bencher.iter(|| one.run()));
    let mut forty = Bench::new(40);
    criterion.bench_function("forty steps", |bencher| bencher.iter(|| forty.run()));
}

criterion_group!(benches, workflows);
criterion_main!(benches);
