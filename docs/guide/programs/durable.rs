//! Durable topics: records that stay, consumers that go on where they were, and records that nobody can take.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use millrun::prelude::*;
use millrun::topics::{ReadFrom, UndeliveredRecord};
use millrun::{DurableTopic, RuntimeBuilder};

// ANCHOR: declare
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const PLACED: DurableTopic<u64> = Topic::named("orders.placed").durable().age_max(DAY);
const REFUSED: DurableTopic<UndeliveredRecord> = Topic::named("billing.refused").durable();
// ANCHOR_END: declare

// ANCHOR: publish
const ORDER: Workflow<u64, ()> = Workflow::named("order");

async fn order(cx: WorkflowContext, number: u64) -> Result<(), WorkflowError> {
    cx.publish(PLACED, number).await?; // in the commit of this turn: nothing to say again
    Ok(())
}
// ANCHOR_END: publish

const PARCEL: Workflow<u64, ()> = Workflow::named("parcel");
const PACKED: DurableTopic<u64> = Topic::named("parcels.packed").durable();

// ANCHOR: keyed
async fn parcel(cx: WorkflowContext, number: u64) -> Result<(), WorkflowError> {
    let packed = cx.publish(PACKED, number).key(format!("order-{number}"));
    packed.correlation("spring sale").await?;
    Ok(())
}
// ANCHOR_END: keyed

// ANCHOR: open
fn open(store: &Path) -> RuntimeBuilder {
    Runtime::open(store)
        .durable_topic(PLACED)
        .durable_topic(REFUSED)
        .durable_topic(PACKED)
        .register(ORDER, order)
        .register(PARCEL, parcel)
}
// ANCHOR_END: open

async fn story(store: &Path) -> Result<(), Box<dyn Error>> {
    let runtime = open(store).start().await?;
    runtime.start(ORDER, "order-1", 1).await?.result().await?;

    // ANCHOR: outside
    let placed = runtime.durable_topic(PLACED)?;
    let first = placed.publish(&2).key("order-2").id("event-2").await?;
    let again = placed.publish(&2).key("order-2").id("event-2").await?;
    assert_eq!(first.token(), again.token());
    println!("published again: {}", again.is_repeat());
    // ANCHOR_END: outside
    placed.publish(&3).key("order-3").await?;

    // ANCHOR: read
    let mut reader = placed.read(ReadFrom::Beginning).await?;
    let record = reader.next().await?;
    let token = record.token().to_string(); // behind which a reader goes on, also in another process
    println!("the first order is {}, of {:?}", record.payload(), record.key());
    // ANCHOR_END: read

    // ANCHOR: subscribe
    let billing = placed.subscribe("billing").undelivered_to(REFUSED, 2).await?;
    let delivery = billing.next().await?;
    println!("billing has order {}", delivery.payload());
    delivery.ack()?.await?; // kept: it is never given again
    // ANCHOR_END: subscribe

    // ANCHOR: send_back
    for _ in 0..2 {
        let delivery = billing.next().await?;
        let pause = Duration::ZERO;
        delivery.send_back(pause, "the address is missing")?.await?;
    }
    let refused = runtime.durable_topic(REFUSED)?;
    let mut reader = refused.read(ReadFrom::Beginning).await?;
    let record = reader.next().await?.into_payload();
    println!("refused after {} deliveries: {}", record.deliveries, record.error);
    // ANCHOR_END: send_back
    runtime.shutdown().await?;

    // ANCHOR: next
    let runtime = open(store).start().await?;
    let placed = runtime.durable_topic(PLACED)?;
    let mut reader = placed.read(ReadFrom::After(token.parse()?)).await?;
    println!("the reader goes on with order {}", reader.next().await?.payload());

    let billing = placed.subscribe("billing").undelivered_to(REFUSED, 2).await?;
    println!("billing goes on with order {}", billing.next().await?.payload());
    for one in runtime.durable_subscriptions("orders.placed", None, 100).await? {
        println!("{} is behind by {}", one.name, one.status?.lag);
    }
    // ANCHOR_END: next

    // ANCHOR: trigger
    let packing = placed.trigger("packing");
    let packing = packing
        .start(PARCEL, |order| {
            (format!("parcel-{}", order.payload()), *order.payload())
        })
        .await?;
    // ANCHOR_END: trigger
    let mut packed = Vec::new();
    let mut reader = runtime.durable_topic(PACKED)?.read(ReadFrom::Beginning).await?;
    while packed.len() < 3 {
        packed.push(reader.next().await?.into_payload());
    }
    packed.sort_unstable();
    println!("packed: {packed:?}");
    drop(packing);
    runtime.shutdown().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    story(&folder.path().join("shop.redb")).await
}
