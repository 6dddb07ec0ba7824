//! Orders: runs that a trigger starts and a record lets go on, an activity with an output stream, and an entity that runs and a
//! trigger command, with a timer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use millrun::streams::{AttemptEnd, StreamAttempt, StreamItem};
use millrun::topics::{DurableRecord, DurableTopicHandle, ReadFrom};
use millrun::{
    Activity, ActivityContext, ActivityError, DurableTopic, Entity, EntityCommand, EntityState, OutputStream,
    Query, Retry, Runtime, RuntimeBuilder, Topic, Workflow, WorkflowContext, WorkflowError,
};

use super::ledger::{Deed, Ledger};

pub(super) const ORDERS: u64 = 3;
/// What a trigger adds to the number of a payment, so that its commands are told from those of the orders.
const BOOKED: u64 = 100;

const PLACED: DurableTopic<u64> = Topic::named("orders.placed").durable();
const PAID: DurableTopic<u64> = Topic::named("orders.paid").durable();
const COUNTED: DurableTopic<u64> = Topic::named("counted").durable();
/// How many numbers were added since the last reminder.
const REMINDED: DurableTopic<u64> = Topic::named("reminded").durable();
const ORDER: Workflow<u64, u64> = Workflow::named("order");
const PACK: Activity<u64, ()> = Activity::named("pack");
const LABELS: OutputStream<u64> = OutputStream::named("labels");
const COUNTER: Entity<Count> = Entity::named("counter");
const ADD: EntityCommand<Count, u64, u64> = EntityCommand::named("add");
const REMIND: EntityCommand<Count, (), ()> = EntityCommand::named("remind");
const SUM: Query<Count, (), u64> = Query::named("sum");

#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
struct Count {
    sum: u64,
    since_reminder: u64,
}

#[derive(Debug, serde::Serialize, serde::Deserialize)]
enum CountChange {
    Added(u64),
    Reminded,
}

impl EntityState for Count {
    type Event = CountChange;

    fn begin(_key: &str) -> Self {
        Self::default()
    }

    fn apply(&mut self, change: CountChange) {
        match change {
            CountChange::Added(more) => {
                self.sum += more;
                self.since_reminder += 1;
            }
            CountChange::Reminded => self.since_reminder = 0,
        }
    }
}

async fn order(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    let paid = cx.receive_from(PAID).key(number.to_string()).from_beginning();
    let paid = paid.await?.into_payload();
    let retry = Retry::exponential().first_pause(Duration::from_millis(2));
    cx.call(PACK, number).retry(retry).await?;
    cx.command(COUNTER, "orders", ADD, paid).await?;
    Ok(paid)
}

/// Sends three chunks, and fails behind them the first time.
async fn pack(cx: ActivityContext, ledger: Arc<Ledger>) -> Result<(), ActivityError> {
    let labels = cx.durable_stream(LABELS).await?;
    let tried = {
        let chunks = &mut ledger.book().chunks;
        let tried = chunks.len() as u64;
        chunks.insert(tried, Vec::new());
        tried
    };
    let chunk = |nth: u64| tried * 10 + nth;
    let acknowledge = |nth: u64| {
        let mut book = ledger.book();
        book.chunks.get_mut(&tried).unwrap().push(chunk(nth));
    };
    labels.send(&chunk(0)).await?;
    acknowledge(0);
    labels.send_ahead(&chunk(1)).await?;
    labels.send_ahead(&chunk(2)).await?;
    labels.flush().await?;
    acknowledge(1);
    acknowledge(2);
    match cx.attempt() {
        1 => Err(ActivityError::retryable("not yet")),
        _ => Ok(()),
    }
}

pub(super) fn register(builder: RuntimeBuilder, ledger: &Arc<Ledger>) -> RuntimeBuilder {
    let counter = COUNTER
        .command(ADD, |count: &Count, more: u64, cx| {
            cx.emit(CountChange::Added(more));
            cx.publish(COUNTED, more);
            cx.set_timer_in(REMIND, Duration::from_millis(3));
            Ok(count.sum + more)
        })
        .command(REMIND, |count, (), cx| {
            cx.publish(REMINDED, count.since_reminder);
            cx.emit(CountChange::Reminded);
            Ok(())
        })
        .query(SUM, |count, ()| count.sum)
        .snapshot_every(2);
    let ledger = Arc::clone(ledger);
    builder
        .durable_topic(PLACED)
        .durable_topic(PAID)
        .durable_topic(COUNTED)
        .durable_topic(REMINDED)
        .entity(counter)
        .register(ORDER, order)
        .register(PACK, move |cx: ActivityContext, _: u64| {
            pack(cx, Arc::clone(&ledger))
        })
}

/// Places and pays all orders, and consumes what follows from it, until nothing is left.
pub(super) async fn live(runtime: &Runtime, ledger: &Ledger) {
    let placed = runtime.durable_topic(PLACED).unwrap();
    let paid = runtime.durable_topic(PAID).unwrap();
    let orders = placed.trigger("orders").start(ORDER, |record| {
        (format!("order-{}", record.payload()), *record.payload())
    });
    let _orders = orders.await.unwrap();
    let make = |record: &DurableRecord<u64>| ("books".to_owned(), BOOKED + *record.payload());
    let books = paid.trigger("books").command(COUNTER, ADD, make);
    let books = books.await.unwrap();
    let audit = runtime.durable_topics_of::<u64>("orders.>").unwrap();
    let audit = audit.subscribe("audit").await.unwrap();
    for number in 1..=ORDERS {
        let id = number.to_string();
        placed.publish(&number).key(&id).id(&id).await.unwrap();
        paid.publish(&number).key(&id).id(&id).await.unwrap();
    }
    while audit.statuses().iter().any(|(_, status)| status.lag > 0) {
        let delivery = audit.next().await.unwrap();
        let (topic, value) = (delivery.topic().to_owned(), *delivery.payload());
        ledger.give(&topic, value);
        delivery.ack().unwrap().await.unwrap();
        ledger.keep(&topic, value);
    }
    join(bill(runtime, ledger), be_reminded(runtime, ledger)).await;
    ledger.see(Deed::Triggered, books.handled());
    for number in 1..=ORDERS {
        let order = runtime.attach(ORDER, &format!("order-{number}")).unwrap();
        assert_eq!(order.result().await.unwrap(), number);
    }
}

