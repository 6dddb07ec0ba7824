//! Attempts: retried, timed out, panicking, cancelled, and always with the same key.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrun::workflow::{Either, ErrorKind, TimeoutKind};
use millrun::{
    Activity, ActivityContext, ActivityError, CallError, ResultError, Retry, Runtime, Signal, TypedError,
    Workflow, WorkflowContext, WorkflowError,
};
use serde::{Deserialize, Serialize};

use crate::support::Store;

const FLAKY: Activity<u32, (u32, String)> = Activity::named("flaky");
const CALL_FLAKY: Workflow<u32, (u32, String)> = Workflow::named("call-flaky");
const SLOW: Activity<(), ()> = Activity::named("slow");
const RACE_SLOW: Workflow<(), String> = Workflow::named("race-slow");
const DECLINE: Activity<u32, u32, Declined> = Activity::named("decline");
const CHARGE: Workflow<u32, u32> = Workflow::named("charge");
const CARD: ErrorKind<Declined> = ErrorKind::named("card");
const STOP: Signal<()> = Signal::named("stop");
const PANIC: Activity<(), ()> = Activity::named("panic");
const CALL_PANIC: Workflow<(), String> = Workflow::named("call-panic");

fn quickly() -> Retry {
    Retry::exponential()
        .first_pause(Duration::from_millis(1))
        .attempts(5)
}

async fn call_flaky(cx: WorkflowContext, failures: u32) -> Result<(u32, String), WorkflowError> {
    Ok(cx.call(FLAKY, failures).retry(quickly()).await?)
}

#[tokio::test]
async fn a_failed_attempt_is_followed_by_another_with_the_same_key() {
    let store = Store::new();
    let keys = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&keys);
    let flaky = move |cx: ActivityContext, failures: u32| {
        seen.lock().unwrap().push(cx.idempotency_key());
        async move {
            if cx.attempt() <= failures {
                return Err(ActivityError::retryable("not yet"));
            }
            Ok((cx.attempt(), cx.idempotency_key()))
        }
    };
    let runtime = store
        .bare()
        .register(FLAKY, flaky)
        .register(CALL_FLAKY, call_flaky)
        .start()
        .await
        .unwrap();
    let run = runtime.start(CALL_FLAKY, "f", 3).await.unwrap();
    let (attempt, key) = run.result().await.unwrap();
    assert_eq!(attempt, 4);
    assert_eq!(*keys.lock().unwrap(), vec![key; 4]);

    let hopeless = runtime.start(CALL_FLAKY, "g", 99).await.unwrap();
    let error = hopeless.result().await.unwrap_err();
    assert!(
        matches!(&error, ResultError::Failed(error) if error.message().contains("not yet")),
        "{error}"
    );
    assert_eq!(keys.lock().unwrap().len(), 4 + 5);
    runtime.shutdown().await.unwrap();
}

#[derive(Debug, Serialize, Deserialize, PartialEq, thiserror::Error)]
enum Declined {
    #[error("the card was declined with code {code}")]
    Card { code: u32 },
}

impl TypedError for Declined {
    fn is_retryable(&self) -> bool {
        false
    }

    fn kind(&self) -> Option<&str> {
        match self {
            Self::Card { .. } => Some(CARD.name()),
        }
    }
}

async fn charge(cx: WorkflowContext, code: u32) -> Result<u32, WorkflowError> {
    match cx.call(DECLINE, code).await {
        Err(CallError::Failed(Declined::Card { code })) => Ok(code),
        other => Err(WorkflowError::failed(format!("{other:?}"))),
    }
}

#[tokio::test]
async fn an_error_of_the_users_own_type_arrives_as_itself_and_is_not_retried() {
    let store = Store::new();
    let attempts = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&attempts);
    let decline = move |_cx: ActivityContext, code: u32| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move { Err::<u32, _>(Declined::Card { code }) }
    };
    let runtime = store
        .bare()
        .register(DECLINE, decline)
        .register(CHARGE, charge)
        .start()
        .await
        .unwrap();
    assert_eq!(
        runtime
            .start(CHARGE, "c", 51)
            .await
            .unwrap()
            .result()
            .await
            .unwrap(),
        51
    );
    assert_eq!(attempts.load(Ordering::SeqCst), 1);
    runtime.shutdown().await.unwrap();
}

