//! Parts on ractor actors, under one supervisor.

use std::future::poll_fn;
use std::mem;
use std::task::Poll;

use millrun_core::{Next, PartExit, Timestamp};
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::runtime::Handle;
use tokio::task::coop::unconstrained;

use super::alarm::Alarm;
use super::clock::Clock;
use super::driven::Driven;

/// The root of a host's supervision tree. It survives its children: the owner of each part is told of the part's end, and
/// decides what follows.
pub(super) struct Supervisor;

impl Actor for Supervisor {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<()>,
        event: SupervisionEvent,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorFailed(actor, panic) => {
                tracing::error!(actor = %actor.get_id(), %panic, "a part failed");
            }
            other => tracing::debug!(event = %other, "supervision"),
        }
        Ok(())
    }
}

/// Drives one part. Its only message says that the bell has rung.
pub(super) struct PartActor;

/// The state of a [`PartActor`].
pub(super) struct PartState {
    pub(super) driven: Driven,
    pub(super) clock: Clock,
    pub(super) tokio: Handle,
    /// Made when the part first asks for a time.
    pub(super) alarm: Option<Alarm>,
}

impl PartState {
    fn wake_at(&mut self, at: Timestamp) {
        self.alarm
            .get_or_insert_with(|| Alarm::spawn(&self.tokio, self.clock.clone(), self.driven.bell.clone()))
            .set(at);
    }
}

/// Lets every ready task run first. Tokio's own `yield_now` would wait longer: until timers and sockets have been looked at
/// too.
pub(super) async fn to_the_back_of_the_queue() {
    let mut waited = false;
    poll_fn(|cx| {
        if mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl Actor for PartActor {
    type Msg = ();
    type State = PartState;
    type Arguments = PartState;

    async fn pre_start(&self, _: ActorRef<()>, part: PartState) -> Result<PartState, ActorProcessingErr> {
        Ok(part)
    }

    async fn handle(
        &self,
        myself: ActorRef<()>,
        (): (),
        state: &mut PartState,
    ) -> Result<(), ActorProcessingErr> {
        if !state.driven.bell.answer() {
            return Ok(());
        }
        // A part may poll futures. Tokio's cooperative budget would make ready ones pending
        // after the 128th, and the outcome would depend on the host.
        let next = unconstrained(async { state.driven.turn() }).await?;
        match next {
            Next::At(at) | Next::IdleUntil(at) => state.wake_at(at),
            Next::Idle | Next::Again | Next::Stop => {
                if let Some(alarm) = &state.alarm {
                    alarm.clear();
                }
            }
        }
        match next {
            Next::Again => {
                state.driven.bell.ring();
                // Ractor would take the next message at once.
                to_the_back_of_the_queue().await;
            }
            Next::Stop => myself.stop(None),
            Next::Idle | Next::At(_) | Next::IdleUntil(_) => {}
        }
        Ok(())
    }

    async fn post_stop(&self, _: ActorRef<()>, state: &mut PartState) -> Result<(), ActorProcessingErr> {
        state.driven.finish(PartExit::Stopped);
        Ok(())
    }
}
