//! A run for each key that loops: it takes each record of its key, decides, and publishes to another topic.
//!
//! ```text
//!   records on disk ──► trigger ──► signal ──┐
//!                                            ├──► run of the key ──► decided
//!   publishers ──► records ──► receive_from ─┘
//! ```

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrun::topics::{DurableTopicHandle, ReadFrom, TopicReader};
use millrun::{
    DurableTopic, Runtime, RuntimeBuilder, Signal, Topic, Workflow, WorkflowContext, WorkflowError,
};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::publishing::PUBLISHERS;
use super::records::{KEYS, RECORDS, number_of, record_of, wrong};
use crate::http::Summary;
use crate::scale::{failed, unless_stopped};
use crate::{BenchError, workers};

/// What the runs of keys decide, for ever.
const DECIDE: Workflow<(), ()> = Workflow::named("bench.decide");
const ARRIVED: Signal<u64> = Signal::named("bench.arrived");
/// The same, of records that the run itself receives: its input is its key.
const RECEIVE: Workflow<String, ()> = Workflow::named("bench.receive");
/// Twice the number of the record.
const DECIDED: DurableTopic<u64> = Topic::named("bench.decided")
    .durable()
    .bytes_max(u64::MAX)
    .len_max(u64::MAX);
/// After how many records the code begins again from its state.
const CHECKPOINT_EVERY: u64 = 128;
/// How often it is looked whether all is decided.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// How many records are published, and not decided on, at a time: runs that wait find the latest 32,768 without a look at the log.
const UNDECIDED_MAX: usize = 8 * PUBLISHERS;
// Each key has a publisher.
const _: () = assert!(KEYS == PUBLISHERS as u64);

async fn decide(cx: WorkflowContext, (): ()) -> Result<(), WorkflowError> {
    let mut decided: u64 = cx.checkpointed().transpose()?.unwrap_or(0);
    loop {
        let number = cx.receive(ARRIVED).await?;
        cx.publish(DECIDED, number * 2).await?;
        decided += 1;
        if decided.is_multiple_of(CHECKPOINT_EVERY) {
            return Ok(cx.checkpoint(&decided).await?);
        }
    }
}

async fn receive(cx: WorkflowContext, key: String) -> Result<(), WorkflowError> {
    let mut decided: u64 = cx.checkpointed().transpose()?.unwrap_or(0);
    let records = cx.subscribe(RECORDS).key(key);
    loop {
        let number = number_of(records.next().await?.payload()).unwrap_or(u64::MAX);
        cx.publish(DECIDED, number.wrapping_mul(2)).await?;
        decided += 1;
        if decided.is_multiple_of(CHECKPOINT_EVERY) {
            return Ok(cx.checkpoint(&decided).await?);
        }
    }
}

fn opened(folder: &Path) -> RuntimeBuilder {
    Runtime::open(folder.join("store.redb"))
        .durable_topic(RECORDS)
        .durable_topic(DECIDED)
        .register(DECIDE, decide)
        .register(RECEIVE, receive)
}

/// Decides on each record of the numbers below `records` of the store in this folder: until the last decision is durable.
pub(super) fn decide_all(folder: &Path, records: u64, threads: usize) -> Result<Summary, BenchError> {
    workers(threads)?.block_on(async {
        let runtime = opened(folder).start().await.map_err(failed)?;
        let topic = runtime.durable_topic(RECORDS).map_err(failed)?;
        let started = Instant::now();
        let trigger = topic.trigger("decide");
        let trigger = trigger.start_with_signal(DECIDE, ARRIVED, |record| {
            let number = number_of(record.payload()).unwrap_or(u64::MAX);
            (record.key().unwrap_or_default().to_owned(), (), number)
        });
        let trigger = trigger.await.map_err(failed)?;
        let all_decided = async {
            while decided_len(&runtime) < records || trigger.handled() < records {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        unless_stopped(&runtime, all_decided).await?;
        let took = started.elapsed();
        let refused = trigger.refused();
        drop((trigger, topic));
        if refused != 0 {
            return Err(wrong(format!("{refused} of {records} records were refused")));
        }
        ended(runtime, records, took).await
    })
}

/// Publishes the records of the numbers below `records` to a store in this folder, and decides on them as they come: from the
/// first publish until the last decision is durable.
pub(super) fn decide_as_they_come(
    folder: &Path,
    records: u64,
    threads: usize,
) -> Result<Summary, BenchError> {
    workers(threads)?.block_on(async {
        let runtime = opened(folder).start().await.map_err(failed)?;
        let topic = runtime.durable_topic(RECORDS).map_err(failed)?;
        for key in super::records::keys() {
            let run = runtime.start(RECEIVE, &key, key.clone());
            drop(run.await.map_err(failed)?);
        }
        let decided = runtime.durable_topic(DECIDED).map_err(failed)?;
        let mut reader = decided.read(ReadFrom::Beginning).await.map_err(failed)?;
        let room = Arc::new(Semaphore::new(UNDECIDED_MAX));
        let started = Instant::now();
        let mut publishers = publish_as_there_is_room(&topic, records, &room);
        let all_decided = async {
            for _ in 0..records {
                reader.next().await.map_err(failed)?;
                room.add_permits(1);
            }
            Ok::<_, BenchError>(())
        };
        unless_stopped(&runtime, all_decided).await??;
        let took = started.elapsed();
        while let Some(publisher) = publishers.join_next().await {
            publisher.map_err(failed)??;
        }
        drop((topic, decided, reader));
        ended(runtime, records, took).await
    })
}

/// A publisher for each key, which publishes its next record when that before is durable and few enough are undecided.
fn publish_as_there_is_room(
    topic: &DurableTopicHandle<String>,
    records: u64,
    room: &Arc<Semaphore>,
) -> JoinSet<Result<(), BenchError>> {
    let mut publishers = JoinSet::new();
    for (first, key) in (0..KEYS).zip(super::records::keys()) {
        let (topic, room) = (topic.clone(), Arc::clone(room));
        publishers.spawn(async move {
            for number in (first..records).step_by(PUBLISHERS) {
                room.acquire().await.map_err(failed)?.forget();
                topic
                    .publish(&record_of(number))
                    .key(&key)
                    .await
                    .map_err(failed)?;
            }
            Ok(())
        });
    }
    publishers
}

fn decided_len(runtime: &Runtime) -> u64 {
    let all = runtime.durable_topics();
    let decided = all.iter().find(|topic| topic.name == DECIDED.topic().name());
    decided.map_or(0, |topic| topic.last)
}

/// Looks whether each number below `records` was decided on once, and ends the runtime.
async fn ended(runtime: Runtime, records: u64, took: Duration) -> Result<Summary, BenchError> {
    let decided = runtime.durable_topic(DECIDED).map_err(failed)?;
    let mut reader: TopicReader<u64> = decided.read(ReadFrom::Beginning).await.map_err(failed)?;
    let mut sum: u128 = 0;
    for _ in 0..records {
        let next = unless_stopped(&runtime, reader.next()).await?;
        sum += u128::from(*next.map_err(failed)?.payload());
    }
    let (len, all) = (decided_len(&runtime), u128::from(records));
    drop((decided, reader));
    runtime.shutdown().await.map_err(failed)?;
    if len != records || sum != all * (all - 1) {
        return Err(wrong(format!(
            "of {records} records {len} were decided, and the numbers make {sum}"
        )));
    }
    Ok(Summary {
        per_s: records as f64 / took.as_secs_f64(),
        ..Summary::default()
    })
}
