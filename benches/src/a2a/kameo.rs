//! kameo: the sender holds the consumer's address; its mailbox is bounded here.

use std::convert::Infallible;
use std::time::Duration;

use ::kameo::Actor;
use ::kameo::actor::{ActorRef, Spawn};
use ::kameo::mailbox;
use ::kameo::message::{Context, Message};

use super::{Contestant, Feed, Flavor, Identity, Kind, Load, MessageCheck, Race, Turns};
use crate::BenchError;

const CAPACITY: usize = 1_024;

pub(super) fn direct() -> Vec<Box<dyn Contestant>> {
    vec![Box::new(Kameo)]
}

struct Kameo;

impl Contestant for Kameo {
    fn identity(&self) -> Identity {
        Identity {
            framework: "kameo",
            mode: "tell",
            kind: Kind::Direct,
            queue: "1,024, sender waits",
            in_flight: "1,024",
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
            let mut consumers = Vec::new();
            let mut producers = Vec::new();
            for ledger in ledgers {
                let consumer = Consumer::spawn_with_mailbox(Consumer(ledger), mailbox::bounded(CAPACITY));
                consumer.wait_for_startup().await;
                consumers.push(consumer);
            }
            for feed in feeds {
                let producer = Producer::spawn(Producer(feed, Turns::new(consumers.clone())));
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
            for consumer in consumers {
                consumer.kill();
                consumer.wait_for_shutdown().await;
            }
            elapsed
        })
    }
}

struct Go;

struct Producer(Feed, Turns<ActorRef<Consumer>>);

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
        let Self(feed, consumers) = self;
        while let Some(payload) = feed.next_payload() {
            if consumers.next_turn().tell(Payload(payload)).await.is_err() {
                break;
            }
        }
    }
}

struct Payload(Vec<u8>);

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
