//! The OpenAPI document is that of the code: it is committed, served, and what routes answer is as it says.

use std::collections::BTreeSet;
use std::path::Path;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request};
use millrun::{
    DurableTopic, Query, Runtime, Signal, Topic, Update, Workflow, WorkflowContext, WorkflowError,
};
use millrun_http::{Access, Console, OPERATIONS, openapi_json};
use serde_json::{Value, json};

use crate::entities::till;
use crate::support::{Answer, CHARGE, ORDER, get, path_of, send};

const SUM: Workflow<u64, u64> = Workflow::named("sum");
const ADD: Update<u64, u64, u64> = Update::named("add");
const TOTAL: Query<u64, (), u64> = Query::named("total");
const END: Signal<u64> = Signal::named("end");
const PRICES: Topic<u64> = Topic::named("shop.prices");
const PLACED: DurableTopic<u64> = Topic::named("orders.placed").durable();

async fn sum(cx: WorkflowContext, first: u64) -> Result<u64, WorkflowError> {
    let sum = cx.state(first);
    let last = cx.receive(END).await?;
    Ok(sum.read(|sum| *sum) + last)
}

#[test]
fn the_document_that_is_committed_is_that_of_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
    if std::env::var_os("MILLRUN_WRITE").is_some() {
        std::fs::write(&path, openapi_json()).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == openapi_json(),
        "http/openapi.json is of another table of operations. Write it anew, and look at what has changed:\n\
         MILLRUN_WRITE=1 cargo test -p millrun-http --test it -- openapi::the_document"
    );
}

/// A value, and the schema that it should be of.
struct Check<'a> {
    document: &'a Value,
    at: String,
}

impl Check<'_> {
    fn value(&self, schema: &Value, value: &Value) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("{}: {what}: {value} is not of {schema}", self.at));
        if let Some(reference) = schema["$ref"].as_str() {
            let pointer = reference.strip_prefix('#').unwrap();
            return self.value(self.document.pointer(pointer).unwrap(), value);
        }
        if let Some(any) = schema["anyOf"].as_array() {
            let fits = any.iter().any(|one| self.value(one, value).is_ok());
            return if fits { Ok(()) } else { wrong("none fits") };
        }
        if schema["enum"]
            .as_array()
            .is_some_and(|words| !words.contains(value))
        {
            return wrong("no such word");
        }
        match schema["type"].as_str() {
            None => Ok(()),
            Some("null") if value.is_null() => Ok(()),
            Some("boolean") if value.is_boolean() => Ok(()),
            Some("integer") if value.is_u64() => Ok(()),
            Some("string") if value.is_string() => match schema["pattern"].as_str() {
                None => Ok(()),
                Some("^0[0-3][0-9a-f]{30}$") if value.as_str().unwrap().len() == 32 => Ok(()),
                Some("^[A-Za-z0-9+/]{28}$") if value.as_str().unwrap().len() == 28 => Ok(()),
                Some(_) => wrong("no such text"),
            },
            Some("array") if value.is_array() => value
                .as_array()
                .unwrap()
                .iter()
                .try_for_each(|item| self.value(&schema["items"], item)),
            Some("object") if value.is_object() => {
                let fields = value.as_object().unwrap();
                for needed in schema["required"].as_array().into_iter().flatten() {
                    if !fields.contains_key(needed.as_str().unwrap()) {
                        return wrong(&format!("{needed} is missing"));
                    }
                }
                for (name, field) in fields {
                    match schema["properties"].get(name) {
                        Some(schema) => self.value(schema, field)?,
                        None if schema["additionalProperties"] == true => {}
                        None => return wrong(&format!("{name} is not known")),
                    }
                }
                Ok(())
            }
            Some(_) => wrong("another type"),
        }
    }
}

/// Checks an answer against what the document says of its operation.
fn check(document: &Value, operation: &str, answer: &Answer) {
    let operation = OPERATIONS.iter().find(|one| one.name == operation).unwrap();
    let described =
        &document["paths"][format!("/{}", operation.path)][operation.method.as_str().to_lowercase()];
    assert_eq!(described["operationId"], operation.name);
    let responses = &described["responses"];
    let status = answer.status.as_str();
    let mut response = responses.get(status).unwrap_or(&responses["default"]);
    if let Some(reference) = response["$ref"].as_str() {
        response = document.pointer(reference.strip_prefix('#').unwrap()).unwrap();
    }
    let contents = response["content"].as_object().unwrap();
    let media_type = answer.header("content-type");
    let content = contents.get(media_type);
    let content = content.unwrap_or_else(|| panic!("{}: {media_type} {}", operation.name, answer.text));
    if media_type.contains("json") && !media_type.contains("ndjson") {
        let at = format!("{} {status}", operation.name);
        let checked = Check { document, at }.value(&content["schema"], &answer.json());
        assert_eq!(checked, Ok(()));
    }
}

