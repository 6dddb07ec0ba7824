//! actix: `send().await` carries the answer. On two workers the actors live on two arbiters.

use ::actix::{Actor, Addr, Arbiter, Context, Handler, Message, MessageResult, ResponseFuture, System};

use super::super::{Flavor, Identity, Kind};
use super::{Laps, RoundTrip, Stopwatch};
use crate::BenchError;

pub(super) fn all() -> Vec<Box<dyn RoundTrip>> {
    vec![Box::new(Send)]
}

struct Send;

impl RoundTrip for Send {
    fn identity(&self) -> Identity {
        Identity {
            framework: "actix",
            mode: "send().await",
            kind: Kind::Direct,
            queue: "16, sender waits",
            in_flight: "1",
        }
    }

    fn run(&self, flavor: Flavor, trips: u64, payload_bytes: usize) -> Result<Laps, BenchError> {
        let name = self.identity().name();
        System::new().block_on(async {
            let (watch, end) = Stopwatch::new(trips, payload_bytes);
            let others = match flavor {
                Flavor::CurrentThread => None,
                Flavor::MultiThread => Some((Arbiter::new(), Arbiter::new())),
            };
            let (here, there) = match &others {
                None => (Arbiter::current(), Arbiter::current()),
                Some((here, there)) => (here.handle(), there.handle()),
            };
            let echo = Echo::start_in_arbiter(&there, |_| Echo);
            // An answer proves that the actor runs.
            echo.send(Question(Vec::new()))
                .await
                .map_err(|error| BenchError::failed(&name, error))?;
            let asker = Asker::start_in_arbiter(&here, |_| Asker(Some((watch, echo))));
            asker.do_send(Go);
            let laps = end.laps(&name).await;
            drop(asker);
            if let Some((here, there)) = others {
                for arbiter in [here, there] {
                    arbiter.stop();
                    arbiter
                        .join()
                        .map_err(|_| BenchError::failed(&name, "an arbiter panicked"))?;
                }
            }
            laps
        })
    }
}

struct Go;

impl Message for Go {
    type Result = ();
}

struct Question(Vec<u8>);

impl Message for Question {
    type Result = Vec<u8>;
}

struct Asker(Option<(Stopwatch, Addr<Echo>)>);

impl Actor for Asker {
    type Context = Context<Self>;
}

impl Handler<Go> for Asker {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, Go: Go, _: &mut Context<Self>) -> ResponseFuture<()> {
        let work = self.0.take();
        Box::pin(async move {
            let Some((mut watch, echo)) = work else { return };
            let mut question = Some(watch.first());
            while let Some(payload) = question {
                let Ok(answer) = echo.send(Question(payload)).await else {
                    return;
                };
                question = watch.lap(&answer);
            }
        })
    }
}

struct Echo;

impl Actor for Echo {
    type Context = Context<Self>;
}

impl Handler<Question> for Echo {
    type Result = MessageResult<Question>;

    fn handle(&mut self, Question(payload): Question, _: &mut Context<Self>) -> MessageResult<Question> {
        MessageResult(payload)
    }
}
