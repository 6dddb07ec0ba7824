//! Workflows run on it, and go on where another runtime has left them.

use std::sync::Arc;
use std::time::Duration;

use millrun::{
    Activity, ActivityContext, ActivityError, DurableTopic, OpenError, Runtime, RuntimeConfig, Signal, Topic,
    Workflow, WorkflowContext, WorkflowError,
};
use millrun_persistence::Journal;
use millrun_postgres::PostgresOpenError;

use crate::AtUrl;
use crate::server::TestServer;

const NUMBERS: DurableTopic<u32> = Topic::named("numbers").durable();
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
        .durable_topic(NUMBERS)
        .start()
        .await
        .unwrap()
}

#[tokio::test]
async fn a_runtime_opens_a_store_by_its_url_alone() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let url = server.url(&server.schema());
    let open = || Runtime::open(&url).register(DOUBLE, double).register(SUM, sum);
    assert!(
        !format!("{:?}", open()).contains("postgres://"),
        "a password may stand there"
    );
    for started in [1, 0] {
        let runtime = open().start().await.unwrap();
        let run = runtime.start(SUM, "sum", 0).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 0);
        assert_eq!(
            runtime.stats().started,
            started,
            "the second finds the first one's run"
        );
        runtime.shutdown().await.unwrap();
    }
    let nowhere = Runtime::open("postgres://app:secret@localhost:1/orders")
        .start()
        .await;
    let refused = nowhere.map(drop).unwrap_err();
    assert!(
        matches!(refused, OpenError::Postgres(PostgresOpenError::NoServer { .. })),
        "{refused:?}"
    );
    assert!(!format!("{refused} {refused:?}").contains("secret"));
    let unread = Runtime::open("postgres://localhost/orders?colour=red")
        .start()
        .await;
    assert!(
        matches!(unread, Err(OpenError::Postgres(PostgresOpenError::Url { .. }))),
        "{unread:?}"
    );
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

#[tokio::test]
async fn a_durable_topic_and_its_subscription_go_on_with_the_next_runtime() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let url = server.url(&server.schema());
    let runtime_one = runtime(url.clone()).await;
    let numbers = runtime_one.durable_topic(NUMBERS).unwrap();
    for number in 0..20 {
        numbers
            .publish(&number)
            .key("one")
            .id(&number.to_string())
            .await
            .unwrap();
    }
    let subscription = numbers.subscribe("billing").await.unwrap();
    for expected in 0..8 {
        let delivery = subscription.next().await.unwrap();
        assert_eq!(*delivery.payload(), expected);
        delivery.ack().unwrap().await.unwrap();
    }
    drop((subscription, numbers));
    runtime_one.shutdown().await.unwrap();

    let runtime_two = runtime(url).await;
    let numbers = runtime_two.durable_topic(NUMBERS).unwrap();
    // One is known by its id, the other is new.
    for number in [3, 20] {
        numbers
            .publish(&number)
            .key("one")
            .id(&number.to_string())
            .await
            .unwrap();
    }
    let subscription = numbers.subscribe("billing").await.unwrap();
    for expected in 8..=20 {
        let delivery = subscription.next().await.unwrap();
        assert_eq!(*delivery.payload(), expected);
        delivery.ack().unwrap().await.unwrap();
    }
    assert_eq!(subscription.status().lag, 0);
    drop((subscription, numbers));
    runtime_two.shutdown().await.unwrap();
}

/// The runtime waits for a server that is killed and started again, and no caller is told of anything.
#[tokio::test]
async fn workflows_go_on_when_the_server_is_killed_and_started_again() {
    let Some(mut server) = TestServer::own() else {
        return;
    };
    let runtime = runtime(server.url("killed")).await;
    let mut runs = Vec::new();
    for number in 0..30 {
        runs.push(runtime.start(SUM, &format!("sum-{number}"), 2).await.unwrap());
    }
    for (number, run) in (0..).zip(&runs) {
        run.signal(ADD, number).await.unwrap();
    }
    let mut server = tokio::task::spawn_blocking(move || {
        server.kill();
        server
    })
    .await
    .unwrap();
    let starting = tokio::task::spawn_blocking(move || {
        server.start();
        server
    });
    for run in &runs {
        run.signal(ADD, 100).await.unwrap();
    }
    for (number, run) in (0..).zip(&runs) {
        assert_eq!(run.result().await.unwrap(), 2 * (100 + number));
    }
    let server = starting.await.unwrap();
    runtime.shutdown().await.unwrap();
    drop(server);
}
