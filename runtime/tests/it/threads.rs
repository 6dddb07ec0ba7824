//! Activities that block, and queues with limits of their own.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use millrun::workflow::TimeoutKind;
use millrun::{
    Activity, ActivityContext, ActivityError, CallError, HeartbeatError, Retry, Workflow, WorkflowContext,
    WorkflowError,
};

use crate::support::{DOUBLE, QUADRUPLE, Store};

const BLOCK: Activity<u64, u64> = Activity::named("block");
const CALL_BLOCK: Workflow<u64, u64> = Workflow::named("call-block");

async fn call_block(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    Ok(cx.call(BLOCK, number).retry(Retry::never()).await?)
}

/// A gate that threads wait at.
#[derive(Debug, Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
    is_entered: AtomicBool,
}

impl Gate {
    fn pass(&self) {
        let mut is_open = self.is_open.lock().unwrap();
        while !*is_open {
            is_open = self.opened.wait(is_open).unwrap();
        }
    }

    /// Called by the code that opens it, before it does.
    fn enter(&self) {
        self.is_entered.store(true, Ordering::SeqCst);
    }

    fn is_entered(&self) -> bool {
        self.is_entered.load(Ordering::SeqCst)
    }

    fn is_open(&self) -> bool {
        *self.is_open.lock().unwrap()
    }

    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

#[tokio::test]
async fn code_that_blocks_holds_up_nobody_else() {
    let store = Store::new();
    let gate = Arc::new(Gate::default());
    let at_gate = Arc::clone(&gate);
    let inside = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&inside);
    let block = move |cx: ActivityContext, number: u64| {
        counter.fetch_add(1, Ordering::SeqCst);
        at_gate.pass();
        counter.fetch_sub(1, Ordering::SeqCst);
        Ok::<_, ActivityError>(number + u64::from(cx.attempt()))
    };
    let builder = store.open().register_blocking(BLOCK, block);
    let runtime = builder
        .register(CALL_BLOCK, call_block)
        .configure(|config| config.blocking_threads_max = 2)
        .start()
        .await
        .unwrap();
    let mut runs = Vec::new();
    for number in 0..5 {
        let id = format!("b-{number}");
        runs.push(runtime.start(CALL_BLOCK, &id, number).await.unwrap());
    }
    // On a current-thread runtime: code that blocked it would block this.
    while inside.load(Ordering::SeqCst) < 2 {
        tokio::task::yield_now().await;
    }
    let other = runtime.start(QUADRUPLE, "q", 5).await.unwrap();
    assert_eq!(other.result().await.unwrap(), 20);
    assert_eq!(inside.load(Ordering::SeqCst), 2, "two threads, as configured");
    gate.open();
    for (number, run) in (0..).zip(runs) {
        assert_eq!(run.result().await.unwrap(), number + 1);
    }
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_panic_on_its_thread_fails_one_attempt() {
    let store = Store::new();
    let block = |_: ActivityContext, number: u64| -> Result<u64, ActivityError> {
        assert_eq!(number, 0, "not zero");
        Ok(7)
    };
    let builder = store.bare().register_blocking(BLOCK, block);
    let runtime = builder.register(CALL_BLOCK, call_block).start().await.unwrap();
    let failed = runtime.start(CALL_BLOCK, "1", 1).await.unwrap();
    let error = failed.result().await.unwrap_err().to_string();
    assert!(
        error.contains("panicked") && error.contains("not zero"),
        "{error}"
    );
    let run = runtime.start(CALL_BLOCK, "0", 0).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 7);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn threads_without_a_limit_are_no_error() {
    let store = Store::new();
    let block = |_: ActivityContext, number: u64| Ok::<_, ActivityError>(number);
    let builder = store.bare().register_blocking(BLOCK, block);
    let builder = builder.configure(|config| config.blocking_threads_max = usize::MAX);
    let runtime = builder.register(CALL_BLOCK, call_block).start().await.unwrap();
    let run = runtime.start(CALL_BLOCK, "b", 7).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 7);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn code_that_blocks_learns_that_its_time_is_up() {
    async fn impatient(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
        let call = cx.call(BLOCK, number).retry(Retry::never());
        match call.start_to_close(Duration::from_millis(5)).await {
            Err(CallError::TimedOut(TimeoutKind::StartToClose)) => Ok(1),
            other => Err(WorkflowError::failed(format!("{other:?}"))),
        }
    }
    let store = Store::new();
    let gate = Arc::new(Gate::default());
    let seen = Arc::clone(&gate);
    let block = move |cx: ActivityContext, number: u64| {
        seen.enter();
        while !cx.is_cancelled() {
            std::thread::yield_now();
        }
        seen.open();
        Ok::<_, ActivityError>(number)
    };
    let builder = store.bare().register_blocking(BLOCK, block);
    let runtime = builder.register(CALL_BLOCK, impatient).start().await.unwrap();
    // One whose time is up before its code runs learns nothing: then another is called.
    for number in 0.. {
        let run = runtime
            .start(CALL_BLOCK, &format!("b-{number}"), 0)
            .await
            .unwrap();
        assert_eq!(run.result().await.unwrap(), 1);
        if gate.is_entered() {
            break;
        }
    }
    gate.pass();
    runtime.shutdown().await.unwrap();
}

/// Code that looks whether anybody waits for it went on for ever when its runtime went, and kept
/// the caller that dropped the runtime waiting for as long as threads are waited for.
#[tokio::test]
async fn code_that_blocks_learns_that_its_runtime_goes() {
    for is_polite in [true, false] {
        let store = Store::new();
        let gate = Arc::new(Gate::default());
        let seen = Arc::clone(&gate);
        let block = move |cx: ActivityContext, number: u64| {
            seen.enter();
            while !cx.is_cancelled() {
                std::thread::yield_now();
            }
            assert_eq!(cx.heartbeat(&()), Err(HeartbeatError::Cancelled));
            seen.open();
            Ok::<_, ActivityError>(number)
        };
        let builder = store.bare().register_blocking(BLOCK, block);
        let runtime = builder
            .register(CALL_BLOCK, call_block)
            .configure(|config| config.shutdown_grace = Duration::ZERO)
            .start()
            .await
            .unwrap();
        drop(runtime.start(CALL_BLOCK, "b", 7).await.unwrap());
        while !gate.is_entered() {
            tokio::task::yield_now().await;
        }
        if is_polite {
            assert_eq!(runtime.shutdown().await.unwrap().activities_cut, 1);
        }
        drop(runtime);
        // Its thread has been waited for, and not in vain.
        assert!(gate.is_open(), "polite: {is_polite}");

        let at_once = |_: ActivityContext, number: u64| Ok::<_, ActivityError>(number);
        let builder = store.bare().register_blocking(BLOCK, at_once);
        let runtime = builder.register(CALL_BLOCK, call_block).start().await.unwrap();
        let run = runtime.attach(CALL_BLOCK, "b").unwrap();
        assert_eq!(run.result().await.unwrap(), 7, "what was cut off has run again");
        runtime.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn a_task_queue_has_a_limit_of_its_own() {
    const NARROW: Activity<u64, u64> = Activity::named("narrow").on_queue("narrow");
    const FAN_OUT: Workflow<u64, u64> = Workflow::named("fan-out");
    async fn fan_out(cx: WorkflowContext, len: u64) -> Result<u64, WorkflowError> {
        let wide = cx.join_all((0..len).map(|number| cx.call(DOUBLE, number)));
        let narrow = cx.join_all((0..len).map(|number| cx.call(NARROW, number)));
        let (wide, narrow) = cx.join(wide, narrow).await;
        let mut most = 0;
        for end in narrow {
            most = most.max(end?);
        }
        for end in wide {
            end?;
        }
        Ok(most)
    }
    let store = Store::new();
    let running = Arc::new(AtomicU32::new(0));
    let narrow = move |_: ActivityContext, _: u64| {
        let running = Arc::clone(&running);
        async move {
            let now = running.fetch_add(1, Ordering::SeqCst) + 1;
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            running.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, ActivityError>(u64::from(now))
        }
    };
    let builder = store.open().register(NARROW, narrow).register(FAN_OUT, fan_out);
    let limit = |config: &mut millrun::RuntimeConfig| {
        config.queue_running_max.insert("narrow".into(), 3);
    };
    let runtime = builder.configure(limit).start().await.unwrap();
    let run = runtime.start(FAN_OUT, "f", 40).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 3);
    runtime.shutdown().await.unwrap();
}
