//! What activities send while they work, as a stream of events, resumed where a client has been last.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use millrun::{
    Activity, ActivityContext, ActivityError, OutputStream, Retry, Runtime, Signal, Workflow,
    WorkflowContext, WorkflowError,
};
use millrun_http::{Access, router};
use serde_json::{Value, json};

use crate::client::{Client, Received};
use crate::support::{get, send};

const TOKENS: OutputStream<String> = OutputStream::named("tokens");
const WRITE: Activity<String, ()> = Activity::named("write");
const GO: Signal<()> = Signal::named("go");
const ANSWER: Workflow<String, ()> = Workflow::named("answer");

/// Sends the words, and fails the first time.
async fn write(cx: ActivityContext, prompt: String) -> Result<(), ActivityError> {
    let tokens = cx.stream(TOKENS)?;
    for token in prompt.split(' ') {
        tokens.send(token)?;
    }
    match cx.attempt() {
        1 => Err(ActivityError::retryable("the model is overloaded")),
        _ => Ok(()),
    }
}

async fn answer(cx: WorkflowContext, prompt: String) -> Result<(), WorkflowError> {
    let retry = Retry::exponential().first_pause(std::time::Duration::from_millis(1));
    Ok(cx.call(WRITE, prompt).retry(retry).await?)
}

/// An event in few words.
fn told(received: &Received) -> (String, Value) {
    let kind = received.kind.clone().unwrap();
    let data = &received.data;
    let told = match &*kind {
        "message" => data["chunk"]["value"].clone(),
        "ended" => data["ended"].clone(),
        "began" => data["attempt"].clone(),
        _ => data.clone(),
    };
    (kind, told)
}

async fn rest(app: &Router, path: &str, last: Option<&str>) -> Vec<Received> {
    Client::connect(app, path, last).await.rest().await
}

#[tokio::test]
async fn a_client_follows_an_activity_and_its_retry_and_goes_on_where_it_was() {
    let builder = Runtime::volatile()
        .register(WRITE, write)
        .register(ANSWER, answer);
    let runtime = builder.start().await.unwrap();
    let app = router(&runtime, Access::read_only());
    let handle = runtime.start(ANSWER, "a", "so it".to_owned()).await.unwrap();
    let path = format!("/v1/runs/{}/streams/tokens", handle.run_id().unwrap());
    let all = rest(&app, &path, None).await;
    let expected = [
        ("began", json!(1)),
        ("message", json!("so")),
        ("message", json!("it")),
        ("ended", json!("failed")),
        ("began", json!(2)),
        ("message", json!("so")),
        ("message", json!("it")),
        ("ended", json!("succeeded")),
        ("end", json!({})),
    ];
    let expected = expected.map(|(kind, data)| (kind.to_owned(), data));
    assert_eq!(all.iter().map(told).collect::<Vec<_>>(), expected);
    assert_eq!(all[5].data["attempt"], 2);

    // Behind each of them it goes on with the next; when it has seen all there is nothing to come again for.
    for (at, seen) in all[..8].iter().enumerate() {
        let last = seen.id.as_deref();
        if at < 7 {
            assert_eq!(rest(&app, &path, last).await, all[at + 1..]);
            continue;
        }
        let request = Request::get(&path).header("last-event-id", last.unwrap());
        let answer = send(&app, request.body(Body::empty()).unwrap()).await;
        assert_eq!(answer.status, StatusCode::NO_CONTENT);
    }
    assert_eq!(rest(&app, &format!("{path}?limit=2"), None).await, all[..3]);

    // A position of another process tells of a gap that nobody can count.
    let gone = rest(&app, &path, Some("0000000000000007-2")).await;
    assert_eq!(told(&gone[0]), ("gap".to_owned(), json!({"lost": null})));
    assert_eq!(gone[1..], all);

    // Of a stream to which nothing was sent here, that is told once.
    let empty = path.replace("tokens", "others");
    let lost = rest(&app, &empty, Some("0000000000000007-2")).await;
    let kinds: Vec<_> = lost.iter().map(told).collect();
    assert_eq!(
        kinds,
        [
            ("gap".to_owned(), json!({"lost": null})),
            ("end".to_owned(), json!({}))
        ]
    );
    let request = Request::get(&empty).header("last-event-id", lost[0].id.as_deref().unwrap());
    let answer = send(&app, request.body(Body::empty()).unwrap()).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);

    let wrong = get(&app, &format!("{path}?after=2")).await;
    assert_eq!(wrong.code(), "invalid-query");
    let nobody = get(
        &app,
        &path.replace(&handle.run_id().unwrap().to_string(), &"0".repeat(32)),
    )
    .await;
    assert_eq!(nobody.code(), "not-found");
    runtime.shutdown().await.unwrap();
}

