//! Changed code is caught: each mutant replays a history that the original made.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millrun_workflow::{
    Activity, ActivityError, Either, Implementation, Input, ParkReason, Payload, Retry, Signal, Workflow,
    WorkflowContext, WorkflowError,
};

use crate::world::World;

const RESERVE: Activity<u64, u64> = Activity::named("reserve");
const CHARGE: Activity<u64, u64> = Activity::named("charge");
const SHIP: Activity<u64, u64> = Activity::named("ship");
const GO: Signal<u64> = Signal::named("go");
const FLOW: Workflow<u64, u64> = Workflow::named("flow");

type Flow = Pin<Box<dyn Future<Output = Result<u64, WorkflowError>> + Send>>;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Reserve and charge at once, then wait for a go or a minute, then ship.
fn original(cx: WorkflowContext, order: u64) -> Flow {
    Box::pin(async move {
        let (reserved, charged) = cx.join(cx.call(RESERVE, order), cx.call(CHARGE, order)).await;
        let sum = reserved? + charged?;
        match cx.race(cx.receive(GO), cx.sleep(seconds(60))).await {
            Either::Left(go) => Ok(cx.call(SHIP, sum + go?).await?),
            Either::Right(_) => Ok(0),
        }
    })
}

/// A history of the original, up to `steps` of its six inputs.
fn world(code: fn(WorkflowContext, u64) -> Flow, steps: usize) -> World {
    let mut world = World::start(Implementation::new(FLOW, code), &7_u64);
    let inputs: [fn(&mut World); 4] = [
        |world| world.complete(2, &2),
        |world| world.complete(1, &1),
        |world| world.signal(GO, &3),
        |world| world.complete(4, &4),
    ];
    inputs.iter().take(steps).for_each(|input| input(&mut world));
    world
}

#[track_caller]
fn check_caught(name: &str, mutant: fn(WorkflowContext, u64) -> Flow) {
    let mut world = world(original, 4);
    world.check_replays();
    let finished = world.history().len();
    // A finished run is replayed as it is; a live one, up to its last turn, must be caught.
    let mut live = self::world(original, 3);
    live.reload_with(Some(Implementation::new(FLOW, mutant)));
    assert!(
        matches!(live.parked(), Some(ParkReason::Nondeterminism(_))),
        "{name}: {:?}",
        live.parked()
    );
    assert!(live.history().len() < finished);
    world.reload();
}

macro_rules! mutants {
    ($($name:ident: |$cx:ident, $order:ident| $body:expr;)+) => {
        $(
            #[test]
            fn $name() {
                fn mutant($cx: WorkflowContext, $order: u64) -> Flow {
                    Box::pin(async move { $body })
                }
                check_caught(stringify!($name), mutant);
            }
        )+
    };
}

/// The original, with its parts to be replaced.
async fn rest(cx: &WorkflowContext, sum: u64) -> Result<u64, WorkflowError> {
    match cx.race(cx.receive(GO), cx.sleep(seconds(60))).await {
        Either::Left(go) => Ok(cx.call(SHIP, sum + go?).await?),
        Either::Right(_) => Ok(0),
    }
}

