//! What runs and entities say of the values that they publish: keys, correlations and content types.

use std::sync::Arc;

use futures_util::FutureExt;
use millrun::broker::SubscriptionConfig;
use millrun::store::{Journal, JournalConfig, MemoryJournal};
use millrun::topics::{DurableRecord, ReadFrom};
use millrun::workflow::{PublishStep, PublishStepError};
use millrun::{
    CommandError, DurableTopic, Entity, EntityCommand, EntityContext, EntityState, InputRefused, RunError,
    Runtime, RuntimeBuilder, Topic, Workflow, WorkflowContext, WorkflowError,
};
use millrun_testkit::{SimConfig, SimHost};

use super::{all, memory};
use crate::support::{committer, cut_off};

const SAID: DurableTopic<u64> = Topic::named("said").durable();
/// Publishes two values that concern an order, and one of which nothing is said.
const TELL: Workflow<String, ()> = Workflow::named("tell");
/// Waits for what concerns an order, by its key and then by its correlation.
const HEAR: Workflow<String, Vec<u64>> = Workflow::named("hear");

const DESK: Entity<Desk> = Entity::named("desk");
/// Publishes a value under the key of an order.
const NOTE: EntityCommand<Desk, String, ()> = EntityCommand::named("note");

#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
struct Desk;

impl EntityState for Desk {
    type Event = ();

    fn begin(_key: &str) -> Self {
        Self
    }

    fn apply(&mut self, (): ()) {}
}

async fn tell(cx: WorkflowContext, order: String) -> Result<(), WorkflowError> {
    cx.publish(SAID, 1).key(order.as_str()).await?;
    let publish = cx.publish_to("said", 2_u64).key(order.as_str());
    let publish = publish.correlation(format!("basket of {order}"));
    publish.content_type("application/json").await?;
    cx.publish(SAID, 3).await?;
    Ok(())
}

async fn hear(cx: WorkflowContext, order: String) -> Result<Vec<u64>, WorkflowError> {
    let by_key = || cx.receive_from(SAID).key(order.as_str()).from_beginning();
    let by_correlation = cx.receive_from(SAID).correlation(format!("basket of {order}"));
    let mut heard = Vec::new();
    for _ in 0..3 {
        heard.push(by_key().await?.into_payload());
    }
    let record = by_correlation.from_beginning().await?;
    if record.key() != Some(order.as_str()) {
        return Err(WorkflowError::failed(format!("the key is {:?}", record.key())));
    }
    heard.push(record.into_payload());
    Ok(heard)
}

fn coded(builder: RuntimeBuilder) -> RuntimeBuilder {
    let note = |_: &Desk, order: String, cx: &mut EntityContext<'_, Desk>| {
        cx.publish(SAID, 4)
            .key(order)
            .correlation("notes")
            .content_type("text/plain");
        Ok::<_, WorkflowError>(())
    };
    builder
        .durable_topic(SAID)
        .register(TELL, tell)
        .register(HEAR, hear)
        .entity(DESK.command(NOTE, note))
}

/// Key, correlation and content type of a record, and its value.
type Told = (Option<String>, Option<String>, Option<String>, u64);

fn told(record: &DurableRecord<u64>) -> Told {
    let text = |text: Option<&str>| text.map(str::to_owned);
    (
        text(record.key()),
        text(record.correlation()),
        text(record.content_type()),
        *record.payload(),
    )
}

/// What one run and one command of an entity say of an order.
fn expected(run: &str, order: &str) -> Vec<Told> {
    let text = |text: &str| Some(text.to_owned());
    vec![
        (text(order), None, None, 1),
        (
            text(order),
            text(&format!("basket of {order}")),
            text("application/json"),
            2,
        ),
        (text(run), None, None, 3),
        (text(order), text("notes"), text("text/plain"), 4),
    ]
}

