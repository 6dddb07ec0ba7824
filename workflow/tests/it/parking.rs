//! Runs whose code cannot run: nothing is lost, and they go on when it can.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use millrun_workflow::{
    Activity, CancelScope, Command, Either, Implementation, Input, InputRefused, Limits, ParkReason, Signal,
    Workflow, WorkflowContext, WorkflowError,
};

use crate::world::World;

const STEP: Activity<(), u64> = Activity::named("step");
const OTHER: Activity<(), u64> = Activity::named("other");
const GO: Signal<u64> = Signal::named("go");
const FLOW: Workflow<u64, u64> = Workflow::named("flow");

/// Code that panics at its first signal as often as `panics` says, then adds two of them.
fn brittle(panics: u32) -> (Implementation, Arc<AtomicU32>) {
    let left = Arc::new(AtomicU32::new(panics));
    let count = Arc::clone(&left);
    let code = Implementation::new(FLOW, move |cx: WorkflowContext, _: u64| {
        let left = Arc::clone(&left);
        async move {
            let first = cx.receive(GO).await?;
            let panics = left.load(Ordering::Relaxed);
            if panics > 0 {
                left.store(panics - 1, Ordering::Relaxed);
                panic!("{panics} to go");
            }
            Ok::<_, WorkflowError>(first + cx.receive(GO).await?)
        }
    });
    (code, count)
}

fn reason_of_stuck(world: &World) -> &str {
    match world.parked() {
        Some(ParkReason::Stuck { message }) => message,
        other => panic!("not stuck: {other:?}"),
    }
}

#[test]
fn a_panic_parks_the_run_in_front_of_the_input_it_stumbled_over() {
    let (code, panics) = brittle(1);
    let mut world = World::start(code, &0_u64).fickle();
    world.signal(GO, &1);
    assert_eq!(world.labels(), ["Parked", "SignalReceived"]);
    assert!(matches!(
        world.parked(),
        Some(ParkReason::Panicked { count: 1, .. })
    ));
    assert!(matches!(world.commands[..], [Command::ResumeAt { .. }]));

    // Without its code the run records, and does not resume.
    world.signal(GO, &2);
    assert!(matches!(
        world.apply(Input::Resume),
        Err(InputRefused::StillParked(_))
    ));

    assert_eq!(panics.load(Ordering::Relaxed), 0);
    world.reload();
    world.apply(Input::Resume).unwrap();
    assert_eq!(
        world.labels(),
        [
            "Parked",
            "SignalReceived",
            "SignalReceived",
            "Resumed",
            "Completed"
        ]
    );
    assert!(world.instance.ledger().outcome().is_some());
}

#[test]
fn panics_in_a_row_are_counted_until_the_run_is_brought_back_no_more() {
    let (code, _) = brittle(100);
    let mut world = World::start(code, &0_u64).fickle();
    world.signal(GO, &1);
    for count in 1..5 {
        let Some(ParkReason::Panicked { count: counted, .. }) = world.parked() else {
            panic!("{:?}", world.parked());
        };
        assert_eq!(*counted, count);
        assert!(matches!(world.commands[..], [Command::ResumeAt { .. }]));
        world.reload();
        world.apply(Input::Resume).unwrap();
    }
    assert!(matches!(
        world.commands[..],
        [Command::Park(ParkReason::Panicked { count: 5, .. })]
    ));
    // Nothing was lost: with better code it goes on.
    let (code, _) = brittle(0);
    world.reload_with(Some(code));
    world.apply(Input::Resume).unwrap();
    world.signal(GO, &2);
    assert!(world.instance.ledger().outcome().is_some());
    world.reload();
    assert!(world.instance.ledger().outcome().is_some());
}

#[test]
fn a_panic_at_the_start_parks_after_the_start() {
    let code = Implementation::new(
        FLOW,
        async |_: WorkflowContext, _: u64| -> Result<u64, WorkflowError> { panic!("at once") },
    );
    let mut world = World::start(code, &0_u64);
    assert_eq!(world.labels(), ["Parked"]);
    world.signal(GO, &7);
    world.check_replays();
    let fixed = Implementation::new(FLOW, async |cx: WorkflowContext, _: u64| {
        Ok::<_, WorkflowError>(cx.receive(GO).await?)
    });
    world.reload_with(Some(fixed));
    world.apply(Input::Resume).unwrap();
    assert_eq!(
        world.labels(),
        ["Parked", "SignalReceived", "Resumed", "Completed"]
    );
}