mutants! {
    calls_swapped: |cx, order| {
        let (charged, reserved) = cx.join(cx.call(CHARGE, order), cx.call(RESERVE, order)).await;
        rest(&cx, reserved? + charged?).await
    };
    first_call_removed: |cx, order| {
        let charged = cx.call(CHARGE, order).await?;
        rest(&cx, charged).await
    };
    second_call_removed: |cx, order| {
        let reserved = cx.call(RESERVE, order).await?;
        rest(&cx, reserved).await
    };
    call_added_first: |cx, order| {
        cx.call(SHIP, order).await?;
        let (reserved, charged) = cx.join(cx.call(RESERVE, order), cx.call(CHARGE, order)).await;
        rest(&cx, reserved? + charged?).await
    };
    call_added_beside: |cx, order| {
        let two = cx.join(cx.call(RESERVE, order), cx.call(CHARGE, order));
        let ((reserved, charged), _) = cx.join(two, cx.call(SHIP, order)).await;
        rest(&cx, reserved? + charged?).await
    };
    call_added_in_between: |cx, order| {
        let (reserved, charged) = cx.join(cx.call(RESERVE, order), cx.call(CHARGE, order)).await;
        let more = cx.call(SHIP, order).await?;
        rest(&cx, reserved? + charged? + more).await
    };
    call_renamed: |cx, order| {
        const RENAMED: Activity<u64, u64> = Activity::named("reserve-2");
        let (reserved, charged) = cx.join(cx.call(RENAMED, order), cx.call(CHARGE, order)).await;
        rest(&cx, reserved? + charged?).await
    };
    last_call_renamed: |cx, order| {
        let (reserved, charged) = cx.join(cx.call(RESERVE, order), cx.call(CHARGE, order)).await;
        let sum = reserved? + charged?;
        match cx.race(cx.receive(GO), cx.sleep(seconds(60))).await {
            Either::Left(go) => Ok(cx.call(CHARGE, sum + go?).await?),
            Either::Right(_) => Ok(0),
        }
    };
    join_made_sequential: |cx, order| {
        let reserved = cx.call(RESERVE, order).await?;
        let charged = cx.call(CHARGE, order).await?;
        rest(&cx, reserved + charged).await
    };
    join_made_a_race: |cx, order| {
        let sum = match cx.race(cx.call(RESERVE, order), cx.call(CHARGE, order)).await {
            Either::Left(value) | Either::Right(value) => value?,
        };
        rest(&cx, sum).await
    };
    timer_in_place_of_a_call: |cx, order| {
        let (slept, charged) = cx.join(cx.sleep(seconds(1)), cx.call(CHARGE, order)).await;
        slept?;
        rest(&cx, charged?).await
    };
    timer_added: |cx, order| {
        let (reserved, charged) = cx.join(cx.call(RESERVE, order), cx.call(CHARGE, order)).await;
        cx.sleep(seconds(1)).await?;
        rest(&cx, reserved? + charged?).await
    };
    timer_removed: |cx, order| {
        let (reserved, charged) = cx.join(cx.call(RESERVE, order), cx.call(CHARGE, order)).await;
        let go = cx.receive(GO).await?;
        Ok(cx.call(SHIP, reserved? + charged? + go).await?)
    };
    signal_not_waited_for: |cx, order| {
        let (reserved, charged) = cx.join(cx.call(RESERVE, order), cx.call(CHARGE, order)).await;
        cx.sleep(seconds(60)).await?;
        Ok(cx.call(SHIP, reserved? + charged?).await?)
    };
    signal_renamed: |cx, order| {
        const RENAMED: Signal<u64> = Signal::named("go-2");
        let (reserved, charged) = cx.join(cx.call(RESERVE, order), cx.call(CHARGE, order)).await;
        match cx.race(cx.receive(RENAMED), cx.sleep(seconds(60))).await {
            Either::Left(go) => Ok(cx.call(SHIP, reserved? + charged? + go?).await?),
            Either::Right(_) => Ok(0),
        }
    };
    loser_kept_alive: |cx, order| {
        let (reserved, charged) = cx.join(cx.call(RESERVE, order), cx.call(CHARGE, order)).await;
        let mut sleep = Box::pin(cx.sleep(seconds(60)));
        match cx.race(cx.receive(GO), &mut sleep).await {
            Either::Left(go) => {
                let shipped = cx.call(SHIP, reserved? + charged? + go?).await?;
                sleep.await?;
                Ok(shipped)
            }
            Either::Right(_) => Ok(0),
        }
    };
    ends_early: |_cx, order| Ok(order);
    ends_after_the_first_step: |cx, order| {
        let (reserved, charged) = cx.join(cx.call(RESERVE, order), cx.call(CHARGE, order)).await;
        Ok(reserved? + charged?)
    };
    fails_instead: |cx, order| {
        let (reserved, charged) = cx.join(cx.call(RESERVE, order), cx.call(CHARGE, order)).await;
        Err(WorkflowError::failed(format!("{}", reserved? + charged?)))
    };
    panics: |cx, order| {
        let (reserved, charged) = cx.join(cx.call(RESERVE, order), cx.call(CHARGE, order)).await;
        panic!("{}", reserved? + charged?)
    };
    cancels_what_it_kept: |cx, order| {
        let mut reserve = Box::pin(cx.call(RESERVE, order));
        let charged = match cx.race(&mut reserve, cx.call(CHARGE, order)).await {
            Either::Left(value) | Either::Right(value) => value?,
        };
        drop(reserve);
        rest(&cx, charged).await
    };
}

