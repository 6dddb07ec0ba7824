//! Entities over HTTP: commands, reads, deletions and lists of keys.

use std::fmt;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use millrun::builders::EntityCode;
use millrun::{Entity, EntityCommand, EntityContext, EntityState, Query, Runtime, TypedError};
use millrun_http::{Access, Role, router};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::support::{Answer, ORDER, get, order, send};

const TILL: Entity<Till> = Entity::named("till");
const PUT: EntityCommand<Till, u64, u64> = EntityCommand::named("put");
const TAKE: EntityCommand<Till, u64, u64, Empty> = EntityCommand::named("take");
const SUM: Query<Till, (), u64> = Query::named("sum");

#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Till(u64);

/// What is wanted of a till that has less.
#[derive(Debug, Serialize, Deserialize)]
struct Empty {
    left: u64,
}

impl fmt::Display for Empty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is left", self.left)
    }
}

impl TypedError for Empty {}

impl EntityState for Till {
    type Event = i64;

    fn begin(_key: &str) -> Self {
        Self::default()
    }

    fn apply(&mut self, change: i64) {
        self.0 = self.0.saturating_add_signed(change);
    }
}

/// A till that is put into and taken from.
pub(crate) fn till() -> EntityCode<Till> {
    TILL.command(PUT, |till, cents, cx: &mut EntityContext<'_, Till>| {
        cx.emit(cents.cast_signed());
        Ok(till.0 + cents)
    })
    .command(TAKE, |till, cents, cx| {
        let left = till.0.checked_sub(cents).ok_or(Empty { left: till.0 })?;
        cx.emit(-cents.cast_signed());
        Ok(left)
    })
    .query(SUM, |till, ()| till.0)
}

async fn tills() -> Runtime {
    let builder = Runtime::volatile().entity(till()).register(ORDER, order);
    builder.start().await.unwrap()
}

async fn post_with(app: &Router, path: &str, key: Option<&str>, body: Value) -> Answer {
    let mut request = Request::post(path).header("content-type", "application/json");
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    send(app, request.body(Body::from(body.to_string())).unwrap()).await
}

async fn post(app: &Router, path: &str, body: Value) -> Answer {
    post_with(app, path, None, body).await
}

async fn sum(app: &Router, key: &str) -> u64 {
    let read = post(
        app,
        &format!("/v1/entities/till/{key}/read"),
        json!({"name": "sum"}),
    )
    .await;
    read.json()["answer"]["value"].as_u64().unwrap()
}

#[tokio::test]
async fn a_command_is_performed_once_under_its_request_or_its_key() {
    let runtime = tills().await;
    let app = router(&runtime, Access::operator());
    assert_eq!(sum(&app, "ada").await, 0, "as it begins");
    assert_eq!(runtime.stats().started, 0, "a read begins nothing");
    let path = "/v1/entities/till/ada/command";
    for _ in 0..2 {
        let put = post(&app, path, json!({"name": "put", "input": 2, "request": "r-1"})).await;
        assert_eq!(put.json()["answer"]["value"], 2, "{}", put.text);
        let put = post_with(&app, path, Some("k-1"), json!({"name": "put", "input": 3})).await;
        assert_eq!(put.json()["answer"]["value"], 5, "{}", put.text);
    }
    // Under no request, and under the one that wins.
    post(&app, path, json!({"name": "put", "input": 10})).await;
    let put = post_with(
        &app,
        path,
        Some("k-2"),
        json!({"name": "put", "input": 10, "request": "r-1"}),
    );
    assert_eq!(put.await.json()["answer"]["value"], 2);
    assert_eq!(sum(&app, "ada").await, 15);
    assert_eq!(runtime.entity(TILL, "ada").read(SUM, ()).await.unwrap(), 15);
    // A key may have any bytes.
    let put = post(
        &app,
        "/v1/entities/till/a%2Fb%20%C3%BC/command",
        json!({"name": "put", "input": 1}),
    );
    assert_eq!(put.await.json()["answer"]["value"], 1);
    assert_eq!(runtime.entity(TILL, "a/b ü").read(SUM, ()).await.unwrap(), 1);
}

#[tokio::test]
async fn a_rejection_carries_its_value_and_changes_nothing() {
    let runtime = tills().await;
    let app = router(&runtime, Access::operator());
    let path = "/v1/entities/till/ada/command";
    let refused = post(&app, path, json!({"name": "take", "input": 1})).await;
    assert_eq!(
        (refused.status.as_u16(), refused.code().as_str()),
        (422, "rejected")
    );
    assert_eq!(refused.json()["error"]["value"], json!({"left": 0}));
    assert_eq!(runtime.stats().started, 0, "one that is rejected begins nothing");
    post(&app, path, json!({"name": "put", "input": 2})).await;
    let refused = post(&app, path, json!({"name": "take", "input": 3, "request": "r"})).await;
    assert_eq!(refused.json()["error"]["value"], json!({"left": 2}));
    // It is decided anew.
    post(&app, path, json!({"name": "put", "input": 1})).await;
    let taken = post(&app, path, json!({"name": "take", "input": 3, "request": "r"})).await;
    assert_eq!(taken.json()["answer"]["value"], 0, "{}", taken.text);
}

