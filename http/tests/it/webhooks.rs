//! Webhooks: what is not signed, or too old, has no effect, and what is sent again has no second one.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::join_all;
use hmac::{Hmac, KeyInit as _, Mac as _};
use millrun::broker::SubscriptionConfig;
use millrun::{
    DurableTopic, Payload, Runtime, RuntimeBuilder, Signal, Topic, Workflow, WorkflowContext, WorkflowError,
};
use millrun_http::{Access, BODY_BYTES_MAX, Console, Hook, Hooks, Reaction, RefusedWebhook, Scheme};
use millrun_testkit::{SimConfig, SimHost};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::support::{Answer, send};

const DOUBLE: Workflow<u64, u64> = Workflow::named("double");
const WAIT: Workflow<(), u64> = Workflow::named("wait");
const GO: Signal<u64> = Signal::named("go");
const ADD_UP: Workflow<usize, u64> = Workflow::named("add-up");
const ADD: Signal<u64> = Signal::named("add");
const NEWS: Topic<String> = Topic::named("shop.news");
const PLACED: DurableTopic<u64> = Topic::named("orders.placed").durable();

async fn double(_cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    Ok(number * 2)
}

async fn wait(cx: WorkflowContext, (): ()) -> Result<u64, WorkflowError> {
    Ok(cx.receive(GO).await?)
}

/// Adds up as many values.
async fn add_up(cx: WorkflowContext, len: usize) -> Result<u64, WorkflowError> {
    let mut sum = 0;
    for _ in 0..len {
        sum += cx.receive(ADD).await?;
    }
    Ok(sum)
}

fn code(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder
        .register(DOUBLE, double)
        .register(WAIT, wait)
        .register(ADD_UP, add_up)
}

fn sum(secret: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).unwrap();
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