/// Code that looks at the world by itself: at its clock, at a hash map's order, at dice. `world`
/// stands for what it sees there, which is one thing live and another in a replay.
#[test]
fn what_the_world_shows_differently_each_time_is_caught() {
    type Peek = fn(WorkflowContext, u64) -> Flow;
    let peeks: [(&str, Peek); 3] = [
        ("clock", |cx, clock| {
            Box::pin(async move {
                if clock > 0 {
                    cx.call(CHARGE, clock).await?;
                }
                rest(&cx, 0).await
            })
        }),
        ("hash map", |cx, hash| {
            Box::pin(async move {
                let mut activities = [(0, RESERVE), (1, CHARGE)];
                activities.sort_by_key(|(key, _)| key ^ hash);
                let calls = activities.iter().map(|(_, activity)| cx.call(*activity, 0));
                let values = cx.join_all(calls).await;
                rest(&cx, values.len() as u64).await
            })
        }),
        ("dice", |cx, dice| {
            Box::pin(async move {
                let values = cx.join_all((0..=dice).map(|_| cx.call(RESERVE, 0))).await;
                rest(&cx, values.len() as u64).await
            })
        }),
    ];
    for (name, peek) in peeks {
        let world_shows = Arc::new(AtomicU64::new(0));
        let shown = Arc::clone(&world_shows);
        let code = Implementation::new(FLOW, move |cx, _: u64| peek(cx, shown.load(Ordering::Relaxed)));
        let mut world = World::start(code, &7_u64);
        world.check_replays();
        world_shows.store(1, Ordering::Relaxed);
        world.reload();
        assert!(
            matches!(world.parked(), Some(ParkReason::Nondeterminism(_))),
            "{name}"
        );
    }
}

/// What a replay sees of the world itself: a new hash map, the system's clock, dice. Once in a while that
/// is the same as before; not so often in a row.
#[test]
fn what_the_world_itself_shows_is_caught_before_long() {
    const REPLAYS_MAX: usize = 1_000;
    #[expect(clippy::disallowed_types, reason = "its order is what must be caught")]
    type Map = std::collections::HashMap<u64, Activity<u64, u64>>;
    #[expect(clippy::disallowed_methods, reason = "the clock is what must be caught")]
    fn clock() -> u128 {
        let since = std::time::SystemTime::UNIX_EPOCH.elapsed();
        since.expect("now is later").as_nanos() / 1_000
    }
    #[expect(clippy::disallowed_types, reason = "dice are what must be caught")]
    fn dice() -> u64 {
        use std::hash::{BuildHasher, RandomState};
        RandomState::new().hash_one(0)
    }
    type Code = fn(WorkflowContext, u64) -> Flow;
    let codes: [(&str, Code); 4] = [
        ("hash map", |cx, _| {
            Box::pin(async move {
                let map: Map = (0..16)
                    .map(|key| (key, if key % 2 == 0 { RESERVE } else { CHARGE }))
                    .collect();
                let calls = map.into_iter().map(|(key, activity)| cx.call(activity, key));
                let values = cx.join_all(calls).await;
                Ok(values.len() as u64)
            })
        }),
        ("clock", |cx, _| {
            Box::pin(async move {
                let activity = if clock().is_multiple_of(2) {
                    RESERVE
                } else {
                    CHARGE
                };
                Ok(cx.call(activity, 0).await?)
            })
        }),
        ("dice", |cx, _| {
            Box::pin(async move {
                if dice().is_multiple_of(2) {
                    cx.sleep(seconds(1)).await?;
                }
                Ok(cx.call(SHIP, 0).await?)
            })
        }),
        ("select in a random order", |cx, _| {
            Box::pin(async move {
                tokio::select! {
                    reserved = cx.call(RESERVE, 0) => Ok(reserved?),
                    charged = cx.call(CHARGE, 0) => Ok(charged?),
                    go = cx.receive(GO) => Ok(go?),
                }
            })
        }),
    ];
    for (name, code) in codes {
        let mut world = World::start(Implementation::new(FLOW, code), &7_u64).fickle();
        let is_caught = (0..REPLAYS_MAX).any(|_| {
            world.reload();
            matches!(world.parked(), Some(ParkReason::Nondeterminism(_)))
        });
        assert!(is_caught, "{name}");
    }
}

#[test]
fn the_original_is_not_caught() {
    for steps in 0..=4 {
        let mut world = world(original, steps);
        world.reload();
        assert_eq!(world.parked(), None);
        assert_eq!(world.instance.changed_values(), 0);
    }
}

