//! millrun: two topics. Once between ractor actors, each rung for by its inbox, and once between
//! bare tasks that await the next envelope.

use ::ractor::{Actor, ActorProcessingErr, ActorRef};
use millrun_broker::actor::{Attached, attach};
use millrun_broker::{Broker, BrokerConfig, Envelope, Inbox, Publisher, SubscriptionConfig};

use super::super::{Flavor, Identity, Kind};
use super::{Laps, RoundTrip, Stopwatch};
use crate::BenchError;

type Payload = Vec<u8>;

pub(super) fn all() -> Vec<Box<dyn RoundTrip>> {
    vec![Box::new(Actors), Box::new(Tasks)]
}

/// The topics `there` and `back`.
struct Ways {
    questions: Inbox<Envelope<Payload>>,
    answers: Inbox<Envelope<Payload>>,
    there: Publisher<Payload>,
    back: Publisher<Payload>,
}

impl Ways {
    fn new(name: &str) -> Result<Self, BenchError> {
        let broker = Broker::without_host(BrokerConfig::default());
        let inbox = |topic: &str| {
            broker
                .subscribe(topic, SubscriptionConfig::default())
                .map_err(|error| BenchError::failed(name, error))
        };
        let publisher = |topic: &str| match broker.topic(topic) {
            Ok(topic) => Ok(topic.publisher()),
            Err(error) => Err(BenchError::failed(name, error)),
        };
        Ok(Self {
            questions: inbox("there")?,
            answers: inbox("back")?,
            there: publisher("there")?,
            back: publisher("back")?,
        })
    }
}

struct Actors;

impl RoundTrip for Actors {
    fn identity(&self) -> Identity {
        Identity {
            framework: "millrun",
            mode: "publish",
            kind: Kind::Brokered,
            queue: "256, Block",
            in_flight: "1",
        }
    }

    fn run(&self, flavor: Flavor, trips: u64, payload_bytes: usize) -> Result<Laps, BenchError> {
        let name = self.identity().name();
        flavor.runtime()?.block_on(async {
            let failed = |error| BenchError::failed(&name, error);
            let (watch, end) = Stopwatch::new(trips, payload_bytes);
            let Ways {
                questions,
                answers,
                there,
                back,
            } = Ways::new(&name)?;
            let (echo, echo_ended) = Actor::spawn(None, Echo, (questions, back))
                .await
                .map_err(failed)?;
            let (asker, asker_ended) = Actor::spawn(None, Asker, (answers, there, watch))
                .await
                .map_err(failed)?;
            asker
                .cast(AskerMessage::Go)
                .map_err(|error| BenchError::failed(&name, error))?;
            let laps = end.laps(&name).await;
            asker.stop(None);
            echo.stop(None);
            for ended in [asker_ended, echo_ended] {
                ended.await.map_err(|error| BenchError::failed(&name, error))?;
            }
            laps
        })
    }
}

enum AskerMessage {
    Go,
    Waiting,
}

struct Asker;

impl Actor for Asker {
    type Msg = AskerMessage;
    type State = (Attached<Envelope<Payload>>, Publisher<Payload>, Stopwatch);
    type Arguments = (Inbox<Envelope<Payload>>, Publisher<Payload>, Stopwatch);

    async fn pre_start(
        &self,
        myself: ActorRef<AskerMessage>,
        (answers, there, watch): Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        Ok((attach(answers, &myself, || AskerMessage::Waiting), there, watch))
    }

    async fn handle(
        &self,
        _: ActorRef<AskerMessage>,
        message: AskerMessage,
        (answers, there, watch): &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            AskerMessage::Go => {
                there.publish(watch.first()).await?;
            }
            AskerMessage::Waiting => {
                let mut turn = answers.turn();
                while let Some(answer) = turn.next_ref() {
                    if let Some(question) = watch.lap(answer.payload()) {
                        there.publish(question).await?;
                    }
                }
            }
        }
        Ok(())
    }
}

struct Echo;

struct Waiting;

impl Actor for Echo {
    type Msg = Waiting;
    type State = (Attached<Envelope<Payload>>, Publisher<Payload>);
    type Arguments = (Inbox<Envelope<Payload>>, Publisher<Payload>);

    async fn pre_start(
        &self,
        myself: ActorRef<Waiting>,
        (questions, back): Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        Ok((attach(questions, &myself, || Waiting), back))
    }

    /// An envelope is lent, so the payload is copied.
    async fn handle(
        &self,
        _: ActorRef<Waiting>,
        Waiting: Waiting,
        (questions, back): &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        let mut turn = questions.turn();
        while let Some(question) = turn.next_ref() {
            back.publish(question.payload().clone()).await?;
        }
        Ok(())
    }
}

struct Tasks;

impl RoundTrip for Tasks {
    fn identity(&self) -> Identity {
        Identity {
            mode: "publish, recv",
            ..Actors.identity()
        }
    }

    fn run(&self, flavor: Flavor, trips: u64, payload_bytes: usize) -> Result<Laps, BenchError> {
        let name = self.identity().name();
        flavor.runtime()?.block_on(async {
            let (mut watch, end) = Stopwatch::new(trips, payload_bytes);
            let Ways {
                questions,
                answers,
                mut there,
                mut back,
            } = Ways::new(&name)?;
            let mut questions = questions.into_receiver();
            let mut answers = answers.into_receiver();
            tokio::spawn(async move {
                while let Some(question) = questions.recv_ref().await {
                    if back.publish(question.payload().clone()).await.is_err() {
                        break;
                    }
                }
            });
            tokio::spawn(async move {
                let mut question = Some(watch.first());
                while let Some(payload) = question {
                    if there.publish(payload).await.is_err() {
                        break;
                    }
                    question = answers
                        .recv_ref()
                        .await
                        .and_then(|answer| watch.lap(answer.payload()));
                }
            });
            end.laps(&name).await
        })
    }
}
