//! A saga: what was done is undone in reverse when a later step fails, or the run is cancelled.

use std::error::Error;

use millrun::prelude::*;
use millrun::workflow::Saga;

const RESERVE: Activity<String, u64> = Activity::named("warehouse.reserve");
const RELEASE: Activity<u64, ()> = Activity::named("warehouse.release");
const CHARGE: Activity<u64, String> = Activity::named("payments.charge");
const PICKED_UP: Signal<()> = Signal::named("picked-up");
const ORDER: Workflow<Vec<String>, String> = Workflow::named("order");

async fn reserve(_cx: ActivityContext, item: String) -> Result<u64, ActivityError> {
    println!("{item} reserved");
    Ok(item.len() as u64)
}

async fn release(_cx: ActivityContext, shelf: u64) -> Result<(), ActivityError> {
    println!("shelf {shelf} released");
    Ok(())
}

async fn charge(_cx: ActivityContext, items: u64) -> Result<String, ActivityError> {
    match items {
        3.. => Err(ActivityError::fatal("the card was declined")),
        _ => Ok("charged".into()),
    }
}

// ANCHOR: steps
async fn steps(cx: &WorkflowContext, saga: &mut Saga, items: Vec<String>) -> Result<String, WorkflowError> {
    let len = items.len() as u64;
    for item in items {
        cx.check_cancelled()?;
        // Shielded: a request to cancel does not cut off a call that may have reserved something already.
        let shelf = cx.shielded().call(RESERVE, item).await?;
        saga.push(async move |cx| Ok(cx.call(RELEASE, shelf).await?));
    }
    let charged = cx.call(CHARGE, len).await?;
    cx.receive(PICKED_UP).await?;
    Ok(charged)
}
// ANCHOR_END: steps

// ANCHOR: order
async fn order(cx: WorkflowContext, items: Vec<String>) -> Result<String, WorkflowError> {
    let mut saga = cx.saga();
    let done = steps(&cx, &mut saga, items).await;
    match done {
        Ok(_) => saga.complete(),           // nothing is undone
        Err(_) => saga.compensate().await?, // the last step first, also in a run that was cancelled
    }
    done
}
// ANCHOR_END: order

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::volatile()
        .register(RESERVE, reserve)
        .register(RELEASE, release)
        .register(CHARGE, charge)
        .register(ORDER, order)
        .start()
        .await?;
    let items = |text: &str| text.split(' ').map(String::from).collect::<Vec<_>>();

    let run = runtime.start(ORDER, "order-1", items("bread tea")).await?;
    run.signal(PICKED_UP, ()).await?;
    println!("order-1: {}", run.result().await?);

    let run = runtime.start(ORDER, "order-2", items("bread milk tea")).await?;
    if let Err(error) = run.result().await {
        println!("order-2: {error}");
    }

    // ANCHOR: cancel
    let run = runtime.start(ORDER, "order-3", items("bread tea")).await?;
    run.until_described(|run| run.awaits(PICKED_UP.name())).await?;
    run.cancel("the customer has changed her mind").await?;
    match run.result().await {
        Err(millrun::ResultError::Cancelled(error)) => println!("order-3: {error}"),
        other => println!("order-3: {other:?}"),
    }
    // ANCHOR_END: cancel
    runtime.shutdown().await?;
    Ok(())
}
