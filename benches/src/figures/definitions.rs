//! The workflows under test.

use millrun::{
    Activity, ActivityContext, ActivityError, RuntimeBuilder, Signal, Timestamp, Topic, Workflow,
    WorkflowContext, WorkflowError,
};

/// Adds one.
pub(super) const STEP: Activity<u64, u64> = Activity::named("figures.step");
/// Gives its input plus one.
pub(super) const ONE_STEP: Workflow<u64, u64> = Workflow::named("figures.one-step");
/// Waits for [`GO`] and gives its value.
pub(super) const WAITING: Workflow<(), u64> = Workflow::named("figures.waiting");
pub(super) const GO: Signal<u64> = Signal::named("figures.go");
/// As many steps as its input says, then waits for [`GO`]; gives the sum of both.
pub(super) const LONG: Workflow<u64, u64> = Workflow::named("figures.long");
/// Input (rounds, width): in each round `width` steps at once, then waits for [`GO`]; gives the number of steps and the
/// signal's value.
pub(super) const WIDE: Workflow<(u64, u64), u64> = Workflow::named("figures.wide");
/// Takes as many [`TICK`]s as its input says, each the next one of its client; gives their number.
pub(super) const COUNT: Workflow<u64, u64> = Workflow::named("figures.count");
/// A client's number, and how many ticks it has sent before.
pub(super) const TICK: Signal<(u64, u64)> = Signal::named("figures.tick");
/// Publishes one value to [`ANNOUNCED`].
pub(super) const ANNOUNCE: Workflow<(), u64> = Workflow::named("figures.announce");
pub(super) const ANNOUNCED: Topic<u64> = Topic::named("figures.announced");
/// Sleeps until its input, in microseconds since 1970; gives the time at which it woke.
pub(super) const ALARM: Workflow<u64, u64> = Workflow::named("figures.alarm");

pub(super) fn registered(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder
        .register(STEP, step)
        .register(ONE_STEP, one_step)
        .register(WAITING, waiting)
        .register(LONG, long)
        .register(WIDE, wide)
        .register(COUNT, count)
        .register(ALARM, alarm)
        .register(ANNOUNCE, announce)
}

async fn step(_cx: ActivityContext, number: u64) -> Result<u64, ActivityError> {
    Ok(number + 1)
}

async fn one_step(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    Ok(cx.call(STEP, number).await?)
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

async fn wide(cx: WorkflowContext, (rounds, at_once): (u64, u64)) -> Result<u64, WorkflowError> {
    let mut steps = 0;
    for _ in 0..rounds {
        for result in cx.join_all((0..at_once).map(|_| cx.call(STEP, 0))).await {
            steps += result?;
        }
    }
    Ok(steps + cx.receive(GO).await?)
}

async fn count(cx: WorkflowContext, ticks: u64) -> Result<u64, WorkflowError> {
    let mut seen: Vec<u64> = Vec::new();
    for _ in 0..ticks {
        let (client, before) = cx.receive(TICK).await?;
        let place = usize::try_from(client).map_err(|_| WorkflowError::failed("no such client"))?;
        if seen.len() <= place {
            seen.resize(place + 1, 0);
        }
        if seen[place] != before {
            let message = format!("tick {before} of client {client} came as number {}", seen[place]);
            return Err(WorkflowError::failed(message));
        }
        seen[place] += 1;
    }
    Ok(seen.iter().sum())
}

async fn announce(cx: WorkflowContext, (): ()) -> Result<u64, WorkflowError> {
    cx.publish(ANNOUNCED, 1).await?;
    Ok(1)
}

async fn alarm(cx: WorkflowContext, deadline_us: u64) -> Result<u64, WorkflowError> {
    let deadline = Timestamp::from_micros(deadline_us);
    cx.sleep(deadline.saturating_since(cx.now())).await?;
    Ok(cx.now().as_micros())
}
