//! A run as a stream of events: what is durable, when it is, and resumed where a client has been last.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use millrun::history::Sequence;
use millrun::{RunId, Runtime, RuntimeBuilder, Signal, Workflow, WorkflowContext, WorkflowError};
use millrun_http::{Access, router};
use millrun_testkit::{SimConfig, SimHost};
use tower::ServiceExt as _;

use crate::client::Client;
use crate::support::get;

const SUM: Workflow<u64, u64> = Workflow::named("sum");
const ADD: Signal<u64> = Signal::named("add");

/// Adds up what it is told until that is nothing; after each ten it begins again from the sum.
async fn sum(cx: WorkflowContext, first: u64) -> Result<u64, WorkflowError> {
    let mut sum = cx.checkpointed().transpose()?.unwrap_or(first);
    for _ in 0..10 {
        match cx.receive(ADD).await? {
            0 => return Ok(sum),
            number => sum += number,
        }
    }
    Ok(cx.checkpoint(&sum).await?)
}

fn code(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder.register(SUM, sum)
}

fn path_of(run: RunId) -> String {
    format!("/v1/runs/{run}/events")
}

#[tokio::test]
async fn a_stream_has_the_events_of_the_history_as_they_come_and_ends_with_the_run() {
    let runtime = code(Runtime::volatile()).start().await.unwrap();
    let app = router(&runtime, Access::read_only());
    let handle = runtime.start(SUM, "s", 7).await.unwrap();
    let run = handle.run_id().unwrap();
    let mut client = Client::connect(&app, &path_of(run), None).await;
    assert_eq!(client.next().await.unwrap().data["kind"], "Started");
    for number in [1, 2] {
        handle.signal(ADD, number).await.unwrap();
        let received = client.next().await.unwrap();
        assert_eq!(received.data["kind"], "SignalReceived");
        assert_eq!(received.data["value"]["value"], number);
    }
    handle.signal(ADD, 0).await.unwrap();
    let rest = client.rest().await;
    let kinds: Vec<_> = rest
        .iter()
        .map(|received| received.kind.as_deref().unwrap())
        .collect();
    assert_eq!(kinds, ["message", "message", "end"]);
    assert_eq!(rest[1].data["kind"], "Completed");

    let history = get(&app, &format!("/v1/runs/{run}/history")).await.json();
    let whole = Client::connect(&app, &path_of(run), None).await.rest().await;
    let (end, events) = whole.split_last().unwrap();
    assert_eq!(end.kind.as_deref(), Some("end"));
    let events: Vec<_> = events.iter().map(|received| &received.data).collect();
    assert_eq!(
        events,
        history["events"].as_array().unwrap().iter().collect::<Vec<_>>()
    );
    assert!(
        whole[..whole.len() - 1].iter().all(|received| {
            received.id.as_deref() == Some(received.data["sequence"].to_string().as_str())
        })
    );

    // A client that comes again goes on behind what it has seen, whatever its query says.
    for at in 0..=events.len() {
        let path = format!("{}?after=1", path_of(run));
        if at == events.len() {
            let request = Request::get(&path).header("last-event-id", at.to_string());
            let answer = app
                .clone()
                .oneshot(request.body(Body::empty()).unwrap())
                .await
                .unwrap();
            assert_eq!(
                answer.status(),
                StatusCode::NO_CONTENT,
                "there is nothing to come again for"
            );
            continue;
        }
        let resumed = Client::connect(&app, &path, Some(&at.to_string()))
            .await
            .rest()
            .await;
        assert_eq!(resumed, whole[at..]);
    }
    let some = Client::connect(&app, &format!("{}?after=1&limit=2", path_of(run)), None)
        .await
        .rest()
        .await;
    assert_eq!(some, whole[1..3]);
}

