//! Undelivered records sent back over HTTP, and keys released that wait behind them.

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use millrun::topics::{DurableSubscription, ReadFrom, UndeliveredRecord};
use millrun::{DurableTopic, Runtime, Topic};
use millrun_http::{Access, Role, router};
use serde_json::{Value, json};

use crate::support::{Answer, get, send};

const PLACED: DurableTopic<u64> = Topic::named("orders.placed").durable();
const REFUSED: DurableTopic<UndeliveredRecord> = Topic::named("orders.refused").durable();

/// Three orders, of one key each, that billing has given up and holds.
async fn refused() -> (Runtime, DurableSubscription<u64>) {
    let builder = Runtime::volatile().durable_topic(PLACED).durable_topic(REFUSED);
    let runtime = builder.start().await.unwrap();
    let placed = runtime.durable_topic(PLACED).unwrap();
    let billing = placed.subscribe("billing").undelivered_to(REFUSED, 1);
    let billing = billing.hold_key_when_undelivered().await.unwrap();
    for number in 0..3 {
        placed
            .publish(&number)
            .key(&format!("key-{number}"))
            .await
            .unwrap();
        let delivery = billing.next().await.unwrap();
        let sent_back = delivery.send_back(std::time::Duration::ZERO, "no way");
        sent_back.unwrap().await.unwrap();
    }
    while billing.status().held_keys < 3 {
        tokio::task::yield_now().await;
    }
    (runtime, billing)
}

async fn post(app: &Router, path: &str, body: Value) -> Answer {
    let request = Request::post(path).header("content-type", "application/json");
    send(app, request.body(Body::from(body.to_string())).unwrap()).await
}

async fn tokens(runtime: &Runtime) -> Vec<String> {
    let refused = runtime.durable_topic(REFUSED).unwrap();
    let mut reader = refused.read(ReadFrom::Beginning).await.unwrap();
    let mut tokens = Vec::new();
    while let Some(record) = reader.next_encoded_now().await.unwrap() {
        tokens.push(record.token().to_string());
    }
    tokens
}

/// How many were sent, how many before, and whether there may be more.
fn told(answer: &Answer) -> (u64, u64, u64, bool) {
    let answer = answer.json();
    let count = |name: &str| answer[name].as_u64().unwrap();
    (
        count("sent_back"),
        count("repeats"),
        count("passed_over"),
        !answer["next"].is_null(),
    )
}

#[tokio::test]
async fn undelivered_records_are_sent_back_once_each_and_let_their_keys_go_on() {
    let (runtime, billing) = refused().await;
    let app = router(&runtime, Access::operator());
    let tokens = tokens(&runtime).await;
    let path = "/v1/topics/orders.refused/send_back";
    let of_billing = || async {
        let page = get(&app, "/v1/topics/orders.placed/subscriptions").await.json();
        page["subscriptions"][0]["held_keys"].as_u64().unwrap()
    };
    assert_eq!(of_billing().await, 3);
    for expected in [(1, 0, 0, false), (0, 1, 0, false)] {
        let sent = post(&app, path, json!({"token": tokens[1]})).await;
        assert_eq!(told(&sent), expected, "{}", sent.text);
    }
    assert_eq!(of_billing().await, 2);
    let again = billing.next().await.unwrap();
    assert_eq!(*again.payload(), 1);
    again.ack().unwrap().await.unwrap();

    // Something else in the topic is passed over.
    let numbers: DurableTopic<u64> = Topic::named("orders.placed").durable();
    runtime.durable_topic(numbers).unwrap().publish(&7).await.unwrap();
    let page = post(&app, path, json!({"limit": 2})).await;
    assert_eq!(told(&page), (1, 1, 0, true), "{}", page.text);
    let rest = post(&app, path, json!({"after": page.json()["next"]})).await;
    assert_eq!(told(&rest), (1, 0, 0, false), "{}", rest.text);
    let all = post(&app, path, json!({})).await;
    assert_eq!(told(&all), (0, 3, 0, false), "{}", all.text);
    assert_eq!(of_billing().await, 0);
    // Of a topic with other records all are passed over.
    let none = post(&app, "/v1/topics/orders.placed/send_back", json!({})).await;
    let (sent, repeats, passed_over, _) = told(&none);
    assert_eq!((sent, repeats), (0, 0));
    assert!(passed_over > 3, "{}", none.text);
}

#[tokio::test]
async fn a_key_that_waits_is_released_by_an_operator() {
    let (runtime, billing) = refused().await;
    let app = router(&runtime, Access::operator());
    let placed = runtime.durable_topic(PLACED).unwrap();
    placed.publish(&7).key("key-1").await.unwrap();
    let path = "/v1/topics/orders.placed/release_key";
    for (key, expected) in [("key-7", false), ("key-1", true), ("key-1", false)] {
        let released = post(&app, path, json!({"subscription": "billing", "key": key})).await;
        assert_eq!(released.json()["released"], expected, "{key}: {}", released.text);
    }
    assert_eq!(*billing.next().await.unwrap().payload(), 7);
    assert_eq!(billing.status().held_keys, 2);
}

#[tokio::test]
async fn what_names_no_undelivered_record_or_key_gets_its_problem() {
    let (runtime, _billing) = refused().await;
    let app = router(&runtime, Access::operator());
    let tokens = tokens(&runtime).await;
    let placed = runtime.durable_topic(PLACED).unwrap();
    let of_placed = placed.publish(&8).await.unwrap().token().to_string();
    let refused = "orders.refused/send_back";
    for (path, body, expected) in [
        (refused, json!({"token": "x"}), "record-token"),
        (refused, json!({"after": "x"}), "record-token"),
        (refused, json!({"token": of_placed}), "other-topic"),
        (refused, json!({"token": tokens[0], "limit": 1}), "invalid-body"),
        (refused, json!({"limit": 0}), "invalid-body"),
        (refused, json!({"limit": 1_001}), "invalid-body"),
        (refused, json!({"all": true}), "invalid-body"),
        (
            "orders.placed/send_back",
            json!({"token": of_placed}),
            "no-undelivered-record",
        ),
        ("nothing/send_back", json!({}), "no-topic"),
        (
            "nothing/release_key",
            json!({"subscription": "billing", "key": "k"}),
            "no-topic",
        ),
        (
            "orders.placed/release_key",
            json!({"subscription": "shipping", "key": "k"}),
            "no-subscription",
        ),
        (
            "orders.placed/release_key",
            json!({"subscription": "billing"}),
            "invalid-body",
        ),
    ] {
        let answer = post(&app, &format!("/v1/topics/{path}"), body.clone()).await;
        assert_eq!(answer.code(), expected, "{path} {body}: {}", answer.text);
    }
    let reader = router(&runtime, Access::by(|_| Role::Reader));
    for path in [refused, "orders.placed/release_key"] {
        let answer = post(&reader, &format!("/v1/topics/{path}"), json!({})).await;
        assert_eq!(answer.code(), "forbidden");
    }
}
