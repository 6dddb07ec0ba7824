//! Histories written by released formats still replay, with the code that made them.
//!
//! The files hold one event a line: microseconds, kind, body in hexadecimal. They are recorded
//! once per format, by [`record_the_histories`], and never again.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrun_core::{Cause, InstanceId, Sequence, Timestamp};
use millrun_workflow::{
    Activity, ActivityError, ActivityFailure, CallError, DurableTopic, Either, ErrorKind, Event, EventError,
    Implementation, Input, InputRefused, Limits, Moment, Origin, ParentClose, ParkReason, Payload,
    PublishOutcome, RawRecord, ReceivedRecord, Retry, Signal, SignalFailure, Started, State, TimeoutKind,
    Topic, Update, Workflow, WorkflowContext, WorkflowError, wire,
};
use serde::Serialize;

use crate::world::{World, run_id};

const RESERVE: Activity<u64, u64> = Activity::named("reserve");
const CHARGE: Activity<u64, u64> = Activity::named("charge").on_queue("payments");
const RELEASE: Activity<u64, ()> = Activity::named("release");
const APPROVED: Signal<String> = Signal::named("approved");
const SHOP: Workflow<usize, String> = Workflow::named("shop");
const ADD: Update<Vec<String>, String, usize> = Update::named("add");
const ORDER: Workflow<u64, String> = Workflow::named("order");
const PARCEL: Workflow<u64, String> = Workflow::named("parcel");
const COUNTER: Workflow<u64, String> = Workflow::named("counter");
const GO: Signal<u64> = Signal::named("go");
const PATIENT: Workflow<u64, String> = Workflow::named("patient");
const PUNCTUAL: Workflow<u64, String> = Workflow::named("punctual");
const BUSY: ErrorKind<ActivityError> = ErrorKind::named("busy");
const NAMED: Workflow<u64, String> = Workflow::named("named");
const TIMED: Workflow<u64, String> = Workflow::named("timed");
const COMPOSED: Workflow<u64, String> = Workflow::named("composed");
const REASONED: Workflow<u64, String> = Workflow::named("reasoned");
const EXPLAIN: Activity<String, ()> = Activity::named("explain");
const SIGNALLED: Workflow<u64, String> = Workflow::named("signalled");
const REQUESTED: Workflow<u64, u64> = Workflow::named("requested");
const CAUSED: Workflow<u64, u64> = Workflow::named("caused");
const TRACED: Workflow<u64, u64> = Workflow::named("traced");
const MENDED: Workflow<u64, String> = Workflow::named("mended");
const SENT: Topic<u64> = Topic::named("parcels.sent");
const RECEIVING: Workflow<u64, u64> = Workflow::named("receiving");
const KEYED: Workflow<u64, u64> = Workflow::named("keyed");
const VERSIONED: Workflow<u64, String> = Workflow::named("versioned");
const PAID: DurableTopic<u64> = Topic::named("orders.paid").durable();

/// Retries, a race, a signal, a timer, and cleaning up when cancelled.
async fn order(cx: WorkflowContext, number: u64) -> Result<String, WorkflowError> {
    let reserved = cx.call(RESERVE, number).await?;
    let approval = match cx
        .race(cx.receive(APPROVED), cx.sleep(Duration::from_secs(3_600)))
        .await
    {
        Either::Left(Ok(approval)) => approval,
        Either::Left(Err(error)) => {
            cx.shielded().call(RELEASE, reserved).await?;
            return Err(error.into());
        }
        Either::Right(_) => return Err(WorkflowError::failed("nobody approved")),
    };
    let (left, right) = cx
        .join(cx.call(CHARGE, number), cx.call(CHARGE, number + 1))
        .await;
    Ok(format!("{approval} {} {}", left? + right?, cx.random()))
}

fn implementation() -> Implementation {
    Implementation::new(ORDER, order)
}

/// A run as releases began it that showed the code times which went back.
fn earlier(code: impl Into<Option<Implementation>>, input: &impl Serialize) -> World {
    let code = code.into();
    let id = InstanceId::new("world").unwrap();
    let name = code.as_ref().map_or("unknown", Implementation::name);
    let mut started = Started::new(name, id, Payload::encode(input).unwrap());
    started.not_before = None;
    let moment = Moment {
        now: Timestamp::from_micros(1_000_000),
        epoch: 1,
    };
    World::start_as(code, started, Limits::default(), moment)
}

fn completed() -> World {
    let mut world = earlier(implementation(), &41_u64);
    world.fail(1, "busy", true);
    assert!(world.fire_next());
    world.complete(1, &1_u64);
    world.signal(APPROVED, &"by Ada".into());
    world.reopen();
    world.fail(4, "busy", true);
    world.complete(3, &2_u64);
    assert!(world.fire_next());
    world.complete(4, &3_u64);
    world
}

fn cancelled() -> World {
    let mut world = earlier(implementation(), &42_u64);
    world.complete(1, &1_u64);
    world.cancel();
    world.complete(3, &());
    world
}

