//! Maiko: a broker task between bounded channels. An event passes two queues.

use std::time::Duration;

use ::maiko::{
    Actor, Context, Envelope, Event, OverflowPolicy, Result, StepAction, Subscribe, Supervisor, Topic,
};
use tokio::sync::oneshot;

use super::{Contestant, Feed, Flavor, Identity, Kind, Load, MessageCheck, Race, Turns};
use crate::BenchError;

pub(super) fn brokered() -> Vec<Box<dyn Contestant>> {
    vec![Box::new(Maiko)]
}

struct Maiko;

impl Contestant for Maiko {
    fn identity(&self) -> Identity {
        Identity {
            framework: "maiko",
            mode: "send",
            kind: Kind::Brokered,
            queue: "256 + 128, Block",
            in_flight: "384",
        }
    }

    fn run(&self, flavor: Flavor, load: Load) -> std::result::Result<Duration, BenchError> {
        let name = self.identity().name();
        flavor.runtime()?.block_on(async {
            let failed = |error| BenchError::failed(&name, error);
            let Race {
                feeds,
                ledgers,
                finish,
            } = load.race();
            let mut supervisor = Supervisor::<Message, Number>::default();
            let mut listening = Vec::new();
            for (place, ledger) in ledgers.into_iter().enumerate() {
                let (ready, is_ready) = oneshot::channel();
                listening.push(is_ready);
                let topic = Number(place / load.subscribers);
                supervisor
                    .add_actor(
                        &format!("consumer {place}"),
                        |_| Consumer {
                            ledger,
                            ready: Some(ready),
                        },
                        topic,
                    )
                    .map_err(failed)?;
            }
            let mut gates = Vec::new();
            for (place, feed) in feeds.into_iter().enumerate() {
                let (open, gate) = oneshot::channel();
                let topics = Turns::new((0..load.topics).map(Number).collect());
                gates.push(open);
                supervisor
                    .add_actor(
                        &format!("producer {place}"),
                        |context| Producer {
                            feed,
                            topics,
                            gate: Some(gate),
                            context,
                        },
                        Subscribe::none(),
                    )
                    .map_err(failed)?;
            }
            supervisor.start().await.map_err(failed)?;
            for is_ready in listening {
                is_ready.await.map_err(|error| BenchError::failed(&name, error))?;
            }
            for gate in gates {
                // A producer that is gone is noticed below: nothing arrives.
                gate.send(()).ok();
            }
            let elapsed = finish.elapsed(&name).await;
            supervisor.stop().await.map_err(failed)?;
            elapsed
        })
    }
}

#[derive(Clone)]
struct Message {
    topic: Number,
    payload: Vec<u8>,
}

impl Event for Message {}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Number(usize);

impl Topic<Message> for Number {
    fn from_event(event: &Message) -> Self {
        event.topic
    }

    fn overflow_policy(&self) -> OverflowPolicy {
        OverflowPolicy::Block
    }
}

struct Producer {
    feed: Feed,
    topics: Turns<Number>,
    gate: Option<oneshot::Receiver<()>>,
    context: Context<Message>,
}

impl Actor for Producer {
    type Event = Message;

    async fn step(&mut self) -> Result<StepAction> {
        if let Some(gate) = &mut self.gate {
            // Closed or opened, there is nothing more to wait for.
            gate.await.ok();
            self.gate = None;
        }
        while let Some(payload) = self.feed.next_payload() {
            let topic = *self.topics.next_turn();
            self.context.send(Message { topic, payload }).await?;
        }
        Ok(StepAction::Never)
    }
}

struct Consumer {
    ledger: MessageCheck,
    ready: Option<oneshot::Sender<()>>,
}

impl Actor for Consumer {
    type Event = Message;

    async fn on_start(&mut self) -> Result {
        if let Some(ready) = self.ready.take() {
            // The contest may already have failed.
            ready.send(()).ok();
        }
        Ok(())
    }

    async fn handle_event(&mut self, envelope: &Envelope<Message>) -> Result {
        self.ledger.receive(&envelope.event().payload);
        Ok(())
    }
}
