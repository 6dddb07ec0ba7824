//! kameo's PubSub actor: every message passes its mailbox and is then told to each subscriber,
//! waiting for each (`DeliveryStrategy::Guaranteed`).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use ::kameo::Actor;
use ::kameo::actor::{ActorRef, Spawn};
use ::kameo::mailbox;
use ::kameo::message::{Context, Message};
use kameo_actors::DeliveryStrategy;
use kameo_actors::pubsub::{PubSub, Publish};

use super::{Contestant, Feed, Flavor, Identity, Kind, Load, MessageCheck, Race};
use crate::BenchError;

const CAPACITY: usize = 1_024;

/// One topic only.
pub(super) fn fan_out() -> Vec<Box<dyn Contestant>> {
    vec![Box::new(Published)]
}

struct Published;

impl Contestant for Published {
    fn identity(&self) -> Identity {
        Identity {
            framework: "kameo",
            mode: "PubSub",
            kind: Kind::Brokered,
            queue: "1,024 + 1,024, waits",
            in_flight: "2,048",
        }
    }

    fn run(&self, flavor: Flavor, load: Load) -> Result<Duration, BenchError> {
        let name = self.identity().name();
        flavor.runtime()?.block_on(async {
            let Race {
                feeds,
                ledgers,
                finish,
            } = load.race();
            let mut broker = PubSub::new(DeliveryStrategy::Guaranteed);
            let mut consumers = Vec::new();
            let mut producers = Vec::new();
            for ledger in ledgers {
                let consumer = Consumer::spawn_with_mailbox(Consumer(ledger), mailbox::bounded(CAPACITY));
                consumer.wait_for_startup().await;
                broker.subscribe(consumer.clone());
                consumers.push(consumer);
            }
            let broker = PubSub::spawn_with_mailbox(broker, mailbox::bounded(CAPACITY));
            broker.wait_for_startup().await;
            for feed in feeds {
                let producer = Producer::spawn(Producer(feed, broker.clone()));
                producer.wait_for_startup().await;
                producers.push(producer);
            }
            for producer in &producers {
                producer
                    .tell(Go)
                    .await
                    .map_err(|error| BenchError::failed(&name, error))?;
            }
            let elapsed = finish.elapsed(&name).await;
            for producer in producers {
                producer.kill();
                producer.wait_for_shutdown().await;
            }
            broker.kill();
            broker.wait_for_shutdown().await;
            for consumer in consumers {
                consumer.kill();
                consumer.wait_for_shutdown().await;
            }
            elapsed
        })
    }
}

struct Go;

#[derive(Clone)]
struct Payload(Arc<Vec<u8>>);

struct Producer(Feed, ActorRef<PubSub<Payload>>);

impl Actor for Producer {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(state: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(state)
    }
}

impl Message<Go> for Producer {
    type Reply = ();

    async fn handle(&mut self, Go: Go, _: &mut Context<Self, ()>) {
        let Self(feed, broker) = self;
        while let Some(payload) = feed.next_payload() {
            if broker.tell(Publish(Payload(Arc::new(payload)))).await.is_err() {
                break;
            }
        }
    }
}

struct Consumer(MessageCheck);

impl Actor for Consumer {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(state: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(state)
    }
}

impl Message<Payload> for Consumer {
    type Reply = ();

    async fn handle(&mut self, Payload(payload): Payload, _: &mut Context<Self, ()>) {
        self.0.receive(&payload);
    }
}