/// An attempt may outlive its run; its end is told when it comes.
#[tokio::test]
async fn a_client_that_comes_again_is_told_the_end_of_an_attempt_that_outlives_its_run() {
    const LEAVE: Workflow<(), ()> = Workflow::named("leave");
    let write = |cx: ActivityContext, prompt: String| async move {
        cx.stream(TOKENS)?.send(&prompt)?;
        std::future::pending().await
    };
    let leave = |cx: WorkflowContext, (): ()| async move {
        cx.race(cx.call(WRITE, "so".to_owned()), cx.receive(GO)).await;
        Ok(())
    };
    let builder = Runtime::volatile().register(WRITE, write).register(LEAVE, leave);
    let runtime = builder.start().await.unwrap();
    let app = router(&runtime, Access::read_only());
    let handle = runtime.start(LEAVE, "a", ()).await.unwrap();
    let path = format!("/v1/runs/{}/streams/tokens", handle.run_id().unwrap());
    let seen = rest(&app, &format!("{path}?limit=1"), None).await;
    handle.signal(GO, ()).await.unwrap();
    handle.result().await.unwrap();
    let ended = rest(&app, &path, seen[1].id.as_deref()).await;
    let expected = [("ended", json!("cancelled")), ("end", json!({}))];
    let expected = expected.map(|(kind, data)| (kind.to_owned(), data));
    assert_eq!(ended.iter().map(told).collect::<Vec<_>>(), expected);
}

/// Sends the words to a durable stream, and fails the first time.
async fn write_durably(cx: ActivityContext, prompt: String) -> Result<(), ActivityError> {
    let tokens = cx.durable_stream(TOKENS).await?;
    for token in prompt.split(' ') {
        tokens.send(token).await?;
    }
    match cx.attempt() {
        1 => Err(ActivityError::retryable("the model is overloaded")),
        _ => Ok(()),
    }
}

#[tokio::test]
async fn a_durable_stream_is_resumed_behind_its_last_event_in_the_next_process() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store.redb");
    let open = || {
        Runtime::open(&store)
            .register(WRITE, write_durably)
            .register(ANSWER, answer)
            .start()
    };
    let runtime = open().await.unwrap();
    let handle = runtime.start(ANSWER, "a", "so it".to_owned()).await.unwrap();
    let path = format!("/v1/runs/{}/streams/tokens", handle.run_id().unwrap());
    let app = router(&runtime, Access::read_only());
    let live = rest(&app, &path, None).await;
    let expected = [
        ("began", json!(1)),
        ("message", json!("so")),
        ("message", json!("it")),
        ("ended", json!("failed")),
        ("began", json!(2)),
        ("message", json!("so")),
        ("message", json!("it")),
        ("ended", json!("succeeded")),
        ("end", json!({})),
    ];
    let expected = expected.map(|(kind, data)| (kind.to_owned(), data));
    assert_eq!(live.iter().map(told).collect::<Vec<_>>(), expected);
    drop(app);
    runtime.shutdown().await.unwrap();

    let runtime = open().await.unwrap();
    let app = router(&runtime, Access::read_only());
    let ids: Vec<_> = live.iter().map(|received| received.id.clone()).collect();
    for (nth, id) in ids[..live.len() - 2].iter().enumerate() {
        let again = rest(&app, &path, id.as_deref()).await;
        let again: Vec<_> = again.iter().map(told).collect();
        assert_eq!(again, expected[nth + 1..], "behind event {nth}");
    }
    drop(app);
    runtime.shutdown().await.unwrap();
}
