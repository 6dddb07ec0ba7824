//! No answer comes before its commit: what a killed program has answered is there in its next life.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use millrun::{Query, Runtime, RuntimeBuilder, Signal, Update, Workflow, WorkflowContext, WorkflowError};
use millrun_http::{Access, router};
use millrun_testkit::{SimConfig, SimHost};
use serde_json::{Value, json};

use crate::support::{Answer, get, send};

const TALLY: Workflow<u64, u64> = Workflow::named("tally");
const MORE: Signal<u64> = Signal::named("more");
const ADD: Update<u64, u64, u64> = Update::named("add");
const SUM: Query<u64, (), u64> = Query::named("sum");

/// How many instances there are, half of which begin in one batch.
const LEN: u64 = 6;

/// Adds up three signals.
async fn tally(cx: WorkflowContext, first: u64) -> Result<u64, WorkflowError> {
    let sum = cx.state(first);
    for _ in 0..3 {
        let more = cx.receive(MORE).await?;
        sum.change(|sum| *sum += more);
    }
    Ok(sum.read(|sum| *sum))
}

fn with_code(builder: RuntimeBuilder) -> RuntimeBuilder {
    let definition = TALLY.signal(MORE).query(SUM, |sum, ()| *sum).update(ADD);
    let definition = definition.change(|sum, number| {
        *sum += number;
        *sum
    });
    builder.register(definition, tally)
}

async fn post(app: &Router, path: &str, body: String) -> Answer {
    let request = Request::post(path).header("content-type", "application/json");
    send(app, request.body(Body::from(body)).unwrap()).await
}

/// A request, and what a program has answered it with, if it has.
struct Asked {
    path: String,
    body: Value,
    answered: Option<Value>,
}

/// All that is asked, in this order; none changes anything if it is asked once more.
fn requests() -> Vec<Asked> {
    let asked = |path: String, body| Asked {
        path,
        body,
        answered: None,
    };
    let ids = || (0..LEN).map(|number| format!("i-{number}"));
    let (alone, together): (Vec<_>, Vec<_>) = ids().partition(|id| id.as_str() < "i-3");
    let mut all: Vec<_> = alone
        .iter()
        .map(|id| {
            asked(
                format!("/v1/instances/{id}/start"),
                json!({"workflow": "tally", "input": 100}),
            )
        })
        .collect();
    let lines = together
        .iter()
        .map(|id| json!({"id": id, "workflow": "tally", "input": 100}));
    all.push(asked("/v1/starts".to_owned(), Value::Array(lines.collect())));
    for round in 0..3 {
        for id in ids() {
            let signal = json!({"name": "more", "request": format!("signal-{round}"), "value": 1});
            all.push(asked(format!("/v1/instances/{id}/signal"), signal));
            if round == 1 {
                let update = json!({"name": "add", "request": "update", "input": 10});
                all.push(asked(format!("/v1/instances/{id}/update"), update));
            }
        }
    }
    all
}

/// Asks one after the other, and notes each answer that says that it was done.
async fn ask_all(app: &Router, asked: &Mutex<Vec<Asked>>) {
    let len = asked.lock().unwrap().len();
    for at in 0..len {
        let (path, body) = {
            let asked = &asked.lock().unwrap()[at];
            let body = match &asked.body {
                Value::Array(lines) => lines.iter().map(|line| format!("{line}\n")).collect(),
                body => body.to_string(),
            };
            (asked.path.clone(), body)
        };
        let answer = match path.as_str() {
            "/v1/starts" => lines_answered(app, body).await,
            path => post(app, path, body).await,
        };
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text);
        let told = answer
            .text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        let told = Value::Array(told.collect());
        let mut asked = asked.lock().unwrap();
        if let Some(before) = &asked[at].answered {
            assert_eq!(*before, told, "{path}: asked once more, it is answered as before");
        }
        asked[at].answered = Some(told);
    }
}

async fn lines_answered(app: &Router, body: String) -> Answer {
    let request = Request::post("/v1/starts").header("content-type", "application/x-ndjson");
    send(app, request.body(Body::from(body)).unwrap()).await
}