/// A run that is shown why it is to cancel, and tells it to an activity.
async fn reasoned(cx: WorkflowContext, number: u64) -> Result<String, WorkflowError> {
    let Err(CallError::Cancelled(cancelled)) = cx.call(RESERVE, number).await else {
        return Err(WorkflowError::failed("it was reserved"));
    };
    let id = cx.instance_id();
    let what = format!("{id}: {}", cancelled.reason().unwrap_or("no reason"));
    cx.shielded().call(EXPLAIN, what).await?;
    Err(cancelled.into())
}

fn reasoned_implementation() -> Implementation {
    Implementation::new(REASONED, reasoned)
}

fn cancelled_for_a_reason() -> World {
    let mut world = World::start(reasoned_implementation(), &8_u64);
    world.cancel();
    world.complete(2, &());
    world
}

/// A run that another one had started, by what it published, and signalled.
fn caused() -> World {
    let cause = |operation| millrun_core::Cause {
        run: run_id(),
        operation,
    };
    let input = Payload::encode(&9_u64).unwrap();
    let started = Started::new(CAUSED.name(), InstanceId::new("world").unwrap(), input);
    let moment = Moment {
        now: Timestamp::from_micros(1_000_000),
        epoch: 1,
    };
    let code = Some(caused_implementation());
    let mut world = World::start_as(code, started.caused_by(cause(3)), Limits::default(), moment);
    world
        .apply(Input::Signal {
            name: GO.name().into(),
            value: Payload::encode(&2_u64).unwrap(),
            cause: Some(Box::new(cause(u32::MAX))),
            request: None,
        })
        .unwrap();
    world.signal(GO, &4);
    world
}

fn caused_implementation() -> Implementation {
    Implementation::new(CAUSED, async |cx: WorkflowContext, number: u64| {
        let first = cx.receive(GO).await?;
        Ok::<_, WorkflowError>(
            cx.continue_as_new(CAUSED, number + first + cx.receive(GO).await?)
                .await?,
        )
    })
}

/// A run that a caller has started from a place in a distributed trace, and that goes on in another one.
fn traced() -> World {
    let input = Payload::encode(&9_u64).unwrap();
    let started = Started::new(TRACED.name(), InstanceId::new("world").unwrap(), input);
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let moment = Moment {
        now: Timestamp::from_micros(1_000_000),
        epoch: 1,
    };
    let code = Some(traced_implementation());
    let started = started.traced(trace.parse().unwrap());
    let mut world = World::start_as(code, started, Limits::default(), moment);
    world.fail(1, "busy", true);
    assert!(world.fire_next());
    world.complete(1, &10_u64);
    world
}

fn traced_implementation() -> Implementation {
    Implementation::new(TRACED, async |cx: WorkflowContext, number: u64| {
        let reserved = cx.call(RESERVE, number).await?;
        Ok::<_, WorkflowError>(cx.continue_as_new(TRACED, reserved).await?)
    })
}

/// A run that was started with a signal under a request, and sent others so, each twice.
fn requested() -> World {
    let payload = |value: u64| Payload::encode(&value).unwrap();
    let started = Started::new(REQUESTED.name(), InstanceId::new("world").unwrap(), payload(9))
        .with_signal(GO.name(), payload(1))
        .with_signal_request("first");
    let moment = Moment {
        now: Timestamp::from_micros(1_000_000),
        epoch: 1,
    };
    let code = Some(requested_implementation());
    let mut world = World::start_as(code, started, Limits::default(), moment);
    for request in ["first", "second", "second", "third", "first"] {
        world.signal_as(request, GO, &2).unwrap();
    }
    world
}

fn requested_implementation() -> Implementation {
    Implementation::new(REQUESTED, async |cx: WorkflowContext, number: u64| {
        let mut number = number;
        for _ in 0..3 {
            number += cx.receive(GO).await?;
        }
        Ok::<_, WorkflowError>(cx.continue_as_new(REQUESTED, number).await?)
    })
}

/// A run that another one has signalled, and that signals others: with success, in vain, and letting go of it.
fn signalled() -> World {
    let mut world = World::start(signalled_implementation(), &9_u64);
    let signal = |operation, value: u64| Input::RunSignal {
        sender: Box::new(millrun_core::Cause {
            run: run_id(),
            operation,
        }),
        name: GO.name().into(),
        value: Payload::encode(&value).unwrap(),
    };
    for input in [signal(70_000, 3), signal(70_001, 4), signal(70_000, 3)] {
        world.apply(input).unwrap();
    }
    let failures = [
        SignalFailure::NotFound,
        SignalFailure::Finished,
        SignalFailure::OtherWorkflow {
            workflow: "order".into(),
        },
        SignalFailure::Quarantined {
            message: "damaged".into(),
        },
        SignalFailure::Refused {
            message: "full".into(),
        },
    ];
    let outcomes = [Ok(())].into_iter().chain(failures.map(Err));
    for (number, outcome) in (1..).zip(outcomes) {
        let operation = millrun_workflow::OperationId::new(number);
        world.apply(Input::SignalSent { operation, outcome }).unwrap();
    }
    assert!(world.fire_next());
    world
}

