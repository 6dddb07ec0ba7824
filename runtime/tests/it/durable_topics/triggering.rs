//! Triggers on durable topics: each record has its effect once, and one that cannot have it holds up no other key.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::try_join_all;
use millrun::host::Host;
use millrun::topics::{DurableTopicHandle, DurableTrigger, ReadFrom, UndeliveredRecord};
use millrun::{
    DurableTopic, Runtime, RuntimeBuilder, Signal, Topic, Workflow, WorkflowContext, WorkflowError,
};
use millrun_testkit::{SimConfig, SimHost};

use super::{NUMBERS, take};
use crate::support::{Store, cut_off};

const UNDELIVERED: DurableTopic<UndeliveredRecord> = Topic::named("undelivered").durable();
const ITEM: Signal<u64> = Signal::named("item");
const COLLECT: Workflow<usize, Vec<u64>> = Workflow::named("collect");
const SAME: Workflow<u64, u64> = Workflow::named("same");
/// How many records there are, of three keys.
const RECORDS: u64 = 12;

/// Gives the first items that it is signalled, as many as this, in their order.
async fn collect(cx: WorkflowContext, len: usize) -> Result<Vec<u64>, WorkflowError> {
    let mut items = Vec::new();
    while items.len() < len {
        items.push(cx.receive(ITEM).await?);
    }
    Ok(items)
}

async fn same(_cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    Ok(number)
}

fn described(builder: RuntimeBuilder) -> RuntimeBuilder {
    let builder = builder.durable_topic(NUMBERS).durable_topic(UNDELIVERED);
    builder.register(COLLECT, collect).register(SAME, same)
}

async fn publish_all(topic: &DurableTopicHandle<u64>) {
    for number in 0..RECORDS {
        let (key, id) = (format!("key-{}", number % 3), number.to_string());
        topic.publish(&number).key(&key).id(&id).await.unwrap();
    }
}

/// Three triggers, one of each kind.
async fn triggers(topic: &DurableTopicHandle<u64>) -> [DurableTrigger; 3] {
    let trigger = |name| topic.trigger(name).undelivered_to(UNDELIVERED, 3);
    let start = trigger("start").start(SAME, |record| {
        (format!("same-{}", record.payload()), *record.payload())
    });
    let signal = trigger("signal").signal(COLLECT, ITEM, |record| {
        (format!("signalled-{}", record.payload() % 3), *record.payload())
    });
    let both = trigger("both").start_with_signal(COLLECT, ITEM, |record| {
        let id = format!("both-{}", record.payload() % 3);
        (id, (RECORDS / 3) as usize, *record.payload())
    });
    [start.await.unwrap(), signal.await.unwrap(), both.await.unwrap()]
}

/// One life: all is done again that a program does as it starts. The last one looks at what came of it.
async fn script(host: Arc<dyn Host>, builder: RuntimeBuilder, is_done: Arc<AtomicBool>) {
    let runtime = builder.start().await.unwrap();
    for key in 0..3 {
        let id = format!("signalled-{key}");
        runtime.start(COLLECT, &id, (RECORDS / 3) as usize).await.unwrap();
    }
    let topic = runtime.durable_topic(NUMBERS).unwrap();
    publish_all(&topic).await;
    let triggers = triggers(&topic).await;
    while triggers.iter().any(|trigger| trigger.status().lag > 0) {
        host.sleep_until(host.now() + Duration::from_millis(1)).await;
    }
    for key in 0..3 {
        let expected: Vec<_> = (0..RECORDS).filter(|number| number % 3 == key).collect();
        for kind in ["signalled", "both"] {
            let run = runtime.attach(COLLECT, &format!("{kind}-{key}")).unwrap();
            let items = run.result().await.unwrap();
            assert_eq!(items, expected, "{kind} {key}: once each, in their order");
        }
    }
    for number in 0..RECORDS {
        let run = runtime.attach(SAME, &format!("same-{number}")).unwrap();
        assert_eq!(run.result().await.unwrap(), number);
    }
    let undelivered = runtime.durable_topics();
    let undelivered = undelivered.iter().find(|topic| topic.name == "undelivered");
    assert_eq!(undelivered.map(|topic| topic.last), Some(0));
    is_done.store(true, Ordering::Relaxed);
    drop(runtime.shutdown().await);
}

