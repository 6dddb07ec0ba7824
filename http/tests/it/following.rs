//! What led to what, over HTTP: each link has the address of what to trace next, and is told page by page.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::Router;
use millrun::topics::{DurableTrigger, RecordToken};
use millrun::{DurableTopic, Runtime, Topic, Workflow, WorkflowContext, WorkflowError};
use millrun_http::{Access, Console};
use serde_json::{Value, json};

use crate::support::get;

const PLACED: DurableTopic<u64> = Topic::named("orders.placed").durable();
/// What it carries is not exposed.
const HIDDEN: DurableTopic<String> = Topic::named("hidden/cards").durable().len_max(100);
const PRICES: Topic<u64> = Topic::named("shop.prices");
const SELL: Workflow<u64, u64> = Workflow::named("sell");
const SECRET: &str = "4111-1111";

async fn sell(cx: WorkflowContext, order: u64) -> Result<u64, WorkflowError> {
    cx.sleep(Duration::from_micros(1)).await?;
    cx.publish(HIDDEN, SECRET.to_owned()).await?;
    Ok(order)
}

/// A record that has started a run, which has published a record of which nothing is shown.
struct Followed {
    runtime: Runtime,
    app: Router,
    placed: RecordToken,
    run: String,
    _trigger: DurableTrigger,
}

async fn followed() -> Followed {
    let builder = Runtime::volatile().register(SELL, sell).topic(PRICES);
    let builder = builder.durable_topic(PLACED).durable_topic(HIDDEN);
    let runtime = builder.start().await.unwrap();
    let topic = runtime.durable_topic(PLACED).unwrap();
    let trigger = topic.trigger("selling").start(SELL, |record| {
        (format!("sell/{}", record.payload()), *record.payload())
    });
    let trigger = trigger.await.unwrap();
    let placed = topic.publish(&7).key("order-7").id("order-7");
    let placed = placed.correlation("cart-7").await.unwrap().token();
    while trigger.handled() == 0 {
        tokio::task::yield_now().await;
    }
    let run = runtime.attach(SELL, "sell/7").unwrap();
    run.result().await.unwrap();
    let console = Console::new(&runtime, Access::read_only());
    let app = console.expose(PRICES).unwrap().expose_durable(PLACED).unwrap();
    Followed {
        app: app.router(),
        placed,
        run: run.describe().await.unwrap().run.to_string(),
        _trigger: trigger,
        runtime,
    }
}

fn encoded(token: RecordToken) -> String {
    token.to_string().replace('+', "%2B").replace('/', "%2F")
}

/// What a link leads to, for each link.
fn ends(links: &Value) -> Vec<Value> {
    let links = links.as_array().unwrap().iter();
    links
        .map(|link| link["to"].clone())
        .filter(|to| !to.is_null())
        .collect()
}

/// All that is reached in one direction by the addresses that links have.
async fn walked(app: &Router, from: &str, direction: &str) -> BTreeSet<String> {
    let (mut line, mut reached) = (vec![from.to_owned()], BTreeSet::new());
    while let Some(address) = line.pop() {
        let page = get(app, &format!("/v1/{address}")).await.json();
        let of = page["of"]["trace"].as_str().unwrap().to_owned();
        if reached.insert(of) {
            let next = ends(&page[direction]).into_iter();
            line.extend(next.map(|to| to["trace"].as_str().unwrap().to_owned()));
        }
    }
    reached
}