fn signalled_implementation() -> Implementation {
    Implementation::new(SIGNALLED, async |cx: WorkflowContext, number: u64| {
        let number = number + cx.receive(GO).await? + cx.receive(GO).await?;
        let mut text = String::new();
        for _ in 0..6 {
            match cx
                .signal_instance(PARCEL, format!("parcel-{number}"), GO, number)
                .await
            {
                Ok(()) => text.push_str("sent; "),
                Err(error) => text.push_str(&format!("{error}; ")),
            }
        }
        let last = cx.signal_instance(PARCEL, "last", GO, number);
        cx.race(cx.sleep(Duration::from_secs(5)), last).await;
        Ok::<_, WorkflowError>(text)
    })
}

fn failed() -> World {
    let mut world = earlier(implementation(), &43_u64);
    world.fail(1, "out of stock", false);
    world
}

fn terminated() -> World {
    let mut world = earlier(implementation(), &44_u64);
    world
        .apply(Input::Terminate {
            reason: "wrong order".into(),
        })
        .unwrap();
    world
}

fn parked() -> World {
    let mut world = earlier(None, &45_u64);
    world.signal(APPROVED, &"early".into());
    world.reload_with(Some(implementation()));
    world.apply(Input::Resume).unwrap();
    world.complete(1, &1_u64);
    world
}

/// A recorded update, a patch, a recorded value, heartbeats and a limit on the whole call.
async fn shop(cx: WorkflowContext, full: usize) -> Result<String, WorkflowError> {
    let items: State<Vec<String>> = cx.state(Vec::new());
    let price = cx.record(|| 7_u64).await?;
    let total = if cx.patched("charge twice") {
        2 * price
    } else {
        price
    };
    items.until(move |items| items.len() >= full).await?;
    let call = cx.call(CHARGE, total).schedule_to_close(Duration::from_secs(60));
    let call = call
        .schedule_to_start(Duration::from_secs(5))
        .heartbeat(Duration::from_secs(1));
    let charged = call.await?;
    Ok(format!(
        "{} for {charged}",
        items.read(|items| items.join(" and "))
    ))
}

fn shop_implementation() -> Implementation {
    SHOP.update(ADD)
        .change(|items, item| {
            items.push(item);
            items.len()
        })
        .bind(shop)
}

fn shopped() -> World {
    let mut world = earlier(shop_implementation(), &2);
    for (request, item) in [("1", "bread"), ("2", "milk")] {
        let input = Payload::encode(item).unwrap();
        let (request, name) = (request.into(), ADD.name().into());
        world.apply(Input::Update { request, name, input }).unwrap();
    }
    let (operation, details) = (World::operation(1), Payload::encode(&"half").unwrap());
    world
        .apply(Input::Heartbeat {
            operation,
            attempt: 1,
            details,
        })
        .unwrap();
    let failure = ActivityFailure::TimedOut(TimeoutKind::Heartbeat);
    let is_retryable = true;
    world
        .apply(Input::AttemptFailed {
            operation,
            attempt: 1,
            failure,
            is_retryable,
            kind: None,
            retry_after: None,
        })
        .unwrap();
    world.activities.clear();
    assert!(world.fire_next());
    world.complete(1, &14_u64);
    world
}

/// A run that continues another, with a signal and answers of that one.
fn resumed_shop() -> World {
    let id = InstanceId::new("world").unwrap();
    let mut started = Started::new(SHOP.name(), id, Payload::encode(&1).unwrap());
    started.not_before = None;
    started.origin = Some(Arc::new(Origin {
        continued: Some(crate::world::run_id()),
        signals: vec![(GO.name().into(), Payload::encode(&5).unwrap())],
        answers: vec![
            ("1".into(), Ok(Payload::encode(&1).unwrap())),
            ("2".into(), Err("the answer could not be encoded".into())),
        ],
        ..Origin::default()
    }));
    let moment = Moment {
        now: Timestamp::from_micros(2_000_000),
        epoch: 3,
    };
    let mut world = World::start_as(Some(shop_implementation()), started, Limits::default(), moment);
    let input = Payload::encode("bread").unwrap();
    let (request, name) = ("3".into(), ADD.name().into());
    world.apply(Input::Update { request, name, input }).unwrap();
    world.complete(1, &14_u64);
    world
}

/// A child, a publish, a promise, a local step, a pause, and a checkpoint after which a signal waits.
async fn parcel(cx: WorkflowContext, number: u64) -> Result<String, WorkflowError> {
    if let Some(sum) = cx.checkpointed::<u64>() {
        let go = cx.receive(GO).await?;
        return Ok(format!("{} {}", sum? + go, cx.random()));
    }
    let local = cx.local(|| Ok::<_, ActivityError>(number + 1)).await?;
    let promise = cx.promise::<u64>();
    let child = cx.child(ORDER, format!("order-{number}"), number);
    let (child, _) = (
        child.on_close(ParentClose::Terminate).await?,
        cx.publish(SENT, local).await?,
    );
    let kept = promise.await?;
    let timer = cx.sleep(Duration::from_secs(1));
    let waits = async {
        timer.await?;
        Ok::<_, WorkflowError>(cx.receive(GO).await?)
    };
    match cx.race(cx.receive(APPROVED), waits).await {
        Either::Left(_) => Err(WorkflowError::failed("too early")),
        Either::Right(go) => {
            let sum = kept + go? + u64::try_from(child.len())?;
            Ok(cx.checkpoint(&sum).await?)
        }
    }
}