#[test]
fn another_value_is_counted_and_goes_on() {
    fn added_field(cx: WorkflowContext, order: u64) -> Flow {
        original(cx, order + 1)
    }
    let mut world = world(original, 3);
    world.reload_with(Some(Implementation::new(FLOW, added_field)));
    assert_eq!(world.parked(), None);
    // The two first calls have another input; the third one's follows from recorded results.
    assert_eq!(world.instance.changed_values(), 2);
}

/// Two values and two local steps of one type, one after the other.
fn priced(cx: WorkflowContext, order: u64) -> Flow {
    Box::pin(async move {
        let price = cx.record(|| order * 100).named("price").await?;
        let postage = cx.record(|| 5).named("postage").await?;
        let tax = cx.local(|| taxed(price)).named("tax").await?;
        let rebate = cx.local(|| taxed(2)).named("rebate").await?;
        let go = cx.receive(GO).await?;
        Ok(cx.call(CHARGE, 2 * price + postage + tax - rebate + go).await?)
    })
}

fn taxed(cents: u64) -> Result<u64, ActivityError> {
    Ok(cents / 5)
}

/// What the mutants have in common.
async fn charge(cx: WorkflowContext, values: [u64; 4]) -> Result<u64, WorkflowError> {
    let [price, postage, tax, rebate] = values;
    let go = cx.receive(GO).await?;
    Ok(cx.call(CHARGE, 2 * price + postage + tax - rebate + go).await?)
}

/// Two calls of `record` changed places. Both gave a number, a replay compared no more than that a value was
/// recorded, and the run charged the postage as the price. Names tell the calls apart; our mutants had swapped
/// calls, children and publishes, all of which have names, and never two values of one type.
#[test]
fn values_and_local_steps_of_one_type_that_change_places_are_caught_by_their_names() {
    type Code = fn(WorkflowContext, u64) -> Flow;
    let mutants: [(&str, Code); 7] = [
        ("values swapped", |cx, order| {
            Box::pin(async move {
                let postage = cx.record(|| 5).named("postage").await?;
                let price = cx.record(|| order * 100).named("price").await?;
                let tax = cx.local(|| taxed(price)).named("tax").await?;
                let rebate = cx.local(|| taxed(2)).named("rebate").await?;
                charge(cx, [price, postage, tax, rebate]).await
            })
        }),
        ("steps swapped", |cx, order| {
            Box::pin(async move {
                let price = cx.record(|| order * 100).named("price").await?;
                let postage = cx.record(|| 5).named("postage").await?;
                let rebate = cx.local(|| taxed(2)).named("rebate").await?;
                let tax = cx.local(|| taxed(price)).named("tax").await?;
                charge(cx, [price, postage, tax, rebate]).await
            })
        }),
        ("value and step swapped", |cx, order| {
            Box::pin(async move {
                let price = cx.record(|| order * 100).named("price").await?;
                let tax = cx.local(|| taxed(price)).named("tax").await?;
                let postage = cx.record(|| 5).named("postage").await?;
                let rebate = cx.local(|| taxed(2)).named("rebate").await?;
                charge(cx, [price, postage, tax, rebate]).await
            })
        }),
        ("value renamed", |cx, order| {
            Box::pin(async move {
                let price = cx.record(|| order * 100).named("price-2").await?;
                let postage = cx.record(|| 5).named("postage").await?;
                let tax = cx.local(|| taxed(price)).named("tax").await?;
                let rebate = cx.local(|| taxed(2)).named("rebate").await?;
                charge(cx, [price, postage, tax, rebate]).await
            })
        }),
        ("name removed", |cx, order| {
            Box::pin(async move {
                let price = cx.record(|| order * 100).await?;
                let postage = cx.record(|| 5).named("postage").await?;
                let tax = cx.local(|| taxed(price)).named("tax").await?;
                let rebate = cx.local(|| taxed(2)).named("rebate").await?;
                charge(cx, [price, postage, tax, rebate]).await
            })
        }),
        ("value removed", |cx, _| {
            Box::pin(async move {
                let postage = cx.record(|| 5).named("postage").await?;
                let tax = cx.local(|| taxed(5)).named("tax").await?;
                let rebate = cx.local(|| taxed(2)).named("rebate").await?;
                charge(cx, [5, postage, tax, rebate]).await
            })
        }),
        ("last step of another name", |cx, order| {
            Box::pin(async move {
                let price = cx.record(|| order * 100).named("price").await?;
                let postage = cx.record(|| 5).named("postage").await?;
                let tax = cx.local(|| taxed(price)).named("tax").await?;
                let rebate = cx.local(|| taxed(2)).named("discount").await?;
                charge(cx, [price, postage, tax, rebate]).await
            })
        }),
    ];
    for (name, mutant) in mutants {
        for signals in 0..=1 {
            let mut world = World::start(Implementation::new(FLOW, priced), &7_u64);
            (0..signals).for_each(|_| world.signal(GO, &1));
            world.check_replays();
            world.reload_with(Some(Implementation::new(FLOW, mutant)));
            let Some(ParkReason::Nondeterminism(difference)) = world.parked() else {
                panic!("{name}: {:?}", world.parked());
            };
            assert!(
                difference.recorded.starts_with("record of \""),
                "{name}: {difference}"
            );
        }
    }
}

