//! ractor: the sender holds the consumer's address; mailboxes have no bound.

use std::time::Duration;

use ::ractor::{Actor, ActorProcessingErr, ActorRef};

use super::{Contestant, Feed, Flavor, Identity, Kind, Load, MessageCheck, Race, Turns};
use crate::BenchError;

pub(super) fn direct() -> Vec<Box<dyn Contestant>> {
    vec![Box::new(Ractor)]
}

struct Ractor;

impl Contestant for Ractor {
    fn identity(&self) -> Identity {
        Identity {
            framework: "ractor",
            mode: "cast",
            kind: Kind::Direct,
            queue: "unbounded",
            in_flight: "all",
        }
    }

    fn run(&self, flavor: Flavor, load: Load) -> Result<Duration, BenchError> {
        let name = self.identity().name();
        flavor.runtime()?.block_on(async {
            let failed = |error| BenchError::failed(&name, error);
            let Race {
                feeds,
                ledgers,
                finish,
            } = load.race();
            let mut actors = Vec::new();
            let mut producers = Vec::new();
            let mut consumers = Vec::new();
            for ledger in ledgers {
                let (consumer, ended) = Actor::spawn(None, Consumer, ledger).await.map_err(failed)?;
                actors.push((consumer.get_cell(), ended));
                consumers.push(consumer);
            }
            for feed in feeds {
                let state = (feed, Turns::new(consumers.clone()));
                let (producer, ended) = Actor::spawn(None, Producer, state).await.map_err(failed)?;
                actors.push((producer.get_cell(), ended));
                producers.push(producer);
            }
            for producer in producers {
                producer
                    .cast(Go)
                    .map_err(|error| BenchError::failed(&name, error))?;
            }
            let elapsed = finish.elapsed(&name).await;
            for (actor, ended) in actors {
                actor.stop(None);
                ended.await.map_err(|error| BenchError::failed(&name, error))?;
            }
            elapsed
        })
    }
}

struct Go;

struct Message(Vec<u8>);

struct Producer;

impl Actor for Producer {
    type Msg = Go;
    type State = (Feed, Turns<ActorRef<Message>>);
    type Arguments = Self::State;

    async fn pre_start(
        &self,
        _: ActorRef<Go>,
        state: Self::State,
    ) -> Result<Self::State, ActorProcessingErr> {
        Ok(state)
    }

    async fn handle(
        &self,
        _: ActorRef<Go>,
        Go: Go,
        (feed, consumers): &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        while let Some(payload) = feed.next_payload() {
            consumers.next_turn().cast(Message(payload))?;
        }
        Ok(())
    }
}

struct Consumer;

impl Actor for Consumer {
    type Msg = Message;
    type State = MessageCheck;
    type Arguments = MessageCheck;

    async fn pre_start(
        &self,
        _: ActorRef<Message>,
        ledger: MessageCheck,
    ) -> Result<MessageCheck, ActorProcessingErr> {
        Ok(ledger)
    }

    async fn handle(
        &self,
        _: ActorRef<Message>,
        Message(payload): Message,
        ledger: &mut MessageCheck,
    ) -> Result<(), ActorProcessingErr> {
        ledger.receive(&payload);
        Ok(())
    }
}