fn parcel_implementation() -> Implementation {
    Implementation::new(PARCEL, parcel)
}

fn checkpointed() -> World {
    let mut world = earlier(parcel_implementation(), &7_u64);
    let child = World::operation(2);
    let run = crate::world::run_id();
    let started = Input::ChildStarted {
        operation: child,
        run,
    };
    world.apply(started).unwrap();
    let end = Ok(Payload::encode(&"sent").unwrap());
    let ended = Input::ChildEnded {
        operation: child,
        end,
    };
    world.apply(ended).unwrap();
    let operation = World::operation(3);
    world.apply(Input::PublishParked { operation }).unwrap();
    let outcome = Ok(PublishOutcome::Taken);
    world.apply(Input::Published { operation, outcome }).unwrap();
    let reason = "for the night".into();
    world.apply(Input::Pause { reason }).unwrap();
    let operation = World::operation(1);
    let end = Ok(Payload::encode(&30_u64).unwrap());
    world.apply(Input::EndPromise { operation, end }).unwrap();
    world.apply(Input::Resume).unwrap();
    assert!(world.fire_next());
    world.signal(GO, &1);
    world.signal(GO, &2);
    world
}

/// Policies for kinds of errors, and a limit on the time that retries take.
async fn patient(cx: WorkflowContext, number: u64) -> Result<String, WorkflowError> {
    let briefly = Retry::exponential().elapsed_max(Duration::from_secs(30));
    let call = cx.call(RESERVE, number).retry(briefly);
    let call = call.retry_on(BUSY, Retry::exponential().first_pause(Duration::from_secs(5)));
    let reserved = call.retry_on(ErrorKind::PANICKED, Retry::never()).await;
    Ok(reserved.map_or_else(|error| error.to_string(), |number| number.to_string()))
}

fn patient_implementation() -> Implementation {
    Implementation::new(PATIENT, patient)
}

fn retried() -> World {
    let mut world = earlier(patient_implementation(), &8_u64);
    let busy = ActivityError::fatal("busy").of_kind(BUSY);
    let failed = ActivityFailure::Failed {
        error: Payload::encode(&busy).unwrap(),
        message: busy.to_string(),
    };
    let panicked = ActivityFailure::Panicked {
        message: "boom".into(),
    };
    for (attempt, failure, kind) in [(1, failed, Some(BUSY.name().into())), (2, panicked, None)] {
        let input = Input::AttemptFailed {
            operation: World::operation(1),
            attempt,
            failure,
            is_retryable: kind.is_none(),
            kind,
            retry_after: None,
        };
        world.apply(input).unwrap();
        world.fire_next();
    }
    world
}

/// Attempts that must begin in time, and do.
async fn punctual(cx: WorkflowContext, number: u64) -> Result<String, WorkflowError> {
    let call = cx.call(CHARGE, number).schedule_to_start(Duration::from_secs(5));
    Ok(call.await?.to_string())
}

fn punctual_implementation() -> Implementation {
    Implementation::new(PUNCTUAL, punctual)
}

fn begun() -> World {
    let mut world = earlier(punctual_implementation(), &9_u64);
    let operation = World::operation(1);
    let started = |attempt| Input::AttemptStarted { operation, attempt };
    world.apply(started(1)).unwrap();
    world.fail(1, "busy", true);
    world.reopen();
    assert!(world.fire_next());
    world.apply(started(3)).unwrap();
    world.complete(1, &10_u64);
    world
}

async fn counter(cx: WorkflowContext, sum: u64) -> Result<String, WorkflowError> {
    let sum = sum + cx.receive(GO).await?;
    Ok(cx.continue_as_new(COUNTER, sum).await?)
}

fn counter_implementation() -> Implementation {
    Implementation::new(COUNTER, counter)
}

fn continued() -> World {
    let mut world = earlier(counter_implementation(), &7_u64);
    world.signal(GO, &1);
    world
}

