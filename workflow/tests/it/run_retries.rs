//! Runs that are tried again when they fail: from the same beginning, after a pause, as often as their start allows.

use std::time::Duration;

use millrun_core::{InstanceId, RunId, Sequence, Timestamp};
use millrun_workflow::{
    Activity, Command, DurableTopic, Event, Implementation, Input, Limits, Moment, OperationId, Outcome,
    ParkReason, Payload, RawRecord, ReceiveScheduled, Retry, Signal, Started, Topic, Workflow,
    WorkflowContext, WorkflowError,
};

use crate::world::World;

const STEP: Activity<u64, u64> = Activity::named("step");
const GO: Signal<u64> = Signal::named("go");
const PAID: DurableTopic<u64> = Topic::named("paid").durable();
const FLOW: Workflow<u64, u64> = Workflow::named("flow");

/// Fails if its step does, or gives what it gave.
async fn flow(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    match cx.call(STEP, number).retry(Retry::never()).await? {
        0 => Err(WorkflowError::fatal("never")),
        result => Ok(result),
    }
}

pub(crate) fn code() -> Implementation {
    Implementation::new(FLOW, flow)
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn three_tries() -> Retry {
    Retry::exponential()
        .attempts(3)
        .first_pause(Duration::from_secs(10))
}

fn started(retry: Retry) -> Started {
    let id = InstanceId::new("world").unwrap();
    Started::new(FLOW.name(), id, Payload::encode(&7_u64).unwrap()).retried(retry)
}

fn begin(code: Implementation, started: Started, now: Timestamp) -> World {
    let moment = Moment { now, epoch: 1 };
    World::start_as(Some(code), started, Limits::default(), moment)
}

/// The run in which it goes on.
fn next(world: &World) -> (RunId, Started) {
    let mut next = world.commands.iter().filter_map(|command| match command {
        Command::ContinueAsNew { run, started } => Some((*run, Started::clone(started))),
        _ => None,
    });
    next.next().expect("it goes on in another run")
}

fn begin_next(code: Implementation, world: &World) -> World {
    let (_, started) = next(world);
    let mut next = begin(code, started.clone(), world.moment.now);
    if let Some(start_at) = started.start_at() {
        assert_eq!(next.parked(), Some(&ParkReason::Delayed { until: start_at }));
        assert_eq!(next.commands, [Command::ResumeAt { at: start_at }]);
        next.moment.now = start_at;
        next.reload();
        next.apply(Input::Resume).unwrap();
    }
    next
}

/// A run that fails, and is tried again.
pub(crate) fn recorded() -> World {
    let mut world = begin(code(), started(three_tries()), at(10));
    world.fail(1, "no", false);
    let mut world = begin_next(code(), &world);
    world.fail(1, "no again", false);
    world
}

fn failed_with(world: &World) -> Option<&str> {
    world.history().iter().find_map(|(event, _)| match event {
        Event::ContinuedAsNew { failed, .. } => failed.as_ref().map(|error| error.message.as_str()),
        _ => None,
    })
}

#[test]
fn a_run_that_fails_is_tried_again_from_its_input_and_fails_with_the_last_try() {
    let mut world = begin(code(), started(three_tries()), at(10));
    let mut began = at(10);
    for (number, pause) in [(1, 10), (2, 20)] {
        let run_try = *world.instance.ledger().started().unwrap().run_try().unwrap();
        assert_eq!((run_try.number, run_try.retry), (number, three_tries()));
        assert_eq!(run_try.since, (number > 1).then(|| at(10)));
        world.moment.now = began + Duration::from_secs(3);
        world.fail(1, "no", false);
        world.check_replays();
        assert!(failed_with(&world).unwrap().contains("no"));
        let (_, started) = next(&world);
        assert_eq!(started.input, Payload::encode(&7_u64).unwrap());
        let origin = started.origin.as_ref().unwrap();
        assert!(origin.continued.is_some());
        let paused = started.start_at().unwrap().saturating_since(world.moment.now);
        let plain = Duration::from_secs(pause);
        assert!(paused >= plain * 4 / 5 && paused <= plain * 6 / 5, "{paused:?}");
        world = begin_next(code(), &world);
        began = world.moment.now;
    }
    world.fail(1, "the last", false);
    world.check_replays();
    assert_eq!(world.labels().last(), Some(&"Failed"));
    assert!(matches!(
        world.instance.ledger().outcome(),
        Some(Outcome::Failed(_))
    ));
}

#[test]
fn a_try_that_succeeds_ends_it() {
    let mut world = begin(code(), started(three_tries()), at(10));
    world.fail(1, "no", false);
    let mut world = begin_next(code(), &world);
    world.complete(1, &5_u64);
    assert_eq!(world.result::<u64>(), 5);
    world.check_replays();
}

#[test]
fn what_cannot_help_is_not_tried_again() {
    // An error that says so, one try in all, and a request to cancel.
    let mut fatal = begin(code(), started(three_tries()), at(10));
    fatal.complete(1, &0_u64);
    let mut once = begin(code(), started(Retry::never()), at(10));
    once.fail(1, "no", false);
    let mut cancelled = begin(
        Implementation::new(FLOW, async |cx: WorkflowContext, _: u64| {
            cx.cancelled().await;
            Err::<u64, _>(WorkflowError::failed("not because of that"))
        }),
        started(three_tries()),
        at(10),
    );
    cancelled.cancel();
    let mut late = begin(
        code(),
        started(three_tries().elapsed_max(Duration::from_secs(5))),
        at(10),
    );
    late.fail(1, "no", false);
    for world in [fatal, once, cancelled, late] {
        assert_eq!(world.labels().last(), Some(&"Failed"));
        world.check_replays();
    }
    // An input that is none of the workflow's.
    let id = InstanceId::new("world").unwrap();
    let wrong = Started::new(FLOW.name(), id, Payload::encode(&"seven").unwrap());
    let world = begin(code(), wrong.retried(three_tries()), at(10));
    assert_eq!(world.labels(), ["Failed"]);
    let mut ended = begin(code(), started(three_tries()), at(10));
    ended
        .apply(Input::Terminate {
            reason: "enough".into(),
        })
        .unwrap();
    assert_eq!(ended.labels().last(), Some(&"Terminated"));
}

#[test]
fn a_request_to_cancel_ends_a_run_that_waits_for_its_next_try() {
    let mut world = begin(code(), started(three_tries()), at(10));
    world.fail(1, "no", false);
    let (_, started) = next(&world);
    let mut world = begin(code(), started, world.moment.now);
    world.cancel();
    assert!(matches!(
        world.instance.ledger().outcome(),
        Some(Outcome::Terminated(_))
    ));
}

#[test]
fn a_run_that_goes_on_as_another_has_all_its_tries_again() {
    let code = || {
        Implementation::new(FLOW, async |cx: WorkflowContext, number: u64| {
            if number == 7 {
                return Ok::<_, WorkflowError>(cx.continue_as_new(FLOW, 8).await?);
            }
            Ok(cx.call(STEP, number).retry(Retry::never()).await?)
        })
    };
    let mut world = begin(self::code(), started(three_tries()), at(10));
    world.fail(1, "no", false);
    let (_, failed_once) = next(&world);
    let world = begin(code(), failed_once, at(1_000));
    let (_, started) = next(&world);
    let run_try = started.run_try().expect("it is tried again");
    assert_eq!((run_try.number, run_try.since), (1, None));
    assert_eq!(started.start_at(), None);
}

/// What a try had taken of the signals of the start is there for the next; of later ones what it had not.
#[test]
fn a_try_begins_with_the_signals_of_the_first_and_those_that_came_since_and_were_not_taken() {
    let code = |checkpoints: bool| {
        Implementation::new(FLOW, move |cx: WorkflowContext, len: u64| async move {
            let taken = cx.checkpointed::<u64>().transpose()?;
            if taken.is_none() {
                let taken = cx.receive(GO).await?;
                if checkpoints {
                    return Ok(cx.checkpoint(&taken).await?);
                }
            }
            let mut sum = taken.unwrap_or(0);
            for _ in 1..len {
                sum += cx.receive(GO).await?;
            }
            cx.call(STEP, sum).retry(Retry::never()).await?;
            Ok::<_, WorkflowError>(sum)
        })
    };
    let value = |number: u64| Payload::encode(&number).unwrap();
    let begun = |len: u64| {
        let id = InstanceId::new("world").unwrap();
        let started = Started::new(FLOW.name(), id, value(len)).retried(three_tries());
        started
            .with_signal(GO.name(), value(1))
            .with_signal(GO.name(), value(2))
    };
    let signals = |started: &Started| -> Vec<u64> {
        let origin = started.origin.as_ref().unwrap();
        origin
            .signals
            .iter()
            .map(|(_, value)| value.decode().unwrap())
            .collect()
    };
    for checkpoints in [false, true] {
        // How many it takes before it fails, of two that it began with and three that come.
        for len in 1..=5 {
            let mut world = begin(code(checkpoints), begun(len), at(10));
            for number in 3..=5 {
                world.signal(GO, &number);
            }
            world.reload();
            world.fail(1, "no", false);
            world.check_replays();
            let expected: Vec<_> = [1, 2].into_iter().chain(len.max(2) + 1..=5).collect();
            assert_eq!(signals(&next(&world).1), expected, "{len}, {checkpoints}");
            // The one behind it has the same of those that it takes, and no more.
            let mut second = begin_next(code(checkpoints), &world);
            let len_taken = usize::try_from(len).unwrap();
            let missing = len_taken.saturating_sub(expected.len());
            for number in (6_u64..).take(missing) {
                second.signal(GO, &number);
            }
            second.fail(1, "no", false);
            second.check_replays();
            let taken = len_taken.max(2).min(expected.len() + missing);
            let left = expected.iter().skip(taken).copied();
            let expected: Vec<u64> = [1, 2].into_iter().chain(left).collect();
            assert_eq!(
                signals(&next(&second).1),
                expected,
                "{len}, {checkpoints}, second"
            );
        }
    }
}

#[test]
fn a_try_takes_the_records_of_topics_that_the_first_had() {
    let code = || {
        Implementation::new(FLOW, async |cx: WorkflowContext, _: u64| {
            let taken = cx.receive_from(PAID).await?.into_payload();
            Err::<u64, _>(WorkflowError::failed(format!("{taken}")))
        })
    };
    let mut world = begin(code(), started(three_tries()), at(10));
    let waits = |world: &World| -> Vec<(ReceiveScheduled, Timestamp)> {
        let waits = world.commands.iter().filter_map(|command| match command {
            Command::Receive { scheduled, run_began } => {
                Some((ReceiveScheduled::clone(scheduled), *run_began))
            }
            _ => None,
        });
        waits.collect()
    };
    let first = waits(&world);
    assert_eq!((first[0].0.behind, first[0].1), (None, at(10)));
    world.moment.now = at(15);
    let record = RawRecord {
        sequence: Sequence::new(4),
        time: at(12),
        key: None,
        correlation: None,
        cause: None,
        value: Payload::encode(&1_u64).unwrap(),
    };
    let operation = OperationId::new(1);
    let record = Box::new(record);
    world.apply(Input::RecordReceived { operation, record }).unwrap();
    let again = begin_next(code(), &world);
    assert_eq!(
        waits(&again),
        first,
        "though it began later, and the record was taken"
    );
}

#[test]
fn a_run_that_is_not_tried_again_says_nothing_of_it() {
    let id = InstanceId::new("world").unwrap();
    let started = Started::new(FLOW.name(), id, Payload::encode(&7_u64).unwrap());
    let mut world = begin(code(), started, at(10));
    world.fail(1, "no", false);
    assert_eq!(world.labels().last(), Some(&"Failed"));
    let bytes = |started: &Started| {
        let mut body = Vec::new();
        millrun_workflow::wire::encode(&Event::Started(started.clone()), &mut body).unwrap();
        body.len()
    };
    let plain = world.instance.ledger().started().unwrap();
    assert!(bytes(plain) < bytes(&plain.clone().retried(three_tries())));
}
