//! says: mismatched types
//! says: expected `String`, found `&str`
use millrun::prelude::*;

const GREET: Workflow<String, String> = Workflow::named("greet");

async fn begin(runtime: &Runtime) {
    let _run = runtime.start(GREET, "g", "ada").await;
}

fn main() {
    let _begin = begin;
}
