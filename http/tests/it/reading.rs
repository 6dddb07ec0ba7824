//! What is read is what the typed calls say, and reading changes nothing.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use millrun::history::{ExportedHistory, Sequence};
use millrun::operating::{BulkAction, Wait, WaitsFor};
use millrun::{
    Activity, ActivityContext, ActivityError, Retry, Runtime, Workflow, WorkflowContext, WorkflowError,
};
use millrun_http::{Access, EXPORTS_LEN_MAX, router};
use tower::ServiceExt as _;

use crate::support::{Answer, ORDER, PAID, get, path_of, runtime, send};

/// Follows a link as a client does that resolves it against the address it has asked.
fn resolved(base: &str, link: &str) -> String {
    let base = base.split('?').next().unwrap();
    if link.starts_with('?') {
        return format!("{base}{link}");
    }
    let mut folders: Vec<_> = base.split('/').collect();
    folders.pop();
    for part in link.split('/') {
        match part {
            ".." => drop(folders.pop()),
            part => folders.push(part),
        }
    }
    folders.join("/")
}

#[tokio::test]
async fn a_run_and_its_history_are_told_under_any_prefix() {
    let runtime = runtime().await;
    let handle = runtime.start(ORDER, "a/b ü", 1_999).await.unwrap();
    handle.signal(PAID, 999).await.unwrap();
    assert_eq!(handle.result().await.unwrap(), 1_000);
    let described = handle.describe().await.unwrap();
    let recorded = runtime
        .history(described.run, Sequence::ZERO, 1_000)
        .await
        .unwrap();
    assert!(recorded.events.len() > 3);

    for prefix in ["", "/millrun", "/a/b"] {
        let inner = router(&runtime, Access::read_only());
        let app = match prefix {
            "" => inner,
            prefix => Router::new().nest(prefix, inner),
        };
        let at = format!("{prefix}/v1/instances/a%2Fb%20%C3%BC");
        let answer = get(&app, &at).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
        assert_eq!(answer.header("content-type"), "application/json");
        assert_eq!(answer.header("cache-control"), "no-store");
        let told = answer.json();
        assert_eq!(told["id"], "a/b ü");
        assert_eq!(told["run"], described.run.to_string());
        assert_eq!(told["workflow"], "order");
        assert_eq!(told["status"], "finished");
        assert_eq!(told["started_at_us"], described.started_at.as_micros());
        assert_eq!(told["sequence"], described.sequence.get());
        let by_run = get(&app, &format!("{prefix}/v1/runs/{}", described.run)).await;
        assert_eq!(by_run.json(), told);

        // By pages of two events, following the links.
        let mut at = resolved(&at, told["history"].as_str().unwrap());
        assert_eq!(
            get(&app, &at).await.json()["events"].as_array().unwrap().len(),
            recorded.events.len()
        );
        at.push_str("?limit=2");
        let mut events = Vec::new();
        loop {
            let page = get(&app, &at).await.json();
            let of_page = page["events"].as_array().unwrap();
            assert!(of_page.len() <= 2);
            events.extend(of_page.iter().cloned());
            match page["next"].as_str() {
                Some(next) => at = resolved(&at, next),
                None => break,
            }
        }
        assert_eq!(events.len(), recorded.events.len());
        for (event, recorded) in events.iter().zip(&recorded.events) {
            assert_eq!(event["sequence"], recorded.sequence.get());
            assert_eq!(event["at_us"], recorded.at.as_micros());
            assert_eq!(event["kind"], recorded.event.label());
        }
        assert_eq!(events[0]["input"]["value"], 1_999);
        assert_eq!(events.last().unwrap()["result"]["value"], 1_000);
    }
}

/// The state that a GET could change: counts of what was begun, loaded, decided, and the run's last event.
async fn state(runtime: &Runtime) -> (u64, u64, u64, u64) {
    let stats = runtime.stats();
    let run = runtime.attach(ORDER, "o").unwrap().describe().await.unwrap();
    (stats.started, stats.loads, stats.events, run.sequence.get())
}

