//! Durable topics over HTTP: what is published is durable when it is answered, and is read and tailed from any place.

use std::collections::BTreeSet;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use millrun::{DurableTopic, Runtime, Topic, Workflow, WorkflowContext, WorkflowError};
use millrun_http::{Access, Console, ExposeError, RECORDS_BYTES_MAX, Redaction};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::client::Client;
use crate::support::{Answer, get, send};

const PLACED: DurableTopic<u64> = Topic::named("orders.placed").durable();
const PAGE: &str = "/v1/topics/orders.placed/records";
const TAIL: &str = "/v1/topics/orders.placed/tail";
const SUBSCRIPTIONS: &str = "/v1/topics/orders.placed/subscriptions";
const PUBLISH: &str = "/v1/topics/orders.placed/publish";
const SELL: Workflow<u64, ()> = Workflow::named("sell");

async fn sell(cx: WorkflowContext, order: u64) -> Result<(), WorkflowError> {
    cx.publish(PLACED, order).await?;
    Ok(())
}

async fn volatile() -> (Runtime, Router) {
    let builder = Runtime::volatile().register(SELL, sell).durable_topic(PLACED);
    let runtime = builder.start().await.unwrap();
    let app = app(&runtime);
    (runtime, app)
}

fn app(runtime: &Runtime) -> Router {
    let console = Console::new(runtime, Access::operator());
    console.expose_durable(PLACED).unwrap().router()
}

async fn post(app: &Router, path: &str, key: Option<&str>, body: Value) -> Answer {
    let mut request = Request::post(path).header("content-type", "application/json");
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    send(app, request.body(Body::from(body.to_string())).unwrap()).await
}

/// Publishes these numbers, and gives their tokens.
async fn publish(app: &Router, numbers: std::ops::RangeInclusive<u64>) -> Vec<String> {
    let mut tokens = Vec::new();
    for number in numbers {
        let published = post(app, PUBLISH, None, json!({"value": number})).await;
        assert_eq!(published.status, StatusCode::OK, "{}", published.text);
        tokens.push(published.json()["token"].as_str().unwrap().to_owned());
    }
    tokens
}

fn values(page: &Value) -> Vec<u64> {
    let records = page["records"].as_array().unwrap().iter();
    let values = records.map(|record| record["payload"]["value"].as_u64().unwrap());
    values.collect()
}

async fn next_value(client: &mut Client) -> u64 {
    let received = client.next().await.unwrap();
    assert_eq!(received.kind.as_deref(), Some("message"), "{received:?}");
    assert_eq!(received.id.as_deref(), received.data["token"].as_str());
    received.data["payload"]["value"].as_u64().unwrap()
}

fn encoded(token: &str) -> String {
    token.replace('+', "%2B").replace('/', "%2F")
}

#[tokio::test]
async fn each_durable_topic_is_listed_with_what_is_kept_of_it() {
    const AUDIT: DurableTopic<String> = Topic::named("audit")
        .durable()
        .len_max(7)
        .bytes_max(4_096)
        .unread_bytes_max(9_000);
    let builder = Runtime::volatile().durable_topic(PLACED).durable_topic(AUDIT);
    let runtime = builder.start().await.unwrap();
    let app = app(&runtime);
    publish(&app, 1..=3).await;
    let told = get(&app, "/v1/topics").await.json();
    assert_eq!(told["topics"], json!([]));
    assert_eq!(
        told["durable"][0],
        json!({
            "name": "audit",
            "is_exposed": false,
            "payload": null,
            "retention": {"age_max_us": 604_800_000_000_u64, "bytes_max": 4_096, "len_max": 7, "unread_bytes_max": 9_000},
            "first": 1,
            "last": 0,
            "first_at_us": null,
            "last_at_us": null,
            "records": 0,
            "bytes": 0,
        })
    );
    let placed = &told["durable"][1];
    assert_eq!(
        (&placed["is_exposed"], &placed["payload"]),
        (&true.into(), &"u64".into())
    );
    assert_eq!(
        (&placed["first"], &placed["last"], &placed["records"]),
        (&1.into(), &3.into(), &3.into())
    );
    let page = get(&app, PAGE).await.json();
    assert_eq!(
        (&placed["first_at_us"], &placed["last_at_us"]),
        (&page["records"][0]["at_us"], &page["records"][2]["at_us"])
    );
    let bytes = runtime.stats().journal.topic_bytes;
    assert!(bytes > 0);
    assert_eq!(placed["bytes"], bytes);
    let metrics = get(&app, "/metrics").await.text;
    for expected in [
        "millrun_store_topics 2.0".to_owned(),
        format!("millrun_store_topic_records_bytes {bytes}.0"),
        "millrun_durable_topic_last{topic=\"orders.placed\"} 3.0".to_owned(),
        format!("millrun_durable_topic_records_bytes{{topic=\"orders.placed\"}} {bytes}.0"),
    ] {
        assert!(
            metrics.lines().any(|line| line == expected),
            "{expected}: {metrics}"
        );
    }
    let stats = get(&app, "/v1/stats").await.json();
    assert_eq!(
        (&stats["journal"]["topics"], &stats["journal"]["topic_bytes"]),
        (&2.into(), &bytes.into())
    );
    let secret = get(&app, "/v1/topics/audit/records").await;
    assert_eq!(secret.code(), "no-topic", "it is not exposed");
}

