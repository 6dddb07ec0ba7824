//! Attempts that say how far they are, fall silent, or never begin.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use millrun::workflow::TimeoutKind;
use millrun::{
    Activity, ActivityContext, ActivityError, CallError, HeartbeatError, Retry, Signal, Workflow,
    WorkflowContext, WorkflowError,
};

use crate::support::Store;

const IMPORT: Activity<u64, (u64, u32)> = Activity::named("import");
const CALL_IMPORT: Workflow<u64, (u64, u32)> = Workflow::named("call-import");
const BLOCK: Activity<(), ()> = Activity::named("block");
const QUICK: Activity<(), ()> = Activity::named("quick");
const STOP: Signal<()> = Signal::named("stop");
const IMPATIENT: Workflow<(), String> = Workflow::named("impatient");

fn quickly() -> Retry {
    Retry::exponential()
        .first_pause(Duration::from_millis(1))
        .attempts(5)
}

async fn call_import(cx: WorkflowContext, rows: u64) -> Result<(u64, u32), WorkflowError> {
    let call = cx.call(IMPORT, rows).retry(quickly());
    Ok(call.heartbeat(Duration::from_secs(3_600)).await?)
}

/// Imports three rows per attempt, then fails; gives how many it imported in its last attempt.
async fn import(cx: ActivityContext, rows: u64) -> Result<(u64, u32), ActivityError> {
    let done = cx.details::<u64>().transpose()?.unwrap_or(0);
    for row in done..rows {
        if row == done + 3 {
            return Err(ActivityError::retryable("enough for now"));
        }
        cx.heartbeat(&(row + 1))?;
    }
    Ok((rows - done, cx.attempt()))
}

#[tokio::test]
async fn the_next_attempt_goes_on_where_the_last_heartbeat_was() {
    let store = Store::new();
    let builder = store.bare().register(IMPORT, import);
    let runtime = builder.register(CALL_IMPORT, call_import).start().await.unwrap();
    let run = runtime.start(CALL_IMPORT, "i", 7).await.unwrap();
    // Three rows, three rows, one row: although few heartbeats are recorded, none that counts is lost.
    assert_eq!(run.result().await.unwrap(), (1, 3));
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_a_heartbeat_said_outlives_a_crash() {
    let store = Store::new();
    let hangs = |cx: ActivityContext, _: u64| async move {
        cx.heartbeat(&5_u64)?;
        std::future::pending().await
    };
    let builder = store.bare().register(IMPORT, hangs);
    let runtime = builder.register(CALL_IMPORT, call_import).start().await.unwrap();
    let run = runtime.start(CALL_IMPORT, "i", 7).await.unwrap();
    // Started, scheduled, and the heartbeat.
    crate::support::described(&run, |run| run.sequence.get() == 3).await;
    drop((run, runtime));

    let builder = store.bare().register(IMPORT, import);
    let runtime = builder.register(CALL_IMPORT, call_import).start().await.unwrap();
    let run = runtime.attach(CALL_IMPORT, "i").unwrap();
    assert_eq!(run.result().await.unwrap(), (2, 2));
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_attempt_that_falls_silent_is_stopped_and_made_again() {
    async fn impatient(cx: WorkflowContext, (): ()) -> Result<String, WorkflowError> {
        let call = cx.call(BLOCK, ()).heartbeat(Duration::from_millis(5));
        match call.retry(quickly().attempts(3)).await {
            Err(CallError::TimedOut(kind)) => Ok(kind.to_string()),
            other => Err(WorkflowError::failed(format!("{other:?}"))),
        }
    }
    let store = Store::new();
    let silent = |_cx: ActivityContext, ()| std::future::pending::<Result<(), ActivityError>>();
    let builder = store.bare().register(BLOCK, silent);
    let runtime = builder.register(IMPATIENT, impatient).start().await.unwrap();
    let run = runtime.start(IMPATIENT, "b", ()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), TimeoutKind::Heartbeat.to_string());
    assert_eq!(runtime.stats().attempts, 3);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_call_that_does_not_begin_in_time_fails_and_is_never_started() {
    async fn impatient(cx: WorkflowContext, (): ()) -> Result<String, WorkflowError> {
        // The first takes the only place of the queue, and keeps it.
        let (_block, late) = cx
            .join(
                cx.race(cx.call(BLOCK, ()), cx.receive(STOP)),
                cx.call(QUICK, ()).schedule_to_start(Duration::from_millis(5)),
            )
            .await;
        match late {
            Err(CallError::TimedOut(kind)) => Ok(kind.to_string()),
            other => Err(WorkflowError::failed(format!("{other:?}"))),
        }
    }
    let store = Store::new();
    let started = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&started);
    let quick = move |_cx: ActivityContext, ()| {
        counter.fetch_add(1, Ordering::SeqCst);
        async { Ok::<_, ActivityError>(()) }
    };
    let block = |_cx: ActivityContext, ()| std::future::pending::<Result<(), ActivityError>>();
    let builder = store.bare().register(QUICK, quick).register(BLOCK, block);
    let runtime = builder
        .register(IMPATIENT, impatient)
        .configure(|config| config.activities_running_max = 1)
        .start()
        .await
        .unwrap();
    let run = runtime.start(IMPATIENT, "b", ()).await.unwrap();
    // The late call has failed once its failure is in the history: the stop lets the rest go.
    crate::support::described(&run, |run| run.pending.len() == 1 && run.sequence.get() == 4).await;
    run.signal(STOP, ()).await.unwrap();
    assert_eq!(
        run.result().await.unwrap(),
        TimeoutKind::ScheduleToStart.to_string()
    );
    assert_eq!(started.load(Ordering::SeqCst), 0);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_attempt_nobody_waits_for_is_told_so() {
    const WATCH: Activity<(), ()> = Activity::named("watch");
    const GIVE_UP: Workflow<(), ()> = Workflow::named("give-up");
    async fn give_up(cx: WorkflowContext, (): ()) -> Result<(), WorkflowError> {
        let _given_up = cx.race(cx.call(WATCH, ()), cx.receive(STOP)).await;
        Ok(())
    }
    let store = Store::new();
    let (sender, seen) = tokio::sync::oneshot::channel();
    let sender = Arc::new(std::sync::Mutex::new(Some(sender)));
    let (begin, begun) = tokio::sync::oneshot::channel();
    let begin = Arc::new(std::sync::Mutex::new(Some(begin)));
    let watch = move |cx: ActivityContext, ()| {
        let sender = sender.lock().unwrap().take();
        if let Some(begin) = begin.lock().unwrap().take() {
            begin.send(()).unwrap();
        }
        // A task of its own outlives the attempt, as code that blocks does.
        drop(tokio::spawn(async move {
            while !cx.is_cancelled() {
                tokio::task::yield_now().await;
            }
            if let Some(sender) = sender {
                sender.send(cx.heartbeat(&())).unwrap();
            }
        }));
        std::future::pending::<Result<(), ActivityError>>()
    };
    let builder = store.bare().register(WATCH, watch);
    let runtime = builder.register(GIVE_UP, give_up).start().await.unwrap();
    let run = runtime.start(GIVE_UP, "g", ()).await.unwrap();
    begun.await.unwrap();
    run.signal(STOP, ()).await.unwrap();
    assert_eq!(seen.await.unwrap(), Err(HeartbeatError::Cancelled));
    runtime.shutdown().await.unwrap();
}
