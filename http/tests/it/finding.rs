//! Runs are found by one filter, counted, and what becomes of them is told as it becomes durable.

use axum::Router;
use millrun::{Runtime, RuntimeBuilder, Signal, Workflow, WorkflowContext, WorkflowError};
use millrun_http::{Access, router};
use serde_json::Value;

use crate::client::Client;
use crate::support::get;

const WAIT: Workflow<u64, u64> = Workflow::named("wait");
const DOUBLE: Workflow<u64, u64> = Workflow::named("double");
const GO: Signal<u64> = Signal::named("go");

async fn wait(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    Ok(number + cx.receive(GO).await?)
}

async fn double(_cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    match number {
        0 => Err(WorkflowError::failed("nothing to double")),
        number => Ok(number * 2),
    }
}

fn code(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder.register(WAIT, wait).register(DOUBLE, double)
}

/// The ids of all runs that are found, page by page.
async fn found(app: &Router, query: &str) -> Vec<String> {
    let (mut ids, mut next) = (Vec::new(), format!("?{query}"));
    loop {
        let page = get(app, &format!("/v1/runs{next}")).await.json();
        let runs = page["runs"].as_array().unwrap_or_else(|| panic!("{page}"));
        ids.extend(runs.iter().map(|run| run["id"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(link) => next = link.to_owned(),
            None => return ids,
        }
    }
}

#[tokio::test]
async fn runs_are_found_by_what_they_do_on_pages_of_any_size_and_counted() {
    let runtime = code(Runtime::volatile()).start().await.unwrap();
    let app = router(&runtime, Access::read_only());
    for number in 0..4 {
        let run = runtime
            .start(DOUBLE, &format!("d-{number}"), number)
            .await
            .unwrap();
        drop(run.result().await);
    }
    for number in 0..3 {
        drop(runtime.start(WAIT, &format!("w-{number}"), number).await.unwrap());
    }
    runtime.attach(WAIT, "w-1").unwrap().pause("lunch").await.unwrap();
    for limit in [1, 2, 1_000] {
        for (query, mut expected) in [
            ("status=running", vec!["w-0", "w-2"]),
            ("status=paused", vec!["w-1"]),
            ("status=failed", vec!["d-0"]),
            ("status=completed,paused", vec!["d-1", "d-2", "d-3", "w-1"]),
            ("workflow=double&status=failed", vec!["d-0"]),
            ("id_prefix=d-", vec!["d-0", "d-1", "d-2", "d-3"]),
            ("ended_from_us=1", vec!["d-0", "d-1", "d-2", "d-3"]),
            ("started_until_us=1", vec![]),
            ("", vec!["d-0", "d-1", "d-2", "d-3", "w-0", "w-1", "w-2"]),
        ] {
            let mut ids = found(&app, &format!("{query}&limit={limit}")).await;
            let live = ids.iter().take_while(|id| id.starts_with('w')).count();
            assert!(
                ids[live..].iter().all(|id| id.starts_with('d')),
                "live ones first: {ids:?}"
            );
            ids.sort();
            expected.sort_unstable();
            assert_eq!(ids, expected, "{query}");
        }
    }
    for wrong in ["status=busy", "after=x", "limit=0", "order=id"] {
        assert_eq!(
            get(&app, &format!("/v1/runs?{wrong}")).await.code(),
            "invalid-query",
            "{wrong}"
        );
    }
    let counts = get(&app, "/v1/counts").await.json();
    let of = |workflow: &str| {
        let mut all = counts["workflows"].as_array().unwrap().iter();
        all.find(|row| row["workflow"] == workflow).unwrap().clone()
    };
    assert_eq!(
        (&of("double")["completed"], &of("double")["failed"]),
        (&3.into(), &1.into())
    );
    assert_eq!(
        (&of("wait")["running"], &of("wait")["paused"]),
        (&2.into(), &1.into())
    );
    assert_eq!(counts["others"]["running"], 0);
}

#[tokio::test]
async fn changes_are_streamed_and_resumed_and_a_place_of_another_process_is_a_gap() {
    let runtime = code(Runtime::volatile()).start().await.unwrap();
    let app = router(&runtime, Access::read_only());
    let mut client = Client::connect(&app, "/v1/changes", None).await;
    let run = runtime.start(WAIT, "w", 1).await.unwrap();
    run.pause("lunch").await.unwrap();
    run.resume().await.unwrap();
    run.signal(GO, 1).await.unwrap();
    let mut told = Vec::new();
    for kind in ["started", "parked", "resumed", "ended"] {
        let received = client.next().await.unwrap();
        assert_eq!(received.data["kind"], kind);
        assert_eq!(received.data["id"], "w");
        told.push(received);
    }
    assert_eq!(
        (&told[1].data["status"], &told[3].data["status"]),
        (&"paused".into(), &"completed".into())
    );
    let again = Client::connect(&app, "/v1/changes?limit=2", told[1].id.as_deref())
        .await
        .rest()
        .await;
    assert_eq!(again, told[2..]);
    let mut other = Client::connect(&app, "/v1/changes", Some("0000000000000007-3")).await;
    let gap = other.next().await.unwrap();
    assert_eq!(
        (gap.kind.as_deref(), &gap.data["lost"]),
        (Some("gap"), &Value::Null)
    );
    assert_eq!(get(&app, "/v1/changes?after=x").await.code(), "invalid-query");
    let stops = async {
        tokio::task::yield_now().await;
        runtime.shutdown().await.unwrap();
    };
    let (rest, ()) = tokio::join!(client.rest(), stops);
    assert_eq!(rest[0].data["type"], "urn:millrun:problem:stopped");
    assert_eq!(get(&app, "/v1/changes").await.code(), "stopped");
}
