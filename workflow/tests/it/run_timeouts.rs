//! Runs that are out of time: by their own timeout, which each run of a chain has anew, and by that of the chain.

use std::time::Duration;

use millrun_core::{InstanceId, RunId, Timestamp};
use millrun_workflow::{
    Activity, ChildError, ChildFailure, Command, Either, Event, Implementation, Input, InputRefused,
    Instance, LaterSignals, Limits, Moment, OperationId, Outcome, ParkReason, Payload, ResetPoint,
    ResetRefused, Retry, RunDeadline, RunTimeout, Signal, StartTimeouts, Started, Turn, Workflow,
    WorkflowContext, WorkflowError,
};

use crate::world::{World, run_id};

const STEP: Activity<u64, u64> = Activity::named("step");
const GO: Signal<u64> = Signal::named("go");
const FLOW: Workflow<u64, u64> = Workflow::named("flow");
const PART: Workflow<u64, u64> = Workflow::named("part");

/// Waits for a child and a timer on one side, and on the other for a step and a signal, whose sum it gives.
async fn flow(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    let others = cx.join(
        cx.child(PART, "part", number),
        cx.sleep(Duration::from_secs(3_600)),
    );
    let step = cx.call(STEP, number).retry(Retry::never());
    match cx.race(others, cx.join(step, cx.receive(GO))).await {
        Either::Left(_) => Err(WorkflowError::failed("too late")),
        Either::Right((result, told)) => Ok(result? + told?),
    }
}

