//! What workflows publish to durable topics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millrun::broker::SubscriptionConfig;
use millrun::broker::mailbox::MailboxConfig;
use millrun::history::Event;
use millrun::store::{Journal, JournalConfig, MemoryJournal};
use millrun::topics::ReadFrom;
use millrun::workflow::{PublishOutcome, PublishStepError};
use millrun::{DurableTopic, Runtime, RuntimeBuilder, Topic, Workflow, WorkflowContext, WorkflowError};

use millrun_persistence::TopicAppend;

use super::{NUMBERS, all, memory, take, take_all};
use crate::support::described;
use crate::tapped::{Tapped, intrude};

/// Publishes as many numbers, and says how that went.
const COUNT: Workflow<u64, Vec<String>> = Workflow::named("count");

async fn count(cx: WorkflowContext, len: u64) -> Result<Vec<String>, WorkflowError> {
    let mut told = Vec::new();
    for number in 0..len {
        told.push(match cx.publish(NUMBERS, number).await {
            Ok(PublishOutcome::Taken) => "taken".to_owned(),
            Ok(outcome) => format!("{outcome:?}"),
            Err(PublishStepError::Refused(error)) => error,
            Err(error) => return Err(error.into()),
        });
    }
    Ok(told)
}

fn counting(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder.register(COUNT, count)
}

#[tokio::test]
async fn a_run_publishes_each_value_once_in_order_and_in_the_commit_of_its_turn() {
    for hot_len_max in [0, 100] {
        let builder = counting(Runtime::volatile().durable_topic(NUMBERS)).configure(|config| {
            config.hot_len_max = hot_len_max;
            config.replay_check_every = 1;
        });
        let runtime = builder.start().await.unwrap();
        let topic = runtime.durable_topic(NUMBERS).unwrap();
        let mut reader = topic.read(ReadFrom::Now).await.unwrap();
        let commits = runtime.stats().journal.commits;
        let id = format!("count-{hot_len_max}");
        let run = runtime.start(COUNT, &id, 3).await.unwrap();
        assert_eq!(run.result().await.unwrap(), ["taken"; 3]);
        assert_eq!(runtime.stats().journal.commits - commits, 1, "all is one sweep");
        for (record, number) in take(&mut reader, 3).await.into_iter().zip(0..) {
            assert_eq!((*record.payload(), record.key()), (number, Some(id.as_str())));
            assert_eq!(record.run_cause().unwrap().run, run.run_id().unwrap());
        }
        let stats = runtime.stats();
        assert_eq!((stats.replay_differences, stats.parked), (0, 0));
        runtime.durable_topic(NUMBERS).unwrap().publish(&9).await.unwrap();
        drop(runtime);
    }
}

/// Far more than one batch takes.
#[tokio::test]
async fn a_run_that_publishes_very_much_leaves_others_their_turns_and_loses_nothing() {
    const LEN: u64 = 3_000;
    let builder = counting(Runtime::volatile().durable_topic(NUMBERS)).configure(|config| {
        config.sweep_len_max = 10;
    });
    let runtime = builder.start().await.unwrap();
    let topic = runtime.durable_topic(NUMBERS).unwrap();
    let run = runtime.start(COUNT, "much", LEN).await.unwrap();
    let other = runtime.start(COUNT, "other", 1).await.unwrap();
    assert_eq!(other.result().await.unwrap(), ["taken"]);
    assert_eq!(run.result().await.unwrap().len(), usize::try_from(LEN).unwrap());
    let read = all(&topic, &runtime, ReadFrom::Beginning).await.into_iter();
    let of_run = read
        .map(Result::unwrap)
        .filter(|record| record.key() == Some("much"));
    assert!(
        of_run
            .map(millrun::topics::DurableRecord::into_payload)
            .eq(0..LEN)
    );
    runtime.shutdown().await.unwrap();
}