#[test]
fn a_panic_in_a_destructor_does_not_escape() {
    struct Grenade;
    impl Drop for Grenade {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                panic!("dropped");
            }
        }
    }
    // Dropped by the code itself: a panic like any other.
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, _: u64| {
        let grenade = Grenade;
        let value = cx.receive(GO).await?;
        drop(grenade);
        Ok::<_, WorkflowError>(value)
    });
    let mut world = World::start(code, &0_u64);
    world.signal(GO, &1);
    assert!(matches!(world.parked(), Some(ParkReason::Panicked { message, .. }) if message == "dropped"));
    world.check_replays();

    // Dropped with the whole future: of no consequence.
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, _: u64| {
        let _grenade = Grenade;
        Ok::<_, WorkflowError>(cx.call(STEP, ()).await?)
    });
    let mut world = World::start(code, &0_u64);
    world.reload();
    let reason = "over".into();
    world.apply(Input::Terminate { reason }).unwrap();
    assert_eq!(world.labels(), ["ActivityScheduled", "Terminated"]);
    assert!(world.activities.is_empty(), "the activity is told to stop");
    world.check_replays();
}

#[test]
fn a_destructor_of_a_run_ended_from_outside_decides_nothing() {
    struct LastWords(WorkflowContext);
    impl Drop for LastWords {
        fn drop(&mut self) {
            let mut call = std::pin::pin!(self.0.call(STEP, ()));
            let mut cx = std::task::Context::from_waker(Waker::noop());
            assert!(call.as_mut().poll(&mut cx).is_pending());
        }
    }
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, _: u64| {
        let _words = LastWords(cx.clone());
        Ok::<_, WorkflowError>(cx.receive(GO).await?)
    });
    let mut world = World::start(code, &5_u64);
    let reason = "over".into();
    world.apply(Input::Terminate { reason }).unwrap();
    assert_eq!(world.labels(), ["Terminated"]);
    world.check_replays();
}

#[test]
fn code_that_awaits_what_the_engine_does_not_know_is_stuck() {
    let code = Implementation::new(FLOW, async |_: WorkflowContext, _: u64| {
        Ok::<_, WorkflowError>(std::future::pending::<u64>().await)
    });
    let world = World::start(code, &0_u64);
    assert_eq!(
        reason_of_stuck(&world),
        "the code awaits something that no operation of the workflow context can wake"
    );
    world.check_replays();
}

/// A race against the request to cancel used to leave its waker behind, and with it the run
/// seemed to wait for something for ever after.
#[test]
fn a_wait_for_a_cancel_that_was_dropped_counts_no_more() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, _: u64| {
        match cx.race(cx.cancelled(), cx.receive(GO)).await {
            Either::Left(_) => Ok(0),
            Either::Right(_) => Ok::<_, WorkflowError>(std::future::pending::<u64>().await),
        }
    });
    let mut world = World::start(code, &0_u64);
    world.signal(GO, &1);
    reason_of_stuck(&world);
    world.check_replays();
}

#[test]
fn code_that_wakes_itself_without_end_is_stuck() {
    let code = Implementation::new(FLOW, async |_: WorkflowContext, _: u64| {
        std::future::poll_fn(|cx| {
            cx.waker().wake_by_ref();
            Poll::<Result<u64, WorkflowError>>::Pending
        })
        .await
    });
    let mut limits = Limits::default();
    limits.self_wakes_max = 50;
    let world = World::start_with(Some(code), &0_u64, limits);
    assert!(
        reason_of_stuck(&world).contains("more than 50 times"),
        "{world:?}"
    );
    world.check_replays();
}