async fn charge_again(cx: WorkflowContext, code: u32) -> Result<u32, WorkflowError> {
    let call = cx.call(DECLINE, code).retry(Retry::never());
    match call.retry_on(CARD, quickly().attempts(3)).await {
        Err(CallError::Failed(Declined::Card { code })) => Ok(code),
        other => Err(WorkflowError::failed(format!("{other:?}"))),
    }
}

#[tokio::test]
async fn an_error_of_a_kind_is_retried_as_the_call_says_for_that_kind() {
    let store = Store::new();
    let attempts = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&attempts);
    let decline = move |_cx: ActivityContext, code: u32| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move { Err::<u32, _>(Declined::Card { code }) }
    };
    let builder = store.bare().register(DECLINE, decline);
    let runtime = builder.register(CHARGE, charge_again).start().await.unwrap();
    let run = runtime.start(CHARGE, "c", 51).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 51);
    assert_eq!(attempts.load(Ordering::SeqCst), 3);
    runtime.shutdown().await.unwrap();
}

async fn call_panic(cx: WorkflowContext, (): ()) -> Result<String, WorkflowError> {
    match cx.call(PANIC, ()).retry(quickly().attempts(2)).await {
        Err(CallError::Panicked(message)) => Ok(message),
        other => Err(WorkflowError::failed(format!("{other:?}"))),
    }
}

#[tokio::test]
async fn a_panic_ends_one_attempt_and_nothing_else() {
    async fn panics(_cx: ActivityContext, (): ()) -> Result<(), ActivityError> {
        panic!("boom")
    }
    let store = Store::new();
    let runtime = store
        .bare()
        .register(PANIC, panics)
        .register(CALL_PANIC, call_panic)
        .start()
        .await
        .unwrap();
    let run = runtime.start(CALL_PANIC, "p", ()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), "boom");
    assert_eq!(runtime.stats().attempts, 2);
    assert!(
        runtime
            .parts()
            .iter()
            .all(|part| part.is_running && part.restarts == 0)
    );
    runtime.shutdown().await.unwrap();
}

