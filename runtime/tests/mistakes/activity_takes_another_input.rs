//! says: expected function signature `fn(ActivityContext, String) -> _`
//! says: found function signature `fn(ActivityContext, u64) -> _`
use millrun::prelude::*;

const GREET: Activity<String, String> = Activity::named("greet");

async fn greet(_cx: ActivityContext, name: u64) -> Result<String, ActivityError> {
    Ok(name.to_string())
}

fn main() {
    let _builder = Runtime::volatile().register(GREET, greet);
}
