//! Calls, retries, timers, and what holds several of them together.

use std::pin::Pin;
use std::time::Duration;

use futures_util::FutureExt;
use millrun_workflow::{
    Activity, ActivityError, CallError, Command, Either, Implementation, Input, InputRefused, Limits,
    ParkReason, Retry, Signal, TimeoutKind, Workflow, WorkflowContext, WorkflowError,
};

use crate::world::World;

const DOUBLE: Activity<u64, u64> = Activity::named("double");
const FLOW: Workflow<u64, u64> = Workflow::named("flow");
const TEXT: Workflow<u64, String> = Workflow::named("text");

#[test]
fn steps_in_sequence_give_their_values_to_each_other() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, mut value: u64| {
        for _ in 0..20 {
            value = cx.call(DOUBLE, value).await? % 1_000_003;
        }
        Ok::<_, WorkflowError>(value)
    });
    let mut world = World::start(code, &3_u64);
    for number in 1..=20 {
        let input: u64 = world.activities[&World::operation(number)]
            .0
            .input
            .decode()
            .unwrap();
        world.complete(number, &(2 * input));
    }
    assert_eq!(world.result::<u64>(), 3 * (1 << 20) % 1_000_003);
}

#[test]
fn an_activity_is_tried_again_with_growing_pauses_until_the_limit() {
    let code = Implementation::new(TEXT, async |cx: WorkflowContext, value: u64| {
        let call = cx.call(DOUBLE, value).retry(Retry::exponential().attempts(3));
        Ok::<_, WorkflowError>(match call.await {
            Err(CallError::Failed(error)) => error.message().to_string(),
            other => format!("{other:?}"),
        })
    });
    let mut world = World::start(code, &1_u64);
    let mut attempts = Vec::new();
    for failure in ["first", "second", "third"] {
        attempts.push(world.activities[&World::operation(1)].1);
        world.fail(1, failure, true);
        if failure != "third" {
            let began = world.moment.now;
            assert!(world.fire_next());
            let pause = world.moment.now.saturating_since(began);
            assert!(
                pause >= Duration::from_millis(80) && pause <= Duration::from_millis(240),
                "{pause:?}"
            );
        }
    }
    assert_eq!(attempts, [1, 2, 3]);
    assert_eq!(world.result::<String>(), "third");
}

#[test]
fn an_error_that_another_attempt_cannot_help_ends_the_call_at_once() {
    let code = Implementation::new(TEXT, async |cx: WorkflowContext, value: u64| {
        let error = cx.call(DOUBLE, value).await.unwrap_err();
        Ok::<_, WorkflowError>(format!("{error}"))
    });
    let mut world = World::start(code, &1_u64);
    world.fail(1, "declined", false);
    assert_eq!(world.result::<String>(), "the activity failed: declined");
}

#[test]
fn a_timeout_is_told_from_a_failure() {
    let code = Implementation::new(TEXT, async |cx: WorkflowContext, value: u64| {
        let call = cx.call(DOUBLE, value).retry(Retry::never());
        Ok::<_, WorkflowError>(match call.await {
            Err(CallError::TimedOut(kind)) => kind.to_string(),
            other => format!("{other:?}"),
        })
    });
    let mut world = World::start(code, &1_u64);
    let input = Input::AttemptFailed {
        operation: World::operation(1),
        attempt: 1,
        failure: millrun_workflow::ActivityFailure::TimedOut(TimeoutKind::StartToClose),
        is_retryable: true,
        kind: None,
        retry_after: None,
    };
    world.apply(input).unwrap();
    assert_eq!(world.result::<String>(), "start-to-close");
}