/// An activity that never ends, and counts the attempts whose code runs.
fn endless(
    inside: Arc<AtomicU32>,
) -> impl Fn(ActivityContext, ()) -> futures_util::future::BoxFuture<'static, Result<(), ActivityError>> + Clone
{
    struct Guard(Arc<AtomicU32>);
    impl Drop for Guard {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    move |_cx, ()| {
        inside.fetch_add(1, Ordering::SeqCst);
        let guard = Guard(Arc::clone(&inside));
        Box::pin(async move {
            let _guard = guard;
            std::future::pending().await
        })
    }
}

#[tokio::test]
async fn an_attempt_that_takes_too_long_is_stopped_and_reported() {
    async fn impatient(cx: WorkflowContext, (): ()) -> Result<String, WorkflowError> {
        let call = cx
            .call(SLOW, ())
            .start_to_close(Duration::from_millis(5))
            .retry(quickly().attempts(3));
        match call.await {
            Err(CallError::TimedOut(TimeoutKind::StartToClose)) => Ok("timed out".into()),
            other => Err(WorkflowError::failed(format!("{other:?}"))),
        }
    }
    let store = Store::new();
    let inside = Arc::new(AtomicU32::new(0));
    let builder = store
        .bare()
        .register(SLOW, endless(Arc::clone(&inside)))
        .register(RACE_SLOW, impatient);
    let runtime = builder.start().await.unwrap();
    let run = runtime.start(RACE_SLOW, "r", ()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), "timed out");
    assert_eq!(runtime.stats().attempts, 3);
    runtime.shutdown().await.unwrap();
    assert_eq!(inside.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_call_that_takes_too_long_in_all_fails_and_its_attempt_is_stopped() {
    async fn impatient(cx: WorkflowContext, (): ()) -> Result<String, WorkflowError> {
        let call = cx.call(SLOW, ()).schedule_to_close(Duration::from_millis(5));
        match call.await {
            Err(CallError::TimedOut(TimeoutKind::ScheduleToClose)) => Ok("timed out".into()),
            other => Err(WorkflowError::failed(format!("{other:?}"))),
        }
    }
    let store = Store::new();
    let inside = Arc::new(AtomicU32::new(0));
    let builder = store
        .bare()
        .register(SLOW, endless(Arc::clone(&inside)))
        .register(RACE_SLOW, impatient);
    let runtime = builder.start().await.unwrap();
    let run = runtime.start(RACE_SLOW, "r", ()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), "timed out");
    while runtime.stats().attempts_running > 0 {
        tokio::task::yield_now().await;
    }
    runtime.shutdown().await.unwrap();
    assert_eq!(inside.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn the_loser_of_a_race_is_stopped() {
    async fn race(cx: WorkflowContext, (): ()) -> Result<String, WorkflowError> {
        match cx.race(cx.call(SLOW, ()), cx.receive(STOP)).await {
            Either::Left(_) => Ok("slow".into()),
            Either::Right(stop) => stop.map(|()| "stopped".into()).map_err(Into::into),
        }
    }
    let store = Store::new();
    let inside = Arc::new(AtomicU32::new(0));
    let builder = store
        .bare()
        .register(SLOW, endless(Arc::clone(&inside)))
        .register(RACE_SLOW, race);
    let runtime = builder.start().await.unwrap();
    let run = runtime.start(RACE_SLOW, "r", ()).await.unwrap();
    while inside.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    run.signal(STOP, ()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), "stopped");
    while runtime.stats().attempts_running > 0 {
        tokio::task::yield_now().await;
    }
    runtime.shutdown().await.unwrap();
    assert_eq!(inside.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_call_cancelled_in_the_queue_is_never_started() {
    const BLOCK: Activity<(), ()> = Activity::named("block");
    const QUEUE_AND_LEAVE: Workflow<(), ()> = Workflow::named("queue-and-leave");
    const AFTER: Activity<(), ()> = Activity::named("after");
    const CALL_AFTER: Workflow<(), ()> = Workflow::named("call-after");
    async fn queue_and_leave(cx: WorkflowContext, (): ()) -> Result<(), WorkflowError> {
        // The first takes the only place; the second is given up while it waits for it.
        let _first = cx
            .race(
                cx.call(BLOCK, ()),
                cx.race(cx.call(SLOW, ()), cx.sleep(Duration::from_millis(2))),
            )
            .await;
        Ok(())
    }
    let store = Store::new();
    let started = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&started);
    let slow = move |_cx: ActivityContext, ()| {
        counter.fetch_add(1, Ordering::SeqCst);
        async { Ok::<_, ActivityError>(()) }
    };
    let builder = store
        .bare()
        .register(SLOW, slow)
        .register(QUEUE_AND_LEAVE, queue_and_leave);
    let builder = builder
        .register(BLOCK, endless(Arc::new(AtomicU32::new(0))))
        .register(AFTER, async |_cx: ActivityContext, ()| Ok::<_, ActivityError>(()))
        .register(CALL_AFTER, async |cx: WorkflowContext, ()| {
            Ok::<_, WorkflowError>(cx.call(AFTER, ()).await?)
        });
    let runtime = builder
        .configure(|config| config.activities_running_max = 1)
        .start()
        .await
        .unwrap();
    runtime
        .start(QUEUE_AND_LEAVE, "q", ())
        .await
        .unwrap()
        .result()
        .await
        .unwrap();
    while runtime.stats().attempts_running > 0 {
        tokio::task::yield_now().await;
    }
    // Whatever was queued before this has been looked at when this has run.
    let after = runtime.start(CALL_AFTER, "a", ()).await.unwrap();
    after.result().await.unwrap();
    runtime.shutdown().await.unwrap();
    assert_eq!(started.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_cancelled_attempt_makes_room_for_the_next() {
    const BLOCK: Activity<(), ()> = Activity::named("block");
    const GIVE_UP: Workflow<(), u32> = Workflow::named("give-up");
    async fn give_up(cx: WorkflowContext, (): ()) -> Result<u32, WorkflowError> {
        let _given_up = cx
            .race(cx.call(BLOCK, ()), cx.sleep(Duration::from_millis(2)))
            .await;
        Ok(cx.call(FLAKY, 0).await?.0)
    }
    async fn at_once(cx: ActivityContext, _: u32) -> Result<(u32, String), ActivityError> {
        Ok((cx.attempt(), cx.idempotency_key()))
    }
    let store = Store::new();
    let builder = store.bare().register(FLAKY, at_once).register(GIVE_UP, give_up);
    let builder = builder.register(BLOCK, endless(Arc::new(AtomicU32::new(0))));
    let runtime = builder
        .configure(|config| config.activities_running_max = 1)
        .start()
        .await
        .unwrap();
    assert_eq!(
        runtime
            .start(GIVE_UP, "g", ())
            .await
            .unwrap()
            .result()
            .await
            .unwrap(),
        1
    );
    runtime.shutdown().await.unwrap();
}

/// Cancels went to the pools of all queues, and each pool remembered those that it had no attempt of: at
/// 65,536 it forgot them all, and began an attempt whose call had been cancelled while it waited in the
/// queue. In the tests a few calls were cancelled on the one queue that there was.
#[tokio::test]
async fn a_call_cancelled_in_its_queue_is_not_begun_however_many_are_cancelled_on_another() {
    const SLOW: Activity<u64, u64> = Activity::named("slow").on_queue("slow");
    const OTHER: Activity<u64, u64> = Activity::named("other").on_queue("other");
    const ONE: Workflow<u64, u64> = Workflow::named("one");
    const CROWD: Workflow<u64, u64> = Workflow::named("crowd");
    async fn one(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
        Ok(cx.call(SLOW, number).await?)
    }
    async fn crowd(cx: WorkflowContext, len: u64) -> Result<u64, WorkflowError> {
        let calls = (0..len).map(|number| cx.call(OTHER, number));
        Ok(cx.join_all(calls).await.len() as u64)
    }
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let begun = Arc::new(Mutex::new(Vec::new()));
    let slow = {
        let (gate, begun) = (Arc::clone(&gate), Arc::clone(&begun));
        move |_: ActivityContext, number: u64| {
            begun.lock().unwrap().push(number);
            let gate = Arc::clone(&gate);
            async move {
                gate.acquire().await.unwrap().forget();
                Ok::<_, ActivityError>(number)
            }
        }
    };
    let runtime = Runtime::volatile()
        .register(SLOW, slow)
        .register(OTHER, |_: ActivityContext, _: u64| {
            std::future::pending::<Result<u64, ActivityError>>()
        })
        .register(ONE, one)
        .register(CROWD, crowd)
        .configure(|config| {
            config.queue_running_max.insert("slow".into(), 1);
            config.queue_running_max.insert("other".into(), 1);
        })
        .start()
        .await
        .unwrap();
    let first = runtime.start(ONE, "first", 0).await.unwrap();
    while begun.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    // Its call waits in the queue when it is cancelled.
    let cancelled = runtime.start(ONE, "cancelled", 1).await.unwrap();
    cancelled.terminate("not needed").await.unwrap();
    for number in 0..7 {
        let crowd = runtime
            .start(CROWD, &format!("crowd-{number}"), 10_000)
            .await
            .unwrap();
        crowd.terminate("not needed").await.unwrap();
    }
    // One more than is needed: should the cancelled one begin, it keeps nobody waiting.
    gate.add_permits(3);
    let last = runtime.start(ONE, "last", 2).await.unwrap();
    assert_eq!(
        (first.result().await.unwrap(), last.result().await.unwrap()),
        (0, 2)
    );
    assert_eq!(*begun.lock().unwrap(), [0, 2]);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_activity_is_replaced_whether_or_not_it_has_code() {
    const PLAIN: Activity<u64, u64> = Activity::named("plain");
    const CALL_PLAIN: Workflow<u64, u64> = Workflow::named("call-plain");
    let call_plain = async |cx: WorkflowContext, number: u64| -> Result<u64, WorkflowError> {
        Ok(cx.call(PLAIN, number).await?)
    };
    let real = async |_cx: ActivityContext, _: u64| Err::<u64, _>(ActivityError::fatal("the real one"));
    let bare = || Runtime::volatile().register(CALL_PLAIN, call_plain);
    for builder in [bare(), bare().register(PLAIN, real)] {
        let builder = builder.replace_activity(PLAIN, async |_cx, number: u64| Ok(number + 1));
        let runtime = builder.start().await.unwrap();
        let run = runtime.start(CALL_PLAIN, "p", 4).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 5);
        runtime.shutdown().await.unwrap();
    }
    // Others keep theirs, and a second registration is refused as ever.
    let twice = bare()
        .replace_activity(PLAIN, real)
        .register(PLAIN, real)
        .start()
        .await;
    assert!(matches!(twice, Err(millrun::OpenError::RegisteredTwice { .. })));
}
