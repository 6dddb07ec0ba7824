//! An actor of your own beside durable workflows: it subscribes to a topic, and publishes.
//!
//! The topic delivers to it; whoever spawns it supervises it, as the runtime does with its own parts alone.
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
    let out = broker.topic::<String>("letters.ready")?.publisher();
    let (clerk, ended) = Actor::spawn(Some("clerk".into()), Clerk, (inbox, out)).await?;

    // The broker was there before the runtime, so nobody misses what recovered workflows publish.
    let runtime = Runtime::volatile()
        .broker(broker)
        .topic(MADE)
        .register(PAY, pay)
        .register(CHECKOUT, checkout)
        .start()
        .await?;
    runtime.start(CHECKOUT, "order-42", 1_999).await?.result().await?;
    if let Some(letter) = letters.recv().await {
        println!("{}", letter.payload());
    }
    runtime.shutdown().await?;
    clerk.drain()?;
    ended.await?;
    Ok(())
}