type Sent = (Vec<(&'static str, String)>, String);

/// A webhook of Standard Webhooks.
fn standard(secret: &[u8], id: &str, seconds: u64, body: &Value) -> Sent {
    let body = body.to_string();
    let signature = sum(secret, &[format!("{id}.{seconds}.{body}").as_bytes()]);
    let headers = vec![
        ("webhook-id", id.to_owned()),
        ("webhook-timestamp", seconds.to_string()),
        ("webhook-signature", format!("v1,{}", STANDARD.encode(signature))),
    ];
    (headers, body)
}

fn github(secret: &[u8], body: &Value) -> Sent {
    let body = body.to_string();
    let signature = format!("sha256={}", hex(&sum(secret, &[body.as_bytes()])));
    (vec![("x-hub-signature-256", signature)], body)
}

fn stripe(secret: &[u8], seconds: u64, body: &Value) -> Sent {
    let body = body.to_string();
    let signature = hex(&sum(secret, &[format!("{seconds}.{body}").as_bytes()]));
    (
        vec![("stripe-signature", format!("t={seconds},v1={signature}"))],
        body,
    )
}

async fn post(app: &Router, path: &str, (headers, body): &Sent) -> Answer {
    let mut request = Request::post(path);
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    send(app, request.body(Body::from(body.clone())).unwrap()).await
}

/// Starts what the field `number` says.
fn doubles(webhook: &millrun_http::Webhook<'_>) -> Result<Reaction, RefusedWebhook> {
    let body: Value = webhook.json()?;
    let number = body["number"].as_u64();
    let number = number.ok_or_else(|| RefusedWebhook::because("there is no number"))?;
    Ok(match number {
        0 => Reaction::nothing(),
        number => Reaction::start(DOUBLE, number),
    })
}

fn app(runtime: &Runtime) -> Router {
    let secret = |secret: &[u8]| format!("whsec_{}", STANDARD.encode(secret));
    let standard = Scheme::standard([secret(b"former"), secret(b"present")]).unwrap();
    let waits = Hook::post("waits")
        .unsigned()
        .then(|_| Ok(Reaction::start_as(WAIT, "one", ())));
    let news = Hook::post("/news").unsigned().then(|webhook| {
        let text = String::from_utf8(webhook.body().into()).unwrap();
        Ok(Reaction::publish(NEWS, text))
    });
    let signals = Hook::post("/signal").unsigned().then(|webhook| {
        let value = webhook.json()?;
        Ok(Reaction::signal(ADD_UP, "sum", ADD, value))
    });
    let begins = Hook::post("/begin").unsigned().then(|webhook| {
        let value = webhook.json()?;
        Ok(Reaction::signal_with_start(ADD_UP, "sum", 3, ADD, value))
    });
    let hooks = Hooks::new(runtime)
        .hook(signals)
        .hook(begins)
        .hook(Hook::post("/standard").verify(standard).then(doubles))
        .hook(
            Hook::post("/github")
                .verify(Scheme::github(["secret"]).unwrap())
                .then(doubles),
        )
        .hook(
            Hook::post("/stripe")
                .verify(Scheme::stripe(["secret"]).unwrap())
                .then(doubles),
        )
        .hook(
            Hook::post("/open")
                .unsigned()
                .then(doubles)
                .result_within(Duration::from_secs(7)),
        )
        .hook(waits.result_within(Duration::from_secs(600)))
        .hook(news);
    Router::new().nest("/hooks", hooks.router())
}

/// Seconds since 1970, by the clock of the runtime's host.
fn now(runtime: &Runtime) -> u64 {
    runtime.host().now().as_micros() / 1_000_000
}

#[tokio::test]
async fn a_webhook_sent_a_hundred_times_at_once_is_one_run_and_sent_again_the_same() {
    let runtime = code(Runtime::volatile()).start().await.unwrap();
    let app = app(&runtime);
    let body = json!({"id": "evt_1", "number": 21});
    let time = now(&runtime);
    for (number, (path, sent)) in [
        ("/hooks/standard", standard(b"present", "msg_1", time, &body)),
        ("/hooks/github", github(b"secret", &body)),
        ("/hooks/stripe", stripe(b"secret", time, &body)),
    ]
    .into_iter()
    .enumerate()
    {
        let all = join_all((0..100).map(|_| post(&app, path, &sent))).await;
        let again = post(&app, path, &sent).await;
        assert_eq!(again.status, StatusCode::OK, "{}", again.text);
        assert!(all.iter().all(|answer| answer.text == again.text), "{path}");
        assert_eq!(runtime.stats().started, number as u64 + 1, "{path}");
        let id = again.json()["id"].as_str().unwrap().to_owned();
        let expected = ["msg_1", "github-", "evt_1"][number];
        assert!(id.starts_with(expected), "{id}");
        let run = runtime.attach(DOUBLE, &id).unwrap();
        assert_eq!(run.result().await.unwrap(), 42);
        assert_eq!(run.describe().await.unwrap().run.to_string(), again.json()["run"]);
    }
    // Another secret that is known, and a repetition with another signature of the same.
    let former = standard(b"former", "msg_1", time, &body);
    assert_eq!(post(&app, "/hooks/standard", &former).await.json()["id"], "msg_1");
    assert_eq!(runtime.stats().started, 3);
}

#[tokio::test]
async fn what_is_forged_stale_or_not_signed_is_answered_401_and_has_no_effect() {
    let runtime = code(Runtime::volatile()).start().await.unwrap();
    let app = app(&runtime);
    let body = json!({"id": "evt_1", "number": 21});
    let time = now(&runtime);
    let changed = |(headers, _): Sent| (headers, json!({"id": "evt_1", "number": 22}).to_string());
    let renamed = |(mut headers, body): Sent, name: &'static str, value: &str| {
        headers.retain(|(other, _)| *other != name);
        headers.push((name, value.to_owned()));
        (headers, body)
    };
    let doubled = |(mut headers, body): Sent| {
        let again = headers.clone();
        headers.extend(again);
        (headers, body)
    };
    let signed = || standard(b"present", "msg_1", time, &body);
    for (path, sent, code) in [
        (
            "standard",
            standard(b"guessed", "msg_1", time, &body),
            "signature",
        ),
        (
            "standard",
            standard(b"present", "msg_1", time - 310, &body),
            "stale",
        ),
        (
            "standard",
            standard(b"present", "msg_1", time + 310, &body),
            "stale",
        ),
        ("standard", changed(signed()), "signature"),
        ("standard", renamed(signed(), "webhook-id", "msg_2"), "signature"),
        (
            "standard",
            renamed(signed(), "webhook-timestamp", &(time - 1).to_string()),
            "signature",
        ),
        (
            "standard",
            renamed(signed(), "webhook-signature", ""),
            "signature",
        ),
        ("standard", doubled(signed()), "signature"),
        ("standard", (Vec::new(), body.to_string()), "signature"),
        ("github", github(b"guessed", &body), "signature"),
        ("github", changed(github(b"secret", &body)), "signature"),
        ("github", doubled(github(b"secret", &body)), "signature"),
        ("github", (Vec::new(), body.to_string()), "signature"),
        ("stripe", stripe(b"guessed", time, &body), "signature"),
        ("stripe", changed(stripe(b"secret", time, &body)), "signature"),
        ("stripe", stripe(b"secret", time - 310, &body), "stale"),
        ("stripe", stripe(b"secret", 0, &body), "stale"),
        ("stripe", github(b"secret", &body), "signature"),
        ("stripe", (Vec::new(), body.to_string()), "signature"),
    ] {
        let answer = post(&app, &format!("/hooks/{path}"), &sent).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (401, code),
            "{path} {sent:?}"
        );
    }
    for (path, sent, status, code) in [
        (
            "github",
            github(b"secret", &json!({"number": "many"})),
            422,
            "webhook",
        ),
        ("github", github(b"secret", &json!(7)), 422, "webhook"),
        (
            "stripe",
            stripe(b"secret", time, &json!({"number": 7})),
            422,
            "webhook",
        ),
        (
            "github",
            github(b"secret", &json!("x".repeat(BODY_BYTES_MAX))),
            413,
            "body-too-large",
        ),
    ] {
        let answer = post(&app, &format!("/hooks/{path}"), &sent).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (status, code),
            "{path}"
        );
    }
    let get = send(&app, Request::get("/hooks/stripe").body(Body::empty()).unwrap()).await;
    assert_eq!((get.status.as_u16(), get.code().as_str()), (405, "method"));
    let nothing = post(&app, "/hooks/github", &github(b"secret", &json!({"number": 0}))).await;
    assert_eq!(
        (nothing.status, nothing.text.as_str()),
        (StatusCode::NO_CONTENT, "")
    );
    assert_eq!(runtime.stats().started, 0);
}

