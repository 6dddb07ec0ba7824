//! An actor of your own beside durable workflows: it subscribes to a topic, and publishes.
//!
//! The runtime supervises it as it does its own parts. One payment makes the clerk fail: a new clerk goes on with
//! the payments behind that one, since the subscription outlives the actor.
//!
//! ```text
//!   workflow ──► payments.made ──► Clerk (a ractor actor) ──► letters.ready ──► main
//! ```

use std::error::Error;

use millrun::{
    Activity, ActivityContext, ActivityError, Runtime, Topic, Workflow, WorkflowContext, WorkflowError,
};
use millrun_broker::actor::{Attached, attach};
use millrun_broker::{Broker, BrokerConfig, Envelope, Inbox, Publisher, SubscriptionConfig};
use ractor::{Actor, ActorProcessingErr, ActorRef};

const PAY: Activity<u64, u64> = Activity::named("pay");
const MADE: Topic<u64> = Topic::named("payments.made");
const CHECKOUT: Workflow<u64, u64> = Workflow::named("checkout");

async fn checkout(cx: WorkflowContext, cents: u64) -> Result<u64, WorkflowError> {
    let paid = cx.call(PAY, cents).await?;
    cx.publish(MADE, paid).await?;
    Ok(paid)
}

/// A payment of which the clerk cannot write.
const UNLUCKY: u64 = 13;

async fn pay(_cx: ActivityContext, cents: u64) -> Result<u64, ActivityError> {
    Ok(cents)
}

/// Writes a letter for each payment.
struct Clerk;

/// The only message of the clerk: payments wait in its inbox.
struct PaymentsWaiting;

struct Desk {
    payments: Attached<Envelope<u64>>,
    letters: Publisher<String>,
}

impl Actor for Clerk {
    type Msg = PaymentsWaiting;
    type State = Desk;
    type Arguments = (Inbox<Envelope<u64>>, Publisher<String>);

    async fn pre_start(
        &self,
        myself: ActorRef<PaymentsWaiting>,
        (inbox, letters): Self::Arguments,
    ) -> Result<Desk, ActorProcessingErr> {
        Ok(Desk {
            payments: attach(inbox, &myself, || PaymentsWaiting),
            letters,
        })
    }

    async fn handle(
        &self,
        _: ActorRef<PaymentsWaiting>,
        PaymentsWaiting: PaymentsWaiting,
        desk: &mut Desk,
    ) -> Result<(), ActorProcessingErr> {
        let mut payments = desk.payments.turn();
        while let Some(payment) = payments.next() {
            if *payment.payload() == UNLUCKY {
                return Err("13 cents".into());
            }
            payments.announce();
            desk.letters
                .publish(format!("thank you for {} cents", payment.payload()))
                .await?;
        }
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Its clock and its tasks come from the runtime, once that has started.
    let broker = Broker::without_host(BrokerConfig::default());
    let inbox = broker.subscribe::<u64>("payments.*", SubscriptionConfig::default())?;
    let mut letters = broker
        .subscribe::<String>("letters.ready", SubscriptionConfig::default())?
        .into_receiver();
    let ready = broker.topic::<String>("letters.ready")?;

    // The broker was there before the runtime, so nobody misses what recovered workflows publish.
    let runtime = Runtime::volatile()
        .broker(broker)
        .topic(MADE)
        .register(PAY, pay)
        .register(CHECKOUT, checkout)
        .start()
        .await?;
    // Called for the first clerk, and for each that takes the place of one that failed.
    runtime.supervise("clerk", move || (Clerk, (inbox.clone(), ready.publisher())))?;
    for (order, cents) in [("order-42", 1_999), ("order-43", UNLUCKY), ("order-44", 500)] {
        runtime.start(CHECKOUT, order, cents).await?.result().await?;
    }
    for _ in 0..2 {
        if let Some(letter) = letters.recv().await {
            println!("{}", letter.payload());
        }
    }
    let parts = runtime.parts();
    if let Some(clerk) = parts.iter().find(|part| part.name == "actor clerk") {
        println!("{}: restarted {} time", clerk.name, clerk.restarts);
    }
    runtime.shutdown().await?;
    Ok(())
}
