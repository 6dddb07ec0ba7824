//! The workflows under test.

use millrun::{
    Activity, ActivityContext, ActivityError, RuntimeBuilder, Signal, Workflow, WorkflowContext,
    WorkflowError,
};

/// Gives the length of what it gets.
pub(super) const ECHO: Activity<String, u64> = Activity::named("scale.echo");
pub(super) const STEP: Activity<u64, u64> = Activity::named("scale.step");
/// Waits for [`GO`] and gives its value.
pub(super) const WAITING: Workflow<(), u64> = Workflow::named("scale.waiting");
pub(super) const GO: Signal<u64> = Signal::named("scale.go");
/// As many steps as its input says, then waits for [`GO`]; gives the sum of both.
pub(super) const LONG: Workflow<u64, u64> = Workflow::named("scale.long");
/// Gives the length of its input, after one activity has seen it.
pub(super) const CARRY: Workflow<String, u64> = Workflow::named("scale.carry");
/// Adds up what it is told until that is zero, and makes a checkpoint once in a hundred.
pub(super) const FOR_EVER: Workflow<(), u64> = Workflow::named("scale.for-ever");
/// Ends at once: well, if its input says so.
pub(super) const ENDING: Workflow<bool, u64> = Workflow::named("scale.ending");
pub(super) const ONE_STEP: Workflow<u64, u64> = Workflow::named("scale.one-step");

pub(super) fn registered(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder
        .register(ECHO, echo)
        .register(STEP, step)
        .register(WAITING, waiting)
        .register(LONG, long)
        .register(CARRY, carry)
        .register(FOR_EVER, for_ever)
        .register(ENDING, ending)
        .register(ONE_STEP, one_step)
}

async fn echo(_cx: ActivityContext, payload: String) -> Result<u64, ActivityError> {
    Ok(payload.len() as u64)
}

async fn step(_cx: ActivityContext, number: u64) -> Result<u64, ActivityError> {
    Ok(number + 1)
}

async fn waiting(cx: WorkflowContext, (): ()) -> Result<u64, WorkflowError> {
    Ok(cx.receive(GO).await?)
}

async fn long(cx: WorkflowContext, steps: u64) -> Result<u64, WorkflowError> {
    let mut number = 0;
    for _ in 0..steps {
        number = cx.call(STEP, number).await?;
    }
    Ok(number + cx.receive(GO).await?)
}

async fn carry(cx: WorkflowContext, payload: String) -> Result<u64, WorkflowError> {
    Ok(cx.call(ECHO, payload).await?)
}

async fn ending(_cx: WorkflowContext, is_well: bool) -> Result<u64, WorkflowError> {
    if is_well {
        return Ok(7);
    }
    Err(WorkflowError::failed("it was told to"))
}

pub(super) async fn one_step(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    Ok(cx.call(STEP, number).await?)
}

async fn for_ever(cx: WorkflowContext, (): ()) -> Result<u64, WorkflowError> {
    let mut sum: u64 = cx.checkpointed().transpose()?.unwrap_or_default();
    for _ in 0..100 {
        match cx.receive(GO).await? {
            0 => return Ok(sum),
            number => sum += number,
        }
    }
    Ok(cx.checkpoint(&sum).await?)
}