#[test]
fn a_webhook_is_answered_with_the_result_if_the_hook_says_so_or_when_its_time_is_over() {
    let world = SimHost::new(SimConfig::seeded(11));
    let builder = code(Runtime::volatile()).host(world.host());
    world
        .block_on(async {
            let runtime = builder.start().await.unwrap();
            let app = app(&runtime);
            let sent = (
                vec![("webhook-id", "w".to_owned())],
                json!({"number": 4}).to_string(),
            );
            let told = post(&app, "/hooks/open", &sent).await.json();
            assert_eq!(
                (&told["id"], &told["outcome"]),
                (&"w".into(), &"completed".into()),
                "{told}"
            );
            assert_eq!(told["result"]["value"], 8);

            let before = world.now();
            let told = post(&app, "/hooks/waits", &(Vec::new(), String::new()))
                .await
                .json();
            assert_eq!(
                (&told["id"], &told["outcome"]),
                (&"one".into(), &"running".into()),
                "{told}"
            );
            assert_eq!(world.now().saturating_since(before), Duration::from_secs(60));

            // What nobody signs and nobody names is new each time.
            let sent = (Vec::new(), json!({"number": 5}).to_string());
            let (first, second) = (
                post(&app, "/hooks/open", &sent).await,
                post(&app, "/hooks/open", &sent).await,
            );
            assert_ne!(first.json()["id"], second.json()["id"]);
            assert_eq!(runtime.stats().started, 4);
        })
        .unwrap();
}

#[tokio::test]
async fn a_webhook_is_published_byte_for_byte() {
    let runtime = code(Runtime::volatile()).start().await.unwrap();
    let app = app(&runtime);
    let inbox = runtime
        .broker()
        .subscribe::<String>("shop.news", SubscriptionConfig::default())
        .unwrap();
    let sent = (
        vec![("webhook-id", "n-1".to_owned())],
        " {\"a\":  1}\r\n".to_owned(),
    );
    let told = post(&app, "/hooks/news", &sent).await;
    assert_eq!(told.json(), json!({"published": true}));
    let envelope = inbox.into_receiver().recv().await.unwrap();
    assert_eq!((envelope.payload(), envelope.key()), (&sent.1, Some("n-1")));
}

