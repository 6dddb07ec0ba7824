//! One scenario with many seeds.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use millrun::{ActivityError, Workflow, WorkflowContext, WorkflowError};
use millrun_testkit::{World, WorldConfig};

use super::{CHARGE, RENT, SHIP, failure, registered};

const RACE: Workflow<(), String> = Workflow::named("race");

/// Takes for granted that the charge ends first, which nobody promises.
async fn race(cx: WorkflowContext, (): ()) -> Result<String, WorkflowError> {
    let (charged, shipped) = (cx.call(CHARGE, 1), cx.call(SHIP, String::new()));
    match cx.race(charged, shipped).await {
        millrun::workflow::Either::Left(charged) => Ok(charged?),
        millrun::workflow::Either::Right(_) => Err(WorkflowError::failed("it is sent before it is paid for")),
    }
}

fn racing() -> World {
    let world = World::new(|builder| registered(builder).register(RACE, race));
    world.mock(CHARGE).returns("paid".to_owned());
    world.mock(SHIP).returns("sent".to_owned());
    world
}

#[test]
fn seeds_find_a_race_that_one_order_hides_and_name_the_first_that_does() {
    let message = failure(|| {
        racing().each_seed(200, |world| {
            assert_eq!(world.result_of(RACE, ()).unwrap(), "paid")
        });
    });
    assert!(message.contains("it is sent before it is paid for"), "{message}");
    let (_, told) = message.split_once("a world of the seed ").unwrap();
    let seed: u64 = told.split('\n').next().unwrap().parse().unwrap();
    assert!(
        message.contains(&format!("MILLRUN_WORLD=seed={seed} cargo test")),
        "{message}"
    );
    // That seed alone shows it, and those before do not.
    for tried in 1..=seed {
        let world = World::seeded(tried, |builder| registered(builder).register(RACE, race));
        world.mock(CHARGE).returns("paid".to_owned());
        world.mock(SHIP).returns("sent".to_owned());
        assert_eq!(world.result_of(RACE, ()).is_err(), tried == seed);
    }
}

#[test]
fn a_crash_within_a_seed_is_told_once_with_both() {
    let message = failure(|| {
        racing().each_seed(200, |world| {
            world.crash_everywhere(|world| assert_eq!(world.result_of(RACE, ()).unwrap(), "paid"));
        });
    });
    assert_eq!(
        message.matches("to repeat it: MILLRUN_WORLD=seed=").count(),
        1,
        "{message}"
    );
}

#[test]
fn each_seed_has_an_order_of_its_own() {
    let traces = RefCell::new(BTreeSet::new());
    racing().each_seed(10, |world| {
        drop(world.result_of(RACE, ()));
        traces.borrow_mut().insert(world.trace().digest());
    });
    assert_eq!(traces.borrow().len(), 10);
}

/// Commits that take time, and steps that do: nothing rests on time that stands still.
#[test]
fn a_slow_disk_and_slow_steps_change_no_outcome() {
    let mut config = WorldConfig::seeded(1);
    config.commit_time_max = Duration::from_millis(200);
    config.step_time_max = Duration::from_millis(2);
    let world = World::with(config, registered);
    world
        .mock(CHARGE)
        .fails(ActivityError::retryable("closed"))
        .returns("paid".to_owned());
    world.each_seed(5, |world| {
        world.crash_everywhere(|world| {
            assert_eq!(world.result_of(RENT, 3).unwrap(), 12);
            assert_eq!(world.calls(CHARGE), [3; 12]);
        });
    });
}
