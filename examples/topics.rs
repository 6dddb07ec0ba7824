//! The broker alone: topics, filters, and what happens when a subscriber is slow.
//!
//! No store, no workflows: the broker is a crate of its own.

use std::error::Error;

use millrun_broker::mailbox::MailboxConfig;
use millrun_broker::{Broker, BrokerConfig, Overflow, SubscriptionConfig, tokio_host};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let broker = Broker::new(BrokerConfig::default(), tokio_host()?);

    // `*` stands for one token of a name, `>` for the rest.
    let mut orders = broker
        .subscribe::<u32>("orders.*.placed", SubscriptionConfig::default())?
        .into_receiver();
    // This one keeps the latest three, and nobody waits for it.
    let latest = SubscriptionConfig {
        inbox: MailboxConfig {
            capacity: 3,
            ..MailboxConfig::default()
        },
        overflow: Overflow::DropOldest,
        ..SubscriptionConfig::default()
    };
    let screen = broker.subscribe::<u32>("orders.>", latest)?;

    // With `Block`, the default, a publisher waits for a slow subscriber. Here 10 fit.
    let mut placed = broker.topic::<u32>("orders.eu.placed")?.publisher();
    for number in 1..=10 {
        placed.publish(number).await?;
    }

    let mut sum = 0;
    while let Some(envelope) = orders.try_recv() {
        sum += envelope.payload();
    }
    println!("the sum of all orders is {sum}");
    let shown: Vec<u32> = screen.take().map(|envelope| *envelope.payload()).collect();
    println!(
        "the screen shows {shown:?}, {} were dropped",
        screen.stats().displaced
    );
    Ok(())
}
