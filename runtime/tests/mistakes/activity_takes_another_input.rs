//! says: type mismatch in function arguments
//! says: ActivityContext, String) -> _`
//! says: ActivityContext, u64) -> _`
use millrun::prelude::*;

const GREET: Activity<String, String> = Activity::named("greet");

async fn greet(_cx: ActivityContext, name: u64) -> Result<String, ActivityError> {
    Ok(name.to_string())
}

fn main() {
    let _builder = Runtime::volatile().register(GREET, greet);
}
