//! Live runs of a damaged store go on in the one that was salvaged from it.
//!
//! The story: one damaged page made a store that had not been closed unreadable, with all its live runs,
//! though every record of theirs was sound.

use std::fs;

use millrun::host::{HostConfig, TokioHost};
use millrun::store::{SalvageOptions, salvage};
use millrun::{Query, Signal, Workflow, WorkflowContext, WorkflowError};

use crate::support::{QUADRUPLE, Store};

const GO: Signal<u64> = Signal::named("go");
const COUNT: Workflow<u64, u64> = Workflow::named("count");
const SUM: Query<u64, (), u64> = Query::named("sum");

/// Sums up signals, with a checkpoint after every five of them.
async fn summing(cx: WorkflowContext, first: u64) -> Result<u64, WorkflowError> {
    let sum = cx.checkpointed().transpose()?.unwrap_or(first);
    let sum = cx.state(sum);
    for _ in 0..5 {
        match cx.receive(GO).await? {
            0 => return Ok(sum.read(|sum| *sum)),
            number => sum.change(|sum| *sum += number),
        }
    }
    Ok(cx.checkpoint(&sum.read(|sum| *sum)).await?)
}

#[tokio::test]
async fn live_checkpointed_and_finished_runs_go_on_in_a_salvaged_store() {
    let (store, salvaged) = (Store::new(), Store::new());
    let builder = |store: &Store| {
        let code = COUNT.query(SUM, |sum, ()| *sum);
        store.open().register(code, summing)
    };
    let runtime = builder(&store).start().await.unwrap();
    let finished = runtime.start(QUADRUPLE, "finished", 3).await.unwrap();
    assert_eq!(finished.result().await.unwrap(), 12);
    let waiting = runtime.start(COUNT, "waiting", 10).await.unwrap();
    waiting.signal(GO, 1).await.unwrap();
    let checkpointed = runtime.start(COUNT, "checkpointed", 100).await.unwrap();
    for _ in 0..12 {
        checkpointed.signal(GO, 1).await.unwrap();
    }
    assert_eq!(waiting.query(SUM, ()).await.unwrap(), 11);
    assert_eq!(checkpointed.query(SUM, ()).await.unwrap(), 112);
    // Everything is acknowledged and nothing is being written: this is what a kill would leave.
    let mut image = fs::read(store.path()).unwrap();
    runtime.shutdown().await.unwrap();

    // The magic number of redb's file, and its two commit slots.
    image[4_096..4_416].fill(0);
    fs::write(store.path(), &image).unwrap();
    let error = builder(&store).start().await.unwrap_err();
    let source = std::error::Error::source(&error).map(ToString::to_string);
    let told = format!("{error} {}", source.unwrap_or_default());
    assert!(told.contains("millrun salvage"), "{told}");
    let owner = TokioHost::spawn(HostConfig::default()).await.unwrap();
    let (from, to, host) = (store.path(), salvaged.path(), owner.host());
    let options = SalvageOptions::default();
    let report = salvage(from, to, &options, &*host, &mut |_| {}).unwrap();
    assert_eq!((report.live_runs, report.finished_runs), (2, 1), "{report}");

    let runtime = builder(&salvaged).start().await.unwrap();
    for (id, sum) in [("waiting", 11), ("checkpointed", 112)] {
        let run = runtime.attach(COUNT, id).unwrap();
        assert_eq!(run.query(SUM, ()).await.unwrap(), sum);
        run.signal(GO, 5).await.unwrap();
        run.signal(GO, 0).await.unwrap();
        assert_eq!(run.result().await.unwrap(), sum + 5);
    }
    let finished = runtime.attach(QUADRUPLE, "finished").unwrap();
    assert_eq!(finished.result().await.unwrap(), 12);
    runtime.shutdown().await.unwrap();
}
