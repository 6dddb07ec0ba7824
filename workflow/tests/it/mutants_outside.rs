//! Changed code is caught also around children, publishes, promises, steps inside the turn, state and
//! checkpoints: each mutant replays a history that the original made.

use std::pin::Pin;

use millrun_workflow::{
    Activity, ActivityError, Implementation, Input, OperationId, ParkReason, Payload, PublishOutcome, Signal,
    State, Topic, Update, Workflow, WorkflowContext, WorkflowError,
};

use crate::world::World;

const STEP: Activity<u64, u64> = Activity::named("step");
const PARCEL: Workflow<u64, u64> = Workflow::named("parcel");
const PLACED: Topic<u64> = Topic::named("placed");
const SHIPPED: Topic<u64> = Topic::named("shipped");
const GO: Signal<u64> = Signal::named("go");
const ADD: Update<u64, u64, u64> = Update::named("add");
const FLOW: Workflow<u64, u64> = Workflow::named("flow");

type Flow = Pin<Box<dyn Future<Output = Result<u64, WorkflowError>> + Send>>;
type Code = fn(WorkflowContext, State<u64>, u64) -> Flow;

/// The first half: a step, a promise, a child and a publish at once, then a checkpoint.
async fn first(cx: &WorkflowContext, order: u64) -> Result<u64, WorkflowError> {
    let price = cx.local(|| Ok::<_, ActivityError>(order + 1)).await?;
    let promise = cx.promise::<u64>();
    let (child, placed) = cx
        .join(cx.child(PARCEL, "parcel", price), cx.publish(PLACED, price))
        .await;
    placed?;
    let sum = child? + promise.await?;
    Ok(cx.checkpoint(&sum).await?)
}

/// The second: a signal, a publish, a state of three, and another run.
async fn second(cx: &WorkflowContext, state: &State<u64>, sum: u64) -> Result<u64, WorkflowError> {
    let go = cx.receive(GO).await?;
    cx.publish(SHIPPED, sum + go).await?;
    state.until(|state| *state >= 3).await?;
    cx.call(STEP, sum).await?;
    Ok(cx.continue_as_new(FLOW, sum).await?)
}

fn original(cx: WorkflowContext, state: State<u64>, order: u64) -> Flow {
    Box::pin(async move {
        match cx.checkpointed::<u64>() {
            None => first(&cx, order).await,
            Some(sum) => second(&cx, &state, sum?).await,
        }
    })
}

fn implementation(code: Code) -> Implementation {
    let code = move |cx: WorkflowContext, order| {
        let state = cx.state(0);
        code(cx, state, order)
    };
    FLOW.update(ADD)
        .change(|state, more| {
            *state += more;
            *state
        })
        .bind(code)
}

/// A history of the original, up to `steps` of its eight inputs; the third makes the checkpoint.
fn world(steps: usize) -> World {
    let mut world = World::start(implementation(original), &7_u64);
    let value = |value: u64| Payload::encode(&value).unwrap();
    let operation = OperationId::new;
    let outcome = Ok(PublishOutcome::Taken);
    let published = |operation| Input::Published {
        operation,
        outcome: outcome.clone(),
    };
    let add = |request: &str, more: u64| Input::Update {
        request: request.into(),
        name: ADD.name().into(),
        input: value(more),
    };
    let inputs = [
        published(operation(3)),
        Input::ChildEnded {
            operation: operation(2),
            end: Ok(value(20)),
        },
        Input::EndPromise {
            operation: operation(1),
            end: Ok(value(30)),
        },
        Input::Signal {
            name: GO.name().into(),
            value: value(5),
            cause: None,
            request: None,
        },
        published(operation(4)),
        add("1", 2),
        add("2", 2),
    ];
    for input in inputs.into_iter().take(steps) {
        world.apply(input).unwrap();
    }
    if steps == 8 {
        world.complete(5, &0_u64);
    }
    world
}

#[track_caller]
fn check_caught(name: &str, steps: usize, mutant: Code) {
    let mut world = world(steps);
    world.check_replays();
    world.reload_with(Some(implementation(mutant)));
    assert!(
        matches!(world.parked(), Some(ParkReason::Nondeterminism(_))),
        "{name}: {:?}",
        world.parked()
    );
}

