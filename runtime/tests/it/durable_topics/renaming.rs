//! Durable topics under another name than before: all that they have goes along, and runs that name the former one go on.

use std::sync::Arc;

use millrun::operating::PendingDescription;
use millrun::store::{Journal, JournalConfig, MemoryJournal};
use millrun::topics::{DurableTrigger, ReadFrom, TopicTerms, UndeliveredRecord};
use millrun::{
    DurableTopic, OpenError, Runtime, RuntimeBuilder, Topic, Workflow, WorkflowContext, WorkflowError,
};
use millrun_testkit::{SimConfig, SimHost};

use super::{NUMBERS, memory, take_all};
use crate::support::{Store, committer, cut_off, described};

/// The former name, and the present one.
const OLD: DurableTopic<u64> = NUMBERS;
const NEW: DurableTopic<u64> = Topic::named("numbers.all/of them").durable();
const UNDELIVERED: DurableTopic<UndeliveredRecord> = Topic::named("undelivered").durable();
/// Publishes as many numbers under the key, and takes each before the next.
const RELAY: Workflow<(String, u64), Vec<u64>> = Workflow::named("relay");
/// Takes as many records under the key as this.
const TAKE: Workflow<(String, usize), Vec<u64>> = Workflow::named("take");
const SAME: Workflow<u64, u64> = Workflow::named("same");

/// A program in which the topic has this name.
fn named(builder: RuntimeBuilder, topic: DurableTopic<u64>) -> RuntimeBuilder {
    let relay = move |cx: WorkflowContext, (key, len): (String, u64)| async move {
        let mut taken = Vec::new();
        for number in 0..len {
            cx.publish(topic, number).key(key.as_str()).await?;
            let record = cx.receive_from(topic).key(key.as_str()).from_beginning().await?;
            taken.push(record.into_payload());
        }
        Ok::<_, WorkflowError>(taken)
    };
    let take = move |cx: WorkflowContext, (key, len): (String, usize)| async move {
        let mut taken = Vec::new();
        while taken.len() < len {
            taken.push(cx.receive_from(topic).key(key.as_str()).await?.into_payload());
        }
        Ok::<_, WorkflowError>(taken)
    };
    let same = async |_cx: WorkflowContext, number: u64| Ok::<_, WorkflowError>(number);
    let builder = builder.durable_topic(UNDELIVERED).register(SAME, same);
    builder.register(RELAY, relay).register(TAKE, take)
}

fn old(builder: RuntimeBuilder) -> RuntimeBuilder {
    named(builder, OLD).durable_topic(OLD)
}

fn renamed(builder: RuntimeBuilder) -> RuntimeBuilder {
    named(builder, NEW).rename_durable_topic("numbers", NEW)
}

/// Where lives of one program keep what they have.
enum Place {
    Memory(Arc<MemoryJournal>),
    File(Store),
}

impl Place {
    fn both() -> [Self; 2] {
        [Self::Memory(memory()), Self::File(Store::new())]
    }

    /// Once the former life has shut down.
    fn open(&mut self) -> RuntimeBuilder {
        match self {
            Self::Memory(journal) => {
                *journal = Arc::new(journal.reopened());
                Runtime::volatile().journal(Arc::clone(journal) as Arc<dyn Journal>)
            }
            Self::File(store) => store.bare(),
        }
    }
}

async fn publish(runtime: &Runtime, topic: DurableTopic<u64>, key: &str, numbers: &[u64]) {
    let topic = runtime.durable_topic(topic).unwrap();
    for number in numbers {
        topic.publish(number).key(key).await.unwrap();
    }
}

/// Starts a run for each record that is even, and gives the others up.
async fn trigger(runtime: &Runtime, topic: DurableTopic<u64>) -> DurableTrigger {
    let topic = runtime.durable_topic(topic).unwrap();
    let trigger = topic.trigger("even").undelivered_to(UNDELIVERED, 1);
    let started = trigger.start(SAME, |record| match *record.payload() {
        number if number % 2 == 0 => (format!("same-{number}"), number),
        _ => (String::new(), 0),
    });
    started.await.unwrap()
}

async fn until_handled(trigger: &DurableTrigger) {
    while trigger.status().lag > 0 {
        tokio::task::yield_now().await;
    }
}

/// Until a run waits for a record of the topic of this name.
async fn waits_for<I, O>(run: &millrun::RunHandle<I, O>, name: &str) {
    let is_named = |pending: &PendingDescription| matches!(pending, PendingDescription::Receive { topic, is_registered: true, .. } if topic == name);
    described(run, |run| run.pending.iter().any(is_named)).await;
}

