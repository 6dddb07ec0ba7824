//! says: type mismatch in function arguments
//! says: WorkflowContext, _) -> _`
//! says: ActivityContext, _) -> _`
use millrun::prelude::*;

const ORDER: Workflow<u64, u64> = Workflow::named("order");

async fn order(_cx: ActivityContext, number: u64) -> Result<u64, WorkflowError> {
    Ok(number)
}

fn main() {
    let _builder = Runtime::volatile().register(ORDER, order);
}
