//! The demo workflows of `serve`, for trying the page, signals, crashes and searches.
//!
//! ```text
//!   every 10 s  a record of sample.ordered, a durable topic ──► its trigger starts sample-order, under the record's key;
//!               what cannot be started goes to sample.refused
//!               sample-order ── reserve (fails twice, backs off) ── "paid", or 10 minutes ── child ── told on sample.sent
//!                                                                               sample-shipment: a timer, a label
//!   once        sample-stuck ── its code panics: parked, and says why
//!   on demand   sample-shelf ── an entity: put, take, stock
//! ```
//!
//! They are registered whether or not they are started, so that those of an earlier process continue.

use std::error::Error;
use std::time::{Duration, SystemTime};

use millrun::builders::EntityCode;
use millrun::topics::{DurablePublishError, DurableTrigger, UndeliveredRecord};
use millrun::workflow::Either;
use millrun::{
    Activity, ActivityContext, ActivityError, DurableTopic, Entity, EntityCommand, EntityContext,
    EntityState, OutputStream, Query, Retry, Runtime, RuntimeBuilder, Signal, Topic, Workflow,
    WorkflowContext, WorkflowError,
};
use millrun_http::Console;
use serde::{Deserialize, Serialize};

const ORDER: Workflow<Order, String> = Workflow::named("sample-order");
const SHIPMENT: Workflow<String, String> = Workflow::named("sample-shipment");
const STUCK: Workflow<(), ()> = Workflow::named("sample-stuck");
const PAID: Signal<Payment> = Signal::named("paid");
const STATUS: Query<String, (), String> = Query::named("status");
const SENT: Topic<String> = Topic::named("sample.sent");
const ORDERED_NAME: &str = "sample.ordered";
const ORDERED: DurableTopic<Order> = Topic::named(ORDERED_NAME).durable();
/// Orders for which no workflow could be started, because their key is no valid id, for example.
const REFUSED: DurableTopic<UndeliveredRecord> = Topic::named("sample.refused").durable();
const RESERVE: Activity<Order, String> = Activity::named("sample-reserve");
/// What the activities of an order send while they work.
const PROGRESS: OutputStream<String> = OutputStream::named("progress");
const LABEL: Activity<String, String> = Activity::named("sample-label");

const SHELF: Entity<Shelf> = Entity::named("sample-shelf");
const PUT: EntityCommand<Shelf, u64, u64> = EntityCommand::named("put");
const TAKE: EntityCommand<Shelf, u64, u64> = EntityCommand::named("take");
const STOCK: Query<Shelf, (), u64> = Query::named("stock");

/// The pause between two orders.
const EVERY: Duration = Duration::from_secs(10);
/// How long an order waits to be paid, so that no more than some sixty are live.
const PAID_WITHIN: Duration = Duration::from_secs(600);
/// How long a shipment takes.
const ON_ITS_WAY: Duration = Duration::from_secs(30);
/// The instance whose code panics.
const STUCK_ID: &str = "sample-stuck";

/// What is ordered.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Order {
    customer: String,
    cents: u64,
}

/// That it was paid.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Payment {
    by: String,
}

/// The stock on a shelf.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Shelf {
    stock: u64,
}

/// What happens to a shelf.
#[derive(Debug, Serialize, Deserialize)]
enum ShelfEvent {
    Put(u64),
    Taken(u64),
}

impl EntityState for Shelf {
    type Event = ShelfEvent;

    fn begin(_key: &str) -> Self {
        Self::default()
    }

    fn apply(&mut self, event: ShelfEvent) {
        self.stock = match event {
            ShelfEvent::Put(count) => self.stock.saturating_add(count),
            ShelfEvent::Taken(count) => self.stock.saturating_sub(count),
        };
    }
}

fn shelf() -> EntityCode<Shelf> {
    SHELF
        .command(PUT, |shelf, count, cx: &mut EntityContext<'_, Shelf>| {
            cx.emit(ShelfEvent::Put(count));
            Ok(shelf.stock.saturating_add(count))
        })
        .command(TAKE, |shelf, count, cx| {
            let short = || WorkflowError::failed("there are not so many on the shelf");
            let left = shelf.stock.checked_sub(count).ok_or_else(short)?;
            cx.emit(ShelfEvent::Taken(count));
            Ok(left)
        })
        .query(STOCK, |shelf, ()| shelf.stock)
}

/// Registers the workflows.
pub(super) fn register(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder
        .register(ORDER.query(STATUS, |status, ()| status.clone()), order)
        .register(SHIPMENT, shipment)
        .register(STUCK, stuck)
        .register(RESERVE, reserve)
        .register(LABEL, label)
        .entity(shelf())
        .topic(SENT)
        .durable_topic(ORDERED)
        .durable_topic(REFUSED)
}

