//! This project's own contestants: a topic between actors, and between bare tasks.

use std::time::Duration;

use ::ractor::{Actor, ActorProcessingErr, ActorRef};
use millrun::host::{HostConfig, TokioHost};
use millrun_broker::actor::{Attached, attach};
use millrun_broker::{Broker, BrokerConfig, Envelope, Inbox, Publisher, SubscriptionConfig};

use super::{Contestant, Feed, Flavor, Identity, Kind, Load, MessageCheck, Race};
use crate::BenchError;

/// One producer, one topic, one consumer.
pub(super) fn pair() -> Vec<Box<dyn Contestant>> {
    vec![Box::new(Actors), Box::new(Tasks)]
}

/// The topics of a load, each with its inboxes, in the order of the ledgers.
struct Topics {
    /// Envelopes carry its time.
    host: TokioHost,
    broker: Broker,
    inboxes: Vec<Inbox<Envelope<Vec<u8>>>>,
    topics: usize,
}

impl Topics {
    async fn new(name: &str, load: Load) -> Result<Self, BenchError> {
        let failed = |error| BenchError::failed(name, error);
        let host = TokioHost::spawn(HostConfig::default())
            .await
            .map_err(|error| BenchError::failed(name, error))?;
        let broker = Broker::new(BrokerConfig::default(), host.host());
        let mut inboxes = Vec::new();
        for topic in 0..load.topics {
            for _ in 0..load.subscribers {
                let inbox = broker
                    .subscribe(&format!("bench.{topic}"), SubscriptionConfig::default())
                    .map_err(failed)?;
                inboxes.push(inbox);
            }
        }
        Ok(Self {
            host,
            broker,
            inboxes,
            topics: load.topics,
        })
    }

    async fn end(self, name: &str) -> Result<(), BenchError> {
        let ended = self.host.shutdown(Duration::from_secs(1)).await;
        ended.map_err(|error| BenchError::failed(name, error))
    }

    fn publishers(&self, name: &str) -> Result<Vec<Publisher<Vec<u8>>>, BenchError> {
        (0..self.topics)
            .map(|topic| {
                let topic = self.broker.topic(&format!("bench.{topic}"));
                topic
                    .map(|topic| topic.publisher())
                    .map_err(|error| BenchError::failed(name, error))
            })
            .collect()
    }
}

/// Sends a whole feed, one awaited publish per message, to the topics in turn.
async fn produce(feed: &mut Feed, publishers: &mut [Publisher<Vec<u8>>]) -> Result<(), String> {
    let mut topic = 0;
    while let Some(payload) = feed.next_payload() {
        publishers[topic]
            .publish(payload)
            .await
            .map_err(|error| error.to_string())?;
        topic += 1;
        if topic == publishers.len() {
            topic = 0;
        }
    }
    Ok(())
}

/// Producers and consumers are ractor actors; the inbox stands beside the consumer.
struct Actors;

impl Contestant for Actors {
    fn identity(&self) -> Identity {
        Identity {
            framework: "millrun",
            mode: "publish",
            kind: Kind::Brokered,
            queue: "256, Block",
            in_flight: "256",
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
            let topics = Topics::new(&name, load).await?;
            let mut actors = Vec::new();
            let mut producers = Vec::new();
            for (inbox, ledger) in topics.inboxes.iter().zip(ledgers) {
                let (consumer, ended) = Actor::spawn(None, Consumer, (inbox.clone(), ledger))
                    .await
                    .map_err(failed)?;
                actors.push((consumer.get_cell(), ended));
            }
            for feed in feeds {
                let state = (feed, topics.publishers(&name)?);
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
            topics.end(&name).await?;
            elapsed
        })
    }
}

struct Go;

struct Producer;

impl Actor for Producer {
    type Msg = Go;
    type State = (Feed, Vec<Publisher<Vec<u8>>>);
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
        (feed, publishers): &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        Ok(produce(feed, publishers).await?)
    }
}

struct Consumer;

struct Waiting;

impl Actor for Consumer {
    type Msg = Waiting;
    type State = (Attached<Envelope<Vec<u8>>>, MessageCheck);
    type Arguments = (Inbox<Envelope<Vec<u8>>>, MessageCheck);

    async fn pre_start(
        &self,
        myself: ActorRef<Waiting>,
        (inbox, ledger): Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        Ok((attach(inbox, &myself, || Waiting), ledger))
    }

    async fn handle(
        &self,
        _: ActorRef<Waiting>,
        Waiting: Waiting,
        (inbox, ledger): &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        let mut turn = inbox.turn();
        while let Some(envelope) = turn.next_ref() {
            ledger.receive(envelope.payload());
        }
        Ok(())
    }
}

/// The same between bare tasks, the consumer awaiting one envelope at a time.
struct Tasks;

impl Contestant for Tasks {
    fn identity(&self) -> Identity {
        Identity {
            framework: "millrun",
            mode: "publish, recv",
            kind: Kind::Brokered,
            queue: "256, Block",
            in_flight: "256",
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
            let topics = Topics::new(&name, load).await?;
            for (inbox, mut ledger) in topics.inboxes.iter().zip(ledgers) {
                let mut receiver = inbox.clone().into_receiver();
                tokio::spawn(async move {
                    while let Some(envelope) = receiver.recv_ref().await {
                        ledger.receive(envelope.payload());
                    }
                });
            }
            for mut feed in feeds {
                let mut publishers = topics.publishers(&name)?;
                tokio::spawn(async move { produce(&mut feed, &mut publishers).await });
            }
            let elapsed = finish.elapsed(&name).await;
            topics.end(&name).await?;
            elapsed
        })
    }
}
