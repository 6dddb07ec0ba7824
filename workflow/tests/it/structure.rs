//! Structure around operations: join sets, scopes, sagas.

use std::time::Duration;

use millrun_workflow::{
    Activity, CallError, Either, Implementation, Input, Retry, Signal, Workflow, WorkflowContext,
    WorkflowError,
};

use crate::world::World;

const STEP: Activity<u64, u64> = Activity::named("step");
const UNDO: Activity<u64, ()> = Activity::named("undo");
const GO: Signal<u64> = Signal::named("go");
const FLOW: Workflow<u64, Vec<u64>> = Workflow::named("flow");
const CANCELLED: u64 = 999;

fn value(result: Result<u64, CallError<millrun_workflow::ActivityError>>) -> u64 {
    result.unwrap_or(CANCELLED)
}

#[test]
fn a_join_set_gives_results_as_they_come_and_cancels_the_rest() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, len: u64| {
        let mut set = cx.join_set();
        (0..len).for_each(|index| set.spawn(cx.call(STEP, index)));
        let mut values = Vec::new();
        while values.len() < 3 {
            values.push(set.next().await.expect("there are more than three")?);
        }
        assert_eq!(set.len(), 7);
        drop(set);
        values.push(cx.receive(GO).await?);
        Ok::<_, WorkflowError>(values)
    });
    let mut world = World::start(code, &10_u64);
    for number in [7, 2, 9] {
        world.complete(number, &u64::from(number));
    }
    assert!(world.activities.is_empty(), "the other seven are told to stop");
    world.signal(GO, &0);
    assert_eq!(world.result::<Vec<u64>>(), [7, 2, 9, 0]);
}

#[test]
fn a_join_set_may_grow_while_it_is_taken_from_and_finishes_the_rest() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, _: u64| {
        let mut set = cx.join_set();
        set.spawn(cx.call(STEP, 0));
        set.spawn(cx.call(STEP, 0));
        let first = set.next().await.expect("there are two")?;
        set.spawn(cx.call(STEP, first));
        let mut values = vec![first];
        for value in set.finish().await {
            values.push(value?);
        }
        Ok::<_, WorkflowError>(values)
    });
    let mut world = World::start(code, &0_u64);
    for number in [2, 3, 1] {
        world.complete(number, &u64::from(number));
    }
    assert_eq!(world.result::<Vec<u64>>(), [2, 3, 1]);
}

#[test]
fn a_scope_is_cancelled_without_the_run_around_it() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, _: u64| {
        let scope = cx.scope();
        let inner = scope.context().scope();
        let shield = scope.context().shielded();
        let work = cx.join(
            cx.join(scope.context().call(STEP, 1), inner.context().call(STEP, 2)),
            cx.join(shield.call(STEP, 3), cx.call(STEP, 4)),
        );
        let stop = async {
            cx.receive(GO).await?;
            scope.cancel();
            scope.cancel();
            Ok::<_, WorkflowError>(scope.context().call(STEP, 5).await.is_err())
        };
        let (((one, two), (three, four)), stopped) = cx.join(work, stop).await;
        assert!(stopped? && inner.is_cancelled() && !cx.is_cancel_requested());
        Ok::<_, WorkflowError>([one, two, three, four].map(value).to_vec())
    });
    let mut world = World::start(code, &0_u64);
    world.signal(GO, &0);
    assert_eq!(world.labels()[5..], ["OperationCancelled", "OperationCancelled"]);
    world.complete(3, &3);
    world.complete(4, &4);
    assert_eq!(world.result::<Vec<u64>>(), [CANCELLED, CANCELLED, 3, 4]);
}

#[test]
fn a_cancel_of_the_run_reaches_its_scopes_but_not_those_behind_a_shield() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, _: u64| {
        let (open, shielded) = (cx.scope(), cx.shielded().scope());
        let wait = cx.race(open.context().cancelled(), shielded.context().cancelled());
        assert!(matches!(wait.await, Either::Left(_)));
        shielded.cancel();
        shielded.context().cancelled().await;
        Ok::<_, WorkflowError>(vec![u64::from(open.is_cancelled())])
    });
    let mut world = World::start(code, &0_u64);
    world.cancel();
    assert_eq!(world.result::<Vec<u64>>(), [1]);
}

/// A loop that makes each scope in the last used to end the process: letting go of the innermost went
/// down the stack through all of them.
#[test]
fn a_million_scopes_in_one_another_are_let_go_of() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, depth: u64| {
        let mut scope = cx.scope();
        for _ in 0..depth {
            scope = scope.context().scope();
        }
        let shared = scope.clone();
        drop(scope);
        let is_cancelled = shared.is_cancelled();
        cx.receive(GO).await?;
        Ok::<_, WorkflowError>(vec![u64::from(is_cancelled)])
    });
    let mut world = World::start(code, &1_000_000_u64);
    world.signal(GO, &1);
    assert_eq!(world.result::<Vec<u64>>(), [0]);
}