#[tokio::test]
async fn no_get_changes_anything_and_what_a_run_waits_for_is_told() {
    let runtime = runtime().await;
    let handle = runtime.start(ORDER, "o", 5).await.unwrap();
    let waiting = handle.until_described(|run| run.awaits("paid")).await.unwrap();
    let bulk = runtime
        .bulk(BulkAction::Resume)
        .ids(["nobody"])
        .start("o")
        .await
        .unwrap();
    bulk.result().await.unwrap();
    let schedule = runtime.schedule("o", ORDER, 5).cron("0 0 29 2 *");
    schedule.await.unwrap();
    let app = router(&runtime, Access::operator());
    let before = state(&runtime).await;
    let reading = millrun_http::OPERATIONS.iter();
    // A tail and records need a topic, changes and output are waited for, and the runtime has no entity and no store.
    let others = [
        "tail",
        "records",
        "subscriptions",
        "trace_record",
        "entities",
        "changes",
        "output",
        "store",
    ];
    let reading = reading.filter(|operation| operation.method == "GET" && !others.contains(&operation.name));
    for operation in reading {
        let path = path_of(operation, "o", waiting.run);
        for method in ["GET", "HEAD"] {
            let request = Request::builder().method(method).uri(&path);
            let Answer { status, text, .. } = send(&app, request.body(Body::empty()).unwrap()).await;
            assert_eq!(status, StatusCode::OK, "{method} {path}: {text}");
            assert_eq!(text.is_empty(), method == "HEAD");
        }
    }
    assert_eq!(state(&runtime).await, before);
    let told = get(&app, "/v1/instances/o").await.json();
    assert_eq!(told["status"], "running");
    assert_eq!(
        (&told["awaited"][0]["kind"], &told["awaited"][0]["name"]),
        (&"signal".into(), &"paid".into())
    );
    handle.pause("look").await.unwrap();
    let told = get(&app, "/v1/instances/o").await.json();
    assert_eq!(
        (&told["status"], &told["parked"]["kind"]),
        (&"parked".into(), &"paused".into())
    );
}

