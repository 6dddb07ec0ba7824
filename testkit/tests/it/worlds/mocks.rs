//! What mocked activities do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millrun::{
    Activity, ActivityContext, ActivityError, ResultError, Retry, RuntimeBuilder, Workflow, WorkflowContext,
    WorkflowError,
};
use millrun_testkit::World;
use serde::{Deserialize, Serialize};

use super::{CHARGE, failure, registered};

/// A value that is neither `Clone` nor `Sync`.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Quote {
    cents: std::cell::Cell<u64>,
}

const ASK: Activity<String, Quote> = Activity::named("ask");
const BUY: Workflow<String, u64> = Workflow::named("buy");
const PAY: Workflow<u64, String> = Workflow::named("pay");

async fn buy(cx: WorkflowContext, what: String) -> Result<u64, WorkflowError> {
    let retry = Retry::exponential()
        .first_pause(Duration::from_secs(10))
        .attempts(4);
    let quote = cx.call(ASK, what).retry(retry).await?;
    Ok(quote.cents.get())
}

async fn pay(cx: WorkflowContext, cents: u64) -> Result<String, WorkflowError> {
    let call = cx.call(CHARGE, cents).start_to_close(Duration::from_secs(60));
    Ok(call.retry(Retry::exponential().attempts(3)).await?)
}

fn shop(builder: RuntimeBuilder) -> RuntimeBuilder {
    registered(builder).register(BUY, buy).register(PAY, pay)
}

fn quote(cents: u64) -> Quote {
    let cents = cents.into();
    Quote { cents }
}

#[test]
fn attempts_do_one_thing_after_the_other_and_the_last_for_ever() {
    let world = World::new(shop);
    world
        .mock(ASK)
        .fails(ActivityError::retryable("busy"))
        .panics("out of paper")
        .returns(quote(10))
        .returns(quote(11));
    let bread = || "bread".to_owned();
    assert_eq!(world.result_of(BUY, bread()).unwrap(), 10);
    assert_eq!(world.result_of(BUY, bread()).unwrap(), 11);
    assert_eq!(world.result_of(BUY, bread()).unwrap(), 11);
    let attempts = world.attempts(ASK);
    let ends: Vec<_> = attempts
        .iter()
        .map(|attempt| attempt.end.clone().unwrap())
        .collect();
    assert_eq!(ends[0], Err("busy".to_owned()));
    assert_eq!(ends[1], Err("it panicked".to_owned()));
    assert_eq!(ends[2..], [Ok(()), Ok(()), Ok(())]);
    let numbers: Vec<_> = attempts.iter().map(|attempt| attempt.attempt).collect();
    assert_eq!(numbers, [1, 2, 3, 1, 1]);
    assert_eq!(attempts[0].idempotency_key, attempts[2].idempotency_key);
    assert_ne!(attempts[2].idempotency_key, attempts[3].idempotency_key);
    assert_eq!(attempts[0].instance_id.as_str(), "buy-1");
    // Three calls, whatever attempts they took.
    assert_eq!(world.calls(ASK), [bread(), bread(), bread()]);
}

#[test]
fn a_sequence_gives_values_and_errors_in_its_order() {
    let world = World::new(shop);
    let busy = || Err(ActivityError::retryable("busy"));
    world
        .mock(ASK)
        .sequence([busy(), Ok(quote(3)), busy()])
        .times(3)
        .returns(quote(9));
    assert_eq!(world.result_of(BUY, String::new()).unwrap(), 3);
    let began = world.now();
    assert_eq!(world.result_of(BUY, String::new()).unwrap(), 9);
    // Three attempts failed, with pauses of 10 s and more between.
    assert!(world.now().saturating_since(began) > Duration::from_secs(30));
    assert_eq!(world.attempts(ASK).len(), 6);
}

#[test]
fn an_error_for_good_fails_the_run() {
    let world = World::new(shop);
    world.mock(ASK).fails(ActivityError::fatal("not for sale"));
    let ended = world.result_of(BUY, "the bakery".to_owned());
    assert!(
        matches!(&ended, Err(ResultError::Failed(error)) if error.to_string().contains("not for sale")),
        "{ended:?}"
    );
    assert_eq!(world.attempts(ASK).len(), 1);
}