/// A history from before there were names fits code that has them, and code without names gets its values in
/// the order in which they were recorded, whatever its calls are about: that is all that can be compared.
#[test]
fn values_without_a_name_fit_calls_of_any_and_go_by_their_order() {
    let without: fn(WorkflowContext, u64) -> Flow = |cx, order| {
        Box::pin(async move {
            let price = cx.record(|| order * 100).await?;
            let postage = cx.record(|| 5).await?;
            let tax = cx.local(|| taxed(price)).await?;
            let rebate = cx.local(|| taxed(2)).await?;
            charge(cx, [price, postage, tax, rebate]).await
        })
    };
    let swapped: fn(WorkflowContext, u64) -> Flow = |cx, order| {
        Box::pin(async move {
            let postage = cx.record(|| 5).await?;
            let price = cx.record(|| order * 100).await?;
            let tax = cx.local(|| taxed(price)).await?;
            let rebate = cx.local(|| taxed(2)).await?;
            charge(cx, [price, postage, tax, rebate]).await
        })
    };
    for (code, sum) in [
        (priced as fn(_, _) -> _, 1_400 + 5 + 140),
        (swapped, 10 + 700 + 140),
    ] {
        let mut world = World::start(Implementation::new(FLOW, without), &7_u64);
        world.reload_with(Some(Implementation::new(FLOW, code)));
        assert_eq!((world.parked(), world.instance.changed_values()), (None, 0));
        world.signal(GO, &1);
        let charged: u64 = world.activities[&World::operation(1)].0.input.decode().unwrap();
        assert_eq!(charged, sum + 1);
    }
}

/// A promise and a random number have no names, and how a call is to be tried is not part of what it is.
#[test]
fn what_has_no_name_goes_by_its_order_and_how_a_call_is_tried_is_not_compared() {
    let before: fn(WorkflowContext, u64) -> Flow = |cx, order| {
        Box::pin(async move {
            let (_left, right) = (cx.promise::<u64>(), cx.promise::<u64>());
            let (_first, second) = (cx.random(), cx.random());
            cx.call(CHARGE, order).await?;
            Ok(right.await? + cx.call(SHIP, second).await?)
        })
    };
    let after: fn(WorkflowContext, u64) -> Flow = |cx, order| {
        Box::pin(async move {
            let (right, _left) = (cx.promise::<u64>(), cx.promise::<u64>());
            let (second, _first) = (cx.random(), cx.random());
            let call = cx.call(CHARGE, order).retry(Retry::never()).on_queue("other");
            call.start_to_close(seconds(1)).await?;
            Ok(right.await? + cx.call(SHIP, second).await?)
        })
    };
    let mut world = World::start(Implementation::new(FLOW, before), &7_u64);
    world.reload_with(Some(Implementation::new(FLOW, after)));
    assert_eq!((world.parked(), world.instance.changed_values()), (None, 0));
    world.complete(3, &1_u64);
    let settle = |number| Input::EndPromise {
        operation: World::operation(number),
        end: Ok(Payload::encode(&1_u64).unwrap()),
    };
    world.apply(settle(2)).unwrap();
    assert_eq!(
        world.labels().last(),
        Some(&"PromiseSettled"),
        "it waits for the other"
    );
    world.apply(settle(1)).unwrap();
    assert_eq!(world.labels().last(), Some(&"ActivityScheduled"));
}
