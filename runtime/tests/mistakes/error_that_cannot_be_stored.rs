//! says: `Declined` cannot be the error of an activity or a workflow
//! says: it is stored and shown: it needs `Serialize`, `Deserialize` and `Display`
//! says: impl TypedError for Declined {}
use millrun::prelude::*;

#[derive(Debug)]
struct Declined;

const CHARGE: Activity<u64, u64, Declined> = Activity::named("charge");

async fn charge(_cx: ActivityContext, _cents: u64) -> Result<u64, Declined> {
    Err(Declined)
}

fn main() {
    let _builder = Runtime::volatile().register(CHARGE, charge);
}
