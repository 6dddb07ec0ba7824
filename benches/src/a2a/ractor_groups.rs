//! ractor's process groups: the sender asks the registry for a group's members at each message
//! and sends a pointer to each of them. Mailboxes have no bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ::ractor::{Actor, ActorProcessingErr, ActorRef, pg};

use super::{Contestant, Feed, Flavor, Identity, Kind, Load, MessageCheck, Race, Turns};
use crate::BenchError;

pub(super) fn brokered() -> Vec<Box<dyn Contestant>> {
    vec![Box::new(Groups)]
}

struct Groups;

impl Contestant for Groups {
    fn identity(&self) -> Identity {
        Identity {
            framework: "ractor",
            mode: "pg",
            kind: Kind::Brokered,
            queue: "unbounded",
            in_flight: "all",
        }
    }

    fn run(&self, flavor: Flavor, load: Load) -> Result<Duration, BenchError> {
        let name = self.identity().name();
        // Groups are global: each sample has its own.
        static SAMPLE: AtomicU64 = AtomicU64::new(0);
        let sample = SAMPLE.fetch_add(1, Ordering::Relaxed);
        flavor.runtime()?.block_on(async {
            let failed = |error| BenchError::failed(&name, error);
            let Race {
                feeds,
                ledgers,
                finish,
            } = load.race();
            let group = |topic: usize| format!("bench {sample} topic {topic}");
            let mut actors = Vec::new();
            let mut producers = Vec::new();
            for (place, ledger) in ledgers.into_iter().enumerate() {
                let (consumer, ended) = Actor::spawn(None, Consumer, ledger).await.map_err(failed)?;
                pg::join(group(place / load.subscribers), vec![consumer.get_cell()]);
                actors.push((consumer.get_cell(), ended));
            }
            for feed in feeds {
                let groups = Turns::new((0..load.topics).map(group).collect());
                let (producer, ended) = Actor::spawn(None, Producer, (feed, groups))
                    .await
                    .map_err(failed)?;
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

struct Message(Arc<Vec<u8>>);

struct Producer;

impl Actor for Producer {
    type Msg = Go;
    type State = (Feed, Turns<String>);
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
        (feed, groups): &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        while let Some(payload) = feed.next_payload() {
            let payload = Arc::new(payload);
            for member in pg::get_members(groups.next_turn()) {
                member.send_message(Message(Arc::clone(&payload)))?;
            }
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