#[tokio::test]
async fn bad_input_gets_its_problem_and_begins_nothing() {
    let runtime = tills().await;
    let app = router(&runtime, Access::operator());
    let long = "k".repeat(255);
    let (ada, order, long) = (
        "/v1/entities/till/ada",
        "/v1/entities/order/o",
        format!("/v1/entities/till/{long}"),
    );
    for (path, body, expected) in [
        (
            "command",
            json!({"name": "put", "input": "much"}),
            (422, "wrong-type"),
        ),
        ("command", json!({"name": "burn", "input": 1}), (409, "refused")),
        ("command", json!({"input": 1}), (400, "invalid-body")),
        (
            "command",
            json!({"name": "put", "value": 1}),
            (400, "invalid-body"),
        ),
        (
            "command",
            json!({"name": "put", "input": 1, "request": ""}),
            (409, "refused"),
        ),
        ("read", json!({"name": "sums"}), (422, "unanswered")),
        ("read", json!({"name": "sum", "question": 7}), (422, "wrong-type")),
        ("delete", json!({"reason": "enough"}), (400, "invalid-body")),
    ] {
        let refused = post(&app, &format!("{ada}/{path}"), body).await;
        let told = (refused.status.as_u16(), refused.code());
        assert_eq!((told.0, told.1.as_str()), expected, "{path}: {}", refused.text);
    }
    for (path, expected) in [
        (order, "not-registered"),
        ("/v1/entities/tills/a", "not-registered"),
        (&long, "invalid-id"),
    ] {
        for (what, body) in [
            ("command", json!({"name": "put", "input": 1})),
            ("read", json!({"name": "sum"})),
            ("delete", json!({})),
        ] {
            let refused = post(&app, &format!("{path}/{what}"), body).await;
            assert_eq!(refused.code(), expected, "{what}: {}", refused.text);
        }
    }
    for (path, expected) in [
        ("/v1/entities/order", "not-registered"),
        ("/v1/entities/till?limit=0", "invalid-query"),
        ("/v1/entities/till?after=x", "invalid-query"),
        ("/v1/entities/till?id_prefix=x", "invalid-query"),
    ] {
        assert_eq!(get(&app, path).await.code(), expected, "{path}");
    }
    assert_eq!(runtime.stats().started, 0);
}

#[tokio::test]
async fn keys_are_listed_by_pages_until_they_are_deleted() {
    let runtime = tills().await;
    let app = router(&runtime, Access::operator());
    for key in ["eu-1", "eu-2", "us-1", "eu-3"] {
        let path = format!("/v1/entities/till/{key}/command");
        post(&app, &path, json!({"name": "put", "input": 1})).await;
    }
    runtime.start(ORDER, "till/eu-x", 1).await.unwrap();
    let (mut keys, mut next) = (Vec::new(), "?prefix=eu-&limit=1".to_owned());
    loop {
        let page = get(&app, &format!("/v1/entities/till{next}")).await.json();
        for entity in page["entities"].as_array().unwrap() {
            assert_eq!(entity["status"], "running");
            assert_eq!(entity["id"], format!("till/{}", entity["key"].as_str().unwrap()));
            keys.push(entity["key"].as_str().unwrap().to_owned());
        }
        match page["next"].as_str() {
            Some(link) => next = link.to_owned(),
            None => break,
        }
    }
    // Of those that began within one millisecond, any may be the first.
    keys.sort_unstable();
    assert_eq!(keys, ["eu-1", "eu-2", "eu-3"]);
    for expected in [true, false] {
        let deleted = post(&app, "/v1/entities/till/eu-2/delete", json!({})).await;
        assert_eq!(deleted.json()["deleted"], expected, "{}", deleted.text);
    }
    let page = get(&app, "/v1/entities/till?prefix=eu-").await.json();
    assert_eq!(page["entities"].as_array().unwrap().len(), 2);
    assert_eq!(sum(&app, "eu-2").await, 0, "as nobody has commanded it");
}

#[tokio::test]
async fn readers_read_and_list_and_operators_command_and_delete() {
    let runtime = tills().await;
    let app = router(&runtime, Access::by(|_| Role::Reader));
    for (what, body, is_allowed) in [
        ("read", json!({"name": "sum"}), true),
        ("command", json!({"name": "put", "input": 1}), false),
        ("delete", json!({}), false),
    ] {
        let answer = post(&app, &format!("/v1/entities/till/ada/{what}"), body).await;
        let expected = if is_allowed { 200 } else { 403 };
        assert_eq!(answer.status.as_u16(), expected, "{what}: {}", answer.text);
    }
    assert_eq!(get(&app, "/v1/entities/till").await.status.as_u16(), 200);
    let app = router(&runtime, Access::by(|_| Role::Anonymous));
    assert_eq!(get(&app, "/v1/entities/till").await.status.as_u16(), 403);
    assert_eq!(runtime.stats().started, 0);
}
