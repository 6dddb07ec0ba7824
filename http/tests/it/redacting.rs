//! Fields that are hidden are in no answer and no stream, and everything else is.

use std::collections::BTreeMap;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request};
use millrun::{
    Activity, ActivityContext, ActivityError, OutputStream, Query, Runtime, Signal, Topic, Workflow,
    WorkflowContext, WorkflowError,
};
use millrun_http::{Access, Console, OPERATIONS, Redaction};
use serde_json::json;

use crate::client::Client;
use crate::support::{get, send};

/// A value with something to hide.
type Card = BTreeMap<String, String>;

const SECRET: &str = "4111-1111";
const PAY: Workflow<Card, Card> = Workflow::named("pay");
const CHARGE: Activity<Card, Card> = Activity::named("charge");
const CARD: Query<Card, (), Card> = Query::named("card");
const CARDS: Signal<Card> = Signal::named("cards");
const OUTPUT: OutputStream<Card> = OutputStream::named("cards");
const TOPIC: Topic<Card> = Topic::named("shop.cards");

fn card() -> Card {
    [("number", SECRET), ("name", "ada")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

async fn charge(cx: ActivityContext, card: Card) -> Result<Card, ActivityError> {
    cx.heartbeat(&card).ok();
    let output = cx
        .stream(OUTPUT)
        .map_err(|error| ActivityError::fatal(error.to_string()))?;
    output
        .send(&card)
        .map_err(|error| ActivityError::fatal(error.to_string()))?;
    Ok(card)
}

async fn pay(cx: WorkflowContext, card: Card) -> Result<Card, WorkflowError> {
    let state = cx.state(card.clone());
    cx.call(CHARGE, card).await?;
    let last = cx.receive(CARDS).await?;
    state.change(|state| state.clone_from(&last));
    Ok(last)
}

async fn post(app: &Router, path: &str, body: serde_json::Value) -> String {
    let request = Request::post(path).header("content-type", "application/json");
    send(app, request.body(Body::from(body.to_string())).unwrap())
        .await
        .text
}

/// All that this router tells of a run.
async fn all_that_is_told(runtime: &Runtime, console: Console) -> String {
    let app = console.expose(TOPIC).unwrap().router();
    let mut told = post(
        &app,
        "/v1/instances/p/start",
        json!({"workflow": "pay", "input": card()}),
    )
    .await;
    let mut tail = Client::connect(&app, "/v1/topics/shop.cards/tail?limit=1", None).await;
    told += &post(&app, "/v1/topics/shop.cards/publish", json!({"value": card()})).await;
    told += &format!("{:?}", tail.next().await);
    told += &post(&app, "/v1/instances/p/query", json!({"name": "card"})).await;
    post(
        &app,
        "/v1/instances/p/signal",
        json!({"name": "cards", "value": card()}),
    )
    .await;
    runtime.attach(PAY, "p").unwrap().result().await.unwrap();
    let run = runtime.attach_untyped("p").unwrap().describe().await.unwrap().run;
    let streams = ["events", "output", "tail", "changes"];
    let mut readings = 0;
    for operation in OPERATIONS
        .iter()
        .filter(|operation| operation.method == Method::GET)
    {
        if streams.contains(&operation.name) {
            continue;
        }
        let path = operation
            .path
            .replace("{id}", "p")
            .replace("{run}", &run.to_string());
        told += &get(&app, &format!("/{path}")).await.text;
        readings += 1;
    }
    assert!(readings > 10);
    let events = Client::connect(&app, &format!("/v1/runs/{run}/events"), None)
        .await
        .rest()
        .await;
    let output = Client::connect(&app, &format!("/v1/runs/{run}/streams/cards"), None)
        .await
        .rest()
        .await;
    assert_eq!(
        output.len(),
        4,
        "its beginning, a card, its end, and that of the run"
    );
    told + &format!("{events:?}{output:?}")
}

async fn runtime() -> Runtime {
    let builder = Runtime::volatile()
        .register(PAY.query(CARD, |card, ()| card.clone()), pay)
        .register(CHARGE, charge)
        .topic(TOPIC);
    builder.start().await.unwrap()
}

#[tokio::test]
async fn what_is_hidden_is_told_nowhere() {
    let runtime = runtime().await;
    let console = Console::new(&runtime, Access::operator());
    let hiding = console.redact(Redaction::of(["number"]).unwrap());
    let told = all_that_is_told(&runtime, hiding).await;
    assert!(!told.contains(SECRET), "{told}");
    assert!(told.contains("ada"), "{told}");
    assert!(told.contains("(redacted)"), "{told}");
    // Nothing of it is lost: it is there for the code, and in the history.
    assert_eq!(runtime.attach(PAY, "p").unwrap().result().await.unwrap(), card());
}

#[tokio::test]
async fn what_is_not_hidden_is_told_as_it_is() {
    let runtime = runtime().await;
    let told = all_that_is_told(&runtime, Console::new(&runtime, Access::operator())).await;
    assert!(told.contains(SECRET), "{told}");
    assert!(!told.contains("(redacted)"), "{told}");
}
