//! Maiko: two topics; an event passes the broker task on each way.

use ::maiko::{Actor, Context, Envelope, Event, OverflowPolicy, Result, StepAction, Supervisor, Topic};
use tokio::sync::oneshot;

use super::super::{Flavor, Identity, Kind};
use super::{Laps, RoundTrip, Stopwatch};
use crate::BenchError;

pub(super) fn all() -> Vec<Box<dyn RoundTrip>> {
    vec![Box::new(Topics)]
}

struct Topics;

impl RoundTrip for Topics {
    fn identity(&self) -> Identity {
        Identity {
            framework: "maiko",
            mode: "send",
            kind: Kind::Brokered,
            queue: "256 + 128, Block",
            in_flight: "1",
        }
    }

    fn run(&self, flavor: Flavor, trips: u64, payload_bytes: usize) -> std::result::Result<Laps, BenchError> {
        let name = self.identity().name();
        flavor.runtime()?.block_on(async {
            let failed = |error| BenchError::failed(&name, error);
            let (watch, end) = Stopwatch::new(trips, payload_bytes);
            let mut supervisor = Supervisor::<Message, Way>::default();
            let (ready, is_ready) = oneshot::channel();
            supervisor
                .add_actor(
                    "echo",
                    |context| Echo {
                        context,
                        ready: Some(ready),
                    },
                    Way::There,
                )
                .map_err(failed)?;
            supervisor
                .add_actor(
                    "asker",
                    |context| Asker {
                        context,
                        watch,
                        gate: Some(is_ready),
                    },
                    Way::Back,
                )
                .map_err(failed)?;
            supervisor.start().await.map_err(failed)?;
            let laps = end.laps(&name).await;
            supervisor.stop().await.map_err(failed)?;
            laps
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Way {
    There,
    Back,
}

#[derive(Clone)]
struct Message {
    way: Way,
    payload: Vec<u8>,
}

impl Event for Message {}

impl Topic<Message> for Way {
    fn from_event(event: &Message) -> Self {
        event.way
    }

    fn overflow_policy(&self) -> OverflowPolicy {
        OverflowPolicy::Block
    }
}

struct Asker {
    context: Context<Message>,
    watch: Stopwatch,
    gate: Option<oneshot::Receiver<()>>,
}

impl Asker {
    async fn ask(&self, payload: Vec<u8>) -> Result {
        let way = Way::There;
        self.context.send(Message { way, payload }).await
    }
}

impl Actor for Asker {
    type Event = Message;

    async fn step(&mut self) -> Result<StepAction> {
        if let Some(gate) = &mut self.gate {
            // Closed or opened, there is nothing more to wait for.
            gate.await.ok();
            self.gate = None;
            let first = self.watch.first();
            self.ask(first).await?;
        }
        Ok(StepAction::Never)
    }

    async fn handle_event(&mut self, envelope: &Envelope<Message>) -> Result {
        match self.watch.lap(&envelope.event().payload) {
            Some(payload) => self.ask(payload).await,
            None => Ok(()),
        }
    }
}

struct Echo {
    context: Context<Message>,
    ready: Option<oneshot::Sender<()>>,
}

impl Actor for Echo {
    type Event = Message;

    async fn on_start(&mut self) -> Result {
        if let Some(ready) = self.ready.take() {
            // The contest may already have failed.
            ready.send(()).ok();
        }
        Ok(())
    }

    /// An event cannot be taken out of its envelope, so the payload is copied.
    async fn handle_event(&mut self, envelope: &Envelope<Message>) -> Result {
        let answer = Message {
            way: Way::Back,
            payload: envelope.event().payload.clone(),
        };
        self.context.send(answer).await
    }
}
