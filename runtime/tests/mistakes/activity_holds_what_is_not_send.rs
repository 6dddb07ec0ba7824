//! says: future cannot be sent between threads safely
//! says: has type `Rc<u64>` which is not `Send`
use std::rc::Rc;

use millrun::prelude::*;

const WAIT: Activity<u64, u64> = Activity::named("wait");

async fn wait(_cx: ActivityContext, number: u64) -> Result<u64, ActivityError> {
    let number = Rc::new(number);
    std::future::ready(()).await;
    Ok(*number)
}

fn main() {
    let _builder = Runtime::volatile().register(WAIT, wait);
}
