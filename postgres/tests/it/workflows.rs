//! Workflows run on it, and go on where another runtime has left them.

use std::sync::Arc;
use std::time::Duration;

use millrun::{
    Activity, ActivityContext, ActivityError, Runtime, RuntimeConfig, Signal, Workflow, WorkflowContext,
    WorkflowError,
};
use millrun_persistence::Journal;

use crate::AtUrl;
use crate::server::TestServer;

const DOUBLE: Activity<u32, u32> = Activity::named("double");
const ADD: Signal<u32> = Signal::named("add");
const SUM: Workflow<u32, u32> = Workflow::named("sum");

async fn double(_: ActivityContext, number: u32) -> Result<u32, ActivityError> {
    Ok(2 * number)
}

/// A workflow that receives a number of signals and returns twice their sum.
async fn sum(cx: WorkflowContext, signals: u32) -> Result<u32, WorkflowError> {
    let mut sum = 0;
    for _ in 0..signals {
        sum += cx.receive(ADD).await?;
        cx.sleep(Duration::from_millis(1)).await?;
    }
    Ok(cx.call(DOUBLE, sum).await?)
}

async fn runtime(url: String) -> Runtime {
    // The opening waits for the server.
    let opened = tokio::task::spawn_blocking(move || AtUrl(url).open())
        .await
        .unwrap();
    let journal: Arc<dyn Journal> = Arc::new(opened);
    Runtime::volatile()
        .config(RuntimeConfig::default())
        .journal(journal)
        .register(DOUBLE, double)
        .register(SUM, sum)
        .start()
        .await
        .unwrap()
}

#[tokio::test]
async fn workflows_go_on_with_the_next_runtime() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let url = server.url(&server.schema());
    let runtime_one = runtime(url.clone()).await;
    let done = runtime_one.start(SUM, "done", 0).await.unwrap();
    assert_eq!(done.result().await.unwrap(), 0);
    for number in 0..20 {
        let run = runtime_one.start(SUM, &format!("sum-{number}"), 2).await.unwrap();
        run.signal(ADD, number).await.unwrap();
    }
    runtime_one.shutdown().await.unwrap();

    let runtime_two = runtime(url).await;
    assert_eq!(runtime_two.startup_report().live, 20);
    for number in 0..20 {
        let run = runtime_two.start(SUM, &format!("sum-{number}"), 2).await.unwrap();
        run.signal(ADD, 100).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 2 * (100 + number));
    }
    let done = runtime_two.start(SUM, "done", 0).await.unwrap();
    assert_eq!(done.result().await.unwrap(), 0);
    runtime_two.shutdown().await.unwrap();
}
