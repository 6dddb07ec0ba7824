//! says: resolves to `Result<u64, ActivityError>`
//! says: std::io::Error>`
use millrun::prelude::*;

const READ: Activity<String, u64> = Activity::named("read");

async fn read(_cx: ActivityContext, path: String) -> Result<u64, std::io::Error> {
    Ok(std::fs::metadata(path)?.len())
}

fn main() {
    let _builder = Runtime::volatile().register(READ, read);
}
