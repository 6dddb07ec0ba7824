//! ractor: a call to an address, answered through a reply port.

use ::ractor::rpc::CallResult;
use ::ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};

use super::super::{Flavor, Identity, Kind};
use super::{Laps, RoundTrip, Stopwatch};
use crate::BenchError;

pub(super) fn all() -> Vec<Box<dyn RoundTrip>> {
    vec![Box::new(Call)]
}

struct Call;

impl RoundTrip for Call {
    fn identity(&self) -> Identity {
        Identity {
            framework: "ractor",
            mode: "call",
            kind: Kind::Direct,
            queue: "unbounded",
            in_flight: "1",
        }
    }

    fn run(&self, flavor: Flavor, trips: u64, payload_bytes: usize) -> Result<Laps, BenchError> {
        let name = self.identity().name();
        flavor.runtime()?.block_on(async {
            let failed = |error| BenchError::failed(&name, error);
            let (watch, end) = Stopwatch::new(trips, payload_bytes);
            let (echo, echo_ended) = Actor::spawn(None, Echo, ()).await.map_err(failed)?;
            let (asker, asker_ended) = Actor::spawn(None, Asker, (watch, echo.clone()))
                .await
                .map_err(failed)?;
            asker.cast(Go).map_err(|error| BenchError::failed(&name, error))?;
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

struct Go;

struct Question(Vec<u8>, RpcReplyPort<Vec<u8>>);

struct Asker;

impl Actor for Asker {
    type Msg = Go;
    type State = (Stopwatch, ActorRef<Question>);
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
        (watch, echo): &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        let mut question = Some(watch.first());
        while let Some(payload) = question {
            let CallResult::Success(answer) = echo.call(|reply| Question(payload, reply), None).await? else {
                return Err("the echo did not answer".into());
            };
            question = watch.lap(&answer);
        }
        Ok(())
    }
}

struct Echo;

impl Actor for Echo {
    type Msg = Question;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Question>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(
        &self,
        _: ActorRef<Question>,
        Question(payload, reply): Question,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        reply.send(payload)?;
        Ok(())
    }
}