pub(crate) fn code() -> Implementation {
    Implementation::new(FLOW, flow)
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn timeouts(run: Option<u64>, chain: Option<u64>) -> StartTimeouts {
    StartTimeouts {
        run: run.map(Duration::from_secs),
        chain: chain.map(Duration::from_secs),
    }
}

fn started() -> Started {
    let id = InstanceId::new("world").unwrap();
    Started::new(FLOW.name(), id, Payload::encode(&7_u64).unwrap())
}

fn bounded(run: Option<u64>, chain: Option<u64>) -> Started {
    started().timing_out(timeouts(run, chain), at(10))
}

fn begin(code: Implementation, started: Started, now: Timestamp) -> World {
    let moment = Moment { now, epoch: 1 };
    World::start_as(Some(code), started, Limits::default(), moment)
}

fn deadline(world: &World) -> Option<(Timestamp, RunTimeout)> {
    let deadline: Option<RunDeadline> = world.instance.ledger().deadline();
    deadline.map(|deadline| (deadline.at, deadline.timeout))
}

fn time_out(world: &mut World, now: Timestamp) -> Result<(), InputRefused> {
    world.moment.now = now;
    world.apply(Input::TimeOut)
}

/// The run in which it goes on.
fn next(world: &World) -> (RunId, Started) {
    let mut next = world.commands.iter().filter_map(|command| match command {
        Command::ContinueAsNew { run, started } => Some((*run, Started::clone(started))),
        _ => None,
    });
    next.next().expect("it goes on in another run")
}

fn three_tries() -> Retry {
    Retry::exponential()
        .attempts(3)
        .first_pause(Duration::from_secs(10))
}

/// A run that is tried again because it was out of time, and then is out of time with its chain.
pub(crate) fn recorded() -> World {
    let started = bounded(Some(60), Some(100)).retried(three_tries());
    let mut world = begin(code(), started, at(10));
    time_out(&mut world, at(70)).unwrap();
    let (_, started) = next(&world);
    let mut world = begin(code(), started, world.moment.now);
    world.moment.now = at(85);
    world.reload();
    world.apply(Input::Resume).unwrap();
    time_out(&mut world, at(110)).unwrap();
    world
}

#[test]
fn a_run_that_is_out_of_time_ends_without_its_code_and_what_it_began_is_undone() {
    for (run, chain, timeout) in [
        (Some(60), None, RunTimeout::Run),
        (None, Some(60), RunTimeout::Chain),
        (Some(60), Some(60), RunTimeout::Chain),
        (Some(60), Some(61), RunTimeout::Run),
    ] {
        let mut world = begin(code(), bounded(run, chain), at(10));
        assert!(world.commands.contains(&Command::TimeOutAt { at: at(70) }));
        assert_eq!(deadline(&world), Some((at(70), timeout)));
        world.signal(GO, &1);
        world.reload();
        time_out(&mut world, at(70)).unwrap();
        assert_eq!(world.labels().last(), Some(&"TimedOut"));
        let ended = Some(&Outcome::TimedOut(timeout));
        assert_eq!(world.instance.ledger().outcome(), ended);
        assert_eq!(deadline(&world), None);
        assert_eq!(
            world.timers.len() + world.children.len() + world.activities.len(),
            0
        );
        let said = [Command::Close(Outcome::TimedOut(timeout))];
        assert!(world.commands.ends_with(&said), "{:?}", world.commands);
        world.check_replays();
        assert_eq!(time_out(&mut world, at(80)), Err(InputRefused::Closed));
    }
}

/// A terminated run and one that is out of time leave the same undone, but for the timeout itself.
#[test]
fn what_is_undone_is_what_terminating_undoes() {
    let undone = |input: Input| {
        let mut world = begin(code(), bounded(Some(60), None), at(10));
        world.moment.now = at(70);
        world.apply(input).unwrap();
        let mut commands = std::mem::take(&mut world.commands);
        commands.retain(|command| !matches!(command, Command::Close(_)));
        commands
    };
    let reason = "enough".into();
    assert_eq!(undone(Input::TimeOut), undone(Input::Terminate { reason }));
}

#[test]
fn a_clock_that_was_set_back_ends_no_run() {
    let mut world = begin(code(), bounded(Some(60), None), at(10));
    time_out(&mut world, at(69)).unwrap();
    assert_eq!(world.commands, [Command::TimeOutAt { at: at(70) }]);
    assert_eq!(world.instance.ledger().outcome(), None);
    time_out(&mut world, at(70)).unwrap();
    assert!(world.instance.ledger().outcome().is_some());
}

#[test]
fn a_run_without_a_timeout_says_nothing_of_it_and_is_not_out_of_time() {
    let mut world = begin(code(), started(), at(10));
    assert_eq!(deadline(&world), None);
    assert_eq!(time_out(&mut world, at(1_000_000)), Err(InputRefused::Stale));
    let body = |started: &Started| {
        let mut body = Vec::new();
        millrun_workflow::wire::encode(&Event::Started(started.clone()), &mut body).unwrap();
        body
    };
    let nothing = started().timing_out(StartTimeouts::default(), at(10));
    assert_eq!(nothing, started());
    assert_eq!(body(&nothing), body(&started()));
    assert!(body(&bounded(Some(1), None)).len() > body(&nothing).len());
    let asked =
        |command: &Command| matches!(command, Command::TimeOutAt { .. } | Command::CancelTimeOut { .. });
    assert!(!world.commands.iter().any(asked));
    world.apply(Input::Terminate { reason: "x".into() }).unwrap();
    assert!(!world.commands.iter().any(asked));
}

#[test]
fn a_run_that_ends_in_time_has_its_timeout_forgotten() {
    let mut world = begin(code(), bounded(Some(60), None), at(10));
    world.signal(GO, &1);
    world.complete(3, &2_u64);
    assert_eq!(world.result::<u64>(), 3);
    assert!(world.commands.contains(&Command::CancelTimeOut { at: at(70) }));
    // One that ends in its first turn has not asked for any.
    let at_once = Implementation::new(FLOW, async |_, number| Ok::<_, WorkflowError>(number));
    let world = begin(at_once, bounded(Some(60), None), at(10));
    assert!(!world.commands.contains(&Command::TimeOutAt { at: at(70) }));
}

#[test]
fn the_time_of_a_delayed_run_counts_from_when_it_is_to_begin() {
    let delayed = started()
        .delayed_until(at(1_000))
        .timing_out(timeouts(Some(60), Some(90)), at(10));
    let mut world = begin(code(), delayed, at(10));
    assert_eq!(world.parked(), Some(&ParkReason::Delayed { until: at(1_000) }));
    assert_eq!(deadline(&world), Some((at(1_060), RunTimeout::Run)));
    world.reopen();
    world.moment.now = at(1_000);
    world.apply(Input::Resume).unwrap();
    assert_eq!(deadline(&world), Some((at(1_060), RunTimeout::Run)));
    time_out(&mut world, at(1_060)).unwrap();
    world.check_replays();
}

#[test]
fn a_run_whose_code_does_not_run_is_out_of_time_all_the_same() {
    let ends = |mut world: World, park: fn(&mut World)| {
        park(&mut world);
        world.signal(GO, &1);
        time_out(&mut world, at(70)).unwrap();
        // What keeps it from running would keep its next try, too.
        let ended = Some(&Outcome::TimedOut(RunTimeout::Run));
        assert_eq!(world.instance.ledger().outcome(), ended);
        world
    };
    let begun = || begin(code(), bounded(Some(60), None).retried(three_tries()), at(10));
    ends(begun(), |world| {
        world.apply(Input::Pause { reason: "x".into() }).unwrap()
    })
    .check_replays();
    ends(begun(), |world| world.reload_with(None)).check_replays();
    // Code that decides otherwise.
    ends(begun().fickle(), |world| {
        let other = Implementation::new(FLOW, async |cx: WorkflowContext, _| {
            cx.sleep(Duration::from_secs(1)).await?;
            Ok::<_, WorkflowError>(0)
        });
        world.reload_with(Some(other));
    });
}

#[test]
fn a_run_that_goes_on_as_another_has_its_own_time_anew_and_what_is_left_of_the_chains() {
    let code = || {
        Implementation::new(FLOW, async |cx: WorkflowContext, number: u64| {
            cx.receive(GO).await?;
            Ok::<u64, WorkflowError>(cx.continue_as_new(FLOW, number + 1).await?)
        })
    };
    let mut world = begin(code(), bounded(Some(60), Some(100)), at(10));
    world.moment.now = at(50);
    world.signal(GO, &1);
    assert!(world.commands.contains(&Command::CancelTimeOut { at: at(70) }));
    let (_, goes_on) = next(&world);
    let mut world = begin(code(), goes_on, at(50));
    assert_eq!(deadline(&world), Some((at(110), RunTimeout::Chain)));
    time_out(&mut world, at(110)).unwrap();
    let ended = Some(&Outcome::TimedOut(RunTimeout::Chain));
    assert_eq!(world.instance.ledger().outcome(), ended);
}

#[test]
fn a_try_that_is_out_of_time_is_followed_by_another_within_the_time_of_the_chain() {
    let begun = bounded(Some(60), Some(100)).retried(three_tries());
    let mut world = begin(code(), begun, at(10));
    world.signal(GO, &5);
    time_out(&mut world, at(70)).unwrap();
    world.check_replays();
    let (run, again) = next(&world);
    let ended = Some(&Outcome::Continued(run));
    assert_eq!(world.instance.ledger().outcome(), ended);
    assert_eq!(again.input, Payload::encode(&7_u64).unwrap());
    let run_try = again.run_try().unwrap();
    assert_eq!((run_try.number, run_try.since), (2, Some(at(10))));
    // A signal that no try has taken is there for the next.
    assert_eq!(again.origin.as_ref().unwrap().signals.len(), 0, "it was taken");
    let begins = again.start_at().unwrap();
    let mut world = begin(code(), again, at(70));
    assert_eq!(world.parked(), Some(&ParkReason::Delayed { until: begins }));
    assert_eq!(deadline(&world), Some((at(110), RunTimeout::Chain)));
    // The chain's time is over while it still waits, say because it was resumed late.
    time_out(&mut world, at(110)).unwrap();
    let ended = Some(&Outcome::TimedOut(RunTimeout::Chain));
    assert_eq!(world.instance.ledger().outcome(), ended);
    world.check_replays();
}

#[test]
fn a_try_that_would_begin_when_the_time_of_the_chain_is_over_is_none() {
    // The pause of ten seconds varies by a fifth.
    for (chain, is_tried_again) in [(68, false), (90, true)] {
        let begun = bounded(None, Some(chain)).retried(three_tries());
        let mut world = begin(code(), begun, at(10));
        world.moment.now = at(70);
        world.signal(GO, &5);
        world.fail(3, "no", false);
        let label = if is_tried_again {
            "ContinuedAsNew"
        } else {
            "Failed"
        };
        assert_eq!(world.labels().last(), Some(&label), "{chain}");
        world.check_replays();
        let begun = bounded(Some(60), Some(chain)).retried(three_tries());
        let mut world = begin(code(), begun, at(10));
        time_out(&mut world, at(70)).unwrap();
        let outcome = world.instance.ledger().outcome().unwrap().clone();
        let continued = matches!(outcome, Outcome::Continued(_));
        assert_eq!(continued, is_tried_again, "{chain}: {outcome:?}");
        assert!(continued || outcome == Outcome::TimedOut(RunTimeout::Run));
    }
}

#[test]
fn what_was_asked_to_cancel_is_not_tried_again_when_it_is_out_of_time() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, _: u64| {
        cx.cancelled().await;
        cx.shielded().receive(GO).await?;
        Ok::<u64, WorkflowError>(1)
    });
    let mut world = begin(code, bounded(Some(60), None).retried(three_tries()), at(10));
    world.cancel();
    time_out(&mut world, at(70)).unwrap();
    let ended = Some(&Outcome::TimedOut(RunTimeout::Run));
    assert_eq!(world.instance.ledger().outcome(), ended);
}