#[tokio::test]
async fn why_a_run_does_not_go_on_is_told_as_the_typed_call_says_it() {
    const BOOK: Activity<(), ()> = Activity::named("book");
    const PARCEL: Workflow<(), ()> = Workflow::named("parcel");
    const SHOP: Workflow<(), ()> = Workflow::named("shop");
    async fn book(_cx: ActivityContext, (): ()) -> Result<(), ActivityError> {
        Err(ActivityError::retryable("the carrier does not answer"))
    }
    async fn parcel(cx: WorkflowContext, (): ()) -> Result<(), WorkflowError> {
        let retry = Retry::exponential()
            .first_pause(Duration::from_secs(3_600))
            .attempts(7);
        Ok(cx.call(BOOK, ()).retry(retry).await?)
    }
    async fn shop(cx: WorkflowContext, (): ()) -> Result<(), WorkflowError> {
        Ok(cx.child(PARCEL, "p", ()).await?)
    }
    let builder = Runtime::volatile().register(BOOK, book).register(PARCEL, parcel);
    let runtime = builder.register(SHOP, shop).start().await.unwrap();
    let run = runtime.start(SHOP, "s", ()).await.unwrap();
    let why = loop {
        let why = run.why().await.unwrap();
        match &why.leaves()[..] {
            [
                (
                    leaf,
                    Wait {
                        what: WaitsFor::Activity(wait),
                        ..
                    },
                ),
            ] if wait.last_error.is_some() => {
                assert_eq!(leaf.id.as_str(), "p");
                break why;
            }
            _ => tokio::task::yield_now().await,
        }
    };
    let app = router(&runtime, Access::read_only());
    let told = get(&app, "/v1/instances/s/why").await.json();
    assert_eq!((&told["id"], &told["status"]), (&"s".into(), &"running".into()));
    assert_eq!(told["run"], why.run.to_string());
    assert_eq!(told["waits"].as_array().unwrap().len(), 1);
    let child = &told["waits"][0];
    assert_eq!((&child["kind"], &child["id"]), (&"child".into(), &"p".into()));
    assert_eq!(child["why"]["waits"].as_array().unwrap().len(), 1);
    let call = &child["why"]["waits"][0];
    assert_eq!(
        (&call["kind"], &call["activity"]),
        (&"activity".into(), &"book".into())
    );
    assert_eq!((&call["attempt"], &call["attempts_max"]), (&2.into(), &7.into()));
    assert_eq!(call["standing"]["kind"], "backing-off");
    assert_eq!(call["last_error"], "the carrier does not answer");
    assert!(call["at"].as_str().unwrap().contains("reading.rs:"), "{call}");
    let text = told["text"].as_str().unwrap();
    assert!(text.contains(call["sentence"].as_str().unwrap()), "{text}");
    assert!(
        text.starts_with("s (shop) waits for the child p (parcel)"),
        "{text}"
    );
    assert_eq!(
        get(&app, "/v1/instances/nobody/why").await.status,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn lists_are_told_by_pages_that_lead_to_each_other() {
    let runtime = runtime().await;
    let ids = ["a", "b c", "b/d", "ü&after=x", "z"];
    for id in ids {
        let run = runtime.start(ORDER, id, 5).await.unwrap();
        if id != "z" {
            run.until_described(|run| run.awaits("paid")).await.unwrap();
        }
    }
    let app = Router::new().nest("/m", router(&runtime, Access::read_only()));
    let (mut at, mut told, mut pages) = ("/m/v1/instances?limit=2".to_owned(), Vec::new(), 0);
    loop {
        let page = get(&app, &at).await.json();
        pages += 1;
        for run in page["instances"].as_array().unwrap() {
            assert_eq!(run["workflow"], "order");
            let described = get(&app, &resolved(&at, run["instance"].as_str().unwrap()))
                .await
                .json();
            assert_eq!((&described["id"], &described["run"]), (&run["id"], &run["run"]));
            told.push(run["id"].as_str().unwrap().to_owned());
        }
        match page["next"].as_str() {
            Some(next) => at = resolved(&at, next),
            None => break,
        }
    }
    let mut sorted = ids;
    sorted.sort_unstable();
    assert_eq!((told, pages), (sorted.map(str::to_owned).to_vec(), 3));

    for id in ids {
        let run = runtime.attach(ORDER, id).unwrap();
        run.signal(PAID, 1).await.unwrap();
        run.result().await.unwrap();
    }
    let (mut at, mut told) = ("/m/v1/finished?limit=2".to_owned(), Vec::new());
    loop {
        let page = get(&app, &at).await.json();
        for run in page["runs"].as_array().unwrap() {
            let described = get(&app, &resolved(&at, run["description"].as_str().unwrap()))
                .await
                .json();
            assert_eq!(
                (&described["id"], &described["status"]),
                (&run["id"], &"finished".into())
            );
            assert_eq!(described["ended_at_us"], run["ended_at_us"]);
            told.push(run["id"].as_str().unwrap().to_owned());
        }
        match page["next"].as_str() {
            Some(next) => at = resolved(&at, next),
            None => break,
        }
    }
    assert_eq!(told, ids.map(str::to_owned), "in the order of their ends");
    assert_eq!(
        get(&app, "/m/v1/instances").await.json()["instances"],
        serde_json::json!([])
    );
    let stats = get(&app, "/m/v1/stats").await.json();
    assert_eq!((&stats["finished"], &stats["live"]), (&5.into(), &0.into()));
    let parts = get(&app, "/m/v1/parts").await.json();
    assert_eq!(parts["parts"].as_array().unwrap().len(), runtime.parts().len());
    let catalogue = get(&app, "/m/v1/catalogue").await.json();
    let order = serde_json::json!({
        "name": "order", "version": 0, "input": "u64", "result": "u64", "queries": [], "updates": [], "commands": [], "signals": []
    });
    assert_eq!(catalogue["workflows"], serde_json::json!([order]));
    assert_eq!(
        catalogue["activities"],
        serde_json::json!([{"name": "charge", "queue": "default"}])
    );
    let topology = get(&app, "/m/v1/topology").await.json();
    assert!(
        topology["topics"].to_string().contains("millrun.tasks.default"),
        "{topology}"
    );
    for (path, code) in [
        ("instances?after=", "invalid-id"),
        ("instances?limit=1001", "invalid-query"),
        ("finished?after=7", "invalid-id"),
    ] {
        assert_eq!(get(&app, &format!("/m/v1/{path}")).await.code(), code, "{path}");
    }
}

const ECHO: Workflow<(u64, f64), f64> = Workflow::named("echo");

async fn echo(_cx: WorkflowContext, (_, number): (u64, f64)) -> Result<f64, WorkflowError> {
    Ok(number)
}

#[tokio::test]
async fn payloads_are_exact_or_say_why_they_have_no_form_in_json() {
    let runtime = Runtime::volatile().register(ECHO, echo).start().await.unwrap();
    let app = router(&runtime, Access::read_only());
    for (id, number) in [("exact", 0.5), ("nan", f64::NAN)] {
        let run = runtime.start(ECHO, id, (u64::MAX, number)).await.unwrap();
        assert_eq!(run.result().await.unwrap().is_nan(), number.is_nan());
        let run = run.describe().await.unwrap().run;
        let history = get(&app, &format!("/v1/runs/{run}/history")).await;
        if number.is_nan() {
            let result = &history.json()["events"][1]["result"];
            assert!(result["unreadable"].as_str().unwrap().contains("NaN"), "{result}");
        } else {
            assert!(
                history
                    .text
                    .contains(r#""input":{"value":[18446744073709551615,0.5]}"#),
                "{}",
                history.text
            );
        }
    }
}

#[tokio::test]
async fn a_history_is_exported_as_the_file_that_a_test_replays_and_so_many_at_once() {
    let runtime = runtime().await;
    let handle = runtime.start(ORDER, "o", 5).await.unwrap();
    handle.until_described(|run| run.awaits("paid")).await.unwrap();
    let run = handle.run_id().unwrap();
    let app = router(&runtime, Access::read_only());
    let path = format!("/v1/runs/{run}/export");
    let answer = get(&app, &path).await;
    assert_eq!(answer.header("content-type"), "application/x-ndjson");
    let exported = runtime.export_history(run).await.unwrap();
    assert_eq!(answer.text, exported.to_string());
    assert_eq!(answer.text.parse::<ExportedHistory>().unwrap(), *exported);
    let unknown = get(&app, &format!("/v1/runs/{}/export", "0".repeat(32))).await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND, "{}", unknown.text);

    // Those that nobody reads on hold their places until they are given up.
    let ask = || {
        app.clone()
            .oneshot(Request::get(path.as_str()).body(Body::empty()).unwrap())
    };
    let mut open = Vec::new();
    for _ in 0..EXPORTS_LEN_MAX {
        open.push(ask().await.unwrap());
    }
    let refused = get(&app, &path).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.code(), "too-many-streams");
    open.pop();
    assert_eq!(get(&app, &path).await.status, StatusCode::OK);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_run_is_told_as_it_was_at_an_event() {
    const SUM: millrun::Query<u64, (), u64> = millrun::Query::named("sum");
    async fn sum(cx: WorkflowContext, begin: u64) -> Result<u64, WorkflowError> {
        let sum = cx.state(begin);
        let paid = cx.receive(PAID).await?;
        sum.change(|sum| *sum += paid);
        Ok(sum.read(|sum| *sum))
    }
    let builder = Runtime::volatile().register(ORDER.query(SUM, |sum, ()| *sum), sum);
    let runtime = builder.start().await.unwrap();
    let app = router(&runtime, Access::operator());
    let run = runtime.start(ORDER, "o", 1).await.unwrap();
    run.signal(PAID, 2).await.unwrap();
    run.result().await.unwrap();
    let run = run.run_id().unwrap();
    for path in ["/v1/instances/o".to_owned(), format!("/v1/runs/{run}")] {
        let told = get(&app, &format!("{path}?at=1")).await.json();
        assert_eq!(
            (told["status"].as_str(), told["sequence"].as_u64()),
            (Some("running"), Some(1))
        );
        assert_eq!(told["awaited"][0]["name"], "paid");
        assert_eq!(told["fit"]["kind"], "fits");
        let told = get(&app, &format!("{path}?at=3")).await.json();
        assert_eq!(told["status"], "finished");
        assert!(get(&app, &path).await.json().get("fit").is_none());
        let none = get(&app, &format!("{path}?at=4")).await;
        assert_eq!(
            (none.status, none.code()),
            (StatusCode::CONFLICT, "not-reset".to_owned())
        );
        let wrong = get(&app, &format!("{path}?at=first")).await;
        assert_eq!(wrong.code(), "invalid-query");
    }
    for (query, sum) in [("?at=1", 1), ("?at=2", 3), ("", 3)] {
        let body = Body::from(r#"{"name": "sum"}"#);
        let request = Request::post(format!("/v1/instances/o/query{query}"))
            .header("content-type", "application/json")
            .body(body);
        let answer = send(&app, request.unwrap()).await;
        assert_eq!(answer.json()["answer"]["value"], sum, "{}", answer.text);
    }
    runtime.shutdown().await.unwrap();
}