/// Lives that end after so many steps each, and a last one that ends by itself. Whether the others were cut off.
fn play(seed: u64, steps: u64) -> bool {
    let (store, is_done) = (Store::new(), Arc::new(AtomicBool::new(false)));
    for life in 0..2 {
        let sim = SimHost::new(SimConfig::seeded(seed + life));
        let builder = described(Runtime::open(store.path()).host(sim.host()));
        cut_off(&sim, steps, script(sim.host(), builder, Arc::clone(&is_done)));
    }
    let was_cut_off = !is_done.load(Ordering::Relaxed);
    let sim = SimHost::new(SimConfig::seeded(seed + 2));
    let builder = described(Runtime::open(store.path()).host(sim.host()));
    sim.block_on(script(sim.host(), builder, Arc::clone(&is_done)))
        .unwrap();
    assert!(is_done.load(Ordering::Relaxed), "seed {seed}, {steps} steps");
    was_cut_off
}

#[test]
fn each_record_has_its_effect_once_wherever_the_process_is_killed() {
    let mut cut_off = 0;
    for (seed, steps) in (1..).zip((0..420).step_by(5)) {
        cut_off += u64::from(play(seed, steps));
    }
    assert!(cut_off > 20, "the lives are cut off within their work: {cut_off}");
}