/// Loops whose operations are ready at once used to decide until the memory was used up.
#[test]
fn code_that_decides_without_end_is_stuck() {
    type Loop = fn(WorkflowContext) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;
    let loops: [Loop; 3] = [
        |cx| Box::pin(async move { while cx.record(|| 1_u64).await.is_ok() {} }),
        |cx| {
            Box::pin(async move {
                loop {
                    let call = cx.call(STEP, ());
                    match cx.race(call, cx.record(|| 1_u64)).await {
                        Either::Left(_) => break,
                        Either::Right(recorded) => drop(recorded),
                    }
                }
            })
        },
        // It ends, and what it ends with must not count.
        |cx| {
            Box::pin(async move {
                for _ in 0..60 {
                    let recorded = cx.record(|| 1_u64);
                    if let Either::Right(()) = cx.race(recorded, async {}).await {
                        return;
                    }
                }
            })
        },
    ];
    let mut limits = Limits::default();
    limits.self_wakes_max = 50;
    for decides in loops {
        let code = Implementation::new(FLOW, move |cx: WorkflowContext, _: u64| async move {
            let go = cx.receive(GO).await?;
            decides(cx).await;
            Ok::<_, WorkflowError>(go)
        });
        let mut world = World::start_with(Some(code), &0_u64, limits);
        world.signal(GO, &1);
        assert!(
            reason_of_stuck(&world).contains("more than 50 things"),
            "{world:?}"
        );
        assert_eq!(world.labels(), ["Parked", "SignalReceived"]);
        world.check_replays();
    }
}

#[test]
fn timers_without_bound_park_the_run() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, len: u64| {
        cx.join_all((0..len).map(|_| cx.sleep(Duration::from_secs(1))))
            .await;
        Ok::<_, WorkflowError>(0)
    });
    let mut limits = Limits::default();
    limits.pending_len_max = 100;
    let world = World::start_with(Some(code.clone()), &100_u64, limits);
    assert_eq!((world.parked(), world.timers.len()), (None, 100));
    let world = World::start_with(Some(code), &101_u64, limits);
    assert!(
        reason_of_stuck(&world).contains("101 operations outstanding"),
        "{world:?}"
    );
    assert_eq!(world.timers.len(), 0);
    world.check_replays();
}

#[test]
fn waits_without_bound_park_the_run() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, len: u64| {
        let first = cx.join_all((0..len).map(|_| cx.receive(GO)));
        Ok::<_, WorkflowError>(cx.join(first, cx.call(STEP, ())).await.1?)
    });
    let mut limits = Limits::default();
    // Runs that were begun before there was a bound have what their history says of operations.
    limits.pending_len_max = 2;
    limits.waits_len_max = 100;
    let world = World::start_with(Some(code.clone()), &100_u64, limits);
    assert_eq!(world.parked(), None);
    let world = World::start_with(Some(code), &101_u64, limits);
    assert!(reason_of_stuck(&world).contains("101 waits"), "{world:?}");
    assert!(world.activities.is_empty(), "nothing of its turn was decided");
    world.check_replays();
}

/// Wakers and contexts that leave the run, as a spawned task or another executor's timer has them.
#[test]
fn a_touch_from_outside_parks_the_run_before_the_code_can_see_it() {
    type Stolen = Arc<std::sync::Mutex<Option<(Waker, CancelScope)>>>;
    type Touch = fn(&Waker, &CancelScope);
    let touches: [(&str, Touch); 5] = [
        ("wake", |waker, _| waker.wake_by_ref()),
        ("cancel", |_, scope| scope.cancel()),
        ("call", |waker, scope| {
            let mut context = std::task::Context::from_waker(waker);
            assert!(
                std::pin::pin!(scope.context().call(STEP, ()))
                    .poll(&mut context)
                    .is_pending()
            );
        }),
        ("signal", |waker, scope| {
            let mut context = std::task::Context::from_waker(waker);
            assert!(
                std::pin::pin!(scope.context().receive(GO))
                    .poll(&mut context)
                    .is_pending()
            );
        }),
        ("random", |_, scope| {
            assert_ne!(scope.context().random(), scope.context().random());
        }),
    ];
    for (name, touch) in touches {
        let stolen = Stolen::default();
        let handed = Arc::clone(&stolen);
        let code = Implementation::new(FLOW, move |cx: WorkflowContext, _: u64| {
            let handed = Arc::clone(&handed);
            async move {
                std::future::poll_fn(|context| {
                    *handed.lock().unwrap() = Some((context.waker().clone(), cx.scope()));
                    Poll::Ready(())
                })
                .await;
                Ok::<_, WorkflowError>(cx.receive(GO).await?)
            }
        });
        let mut world = World::start(code, &0_u64).fickle();
        let (waker, scope) = stolen.lock().unwrap().take().unwrap();
        std::thread::scope(|threads| {
            threads.spawn(|| touch(&waker, &scope));
        });
        world.signal(GO, &1);
        assert_eq!(world.labels(), ["Parked", "SignalReceived"], "{name}");
        assert!(reason_of_stuck(&world).contains("from outside"), "{name}");
        // The code itself is sound, and takes the run to its end once nobody interferes.
        world.reload();
        world.apply(Input::Resume).unwrap();
        assert_eq!(world.labels().last(), Some(&"Completed"), "{name}");
    }
}

