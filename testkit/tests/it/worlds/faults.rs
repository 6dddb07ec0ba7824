//! Faults beside crashes: parts that fail, a full disk, a clock that jumps; and trials with several, which are shrunk.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrun::{
    Activity, ActivityError, ResultError, RunError, StartError, Workflow, WorkflowContext, WorkflowError,
};
use millrun_testkit::{Fault, World};

use super::{CHARGE, CONFIRM, ORDER, RENT, SHIP, failure, registered};

fn shop() -> World {
    let world = World::new(registered);
    world
        .mock(CHARGE)
        .fails(ActivityError::retryable("closed"))
        .returns("receipt".to_owned());
    world.mock(SHIP).with(|receipt| Ok(format!("{receipt}, sent")));
    world
}

/// Asks until there is an answer, as clients do: a shard that fails cuts off what it works on.
async fn again<T, E: Debug>(is_retryable: fn(&E) -> bool, ask: impl AsyncFn() -> Result<T, E>) -> T {
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) if is_retryable(&error) => tokio::task::yield_now().await,
            Err(error) => panic!("{error:?}"),
        }
    }
}

fn is_cut_off<E>(error: &ResultError<E>) -> bool {
    matches!(error, ResultError::Run(error) if error.is_retryable())
}

fn is_sold(world: &World) {
    let told = world.live(async |runtime| {
        let start = async || runtime.start(ORDER, "o-1", 42).await;
        let run = again(StartError::is_retryable, start).await;
        again(RunError::is_retryable, async || {
            run.signal_as(CONFIRM, "yes", true).await
        })
        .await;
        again(is_cut_off, async || run.result().await).await
    });
    assert_eq!(told, "receipt, sent");
    assert_eq!((world.calls(CHARGE), world.calls(SHIP).len()), (vec![42], 1));
    assert_eq!(world.signals(CONFIRM).len(), 1);
}

#[test]
fn a_scenario_holds_whichever_part_fails_and_wherever() {
    let parts = shop().runtime().parts();
    let names: Vec<_> = parts.iter().map(|part| part.name.clone()).collect();
    let restarted: Vec<_> = names
        .iter()
        .filter(|name| !["journal", "timers"].contains(&name.as_str()))
        .collect();
    assert!(restarted.len() >= 3, "{names:?}");
    for name in restarted {
        let restarts = Mutex::new(0);
        let tried = shop().fault_everywhere(&Fault::KillPart(name.clone()), |world| {
            is_sold(world);
            world.advance(Duration::ZERO);
            let parts = world.runtime().parts();
            let part = parts.iter().find(|part| part.name == *name).unwrap();
            *restarts.lock().unwrap() += part.restarts;
        });
        assert!(tried.commits >= 4, "{tried:?}");
        assert!(restarts.into_inner().unwrap() > 0, "{name} was never restarted");
    }
    let message = failure(|| {
        shop().fault_everywhere(&Fault::KillPart("nobody".to_owned()), is_sold);
    });
    assert!(message.contains("there is no part named \"nobody\""), "{message}");
}

#[test]
fn a_full_disk_holds_up_what_waits_for_it_and_loses_nothing() {
    let hour = Duration::from_secs(3_600);
    let held_up = Mutex::new(0);
    let tried = shop().fault_everywhere(&Fault::DiskFull(hour), |world| {
        let began = world.now();
        is_sold(world);
        *held_up.lock().unwrap() += u64::from(world.now().saturating_since(began) >= hour);
        world.advance(2 * hour);
        assert!(!world.runtime().stats().journal.is_disk_full);
    });
    // Most of what it commits is waited for.
    let held_up = held_up.into_inner().unwrap();
    assert!(
        tried.trials > 8 && held_up >= tried.commits,
        "{held_up} of {tried:?}"
    );

    // It is told as a full disk while it is one.
    let world = shop();
    let is_full = Mutex::new(Vec::new());
    world.fault_everywhere(&Fault::DiskFull(hour), |world| {
        world.live(async |runtime| drop(runtime.start(ORDER, "o-1", 42).await.unwrap()));
        world.advance(Duration::from_secs(60));
        is_full
            .lock()
            .unwrap()
            .push(world.runtime().stats().journal.is_disk_full);
    });
    let is_full = is_full.into_inner().unwrap();
    assert!(is_full.contains(&true) && !is_full[0], "{is_full:?}");
}

#[test]
fn a_clock_that_is_set_forward_makes_due_what_it_passes() {
    let day = Duration::from_secs(86_400);
    let world = shop();
    world.live(async |runtime| drop(runtime.start(RENT, "flat", 5).await.unwrap()));
    world.advance(29 * day);
    assert!(world.calls(CHARGE).is_empty());
    let before = world.now();
    world.jump_clock(2 * day);
    assert_eq!(world.now().saturating_since(before), 2 * day);
    world.advance(Duration::from_secs(60));
    assert_eq!(world.calls(CHARGE), [5]);
    shop().fault_everywhere(&Fault::ClockJump(400 * day), |world| {
        assert_eq!(world.result_of(RENT, 5).unwrap(), 12);
        assert_eq!(world.calls(CHARGE), [5; 12]);
    });
}

const DEPOSIT: Activity<u64, ()> = Activity::named("deposit");
const SAVE: Workflow<u64, ()> = Workflow::named("save");

#[test]
fn a_scenario_that_is_right_holds_with_several_faults_of_each_kind() {
    shop().each_seed_with_faults(60, 4, is_sold);
}

/// A crash behind the deposit doubles it. The other faults of the trial have no part in that, and are left out.
#[test]
fn a_failure_is_shrunk_to_the_faults_that_it_needs() {
    let balance = Arc::new(AtomicU64::new(0));
    let own = Arc::clone(&balance);
    let world = World::new(move |builder| {
        let balance = Arc::clone(&own);
        builder
            .register(
                SAVE,
                async |cx: WorkflowContext, cents: u64| -> Result<(), WorkflowError> {
                    cx.sleep(Duration::from_secs(60)).await?;
                    Ok(cx.call(DEPOSIT, cents).await?)
                },
            )
            .register(DEPOSIT, async move |_cx, cents: u64| {
                balance.fetch_add(cents, Ordering::SeqCst);
                Ok(())
            })
    });
    let message = failure(|| {
        world.each_seed_with_faults(200, 6, |world| {
            balance.store(0, Ordering::SeqCst);
            world.live(async |runtime| {
                let run = again(StartError::is_retryable, async || {
                    runtime.start(SAVE, "s", 5).await
                })
                .await;
                again(is_cut_off, async || run.result().await).await;
            });
            assert_eq!(balance.load(Ordering::SeqCst), 5, "the money is doubled");
        });
    });
    assert!(message.contains("the money is doubled"), "{message}");
    let (_, command) = message.split_once("MILLRUN_WORLD=").unwrap();
    let (asked, _) = command.split_once(" cargo test").unwrap();
    let faults: Vec<_> = asked.trim_matches('\'').split(',').skip(1).collect();
    assert_eq!(faults.len(), 1, "{message}");
    assert!(
        faults[0].starts_with("crash=") || faults[0].starts_with("kill:pool default="),
        "{message}"
    );
}