#[tokio::test]
async fn what_a_run_and_an_entity_say_reaches_subscriptions_and_runs_that_wait_also_behind_a_restart() {
    let journal = memory();
    let open = |journal: &Arc<MemoryJournal>| {
        let builder = Runtime::volatile().journal(Arc::clone(journal) as Arc<dyn Journal>);
        coded(builder).configure(|config| {
            config.hot_len_max = 0;
            config.replay_check_every = 1;
        })
    };
    let runtime = open(&journal).start().await.unwrap();
    let topic = runtime.durable_topic(SAID).unwrap();
    drop(topic.subscribe("audit").await.unwrap());
    let hears = runtime.start(HEAR, "hears", "order-7".to_owned()).await.unwrap();
    for run in ["a", "b"] {
        let order = if run == "a" { "order-8" } else { "order-7" };
        let tells = runtime.start(TELL, run, order.to_owned()).await.unwrap();
        tells.result().await.unwrap();
    }
    let desk = runtime.entity(DESK, "north");
    desk.call(NOTE, "order-7".to_owned()).await.unwrap();
    assert_eq!(hears.result().await.unwrap(), [1, 2, 4, 2]);
    let stats = runtime.stats();
    assert_eq!((stats.replay_differences, stats.parked), (0, 0));
    runtime.shutdown().await.unwrap();

    let runtime = open(&Arc::new(journal.reopened())).start().await.unwrap();
    let topic = runtime.durable_topic(SAID).unwrap();
    let audit = topic.subscribe("audit").await.unwrap();
    let mut of_key = Vec::new();
    let mut taken = Vec::new();
    // Of each key one record at a time: the others of it wait, whichever run has published them.
    while taken.len() < 7 {
        match audit.next().now_or_never() {
            Some(delivery) => {
                let delivery = delivery.unwrap();
                let key = delivery.record().key().map(str::to_owned);
                assert!(of_key.iter().all(|(held, _)| *held != key), "{key:?} is held");
                of_key.push((key, delivery));
            }
            None if of_key.is_empty() => tokio::task::yield_now().await,
            None => {
                for (_, delivery) in of_key.drain(..) {
                    taken.push((delivery.record().token(), told(delivery.record())));
                    delivery.ack().unwrap().await.unwrap();
                }
            }
        }
    }
    taken.sort_by_key(|(token, _)| token.sequence());
    let mut all_of = expected("a", "order-8");
    all_of.pop();
    all_of.extend(expected("b", "order-7"));
    assert_eq!(
        taken.into_iter().map(|(_, told)| told).collect::<Vec<_>>(),
        all_of
    );
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn texts_of_the_largest_size_are_published_and_larger_ones_are_refused() {
    const LONG: Workflow<usize, String> = Workflow::named("long");
    async fn long(cx: WorkflowContext, bytes: usize) -> Result<String, WorkflowError> {
        let text = || "x".repeat(bytes);
        let said = cx
            .publish(SAID, 1)
            .key(text())
            .correlation(text())
            .content_type(text());
        Ok(match said.await {
            Err(PublishStepError::TextTooLong { field, bytes }) => format!("{field}: {bytes}"),
            other => format!("{other:?}"),
        })
    }
    let builder = coded(Runtime::volatile()).register(LONG, long);
    let runtime = builder.start().await.unwrap();
    for (bytes, expected) in [(1_024, "Ok(Taken)"), (1_025, "key: 1025")] {
        let run = runtime.start(LONG, &format!("l-{bytes}"), bytes).await.unwrap();
        assert_eq!(run.result().await.unwrap(), expected);
    }
    let desk = runtime.entity(DESK, "north");
    match desk.call(NOTE, "x".repeat(1_025)).await {
        Err(CommandError::Run(RunError::Refused(InputRefused::Act(told)))) => {
            assert_eq!(told, "the key of a record has 1025 bytes, it may have 1024");
        }
        other => panic!("{other:?}"),
    }
    let topic = runtime.durable_topic(SAID).unwrap();
    let read = all(&topic, &runtime, ReadFrom::Beginning).await;
    let keys: Vec<_> = read
        .iter()
        .map(|record| record.as_ref().unwrap().key().map_or(0, str::len))
        .collect();
    assert_eq!(keys, [1_024]);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn in_a_topic_of_the_broker_a_key_is_that_of_the_envelope_and_the_rest_is_refused() {
    const LIVE: Topic<u64> = Topic::named("live");
    const SAY: Workflow<u8, String> = Workflow::named("say");
    async fn say(cx: WorkflowContext, which: u8) -> Result<String, WorkflowError> {
        let say = |publish: PublishStep| match which {
            0 => publish,
            1 => publish.key("k"),
            2 => publish.key("k").correlation("c"),
            _ => publish.content_type("text/plain"),
        };
        Ok(match say(cx.publish(LIVE, u64::from(which))).await {
            Ok(outcome) => format!("{outcome:?}"),
            Err(PublishStepError::Refused(told)) => told,
            Err(error) => return Err(error.into()),
        })
    }
    let builder = Runtime::volatile().topic(LIVE).register(SAY, say);
    let runtime = builder.start().await.unwrap();
    let inbox = runtime
        .broker()
        .subscribe::<u64>("live", SubscriptionConfig::default())
        .unwrap();
    let mut inbox = inbox.into_receiver();
    for (which, expected) in [
        (0, "Taken"),
        (1, "Taken"),
        (
            2,
            "the topic is in memory, and only records of durable topics have a correlation",
        ),
        (
            3,
            "the topic is in memory, and only records of durable topics have a content type",
        ),
    ] {
        let run = runtime.start(SAY, &format!("s-{which}"), which).await.unwrap();
        assert_eq!(run.result().await.unwrap(), expected);
        if which <= 1 {
            let envelope = inbox.recv().await.unwrap();
            let cause = envelope.run_cause().unwrap();
            assert_eq!(cause.run, run.run_id().unwrap());
            let key = if which == 0 {
                cause.to_string()
            } else {
                "k".to_owned()
            };
            assert_eq!(envelope.key(), Some(key.as_str()));
        }
    }
    assert!(
        inbox.recv().now_or_never().is_none(),
        "nothing else was published"
    );
    runtime.shutdown().await.unwrap();
}

/// One life: all that is to be said of an order, and a run that waits for it.
async fn live(builder: RuntimeBuilder) {
    let runtime = coded(builder).start().await.unwrap();
    let hears = runtime.start(HEAR, "hears", "order-7".to_owned()).await.unwrap();
    let tells = runtime.start(TELL, "tells", "order-7".to_owned()).await.unwrap();
    tells.result().await.unwrap();
    let desk = runtime.entity(DESK, "north");
    let note = desk.call(NOTE, "order-7".to_owned()).request("note");
    note.await.unwrap();
    assert_eq!(hears.result().await.unwrap(), [1, 2, 4, 2]);
    let topic = runtime.durable_topic(SAID).unwrap();
    let read = all(&topic, &runtime, ReadFrom::Beginning).await;
    let read: Vec<_> = read.iter().map(|record| told(record.as_ref().unwrap())).collect();
    assert_eq!(read, expected("tells", "order-7"));
    runtime.shutdown().await.unwrap();
}

#[test]
fn a_crash_at_any_step_leaves_each_value_once_with_what_was_said_of_it() {
    let mut steps = 1;
    loop {
        let mut journal = Arc::new(MemoryJournal::held(JournalConfig::default()).unwrap());
        let mut lives = 0;
        loop {
            let sim = SimHost::new(SimConfig::seeded(steps * 1_000 + lives));
            let commits = Box::pin(committer(sim.host(), Arc::clone(&journal)));
            let commits = sim.host().spawn("committer", commits);
            let builder = Runtime::volatile()
                .host(sim.host())
                .journal(Arc::clone(&journal) as Arc<dyn Journal>);
            // Each life is a bit longer than the one before.
            let is_done = cut_off(&sim, steps * (lives + 1), live(builder));
            drop(commits);
            journal = Arc::new(journal.reopened());
            lives += 1;
            if is_done {
                break;
            }
        }
        if lives == 1 {
            break;
        }
        steps += 1;
    }
    assert!(steps > 20, "a life has {steps} steps");
}