/// Everything that composes, whose order is the engine's own: a join set that is dropped, the first of
/// many, scopes with a shield, a saga, a select.
async fn composed(cx: WorkflowContext, number: u64) -> Result<String, WorkflowError> {
    let mut set = cx.join_set();
    (0..4).for_each(|index| set.spawn(cx.call(RESERVE, number + index)));
    let mut said = Vec::new();
    for _ in 0..2 {
        said.push(set.next().await.expect("four are more than two")?);
    }
    drop(set);
    if let Some((place, charged)) = cx.race_all((0..3).map(|index| cx.call(CHARGE, index))).await {
        said.extend([u64::try_from(place)?, charged?]);
    }

    let scope = cx.scope();
    let inner = scope.context().scope();
    let shield = scope.context().shielded();
    let hour = Duration::from_secs(3_600);
    let work = cx.join(
        cx.join(scope.context().call(RESERVE, 1), scope.context().sleep(hour)),
        cx.join(inner.context().call(RESERVE, 2), shield.call(RESERVE, 3)),
    );
    let stop = async {
        let go = cx.receive(GO).await;
        scope.cancel();
        go
    };
    let (((one, slept), (two, three)), go) = cx.join(work, stop).await;
    assert!(one.is_err() && slept.is_err() && two.is_err());
    said.extend([three?, go?]);

    let mut saga = cx.saga();
    for step in 0..2 {
        let reserved = cx.call(RESERVE, step).await?;
        saga.push(async move |cx| Ok(cx.call(RELEASE, reserved).await?));
    }
    if cx.call(CHARGE, 9).await.is_err() {
        saga.compensate().await?;
    }

    said.push(tokio::select! {
        biased;
        charged = cx.call(CHARGE, 10) => charged?,
        slept = cx.sleep(hour) => slept.map(|()| 11)?,
    });
    Ok(format!("{said:?} {}", cx.random()))
}

fn composed_implementation() -> Implementation {
    Implementation::new(COMPOSED, composed)
}

fn composed_to_the_end() -> World {
    let mut world = earlier(composed_implementation(), &20_u64);
    world.complete(3, &3_u64);
    world.complete(1, &1_u64);
    world.complete(6, &6_u64);
    world.signal(GO, &7);
    world.complete(11, &11_u64);
    world.complete(12, &12_u64);
    world.complete(13, &13_u64);
    world.fail(14, "declined", false);
    world.reopen();
    world.complete(15, &());
    world.complete(16, &());
    assert!(world.fire_next());
    world
}

/// Code that decides by the time, on a host whose clock is set back.
async fn timed(cx: WorkflowContext, number: u64) -> Result<String, WorkflowError> {
    let (began, number) = match cx.checkpointed::<(u64, u64)>() {
        Some(former) => former?,
        None => (cx.now().as_micros(), number),
    };
    let go = cx.receive(GO).await?;
    if cx.now().as_micros() < began {
        cx.call(RESERVE, number).await?;
    } else {
        cx.call(CHARGE, number).await?;
    }
    cx.sleep(Duration::from_secs(60)).await?;
    if go == 0 {
        return Ok(format!("{number} since {began}"));
    }
    Ok(cx.checkpoint(&(cx.now().as_micros(), go)).await?)
}

fn timed_implementation() -> Implementation {
    Implementation::new(TIMED, timed)
}

/// Before and behind a checkpoint, each time with a clock that was set back.
fn set_back(mut world: World) -> World {
    let back = |world: &mut World, seconds: u64| {
        let now = world.moment.now.as_micros();
        world.moment.now = Timestamp::from_micros(now - seconds * 1_000_000);
    };
    world.moment.now = world.moment.now + Duration::from_secs(1_000);
    world.signal(APPROVED, &"by nobody".into());
    back(&mut world, 1_000 + 1);
    world.signal(GO, &3);
    world.complete(1, &1_u64);
    assert!(world.fire_next());
    back(&mut world, 30);
    world.reopen();
    world.signal(GO, &0);
    world.complete(3, &1_u64);
    assert!(world.fire_next());
    world
}

/// A value and a local step with names, one of each without, and publishes of which one is not known to have
/// been taken.
async fn named(cx: WorkflowContext, number: u64) -> Result<String, WorkflowError> {
    let price = cx.record(|| number * 100).named("price").await?;
    let postage = cx.record(|| 5_u64).await?;
    let tax = cx.local(|| Ok::<_, ActivityError>(price / 5)).named("tax");
    let tax = tax.await?;
    let rebate = cx.local(|| Ok::<_, ActivityError>(2_u64)).await?;
    let sum = price + postage + tax - rebate;
    let mut published = Vec::new();
    for _ in 0..2 {
        published.push(cx.publish(SENT, sum).await?);
    }
    Ok(format!("{sum} {published:?}"))
}

fn named_implementation() -> Implementation {
    Implementation::new(NAMED, named)
}

fn published_perhaps() -> World {
    let mut world = World::start(named_implementation(), &7_u64);
    for (number, outcome) in [(1, PublishOutcome::Unknown), (2, PublishOutcome::Taken)] {
        let (operation, outcome) = (World::operation(number), Ok(outcome));
        world.apply(Input::Published { operation, outcome }).unwrap();
    }
    world
}

/// Values of which a key, a correlation and a content type are said, all or some.
async fn keyed(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    let said = cx.publish(SENT, number).key(format!("order-{number}"));
    said.correlation("basket-1")
        .content_type("application/json")
        .await?;
    cx.publish(SENT, number + 1).correlation("basket-1").await?;
    Ok(number)
}

fn keyed_implementation() -> Implementation {
    Implementation::new(KEYED, keyed)
}

fn published_with_keys() -> World {
    let mut world = World::start(keyed_implementation(), &7_u64);
    for number in [1, 2] {
        let (operation, outcome) = (World::operation(number), Ok(PublishOutcome::Taken));
        world.apply(Input::Published { operation, outcome }).unwrap();
    }
    world
}

