//! What commands begin, and workflows and entities that reach each other.

use std::time::Duration;

use millrun::topics::{DurableRecord, ReadFrom};
use millrun::workflow::EntityStepError;
use millrun::{DurableTopic, Runtime, RuntimeBuilder, Topic, Workflow, WorkflowContext, WorkflowError};

use super::{Empty, GO, PASS_ON, PUT, PUT_LATER, PUTS, SUM, TAKE, TILL, WATCH, till};
use crate::durable_topics::take_all;

/// Waits for the signal that comes with its beginning.
pub(super) async fn watch(cx: WorkflowContext, cents: u64) -> Result<u64, WorkflowError> {
    Ok(cents + cx.receive(GO).await?)
}

fn open(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder.entity(till()).durable_topic(PUTS).register(WATCH, watch)
}

/// Waits until what is in a till is as much.
async fn until_sum(runtime: &Runtime, key: &str, sum: u64) {
    let till = runtime.entity(TILL, key);
    while till.read(SUM, ()).await.unwrap() != sum {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_command_publishes_starts_and_signals_a_run_and_tells_another_entity() {
    let runtime = open(Runtime::volatile()).start().await.unwrap();
    let ada = runtime.entity(TILL, "ada");
    ada.call(PUT, 20).await.unwrap();
    ada.call(PASS_ON, ("bob".into(), 15)).await.unwrap();
    until_sum(&runtime, "bob", 15).await;
    assert_eq!(ada.read(SUM, ()).await.unwrap(), 5);
    let topic = runtime.durable_topic(PUTS).unwrap();
    assert_eq!(take_all(&topic, &runtime, ReadFrom::Beginning).await, [20, 15]);
    // The signal may overtake the start, and has no instance then.
    let watch = runtime.attach(WATCH, "watch-ada").unwrap();
    let _outcome = watch.signal(GO, 15).await;
    assert_eq!(watch.result().await.unwrap(), 30);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_record_of_a_command_is_in_its_commit() {
    let runtime = open(Runtime::volatile()).start().await.unwrap();
    let ada = runtime.entity(TILL, "ada");
    for number in 1..=5 {
        let before = runtime.stats().journal.commits;
        ada.call(PUT, 1).await.unwrap();
        assert_eq!(runtime.stats().journal.commits - before, 1);
        assert_eq!(runtime.durable_topics()[0].last, number);
    }
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_timer_performs_a_command_also_of_an_entity_that_is_not_in_memory() {
    let builder = open(Runtime::volatile()).configure(|config| config.hot_len_max = 1);
    let runtime = builder.start().await.unwrap();
    for key in ["ada", "bob", "eve"] {
        runtime.entity(TILL, key).call(PUT_LATER, 20).await.unwrap();
    }
    for key in ["ada", "bob", "eve"] {
        until_sum(&runtime, key, 1).await;
    }
    runtime.shutdown().await.unwrap();
}

/// Its attempts name one request; what was rejected is its result.
#[tokio::test]
async fn a_workflow_has_an_entity_perform_commands_and_their_answers() {
    const SPEND: Workflow<u64, (u64, bool)> = Workflow::named("spend");
    async fn spend(cx: WorkflowContext, cents: u64) -> Result<(u64, bool), WorkflowError> {
        let sum = cx.command(TILL, "ada", PUT, cents).await?;
        let taken = cx.command(TILL, "ada", TAKE, cents + 1).await;
        Ok((sum, matches!(taken, Err(EntityStepError::Rejected(Empty)))))
    }
    let builder = open(Runtime::volatile()).register(SPEND, spend);
    let builder = builder.configure(|config| config.hot_len_max = 0);
    let runtime = builder.start().await.unwrap();
    let run = runtime.start(SPEND, "s", 4).await.unwrap();
    assert_eq!(run.result().await.unwrap(), (4, true));
    assert_eq!(runtime.entity(TILL, "ada").read(SUM, ()).await.unwrap(), 4);
    runtime.shutdown().await.unwrap();
}

/// A record that is given again, as behind a crash, is performed once, and one that is rejected holds up nobody.
#[tokio::test]
async fn a_trigger_has_entities_perform_the_records_of_a_topic() {
    const TAKEN: DurableTopic<u64> = Topic::named("taken").durable();
    let runtime = open(Runtime::volatile())
        .durable_topic(TAKEN)
        .start()
        .await
        .unwrap();
    runtime.entity(TILL, "ada").call(PUT, 10).await.unwrap();
    let topic = runtime.durable_topic(TAKEN).unwrap();
    for cents in [4, 100, 5] {
        topic.publish(&cents).key("ada").await.unwrap();
    }
    for _ in 0..2 {
        let trigger = topic.trigger("tills");
        let make = |record: &DurableRecord<u64>| (record.key().unwrap().to_owned(), *record.payload());
        let trigger = trigger.command(TILL, TAKE, make).await.unwrap();
        until_sum(&runtime, "ada", 1).await;
        drop(trigger);
    }
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_workflow_tells_an_entity_which_begins_with_that() {
    const PAY: Workflow<u64, ()> = Workflow::named("pay");
    async fn pay(cx: WorkflowContext, cents: u64) -> Result<(), WorkflowError> {
        cx.tell(TILL, "ada", PUT, cents).await?;
        cx.sleep(Duration::from_millis(1)).await?;
        Ok(cx.tell(TILL, "ada", PUT, cents).await?)
    }
    let runtime = open(Runtime::volatile())
        .register(PAY, pay)
        .start()
        .await
        .unwrap();
    let run = runtime.start(PAY, "p", 4).await.unwrap();
    run.result().await.unwrap();
    assert_eq!(runtime.entity(TILL, "ada").read(SUM, ()).await.unwrap(), 8);
    runtime.shutdown().await.unwrap();
}