/// Its sender had named it, and it was done again each time that it was sent.
#[tokio::test]
async fn a_webhook_whose_id_is_none_is_refused_and_not_taken_for_a_new_one() {
    let runtime = code(Runtime::volatile()).start().await.unwrap();
    let app = app(&runtime);
    let id = |id: &str| ("idempotency-key", id.to_owned());
    for headers in [vec![id("")], vec![id(&"x".repeat(256))], vec![id("a"), id("a")]] {
        let refused = post(&app, "/hooks/open", &(headers, r#"{"number": 4}"#.to_owned())).await;
        assert_eq!(refused.json()["type"], "urn:millrun:problem:webhook");
    }
    assert_eq!(runtime.stats().started, 0);
    runtime.shutdown().await.unwrap();
}

/// A webhook for a topic without room waited for as long as its sender did, and each that was sent again waited beside it
/// with its body.
#[test]
fn a_webhook_that_finds_no_room_at_its_topic_is_refused_in_time() {
    let world = SimHost::new(SimConfig::seeded(5));
    let builder = code(Runtime::volatile()).host(world.host());
    world
        .block_on(async {
            let runtime = builder.start().await.unwrap();
            let app = app(&runtime);
            let mut config = SubscriptionConfig::default();
            config.inbox.capacity = 1;
            let inbox = runtime.broker().subscribe::<String>("shop.news", config).unwrap();
            let sent = (vec![("webhook-id", "n-1".to_owned())], "first".to_owned());
            let told = post(&app, "/hooks/news", &sent).await;
            assert_eq!(told.json(), json!({"published": true}));
            let began = runtime.host().now();
            let told = post(&app, "/hooks/news", &sent).await;
            assert_eq!(told.status, StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(told.json()["type"], "urn:millrun:problem:topic-full");
            let waited = runtime.host().now().saturating_since(began);
            assert_eq!(waited.as_secs(), 5, "by the host's clock");
            drop(inbox);
            runtime.shutdown().await.unwrap();
        })
        .unwrap();
}

#[tokio::test]
async fn a_webhook_signals_once_however_often_it_is_sent_and_starts_what_it_is_for() {
    let runtime = code(Runtime::volatile()).start().await.unwrap();
    let app = app(&runtime);
    let sent = |id: &str, value: u64| (vec![("webhook-id", id.to_owned())], value.to_string());
    let early = post(&app, "/hooks/signal", &sent("w-0", 1)).await;
    assert_eq!((early.status.as_u16(), early.code().as_str()), (404, "not-found"));
    for (path, id, value) in [
        ("begin", "w-1", 10),
        ("begin", "w-2", 100),
        ("signal", "w-3", 1_000),
    ] {
        let path = format!("/hooks/{path}");
        let webhook = sent(id, value);
        let all = join_all((0..100).map(|_| post(&app, &path, &webhook))).await;
        assert!(
            all.iter().all(|answer| answer.status == StatusCode::OK),
            "{}",
            all[0].text
        );
    }
    assert_eq!(runtime.stats().started, 1);
    let run = runtime.attach(ADD_UP, "sum").unwrap();
    assert_eq!(run.result().await.unwrap(), 1_110);
    // It has ended, and a webhook that it has had is still known.
    for path in ["/hooks/signal", "/hooks/begin"] {
        assert_eq!(post(&app, path, &sent("w-3", 1_000)).await.status, StatusCode::OK);
        let new = post(&app, path, &sent("w-4", 1)).await;
        assert_eq!(new.status, StatusCode::CONFLICT, "{}", new.text);
    }
}

#[tokio::test]
async fn a_webhook_that_is_sent_again_is_published_to_a_durable_topic_once() {
    let runtime = Runtime::volatile().durable_topic(PLACED).start().await.unwrap();
    let publishes = |webhook: &millrun_http::Webhook<'_>| {
        let order = Payload::encode(&webhook.json::<Value>()?);
        let order = order.map_err(|error| RefusedWebhook::because(error.to_string()))?;
        Ok(Reaction::publish_untyped("orders.placed", order))
    };
    let hook = Hook::post("/orders").unsigned().then(publishes);
    let console = Console::new(&runtime, Access::read_only()).hook(hook);
    let app = console.expose_durable(PLACED).unwrap().router();
    for (id, order, status) in [
        ("m1", "7", 200),
        ("m1", "7", 200),
        ("m2", "8", 200),
        ("m3", "\"x\"", 400),
    ] {
        let sent = (vec![("webhook-id", id.to_owned())], order.to_owned());
        let answer = post(&app, "/hooks/orders", &sent).await;
        assert_eq!(answer.status.as_u16(), status, "{id}: {}", answer.text);
    }
    let page = crate::support::get(&app, "/v1/topics/orders.placed/records")
        .await
        .json();
    let told = |at: usize| {
        (
            page["records"][at]["payload"]["value"].clone(),
            page["records"][at]["key"].clone(),
        )
    };
    assert_eq!(
        [told(0), told(1)],
        [(json!(7), json!("m1")), (json!(8), json!("m2"))]
    );
    assert_eq!(page["records"].as_array().unwrap().len(), 2);
}
