//! The workflows under test. Their activities do next to nothing, so that the engine is measured.

use millrun::{
    Activity, ActivityContext, ActivityError, RuntimeBuilder, Workflow, WorkflowContext, WorkflowError,
};

/// Adds one.
pub const STEP: Activity<u64, u64> = Activity::named("bench.step");
/// One activity: gives its input plus one.
pub const ONE_STEP: Workflow<u64, u64> = Workflow::named("bench.one-step");
/// Two activities, one after the other: gives its input plus two.
pub const TWO_STEPS: Workflow<u64, u64> = Workflow::named("bench.two-steps");
/// Three activities, one after the other: gives its input plus three.
pub const THREE_STEPS: Workflow<u64, u64> = Workflow::named("bench.three-steps");
/// Five activities: one, three at once, and one that merges. Gives three times its input plus
/// seven.
pub const FIVE_TASKS: Workflow<u64, u64> = Workflow::named("bench.five-tasks");
/// As many activities as its input says, one after the other: gives that number.
pub const SEQUENCE: Workflow<u64, u64> = Workflow::named("bench.sequence");
/// As many activities as its input says, all at once: gives [`sum_of_parallel`].
pub const PARALLEL: Workflow<u64, u64> = Workflow::named("bench.parallel");

/// Adds all definitions of this suite to a runtime.
pub fn registered(builder: RuntimeBuilder) -> RuntimeBuilder {
    super::fibo::registered(builder)
        .register(STEP, step)
        .register(ONE_STEP, one_step)
        .register(TWO_STEPS, two_steps)
        .register(THREE_STEPS, three_steps)
        .register(FIVE_TASKS, five_tasks)
        .register(SEQUENCE, sequence)
        .register(PARALLEL, parallel)
}

/// What [`PARALLEL`] gives for `calls`: 1 + 2 + … + calls.
#[must_use]
pub const fn sum_of_parallel(calls: u64) -> u64 {
    calls * (calls + 1) / 2
}

async fn step(_cx: ActivityContext, number: u64) -> Result<u64, ActivityError> {
    Ok(number + 1)
}

async fn one_step(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    Ok(cx.call(STEP, number).await?)
}

async fn two_steps(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    let number = cx.call(STEP, number).await?;
    Ok(cx.call(STEP, number).await?)
}

async fn three_steps(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    let number = cx.call(STEP, number).await?;
    let number = cx.call(STEP, number).await?;
    Ok(cx.call(STEP, number).await?)
}

async fn five_tasks(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    let split = cx.call(STEP, number).await?;
    let mut merged = 0;
    for part in cx.join_all((0..3).map(|_| cx.call(STEP, split))).await {
        merged += part?;
    }
    Ok(cx.call(STEP, merged).await?)
}

async fn sequence(cx: WorkflowContext, calls: u64) -> Result<u64, WorkflowError> {
    let mut number = 0;
    for _ in 0..calls {
        number = cx.call(STEP, number).await?;
    }
    Ok(number)
}

async fn parallel(cx: WorkflowContext, calls: u64) -> Result<u64, WorkflowError> {
    let mut sum = 0;
    for number in cx.join_all((0..calls).map(|number| cx.call(STEP, number))).await {
        sum += number?;
    }
    Ok(sum)
}
