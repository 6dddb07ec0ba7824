//! The time that code is shown, on a host whose clock is set back.

use std::time::Duration;

use millrun_core::{InstanceId, Timestamp};
use millrun_workflow::{
    Command, Event, Implementation, Input, Limits, Payload, Signal, Started, Workflow, WorkflowContext,
    WorkflowError,
};

use crate::world::World;

const GO: Signal<u64> = Signal::named("go");
/// Nobody takes it: it moves the run's time.
const OTHER: Signal<u64> = Signal::named("other");
const CHILD: Workflow<u64, u64> = Workflow::named("child");
const TIMES: Workflow<usize, Vec<u64>> = Workflow::named("times");
const ROUNDS: Workflow<Vec<u64>, Vec<u64>> = Workflow::named("rounds");

const MINUTE: Duration = Duration::from_secs(60);
const DAYS: Duration = Duration::from_secs(30 * 86_400);

fn at(second: u64) -> Timestamp {
    Timestamp::from_micros(second * 1_000_000)
}

/// The times, in seconds, at which the run began and each signal came.
fn times() -> Implementation {
    Implementation::new(TIMES, async |cx: WorkflowContext, signals: usize| {
        let seconds = || cx.now().as_micros() / 1_000_000;
        let mut times = vec![seconds()];
        for _ in 0..signals {
            cx.receive(GO).await?;
            times.push(seconds());
        }
        Ok::<_, WorkflowError>(times)
    })
}

fn started(not_before: Option<Timestamp>) -> Started {
    let id = InstanceId::new("world").unwrap();
    let mut started = Started::new(TIMES.name(), id, Payload::encode(&4_u64).unwrap());
    started.not_before = not_before;
    started
}

/// A run that begins at second 100 and gets signals at these seconds, with a new process in between.
fn at_these_seconds(started: Started, seconds: [u64; 4]) -> World {
    let moment = millrun_workflow::Moment {
        now: at(100),
        epoch: 1,
    };
    let mut world = World::start_as(Some(times()), started, Limits::default(), moment);
    for (index, second) in seconds.into_iter().enumerate() {
        if index == 2 {
            world.reopen();
        }
        world.moment.now = at(second);
        world.signal(GO, &0);
    }
    world
}

/// A machine's clock was wrong by some minutes and was set right between two openings of the store, and
/// once while the process ran. `cx.now()` was the time of the event that was recorded last, so a run saw
/// an earlier time behind a later one, and a span that it had measured was negative.
#[test]
fn time_in_a_run_never_goes_back_when_the_clock_is_set_back() {
    let world = at_these_seconds(started(Some(Timestamp::EPOCH)), [110, 90, 50, 120]);
    assert_eq!(world.result::<Vec<u64>>(), [100, 110, 110, 110, 120]);
    let recorded: Vec<_> = world.history().iter().map(|(_, time)| *time).collect();
    assert_eq!(
        recorded[1..5],
        [110, 90, 50, 120].map(at),
        "the host's, as it was"
    );
}

/// Histories of earlier releases hold times that went back, and their code saw them so. A replay that
/// showed it other times would park runs whose code is right.
#[test]
fn a_run_from_before_is_shown_the_times_that_it_was_shown() {
    let world = at_these_seconds(started(None), [110, 90, 50, 120]);
    assert_eq!(world.result::<Vec<u64>>(), [100, 110, 90, 50, 120]);
}

#[test]
fn a_run_begins_no_earlier_than_its_first_event_says() {
    let world = at_these_seconds(started(Some(at(115))), [110, 90, 50, 120]);
    assert_eq!(world.result::<Vec<u64>>(), [115, 115, 115, 115, 120]);
}

/// The clock was 30 days ahead for one opening of the store. Had timers counted from the run's time, which
/// stays ahead when the clock is set right, a pause of a minute would have taken 30 days.
#[test]
fn a_new_timer_counts_from_the_hosts_time_and_not_from_the_runs() {
    let code = Implementation::new(TIMES, async |cx: WorkflowContext, _: usize| {
        cx.receive(GO).await?;
        let before = cx.now();
        cx.sleep(MINUTE).await?;
        let since = cx.now().saturating_since(before);
        Ok::<_, WorkflowError>(vec![before.as_micros(), since.as_secs()])
    });
    let mut world = World::start(code, &0_u64);
    let right = world.moment.now;
    world.moment.now = right + DAYS;
    world.signal(OTHER, &0);
    world.moment.now = right;
    world.reopen();
    world.signal(GO, &0);
    assert_eq!(world.timers[&World::operation(1)], right + MINUTE);
    assert!(world.fire_next());
    let ahead = (right + DAYS).as_micros();
    assert_eq!(
        world.result::<Vec<u64>>(),
        [ahead, 0],
        "the run's time waits for the host's"
    );
}

