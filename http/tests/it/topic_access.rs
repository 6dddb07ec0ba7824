//! Who may publish to which topic, and who may read it.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use millrun::topics::ReadFrom;
use millrun::{DurableTopic, Runtime, Topic};
use millrun_http::{Access, Console, Role, Token, TopicRequest, TopicUse};
use serde_json::{Value, json};

use crate::support::{Answer, send};

const PLACED: DurableTopic<u64> = Topic::named("orders.placed").durable();
const PARCELS: DurableTopic<u64> = Topic::named("parcels.sent").durable();
const PRICES: Topic<u64> = Topic::named("prices.changed");

/// A team publishes to topics of its own, and reads those of which its header says so.
fn by_team(request: &TopicRequest<'_>) -> bool {
    let said = |name: &str| request.head.headers.get(name)?.to_str().ok();
    let first = request.topic.split('.').next();
    match request.wanted {
        TopicUse::Publish => first == said("x-team"),
        TopicUse::Read => {
            said("x-reads").is_some_and(|reads| reads.split(',').any(|read| Some(read) == first))
        }
        _ => false,
    }
}

async fn app(access: Access) -> (Router, Runtime) {
    let builder = Runtime::volatile().durable_topic(PLACED).durable_topic(PARCELS);
    let runtime = builder.start().await.unwrap();
    let console = Console::new(&runtime, access).expose(PRICES).unwrap();
    let console = console.expose_durable(PLACED).unwrap();
    (console.expose_durable(PARCELS).unwrap().router(), runtime)
}

async fn ask(
    app: &Router,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Option<Value>,
) -> Answer {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = match body {
        Some(body) => {
            request = request.header("content-type", "application/json");
            Body::from(body.to_string())
        }
        None => Body::empty(),
    };
    send(app, request.body(body).unwrap()).await
}

async fn publish(app: &Router, topic: &str, headers: &[(&str, &str)]) -> Answer {
    let path = format!("/v1/topics/{topic}/publish");
    ask(app, "POST", &path, headers, Some(json!({"value": 7}))).await
}

async fn records(app: &Router, topic: &str, headers: &[(&str, &str)]) -> Answer {
    let path = format!("/v1/topics/{topic}/records?from=beginning");
    ask(app, "GET", &path, headers, None).await
}