#[test]
fn a_run_without_code_records_and_goes_on_when_there_is_some() {
    let mut world = World::start_with(None, &0_u64, Limits::default());
    assert_eq!(world.labels(), ["Parked"]);
    assert!(matches!(
        world.commands[..],
        [Command::Park(ParkReason::NotRegistered { .. })]
    ));
    world.signal(GO, &1);
    world.signal(GO, &2);
    world.check_replays();
    world.reload();
    assert!(matches!(
        world.apply(Input::Resume),
        Err(InputRefused::StillParked(_))
    ));
    let (code, _) = brittle(0);
    world.reload_with(Some(code));
    world.apply(Input::Resume).unwrap();
    assert_eq!(
        world.labels(),
        [
            "Parked",
            "SignalReceived",
            "SignalReceived",
            "Resumed",
            "Completed"
        ]
    );
}

#[test]
fn a_run_whose_code_went_missing_parks_with_its_next_input_and_loses_nothing() {
    let (code, _) = brittle(0);
    let mut world = World::start(code.clone(), &0_u64);
    world.signal(GO, &1);
    world.reload_with(None);
    assert!(matches!(world.parked(), Some(ParkReason::NotRegistered { .. })));
    world.signal(GO, &2);
    assert_eq!(world.labels(), ["SignalReceived", "Parked", "SignalReceived"]);
    world.reload_with(Some(code));
    world.apply(Input::Resume).unwrap();
    assert_eq!(world.labels()[3..], ["Resumed", "Completed"]);
}

#[test]
fn code_that_does_not_fit_parks_with_the_difference_and_goes_on_when_it_is_mended() {
    fn calling(first: Activity<(), u64>) -> Implementation {
        Implementation::new(FLOW, move |cx: WorkflowContext, _: u64| async move {
            let value = cx.call(first, ()).await?;
            Ok::<_, WorkflowError>(value + cx.call(STEP, ()).await?)
        })
    }
    let mut world = World::start(calling(STEP), &0_u64);
    world.reload_with(Some(calling(OTHER)));
    let Some(ParkReason::Nondeterminism(difference)) = world.parked() else {
        panic!("{:?}", world.parked());
    };
    assert_eq!(difference.sequence, 2);
    assert_eq!(difference.recorded, "call of step (operation 1)");
    assert!(
        difference
            .replayed
            .starts_with("call of other (operation 1) at workflow/tests/it/parking.rs:")
    );

    // Results are recorded all the same, and the reason is said once, however often it is reloaded.
    world.complete(1, &3_u64);
    world.reload();
    world.signal(GO, &1);
    world.reload();
    world.signal(GO, &2);
    assert_eq!(
        world.labels(),
        [
            "ActivityScheduled",
            "Parked",
            "ActivityCompleted",
            "SignalReceived",
            "SignalReceived"
        ]
    );
    world.check_replays();

    world.reload_with(Some(calling(STEP)));
    world.apply(Input::Resume).unwrap();
    assert_eq!(world.parked(), None);
    world.complete(2, &4_u64);
    assert_eq!(world.labels().last(), Some(&"Completed"));
}

#[test]
fn activities_of_a_parked_run_are_still_tried_again() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, _: u64| {
        let (step, go) = cx.join(cx.call(STEP, ()), cx.receive(GO)).await;
        Ok::<_, WorkflowError>(step? + go?)
    });
    let mut world = World::start(code.clone(), &0_u64);
    world.reload_with(None);
    world.signal(GO, &1);
    world.fail(1, "busy", true);
    assert!(world.fire_next());
    assert_eq!(world.activities[&World::operation(1)].1, 2);
    world.complete(1, &5_u64);
    world.check_replays();
    world.reload_with(Some(code));
    world.apply(Input::Resume).unwrap();
    assert_eq!(world.labels().last(), Some(&"Completed"));
}