#[test]
fn a_scope_ends_waits_for_signals_and_timers_too() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, _: u64| {
        let scope = cx.scope();
        let waits = cx.join(
            scope.context().receive(Signal::<u64>::named("never")),
            scope.context().sleep(Duration::from_secs(3_600)),
        );
        let stop = async {
            let go = cx.receive(GO).await;
            scope.cancel();
            go
        };
        let ((signal, sleep), go) = cx.join(waits, stop).await;
        assert!(signal.is_err() && sleep.is_err());
        Ok::<_, WorkflowError>(vec![go?])
    });
    let mut world = World::start(code, &0_u64);
    world.signal(GO, &1);
    assert_eq!(world.result::<Vec<u64>>(), [1]);
}

/// Three steps, of which the last fails or the run is cancelled; then all is undone.
fn trip() -> Implementation {
    Implementation::new(FLOW, async |cx: WorkflowContext, _: u64| {
        let mut saga = cx.saga();
        for step in 1..=3 {
            match cx.call(STEP, step).retry(Retry::never()).await {
                Ok(value) => {
                    saga.push(async move |cx| Ok(cx.call(UNDO, value).retry(Retry::never()).await?))
                }
                Err(error) => {
                    saga.compensate().await?;
                    return Err(error.into());
                }
            }
        }
        assert_eq!(saga.len(), 3);
        saga.complete();
        Ok::<_, WorkflowError>(vec![])
    })
}

fn undone(world: &World) -> Vec<u64> {
    let mut undone = Vec::new();
    for (scheduled, _) in world.activities.values() {
        assert_eq!(scheduled.activity, "undo");
        undone.push(scheduled.input.decode().unwrap());
    }
    undone
}

#[test]
fn a_saga_undoes_in_reverse_across_crashes() {
    let mut world = World::start(trip(), &0_u64);
    world.complete(1, &10_u64);
    world.complete(2, &20_u64);
    world.fail(3, "full", false);
    assert_eq!(undone(&world), [20]);
    world.reopen();
    world.complete(4, &());
    assert_eq!(undone(&world), [10]);
    world.reopen();
    world.complete(5, &());
    assert_eq!(world.labels().last(), Some(&"Failed"));
    world.check_replays();
}

#[test]
fn a_saga_undoes_the_rest_when_one_cannot_be_undone() {
    let mut world = World::start(trip(), &0_u64);
    world.complete(1, &10_u64);
    world.complete(2, &20_u64);
    world.fail(3, "full", false);
    world.fail(4, "gone", false);
    assert_eq!(undone(&world), [10]);
    world.complete(5, &());
    let Some(millrun_workflow::Outcome::Failed(failure)) = world.instance.ledger().outcome() else {
        panic!("{:?}", world.instance.ledger().outcome());
    };
    assert_eq!(
        failure.message,
        "1 compensations failed: the activity failed: gone"
    );
    world.check_replays();
}

#[test]
fn a_saga_undoes_although_the_run_is_asked_to_cancel() {
    let mut world = World::start(trip(), &0_u64);
    world.complete(1, &10_u64);
    world.cancel();
    assert_eq!(undone(&world), [10]);
    world.complete(3, &());
    assert_eq!(world.labels().last(), Some(&"Cancelled"));
    world.check_replays();
}

#[test]
fn a_saga_that_is_complete_undoes_nothing() {
    let mut world = World::start(trip(), &0_u64);
    (1..=3).for_each(|number| world.complete(number, &1_u64));
    assert_eq!(world.result::<Vec<u64>>(), Vec::<u64>::new());
}

#[test]
fn a_saga_ends_with_the_code_that_made_it() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, _: u64| {
        let mut saga = cx.saga();
        if cx.checkpointed::<u64>().is_none() {
            let value = cx.call(STEP, 1).await?;
            saga.push(async move |cx| Ok(cx.call(UNDO, value).await?));
            return Ok(cx.checkpoint(&value).await?);
        }
        assert!(saga.is_empty());
        cx.receive(GO).await?;
        saga.compensate().await?;
        Ok::<_, WorkflowError>(vec![])
    });
    let ends: [fn(&mut World); 2] = [
        |world| world.signal(GO, &1),
        |world| {
            let reason = "over".into();
            world.apply(Input::Terminate { reason }).unwrap();
        },
    ];
    for end in ends {
        let mut world = World::start(code.clone(), &0_u64);
        world.complete(1, &10_u64);
        end(&mut world);
        assert!(world.instance.ledger().outcome().is_some());
        assert!(world.activities.is_empty(), "nothing is undone");
        world.check_replays();
    }
}
