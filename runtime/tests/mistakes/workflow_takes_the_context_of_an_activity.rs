//! says: expected function signature `fn(WorkflowContext, u64) -> _`
//! says: found function signature `fn(ActivityContext, u64) -> _`
use millrun::prelude::*;

const ORDER: Workflow<u64, u64> = Workflow::named("order");

async fn order(_cx: ActivityContext, number: u64) -> Result<u64, WorkflowError> {
    Ok(number)
}

fn main() {
    let _builder = Runtime::volatile().register(ORDER, order);
}
