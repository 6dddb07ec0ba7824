//! says: ActivityError>` is not a future
use millrun::prelude::*;

const GREET: Activity<String, String> = Activity::named("greet");

fn greet(_cx: ActivityContext, name: String) -> Result<String, ActivityError> {
    Ok(name)
}

fn main() {
    let _builder = Runtime::volatile().register(GREET, greet);
}
