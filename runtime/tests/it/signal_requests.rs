//! Signals under a request: sent again, they change nothing and are answered alike.

use std::future::IntoFuture as _;

use millrun::history::{Event, Sequence};
use millrun::{
    InputRefused, OnConflict, Payload, RunError, RunHandle, Runtime, RuntimeBuilder, Signal,
    StartWithSignalError, Workflow, WorkflowContext, WorkflowError,
};

use crate::support::Store;

const ITEM: Signal<u64> = Signal::named("item");
const SUM: Workflow<(usize, u64), u64> = Workflow::named("sum");
const CHAIN: Workflow<(usize, u64), u64> = Workflow::named("chain");

/// Adds up this number of items.
async fn sum(cx: WorkflowContext, (len, mut sum): (usize, u64)) -> Result<u64, WorkflowError> {
    for _ in 0..len {
        sum += cx.receive(ITEM).await?;
    }
    Ok(sum)
}

/// The same, with a run for each item.
async fn chain(cx: WorkflowContext, (len, sum): (usize, u64)) -> Result<u64, WorkflowError> {
    if len == 0 {
        return Ok(sum);
    }
    let sum = sum + cx.receive(ITEM).await?;
    Ok(cx.continue_as_new(CHAIN, (len - 1, sum)).await?)
}

fn builder(store: &Store) -> RuntimeBuilder {
    store.bare().register(SUM, sum).register(CHAIN, chain)
}

/// How many signals the run has recorded.
async fn recorded(runtime: &Runtime, run: &RunHandle<u64>) -> usize {
    let run = run.describe().await.unwrap().run;
    let page = runtime.history(run, Sequence::ZERO, 1_000).await.unwrap();
    let signals = page.events.iter();
    signals
        .filter(|recorded| matches!(recorded.event, Event::SignalReceived { .. }))
        .count()
}