/// Records with a key and of any, of which one is not what the topic carries, behind a checkpoint too.
async fn receiving(cx: WorkflowContext, _: u64) -> Result<u64, WorkflowError> {
    let before: u64 = cx.checkpointed().transpose()?.unwrap_or(0);
    let with_key = cx.receive_from(PAID).key("order-7").await?.into_payload();
    let of_any = cx
        .receive_from(PAID)
        .await
        .map_or(5, ReceivedRecord::into_payload);
    match before {
        0 => Ok(cx.checkpoint(&(with_key + of_any)).await?),
        before => Ok(before + with_key + of_any),
    }
}

fn receiving_implementation() -> Implementation {
    Implementation::new(RECEIVING, receiving)
}

fn received_four() -> World {
    let mut world = World::start(receiving_implementation(), &0_u64);
    let wrong = || Payload::encode(&"wrong").unwrap();
    for (number, sequence, key, value) in [
        (1, 3, Some("order-7"), Payload::encode(&70_u64).unwrap()),
        (2, 1, None, wrong()),
        (3, 4, Some("order-7"), Payload::encode(&700_u64).unwrap()),
        (4, 4, Some("order-7"), Payload::encode(&700_u64).unwrap()),
    ] {
        let record = Box::new(RawRecord {
            sequence: Sequence::new(sequence),
            time: Timestamp::from_micros(5_000_000 + sequence),
            key: key.map(Into::into),
            correlation: key.map(|_| "basket-1".into()),
            cause: key.map(|_| Cause {
                run: run_id(),
                operation: 3,
            }),
            value,
        });
        let operation = World::operation(number);
        world.apply(Input::RecordReceived { operation, record }).unwrap();
    }
    world
}

/// Code that decides otherwise than before behind what a run has decided by the time at which it moves.
async fn versioned(cx: WorkflowContext, number: u64) -> Result<String, WorkflowError> {
    if let Some(sum) = cx.checkpointed::<u64>().transpose()? {
        cx.call(RELEASE, sum).await?;
        return Ok(format!("released {sum}"));
    }
    let reserved = cx.call(RESERVE, number).await?;
    let sum = reserved + cx.receive(GO).await?;
    Ok(cx.checkpoint(&sum).await?)
}

fn versioned_implementation() -> Implementation {
    Implementation::new(VERSIONED.version(3), versioned)
}

/// A run that moves from version 1 to version 3, which it did not fit at first.
fn moved() -> World {
    let former = Implementation::new(VERSIONED.version(1), async |cx: WorkflowContext, number: u64| {
        let reserved = cx.call(RESERVE, number).await?;
        let charged = cx.call(CHARGE, reserved + cx.receive(GO).await?).await?;
        Ok::<_, WorkflowError>(format!("charged {charged}"))
    });
    let unfit = Implementation::new(VERSIONED.version(2), async |cx: WorkflowContext, _: u64| {
        cx.call(CHARGE, 1).await?;
        Ok::<_, WorkflowError>(String::new())
    });
    let mut world = World::start(former.clone(), &60_u64);
    world.complete(1, &1_u64);
    world.reload_with(Some(unfit));
    assert_eq!(world.apply(Input::ChangeVersion), Err(InputRefused::Stale));
    world.reload_with(Some(former));
    // With its own code nothing changes.
    world.apply(Input::ChangeVersion).unwrap();
    assert_eq!(world.instance.ledger().version(), 1);
    world.reload_with(Some(versioned_implementation()));
    world.apply(Input::ChangeVersion).unwrap();
    assert_eq!(world.instance.ledger().version(), 3);
    world.signal(GO, &2_u64);
    world.reload();
    assert_eq!(world.instance.ledger().version(), 3);
    world.complete(2, &());
    world
}

/// Code whose first versions were wrong: one panics, one awaits what nobody can wake, one does not fit.
async fn mended(cx: WorkflowContext, number: u64) -> Result<String, WorkflowError> {
    let first = cx.call(RESERVE, number).await?;
    let second = cx.receive(GO).await?;
    Ok(format!("{first} {second} {}", cx.receive(GO).await?))
}

fn mended_implementation() -> Implementation {
    Implementation::new(MENDED, mended)
}

fn parked_thrice() -> World {
    let panics = Implementation::new(
        MENDED,
        async |cx: WorkflowContext, number: u64| -> Result<String, WorkflowError> {
            cx.call(RESERVE, number).await?;
            panic!("not written yet")
        },
    );
    let hangs = Implementation::new(MENDED, async |cx: WorkflowContext, number: u64| {
        cx.call(RESERVE, number).await?;
        std::future::pending::<()>().await;
        Ok::<_, WorkflowError>(String::new())
    });
    let differs = Implementation::new(MENDED, async |_: WorkflowContext, _: u64| {
        Ok::<_, WorkflowError>("nothing to do".to_owned())
    });
    let mut world = earlier(panics, &50_u64);
    world.complete(1, &1_u64);
    world.reload_with(Some(hangs));
    world.apply(Input::Resume).unwrap();
    world.reload_with(Some(differs));
    world.signal(GO, &2);
    world.reload_with(Some(mended_implementation()));
    world.apply(Input::Resume).unwrap();
    world.signal(GO, &3);
    world
}