/// The names of the topics that the list tells to be exposed.
async fn exposed(app: &Router, headers: &[(&str, &str)]) -> Vec<String> {
    let told = ask(app, "GET", "/v1/topics", headers, None).await.json();
    let durable = told["durable"].as_array().unwrap().iter();
    let durable = durable.filter(|topic| topic["is_exposed"] == json!(true));
    let volatile = told["topics"].as_array().unwrap().iter();
    let mut names: Vec<_> = (durable.chain(volatile))
        .map(|topic| topic["name"].as_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_rule_says_for_each_topic_who_publishes_and_who_reads() {
    let (app, runtime) = app(Access::read_only().topics(by_team)).await;
    let orders = [("x-team", "orders"), ("x-reads", "orders,prices")];
    let parcels = [("x-team", "parcels"), ("x-reads", "")];
    // The role is that of a reader, which would publish nowhere.
    for (headers, topic, expected) in [
        (&orders, "orders.placed", StatusCode::OK),
        (&orders, "parcels.sent", StatusCode::FORBIDDEN),
        (&orders, "prices.changed", StatusCode::FORBIDDEN),
        (&parcels, "orders.placed", StatusCode::FORBIDDEN),
        (&parcels, "parcels.sent", StatusCode::OK),
    ] {
        let answer = publish(&app, topic, headers).await;
        assert_eq!(answer.status, expected, "{topic}: {}", answer.text);
    }
    for (headers, topic, expected) in [
        (&orders, "orders.placed", StatusCode::OK),
        (&orders, "parcels.sent", StatusCode::FORBIDDEN),
        // Its team publishes there, and reads nothing.
        (&parcels, "parcels.sent", StatusCode::FORBIDDEN),
    ] {
        let answer = records(&app, topic, headers).await;
        assert_eq!(answer.status, expected, "{topic}: {}", answer.text);
        let path = format!("/v1/topics/{topic}/tail?from=beginning&limit=1");
        let answer = ask(&app, "GET", &path, headers, None).await;
        assert_eq!(answer.status, expected, "{topic}: {}", answer.text);
        if expected != StatusCode::OK {
            assert_eq!(answer.code(), "forbidden");
        }
    }
    let tail = ask(&app, "GET", "/v1/topics/prices.changed/tail", &parcels, None).await;
    assert_eq!(tail.code(), "forbidden");
    assert_eq!(exposed(&app, &orders).await, ["orders.placed", "prices.changed"]);
    assert_eq!(exposed(&app, &parcels).await, [""; 0]);
    // What was refused is not there.
    for topic in [PLACED, PARCELS] {
        let topic = runtime.durable_topic(topic).unwrap();
        let mut reader = topic.read(ReadFrom::Beginning).await.unwrap();
        assert!(reader.next_encoded_now().await.unwrap().is_some());
        assert!(reader.next_encoded_now().await.unwrap().is_none());
    }
}

#[tokio::test]
async fn what_a_rule_refuses_tells_nothing_of_which_topics_there_are() {
    let (app, _runtime) = app(Access::operator().topics(by_team)).await;
    let (there, none) = (
        records(&app, "orders.placed", &[]).await,
        records(&app, "orders.none", &[]).await,
    );
    assert_eq!(there.code(), "forbidden");
    assert_eq!(there.text.replace("placed", "none"), none.text);
    let reads = [("x-reads", "orders")];
    assert_eq!(records(&app, "orders.none", &reads).await.code(), "no-topic");
    // Also an operator publishes where the rule says so alone; all else goes by the role.
    assert_eq!(publish(&app, "orders.placed", &[]).await.code(), "forbidden");
    let path = "/v1/topics/orders.placed/purge";
    let purged = ask(&app, "POST", path, &[], Some(json!({}))).await;
    assert_eq!(purged.status, StatusCode::OK, "{}", purged.text);
}

#[tokio::test]
async fn a_trace_of_a_record_tells_its_key_to_those_who_may_read_its_topic() {
    let (app, runtime) = app(Access::read_only().topics(by_team)).await;
    let placed = runtime.durable_topic(PLACED).unwrap();
    placed.publish(&7).key("a-key").await.unwrap();
    let path = "/v1/topics/orders.placed/trace?sequence=1";
    for (reads, expected) in [("orders", true), ("prices", false)] {
        let told = ask(&app, "GET", path, &[("x-reads", reads)], None).await;
        assert_eq!(told.status, StatusCode::OK, "{}", told.text);
        assert_eq!(told.text.contains("a-key"), expected, "{}", told.text);
    }
}

#[tokio::test]
async fn a_rule_knows_the_role_and_one_without_a_token_is_told_to_send_one() {
    let token = |text: &str| Token::new(text).unwrap();
    let (reading, operating) = ("r".repeat(32), "o".repeat(32));
    let access = Access::token(token(&reading), token(&operating)).topics(|request| match request.wanted {
        // Prices are for everybody, and orders for operators.
        TopicUse::Read if request.topic.starts_with("prices.") => true,
        _ => request.role == Role::Operator,
    });
    let (app, _runtime) = app(access).await;
    let bearer = |token: &str| format!("Bearer {token}");
    let (reading, operating) = (bearer(&reading), bearer(&operating));
    let tail = "/v1/topics/orders.placed/records";
    let answer = ask(&app, "GET", tail, &[], None).await;
    assert_eq!(
        (answer.status, answer.code().as_str()),
        (StatusCode::UNAUTHORIZED, "token")
    );
    let answer = ask(&app, "GET", tail, &[("authorization", &reading)], None).await;
    assert_eq!(answer.code(), "forbidden");
    let answer = ask(&app, "GET", tail, &[("authorization", &operating)], None).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    // A topic in memory has no records: the rule let the caller come this far.
    let answer = ask(&app, "GET", "/v1/topics/prices.changed/records", &[], None).await;
    assert_eq!(answer.code(), "not-durable");
}

#[tokio::test]
async fn without_a_rule_roles_count() {
    for (access, may_publish) in [(Access::read_only(), false), (Access::operator(), true)] {
        let (app, _runtime) = app(access).await;
        let published = publish(&app, "orders.placed", &[]).await;
        assert_eq!(
            published.status == StatusCode::OK,
            may_publish,
            "{}",
            published.text
        );
        assert_eq!(records(&app, "orders.placed", &[]).await.status, StatusCode::OK);
        let all = ["orders.placed", "parcels.sent", "prices.changed"];
        assert_eq!(exposed(&app, &[]).await, all);
    }
    let (app, _runtime) = app(Access::by(|_| Role::Anonymous)).await;
    assert_eq!(records(&app, "orders.placed", &[]).await.code(), "forbidden");
}