#[tokio::test]
async fn a_publish_is_answered_with_its_place_and_said_to_be_a_repeat_when_it_comes_again() {
    let (runtime, app) = volatile().await;
    let body = json!({
        "value": u64::MAX, "key": "tea", "id": "event-1", "correlation": "cart-7", "content_type": "text/plain",
    });
    let first = post(&app, PUBLISH, Some("other"), body.clone()).await.json();
    assert_eq!(
        (&first["sequence"], &first["is_repeat"]),
        (&1.into(), &false.into())
    );
    let again = post(&app, PUBLISH, None, body).await.json();
    assert_eq!(
        (&again["token"], &again["is_repeat"]),
        (&first["token"], &true.into())
    );
    // The header is the id where the body has none.
    for (key, sequence, is_repeat) in [
        ("event-1", 1, true),
        ("\"event-2\"", 2, false),
        ("event-2", 2, true),
    ] {
        let told = post(&app, PUBLISH, Some(key), json!({"value": 7})).await.json();
        assert_eq!(
            (&told["sequence"], &told["is_repeat"]),
            (&sequence.into(), &is_repeat.into()),
            "{key}"
        );
    }
    let run = runtime.start(SELL, "s", 9).await.unwrap();
    run.result().await.unwrap();

    let page = get(&app, PAGE).await.json();
    assert_eq!(values(&page), [u64::MAX, 7, 9]);
    let record = &page["records"][0];
    for (field, expected) in [
        ("token", &first["token"]),
        ("sequence", &1.into()),
        ("key", &"tea".into()),
        ("correlation", &"cart-7".into()),
        ("content_type", &"text/plain".into()),
        ("cause", &Value::Null),
    ] {
        assert_eq!(&record[field], expected, "{field}");
    }
    let of_run = &page["records"][2];
    assert_eq!(
        (of_run["key"].as_str(), of_run["cause"]["run"].as_str()),
        (Some("s"), Some(run.run_id().unwrap().to_string().as_str()))
    );
}