#[test]
fn a_crash_gives_the_attempt_a_higher_number_and_the_late_one_is_refused() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, value: u64| {
        Ok::<_, WorkflowError>(cx.call(DOUBLE, value).await?)
    });
    let mut world = World::start(code, &21_u64);
    world.reopen();
    world.reopen();
    assert_eq!(world.activities[&World::operation(1)].1, 3);
    // What an attempt of an earlier owner failed at is of no interest while a later one runs.
    let late = Input::AttemptFailed {
        operation: World::operation(1),
        attempt: 1,
        failure: crate::world::failure("late", true),
        is_retryable: true,
        kind: None,
        retry_after: None,
    };
    assert_eq!(world.apply(late), Err(InputRefused::Stale));
    world.complete(1, &42_u64);
    assert_eq!(world.result::<u64>(), 42);
}

/// A call that was dropped while its second attempt ran used to have its (fired) timer
/// cancelled and the attempt left running: nothing in the history says that it began.
#[test]
fn a_dropped_call_stops_its_attempt_and_its_pause_alike() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, value: u64| {
        let long = cx.sleep(Duration::from_secs(3_600));
        match cx.race(cx.call(DOUBLE, value), long).await {
            Either::Left(value) => Ok(value?),
            Either::Right(_) => Err(WorkflowError::failed("late")),
        }
    });
    let mut world = World::start(code, &1_u64);
    world.fail(1, "busy", true);
    assert!(world.fire_next());
    assert!(
        world.activities.contains_key(&World::operation(1)),
        "attempt 2 runs"
    );
    let two = World::operation(2);
    world.moment.now = world.timers[&two];
    world.apply(Input::TimerFired { operation: two }).unwrap();
    assert!(world.commands.iter().any(
        |command| matches!(command, Command::CancelActivity { operation, queue } if operation.get() == 1 && queue == "default")
    ));
    world.check_replays();
}

#[test]
fn the_loser_of_a_race_is_cancelled_durably_and_may_not_answer() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, value: u64| {
        let first = match cx.race(cx.call(DOUBLE, value), cx.call(DOUBLE, value + 1)).await {
            Either::Left(value) | Either::Right(value) => value?,
        };
        cx.sleep(Duration::from_secs(1)).await?;
        Ok::<_, WorkflowError>(first)
    });
    let mut world = World::start(code, &1_u64);
    world.complete(2, &4_u64);
    assert_eq!(
        world.labels()[2..],
        ["ActivityCompleted", "OperationCancelled", "TimerStarted"]
    );
    let late = Input::ActivityCompleted {
        operation: World::operation(1),
        attempt: 1,
        result: millrun_workflow::Payload::encode(&2_u64).unwrap(),
    };
    assert_eq!(world.apply(late), Err(InputRefused::Stale));
    assert!(world.fire_next());
    assert_eq!(world.result::<u64>(), 4);
}

#[test]
fn the_first_of_many_wins_and_all_others_are_cancelled_durably() {
    for winner in [1, 3, 5] {
        let code = Implementation::new(FLOW, async |cx: WorkflowContext, calls: u64| {
            let calls = (0..calls).map(|number| cx.call(DOUBLE, number));
            let Some((place, value)) = cx.race_all(calls).await else {
                return Err(WorkflowError::failed("nobody runs"));
            };
            cx.sleep(Duration::from_secs(1)).await?;
            Ok(100 * place as u64 + value?)
        });
        let mut world = World::start(code, &5_u64);
        world.complete(winner, &7_u64);
        let labels = &world.labels()[5..];
        assert_eq!(labels[0], "ActivityCompleted");
        assert_eq!(labels[1..5], ["OperationCancelled"; 4]);
        assert_eq!(labels[5..], ["TimerStarted"]);
        assert!(world.fire_next());
        assert_eq!(world.result::<u64>(), 100 * u64::from(winner - 1) + 7);
    }
}

#[test]
fn of_many_that_are_ready_at_once_the_foremost_wins_and_of_none_nobody() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, value: u64| {
        let none = cx.race_all(std::iter::empty::<std::future::Ready<()>>()).await;
        assert_eq!(none, None);
        let ready = (0..3).map(std::future::ready);
        let first = cx.race_all(ready).await;
        Ok::<_, WorkflowError>(value + u64::from(first == Some((0, 0))))
    });
    assert_eq!(World::start(code, &1_u64).result::<u64>(), 2);
}