/// Has the console show what is ordered, and what the workflows publish.
///
/// # Errors
/// When a topic has another type in the program.
pub(super) fn expose(console: Console) -> Result<Console, Box<dyn Error>> {
    Ok(console
        .expose(SENT)?
        .expose_durable(ORDERED)?
        .expose_durable(REFUSED)?)
}

/// Starts an order for each record of the topic of orders, as long as the trigger exists: under the record's key, or a
/// generated one.
///
/// # Errors
/// When the trigger cannot be created.
pub(super) async fn trigger(runtime: &Runtime) -> Result<DurableTrigger, Box<dyn Error>> {
    let ordered = runtime.durable_topic(ORDERED)?;
    let trigger = ordered.trigger("sample-orders").undelivered_to(REFUSED, 3);
    let trigger = trigger.start(ORDER, |record| {
        let id = match record.key() {
            Some(key) => key.to_owned(),
            None => format!("sample-order-{}", record.token()),
        };
        (id, record.payload().clone())
    });
    Ok(trigger.await?)
}

/// Publishes an order every ten seconds, until the topic of orders is deleted. An operator may delete it: the program
/// continues without it, and declares it anew at its next start.
///
/// # Errors
/// When a publish or a start is refused, or the runtime has stopped.
pub(super) async fn start(runtime: &Runtime) -> Result<(), Box<dyn Error>> {
    let ordered = runtime.durable_topic(ORDERED)?;
    runtime.start(STUCK, STUCK_ID, ()).await?;
    loop {
        let seconds = SystemTime::UNIX_EPOCH
            .elapsed()
            .map_or(0, |since| since.as_secs());
        let turn = seconds / EVERY.as_secs();
        let customer = ["ada", "alan", "barbara", "edsger", "grace"][usize::try_from(turn % 5).unwrap_or(0)];
        let order = Order {
            customer: customer.to_owned(),
            cents: 1_000 + turn % 100 * 100,
        };
        // A program that is restarted within these seconds publishes the order only once.
        let id = format!("sample-order-{turn}");
        match ordered.publish(&order).key(&id).id(&id).await {
            Err(DurablePublishError::UnknownTopic) => {
                tracing::warn!(
                    topic = ORDERED_NAME,
                    "no orders are published any more: the topic was deleted"
                );
                return Ok(());
            }
            published => published?,
        };
        tokio::time::sleep(EVERY).await;
    }
}

async fn order(cx: WorkflowContext, order: Order) -> Result<String, WorkflowError> {
    let status = cx.state("reserving".to_owned());
    let patiently = Retry::exponential()
        .first_pause(Duration::from_secs(2))
        .attempts(5);
    let place = cx.call(RESERVE, order.clone()).retry(patiently).await?;
    status.change(|status| "waiting for `paid`".clone_into(status));
    let paid = match cx.race(cx.receive(PAID), cx.sleep(PAID_WITHIN)).await {
        Either::Left(paid) => paid?,
        Either::Right(slept) => {
            slept?;
            return Ok(format!("{} has not paid, {place} is free again", order.customer));
        }
    };
    status.change(|status| "on its way".clone_into(status));
    let id = format!("{}-shipment", cx.instance_id());
    let label = cx.child(SHIPMENT, id, place).await?;
    cx.publish(SENT, label.clone()).await?;
    Ok(format!(
        "{} cents paid by {}, sent as {label}",
        order.cents, paid.by
    ))
}

async fn shipment(cx: WorkflowContext, place: String) -> Result<String, WorkflowError> {
    cx.sleep(ON_ITS_WAY).await?;
    Ok(cx.call(LABEL, place).await?)
}

/// Its code cannot continue, like code with a mistake.
async fn stuck(_cx: WorkflowContext, (): ()) -> Result<(), WorkflowError> {
    panic!("the mistake of the sample: see `millrun why {STUCK_ID}`")
}

/// A warehouse that cannot be reached at first.
async fn reserve(cx: ActivityContext, order: Order) -> Result<String, ActivityError> {
    cx.stream(PROGRESS)?.send("asking the warehouse")?;
    match cx.attempt() {
        attempt @ 1..=2 => Err(ActivityError::retryable(format!(
            "the warehouse does not answer (attempt {attempt})"
        ))),
        _ => Ok(format!("shelf-{}", order.cents % 7)),
    }
}

async fn label(_cx: ActivityContext, place: String) -> Result<String, ActivityError> {
    Ok(format!("label-of-{place}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The program once ended when an operator deleted the topic.
    #[tokio::test]
    async fn orders_end_without_an_error_when_their_topic_is_deleted() {
        let runtime = register(Runtime::volatile()).start().await.unwrap();
        runtime.delete_durable_topic(ORDERED_NAME).await.unwrap();
        start(&runtime).await.unwrap();
    }
}
