//! State that is asked and changed from outside while the run lives.

use std::error::Error;

use futures_util::future::join;
use millrun::UpdateError;
use millrun::prelude::*;

// ANCHOR: definitions
#[derive(Default)]
struct Cart {
    items: Vec<String>,
    is_ordered: bool,
}

const CART: Workflow<(), Vec<String>> = Workflow::named("cart");
const LEN: Query<Cart, (), usize> = Query::named("len");
const ADD: Update<Cart, String, usize> = Update::named("add");
const ORDER: Update<Cart, (), ()> = Update::named("order");
// ANCHOR_END: definitions

// ANCHOR: workflow
async fn cart(cx: WorkflowContext, (): ()) -> Result<Vec<String>, WorkflowError> {
    let cart = cx.state(Cart::default()); // before the first await
    cart.until(|cart| cart.is_ordered).await?;
    Ok(cart.change(|cart| std::mem::take(&mut cart.items)))
}
// ANCHOR_END: workflow

// ANCHOR: handlers
fn shop() -> millrun::RuntimeBuilder {
    let answering = CART
        .query(LEN, |cart, ()| cart.items.len())
        .update(ADD)
        .validate(|cart, item| match cart.items.contains(item) {
            true => Err(WorkflowError::failed(format!("{item} is in the cart already"))),
            false => Ok(()),
        })
        .change(|cart, item| {
            cart.items.push(item);
            cart.items.len()
        })
        .update(ORDER)
        .change(|cart, ()| cart.is_ordered = true);
    Runtime::volatile().register(answering, cart)
}
// ANCHOR_END: handlers

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let runtime = shop().start().await?;

    // ANCHOR: update
    let cart = runtime.start(CART, "cart-ada", ()).await?;
    println!("bread is number {}", cart.update(ADD, "bread".into()).await?);
    match cart.update(ADD, "bread".into()).await {
        Err(UpdateError::Rejected(why)) => println!("rejected: {why}"),
        other => println!("{other:?}"),
    }
    // ANCHOR_END: update

    // ANCHOR: update_as
    // A request with a name is performed once, however often it is sent.
    for _ in 0..2 {
        println!(
            "milk is number {}",
            cart.update_as(ADD, "request-7", "milk".into()).await?
        );
    }
    // ANCHOR_END: update_as

    // ANCHOR: query
    println!("{} items", cart.query(LEN, ()).await?);
    // One waits until there are three, while the other adds the third.
    let wait = cart.until(LEN, (), |len| *len >= 3);
    let (grown, added) = join(wait, cart.update(ADD, "tea".into())).await;
    println!("number {} was added, and {} are there", added?, grown?);
    // ANCHOR_END: query
    cart.update(ORDER, ()).await?;
    println!("{:?}", cart.result().await?);

    // ANCHOR: with_update
    // Nobody needs to know whether Alan has a cart: one that is not there is started, in the same commit.
    let (cart, len) = runtime
        .start(CART, "cart-alan", ())
        .with_update(ADD, "ink".into())
        .await?;
    println!("{}: {len} item", cart.id());
    // ANCHOR_END: with_update
    runtime.shutdown().await?;
    Ok(())
}