/// Kills a program at one step after another of these requests. In its next life each answer still holds, and what is
/// asked once more is answered as before and done once.
#[test]
fn killed_at_any_step_a_program_keeps_what_it_has_answered() {
    /// Steps between two kills that are tried.
    const STRIDE: u64 = 7;
    let (mut kill_at, mut halfway) = (1, 0);
    loop {
        let folder = tempfile::tempdir().unwrap();
        let open = |world: &SimHost| {
            let builder = Runtime::open(folder.path().join("store.redb"));
            with_code(builder).host(world.host())
        };
        let asked = Arc::new(Mutex::new(requests()));
        let (has_begun, has_ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let world = SimHost::new(SimConfig::seeded(kill_at));
        let (noted, begun, ended, builder) = (
            Arc::clone(&asked),
            Arc::clone(&has_begun),
            Arc::clone(&has_ended),
            open(&world),
        );
        let script = async move {
            let runtime = builder.start().await.unwrap();
            begun.store(true, Ordering::SeqCst);
            ask_all(&router(&runtime, Access::operator()), &noted).await;
            ended.store(true, Ordering::SeqCst);
            std::future::pending::<()>().await;
        };
        let task = world.host().spawn("script", Box::pin(script));
        let mut left = kill_at;
        let _outcome = world.run_until(|| {
            left -= u64::from(has_begun.load(Ordering::SeqCst));
            left == 0 || has_ended.load(Ordering::SeqCst)
        });
        world.crash();
        drop(task);
        let all = requests().len();
        let done = asked
            .lock()
            .unwrap()
            .iter()
            .filter(|one| one.answered.is_some())
            .count();
        halfway += u32::from((1..all).contains(&done));

        let world = SimHost::new(SimConfig::seeded(kill_at + 1_000_000));
        let builder = open(&world);
        let noted = Arc::clone(&asked);
        let script = async move {
            let runtime = builder.start().await.unwrap();
            let app = router(&runtime, Access::operator());
            for id in (0..LEN).map(|number| format!("i-{number}")) {
                let sum = answered_sum(&noted.lock().unwrap(), &id);
                let told = get(&app, &format!("/v1/instances/{id}/result")).await;
                match (sum, told.status) {
                    (None, _) => {}
                    (Some(sum), StatusCode::OK) if told.json()["outcome"] == "running" => {
                        let found = runtime.attach(TALLY, &id).unwrap().query(SUM, ()).await.unwrap();
                        // The request under way when the program was killed may have been done.
                        assert!(
                            (sum..=sum + 10).contains(&found),
                            "kill at {kill_at}: {id}: {found} of {sum}"
                        );
                    }
                    (Some(_), StatusCode::OK) => assert_eq!(told.json()["result"]["value"], 113),
                    (Some(_), status) => panic!("kill at {kill_at}: {id} was answered and is {status}"),
                }
            }
            ask_all(&app, &noted).await;
            for id in (0..LEN).map(|number| format!("i-{number}")) {
                let told = get(&app, &format!("/v1/instances/{id}/result?wait_ms=60000"))
                    .await
                    .json();
                assert_eq!(told["result"]["value"], 113, "kill at {kill_at}: {id}: {told}");
            }
            assert_eq!(runtime.list_finished(None, 100).await.unwrap().len() as u64, LEN);
            runtime.shutdown().await.unwrap();
        };
        world.block_on(script).unwrap();
        if has_ended.load(Ordering::SeqCst) {
            break;
        }
        kill_at += STRIDE;
    }
    assert!(halfway > 20, "most kills came halfway: {halfway}");
}

/// What the answers say of an instance: the least that it has added up; `None` if none says that it has begun.
fn answered_sum(asked: &[Asked], id: &str) -> Option<u64> {
    let mut sum = None;
    for one in asked.iter().filter(|one| one.answered.is_some()) {
        let begins = one
            .body
            .as_array()
            .is_some_and(|lines| lines.iter().any(|line| line["id"] == id));
        let part = match one.path.strip_prefix(&format!("/v1/instances/{id}/")) {
            Some("start") => 100,
            Some("signal") => 1,
            Some("update") => 10,
            _ if begins => 100,
            _ => continue,
        };
        *sum.get_or_insert(0) += part;
    }
    sum
}