#[tokio::test]
async fn what_a_run_was_trimmed_of_is_told_as_a_gap() {
    let builder = code(Runtime::volatile()).configure(|config| config.limits.kept_beginning_every = 16);
    let runtime = builder.start().await.unwrap();
    let app = router(&runtime, Access::read_only());
    let handle = runtime.start(SUM, "s", 0).await.unwrap();
    for _ in 0..100 {
        handle.signal(ADD, 1).await.unwrap();
    }
    handle.terminate("enough").await.unwrap();
    let run = handle.run_id().unwrap();
    let first = runtime
        .history(run, Sequence::new(3), 1)
        .await
        .unwrap()
        .trimmed_before
        .unwrap();
    let all = Client::connect(&app, &format!("{}?after=3", path_of(run)), None)
        .await
        .rest()
        .await;
    assert_eq!(all[0].kind.as_deref(), Some("gap"));
    assert_eq!(all[0].data["lost"], first.get() - 4);
    assert_eq!(all[1].id, Some(first.to_string()));
    assert_eq!(
        all.iter()
            .filter(|received| received.kind.as_deref() == Some("gap"))
            .count(),
        1
    );
    let head = runtime.history(run, first, 1).await.unwrap().head;
    assert_eq!(all[all.len() - 2].id, Some(head.to_string()));
    let gapless = all[1..all.len() - 1]
        .iter()
        .map(|received| received.data["sequence"].as_u64().unwrap());
    assert_eq!(
        gapless.collect::<Vec<_>>(),
        (first.get()..=head.get()).collect::<Vec<_>>()
    );
}

#[test]
fn a_silent_stream_says_now_and_then_that_it_is_there_and_does_nothing_else() {
    let world = SimHost::new(SimConfig::seeded(3));
    let builder = code(Runtime::volatile()).host(world.host());
    world
        .block_on(async {
            let runtime = builder.start().await.unwrap();
            let app = router(&runtime, Access::read_only());
            let handle = runtime.start(SUM, "s", 7).await.unwrap();
            let path = format!("{}?after=1", path_of(handle.run_id().unwrap()));
            let mut client = Client::connect(&app, &path, None).await;
            let before = world.now();
            for beats in 1..=3 {
                assert_eq!(client.next().await.unwrap().kind, None);
                assert_eq!(
                    world.now().saturating_since(before),
                    Duration::from_secs(15) * beats
                );
            }
            let tells = async {
                runtime
                    .host()
                    .sleep_until(world.now() + Duration::from_secs(1))
                    .await;
                handle.signal(ADD, 1).await.unwrap();
            };
            let (received, ()) = futures_util::join!(client.next(), tells);
            assert_eq!(received.unwrap().data["kind"], "SignalReceived");
            assert_eq!(world.now().saturating_since(before), Duration::from_secs(46));
        })
        .unwrap();
}

#[tokio::test]
async fn a_stream_is_told_that_the_runtime_stops_and_what_is_wrong_is_told_before_it_begins() {
    let runtime = code(Runtime::volatile()).start().await.unwrap();
    let app = router(&runtime, Access::read_only());
    let run = runtime.start(SUM, "s", 7).await.unwrap().run_id().unwrap();
    for (path, code) in [
        (path_of(RunId::from_bits(1).unwrap()), "not-found"),
        ("/v1/runs/7/events".to_owned(), "invalid-id"),
        (format!("{}?limit=0", path_of(run)), "invalid-query"),
        (format!("{}?after=x", path_of(run)), "invalid-query"),
    ] {
        assert_eq!(get(&app, &path).await.code(), code, "{path}");
    }
    let mut client = Client::connect(&app, &path_of(run), None).await;
    client.next().await.unwrap();
    let stops = async {
        tokio::task::yield_now().await;
        runtime.shutdown().await.unwrap();
    };
    let (rest, ()) = tokio::join!(client.rest(), stops);
    let [told] = rest.as_slice() else {
        panic!("{rest:?}")
    };
    assert_eq!(told.kind.as_deref(), Some("problem"));
    assert_eq!(
        (&told.data["type"], &told.data["retry"]),
        (&"urn:millrun:problem:stopped".into(), &true.into())
    );
}