#[test]
fn a_select_that_is_biased_is_the_same_in_every_replay() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, rounds: u64| {
        let mut sum = 0;
        for round in 0..rounds {
            // Nested, and with a guard: a branch that is not wanted begins nothing.
            sum += tokio::select! {
                biased;
                value = cx.call(DOUBLE, round), if round != 1 => value?,
                either = cx.race(cx.sleep(Duration::from_secs(1)), cx.call(DOUBLE, 50)) => match either {
                    Either::Left(slept) => slept.map(|()| 100)?,
                    Either::Right(value) => value?,
                },
            };
        }
        Ok::<_, WorkflowError>(sum)
    });
    let mut world = World::start(code, &3_u64);
    world.complete(3, &1_u64);
    assert!(world.fire_next());
    world.complete(6, &4_u64);
    assert_eq!(world.result::<u64>(), 105);
    let cancelled = world
        .labels()
        .iter()
        .filter(|label| **label == "OperationCancelled")
        .count();
    assert_eq!(cancelled, 5, "{:?}", world.labels());
}

#[test]
fn what_tokio_and_futures_join_and_select_with_is_the_same_in_every_replay() {
    for order in [[1, 2, 3], [3, 2, 1], [2, 3, 1]] {
        let code = Implementation::new(FLOW, async |cx: WorkflowContext, value: u64| {
            let twice = async |number| {
                let value = cx.call(DOUBLE, number).await?;
                cx.call(DOUBLE, value).await
            };
            let (one, two, three) = tokio::join!(biased; twice(value), twice(20), twice(30));
            let slept = cx.sleep(Duration::from_secs(1));
            let left = futures_util::future::select(cx.call(DOUBLE, 40), slept).await;
            assert!(matches!(left, futures_util::future::Either::Left(_)));
            Ok::<_, WorkflowError>(one? + two? + three?)
        });
        let mut world = World::start(code, &10_u64);
        for number in order {
            world.complete(number, &u64::from(number));
        }
        for number in 4..=7 {
            world.complete(number, &1_u64);
        }
        assert_eq!(world.result::<u64>(), 3);
    }
}

type Outcome = Result<u64, WorkflowError>;
type Branch<'a> = Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;
/// A way to wait for two branches at once.
type Both = for<'a> fn(&'a WorkflowContext, Branch<'a>, Branch<'a>) -> Branch<'a>;

const POKE: Signal<()> = Signal::named("poke");
const STOP: Signal<()> = Signal::named("stop");

/// Two branches that one cancel wakes both, and each of which calls something then, behind a shield. Each
/// of the `pokes` that are waited for has both polled once more before.
fn woken_together(both: Both, is_scope: bool, pokes: u32) -> Implementation {
    const CLEAN: Activity<u64, u64> = Activity::named("clean");
    Implementation::new(FLOW, move |cx: WorkflowContext, _: u64| async move {
        let scope = cx.scope();
        let part = if is_scope { scope.context() } else { &cx };
        let branch = async |number| -> Outcome {
            let called = part.call(DOUBLE, number).await;
            assert!(matches!(called, Err(CallError::Cancelled(_))), "{called:?}");
            Ok(cx.shielded().call(CLEAN, number).await?)
        };
        let until_stopped = async {
            for _ in 0..pokes {
                cx.receive(POKE).await?;
            }
            if is_scope {
                cx.receive(STOP).await?;
                scope.cancel();
            }
            std::future::pending().await
        };
        let both = both(&cx, Box::pin(branch(1)), Box::pin(branch(2)));
        match cx.race(until_stopped, both).await {
            Either::Left(ended) | Either::Right(ended) => ended,
        }
    })
}

