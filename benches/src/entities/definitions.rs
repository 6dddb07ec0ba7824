//! A counter as an entity, and as a workflow that takes signals; a workflow of one step.

use millrun::{
    Activity, ActivityContext, ActivityError, Entity, EntityCommand, EntityContext, EntityState, Query,
    RuntimeBuilder, Signal, Workflow, WorkflowContext, WorkflowError,
};
use serde::{Deserialize, Serialize};

pub(super) const COUNTER: Entity<Counter> = Entity::named("bench.counter");
pub(super) const ADD: EntityCommand<Counter, u64, u64> = EntityCommand::named("add");
pub(super) const SUM: Query<Counter, (), u64> = Query::named("sum");

/// Takes [`TICK`]s for ever, with a checkpoint after each 256, as a counter has a snapshot.
pub(super) const TAKE: Workflow<(), ()> = Workflow::named("bench.take");
pub(super) const TICK: Signal<u64> = Signal::named("bench.tick");

pub(super) const ONE_STEP: Workflow<u64, u64> = Workflow::named("bench.one-step");
const STEP: Activity<u64, u64> = Activity::named("bench.step");

const TICKS_A_CHECKPOINT: u64 = 256;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Counter(u64);

impl EntityState for Counter {
    type Event = u64;

    fn begin(_key: &str) -> Self {
        Self(0)
    }

    fn apply(&mut self, added: u64) {
        self.0 += added;
    }
}

fn add(counter: &Counter, more: u64, cx: &mut EntityContext<'_, Counter>) -> Result<u64, WorkflowError> {
    cx.emit(more);
    Ok(counter.0 + more)
}

async fn take(cx: WorkflowContext, (): ()) -> Result<(), WorkflowError> {
    let mut sum: u64 = cx.checkpointed().transpose()?.unwrap_or(0);
    for _ in 0..TICKS_A_CHECKPOINT {
        sum += cx.receive(TICK).await?;
    }
    Ok(cx.checkpoint(&sum).await?)
}

async fn one_step(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    Ok(cx.call(STEP, number).await?)
}

async fn step(_cx: ActivityContext, number: u64) -> Result<u64, ActivityError> {
    Ok(number + 1)
}

pub(super) fn registered(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder
        .entity(COUNTER.command(ADD, add).query(SUM, |counter, ()| counter.0))
        .register(TAKE, take)
        .register(ONE_STEP, one_step)
        .register(STEP, step)
}