/// A run that is out of time is what one resets: it has its own time anew, and what is left of the chain's.
#[test]
fn a_run_that_is_reset_has_its_own_time_anew() {
    let mut world = begin(code(), bounded(Some(60), Some(200)), at(10));
    world.complete(3, &2_u64);
    time_out(&mut world, at(70)).unwrap();
    for to in [1, 2] {
        let mut point = ResetPoint::to_event(to);
        point.later = LaterSignals::Drop;
        if to == 1 {
            // A minute later, at 130 s.
            let mut reset = world.reset(&code(), &point).unwrap();
            assert_eq!(deadline(&reset), Some((at(190), RunTimeout::Run)));
            let asked = reset.commands.iter();
            let asked = asked.filter(|command| **command == Command::TimeOutAt { at: at(190) });
            assert_eq!(asked.count(), 1);
            reset.check_replays();
            time_out(&mut reset, at(190)).unwrap();
            // The next one is bounded by the chain.
            assert_eq!(
                reset.reset(&code(), &point).unwrap_err(),
                ResetRefused::ChainTimedOut { at: at(210) }
            );
        }
    }
}

#[test]
fn a_run_that_is_reset_behind_its_first_event_asks_once_for_its_time() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, number: u64| {
        let first = cx.call(STEP, number).await?;
        Ok::<u64, WorkflowError>(cx.call(STEP, first).await?)
    });
    let mut world = begin(code.clone(), bounded(Some(60), None), at(10));
    world.complete(1, &2_u64);
    time_out(&mut world, at(70)).unwrap();
    for to in [2, 3, 4] {
        let reset = world.reset(&code, &ResetPoint::to_event(to)).unwrap();
        assert_eq!(deadline(&reset), Some((at(190), RunTimeout::Run)), "{to}");
        let asked = reset.commands.iter();
        let asked = asked.filter(|command| matches!(command, Command::TimeOutAt { .. }));
        assert_eq!(asked.count(), 1, "{to}");
        reset.check_replays();
    }
}