macro_rules! mutants {
    ($($name:ident after $steps:literal: |$cx:ident, $state:ident, $order:ident| $body:expr;)+) => {
        $(
            #[test]
            fn $name() {
                fn mutant($cx: WorkflowContext, $state: State<u64>, $order: u64) -> Flow {
                    Box::pin(async move {
                        let _ = &$state;
                        $body
                    })
                }
                check_caught(stringify!($name), $steps, mutant);
            }
        )+
    };
}

mutants! {
    local_step_removed after 2: |cx, _state, order| {
        let price = order + 1;
        let promise = cx.promise::<u64>();
        let (child, placed) = cx.join(cx.child(PARCEL, "parcel", price), cx.publish(PLACED, price)).await;
        placed?;
        Ok(child? + promise.await?)
    };
    local_step_added after 0: |cx, _state, order| {
        cx.local(|| Ok::<_, ActivityError>(0)).await?;
        first(&cx, order).await
    };
    promise_removed after 2: |cx, _state, order| {
        let price = cx.local(|| Ok::<_, ActivityError>(order + 1)).await?;
        let (child, placed) = cx.join(cx.child(PARCEL, "parcel", price), cx.publish(PLACED, price)).await;
        placed?;
        Ok(child? + cx.receive(GO).await?)
    };
    promise_made_later after 0: |cx, _state, order| {
        let price = cx.local(|| Ok::<_, ActivityError>(order + 1)).await?;
        let (child, placed) = cx.join(cx.child(PARCEL, "parcel", price), cx.publish(PLACED, price)).await;
        placed?;
        Ok(child? + cx.promise::<u64>().await?)
    };
    promise_given_up after 2: |cx, _state, order| {
        let price = cx.local(|| Ok::<_, ActivityError>(order + 1)).await?;
        let promise = cx.promise::<u64>();
        let (child, placed) = cx.join(cx.child(PARCEL, "parcel", price), cx.publish(PLACED, price)).await;
        drop(promise);
        placed?;
        Ok(child? + cx.receive(GO).await?)
    };
    child_and_publish_swapped after 0: |cx, _state, order| {
        let price = cx.local(|| Ok::<_, ActivityError>(order + 1)).await?;
        let promise = cx.promise::<u64>();
        let (placed, child) = cx.join(cx.publish(PLACED, price), cx.child(PARCEL, "parcel", price)).await;
        placed?;
        Ok(child? + promise.await?)
    };
    child_of_another_workflow after 0: |cx, _state, order| {
        const LETTER: Workflow<u64, u64> = Workflow::named("letter");
        let price = cx.local(|| Ok::<_, ActivityError>(order + 1)).await?;
        let promise = cx.promise::<u64>();
        let (child, placed) = cx.join(cx.child(LETTER, "parcel", price), cx.publish(PLACED, price)).await;
        placed?;
        Ok(child? + promise.await?)
    };
    child_of_another_id after 0: |cx, _state, order| {
        let price = cx.local(|| Ok::<_, ActivityError>(order + 1)).await?;
        let promise = cx.promise::<u64>();
        let (child, placed) = cx.join(cx.child(PARCEL, "parcel-2", price), cx.publish(PLACED, price)).await;
        placed?;
        Ok(child? + promise.await?)
    };
    child_made_a_call after 0: |cx, _state, order| {
        let price = cx.local(|| Ok::<_, ActivityError>(order + 1)).await?;
        let promise = cx.promise::<u64>();
        let (step, placed) = cx.join(cx.call(STEP, price), cx.publish(PLACED, price)).await;
        placed?;
        Ok(step? + promise.await?)
    };
    publish_removed after 0: |cx, _state, order| {
        let price = cx.local(|| Ok::<_, ActivityError>(order + 1)).await?;
        let promise = cx.promise::<u64>();
        let child = cx.child(PARCEL, "parcel", price).await?;
        Ok(child + promise.await?)
    };
    publish_to_another_topic after 0: |cx, _state, order| {
        let price = cx.local(|| Ok::<_, ActivityError>(order + 1)).await?;
        let promise = cx.promise::<u64>();
        let (child, placed) = cx.join(cx.child(PARCEL, "parcel", price), cx.publish(SHIPPED, price)).await;
        placed?;
        Ok(child? + promise.await?)
    };
    checkpoint_made_early after 2: |cx, state, order| {
        match cx.checkpointed::<u64>() {
            Some(sum) => second(&cx, &state, sum?).await,
            None => {
                let price = cx.local(|| Ok::<_, ActivityError>(order + 1)).await?;
                let _promise = cx.promise::<u64>();
                let pair = cx.join(cx.child(PARCEL, "parcel", price), cx.publish(PLACED, price)).await;
                Ok(cx.checkpoint(&pair.0?).await?)
            }
        }
    };
    run_continued_early after 2: |cx, _state, order| {
        let price = cx.local(|| Ok::<_, ActivityError>(order + 1)).await?;
        let _promise = cx.promise::<u64>();
        let pair = cx.join(cx.child(PARCEL, "parcel", price), cx.publish(PLACED, price)).await;
        Ok(cx.continue_as_new(FLOW, pair.0?).await?)
    };
    checkpoint_not_looked_at after 3: |cx, _state, order| first(&cx, order).await;
    another_checkpoint_added after 3: |cx, state, order| {
        match cx.checkpointed::<u64>() {
            Some(sum) => {
                let sum = sum?;
                if sum < 1_000 {
                    return Ok(cx.checkpoint(&(sum + 1_000)).await?);
                }
                second(&cx, &state, sum).await
            }
            None => first(&cx, order).await,
        }
    };
    signal_behind_the_checkpoint_not_waited_for after 3: |cx, _state, order| {
        match cx.checkpointed::<u64>() {
            Some(sum) => {
                cx.publish(SHIPPED, sum?).await?;
                Ok(0)
            }
            None => first(&cx, order).await,
        }
    };
    publish_behind_the_checkpoint_removed after 4: |cx, state, order| {
        match cx.checkpointed::<u64>() {
            Some(sum) => {
                cx.receive(GO).await?;
                state.until(|state| *state >= 3).await?;
                Ok(cx.call(STEP, sum?).await?)
            }
            None => first(&cx, order).await,
        }
    };
    condition_met_earlier after 6: |cx, state, order| {
        match cx.checkpointed::<u64>() {
            Some(sum) => {
                let go = cx.receive(GO).await?;
                cx.publish(SHIPPED, go).await?;
                state.until(|state| *state >= 2).await?;
                Ok(cx.call(STEP, sum?).await?)
            }
            None => first(&cx, order).await,
        }
    };
    condition_met_later after 7: |cx, state, order| {
        match cx.checkpointed::<u64>() {
            Some(sum) => {
                let go = cx.receive(GO).await?;
                cx.publish(SHIPPED, go).await?;
                state.until(|state| *state >= 5).await?;
                Ok(cx.call(STEP, sum?).await?)
            }
            None => first(&cx, order).await,
        }
    };
}

