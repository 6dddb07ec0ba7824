//! A cart that is asked and changed while it lives, and that ends by itself when it is full.
//!
//! Run it twice: the second time the cart has ended. It gives the answers it gave before, and takes
//! nothing new.

use millrun::{Query, RunError, Runtime, Update, UpdateError, Workflow, WorkflowContext, WorkflowError};

const CART: Workflow<usize, Vec<String>> = Workflow::named("cart");
const LEN: Query<Vec<String>, (), usize> = Query::named("len");
const ADD: Update<Vec<String>, String, usize> = Update::named("add");

async fn cart(cx: WorkflowContext, full: usize) -> Result<Vec<String>, WorkflowError> {
    let items = cx.state(Vec::new());
    items.until(move |items| items.len() >= full).await?;
    Ok(items.read(Vec::clone))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let answering = CART
        .query(LEN, |items, ()| items.len())
        .update(ADD)
        .validate(|items, item| match items.contains(item) {
            true => Err(WorkflowError::failed(format!("{item} is there already"))),
            false => Ok(()),
        })
        .change(|items, item| {
            items.push(item);
            items.len()
        });
    let runtime = Runtime::open("cart.redb")
        .register(answering, cart)
        .start()
        .await?;
    let cart = runtime.start(CART, "ada", 3).await?;
    for (request, item) in [
        ("r1", "bread"),
        ("r2", "milk"),
        ("r1", "bread"),
        ("r3", "bread"),
        ("r4", "tea"),
    ] {
        // Repeated under the same name, a request is performed once and answered again.
        match cart.update_as(ADD, request, item.to_string()).await {
            Ok(len) => println!("{request}: {item} is number {len}"),
            Err(UpdateError::Rejected(error)) => println!("{request}: {error}"),
            Err(UpdateError::Run(RunError::Finished)) => println!("{request}: the cart is full"),
            Err(error) => return Err(error.into()),
        }
    }
    println!("{} of {:?}", cart.query(LEN, ()).await?, cart.result().await?);
    runtime.shutdown().await?;
    Ok(())
}
