//! says: adding `#[derive(serde::Deserialize)]` to your `Order` type
use millrun::prelude::*;

struct Order;

const SHIP: Workflow<Order, ()> = Workflow::named("ship");

async fn ship(_cx: WorkflowContext, _order: Order) -> Result<(), WorkflowError> {
    Ok(())
}

fn main() {
    let _builder = Runtime::volatile().register(SHIP, ship);
}