#[tokio::test]
async fn a_signal_sent_again_is_known_in_memory_on_disk_and_after_the_end() {
    for hot_len_max in [100, 0] {
        let store = Store::new();
        let open = || {
            builder(&store).configure(|config| {
                config.hot_len_max = hot_len_max;
                config.result_cache_len_max = hot_len_max;
            })
        };
        let runtime = open().start().await.unwrap();
        let run = runtime.start(SUM, "s", (3, 0)).await.unwrap();
        for _ in 0..3 {
            run.signal_as(ITEM, "a", 1).await.unwrap();
        }
        assert_eq!(recorded(&runtime, &run).await, 1);
        run.signal_as(ITEM, "b", 20).await.unwrap();
        drop((run, runtime));

        // A crash later.
        let runtime = open().start().await.unwrap();
        let run = runtime.attach(SUM, "s").unwrap();
        run.signal_as(ITEM, "b", 20).await.unwrap();
        run.signal_as(ITEM, "a", 1).await.unwrap();
        assert_eq!(recorded(&runtime, &run).await, 2);
        run.signal_as(ITEM, "c", 300).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 321);
        run.signal_as(ITEM, "c", 300).await.unwrap();
        drop((run, runtime));

        // Finished, and known from the store alone.
        let runtime = open().start().await.unwrap();
        let run = runtime.attach(SUM, "s").unwrap();
        for request in ["c", "a", "b"] {
            run.signal_as(ITEM, request, 9).await.unwrap();
        }
        let late = run.signal_as(ITEM, "d", 4_000).await.unwrap_err();
        assert!(matches!(late, RunError::Finished), "{late}");
        assert_eq!(recorded(&runtime, &run).await, 3);
        assert_eq!(runtime.stats().live, 0, "asking brought nothing back to life");
        runtime.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn a_signal_is_known_in_the_runs_in_which_an_instance_goes_on() {
    let store = Store::new();
    let runtime = builder(&store).start().await.unwrap();
    let run = runtime.start(CHAIN, "c", (3, 0)).await.unwrap();
    for (request, item) in [("a", 1), ("a", 1), ("b", 20), ("a", 1), ("b", 20), ("c", 300)] {
        run.signal_as(ITEM, request, item).await.unwrap();
    }
    assert_eq!(run.result().await.unwrap(), 321);
    // By the first run of the chain, and by the last.
    for run in [run, runtime.attach(CHAIN, "c").unwrap()] {
        run.signal_as(ITEM, "b", 20).await.unwrap();
        let late = run.signal_as(ITEM, "d", 4_000).await.unwrap_err();
        assert!(matches!(late, RunError::Finished), "{late}");
    }
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn one_request_a_hundred_times_at_once_is_one_signal() {
    let store = Store::new();
    let runtime = builder(&store).start().await.unwrap();
    let starts = (0..100).map(|_| {
        let start = runtime.start(SUM, "s", (2, 0));
        start.with_signal_as(ITEM, "delivery", 1).into_future()
    });
    let runs = futures_util::future::join_all(starts).await;
    let runs: Vec<_> = runs.into_iter().map(Result::unwrap).collect();
    assert_eq!(runtime.stats().started, 1);
    let signals = runs.iter().map(|run| run.signal_as(ITEM, "delivery", 1));
    for sent in futures_util::future::join_all(signals).await {
        sent.unwrap();
    }
    runs[0].signal_as(ITEM, "last", 20).await.unwrap();
    for run in &runs {
        assert_eq!(run.result().await.unwrap(), 21);
    }
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_start_with_a_signal_is_repeated_also_when_its_run_has_ended() {
    let store = Store::new();
    let runtime = builder(&store)
        .configure(|config| config.result_cache_len_max = 0)
        .start()
        .await
        .unwrap();
    let start = |policy| runtime.start(SUM, "s", (1, 0)).on_conflict(policy);
    let run = start(OnConflict::Attach)
        .with_signal_as(ITEM, "a", 1)
        .await
        .unwrap();
    assert_eq!(run.result().await.unwrap(), 1);
    let again = start(OnConflict::Attach).with_signal_as(ITEM, "a", 1).await;
    assert_eq!(again.unwrap().run_id(), run.run_id());
    let other = start(OnConflict::Attach).with_signal_as(ITEM, "b", 2).await;
    assert!(
        matches!(other, Err(StartWithSignalError::Signal(RunError::Finished))),
        "{other:?}"
    );
    let another = start(OnConflict::RestartFinished)
        .with_signal_as(ITEM, "a", 2)
        .await;
    assert_eq!(another.unwrap().result().await.unwrap(), 2, "another run");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn names_and_payloads_signal_under_a_request_as_types_do() {
    let store = Store::new();
    let runtime = builder(&store).start().await.unwrap();
    let value = |item: u64| Payload::encode(&item).unwrap();
    let input = Payload::encode(&(2, 0)).unwrap();
    let run = runtime
        .start_untyped("sum", "s", input.clone())
        .with_signal_untyped_as("item", "a", value(1))
        .await
        .unwrap();
    run.signal_as("item", "a", value(1)).await.unwrap();
    let long = "r".repeat(256);
    for request in ["", &long] {
        let refused = run.signal_as("item", request, value(1)).await.unwrap_err();
        let bytes = request.len();
        assert!(
            matches!(refused, RunError::Refused(InputRefused::Name { bytes: of }) if of == bytes),
            "{refused}"
        );
        let start = runtime.start_untyped("sum", "other", input.clone());
        let refused = start.with_signal_untyped_as("item", request, value(1)).await;
        assert!(refused.is_err(), "nothing is started");
    }
    assert_eq!(runtime.stats().started, 1);
    run.signal_as("item", "b", value(20)).await.unwrap();
    assert_eq!(run.result().await.unwrap().decode::<u64>().unwrap(), 21);
    runtime.shutdown().await.unwrap();
}