/// What a run has called that was poked so often, and cancelled then.
fn called_when_woken_together(both: Both, is_scope: bool, pokes: u32) -> (World, Vec<u64>) {
    let mut world = World::start(woken_together(both, is_scope, pokes), &0_u64);
    for _ in 0..pokes {
        world.signal(POKE, &());
    }
    if is_scope {
        world.signal(STOP, &());
    } else {
        world.cancel();
    }
    world.check_replays();
    let called = world.activities.values();
    let called = called.map(|(scheduled, _)| scheduled.input.decode().unwrap());
    let called = called.collect();
    (world, called)
}

/// So what they decide does not hang on how often they were polled before, which other code may change.
#[test]
fn branches_woken_by_one_cancel_go_on_in_the_order_written() {
    let ways: [(&str, Both); 9] = [
        ("cx.join", |cx, left, right| {
            Box::pin(async {
                let (left, right) = cx.join(left, right).await;
                Ok(left? + right?)
            })
        }),
        ("cx.join_all", |cx, left, right| {
            Box::pin(async { cx.join_all([left, right]).await.into_iter().sum() })
        }),
        ("cx.race", |cx, left, right| {
            Box::pin(async {
                match cx.race(left, right).await {
                    Either::Left(first) | Either::Right(first) => first,
                }
            })
        }),
        ("tokio::join, biased", |_, left, right| {
            Box::pin(async {
                let (left, right) = tokio::join!(biased; left, right);
                Ok(left? + right?)
            })
        }),
        ("tokio::try_join, biased", |_, left, right| {
            Box::pin(async {
                let (left, right) = tokio::try_join!(biased; left, right)?;
                Ok(left + right)
            })
        }),
        ("tokio::select, biased", |_, left, right| {
            Box::pin(async {
                tokio::select! {
                    biased;
                    left = left => left,
                    right = right => right,
                }
            })
        }),
        ("futures::join", |_, left, right| {
            Box::pin(async {
                let (left, right) = futures_util::join!(left, right);
                Ok(left? + right?)
            })
        }),
        ("futures::try_join", |_, left, right| {
            Box::pin(async {
                let (left, right) = futures_util::try_join!(left, right)?;
                Ok(left + right)
            })
        }),
        ("futures::select_biased", |_, left, right| {
            Box::pin(async {
                futures_util::select_biased! {
                    left = left.fuse() => left,
                    right = right.fuse() => right,
                }
            })
        }),
    ];
    for (name, both) in ways {
        for (is_scope, pokes) in (0..4).flat_map(|pokes| [(false, pokes), (true, pokes)]) {
            let (mut world, called) = called_when_woken_together(both, is_scope, pokes);
            assert_eq!(called, [1, 2], "{name}, {is_scope}, {pokes}");
            // The same code but for that it takes no poke.
            world.reload_with(Some(woken_together(both, is_scope, 0)));
            assert_eq!(world.parked(), None, "{name}, {is_scope}, {pokes}");
        }
    }
}

/// It begins with another branch each time that it is polled. A replay polls as often, so that it fits;
/// code that is polled once less decides something else.
#[test]
fn a_tokio_join_that_is_not_biased_hangs_on_how_often_it_is_polled() {
    let rotating: Both = |_, left, right| {
        Box::pin(async {
            let (left, right) = tokio::join!(left, right);
            Ok(left? + right?)
        })
    };
    let (mut world, called) = called_when_woken_together(rotating, false, 0);
    assert_eq!(called, [2, 1]);
    world.reload();
    assert_eq!(world.parked(), None);
    let (mut world, called) = called_when_woken_together(rotating, false, 1);
    assert_eq!(called, [1, 2]);
    world.reload();
    assert_eq!(world.parked(), None);
    world.reload_with(Some(woken_together(rotating, false, 0)));
    assert!(matches!(world.parked(), Some(ParkReason::Nondeterminism(_))));
}

#[test]
fn a_join_waits_for_both_in_any_order() {
    for order in [[1, 2], [2, 1]] {
        let code = Implementation::new(FLOW, async |cx: WorkflowContext, value: u64| {
            let (left, right) = cx.join(cx.call(DOUBLE, value), cx.call(DOUBLE, value + 1)).await;
            Ok::<_, WorkflowError>(10 * left? + right?)
        });
        let mut world = World::start(code, &1_u64);
        for number in order {
            world.complete(number, &u64::from(number));
        }
        assert_eq!(world.result::<u64>(), 12);
    }
}

