//! Topics over HTTP: what is exposed is published to and tailed, and nobody who listens holds up a publisher.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use millrun::broker::{Overflow, SubscriptionConfig, mailbox::MailboxConfig};
use millrun::{Runtime, Topic, Workflow, WorkflowContext, WorkflowError};
use millrun_http::{Access, Console, RING_LEN_MAX};
use millrun_testkit::{SimConfig, SimHost, SimStop};
use serde_json::{Value, json};

use crate::client::Client;
use crate::support::{Answer, get, send};

const PRICES: Topic<u64> = Topic::named("shop.prices");
const PATH: &str = "/v1/topics/shop.prices/tail";
const TELL: Workflow<u64, ()> = Workflow::named("tell");

async fn tell(cx: WorkflowContext, price: u64) -> Result<(), WorkflowError> {
    cx.publish(PRICES, price).await?;
    Ok(())
}

fn app(runtime: &Runtime) -> Router {
    let console = Console::new(runtime, Access::operator());
    console.expose(PRICES).unwrap().router()
}

async fn post(app: &Router, path: &str, body: Value) -> Answer {
    let request = Request::post(path).header("content-type", "application/json");
    send(app, request.body(Body::from(body.to_string())).unwrap()).await
}

async fn publish(app: &Router, value: u64) -> Answer {
    post(app, "/v1/topics/shop.prices/publish", json!({ "value": value })).await
}

/// The value of the next message.
async fn next_value(client: &mut Client) -> u64 {
    let received = client.next().await.unwrap();
    assert_eq!(received.kind.as_deref(), Some("message"), "{received:?}");
    received.data["payload"]["value"].as_u64().unwrap()
}

#[tokio::test]
async fn what_is_published_is_tailed_whoever_publishes_it_and_typed_listeners_get_it() {
    let builder = Runtime::volatile().register(TELL, tell).topic(PRICES);
    let runtime = builder.start().await.unwrap();
    let app = app(&runtime);
    let told = get(&app, "/v1/topics").await.json();
    assert_eq!(
        told,
        json!({"topics": [{"name": "shop.prices", "payload": "u64", "published": 0}], "durable": []})
    );
    let inbox = runtime
        .broker()
        .subscribe::<u64>("shop.*", SubscriptionConfig::default())
        .unwrap();
    let mut inbox = inbox.into_receiver();
    let mut client = Client::connect(&app, PATH, None).await;

    let body = json!({"value": u64::MAX, "key": "tea"});
    let published = post(&app, "/v1/topics/shop.prices/publish", body).await;
    assert_eq!(published.status, StatusCode::OK, "{}", published.text);
    assert_eq!(published.json()["delivered"], 2);
    let envelope = inbox.recv().await.unwrap();
    assert_eq!((envelope.payload(), envelope.key()), (&u64::MAX, Some("tea")));
    let received = client.next().await.unwrap();
    assert_eq!(received.data["envelope"], published.json()["envelope"]);
    assert_eq!(
        (&received.data["payload"]["value"], &received.data["key"]),
        (&u64::MAX.into(), &"tea".into())
    );
    assert_eq!(received.data["cause"], Value::Null);

    let run = runtime.start(TELL, "t", 7).await.unwrap();
    run.result().await.unwrap();
    let received = client.next().await.unwrap();
    assert_eq!(received.data["payload"]["value"], 7);
    assert_eq!(received.data["cause"]["run"], run.run_id().unwrap().to_string());
}

#[tokio::test]
async fn what_cannot_be_done_with_a_topic_is_told_as_a_problem() {
    let runtime = Runtime::volatile().start().await.unwrap();
    let app = app(&runtime);
    for (path, code) in [
        ("/v1/topics/shop.secrets/tail", "no-topic"),
        ("/v1/topics/shop.prices/tail?after=7", "invalid-query"),
        ("/v1/topics/shop.prices/tail?limit=0", "invalid-query"),
    ] {
        assert_eq!(get(&app, path).await.code(), code, "{path}");
    }
    let secret = post(&app, "/v1/topics/shop.secrets/publish", json!({"value": 1})).await;
    assert_eq!(
        (secret.status.as_u16(), secret.code().as_str()),
        (404, "no-topic")
    );
    let text = post(&app, "/v1/topics/shop.prices/publish", json!({"value": "dear"})).await;
    assert_eq!((text.status.as_u16(), text.code().as_str()), (400, "payload"));
    let other = Console::new(&runtime, Access::read_only()).expose(Topic::<String>::named("shop.prices"));
    assert!(other.is_err(), "the topic carries numbers");
    let config = SubscriptionConfig {
        inbox: MailboxConfig {
            capacity: 1,
            ..MailboxConfig::default()
        },
        overflow: Overflow::Fail,
        ..SubscriptionConfig::default()
    };
    let full = runtime.broker().subscribe::<u64>("shop.prices", config).unwrap();
    assert_eq!(publish(&app, 1).await.status, StatusCode::OK);
    let refused = publish(&app, 2).await;
    assert_eq!(
        (refused.status.as_u16(), refused.code().as_str()),
        (503, "topic-full")
    );
    assert_eq!(refused.json()["retry"], true);
    drop(full);
    runtime.shutdown().await.unwrap();
    assert_eq!(get(&app, PATH).await.code(), "stopped");
    assert_eq!(publish(&app, 3).await.code(), "stopped");
}

