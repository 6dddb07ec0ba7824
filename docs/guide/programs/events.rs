//! Topics: a workflow publishes, others listen, and envelopes start and signal workflows.

use std::error::Error;

use millrun::broker::{Overflow, SubscriptionConfig};
use millrun::prelude::*;
use millrun::workflow::PublishOutcome;

// ANCHOR: publish
const PLACED: Topic<u64> = Topic::named("orders.eu.placed");
const ORDER: Workflow<u64, ()> = Workflow::named("order");

async fn order(cx: WorkflowContext, number: u64) -> Result<(), WorkflowError> {
    // After a crash at the wrong moment nobody knows whether it was heard: say it again.
    while cx.publish(PLACED, number).await? == PublishOutcome::Unknown {}
    Ok(())
}
// ANCHOR_END: publish

const PACKED: Topic<u64> = Topic::named("parcels.packed");
const PARCEL: Workflow<u64, ()> = Workflow::named("parcel");

async fn parcel(cx: WorkflowContext, number: u64) -> Result<(), WorkflowError> {
    while cx.publish(PACKED, number).await? == PublishOutcome::Unknown {}
    Ok(())
}

// ANCHOR: bill
const BILL: Workflow<usize, ()> = Workflow::named("bill");
const FULL: Topic<Vec<u64>> = Topic::named("bills.full");
const ITEM: Signal<u64> = Signal::named("item");

/// Collects `len` orders on one bill.
async fn bill(cx: WorkflowContext, len: usize) -> Result<(), WorkflowError> {
    let mut orders = Vec::new();
    while orders.len() < len {
        orders.push(cx.receive(ITEM).await?);
    }
    while cx.publish(FULL, orders.clone()).await? == PublishOutcome::Unknown {}
    Ok(())
}
// ANCHOR_END: bill

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // ANCHOR: topic
    let runtime = Runtime::volatile()
        .topic(PLACED) // workflows publish to the topics that their runtime knows
        .topic(PACKED)
        .topic(FULL)
        .register(ORDER, order)
        .register(PARCEL, parcel)
        .register(BILL, bill)
        .start()
        .await?;
    // ANCHOR_END: topic

    // ANCHOR: subscribe
    // `*` stands for one word of a name, `>` for the rest.
    let mut placed = runtime
        .broker()
        .subscribe::<u64>("orders.*.placed", SubscriptionConfig::default())?
        .into_receiver();
    // This one is shown the latest orders, and nobody waits for it.
    let config = SubscriptionConfig {
        name: "dashboard".into(),
        overflow: Overflow::DropOldest,
        ..SubscriptionConfig::default()
    };
    let dashboard = runtime.broker().subscribe::<u64>("orders.>", config)?;
    // ANCHOR_END: subscribe
    let config = SubscriptionConfig::default;
    let mut packed = runtime
        .broker()
        .subscribe::<u64>(PACKED.name(), config())?
        .into_receiver();
    let mut full = runtime
        .broker()
        .subscribe::<Vec<u64>>(FULL.name(), config())?
        .into_receiver();

    // ANCHOR: triggers
    let to_parcels = runtime.on(PLACED).start(PARCEL, |placed| {
        (format!("parcel-{}", placed.payload()), *placed.payload())
    })?;
    let to_bills = runtime
        .on(PLACED)
        .on_conflict(OnConflict::RestartFinished) // a bill that is full is followed by another
        .start_with_signal(BILL, ITEM, |placed| ("bill-ada".into(), 2, *placed.payload()))?;
    // ANCHOR_END: triggers

    for number in [1, 2] {
        let id = format!("order-{number}");
        runtime.start(ORDER, &id, number).await?.result().await?;
    }
    // ANCHOR: receive
    while let Some(envelope) = placed.recv().await {
        println!("order {} is placed", envelope.payload());
        if *envelope.payload() == 2 {
            break;
        }
    }
    // ANCHOR_END: receive
    let shown: Vec<u64> = dashboard.take().map(|envelope| *envelope.payload()).collect();
    println!("the dashboard shows {shown:?}");

    // A publisher outside of workflows. It has its answer when every subscription has taken the value.
    // ANCHOR: outside
    let mut publisher = runtime.broker().topic::<u64>("orders.us.placed")?.publisher();
    let published = publisher.publish(3).await?;
    println!("{} subscriptions heard of order 3", published.delivered);
    // ANCHOR_END: outside

    // What the two triggers led to is told by topics as well.
    let mut parcels =
        [packed.recv().await, packed.recv().await].map(|envelope| envelope.map(|it| *it.payload()));
    parcels.sort_unstable();
    println!("packed: {parcels:?}");
    if let Some(envelope) = full.recv().await {
        println!("the bill has orders {:?}", envelope.payload());
    }
    println!("refused: {}", to_parcels.refused() + to_bills.refused());
    runtime.shutdown().await?;
    Ok(())
}
