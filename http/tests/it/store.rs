//! Upkeep of the store of a program.

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use millrun::Runtime;
use millrun::store::ClosedStore;
use millrun_http::{Access, router};

use crate::support::{Answer, get, send};

async fn post(app: &Router, path: &str, body: &str) -> Answer {
    let request = Request::post(path).header("content-type", "application/json");
    send(app, request.body(Body::from(body.to_owned())).unwrap()).await
}

#[tokio::test]
async fn a_store_is_told_verified_copied_exported_and_compacted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.redb");
    let runtime = Runtime::open(&path).start().await.unwrap();
    let app = router(&runtime, Access::operator());
    let told = get(&app, "/v1/store").await.json();
    assert!(told["path"].as_str().unwrap().ends_with("app.redb"), "{told}");
    assert_eq!((&told["live_runs"], &told["format"]), (&0.into(), &4.into()));
    assert_eq!(
        post(&app, "/v1/store/verify", "{}").await.json()["is_sound"],
        true
    );
    let copy = post(&app, "/v1/store/backup", r#"{"name": "monday"}"#)
        .await
        .json();
    let copy = copy["path"].as_str().unwrap().to_owned();
    assert_eq!(
        copy,
        folder.path().join("app.redb.monday.backup").to_str().unwrap()
    );
    let again = post(&app, "/v1/store/backup", r#"{"name": "monday"}"#).await;
    assert_eq!(again.json()["type"], "urn:millrun:problem:exists");
    let lines = post(&app, "/v1/store/export", r#"{"name": "monday"}"#)
        .await
        .json();
    assert_eq!(lines["runs"], 0);
    assert_eq!(post(&app, "/v1/store/compact", "{}").await.json()["begun"], true);
    drop(app);
    runtime.shutdown().await.unwrap();
    drop(ClosedStore::open(copy).await.unwrap());
}

/// A name in a request leads to no file outside of the store's folder, and to none there with another ending.
#[tokio::test]
async fn no_request_names_a_path() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = Runtime::open(folder.path().join("app.redb"))
        .start()
        .await
        .unwrap();
    let app = router(&runtime, Access::operator());
    for name in [
        "",
        ".",
        "..",
        "../x",
        "a/b",
        "a.b",
        "/tmp/x",
        "a\\u0000",
        "ä",
        &"x".repeat(65),
    ] {
        for operation in ["backup", "export"] {
            let body = format!(r#"{{"name": "{name}"}}"#);
            let refused = post(&app, &format!("/v1/store/{operation}"), &body).await.json();
            assert_eq!(
                refused["type"], "urn:millrun:problem:invalid-body",
                "{name}: {refused}"
            );
        }
    }
    let names = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(names, 1);
    // Looking is for readers, having something done is not.
    let reading = router(&runtime, Access::read_only());
    assert_eq!(get(&reading, "/v1/store").await.json()["live_runs"], 0);
    for operation in ["verify", "backup", "export", "compact"] {
        let refused = post(&reading, &format!("/v1/store/{operation}"), "{}")
            .await
            .json();
        assert_eq!(refused["type"], "urn:millrun:problem:forbidden");
    }
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_runtime_in_memory_has_no_store() {
    let runtime = Runtime::volatile().start().await.unwrap();
    let app = router(&runtime, Access::operator());
    let refused = get(&app, "/v1/store").await.json();
    assert_eq!(refused["type"], "urn:millrun:problem:no-store");
    runtime.shutdown().await.unwrap();
}