async fn post(app: &Router, path: &str, media_type: &str, body: String) -> Answer {
    let request = Request::post(path).header("content-type", media_type);
    send(app, request.body(Body::from(body)).unwrap()).await
}

#[tokio::test]
async fn what_routes_answer_is_as_the_document_says() {
    let answering = SUM
        .query(TOTAL, |sum, ()| *sum)
        .update(ADD)
        .change(|sum, number| {
            *sum += number;
            *sum
        });
    let folder = tempfile::tempdir().unwrap();
    let builder = Runtime::open(folder.path().join("app.redb"))
        .register(answering, sum)
        .register(CHARGE, crate::support::charge);
    let runtime = builder
        .register(ORDER, crate::support::order)
        .entity(till())
        .topic(PRICES)
        .durable_topic(PLACED)
        .start()
        .await
        .unwrap();
    let app = Console::new(&runtime, Access::operator())
        .keep_past()
        .expose(PRICES)
        .unwrap()
        .expose_durable(PLACED)
        .unwrap()
        .router();
    let document = get(&app, "/v1/openapi.json").await.json();
    assert_eq!(document, serde_json::from_str::<Value>(&openapi_json()).unwrap());

    let placed = runtime.durable_topic(PLACED).unwrap();
    let _billing = placed.subscribe("billing").await.unwrap();
    let order = runtime.start(ORDER, "o", 5).await.unwrap();
    order.until_described(|run| run.awaits("paid")).await.unwrap();
    runtime.start(SUM, "s", 1).await.unwrap();
    let mut asked = BTreeSet::new();
    for (operation, path, body) in [
        ("session", "v1/session", json!({})),
        ("verify_store", "v1/store/verify", json!({})),
        ("backup_store", "v1/store/backup", json!({"name": "a"})),
        ("backup_store", "v1/store/backup", json!({"name": "a"})),
        ("export_store", "v1/store/export", json!({"name": "a"})),
        ("compact_store", "v1/store/compact", json!({})),
        ("query", "v1/instances/s/query", json!({"name": "total"})),
        ("query", "v1/instances/s/query", json!({"name": "none"})),
        ("publish", "v1/topics/shop.prices/publish", json!({"value": 7})),
        (
            "publish",
            "v1/topics/orders.placed/publish",
            json!({"value": 7, "key": "k", "id": "i", "correlation": "c", "content_type": "text/plain"}),
        ),
        ("read_entity", "v1/entities/till/a/read", json!({"name": "sum"})),
        (
            "command",
            "v1/entities/till/a/command",
            json!({"name": "put", "input": 1, "request": "r"}),
        ),
        (
            "command",
            "v1/entities/till/a/command",
            json!({"name": "take", "input": 7}),
        ),
        (
            "start",
            "v1/instances/a/start",
            json!({"workflow": "sum", "input": 1}),
        ),
        (
            "start_by_key",
            "v1/start",
            json!({"id": "b", "workflow": "sum", "input": 1}),
        ),
        (
            "starts",
            "v1/starts",
            json!({"id": "c", "workflow": "sum", "input": 1}),
        ),
        (
            "signal",
            "v1/instances/a/signal",
            json!({"name": "end", "value": 1}),
        ),
        (
            "update",
            "v1/instances/s/update",
            json!({"name": "add", "request": "r", "input": 1}),
        ),
        ("pause", "v1/instances/s/pause", json!({"reason": "lunch"})),
        ("resume", "v1/instances/s/resume", json!({})),
        ("cancel", "v1/instances/b/cancel", json!({"reason": "enough"})),
        (
            "terminate",
            "v1/instances/c/terminate",
            json!({"reason": "enough"}),
        ),
        (
            "terminate",
            "v1/instances/nobody/terminate",
            json!({"reason": "enough"}),
        ),
        ("terminate", "v1/instances/s/terminate", json!({})),
        (
            "reset",
            "v1/instances/c/reset",
            json!({"to_event": 1, "keep_signals": true, "reason": "enough"}),
        ),
        ("reset", "v1/instances/c/reset", json!({"to_event": 7})),
        (
            "start_bulk",
            "v1/bulk",
            json!({"action": "resume", "filter": {"status": ["parked"]}, "dry_run": true}),
        ),
        (
            "start_bulk",
            "v1/bulk",
            json!({"action": "signal", "signal": "end", "value": 1, "ids": ["nobody"], "name": "o"}),
        ),
        ("start_bulk", "v1/bulk", json!({"action": "resume"})),
        ("stop_bulk", "v1/bulk/s/stop", json!({"reason": "enough"})),
        (
            "make_schedule",
            "v1/schedules/o",
            json!({"workflow": "sum", "input": 1, "cron": ["0 2 * * *"], "zone": "Europe/Berlin", "overlap": "skip"}),
        ),
        (
            "make_schedule",
            "v1/schedules/o",
            json!({"workflow": "sum", "input": 1, "cron": ["0 3 * * *"]}),
        ),
        (
            "update_schedule",
            "v1/schedules/o/update",
            json!({"workflow": "sum", "input": 1, "every": [{"every_s": 86_400, "phase_s": 7}], "jitter_s": 5}),
        ),
        (
            "update_schedule",
            "v1/schedules/o/update",
            json!({"workflow": "sum", "input": 1, "cron": ["@reboot"]}),
        ),
        ("trigger_schedule", "v1/schedules/o/trigger", json!({})),
        (
            "backfill_schedule",
            "v1/schedules/o/backfill",
            json!({"from_us": 1, "through_us": 2, "overlap": "allow"}),
        ),
        ("pause_schedule", "v1/schedules/o/pause", json!({"note": "lunch"})),
        ("resume_schedule", "v1/schedules/o/resume", json!({"note": ""})),
        ("pause_schedule", "v1/schedules/nobody/pause", json!({"note": ""})),
    ] {
        let media_type = match operation {
            "starts" => "application/x-ndjson",
            _ => "application/json",
        };
        let answer = post(&app, &format!("/{path}"), media_type, body.to_string()).await;
        check(&document, operation, &answer);
        asked.insert(operation);
    }
    runtime.attach_untyped("a").unwrap().result().await.unwrap();
    for id in ["o", "s", "a", "nobody"] {
        let described = runtime.attach_untyped(id).unwrap().describe().await;
        let run = described.map_or(millrun::RunId::from_bits(1).unwrap(), |described| described.run);
        for operation in OPERATIONS
            .iter()
            .filter(|operation| operation.method == Method::GET)
        {
            let path = path_of(operation, id, run);
            let answer = match operation.name {
                // It would wait for a message.
                "tail" => get(&app, "/v1/topics/nothing/tail").await,
                "entities" if id == "o" => get(&app, "/v1/entities/till").await,
                "records" if id == "o" => get(&app, "/v1/topics/orders.placed/records").await,
                "trace_record" if id == "o" => get(&app, "/v1/topics/orders.placed/trace?id=i").await,
                "subscriptions" if id == "o" => get(&app, "/v1/topics/orders.placed/subscriptions").await,
                _ => get(&app, &path).await,
            };
            check(&document, operation.name, &answer);
            asked.insert(operation.name);
        }
    }
    for (operation, what, body) in [
        ("send_back", "send_back", json!({})),
        ("send_back", "send_back", json!({"token": "x"})),
        (
            "release_key",
            "release_key",
            json!({"subscription": "billing", "key": "k"}),
        ),
        (
            "release_key",
            "release_key",
            json!({"subscription": "nobody", "key": "k"}),
        ),
        ("delete_entity", "delete", json!({})),
        ("purge_topic", "purge", json!({"before": 1})),
        ("purge_topic", "purge", json!({"before": "x"})),
        (
            "remove_subscription",
            "remove_subscription",
            json!({"name": "billing"}),
        ),
        (
            "remove_subscription",
            "remove_subscription",
            json!({"name": "billing"}),
        ),
        ("delete_topic", "delete", json!({})),
        ("delete_topic", "delete", json!({})),
        ("delete_schedule", "delete", json!({})),
    ] {
        let path = match operation {
            "delete_schedule" => "/v1/schedules/o/delete".to_owned(),
            "delete_entity" => "/v1/entities/till/a/delete".to_owned(),
            _ => format!("/v1/topics/orders.placed/{what}"),
        };
        let answer = post(&app, &path, "application/json", body.to_string()).await;
        check(&document, operation, &answer);
        asked.insert(operation);
    }
    let all: BTreeSet<_> = OPERATIONS.iter().map(|operation| operation.name).collect();
    assert_eq!(asked, all, "each operation is looked at");
}
