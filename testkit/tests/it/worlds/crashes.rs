//! Crashes at every commit, behind every attempt and behind every step.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use millrun::{Activity, ActivityError, RuntimeBuilder, Workflow, WorkflowContext, WorkflowError};
use millrun_testkit::{World, WorldConfig};

use super::{CHARGE, CONFIRM, ORDER, REFUND, SHIP, failure, registered};

fn client(world: &World) -> String {
    world.live(async |runtime| {
        let run = runtime.start(ORDER, "o-1", 42).await.unwrap();
        run.signal_as(CONFIRM, "yes", true).await.unwrap();
        run.result().await.unwrap()
    })
}

#[test]
fn a_scenario_holds_wherever_the_process_dies() {
    let world = World::new(registered);
    world
        .mock(CHARGE)
        .fails(ActivityError::retryable("closed"))
        .returns("receipt".to_owned());
    world.mock(SHIP).with(|receipt| Ok(format!("{receipt}, sent")));
    world.mock(REFUND).returns(());
    let most = RefCell::new(0);
    let scenario = |world: &World| {
        assert_eq!(client(world), "receipt, sent");
        assert_eq!((world.calls(CHARGE), world.calls(SHIP).len()), (vec![42], 1));
        assert!(world.calls(REFUND).is_empty());
        let attempts = world.attempts(CHARGE).len();
        assert!((2..=3).contains(&attempts), "{attempts} attempts");
        most.replace_with(|most| attempts.max(*most));
        // A signal that is sent again under its request is there once.
        assert_eq!(world.signals(CONFIRM).len(), 1);
    };
    let tried = world.crash_everywhere(scenario);
    assert!(tried.commits >= 4, "{tried:?}");
    assert_eq!(
        (tried.attempts, tried.trials),
        (3, 2 * tried.commits + 3),
        "{tried:?}"
    );
    assert_eq!(
        most.take(),
        3,
        "no crash came between an attempt and the news of it"
    );
    let steps = world.crash_at_each_step(scenario);
    assert!(steps.trials > tried.trials, "{steps:?}");
}

/// The crash before a commit loses what was queued for it, and the one behind it nothing.
#[test]
fn a_crash_before_a_commit_loses_it_and_one_behind_it_does_not() {
    let world = World::new(registered);
    world.mock(CHARGE).returns("receipt".to_owned());
    let lives = Mutex::new(Vec::new());
    world.crash_everywhere(|world| {
        let began = Mutex::new(Vec::new());
        world.live(async |runtime| {
            began.lock().unwrap().push(runtime.startup_report().live);
            drop(runtime.start(ORDER, "o-1", 42).await.unwrap());
        });
        lives.lock().unwrap().push(began.into_inner().unwrap());
    });
    // Without a crash; before and behind the first commit; before the second one, which the client does not wait for, and so on.
    let lives = lives.into_inner().unwrap();
    assert_eq!(lives[..3], [vec![0], vec![0, 0], vec![0, 1]], "{lives:?}");
}

const DEPOSIT: Activity<u64, ()> = Activity::named("deposit");
const SAVE: Workflow<u64, ()> = Workflow::named("save");

async fn save(cx: WorkflowContext, cents: u64) -> Result<(), WorkflowError> {
    Ok(cx.call(DEPOSIT, cents).await?)
}

/// An activity that has its effect twice when it is tried twice.
fn careless(balance: &Arc<AtomicU64>) -> impl Fn(RuntimeBuilder) -> RuntimeBuilder + 'static {
    let balance = Arc::clone(balance);
    move |builder| {
        let balance = Arc::clone(&balance);
        builder
            .register(SAVE, save)
            .register(DEPOSIT, async move |_cx, cents: u64| {
                balance.fetch_add(cents, Ordering::SeqCst);
                Ok(())
            })
    }
}

