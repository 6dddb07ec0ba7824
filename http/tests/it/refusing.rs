//! What is not answered is a problem that says what to do.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use millrun::operating::BulkAction;
use millrun_http::{Access, OPERATIONS, Role, router};

use crate::support::{ORDER, get, path_of, runtime, send};

#[tokio::test]
async fn what_is_asked_wrongly_is_told_as_a_problem() {
    let runtime = runtime().await;
    let run = runtime.start(ORDER, "o", 5).await.unwrap().run_id().unwrap();
    let app = axum::Router::new().nest("/m", router(&runtime, Access::read_only()));
    let long = "x".repeat(256);
    let nobody = "0".repeat(32);
    for (path, status, code) in [
        ("v2/live".to_owned(), 404, "no-route"),
        ("v1/instances/".to_owned(), 404, "no-route"),
        ("v1/instances/nobody".to_owned(), 404, "not-found"),
        (format!("v1/instances/{long}"), 400, "invalid-id"),
        ("v1/instances/%FF".to_owned(), 400, "invalid-id"),
        (format!("v1/runs/{nobody}"), 404, "not-found"),
        (format!("v1/runs/{nobody}/history"), 404, "not-found"),
        ("v1/runs/7".to_owned(), 400, "invalid-id"),
        (format!("v1/runs/+{}", &nobody[1..]), 400, "invalid-id"),
        (format!("v1/runs/{}/history", "f".repeat(32)), 400, "invalid-id"),
        (format!("v1/runs/{run}/history?limit=0"), 400, "invalid-query"),
        (format!("v1/runs/{run}/history?limit=1001"), 400, "invalid-query"),
        (format!("v1/runs/{run}/history?before=3"), 400, "invalid-query"),
    ] {
        let answer = get(&app, &format!("/m/{path}")).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (status, code),
            "{path}"
        );
        assert_eq!(answer.json()["retry"], false, "{path}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
    }
    let post = send(&app, Request::post("/m/v1/live").body(Body::empty()).unwrap()).await;
    assert_eq!((post.status.as_u16(), post.code().as_str()), (405, "method"));
    assert!(post.header("allow").contains("GET"), "{:?}", post.headers);
}

#[tokio::test]
async fn each_role_may_ask_for_what_the_table_says() {
    let runtime = runtime().await;
    let run = runtime.start(ORDER, "o", 5).await.unwrap().run_id().unwrap();
    drop(
        runtime
            .bulk(BulkAction::Resume)
            .ids(["nobody"])
            .start("o")
            .await
            .unwrap(),
    );
    let schedule = runtime.schedule("o", ORDER, 5).cron("0 0 29 2 *");
    schedule.await.unwrap();
    let access = Access::by(|request| match request.headers.get("x-role") {
        Some(role) if role == "operator" => Role::Operator,
        Some(role) if role == "reader" => Role::Reader,
        _ => Role::Anonymous,
    });
    let app = router(&runtime, access);
    for operation in OPERATIONS {
        let path = path_of(operation, "o", run);
        for role in [Role::Anonymous, Role::Reader, Role::Operator] {
            let request = Request::builder().method(&operation.method).uri(&path);
            let answer = send(
                &app,
                request.header("x-role", role.name()).body(Body::empty()).unwrap(),
            )
            .await;
            if role >= operation.role && operation.method == "POST" {
                assert_eq!(answer.code(), "media-type", "it is let in, and has no body");
            } else if role >= operation.role && ["tail", "records", "subscriptions"].contains(&operation.name)
            {
                assert_eq!(answer.code(), "no-topic", "it is let in, and none is exposed");
            } else if role >= operation.role && operation.name == "entities" {
                assert_eq!(
                    answer.code(),
                    "not-registered",
                    "it is let in, and none is registered"
                );
            } else if role >= operation.role
                && ["changes", "output", "trace_record"].contains(&operation.name)
            {
                assert_eq!(
                    answer.code(),
                    "invalid-query",
                    "it is let in, and asked for nothing"
                );
            } else if role >= operation.role && operation.name == "store" {
                assert_eq!(
                    answer.code(),
                    "no-store",
                    "it is let in, and the runtime is in memory"
                );
            } else if role >= operation.role {
                assert_eq!(answer.status, StatusCode::OK, "{path} as {role:?}");
            } else {
                assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path} as {role:?}");
                assert_eq!(answer.code(), "forbidden");
            }
        }
    }
    // Whether a run is there is not told either.
    assert_eq!(get(&app, "/v1/instances/nobody").await.code(), "forbidden");
    assert_eq!(get(&app, "/v1/runs/7").await.code(), "forbidden");
}

#[tokio::test]
async fn a_runtime_that_has_stopped_is_live_and_not_ready() {
    let runtime = runtime().await;
    let app = router(&runtime, Access::read_only());
    assert_eq!(get(&app, "/v1/ready").await.status, StatusCode::OK);
    runtime.shutdown().await.unwrap();
    assert_eq!(get(&app, "/v1/live").await.status, StatusCode::OK);
    for path in ["/v1/ready", "/v1/instances/o"] {
        let answer = get(&app, path).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (503, "stopped"),
            "{path}"
        );
        assert_eq!(answer.json()["retry"], true);
    }
}