/// Checkpoints, children, and runs that continue others, each with the time that the code is shown.
fn rounds() -> Implementation {
    Implementation::new(ROUNDS, async |cx: WorkflowContext, former: Vec<u64>| {
        let mut times = match cx.checkpointed::<Vec<u64>>() {
            Some(times) => times?,
            None => former,
        };
        times.push(cx.now().as_micros() / 1_000_000);
        match cx.receive(GO).await? {
            0 => Ok(times),
            1 => Ok(cx.continue_as_new(ROUNDS, times).await?),
            2 => {
                let child = cx.child(CHILD, "child", 0);
                child.await?;
                Ok(times)
            }
            _ => Ok(cx.checkpoint(&times).await?),
        }
    })
}

/// The clock was set back right before a run began again from a checkpoint, was brought back from it, or
/// went on in another run: each of these began with the host's time.
#[test]
fn what_a_run_goes_on_as_begins_no_earlier_than_the_run_had_got_to() {
    let mut world = World::start(rounds(), &Vec::<u64>::new());
    world.moment.now = at(500);
    world.signal(OTHER, &0);
    world.moment.now = at(20);
    world.signal(GO, &3);
    world.reopen();
    world.moment.now = at(30);
    world.signal(GO, &3);
    world.signal(GO, &1);
    let Some(Command::ContinueAsNew { started, .. }) = world.commands.last() else {
        panic!("{:?}", world.commands);
    };
    assert_eq!(started.not_before, Some(at(500)));
    let started = (**started).clone();
    let mut next = World::start_as(Some(rounds()), started, Limits::default(), world.moment);
    world.check_replays();
    next.signal(GO, &2);
    let Some(child) = next.children.values().next() else {
        panic!("{:?}", next.commands);
    };
    assert_eq!(
        child.not_before,
        Some(at(500)),
        "its argument may hold the parent's time"
    );
    let operation = child.operation;
    let end = Ok(Payload::encode(&0_u64).unwrap());
    next.apply(Input::ChildEnded { operation, end }).unwrap();
    assert_eq!(next.result::<Vec<u64>>(), [1, 500, 500, 500]);
}

/// A run was paused for a night, and what came meanwhile was taken up in the morning. Its code was shown
/// when the signal had come, but a replay from the checkpoint that it made then showed the morning, and
/// its new timer counted from the night.
#[test]
fn a_checkpoint_of_a_run_that_was_resumed_replays_with_the_time_that_it_was_made_with() {
    let mut world = World::start(rounds(), &Vec::<u64>::new());
    let night = at(1_000);
    world.moment.now = night;
    world
        .apply(Input::Pause {
            reason: "night".into(),
        })
        .unwrap();
    world.signal(GO, &3);
    world.moment.now = at(9_000);
    world.apply(Input::Resume).unwrap();
    world.reload();
    world.signal(GO, &0);
    assert_eq!(world.result::<Vec<u64>>(), [1, 1_000]);
}

#[test]
fn a_timer_of_a_run_that_was_resumed_counts_from_then() {
    let code = Implementation::new(TIMES, async |cx: WorkflowContext, _: usize| {
        cx.receive(GO).await?;
        cx.sleep(MINUTE).await?;
        Ok::<_, WorkflowError>(Vec::new())
    });
    let mut world = World::start(code, &0_u64);
    world
        .apply(Input::Pause {
            reason: "night".into(),
        })
        .unwrap();
    world.signal(GO, &0);
    world.moment.now = at(9_000);
    world.apply(Input::Resume).unwrap();
    assert_eq!(world.timers[&World::operation(1)], at(9_000) + MINUTE);
    world.check_replays();
}

/// The timers saw that a deadline had passed, the clock was set back, and the run saw that it had not. It
/// refused the timer as out of date, and nobody fired it again before the store was opened anew.
#[test]
fn a_timer_that_fires_before_its_time_is_asked_for_again() {
    let code = Implementation::new(TIMES, async |cx: WorkflowContext, _: usize| {
        cx.sleep(MINUTE).await?;
        Ok::<_, WorkflowError>(Vec::new())
    });
    let mut world = World::start(code, &0_u64);
    let (operation, deadline) = (World::operation(1), world.moment.now + MINUTE);
    world.apply(Input::TimerFired { operation }).unwrap();
    assert_eq!(world.commands, [Command::StartTimer { operation, deadline }]);
    assert!(world.fire_next());
    assert!(matches!(
        world.history().last(),
        Some((Event::Completed { .. }, _))
    ));
}
