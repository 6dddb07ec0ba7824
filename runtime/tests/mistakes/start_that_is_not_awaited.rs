//! says: nothing is started until this is awaited
#![deny(unused_must_use)]

use millrun::prelude::*;

const GREET: Workflow<u64, u64> = Workflow::named("greet");

fn begin(runtime: &Runtime) {
    runtime.start(GREET, "g", 1);
}

fn main() {
    let _begin = begin;
}
