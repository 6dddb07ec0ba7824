//! Records that an earlier program has published, of which today's knows more fields.

use millrun::topics::ReadFrom;
use millrun::{DurableTopic, Topic, Workflow, WorkflowContext, WorkflowError};
use serde::{Deserialize, Serialize};

use super::take;
use crate::support::Store;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct EarlierOrder {
    number: u64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    number: u64,
    #[serde(default = "euros")]
    currency: String,
}

fn euros() -> String {
    "EUR".into()
}

const EARLIER: DurableTopic<EarlierOrder> = Topic::named("orders").durable();
const TODAY: DurableTopic<Order> = Topic::named("orders").durable();
const TAKE: Workflow<(), Order> = Workflow::named("take");

async fn take_first(cx: WorkflowContext, (): ()) -> Result<Order, WorkflowError> {
    Ok(cx.receive_from(TODAY).from_beginning().await?.into_payload())
}

fn order(number: u64, currency: &str) -> Order {
    let currency = currency.into();
    Order { number, currency }
}

#[tokio::test]
async fn records_of_an_earlier_program_are_read_by_todays_and_its_own_by_the_earlier_one() {
    let store = Store::new();
    let runtime = store.bare().durable_topic(EARLIER).start().await.unwrap();
    let topic = runtime.durable_topic(EARLIER).unwrap();
    topic.publish(&EarlierOrder { number: 1 }).await.unwrap();
    topic.publish(&EarlierOrder { number: 2 }).await.unwrap();
    let billing = topic.subscribe("billing").await.unwrap();
    billing.next().await.unwrap().ack().unwrap().await.unwrap();
    runtime.shutdown().await.unwrap();

    let builder = store.bare().durable_topic(TODAY).register(TAKE, take_first);
    let runtime = builder.start().await.unwrap();
    let topic = runtime.durable_topic(TODAY).unwrap();
    topic.publish(&order(3, "CHF")).await.unwrap();
    let mut reader = topic.read(ReadFrom::Beginning).await.unwrap();
    let read = take(&mut reader, 3).await.into_iter();
    let read: Vec<Order> = read.map(|record| record.into_payload()).collect();
    assert_eq!(read, [order(1, "EUR"), order(2, "EUR"), order(3, "CHF")]);
    let billing = topic.subscribe("billing").await.unwrap();
    assert_eq!(*billing.next().await.unwrap().payload(), order(2, "EUR"));
    let run = runtime.start(TAKE, "t", ()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), order(1, "EUR"));
    runtime.shutdown().await.unwrap();

    // A deployment that is taken back.
    let runtime = store.bare().durable_topic(EARLIER).start().await.unwrap();
    let topic = runtime.durable_topic(EARLIER).unwrap();
    let mut reader = topic.read(ReadFrom::Beginning).await.unwrap();
    let read = take(&mut reader, 3).await.into_iter();
    let numbers: Vec<u64> = read.map(|record| record.payload().number).collect();
    assert_eq!(numbers, [1, 2, 3]);
    runtime.shutdown().await.unwrap();
}