/// Takes what the entity publishes with each command.
async fn bill(runtime: &Runtime, ledger: &Ledger) {
    let counted = runtime.durable_topic(COUNTED).unwrap();
    let billing = counted.subscribe("billing").await.unwrap();
    while billing.status().acknowledged_through.get() < 2 * ORDERS {
        let delivery = billing.next().await.unwrap();
        let value = *delivery.payload();
        ledger.give("counted", value);
        delivery.ack().unwrap().await.unwrap();
        ledger.keep("counted", value);
        ledger.see(Deed::Billed, 1);
    }
}

/// Reads how the timers of the entities have fired: for each number that was added once.
async fn be_reminded(runtime: &Runtime, ledger: &Ledger) {
    let reminded = runtime.durable_topic(REMINDED).unwrap();
    let mut reader = reminded.read(ReadFrom::Beginning).await.unwrap();
    let mut added = 0;
    while added < 2 * ORDERS {
        let since = reader.next().await.unwrap().into_payload();
        assert!(since > 0, "a timer has fired that was not set");
        added += since;
        ledger.see(Deed::Reminded, 1);
    }
    assert_eq!(added, 2 * ORDERS, "a number is reminded of twice");
}

/// Each value is there once, and each chunk.
pub(super) async fn check(runtime: &Runtime, ledger: &Ledger) {
    let topic = |topic| runtime.durable_topic(topic).unwrap();
    for topic in [topic(PLACED), topic(PAID)] {
        assert_eq!(all(&topic).await, (1..=ORDERS).collect::<Vec<_>>());
    }
    let mut counted = all(&topic(COUNTED)).await;
    counted.sort_unstable();
    let (ordered, booked) = (1..=ORDERS, BOOKED + 1..=BOOKED + ORDERS);
    assert_eq!(counted, ordered.clone().chain(booked.clone()).collect::<Vec<_>>());
    assert_eq!(all(&topic(REMINDED)).await.iter().sum::<u64>(), 2 * ORDERS);
    for (key, numbers) in [("orders", ordered), ("books", booked)] {
        let sum = runtime.entity(COUNTER, key).read(SUM, ()).await.unwrap();
        assert_eq!(sum, numbers.sum::<u64>(), "{key}");
    }
    let mut tries = BTreeSet::new();
    for number in 1..=ORDERS {
        let order = runtime.attach(ORDER, &format!("order-{number}")).unwrap();
        let mut reader = order.stream(LABELS).await.unwrap();
        let mut items = Vec::new();
        while let Some(item) = reader.next().await.unwrap() {
            items.push(item);
        }
        tries.extend(check_labels(&items, ledger));
    }
    let book = ledger.book();
    for (tried, acknowledged) in &book.chunks {
        let is_there = tries.contains(tried);
        assert!(is_there || acknowledged.is_empty(), "{acknowledged:?} is lost");
    }
}

/// Attempts begin and end alternately, each with its chunks in between: all that it was told of, once and in order. Which
/// attempts have chunks there.
fn check_labels(items: &[StreamItem<u64>], ledger: &Ledger) -> BTreeSet<u64> {
    let mut under_way: Option<StreamAttempt> = None;
    let mut sent: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for item in items {
        match item {
            StreamItem::Began(attempt) => assert_eq!(under_way.replace(*attempt), None, "{items:?}"),
            StreamItem::Chunk(attempt, chunk) => {
                assert_eq!(under_way, Some(*attempt), "{items:?}");
                sent.entry(chunk / 10).or_default().push(*chunk);
            }
            StreamItem::Ended(attempt, end) => {
                assert_eq!(under_way.take(), Some(*attempt), "{items:?}");
                match end {
                    AttemptEnd::Failed => ledger.see(Deed::AttemptFailed, 1),
                    AttemptEnd::Lost => ledger.see(Deed::AttemptLost, 1),
                    _ => {}
                }
            }
            other => panic!("{other:?} in {items:?}"),
        }
    }
    assert_eq!(under_way, None, "{items:?}");
    let book = ledger.book();
    for (tried, chunks) in &sent {
        let whole: Vec<_> = (0..chunks.len() as u64).map(|nth| tried * 10 + nth).collect();
        assert_eq!(*chunks, whole, "{items:?}");
        assert!(chunks.starts_with(&book.chunks[tried]), "{items:?}");
    }
    sent.into_keys().collect()
}

async fn all(topic: &DurableTopicHandle<u64>) -> Vec<u64> {
    let mut reader = topic.read(ReadFrom::Beginning).await.unwrap();
    let mut values = Vec::new();
    while let Some(record) = reader.next_encoded_now().await.unwrap() {
        values.push(record.payload().decode().unwrap());
    }
    values
}