/// A name, the code, what makes the history, and what the file says.
pub(crate) struct Recording {
    pub(crate) name: &'static str,
    pub(crate) code: fn() -> Implementation,
    pub(crate) make: fn() -> World,
    pub(crate) file: &'static str,
}

pub(crate) fn recordings() -> Vec<Recording> {
    let order = |name, make, file| Recording {
        name,
        code: implementation,
        make,
        file,
    };
    vec![
        order(
            "v1-completed",
            completed,
            include_str!("../histories/v1-completed.txt"),
        ),
        order(
            "v1-cancelled",
            cancelled,
            include_str!("../histories/v1-cancelled.txt"),
        ),
        Recording {
            name: "v1-reasoned",
            code: reasoned_implementation,
            make: cancelled_for_a_reason,
            file: include_str!("../histories/v1-reasoned.txt"),
        },
        Recording {
            name: "v1-caused",
            code: caused_implementation,
            make: caused,
            file: include_str!("../histories/v1-caused.txt"),
        },
        Recording {
            name: "v1-entity",
            code: crate::entities::code,
            make: crate::entities::recorded,
            file: include_str!("../histories/v1-entity.txt"),
        },
        Recording {
            name: "v1-traced",
            code: traced_implementation,
            make: traced,
            file: include_str!("../histories/v1-traced.txt"),
        },
        Recording {
            name: "v1-requested",
            code: requested_implementation,
            make: requested,
            file: include_str!("../histories/v1-requested.txt"),
        },
        Recording {
            name: "v1-signalled",
            code: signalled_implementation,
            make: signalled,
            file: include_str!("../histories/v1-signalled.txt"),
        },
        order("v1-failed", failed, include_str!("../histories/v1-failed.txt")),
        order(
            "v1-terminated",
            terminated,
            include_str!("../histories/v1-terminated.txt"),
        ),
        order("v1-parked", parked, include_str!("../histories/v1-parked.txt")),
        Recording {
            name: "v1-shop",
            code: shop_implementation,
            make: shopped,
            file: include_str!("../histories/v1-shop.txt"),
        },
        Recording {
            name: "v1-answers",
            code: shop_implementation,
            make: resumed_shop,
            file: include_str!("../histories/v1-answers.txt"),
        },
        Recording {
            name: "v1-checkpointed",
            code: parcel_implementation,
            make: checkpointed,
            file: include_str!("../histories/v1-checkpointed.txt"),
        },
        Recording {
            name: "v1-retried",
            code: patient_implementation,
            make: retried,
            file: include_str!("../histories/v1-retried.txt"),
        },
        Recording {
            name: "v1-begun",
            code: punctual_implementation,
            make: begun,
            file: include_str!("../histories/v1-begun.txt"),
        },
        Recording {
            name: "v1-set-back",
            code: timed_implementation,
            make: || set_back(earlier(timed_implementation(), &7_u64)),
            file: include_str!("../histories/v1-set-back.txt"),
        },
        Recording {
            name: "v1-timed",
            code: timed_implementation,
            make: || set_back(World::start(timed_implementation(), &7_u64)),
            file: include_str!("../histories/v1-timed.txt"),
        },
        Recording {
            name: "v1-named",
            code: named_implementation,
            make: published_perhaps,
            file: include_str!("../histories/v1-named.txt"),
        },
        Recording {
            name: "v1-keyed",
            code: keyed_implementation,
            make: published_with_keys,
            file: include_str!("../histories/v1-keyed.txt"),
        },
        Recording {
            name: "v1-receiving",
            code: receiving_implementation,
            make: received_four,
            file: include_str!("../histories/v1-receiving.txt"),
        },
        Recording {
            name: "v1-composed",
            code: composed_implementation,
            make: composed_to_the_end,
            file: include_str!("../histories/v1-composed.txt"),
        },
        Recording {
            name: "v1-moved",
            code: versioned_implementation,
            make: moved,
            file: include_str!("../histories/v1-moved.txt"),
        },
        Recording {
            name: "v1-delayed",
            code: crate::delaying::code,
            make: crate::delaying::recorded,
            file: include_str!("../histories/v1-delayed.txt"),
        },
        Recording {
            name: "v1-tried-again",
            code: crate::run_retries::code,
            make: crate::run_retries::recorded,
            file: include_str!("../histories/v1-tried-again.txt"),
        },
        Recording {
            name: "v1-reset",
            code: crate::resetting::code,
            make: crate::resetting::recorded,
            file: include_str!("../histories/v1-reset.txt"),
        },
        Recording {
            name: "v1-timed-out",
            code: crate::run_timeouts::code,
            make: crate::run_timeouts::recorded,
            file: include_str!("../histories/v1-timed-out.txt"),
        },
        Recording {
            name: "v1-handled",
            code: crate::child_handles::order,
            make: crate::child_handles::recorded,
            file: include_str!("../histories/v1-handled.txt"),
        },
        Recording {
            name: "v1-mended",
            code: mended_implementation,
            make: parked_thrice,
            file: include_str!("../histories/v1-mended.txt"),
        },
        Recording {
            name: "v1-continued",
            code: counter_implementation,
            make: continued,
            file: include_str!("../histories/v1-continued.txt"),
        },
    ]
}