#[test]
fn a_deadline_stands_over_several_steps() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, steps: u64| {
        let deadline = cx.now() + Duration::from_secs(60);
        for step in 0..steps {
            match cx.race(cx.call(DOUBLE, step), cx.sleep_until(deadline)).await {
                Either::Left(value) => drop(value?),
                Either::Right(_) => return Ok(step),
            }
        }
        Ok::<_, WorkflowError>(steps)
    });
    let mut world = World::start(code, &9_u64);
    let deadline = world.moment.now + Duration::from_secs(60);
    for step in [1, 3] {
        assert_eq!(world.timers.values().collect::<Vec<_>>(), [&deadline]);
        world.moment.now = world.moment.now + Duration::from_secs(25);
        world.complete(step, &0_u64);
    }
    assert!(world.fire_next());
    assert_eq!(world.result::<u64>(), 2);
}

#[test]
fn a_call_that_was_never_polled_decides_nothing() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, value: u64| {
        drop(cx.call(DOUBLE, value));
        drop(cx.sleep(Duration::from_secs(1)));
        Ok::<_, WorkflowError>(cx.call(DOUBLE, value).await?)
    });
    let mut world = World::start(code, &1_u64);
    world.complete(1, &2_u64);
    assert_eq!(
        world.labels(),
        ["ActivityScheduled", "ActivityCompleted", "Completed"]
    );
    assert_eq!(world.result::<u64>(), 2);
}

#[test]
fn the_end_cancels_what_is_outstanding_in_the_order_of_issue() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, value: u64| {
        // Kept by a box that outlives the code's last poll.
        let calls: Vec<_> = (0..3).map(|index| cx.call(DOUBLE, value + index)).collect();
        let mut all = Box::pin(cx.join_all(calls));
        let stop = cx.race(&mut all, cx.call(DOUBLE, 99)).await;
        std::mem::forget(all);
        match stop {
            Either::Left(_) => Ok::<_, WorkflowError>(0),
            Either::Right(value) => Ok(value?),
        }
    });
    let mut world = World::start(code, &1_u64);
    world.complete(4, &7_u64);
    let stopped: Vec<_> = world
        .commands
        .iter()
        .filter_map(|command| match command {
            Command::CancelActivity { operation, .. } => Some(operation.get()),
            _ => None,
        })
        .collect();
    assert_eq!(stopped, [1, 2, 3]);
    assert!(matches!(world.commands.last(), Some(Command::Close(_))));
    assert_eq!(world.result::<u64>(), 7);
}

#[test]
fn an_input_too_large_is_refused_to_the_code_and_records_nothing() {
    let code = Implementation::new(TEXT, async |cx: WorkflowContext, _: u64| {
        const SEND: Activity<String, ()> = Activity::named("send");
        let error = cx.call(SEND, "x".repeat(100)).await.unwrap_err();
        Ok::<_, WorkflowError>(error.to_string())
    });
    let mut limits = Limits::default();
    limits.payload_bytes_max = 99;
    let world = World::start_with(Some(code), &1_u64, limits);
    assert_eq!(world.labels(), ["Completed"]);
    assert!(world.result::<String>().contains("a payload may have 99"));
}

#[test]
fn one_call_too_many_is_refused_to_the_code() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, value: u64| {
        let results = cx
            .join_all((0..5).map(|index| cx.call(DOUBLE, value + index)))
            .await;
        let refused = results
            .iter()
            .filter(|result| matches!(result, Err(CallError::TooManyPending { len_max: 3 })));
        Ok::<_, WorkflowError>(refused.count() as u64)
    });
    let mut limits = Limits::default();
    limits.pending_len_max = 3;
    let mut world = World::start_with(Some(code), &1_u64, limits);
    (1..=3).for_each(|number| world.complete(number, &0_u64));
    assert_eq!(world.result::<u64>(), 2);
}