#[tokio::test]
async fn a_record_that_cannot_be_handled_is_buried_with_the_reason_and_holds_up_no_other_key() {
    for (number, is_counted, reason) in [
        (100, true, "no instance"),
        (101, false, "id"),
        (102, false, "it is too much"),
    ] {
        let runtime = described(Runtime::volatile()).start().await.unwrap();
        let topic = runtime.durable_topic(NUMBERS).unwrap();
        let run = runtime.start(COLLECT, "there", 2).await.unwrap();
        let trigger = topic.trigger("t").undelivered_to(UNDELIVERED, 3);
        let trigger = trigger.signal(COLLECT, ITEM, |record| match *record.payload() {
            100 => ("missing".to_owned(), 0),
            101 => (String::new(), 0),
            102 => panic!("it is too much"),
            number => ("there".to_owned(), number),
        });
        let trigger = trigger.await.unwrap();
        topic.publish(&number).key("bad").await.unwrap();
        topic.publish(&1).key("good").await.unwrap();
        topic.publish(&2).key("bad").await.unwrap();
        assert_eq!(run.result().await.unwrap(), [1, 2]);
        let undelivered = runtime.durable_topic(UNDELIVERED).unwrap();
        let mut reader = undelivered.read(ReadFrom::Beginning).await.unwrap();
        let buried = take(&mut reader, 1).await.remove(0).into_payload();
        assert!(buried.error.contains(reason), "{}", buried.error);
        assert_eq!(buried.deliveries, if is_counted { 3 } else { 1 });
        assert_eq!(trigger.lost().map(|lost| lost.to_string()), None);
        runtime.shutdown().await.unwrap();
        while trigger.lost().is_none() {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn without_a_topic_for_it_a_record_is_passed_over_and_counted() {
    let runtime = described(Runtime::volatile()).start().await.unwrap();
    let topic = runtime.durable_topic(NUMBERS).unwrap();
    let trigger = topic.trigger("t").start(SAME, |record| match *record.payload() {
        0 => (String::new(), 0),
        number => (format!("same-{number}"), number),
    });
    let trigger = trigger.await.unwrap();
    topic.publish(&0).key("k").await.unwrap();
    topic.publish(&1).key("k").await.unwrap();
    while trigger.status().lag > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!((trigger.handled(), trigger.refused()), (1, 1));
    assert_eq!(runtime.attach(SAME, "same-1").unwrap().result().await.unwrap(), 1);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_the_runtime_does_not_take_for_now_is_tried_again_and_never_buried() {
    let builder = described(Runtime::volatile()).configure(|config| config.live_len_max = 1);
    let runtime = builder.start().await.unwrap();
    let topic = runtime.durable_topic(NUMBERS).unwrap();
    let held = runtime.start(COLLECT, "held", 1).await.unwrap();
    let trigger = topic.trigger("t").undelivered_to(UNDELIVERED, 1);
    let trigger = trigger
        .start_each(SAME, |record| *record.payload())
        .await
        .unwrap();
    let published = topic.publish(&7).await.unwrap();
    while trigger.status().in_hand == 0 {
        tokio::task::yield_now().await;
    }
    held.signal(ITEM, 1).await.unwrap();
    while trigger.handled() == 0 {
        tokio::task::yield_now().await;
    }
    let id = format!("t/{}", published.token());
    assert_eq!(runtime.attach(SAME, &id).unwrap().result().await.unwrap(), 7);
    assert_eq!(trigger.refused(), 0);
    runtime.shutdown().await.unwrap();
}

const TOTAL: Workflow<(u64, u64), u64> = Workflow::named("total");
/// How many records signal one instance, which goes on in another run after every 50 of them.
const TOTALLED: u64 = 900;

/// Adds up all that it is signalled.
async fn total(cx: WorkflowContext, (mut len, mut sum): (u64, u64)) -> Result<u64, WorkflowError> {
    loop {
        sum += cx.receive(ITEM).await?;
        len += 1;
        if len == TOTALLED {
            return Ok(sum);
        }
        if len.is_multiple_of(50) {
            return Ok(cx.continue_as_new(TOTAL, (len, sum)).await?);
        }
    }
}

async fn publish_totalled(builder: RuntimeBuilder) {
    let runtime = builder.durable_topic(NUMBERS).start().await.unwrap();
    let topic = runtime.durable_topic(NUMBERS).unwrap();
    let published = (0..TOTALLED).map(|number| {
        let topic = &topic;
        async move { topic.publish(&number).key(&format!("key-{number}")).await }
    });
    try_join_all(published).await.unwrap();
    runtime.shutdown().await.unwrap();
}

/// One life of a program in which each record signals one instance, by a trigger whose requests are as long as they may be.
async fn total_script(host: Arc<dyn Host>, builder: RuntimeBuilder, is_done: Arc<AtomicBool>) {
    let builder = builder.durable_topic(NUMBERS).register(TOTAL, total);
    let runtime = builder.start().await.unwrap();
    let run = runtime.start(TOTAL, "total", (0, 0)).await.unwrap();
    let topic = runtime.durable_topic(NUMBERS).unwrap();
    let name = "n".repeat(100);
    let trigger = topic
        .trigger(&name)
        .signal(TOTAL, ITEM, |record| ("total".to_owned(), *record.payload()));
    let trigger = trigger.await.unwrap();
    while trigger.status().lag > 0 {
        host.sleep_until(host.now() + Duration::from_millis(1)).await;
    }
    assert_eq!(run.result().await.unwrap(), (0..TOTALLED).sum::<u64>());
    is_done.store(true, Ordering::Relaxed);
    drop(runtime.shutdown().await);
}

/// A run that went on as another took along the latest 32 KiB of what it knew of its signals, which were fewer than a trigger
/// could give again.
#[test]
fn a_record_has_its_effect_once_in_an_instance_that_goes_on_in_other_runs() {
    let mut cut_off_in_triggers = 0;
    for seed in 1..25 {
        let (store, is_done) = (Store::new(), Arc::new(AtomicBool::new(false)));
        let sim = SimHost::new(SimConfig::seeded(seed));
        sim.block_on(publish_totalled(Runtime::open(store.path()).host(sim.host())))
            .unwrap();
        let sim = SimHost::new(SimConfig::seeded(seed + 1));
        let builder = Runtime::open(store.path()).host(sim.host());
        cut_off(
            &sim,
            12 * seed,
            total_script(sim.host(), builder, Arc::clone(&is_done)),
        );
        cut_off_in_triggers += u64::from(!is_done.load(Ordering::Relaxed));
        let sim = SimHost::new(SimConfig::seeded(seed + 2));
        let builder = Runtime::open(store.path()).host(sim.host());
        sim.block_on(total_script(sim.host(), builder, Arc::clone(&is_done)))
            .unwrap();
        assert!(is_done.load(Ordering::Relaxed), "seed {seed}");
    }
    assert!(cut_off_in_triggers > 8, "{cut_off_in_triggers} were cut off");
}
