//! Task queues that calls name at run time.

use std::sync::Arc;

use millrun::{
    Activity, ActivityContext, CallError, OpenError, Runtime, Workflow, WorkflowContext, WorkflowError,
};
use tokio::sync::Semaphore;

use crate::support::{Store, described};

/// Waits for a permit, unless it is told not to.
const WORK: Activity<bool, u64> = Activity::named("work");
/// Calls it on the queue of a tenant.
const SERVE: Workflow<(String, bool), u64> = Workflow::named("serve");

async fn serve(cx: WorkflowContext, (tenant, waits): (String, bool)) -> Result<u64, WorkflowError> {
    match cx.call(WORK, waits).on_queue(tenant).await {
        Err(CallError::QueueName { bytes }) => Ok(bytes as u64 + 1_000),
        other => Ok(other?),
    }
}

#[tokio::test]
async fn a_tenant_whose_queue_is_busy_holds_up_no_other() {
    let gate = Arc::new(Semaphore::new(0));
    let given = Arc::clone(&gate);
    let builder = Runtime::volatile()
        .queue("acme")
        .queue("globex".to_owned())
        .queue("acme")
        .register(SERVE, serve)
        .register(WORK, async move |_: ActivityContext, waits: bool| {
            if waits {
                given.acquire().await.unwrap().forget();
            }
            Ok(1)
        })
        .configure(|config| {
            config.named_queues_len_max = 2;
            config.queue_running_max.insert("acme".into(), 1);
        });
    let runtime = builder.start().await.unwrap();
    let start = async |id: &str, tenant: &str, waits: bool| {
        runtime
            .start(SERVE, id, (tenant.to_owned(), waits))
            .await
            .unwrap()
    };
    let (first, second) = (start("a1", "acme", true).await, start("a2", "acme", false).await);
    assert_eq!(start("g", "globex", false).await.result().await.unwrap(), 1);
    // The first is begun, and the second waits behind it, since its queue runs one at a time.
    while runtime.stats().attempts_running == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(runtime.stats().attempts_running, 1);
    gate.add_permits(1);
    assert_eq!(first.result().await.unwrap() + second.result().await.unwrap(), 2);
    for (tenant, bytes) in [("", 0), ("t".repeat(256).as_str(), 256)] {
        let refused = start(&format!("r{bytes}"), tenant, false).await;
        assert_eq!(refused.result().await.unwrap(), bytes + 1_000);
    }
    let parts: Vec<_> = runtime.parts().into_iter().map(|part| part.name).collect();
    assert!(
        parts.contains(&"pool acme".into()) && parts.contains(&"pool globex".into()),
        "{parts:?}"
    );
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_call_waits_until_a_runtime_has_its_queue() {
    let store = Store::new();
    let builder = || {
        let builder = store.bare().register(SERVE, serve);
        builder.register(WORK, async |_: ActivityContext, _| Ok(7))
    };
    let runtime = builder().start().await.unwrap();
    let run = runtime
        .start(SERVE, "late", ("initech".to_owned(), false))
        .await
        .unwrap();
    described(&run, |run| run.pending.len() == 1).await;
    runtime.shutdown().await.unwrap();
    let runtime = builder().queue("initech").start().await.unwrap();
    assert_eq!(runtime.attach(SERVE, "late").unwrap().result().await.unwrap(), 7);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn more_queues_than_may_be_named_and_names_that_no_queue_can_have_are_refused() {
    let builder = Runtime::volatile().queue("one").queue("two");
    let many = builder
        .configure(|config| config.named_queues_len_max = 1)
        .start()
        .await
        .unwrap_err();
    assert!(
        matches!(
            many,
            OpenError::Config {
                field: "named_queues_len_max",
                ..
            }
        ),
        "{many}"
    );
    for name in ["", "a..b", "*"] {
        let invalid = Runtime::volatile().queue(name).start().await.unwrap_err();
        assert!(
            matches!(&invalid, OpenError::QueueName { name: refused, .. } if refused == name),
            "{invalid}"
        );
    }
}