/// The beginning that a checkpoint keeps says it, too: the replays of the world go through it.
#[test]
fn a_checkpoint_keeps_the_time() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, number: u64| {
        let taken = cx.checkpointed::<u64>().transpose()?.unwrap_or(number);
        let told = cx.receive(GO).await?;
        Ok::<u64, WorkflowError>(cx.checkpoint(&(taken + told)).await?)
    });
    let mut world = begin(code, bounded(Some(60), Some(90)), at(10));
    world.signal(GO, &1);
    world.signal(GO, &2);
    assert_eq!(world.kept().count(), 2);
    world.reopen();
    assert_eq!(deadline(&world), Some((at(70), RunTimeout::Run)));
    time_out(&mut world, at(70)).unwrap();
    world.check_replays();
}

#[test]
fn a_run_that_begins_without_its_code_asks_for_its_time() {
    let moment = Moment {
        now: at(10),
        epoch: 1,
    };
    let mut turn = Turn::default();
    let reason = ParkReason::Stuck { message: "x".into() };
    let begun = bounded(Some(60), None);
    let mut instance = Instance::start_parked(run_id(), begun, reason, Limits::default(), moment, &mut turn);
    assert!(turn.commands.contains(&Command::TimeOutAt { at: at(70) }));
    let moment = Moment {
        now: at(70),
        ..moment
    };
    instance.apply(Input::TimeOut, moment, &mut turn).unwrap();
    assert_eq!(turn.events.last().map(Event::label), Some("TimedOut"));
}

#[test]
fn a_parent_is_told_that_its_child_was_out_of_time() {
    let code = Implementation::new(
        Workflow::<u64, String>::named("parent"),
        async |cx: WorkflowContext, number: u64| {
            let part = cx
                .child(PART, "part", number)
                .run_timeout(Duration::from_secs(5))
                .chain_timeout(Duration::from_secs(9));
            Ok::<_, WorkflowError>(match part.await {
                Err(ChildError::TimedOut(timeout)) => timeout.to_string(),
                other => format!("{other:?}"),
            })
        },
    );
    let mut world = World::start(code, &7_u64);
    let operation = OperationId::new(1);
    let scheduled = &world.children[&operation];
    assert_eq!(scheduled.timeouts.as_deref(), Some(&timeouts(Some(5), Some(9))));
    let end = Err(ChildFailure::TimedOut(RunTimeout::Chain));
    world.apply(Input::ChildEnded { operation, end }).unwrap();
    assert_eq!(world.result::<String>(), "chain");
    world.check_replays();
}

#[test]
fn a_child_without_any_time_is_not_started() {
    let code = Implementation::new(
        Workflow::<u64, String>::named("parent"),
        async |cx: WorkflowContext, number: u64| {
            let part = cx.child(PART, "part", number).run_timeout(Duration::ZERO);
            let error = part.await.unwrap_err();
            Ok::<_, WorkflowError>(error.to_string())
        },
    );
    let world = World::start(code, &7_u64);
    assert!(world.result::<String>().contains("a timeout of zero"));
}