fn write(world: &World) -> String {
    let mut text = String::new();
    for (event, time) in world.history() {
        let mut body = Vec::new();
        wire::encode(event, &mut body).unwrap();
        let body: String = body.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(text, "{} {} {body}", time.as_micros(), wire::kind(event)).unwrap();
    }
    text
}

pub(crate) fn read(text: &str) -> Vec<(Event, Timestamp)> {
    let event = |line: &str| {
        let [time, kind, body] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else {
            panic!("{line:?} is no event");
        };
        let digits = body.as_bytes().chunks(2);
        let body: Bytes = digits
            .map(|digits| u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap())
            .collect();
        let kind = kind.parse().unwrap();
        let opens = (kind == 1).then_some("world");
        let time = Timestamp::from_micros(time.parse().unwrap());
        (wire::decode(kind, &body, opens).unwrap(), time)
    };
    text.lines().map(event).collect()
}

#[test]
fn recorded_histories_still_replay() {
    for Recording {
        name,
        code,
        make,
        file,
    } in recordings()
    {
        let history = read(file);
        assert!(history.len() >= 2, "{name} is empty");
        let replayed = World::from_history(Some(code()), history.clone());
        assert_eq!(replayed.parked(), None, "{name}");
        assert_eq!(replayed.instance.changed_values(), 0, "{name}");
        // Today's engine decides the same of the same inputs.
        assert_eq!(make().history(), history, "{name}");
        assert_eq!(
            format!("{:?}", replayed.instance.ledger()),
            format!("{:?}", make().instance.ledger()),
            "{name}"
        );
    }
}

/// Whether the event came from outside, so that a turn may begin with it.
fn is_input(event: &Event) -> bool {
    matches!(
        event,
        Event::ActivityCompleted { .. }
            | Event::ActivityFailed { .. }
            | Event::AttemptFailed { .. }
            | Event::AttemptStarted { .. }
            | Event::AttemptHeartbeat { .. }
            | Event::TimerFired { .. }
            | Event::Published { .. }
            | Event::RecordReceived { .. }
            | Event::PublishParked { .. }
            | Event::PromiseSettled { .. }
            | Event::ChildStarted { .. }
            | Event::ChildEnded { .. }
            | Event::SignalReceived { .. }
            | Event::RunSignalReceived { .. }
            | Event::SignalSent { .. }
            | Event::UpdateAccepted { .. }
            | Event::CommandPerformed(_)
            | Event::CancelRequested { .. }
            | Event::Terminated { .. }
            | Event::Resumed
            | Event::VersionChanged { .. }
    )
}

#[test]
fn the_beginnings_of_recorded_histories_still_replay() {
    for Recording { name, code, file, .. } in recordings() {
        let history = read(file);
        for len in (1..history.len()).filter(|len| is_input(&history[*len].0)) {
            let world = World::from_history(Some(code()), history[..len].to_vec());
            assert!(
                world.instance.has_code(),
                "{name}, {len} events: {:?}",
                world.instance.park_reason()
            );
        }
    }
}

#[test]
fn each_kind_of_event_and_each_reason_to_park_stands_in_a_recorded_history() {
    let histories = recordings();
    let events: Vec<_> = histories
        .iter()
        .flat_map(|recording| read(recording.file))
        .collect();
    let kinds: BTreeSet<u8> = events.iter().map(|(event, _)| wire::kind(event)).collect();
    let known = (0..=u8::MAX).filter(|kind| match wire::decode(*kind, &Bytes::new(), Some("world")) {
        Ok(_) => true,
        Err(error) => !matches!(error, EventError::UnknownKind(_)),
    });
    assert_eq!(kinds, known.collect());
    let is_there = |is: fn(&ParkReason) -> bool| {
        events
            .iter()
            .any(|(event, _)| matches!(event, Event::Parked { reason } if is(reason)))
    };
    assert!(is_there(|reason| matches!(
        reason,
        ParkReason::NotRegistered { .. }
    )));
    assert!(is_there(|reason| matches!(reason, ParkReason::Panicked { .. })));
    assert!(is_there(|reason| matches!(reason, ParkReason::Stuck { .. })));
    assert!(is_there(|reason| matches!(reason, ParkReason::Nondeterminism(_))));
    assert!(is_there(|reason| matches!(reason, ParkReason::Paused { .. })));
    assert!(is_there(|reason| matches!(reason, ParkReason::Delayed { .. })));
}

#[test]
#[ignore = "writes the files that are missing; run once when a format is released"]
#[expect(clippy::disallowed_methods, reason = "it looks which files are there")]
fn record_the_histories() {
    for Recording { name, make, .. } in recordings() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/histories/{name}.txt"));
        if std::fs::read_to_string(&path).is_ok_and(|text| !text.is_empty()) {
            continue;
        }
        std::fs::write(&path, write(&make())).unwrap();
    }
}