#[test]
fn a_publish_waits_for_room_as_long_as_it_says() {
    let world = SimHost::new(SimConfig::seeded(5));
    let builder = Runtime::volatile().host(world.host());
    world
        .block_on(async {
            let runtime = builder.start().await.unwrap();
            let app = app(&runtime);
            let config = SubscriptionConfig {
                inbox: MailboxConfig {
                    capacity: 1,
                    ..MailboxConfig::default()
                },
                ..SubscriptionConfig::default()
            };
            let inbox = runtime.broker().subscribe::<u64>("shop.prices", config).unwrap();
            assert_eq!(publish(&app, 1).await.status, StatusCode::OK);
            let before = world.now();
            let refused = publish(&app, 2).await;
            assert_eq!(
                (refused.status.as_u16(), refused.code().as_str()),
                (503, "topic-full")
            );
            assert_eq!(world.now().saturating_since(before), Duration::from_secs(5));
            let mut inbox = inbox.into_receiver();
            let takes = async {
                runtime
                    .host()
                    .sleep_until(world.now() + Duration::from_secs(1))
                    .await;
                inbox.recv().await.map(|envelope| *envelope.payload())
            };
            let (published, taken) = futures_util::join!(publish(&app, 3), takes);
            assert_eq!((published.status, taken), (StatusCode::OK, Some(1)));
        })
        .unwrap();
}

#[test]
fn a_client_that_comes_again_goes_on_where_it_was_or_is_told_how_much_it_has_missed() {
    let world = SimHost::new(SimConfig::seeded(5));
    let builder = Runtime::volatile().host(world.host());
    world
        .block_on(async {
            let runtime = builder.start().await.unwrap();
            let app = app(&runtime);
            assert_eq!(
                publish(&app, 0).await.json()["delivered"],
                0,
                "nobody listens yet"
            );
            let mut client = Client::connect(&app, PATH, None).await;
            let mut ids = Vec::new();
            for value in 1..=4 {
                assert_eq!(publish(&app, value).await.json()["delivered"], 1);
                let received = client.next().await.unwrap();
                assert_eq!(received.data["payload"]["value"], value);
                ids.push(received.id.unwrap());
            }
            // A second one shares the ring.
            let mut second = Client::connect(&app, &format!("{PATH}?after={}&limit=2", ids[1]), None).await;
            assert_eq!(next_value(&mut second).await, 3);
            assert_eq!(next_value(&mut second).await, 4);
            assert!(second.next().await.is_none());

            // Nobody listens for a while, and nothing of it is lost.
            drop(client);
            for value in 5..=6 {
                assert_eq!(publish(&app, value).await.json()["delivered"], 1);
            }
            runtime
                .host()
                .sleep_until(world.now() + Duration::from_secs(59))
                .await;
            let mut client = Client::connect(&app, PATH, Some(&ids[3])).await;
            assert_eq!(next_value(&mut client).await, 5);
            let last = client.next().await.unwrap();
            assert_eq!(last.data["payload"]["value"], 6);
            drop(client);

            // Nobody listens for longer: the topic costs nothing any more, and what is missing is counted.
            runtime
                .host()
                .sleep_until(world.now() + Duration::from_secs(61))
                .await;
            for value in 7..=9 {
                assert_eq!(publish(&app, value).await.json()["delivered"], 0);
            }
            let mut client = Client::connect(&app, PATH, last.id.as_deref()).await;
            publish(&app, 10).await;
            let gap = client.next().await.unwrap();
            assert_eq!((gap.kind.as_deref(), &gap.data["lost"]), (Some("gap"), &3.into()));
            assert_eq!(next_value(&mut client).await, 10);

            // What another process has told is a gap of which nobody knows how long it is.
            let mut client = Client::connect(&app, PATH, Some("0000000000000007-3")).await;
            let gap = client.next().await.unwrap();
            assert_eq!(
                (gap.kind.as_deref(), &gap.data["lost"]),
                (Some("gap"), &Value::Null)
            );
            assert_eq!(next_value(&mut client).await, 10);
            publish(&app, 11).await;
            assert_eq!(next_value(&mut client).await, 11);
        })
        .unwrap();
    let before = world.now();
    assert_eq!(world.run_until_idle(), SimStop::Idle);
    assert!(
        world.now().saturating_since(before) <= Duration::from_secs(60),
        "nothing of a tail stays"
    );
}

#[tokio::test]
async fn a_client_that_takes_nothing_holds_up_no_publisher_and_is_told_what_it_has_missed() {
    let runtime = Runtime::volatile().start().await.unwrap();
    let app = app(&runtime);
    let mut client = Client::connect(&app, PATH, None).await;
    publish(&app, 0).await;
    assert_eq!(next_value(&mut client).await, 0);
    // More than any inbox or ring holds, and without a pause in which the task of the tail could run.
    let topic = runtime.broker().topic::<u64>("shop.prices").unwrap();
    let len = 3 * RING_LEN_MAX as u64;
    for value in 1..=len {
        topic.try_publish(value).unwrap();
    }
    let (mut lost, mut received, mut last) = (0, 0, 0);
    while last < len {
        let event = client.next().await.unwrap();
        match event.kind.as_deref() {
            Some("gap") => lost += event.data["lost"].as_u64().unwrap(),
            Some("message") => {
                received += 1;
                last = event.data["payload"]["value"].as_u64().unwrap();
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(lost > 0);
    assert_eq!(lost + received, len, "each is told or counted");
    let stops = async {
        tokio::task::yield_now().await;
        runtime.shutdown().await.unwrap();
    };
    let (rest, ()) = tokio::join!(client.rest(), stops);
    assert_eq!(rest.len(), 1);
    assert_eq!(rest[0].data["type"], "urn:millrun:problem:stopped");
}