/// The first attempt takes longer than its call lets it, and is cut off.
#[test]
fn a_delay_passes_in_virtual_time_and_meets_timeouts() {
    let world = World::new(shop);
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    world
        .mock(CHARGE)
        .returns("late".to_owned())
        .delays(minutes(90))
        .returns("in time".to_owned())
        .delays(Duration::from_secs(59));
    let began = world.now();
    assert_eq!(world.result_of(PAY, 5).unwrap(), "in time");
    let took = world.now().saturating_since(began);
    assert!((minutes(1)..minutes(5)).contains(&took), "{took:?}");
    let ends: Vec<_> = world
        .attempts(CHARGE)
        .into_iter()
        .map(|attempt| attempt.end)
        .collect();
    assert_eq!(ends, [None, Some(Ok(()))]);
}

#[test]
fn a_mock_sees_inputs_and_idempotency_keys() {
    let world = World::new(shop);
    let charged = Arc::new(AtomicU64::new(0));
    let sum = Arc::clone(&charged);
    world.mock(CHARGE).with_context(move |cx, cents| {
        sum.fetch_add(cents, Ordering::SeqCst);
        Ok(cx.idempotency_key())
    });
    let key = world.result_of(PAY, 5).unwrap();
    assert_ne!(world.result_of(PAY, 6).unwrap(), key);
    assert_eq!(charged.load(Ordering::SeqCst), 11);
    assert_eq!(world.attempts(CHARGE)[0].idempotency_key, key);
}

#[test]
fn what_is_said_anew_goes_from_then_on() {
    let world = World::new(shop);
    world
        .mock(CHARGE)
        .returns("one".to_owned())
        .returns("two".to_owned());
    assert_eq!(world.result_of(PAY, 5).unwrap(), "one");
    world.mock(CHARGE).returns("three".to_owned());
    assert_eq!(world.result_of(PAY, 5).unwrap(), "three");
    // Of other types it is another activity.
    const OTHER: Activity<String, String> = Activity::named("charge");
    let message = failure(|| drop(world.mock(OTHER)));
    assert!(message.contains("mocked with other types"), "{message}");
}

/// Real activities are seen as mocked ones are.
#[test]
fn calls_of_real_activities_are_recorded() {
    const REAL: Activity<u64, u64> = Activity::named("real");
    const BLOCKING: Activity<u64, u64> = Activity::named("blocking");
    const BOTH: Workflow<u64, u64> = Workflow::named("both");
    let world = World::new(|builder| {
        builder
            .register(REAL, async |cx: ActivityContext, number: u64| {
                match cx.attempt() {
                    1 => Err(ActivityError::retryable("not yet")),
                    _ => Ok(number + 1),
                }
            })
            .register_blocking(BLOCKING, |_cx, number: u64| Ok(number * 2))
            .register(
                BOTH,
                async |cx: WorkflowContext, number: u64| -> Result<u64, WorkflowError> {
                    let more = cx.call(REAL, number).await?;
                    Ok(cx.call(BLOCKING, more).await?)
                },
            )
    });
    assert_eq!(world.result_of(BOTH, 4).unwrap(), 10);
    assert_eq!((world.calls(REAL), world.calls(BLOCKING)), (vec![4], vec![5]));
    let ends: Vec<_> = world
        .attempts(REAL)
        .into_iter()
        .map(|attempt| attempt.end)
        .collect();
    assert_eq!(ends, [Some(Err("not yet".to_owned())), Some(Ok(()))]);
}

/// Code that needs a reactor is called for real in one step of the world, by a runtime of the test's own.
#[test]
fn what_needs_a_reactor_is_called_by_one_of_the_tests_own() {
    let reactor = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let world = World::new(shop);
    world.mock(CHARGE).with(move |cents| {
        reactor.block_on(async {
            // Without tokio's own clock this would panic.
            tokio::time::timeout(Duration::from_secs(60), std::future::ready(()))
                .await
                .unwrap();
            Ok(format!("{cents} over the wire"))
        })
    });
    let began = world.now();
    assert_eq!(world.result_of(PAY, 5).unwrap(), "5 over the wire");
    assert_eq!(world.now(), began, "time stands still meanwhile");
}