/// A publish that was decided before the topic was durable, or registered, waits in its history.
#[tokio::test]
async fn a_publish_that_waited_for_a_topic_is_made_when_the_topic_is_declared_durable() {
    let journal = memory();
    let open = || counting(Runtime::volatile()).journal(Arc::clone(&journal) as Arc<dyn Journal>);
    let runtime = open().start().await.unwrap();
    let run = runtime.start(COUNT, "waits", 2).await.unwrap();
    let is_parked = |run: &millrun::operating::InstanceDescription| run.sequence.get() >= 3;
    described(&run, is_parked).await;
    let runtime = open().durable_topic(NUMBERS).start().await.unwrap();
    let run = runtime.attach(COUNT, "waits").unwrap();
    assert_eq!(run.result().await.unwrap(), ["taken"; 2]);
    let topic = runtime.durable_topic(NUMBERS).unwrap();
    let read = all(&topic, &runtime, ReadFrom::Beginning).await;
    let read: Vec<_> = read
        .into_iter()
        .map(|read| read.unwrap().into_payload())
        .collect();
    assert_eq!(read, [0, 1]);
    runtime.shutdown().await.unwrap();
}

/// What the topic of the broker had taken stays there; what waited for room in it becomes a record, once.
#[tokio::test]
async fn a_publish_that_waited_for_room_is_made_as_a_record_when_the_topic_is_declared_durable() {
    let journal = memory();
    let open = || counting(Runtime::volatile()).journal(Arc::clone(&journal) as Arc<dyn Journal>);
    let runtime = open().topic(NUMBERS.topic()).start().await.unwrap();
    let config = SubscriptionConfig {
        inbox: MailboxConfig {
            capacity: 1,
            ..MailboxConfig::default()
        },
        ..SubscriptionConfig::default()
    };
    let full = runtime.broker().subscribe::<u64>("numbers", config).unwrap();
    let run = runtime.start(COUNT, "waits", 2).await.unwrap();
    // The second publish waits for room: it is scheduled, and parked.
    let is_parked = |run: &millrun::operating::InstanceDescription| run.sequence.get() >= 5;
    described(&run, is_parked).await;
    let runtime = open().durable_topic(NUMBERS).start().await.unwrap();
    let run = runtime.attach(COUNT, "waits").unwrap();
    assert_eq!(run.result().await.unwrap(), ["taken"; 2]);
    let topic = runtime.durable_topic(NUMBERS).unwrap();
    assert_eq!(take_all(&topic, &runtime, ReadFrom::Beginning).await, [1]);
    assert_eq!(full.len(), 1);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_value_that_no_record_has_room_for_is_refused_to_its_run() {
    const TEXTS: DurableTopic<String> = Topic::named("texts").durable();
    const LARGE: Workflow<usize, String> = Workflow::named("large");
    async fn large(cx: WorkflowContext, bytes: usize) -> Result<String, WorkflowError> {
        match cx.publish(TEXTS, "x".repeat(bytes)).await {
            Err(PublishStepError::Refused(error)) => Ok(error),
            other => Ok(format!("{other:?}")),
        }
    }
    let builder = Runtime::volatile().register(LARGE, large).durable_topic(TEXTS);
    let runtime = builder
        .configure(|config| {
            config.journal.turn_bytes_max = 4_000;
            config.limits.payload_bytes_max = 2_000;
        })
        .start()
        .await
        .unwrap();
    for (bytes, expected) in [
        (100, "Ok(Taken)"),
        (1_900, "the value has 1904 bytes, a record may have "),
    ] {
        let run = runtime.start(LARGE, &format!("l-{bytes}"), bytes).await.unwrap();
        let told = run.result().await.unwrap();
        assert!(told.starts_with(expected), "{told}");
    }
    assert_eq!(runtime.durable_topics()[0].last, 1);
    runtime.shutdown().await.unwrap();
}

/// What is durable of a run that publishes: the turn and its record, or neither.
#[tokio::test]
async fn before_the_commit_neither_the_turn_nor_its_record_is_there() {
    let journal = Arc::new(MemoryJournal::held(JournalConfig::default()).unwrap());
    let open =
        |journal: Arc<MemoryJournal>| counting(Runtime::volatile().durable_topic(NUMBERS)).journal(journal);
    let starting = tokio::spawn(open(Arc::clone(&journal)).start());
    while !starting.is_finished() {
        journal.commit();
        tokio::task::yield_now().await;
    }
    let runtime = starting.await.unwrap().unwrap();
    let begin = {
        let runtime = runtime.clone();
        tokio::spawn(async move { runtime.start(COUNT, "c", 2).await.map(|run| run.run_id()) })
    };
    while runtime.stats().journal.queued_bytes == 0 {
        tokio::task::yield_now().await;
    }
    let before = journal.reopened();
    assert_eq!(before.stats().live_runs + before.stats().finished_runs, 0);
    assert_eq!(before.topics().unwrap().list()[0].last.get(), 0);
    journal.commit();
    let run = begin.await.unwrap().unwrap().unwrap();
    let after = journal.reopened();
    assert_eq!(after.topics().unwrap().list()[0].last.get(), 2);
    let history = runtime
        .history(run, millrun::history::Sequence::ZERO, 100)
        .await
        .unwrap();
    let published = history
        .events
        .iter()
        .filter(|event| matches!(event.event, Event::Published { .. }));
    assert_eq!(published.count(), 2);
}

/// A turn that the journal refuses takes its record with it, and the value is published by what is decided anew.
#[tokio::test]
async fn a_refused_turn_takes_its_record_with_it_and_the_value_is_published_once_all_the_same() {
    const STEPS: Workflow<u64, ()> = Workflow::named("steps");
    async fn steps(cx: WorkflowContext, len: u64) -> Result<(), WorkflowError> {
        for number in 0..len {
            cx.sleep(std::time::Duration::from_millis(1)).await?;
            cx.publish(NUMBERS, number).await?;
        }
        Ok(())
    }
    for ahead in [0, 1_000] {
        let (calls, refused) = (AtomicU64::new(0), Arc::new(AtomicU64::new(0)));
        let refusals = Arc::clone(&refused);
        let journal = Tapped::new(memory(), move |journal, batch| {
            if !batch.is_empty() && calls.fetch_add(1, Ordering::Relaxed) % 4 == 3 {
                intrude(journal, batch, ahead);
            }
            let enqueued = journal.enqueue(batch)?;
            let gone = enqueued.topic_appends.iter();
            let gone = gone.filter(|append| **append == TopicAppend::WithTurn);
            refusals.fetch_add(gone.count() as u64, Ordering::Relaxed);
            Ok(enqueued)
        });
        journal.keep_topics();
        let builder = Runtime::volatile().durable_topic(NUMBERS).register(STEPS, steps);
        let builder = builder.configure(|config| config.restarts_max = 0);
        let runtime = builder.journal(journal).start().await.unwrap();
        for run in 0..10 {
            let run = runtime.start(STEPS, &format!("s-{run}"), 5).await.unwrap();
            while run.result().await.is_err() {
                assert!(runtime.stop_cause().is_none());
            }
        }
        assert!(refused.load(Ordering::Relaxed) >= 5, "{refused:?}");
        let topic = runtime.durable_topic(NUMBERS).unwrap();
        let mut by_run: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for record in all(&topic, &runtime, ReadFrom::Beginning).await {
            let record = record.unwrap();
            let of = record.key().unwrap().to_owned();
            by_run.entry(of).or_default().push(record.into_payload());
        }
        assert_eq!(by_run.len(), 10);
        for (run, values) in by_run {
            assert_eq!(values, [0, 1, 2, 3, 4], "{run}");
        }
        runtime.shutdown().await.unwrap();
    }
}
