//! An actor of one's own that hears what workflows publish: it owns its state, and handles one message at a
//! time.

use std::error::Error;

use millrun::broker::actor::{Attached, attach};
use millrun::broker::{Broker, BrokerConfig, Envelope, Inbox, Publisher, SubscriptionConfig};
use millrun::prelude::*;
use ractor::{Actor, ActorProcessingErr, ActorRef};

const SOLD: Topic<u64> = Topic::named("items.sold");
const ORDER: Workflow<u64, ()> = Workflow::named("order");

async fn order(cx: WorkflowContext, items: u64) -> Result<(), WorkflowError> {
    cx.publish(SOLD, items).await?;
    Ok(())
}

// ANCHOR: actor
/// Counts what is left on the shelf, and says when it is empty.
struct Shelf;

struct Stock {
    left: u64,
    sold: Attached<Envelope<u64>>,
    empty: Publisher<()>,
}

/// The only message: envelopes wait in the inbox.
struct ItemsSold;

impl Actor for Shelf {
    type Msg = ItemsSold;
    type State = Stock;
    type Arguments = (u64, Inbox<Envelope<u64>>, Publisher<()>);

    async fn pre_start(
        &self,
        myself: ActorRef<ItemsSold>,
        (left, inbox, empty): Self::Arguments,
    ) -> Result<Stock, ActorProcessingErr> {
        let sold = attach(inbox, &myself, || ItemsSold);
        Ok(Stock { left, sold, empty })
    }

    async fn handle(
        &self,
        _: ActorRef<ItemsSold>,
        ItemsSold: ItemsSold,
        stock: &mut Stock,
    ) -> Result<(), ActorProcessingErr> {
        let mut sold = stock.sold.turn();
        while let Some(envelope) = sold.next() {
            sold.announce(); // what is published from here on names this envelope as its cause
            let left = stock.left.checked_sub(*envelope.payload());
            stock.left = left.ok_or("more was sold than there is")?;
            println!("{} left", stock.left);
            if stock.left == 0 {
                stock.empty.publish(()).await?;
            }
        }
        Ok(())
    }
}
// ANCHOR_END: actor

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // ANCHOR: wiring
    // The broker is there before the runtime, so that the actor misses nothing that recovered runs publish.
    let broker = Broker::without_host(BrokerConfig::default());
    let sold = broker.subscribe::<u64>("items.sold", SubscriptionConfig::default())?;
    let mut empty = broker
        .subscribe::<()>("shelf.empty", SubscriptionConfig::default())?
        .into_receiver();
    let says_empty = broker.topic::<()>("shelf.empty")?;

    let builder = Runtime::volatile().broker(broker).topic(SOLD);
    let runtime = builder.register(ORDER, order).start().await?;
    // Called for the first actor, and for each that takes the place of one that failed.
    runtime.supervise("shelf", move || {
        (Shelf, (5, sold.clone(), says_empty.publisher()))
    })?;
    // ANCHOR_END: wiring
    for (id, items) in [("order-1", 2), ("order-2", 9), ("order-3", 1), ("order-4", 4)] {
        runtime.start(ORDER, id, items).await?.result().await?;
    }
    if empty.recv().await.is_some() {
        println!("the shelf is empty");
    }
    // ANCHOR: parts
    for part in runtime.parts() {
        if part.name == "actor shelf" {
            println!("{}: restarted {} time", part.name, part.restarts);
        }
    }
    runtime.shutdown().await?; // actors are drained when the runs, which publish, have ended
    // ANCHOR_END: parts
    Ok(())
}