/// The code sees some of the limits, so a run keeps those it began with: with others, a replay
/// would decide differently and park every run that had ever met its limit.
#[test]
fn a_run_keeps_the_limits_it_was_started_with() {
    let code = || {
        Implementation::new(FLOW, async |cx: WorkflowContext, value: u64| {
            let (left, right) = cx.join(cx.call(DOUBLE, value), cx.call(DOUBLE, value)).await;
            Ok::<_, WorkflowError>(left? + u64::from(right.is_err()))
        })
    };
    let mut limits = Limits::default();
    limits.pending_len_max = 1;
    let mut world = World::start_with(Some(code()), &1_u64, limits);
    world.limits = Limits::default();
    world.reload();
    assert_eq!(world.parked(), None);
    world.complete(1, &2_u64);
    assert_eq!(world.result::<u64>(), 3);
}

#[test]
fn a_result_too_large_fails_the_call_and_the_run() {
    let code = Implementation::new(TEXT, async |cx: WorkflowContext, value: u64| {
        const FETCH: Activity<u64, String> = Activity::named("fetch");
        let fetched = cx.call(FETCH, value).await;
        assert!(matches!(fetched, Err(CallError::Payload(_))), "{fetched:?}");
        Ok::<_, WorkflowError>("x".repeat(100))
    });
    let mut limits = Limits::default();
    limits.payload_bytes_max = 99;
    let mut world = World::start_with(Some(code), &1_u64, limits);
    world.complete(1, &"x".repeat(100));
    assert_eq!(world.labels(), ["ActivityScheduled", "ActivityFailed", "Failed"]);
    world.check_replays();
}

#[test]
fn a_typed_error_comes_back_as_itself() {
    #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    enum Declined {
        Limit { cents: u64 },
    }
    impl std::fmt::Display for Declined {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("declined")
        }
    }
    impl millrun_workflow::TypedError for Declined {}
    const PAY: Activity<u64, (), Declined> = Activity::named("pay");
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, value: u64| {
        match cx.call(PAY, value).retry(Retry::never()).await {
            Err(CallError::Failed(Declined::Limit { cents })) => Ok(cents),
            other => Err(WorkflowError::failed(format!("{other:?}"))),
        }
    });
    let mut world = World::start(code, &1_u64);
    let error = Declined::Limit { cents: 500 };
    let failure = millrun_workflow::ActivityFailure::Failed {
        error: millrun_workflow::Payload::encode(&error).unwrap(),
        message: error.to_string(),
    };
    let input = Input::AttemptFailed {
        operation: World::operation(1),
        attempt: 1,
        failure,
        is_retryable: true,
        kind: None,
        retry_after: None,
    };
    world.apply(input).unwrap();
    assert_eq!(world.result::<u64>(), 500);
}

#[test]
fn a_workflow_ends_with_its_own_error() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, value: u64| {
        Ok::<_, WorkflowError>(cx.call(DOUBLE, value).await?)
    });
    let mut world = World::start(code, &1_u64);
    world.fail(1, "declined", false);
    assert_eq!(world.labels().last(), Some(&"Failed"));
    world.check_replays();
    // The ready-made errors compare by text.
    let error = ActivityError::fatal("declined");
    assert_eq!(error.message(), "declined");
}

#[test]
fn time_and_dice_are_the_same_in_a_replay_and_differ_between_draws() {
    let code = Implementation::new(TEXT, async |cx: WorkflowContext, value: u64| {
        let mut seen = Vec::new();
        for _ in 0..3 {
            cx.sleep(Duration::from_secs(value)).await?;
            seen.push((cx.now(), cx.random(), cx.random()));
        }
        Ok::<_, WorkflowError>(format!("{seen:?}"))
    });
    let mut world = World::start(code, &5_u64);
    while world.fire_next() {}
    let once = world.result::<String>();
    assert!(
        once.contains("(6000000)") && once.contains("(16000000)"),
        "{once}"
    );
}