/// The planted mistake is found behind the attempt and nowhere else, and the message says how to see it again.
#[test]
fn an_activity_that_is_not_idempotent_is_found_with_the_command_that_repeats_it() {
    let balance = Arc::new(AtomicU64::new(0));
    let world = World::seeded(7, careless(&balance));
    let message = failure(|| {
        world.crash_everywhere(|world| {
            balance.store(0, Ordering::SeqCst);
            world.live(async |runtime| {
                let run = runtime.start(SAVE, "s", 5).await.unwrap();
                run.result().await.unwrap();
            });
            assert_eq!(balance.load(Ordering::SeqCst), 5, "the money is doubled");
        });
    });
    assert!(message.contains("the money is doubled"), "{message}");
    assert!(
        message.contains("in a world of the seed 7, with a crash be"),
        "{message}"
    );
    let (_, command) = message.split_once("\nto repeat it: ").unwrap();
    assert!(command.starts_with("MILLRUN_WORLD=seed=7,crash=be"), "{command}");
    assert!(
        command.ends_with(
            " cargo test -p millrun-testkit -- --exact \
             worlds::crashes::an_activity_that_is_not_idempotent_is_found_with_the_command_that_repeats_it"
        ),
        "{command}"
    );
}

#[test]
fn a_scenario_that_commits_nothing_or_too_much_is_refused() {
    let world = World::new(registered);
    let message = failure(|| {
        world.crash_everywhere(|_| ());
    });
    assert!(message.contains("there is nothing to crash"), "{message}");
    let mut config = WorldConfig::seeded(1);
    config.fault_points_max = 2;
    let world = World::with(config, registered);
    world.mock(CHARGE).returns("receipt".to_owned());
    world.mock(SHIP).returns("sent".to_owned());
    let message = failure(|| {
        world.crash_everywhere(|world| drop(client(world)));
    });
    assert!(message.contains("`fault_points_max` is 2"), "{message}");
}

/// What depends on something that is not the world's is told as that, not as a success.
#[test]
fn a_scenario_that_does_not_do_the_same_again_is_told() {
    let world = World::new(registered);
    world.mock(CHARGE).returns("receipt".to_owned());
    let runs = RefCell::new(10);
    let message = failure(|| {
        world.crash_everywhere(|world| {
            runs.replace_with(|runs| *runs - 1);
            for number in 0..*runs.borrow() {
                world.live(async |runtime| {
                    drop(runtime.start(ORDER, &format!("o-{number}"), 42).await.unwrap());
                });
            }
        });
    });
    assert!(message.contains("does not do the same again"), "{message}");
}

/// A crash in the middle of the opening, which declares what the registry has.
#[test]
fn a_crash_while_the_store_opens_is_survived() {
    const PLACED: millrun::DurableTopic<u64> = millrun::Topic::named("placed").durable();
    let world = World::new(|builder| registered(builder).durable_topic(PLACED));
    world.mock(CHARGE).returns("receipt".to_owned());
    world.mock(SHIP).returns("sent".to_owned());
    world.crash_at_each_step(|world| assert_eq!(client(world), "sent"));
}

/// Trials stand beside each other: what one has called or kept, another has not.
#[test]
fn each_trial_begins_with_an_empty_store_and_fresh_mocks() {
    let world = World::new(registered);
    world
        .mock(CHARGE)
        .returns("first".to_owned())
        .returns("later".to_owned());
    let seen = Mutex::new(BTreeSet::new());
    world.crash_everywhere(|world| {
        assert!(world.attempts(CHARGE).is_empty());
        world.live(async |runtime| {
            assert!(runtime.attach_untyped("o-1").is_ok());
            drop(runtime.start(ORDER, "o-1", 42).await.unwrap());
        });
        world.assert_awaits("o-1", CONFIRM);
        seen.lock().unwrap().insert(world.attempts(CHARGE).len());
    });
    let seen = seen.into_inner().unwrap();
    assert_eq!(
        seen,
        BTreeSet::from([1, 2]),
        "once, and twice where the crash came behind the attempt"
    );
}