#[tokio::test]
async fn records_places_triggers_undelivered_records_and_waits_go_along() {
    for mut place in Place::both() {
        let runtime = old(place.open()).start().await.unwrap();
        let waiting = runtime.start(TAKE, "w", ("w".to_owned(), 3)).await.unwrap();
        waits_for(&waiting, "numbers").await;
        let even = trigger(&runtime, OLD).await;
        publish(&runtime, OLD, "w", &[2]).await;
        publish(&runtime, OLD, "other", &[4, 5, 6]).await;
        let billing = runtime
            .durable_topic(OLD)
            .unwrap()
            .subscribe("billing")
            .await
            .unwrap();
        for expected in [2, 4] {
            let delivery = billing.next().await.unwrap();
            assert_eq!(*delivery.payload(), expected);
            delivery.ack().unwrap().await.unwrap();
        }
        until_handled(&even).await;
        drop((billing, even));
        runtime.shutdown().await.unwrap();

        // The second time it is renamed already.
        for (life, seventh) in [8, 10].into_iter().enumerate() {
            let runtime = renamed(place.open()).start().await.unwrap();
            let names: Vec<_> = runtime
                .durable_topics()
                .into_iter()
                .map(|topic| topic.name)
                .collect();
            assert_eq!(names, [NEW.topic().name(), "undelivered"]);
            let waiting = runtime.attach(TAKE, "w").unwrap();
            waits_for(&waiting, NEW.topic().name()).await;
            let even = trigger(&runtime, NEW).await;
            assert!(!even.has_begun_anew());
            publish(&runtime, NEW, "w", &[seventh]).await;
            until_handled(&even).await;
            assert_eq!(even.handled(), 1, "those of before have been handled");
            let of_record = runtime.attach(SAME, &format!("same-{seventh}")).unwrap();
            assert_eq!(of_record.result().await.unwrap(), seventh);
            let topic = runtime.durable_topic(NEW).unwrap();
            let billing = topic.subscribe("billing").await.unwrap();
            let expected: &[u64] = if life == 0 { &[5, 6, 8] } else { &[5, 10] };
            for expected in expected {
                let delivery = billing.next().await.unwrap();
                assert_eq!(delivery.payload(), expected);
                delivery.ack().unwrap().await.unwrap();
            }
            drop((billing, even));
            if life == 0 {
                // It says the former name.
                let undelivered = runtime.undelivered_topic("undelivered").unwrap();
                let sent = undelivered.send_back_behind(None, 10).await.unwrap();
                assert_eq!((sent.sent_back, sent.passed_over), (1, 0));
                let again = undelivered.send_back_behind(None, 10).await.unwrap();
                assert_eq!((again.sent_back, again.repeats), (0, 1));
            }
            runtime.shutdown().await.unwrap();
        }
        let runtime = renamed(place.open()).start().await.unwrap();
        let waiting = runtime.attach(TAKE, "w").unwrap();
        assert_eq!(waiting.result().await.unwrap(), [2, 8, 10]);
        let topic = runtime.durable_topic(NEW).unwrap();
        let read = take_all(&topic, &runtime, ReadFrom::Beginning).await;
        assert_eq!(read, [2, 4, 5, 6, 8, 5, 10]);
        assert_eq!(runtime.stats().parked, 0);
        runtime.shutdown().await.unwrap();
    }
}