#[tokio::test]
async fn what_cannot_be_done_with_a_durable_topic_is_told_as_a_problem() {
    const OTHER: DurableTopic<u64> = Topic::named("orders.paid").durable();
    const PRICES: Topic<u64> = Topic::named("shop.prices");
    let builder = Runtime::volatile().durable_topic(PLACED).durable_topic(OTHER);
    let runtime = builder.start().await.unwrap();
    let console = Console::new(&runtime, Access::operator());
    let console = console.expose_durable(PLACED).unwrap();
    let app = console
        .expose_durable(OTHER)
        .unwrap()
        .expose(PRICES)
        .unwrap()
        .router();
    let [token] = &publish(&app, 1..=1).await[..] else {
        panic!("one was published");
    };
    let other = post(&app, "/v1/topics/orders.paid/publish", None, json!({"value": 1})).await;
    let other = encoded(other.json()["token"].as_str().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = Runtime::open(folder.path().join("b.redb")).durable_topic(PLACED);
    let elsewhere = elsewhere.start().await.unwrap();
    let elsewhere = encoded(&publish(&self::app(&elsewhere), 1..=1).await[0]);
    // The last byte is the last of the sequence's number.
    let not_yet = encoded(&format!("{}z", &token[..27]));
    for (parameter, status, code) in [
        ("after=7".to_owned(), 400, "record-token"),
        (format!("after={}", &token[1..]), 400, "record-token"),
        ("from=yesterday".to_owned(), 400, "record-token"),
        (format!("after={other}"), 409, "other-topic"),
        (format!("from={elsewhere}"), 409, "other-store"),
        (format!("after={not_yet}"), 409, "record-not-yet"),
        ("limit=0".to_owned(), 400, "invalid-query"),
        (format!("from=now&after={}", encoded(token)), 400, "invalid-query"),
        ("wait_ms=7".to_owned(), 400, "invalid-query"),
    ] {
        for path in [PAGE, TAIL] {
            let answer = get(&app, &format!("{path}?{parameter}")).await;
            assert_eq!(
                (answer.status.as_u16(), answer.code().as_str()),
                (status, code),
                "{path} {parameter}"
            );
        }
    }
    for (path, code) in [
        ("/v1/topics/nothing/records", "no-topic"),
        ("/v1/topics/shop.prices/records", "not-durable"),
        ("/v1/topics/shop.prices/subscriptions", "not-durable"),
        ("/v1/topics/nothing/subscriptions", "no-topic"),
        ("/v1/topics/orders.placed/subscriptions?limit=0", "invalid-query"),
        ("/v1/topics/shop.prices/tail?from=beginning", "invalid-query"),
    ] {
        assert_eq!(get(&app, path).await.code(), code, "{path}");
    }
    let long = "x".repeat(1_025);
    for (path, body, code) in [
        (PUBLISH, json!({"value": "dear"}), "payload"),
        (PUBLISH, json!({"value": 1, "key": long}), "invalid-body"),
        (PUBLISH, json!({"value": 1, "id": long}), "invalid-body"),
        (PUBLISH, json!({"value": 1, "ids": "x"}), "invalid-body"),
        (
            "/v1/topics/shop.prices/publish",
            json!({"value": 1, "id": "x"}),
            "invalid-body",
        ),
    ] {
        assert_eq!(post(&app, path, None, body.clone()).await.code(), code, "{body}");
    }
    let two = post(&app, PUBLISH, Some("a b"), json!({"value": 1})).await;
    assert_eq!(two.code(), "invalid-key");
    let in_memory = Console::new(&runtime, Access::operator()).expose(PLACED.topic());
    assert_eq!(
        in_memory.unwrap_err(),
        ExposeError::Durable {
            name: "orders.placed"
        }
    );
    let undeclared = Console::new(&runtime, Access::read_only());
    assert!(
        undeclared
            .expose_durable(Topic::<u64>::named("x").durable())
            .is_err()
    );
    assert_eq!(values(&get(&app, PAGE).await.json()), [1], "nothing was added");
    runtime.shutdown().await.unwrap();
    for answer in [
        get(&app, &format!("{TAIL}?from=beginning")).await,
        get(&app, PAGE).await,
        get(&app, "/v1/topics").await,
        get(&app, SUBSCRIPTIONS).await,
        post(&app, PUBLISH, None, json!({"value": 1})).await,
    ] {
        assert_eq!(answer.code(), "stopped");
    }
}

#[tokio::test]
async fn pages_lead_through_all_records_once_and_begin_where_they_are_asked_to() {
    let (_runtime, app) = volatile().await;
    let tokens = publish(&app, 1..=7).await;
    let (mut seen, mut query) = (Vec::new(), "?limit=3".to_owned());
    loop {
        let page = get(&app, &format!("{PAGE}{query}")).await.json();
        assert_eq!(page["gaps"], json!([]));
        let read = values(&page);
        assert!(read.len() <= 3, "{page}");
        seen.extend(read);
        let Some(next) = page["next"].as_str() else { break };
        query = next.to_owned();
    }
    assert_eq!(seen, (1..=7).collect::<Vec<_>>());
    let time_of = |page: &Value, at: usize| page["records"][at]["at_us"].as_u64().unwrap();
    let all = get(&app, PAGE).await.json();
    let hour_us = 3_600_000_000;
    for (query, first) in [
        ("from=beginning".to_owned(), 1),
        (format!("after={}", encoded(&tokens[4])), 6),
        (format!("from={}", encoded(&tokens[4])), 6),
        (format!("from={}", time_of(&all, 0)), 1),
        (format!("from={}", time_of(&all, 6) + hour_us), 8),
        ("from=now".to_owned(), 8),
        ("from=last:2".to_owned(), 6),
        (format!("after={}", encoded(&tokens[6])), 8),
    ] {
        let page = get(&app, &format!("{PAGE}?{query}")).await.json();
        assert_eq!(values(&page), (first..=7).collect::<Vec<_>>(), "{query}");
        assert_eq!(page["next"], Value::Null, "{query}");
    }
}

#[tokio::test]
async fn a_page_ends_behind_the_record_that_reaches_its_bytes() {
    const TEXTS: DurableTopic<String> = Topic::named("texts").durable();
    let runtime = Runtime::volatile().durable_topic(TEXTS).start().await.unwrap();
    let console = Console::new(&runtime, Access::read_only());
    let app = console.expose_durable(TEXTS).unwrap().router();
    let topic = runtime.durable_topic(TEXTS).unwrap();
    let text = "x".repeat(RECORDS_BYTES_MAX / 4);
    for _ in 0..6 {
        topic.publish(&text).await.unwrap();
    }
    let first = get(&app, "/v1/topics/texts/records").await.json();
    let next = first["next"].as_str().unwrap();
    let second = get(&app, &format!("/v1/topics/texts/records{next}")).await.json();
    let lens = [&first, &second].map(|page| page["records"].as_array().unwrap().len());
    assert_eq!((lens, &second["next"]), ([4, 2], &Value::Null));
}

#[tokio::test]
async fn a_tail_begins_where_it_is_asked_to_and_goes_on_with_what_comes() {
    let (runtime, app) = volatile().await;
    let tokens = publish(&app, 1..=3).await;
    for (query, first) in [
        (String::new(), 4),
        ("?from=now".to_owned(), 4),
        ("?from=beginning".to_owned(), 1),
        ("?from=0".to_owned(), 1),
        (format!("?after={}", encoded(&tokens[1])), 3),
    ] {
        let mut client = Client::connect(&app, &format!("{TAIL}{query}"), None).await;
        let here = get(&app, PAGE).await.json()["records"].as_array().unwrap().len() as u64;
        let first = if first == 4 { here + 1 } else { first };
        publish(&app, here + 1..=here + 1).await;
        for expected in first..=here + 1 {
            assert_eq!(next_value(&mut client).await, expected, "{query}");
        }
    }
    let client = Client::connect(&app, &format!("{TAIL}?from=beginning&limit=2"), None).await;
    let limited = client.rest().await;
    assert_eq!(limited.len(), 2, "{limited:?}");
    let waits = Client::connect(&app, TAIL, None).await;
    let (rest, stopped) = tokio::join!(waits.rest(), runtime.shutdown());
    stopped.unwrap();
    assert_eq!(rest.len(), 1);
    assert_eq!(rest[0].data["type"], "urn:millrun:problem:stopped");
}

#[tokio::test]
async fn a_client_goes_on_without_loss_or_repeat_behind_a_restart_of_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let mut last: Option<String> = None;
    let mut seen = Vec::new();
    for life in 0..3 {
        let builder = Runtime::open(folder.path().join("app.redb")).durable_topic(PLACED);
        let runtime = builder.start().await.unwrap();
        let app = app(&runtime);
        // Of five records the client sees three, so that it is further and further behind.
        publish(&app, life * 5 + 1..=life * 5 + 5).await;
        let mut client = Client::connect(&app, &format!("{TAIL}?from=beginning"), last.as_deref()).await;
        for _ in 0..3 {
            let received = client.next().await.unwrap();
            seen.push(received.data["payload"]["value"].as_u64().unwrap());
            last = received.id;
        }
        drop(client);
        runtime.shutdown().await.unwrap();
    }
    assert_eq!(seen, (1..=9).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_retention_dropped_is_told_with_its_number_and_once() {
    const FEW: DurableTopic<u64> = Topic::named("few").durable().len_max(2);
    let runtime = Runtime::volatile().durable_topic(FEW).start().await.unwrap();
    let console = Console::new(&runtime, Access::read_only());
    let app = console.expose_durable(FEW).unwrap().router();
    let topic = runtime.durable_topic(FEW).unwrap();
    let first = topic.publish(&1).await.unwrap().token().to_string();
    for number in 2..=9 {
        topic.publish(&number).await.unwrap();
    }
    let kept = runtime.durable_topics()[0].first;
    assert!(kept > 2, "retention drops something: {kept}");
    let lost = kept - 2;
    let mut client = Client::connect(&app, "/v1/topics/few/tail", Some(&first)).await;
    let gap = client.next().await.unwrap();
    assert_eq!(gap.kind.as_deref(), Some("gap"));
    let fields = ["after", "lost", "why"].map(|field| gap.data[field].clone());
    assert_eq!(fields, [json!(1), json!(lost), json!("dropped")]);
    // A client that has seen the gap is not told of it again.
    let mut client = Client::connect(&app, "/v1/topics/few/tail", gap.id.as_deref()).await;
    assert_eq!(client.next().await.unwrap().data["sequence"], kept);

    let path = format!("/v1/topics/few/records?after={}", encoded(&first));
    let page = get(&app, &path).await.json();
    assert_eq!(
        (&page["gaps"][0]["after"], &page["gaps"][0]["lost"]),
        (&1.into(), &lost.into())
    );
    assert_eq!(values(&page), (kept..=9).collect::<Vec<_>>());
    // A gap has a place on a page as a record has.
    let page = get(&app, &format!("{path}&limit=1")).await.json();
    assert_eq!(
        (page["gaps"].as_array().unwrap().len(), values(&page).len()),
        (1, 0)
    );
    let next = page["next"].as_str().unwrap();
    let page = get(&app, &format!("/v1/topics/few/records{next}")).await.json();
    assert_eq!((values(&page), &page["gaps"]), (vec![kept], &json!([])));
}

/// Its body is asked for the next frames only when the client has taken the last ones.
#[tokio::test]
async fn a_client_that_takes_nothing_holds_up_no_publisher_and_misses_nothing() {
    const LEN: u64 = 3_000;
    let runtime = Runtime::volatile()
        .configure(|config| config.topic_page_bytes_max = 1_024)
        .durable_topic(PLACED)
        .start()
        .await
        .unwrap();
    let app = app(&runtime);
    let mut client = Client::connect(&app, TAIL, None).await;
    let topic = runtime.durable_topic(PLACED).unwrap();
    let publishes = (1..=LEN).map(|number| {
        let topic = topic.clone();
        async move { topic.publish(&number).await.unwrap() }
    });
    futures_util::future::join_all(publishes).await;
    let mut seen = BTreeSet::new();
    for _ in 0..LEN {
        assert!(seen.insert(next_value(&mut client).await), "none comes twice");
    }
    assert_eq!((seen.first(), seen.last()), (Some(&1), Some(&LEN)));
}

#[tokio::test]
async fn records_are_shown_as_they_are_recorded_without_the_fields_that_are_hidden() {
    /// As an earlier release of the program had it.
    #[derive(Serialize, Deserialize)]
    struct Card {
        number: String,
        holder: String,
    }
    #[derive(Serialize, Deserialize)]
    struct Holder {
        holder: String,
    }
    const CARDS: DurableTopic<Card> = Topic::named("cards").durable();
    const HOLDERS: DurableTopic<Holder> = Topic::named("cards").durable();
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("app.redb");
    let runtime = Runtime::open(&store).durable_topic(CARDS).start().await.unwrap();
    let card = Card {
        number: "4111".into(),
        holder: "ada".into(),
    };
    runtime
        .durable_topic(CARDS)
        .unwrap()
        .publish(&card)
        .await
        .unwrap();
    runtime.shutdown().await.unwrap();

    let runtime = Runtime::open(&store)
        .durable_topic(HOLDERS)
        .start()
        .await
        .unwrap();
    let console = Console::new(&runtime, Access::read_only());
    let console = console.expose_durable(HOLDERS).unwrap();
    let page = |console: Console| async move {
        let page = get(&console.router(), "/v1/topics/cards/records").await.json();
        page["records"][0]["payload"]["value"].clone()
    };
    assert_eq!(
        page(console.clone()).await,
        json!({"number": "4111", "holder": "ada"})
    );
    let hidden = console.redact(Redaction::of(["number"]).unwrap());
    let shown = json!({"number": "(redacted)", "holder": "ada"});
    assert_eq!(page(hidden.clone()).await, shown);
    let path = "/v1/topics/cards/tail?from=beginning";
    let tailed = Client::connect(&hidden.router(), path, None)
        .await
        .next()
        .await
        .unwrap();
    assert_eq!(tailed.data["payload"]["value"], shown);
}

#[tokio::test]
async fn how_far_behind_each_subscription_is_stands_in_the_api_and_that_of_open_ones_in_the_metrics() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("app.redb");
    let runtime = Runtime::open(&store).durable_topic(PLACED).start().await.unwrap();
    let app = app(&runtime);
    publish(&app, 1..=5).await;
    let topic = runtime.durable_topic(PLACED).unwrap();
    let billing = topic.subscribe("billing").await.unwrap();
    billing.next().await.unwrap().ack().unwrap().await.unwrap();
    let delivery = billing.next().await.unwrap();
    drop(topic.subscribe("audit").await.unwrap());

    let page = get(&app, &format!("{SUBSCRIPTIONS}?limit=1")).await.json();
    assert_eq!(page["subscriptions"][0]["name"], "audit");
    let next = page["next"].as_str().unwrap();
    let page = get(&app, &format!("{SUBSCRIPTIONS}{next}")).await.json();
    let records = get(&app, PAGE).await.json();
    assert_eq!(
        page,
        json!({"next": null, "subscriptions": [{
            "name": "billing", "is_open": true, "lag": 4, "dropped": 0, "acknowledged_through": 1,
            "oldest": 2, "oldest_at_us": records["records"][1]["at_us"], "held_keys": 0, "in_hand": 4, "leased": 1,
            "returned": 0, "missed": 0, "undelivered": 0, "undelivered_to": null, "problem": null,
        }]})
    );
    let metrics = get(&app, "/metrics").await.text;
    for (metric, value) in [("lag", 4), ("in_hand", 4)] {
        let expected = format!(
            "millrun_durable_subscription_{metric}{{subscription=\"orders.placed/billing\"}} {value}.0"
        );
        assert!(metrics.contains(&expected), "{expected}: {metrics}");
    }
    assert!(!metrics.contains("orders.placed/audit"), "nobody has it open");
    drop(delivery);
    runtime.shutdown().await.unwrap();

    let runtime = Runtime::open(&store).durable_topic(PLACED).start().await.unwrap();
    let app = self::app(&runtime);
    let page = get(&app, SUBSCRIPTIONS).await.json();
    for (at, name, lag, oldest) in [(0, "audit", 5, 1), (1, "billing", 4, 2)] {
        let told = &page["subscriptions"][at];
        assert_eq!(
            (&told["name"], &told["is_open"], &told["lag"], &told["oldest"]),
            (&name.into(), &false.into(), &lag.into(), &oldest.into())
        );
    }
}

#[tokio::test]
async fn an_operator_purges_and_deletes_a_topic_and_removes_a_subscription() {
    let (runtime, app) = volatile().await;
    let topic = runtime.durable_topic(PLACED).unwrap();
    let billing = topic.subscribe("billing").await.unwrap();
    let shipping = topic.subscribe("shipping").await.unwrap();
    let tokens = publish(&app, 1..=5).await;
    for subscription in [&billing, &shipping] {
        subscription.next().await.unwrap().ack().unwrap().await.unwrap();
    }
    let path = |what: &str| format!("/v1/topics/orders.placed/{what}");
    for (body, told) in [
        (json!({"before": 2}), json!({"purged": 1, "first": 2})),
        (json!({"token": tokens[3]}), json!({"purged": 2, "first": 4})),
        (json!({"before": 2}), json!({"purged": 0, "first": 4})),
    ] {
        let purged = post(&app, &path("purge"), None, body).await;
        assert_eq!(purged.json(), told);
    }
    assert_eq!(values(&get(&app, PAGE).await.json()), [4, 5]);
    let remove = path("remove_subscription");
    let removed = post(&app, &remove, None, json!({"name": "billing"}));
    assert_eq!(removed.await.json(), json!({"removed": true}));
    for (what, body, code) in [
        (
            "remove_subscription",
            json!({"name": "billing"}),
            "no-subscription",
        ),
        ("purge", json!({"before": 1, "token": tokens[0]}), "invalid-body"),
        ("purge", json!({"token": "x"}), "record-token"),
        ("delete", json!({"name": "x"}), "invalid-body"),
    ] {
        let refused = post(&app, &path(what), None, body).await;
        assert_eq!(refused.code(), code, "{what}");
    }
    let purged = post(&app, &path("purge"), None, json!({})).await;
    assert_eq!(purged.json(), json!({"purged": 2, "first": 6}));
    let deleted = post(&app, &path("delete"), None, json!({})).await;
    assert_eq!(deleted.json(), json!({"deleted": 0, "subscriptions": 1}));
    for what in ["purge", "delete"] {
        let refused = post(&app, &path(what), None, json!({})).await;
        assert_eq!(
            (refused.status, refused.code()),
            (StatusCode::NOT_FOUND, "no-topic".to_owned())
        );
    }
}