/// Whatever the code made instead, the difference says in which line.
#[test]
fn a_difference_names_the_line_of_checkpoints_and_continuations_too() {
    let mutants: [(&str, Code); 2] = [
        ("checkpoint after 0 operations at", |cx, _, sum| {
            Box::pin(async move {
                if cx.checkpointed::<u64>().is_some() {
                    return Ok(cx.receive(GO).await?);
                }
                Ok(cx.checkpoint(&sum).await?)
            })
        }),
        ("continue as new flow at", |cx, _, sum| {
            Box::pin(async move { Ok(cx.continue_as_new(FLOW, sum).await?) })
        }),
    ];
    for (expected, mutant) in mutants {
        let mut world = world(0);
        world.reload_with(Some(implementation(mutant)));
        let Some(ParkReason::Nondeterminism(difference)) = world.parked() else {
            panic!("{:?}", world.parked());
        };
        let line = format!("{expected} workflow/tests/it/mutants_outside.rs:");
        assert!(difference.replayed.starts_with(&line), "{difference}");
    }
}

#[test]
fn the_original_with_all_of_these_is_not_caught() {
    for steps in 0..=8 {
        let mut world = world(steps);
        world.check_replays();
        world.reload();
        assert_eq!(world.parked(), None, "{steps}");
        assert_eq!(world.instance.changed_values(), 0, "{steps}");
    }
    assert_eq!(world(8).labels().last(), Some(&"ContinuedAsNew"));
}

#[test]
fn an_update_that_is_answered_otherwise_is_counted_and_goes_on() {
    let mut world = world(6);
    let code = |cx: WorkflowContext, order| {
        let state = cx.state(0);
        original(cx, state, order)
    };
    let other = FLOW
        .update(ADD)
        .change(|state, more| {
            *state += more;
            *state + 100
        })
        .bind(code);
    world.reload_with(Some(other));
    assert_eq!(world.parked(), None);
    assert_eq!(world.instance.changed_values(), 1);
}