/// Renaming is what a release does to a store that an earlier one left; a store of today has nothing to rename.
#[tokio::test]
async fn a_store_that_never_knew_the_former_name_has_the_topic_declared() {
    for mut place in Place::both() {
        let runtime = renamed(place.open()).start().await.unwrap();
        publish(&runtime, NEW, "k", &[1]).await;
        let topic = runtime.durable_topic(NEW).unwrap();
        assert_eq!(take_all(&topic, &runtime, ReadFrom::Beginning).await, [1]);
        runtime.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn a_topic_that_was_renamed_twice_is_found_under_any_of_its_former_names() {
    const FIRST: DurableTopic<u64> = Topic::named("first").durable();
    for mut place in Place::both() {
        let runtime = place.open().durable_topic(FIRST).start().await.unwrap();
        publish(&runtime, FIRST, "k", &[1]).await;
        runtime.shutdown().await.unwrap();
        let twice = |builder| renamed(builder).rename_durable_topic("first", NEW);
        for _ in 0..2 {
            let runtime = twice(place.open()).start().await.unwrap();
            let topic = runtime.durable_topic(NEW).unwrap();
            assert_eq!(take_all(&topic, &runtime, ReadFrom::Beginning).await, [1]);
            runtime.shutdown().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_store_that_has_both_names_is_refused_and_left_as_it_was() {
    const OTHER: DurableTopic<u64> = Topic::named("other").durable();
    for mut place in Place::both() {
        let builder = old(place.open()).durable_topic(NEW).durable_topic(OTHER);
        let runtime = builder.start().await.unwrap();
        publish(&runtime, OLD, "k", &[1, 2]).await;
        runtime.shutdown().await.unwrap();
        // A renaming beside it that could be is not made either.
        const ANOTHER: DurableTopic<u64> = Topic::named("another").durable();
        let builder = renamed(place.open()).rename_durable_topic("other", ANOTHER);
        match builder.start().await.map(drop) {
            Err(OpenError::TopicNamesTaken { former, name }) => {
                assert_eq!((former, name), ("numbers", NEW.topic().name()));
            }
            started => panic!("{started:?}"),
        }
        // Two former names of one topic.
        let builder = place.open().rename_durable_topic("numbers", ANOTHER);
        let started = builder.rename_durable_topic("other", ANOTHER).start().await;
        assert!(
            matches!(started, Err(OpenError::TopicNamesTaken { name: "another", .. })),
            "{started:?}"
        );
        // What the error says to do.
        let builder = old(place.open()).durable_topic(NEW).durable_topic(OTHER);
        let runtime = builder.start().await.unwrap();
        let topic = runtime.durable_topic(OLD).unwrap();
        assert_eq!(
            topic
                .read(ReadFrom::Beginning)
                .await
                .unwrap()
                .next()
                .await
                .unwrap()
                .into_payload(),
            1
        );
        runtime.delete_durable_topic(NEW.topic().name()).await.unwrap();
        runtime.shutdown().await.unwrap();
        let runtime = renamed(place.open()).start().await.unwrap();
        let topic = runtime.durable_topic(NEW).unwrap();
        assert_eq!(
            topic
                .read(ReadFrom::Beginning)
                .await
                .unwrap()
                .next()
                .await
                .unwrap()
                .into_payload(),
            1
        );
        runtime.shutdown().await.unwrap();
    }
}

/// Places that were kept by the name would skip records.
#[tokio::test]
async fn a_name_of_a_deleted_topic_with_more_records_is_refused() {
    for mut place in Place::both() {
        let runtime = old(place.open()).durable_topic(NEW).start().await.unwrap();
        publish(&runtime, NEW, "k", &[1, 2]).await;
        publish(&runtime, OLD, "k", &[1]).await;
        runtime.delete_durable_topic(NEW.topic().name()).await.unwrap();
        runtime.shutdown().await.unwrap();
        match renamed(place.open()).start().await.map(drop) {
            Err(
                error @ OpenError::TopicNotRenamed {
                    former: "numbers", ..
                },
            ) => {
                let why = std::error::Error::source(&error).unwrap().to_string();
                assert!(why.contains("up to number 2"), "{why}");
            }
            started => panic!("{started:?}"),
        }
    }
}

#[tokio::test]
async fn a_former_name_that_is_said_otherwise_too_is_refused() {
    const OTHER: DurableTopic<u64> = Topic::named("other").durable();
    type Declare = fn(RuntimeBuilder) -> RuntimeBuilder;
    for (declare, expected) in [
        (
            (|builder| builder.durable_topic(OLD)) as Declare,
            "as that of a durable topic",
        ),
        (
            |builder| builder.topic(OLD.topic()),
            "as that of a topic of the broker",
        ),
        (
            |builder| builder.rename_durable_topic("numbers", OTHER),
            "as that of",
        ),
    ] {
        let builder = Runtime::volatile().rename_durable_topic("numbers", NEW);
        match declare(builder).start().await.map(drop) {
            Err(OpenError::TopicContradiction {
                name: "numbers",
                problem,
            }) => {
                assert!(problem.contains(expected), "{problem}");
            }
            started => panic!("{started:?}"),
        }
    }
    let started = Runtime::volatile()
        .rename_durable_topic("numbers", OLD)
        .start()
        .await;
    assert!(
        matches!(started, Err(OpenError::TopicContradiction { .. })),
        "{started:?}"
    );
    let started = Runtime::volatile().rename_durable_topic("", OLD).start().await;
    assert!(
        matches!(started, Err(OpenError::Topic { name: "", .. })),
        "{started:?}"
    );
    let started = Runtime::volatile()
        .rename_durable_topic("millrun.x", OLD)
        .start()
        .await;
    assert!(
        matches!(started, Err(OpenError::ReservedName { .. })),
        "{started:?}"
    );
    // Said twice alike it is said once.
    let builder = Runtime::volatile().rename_durable_topic("numbers", NEW);
    let builder = builder.rename_durable_topic("numbers", NEW).durable_topic(NEW);
    let builder = builder.topic_terms("numbers.>", TopicTerms::new().len_max(9));
    let runtime = builder.start().await.unwrap();
    let told = runtime.broker().topic::<u64>("numbers").map(drop);
    assert!(
        told.is_err(),
        "what names the former one at the broker would hear nothing"
    );
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_preflight_tries_runs_with_the_topic_renamed() {
    let store = Store::new();
    let runtime = old(store.bare()).start().await.unwrap();
    let run = runtime.start(TAKE, "w", ("w".to_owned(), 2)).await.unwrap();
    waits_for(&run, "numbers").await;
    runtime.shutdown().await.unwrap();
    assert!(renamed(store.bare()).preflight().await.unwrap().is_fit());
    let without = named(store.bare(), NEW)
        .durable_topic(NEW)
        .preflight()
        .await
        .unwrap();
    assert!(!without.is_fit());
}

/// How many runs relay, and how many numbers each.
const RUNS: usize = 3;
const RELAYED: u64 = 4;

/// All runs, begun if they are not there, to their end; and a subscription that acknowledges what it gets.
async fn script(builder: RuntimeBuilder, topic: DurableTopic<u64>) {
    let runtime = builder.start().await.unwrap();
    let billing = runtime
        .durable_topic(topic)
        .unwrap()
        .subscribe("billing")
        .await
        .unwrap();
    let start = |run: usize| {
        let key = format!("run-{run}");
        let runtime = &runtime;
        async move { runtime.start(RELAY, &key, (key.clone(), RELAYED)).await.unwrap() }
    };
    let mut runs = Vec::new();
    for run in 0..RUNS {
        runs.push(start(run).await);
    }
    for run in runs {
        assert_eq!(run.result().await.unwrap(), (0..RELAYED).collect::<Vec<_>>());
    }
    while billing.status().lag > 0 {
        let delivery = billing.next().await.unwrap();
        delivery.ack().unwrap().await.unwrap();
    }
    let handle = runtime.durable_topic(topic).unwrap();
    let mut reader = handle.read(ReadFrom::Beginning).await.unwrap();
    let mut by_run = vec![Vec::new(); RUNS];
    for _ in 0..RUNS as u64 * RELAYED {
        let record = reader.next().await.unwrap();
        let run: usize = record.key().unwrap()["run-".len()..].parse().unwrap();
        by_run[run].push(record.into_payload());
    }
    assert_eq!(by_run, vec![(0..RELAYED).collect::<Vec<_>>(); RUNS]);
    let last = runtime
        .durable_topics()
        .into_iter()
        .find(|known| known.name == topic.topic().name());
    assert_eq!(last.unwrap().last, RUNS as u64 * RELAYED, "once each");
    drop(billing);
    drop(runtime.shutdown().await);
}

/// A life under the former name that ends after so many steps, one under the present name that ends after as many, and one that
/// ends by itself. True if the second had nothing left to do.
fn play(seed: u64, [old_steps, renamed_steps]: [u64; 2]) -> bool {
    let mut journal = Arc::new(MemoryJournal::held(JournalConfig::default()).unwrap());
    let mut is_done = false;
    for (life, steps) in (0..).zip([Some(old_steps), Some(renamed_steps), None]) {
        let sim = SimHost::new(SimConfig::seeded(seed + life));
        let commits = committer(sim.host(), Arc::clone(&journal));
        let commits = sim.host().spawn("committer", Box::pin(commits));
        let builder = Runtime::volatile().host(sim.host());
        let builder = builder.journal(Arc::clone(&journal) as Arc<dyn Journal>);
        let script = match life {
            0 => Box::pin(script(old(builder), OLD)) as std::pin::Pin<Box<dyn Future<Output = ()> + Send>>,
            _ => Box::pin(script(renamed(builder), NEW)),
        };
        match steps {
            Some(steps) => is_done = cut_off(&sim, steps, script),
            None => {
                sim.block_on(script).unwrap();
                sim.crash();
            }
        }
        drop(commits);
        journal = Arc::new(journal.reopened());
    }
    is_done
}

#[test]
fn a_crash_before_or_behind_the_renaming_leaves_each_record_once_and_each_run_ends() {
    for (seed, old_steps) in (1..).zip([10, 60, 120, 200, 300, 400]) {
        let mut steps = 1 + seed;
        while !play(seed * 1_000, [old_steps, steps]) {
            steps += 23;
        }
        assert!(steps > 20, "a play has {steps} steps");
    }
}

/// As [`play`], with a store in a file.
#[test]
fn a_crash_in_a_file_loses_nothing_of_a_topic_that_is_renamed() {
    for seed in 1..8 {
        let store = Store::new();
        for (life, steps) in (0..).zip([40 * seed, 30 * seed]) {
            let sim = SimHost::new(SimConfig::seeded(seed * 1_000 + life));
            let builder = store.bare().host(sim.host());
            match life {
                0 => cut_off(&sim, steps, script(old(builder), OLD)),
                _ => cut_off(&sim, steps, script(renamed(builder), NEW)),
            };
        }
        let sim = SimHost::new(SimConfig::seeded(seed * 1_000 + 2));
        let builder = store.bare().host(sim.host());
        sim.block_on(script(renamed(builder), NEW)).unwrap();
    }
}
