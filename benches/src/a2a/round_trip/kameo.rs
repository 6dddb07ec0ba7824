//! kameo: an ask, answered by what the handler returns.

use std::convert::Infallible;

use ::kameo::Actor;
use ::kameo::actor::{ActorRef, Spawn};
use ::kameo::message::{Context, Message};

use super::super::{Flavor, Identity, Kind};
use super::{Laps, RoundTrip, Stopwatch};
use crate::BenchError;

pub(super) fn all() -> Vec<Box<dyn RoundTrip>> {
    vec![Box::new(Ask)]
}

struct Ask;

impl RoundTrip for Ask {
    fn identity(&self) -> Identity {
        Identity {
            framework: "kameo",
            mode: "ask",
            kind: Kind::Direct,
            queue: "64, sender waits",
            in_flight: "1",
        }
    }

    fn run(&self, flavor: Flavor, trips: u64, payload_bytes: usize) -> Result<Laps, BenchError> {
        let name = self.identity().name();
        flavor.runtime()?.block_on(async {
            let (watch, end) = Stopwatch::new(trips, payload_bytes);
            let echo = Echo::spawn(Echo);
            echo.wait_for_startup().await;
            let asker = Asker::spawn(Asker(watch, echo.clone()));
            asker.wait_for_startup().await;
            asker
                .tell(Go)
                .await
                .map_err(|error| BenchError::failed(&name, error))?;
            let laps = end.laps(&name).await;
            asker.kill();
            asker.wait_for_shutdown().await;
            echo.kill();
            echo.wait_for_shutdown().await;
            laps
        })
    }
}

struct Go;

struct Asker(Stopwatch, ActorRef<Echo>);

impl Actor for Asker {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(state: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(state)
    }
}

impl Message<Go> for Asker {
    type Reply = ();

    async fn handle(&mut self, Go: Go, _: &mut Context<Self, ()>) {
        let Self(watch, echo) = self;
        let mut question = Some(watch.first());
        while let Some(payload) = question {
            let Ok(answer) = echo.ask(Question(payload)).await else {
                return;
            };
            question = watch.lap(&answer);
        }
    }
}

struct Question(Vec<u8>);

struct Echo;

impl Actor for Echo {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(state: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(state)
    }
}

impl Message<Question> for Echo {
    type Reply = Vec<u8>;

    async fn handle(&mut self, Question(payload): Question, _: &mut Context<Self, Vec<u8>>) -> Vec<u8> {
        payload
    }
}
