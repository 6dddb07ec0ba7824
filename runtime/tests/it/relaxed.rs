//! A store that acknowledges before it commits loses something in a crash, and nothing else: while the process lives, all
//! that was acknowledged is found.

use std::time::Duration;

use millrun::operating::InstanceStatus;
use millrun::store::Durability;
use millrun::{Query, RuntimeBuilder, Signal, Workflow, WorkflowContext, WorkflowError};

use crate::support::Store;

const ECHO: Workflow<u64, u64> = Workflow::named("echo");
const TALLY: Workflow<(), u64> = Workflow::named("tally");
const MORE: Signal<u64> = Signal::named("more");
const SUM: Query<u64, (), u64> = Query::named("sum");

async fn tally(cx: WorkflowContext, (): ()) -> Result<u64, WorkflowError> {
    let sum = cx.state(0);
    loop {
        let more = cx.receive(MORE).await?;
        sum.change(|sum| *sum += more);
    }
}

/// A store that writes nothing by itself within a test, once with each of the relaxed modes.
fn relaxed() -> [(Store, Durability); 2] {
    let window = Duration::from_secs(3_600);
    [Durability::Eventual { window }, Durability::Volatile].map(|durability| (Store::new(), durability))
}

fn open(store: &Store, durability: Durability) -> RuntimeBuilder {
    store
        .bare()
        .register(ECHO, async |_cx: WorkflowContext, number| Ok(number))
        .register(TALLY.query(SUM, |sum, ()| *sum), tally)
        .configure(|config| {
            config.journal.durability = durability;
            config.result_cache_len_max = 2;
            config.hot_len_max = 0;
        })
}

#[tokio::test]
async fn a_run_that_has_ended_is_found_before_it_is_written() {
    for (store, durability) in relaxed() {
        let runtime = open(&store, durability).start().await.unwrap();
        let mut runs = Vec::new();
        for number in 0..20 {
            let run = runtime.start(ECHO, &format!("e-{number}"), number).await.unwrap();
            assert_eq!(run.result().await.unwrap(), number);
            runs.push(run.run_id().unwrap());
        }
        for (number, ended) in (0..).zip(&runs) {
            let id = format!("e-{number}");
            let run = runtime.attach(ECHO, &id).unwrap();
            let told = run.describe().await.unwrap();
            assert_eq!(
                (told.run, told.status),
                (*ended, InstanceStatus::Finished),
                "{durability:?}"
            );
            assert_eq!(run.result().await.unwrap(), number);
            // Started once more under the same id, it is the run that there was.
            let again = runtime.start(ECHO, &id, 100).await.unwrap();
            assert_eq!(again.run_id(), Some(*ended), "{durability:?}: {id}");
        }
        assert_eq!(runtime.stats().started, 20, "{durability:?}");
        runtime.shutdown().await.unwrap();
        let runtime = open(&store, durability).start().await.unwrap();
        assert_eq!(
            runtime.list_finished(None, 100).await.unwrap().len(),
            20,
            "what was closed in good order is there"
        );
    }
}

#[tokio::test]
async fn a_run_that_is_brought_back_has_all_that_it_was_told() {
    for (store, durability) in relaxed() {
        let runtime = open(&store, durability).start().await.unwrap();
        // None of them stays in memory.
        let runs = ["a", "b", "c"];
        for id in runs {
            runtime.start(TALLY, id, ()).await.unwrap();
        }
        for round in 1..=10 {
            for id in runs {
                let run = runtime.attach(TALLY, id).unwrap();
                run.signal(MORE, 1).await.unwrap();
                assert_eq!(run.query(SUM, ()).await.unwrap(), round, "{durability:?}: {id}");
            }
        }
        assert!(runtime.stats().loads > 20, "{:?}", runtime.stats());
    }
}