#[tokio::test]
async fn each_link_has_the_address_of_what_to_trace_next() {
    let followed = followed().await;
    let run = &followed.run;
    let record = |topic: &str| format!("topics/{topic}/trace?sequence=1");
    let from = format!("topics/orders.placed/trace?token={}", encoded(followed.placed));
    let down = walked(&followed.app, &from, "effects").await;
    let expected = [
        record("orders%2Eplaced"),
        format!("runs/{run}/trace"),
        record("hidden%2Fcards"),
    ];
    assert_eq!(down, expected.clone().into());
    let up = walked(&followed.app, &expected[2], "causes").await;
    let operation = format!("runs/{run}/trace?operation=2");
    assert_eq!(up, [expected[2].clone(), operation, expected[0].clone()].into());
    // The latest run of an instance is that run.
    let page = get(&followed.app, "/v1/instances/sell%2F7/trace").await.json();
    assert_eq!(page["of"]["run"], *run);
    assert_eq!(
        (&page["about"]["id"], &page["about"]["ended"]),
        (&json!("sell/7"), &json!("completed"))
    );
    let cause = &page["causes"][0];
    for (field, expected) in [
        ("relation", json!("triggered")),
        ("name", json!("selling")),
        ("outcome", json!("done")),
        ("detail", Value::Null),
        (
            "to",
            json!({
                "kind": "record", "topic": "orders.placed", "sequence": 1,
                "trace": "topics/orders%2Eplaced/trace?sequence=1",
            }),
        ),
    ] {
        assert_eq!(cause[field], expected, "{field}");
    }
    assert_eq!(page["next"], Value::Null);
    followed.runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn pages_of_one_link_come_to_all_links_in_either_direction_and_in_both() {
    let followed = followed().await;
    for of in [
        format!("runs/{}/trace?", followed.run),
        "topics/orders.placed/trace?id=order-7&".to_owned(),
    ] {
        for direction in ["", "direction=causes&", "direction=effects&"] {
            let whole = get(&followed.app, &format!("/v1/{of}{direction}")).await.json();
            assert_eq!(whole["next"], Value::Null);
            let (mut causes, mut effects) = (Vec::new(), Vec::new());
            let path = of.split('?').next().unwrap();
            let mut query = format!("?{}{direction}limit=1", of.split('?').nth(1).unwrap());
            let mut pages = 0;
            loop {
                let page = get(&followed.app, &format!("/v1/{path}{query}")).await.json();
                let links = |name: &str| page[name].as_array().unwrap().clone();
                assert!(links("causes").len() + links("effects").len() <= 1, "{page}");
                causes.extend(links("causes"));
                effects.extend(links("effects"));
                pages += 1;
                match page["next"].as_str() {
                    Some(next) => query = next.to_owned(),
                    None => break,
                }
            }
            assert!(pages > 1, "{of}");
            assert_eq!(
                (&whole["causes"], &whole["effects"]),
                (&json!(causes), &json!(effects)),
                "{of}{direction}"
            );
            let is_wanted = [!direction.contains("effects"), !direction.contains("causes")];
            assert_eq!(
                [!causes.is_empty(), !effects.is_empty()],
                is_wanted,
                "{of}{direction}"
            );
        }
    }
    followed.runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn of_a_record_that_is_not_exposed_nothing_is_told_that_comes_from_its_publisher() {
    let followed = followed().await;
    let hidden = followed.runtime.durable_topic(HIDDEN).unwrap();
    let placed = followed.runtime.durable_topic(PLACED).unwrap();
    let secret = hidden.publish(&SECRET.to_owned()).key(SECRET);
    secret.correlation(SECRET).await.unwrap();
    let of_hidden = hidden.subscribe("billing").await.unwrap();
    let of_placed = placed.subscribe("billing").await.unwrap();
    let (pause, why) = (Duration::from_secs(3_600), format!("card {SECRET}"));
    for delivery in [
        of_hidden.next().await.unwrap().send_back(pause, &why),
        of_hidden.next().await.unwrap().send_back(pause, &why),
        of_placed.next().await.unwrap().send_back(pause, &why),
    ] {
        delivery.unwrap().await.unwrap();
    }
    let told = get(&followed.app, "/v1/topics/hidden%2Fcards/trace?sequence=2").await;
    assert!(!told.text.contains(SECRET), "{}", told.text);
    let told = told.json();
    assert_eq!(told["about"]["key"], Value::Null);
    let standing = &told["effects"][0];
    assert_eq!(
        (&standing["relation"], &standing["outcome"], &standing["detail"]),
        (&json!("subscription"), &json!("returned"), &Value::Null)
    );
    // Of one that is exposed all is told but its payload.
    let told = get(&followed.app, "/v1/topics/orders.placed/trace?sequence=1")
        .await
        .json();
    let about = &told["about"];
    assert_eq!(
        (&about["key"], &about["correlation"], &about["token"]),
        (
            &json!("order-7"),
            &json!("cart-7"),
            &json!(followed.placed.to_string())
        )
    );
    let links = told["effects"].as_array().unwrap();
    let returned = links.iter().find(|link| link["outcome"] == "returned").unwrap();
    assert_eq!(returned["detail"], format!("card {SECRET}"));
    drop((of_hidden, of_placed));
    followed.runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_traced_is_told_as_a_problem() {
    let followed = followed().await;
    let (run, app) = (&followed.run, &followed.app);
    let hidden = followed.runtime.durable_topic(HIDDEN).unwrap();
    while followed.runtime.durable_topics()[0].first < 2 {
        for _ in 0..1_000 {
            hidden.publish(&String::new()).await.unwrap();
        }
    }
    let other_store = "AQAAAAAAAAAHAAAAAQAAAAAAAAAD";
    let of_placed = encoded(followed.placed);
    let nobody = "0".repeat(32);
    for (path, status, code) in [
        (format!("runs/{nobody}/trace"), 404, "not-found"),
        ("runs/7/trace".to_owned(), 400, "invalid-id"),
        ("instances/nobody/trace".to_owned(), 404, "not-found"),
        (format!("runs/{run}/trace?operation=x"), 400, "invalid-query"),
        (
            format!("runs/{run}/trace?operation=4294967296"),
            400,
            "invalid-query",
        ),
        (format!("runs/{run}/trace?direction=both"), 400, "invalid-query"),
        (format!("runs/{run}/trace?limit=0"), 400, "invalid-query"),
        (format!("runs/{run}/trace?limit=1001"), 400, "invalid-query"),
        (format!("runs/{run}/trace?after=x"), 400, "invalid-query"),
        // Cursors of a trace of something else.
        (format!("runs/{run}/trace?after=k1"), 400, "invalid-query"),
        (
            "topics/orders.placed/trace?sequence=1&after=e1.0".to_owned(),
            400,
            "invalid-query",
        ),
        (
            "instances/sell%2F7/trace?operation=1".to_owned(),
            400,
            "invalid-query",
        ),
        ("topics/orders.placed/trace".to_owned(), 400, "invalid-query"),
        (
            "topics/orders.placed/trace?sequence=1&id=order-7".to_owned(),
            400,
            "invalid-query",
        ),
        (
            "topics/orders.placed/trace?sequence=-1".to_owned(),
            400,
            "invalid-query",
        ),
        (
            "topics/orders.placed/trace?token=x".to_owned(),
            400,
            "record-token",
        ),
        (
            format!("topics/orders.placed/trace?token={other_store}"),
            409,
            "other-store",
        ),
        (
            format!("topics/hidden%2Fcards/trace?token={of_placed}"),
            409,
            "other-topic",
        ),
        (
            "topics/orders.placed/trace?id=nothing".to_owned(),
            404,
            "no-record",
        ),
        (
            "topics/orders.placed/trace?sequence=2".to_owned(),
            409,
            "record-not-yet",
        ),
        (
            "topics/hidden%2Fcards/trace?sequence=1".to_owned(),
            410,
            "record-gone",
        ),
        (
            "topics/shop.prices/trace?sequence=1".to_owned(),
            409,
            "not-durable",
        ),
        ("topics/nothing/trace?sequence=1".to_owned(), 404, "no-topic"),
        (
            "topics/millrun.subscription%20x/trace?sequence=1".to_owned(),
            404,
            "no-topic",
        ),
    ] {
        let answer = get(app, &format!("/v1/{path}")).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (status, code),
            "{path}: {}",
            answer.text
        );
    }
    // An operation that the run has not begun is told of in its page.
    let page = get(app, &format!("/v1/runs/{run}/trace?operation=99"))
        .await
        .json();
    assert_eq!(page["effects"][0]["outcome"], "unknown");
    followed.runtime.shutdown().await.unwrap();
    let stopped = get(app, &format!("/v1/runs/{run}/trace")).await;
    assert_eq!(stopped.code(), "stopped");
}
