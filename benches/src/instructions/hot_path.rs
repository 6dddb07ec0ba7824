//! The paths that everything takes, each on one thread and without a disk.

use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use millrun::host::{HostConfig, TokioHost};
use millrun::{Runtime, RuntimeBuilder};
use millrun_broker::{Broker, BrokerConfig, SubscriptionConfig};
use millrun_core::{InstanceId, Partition, RunId, Sequence, Timestamp};
use millrun_persistence::{Batch, Journal, JournalConfig, RedbJournal, TurnHeader};
use millrun_testkit::{SimConfig, SimHost, SimStop};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{fmt, registry};

use super::memory_disk::MemoryDisk;
use crate::runs::{Saturation, saturate};
use crate::workflows::{ONE_STEP, registered};
use crate::{BenchError, store_in, workers};

/// How many turns each commit of [`HotPath::Append`] has.
const TURNS_PER_COMMIT: u64 = 1_000;
/// How many runs of [`HotPath::OneStep`] there are at a time.
const RUNS_AT_A_TIME: usize = 64;
/// How many runs of [`HotPath::Durable`] go on at a time, and on how many worker threads.
const DURABLE_AT_A_TIME: usize = 1_024;
const DURABLE_THREADS: usize = 2;
const PAYLOAD_BYTES: usize = 32;
const BODY_BYTES: usize = 100;

/// A path to be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HotPath {
    /// One envelope of 32 bytes from a publisher through a topic to a receiver.
    Publish,
    /// One event of 100 bytes from its batch into a store in memory, 1,000 to a commit.
    Append,
    /// One run of a one-step workflow on the volatile store, 64 at a time.
    OneStep,
    /// The same in a program that logs at `INFO`, as `millrun serve` does: neither a message nor a step is to enter a
    /// span.
    Logged,
    /// [`OneStep`](Self::OneStep) with durations recorded.
    Recorded,
    /// [`OneStep`](Self::OneStep) on a store that is synced, 1,024 at a time on two threads. What it takes depends on
    /// the disk: it is sampled, not counted.
    Durable,
}

impl HotPath {
    /// Those that are counted, and guarded.
    pub const COUNTED: [Self; 5] = [
        Self::Publish,
        Self::Append,
        Self::OneStep,
        Self::Logged,
        Self::Recorded,
    ];

    /// Its name in the table and in `instructions.toml`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Publish => "publish to receive",
            Self::Append => "append",
            Self::OneStep => "one-step run",
            Self::Logged => "one-step run, logged",
            Self::Recorded => "one-step run, durations recorded",
            Self::Durable => "one-step run, durable",
        }
    }

    /// Fewer and more operations: enough that the first ones do not matter.
    pub(super) const fn operations(self) -> (u64, u64) {
        match self {
            Self::Publish => (20_000, 120_000),
            Self::Append => (10_000, 60_000),
            Self::OneStep | Self::Logged | Self::Recorded | Self::Durable => (1_000, 5_000),
        }
    }

    /// Takes the path `operations` times; a store on disk lies in `folder`.
    ///
    /// # Errors
    /// When something arrives wrongly or not at all.
    pub fn take(self, operations: u64, folder: &Path) -> Result<(), BenchError> {
        match self {
            Self::Publish => on_tokio(publish(operations)),
            Self::Append => append(operations),
            Self::OneStep => on_tokio(async {
                let runtime = started(Runtime::volatile()).await?;
                one_step(runtime, RUNS_AT_A_TIME, operations).await
            }),
            Self::Logged => {
                let lines = fmt::layer().with_writer(io::sink).with_filter(LevelFilter::INFO);
                registry().with(lines).try_init().map_err(failed)?;
                Self::OneStep.take(operations, folder)
            }
            Self::Recorded => on_tokio(async {
                let runtime = started(Runtime::volatile()).await?;
                is_all(runtime.durations().commits.len(), 0)?;
                one_step(runtime, RUNS_AT_A_TIME, operations).await
            }),
            Self::Durable => {
                let store = store_in(folder)?;
                let builder = Runtime::open(store.path().join("store.redb"));
                workers(DURABLE_THREADS)?.block_on(async {
                    let runtime = started(builder).await?;
                    one_step(runtime, DURABLE_AT_A_TIME, operations).await
                })
            }
        }
    }
}

fn failed(error: impl std::fmt::Display) -> BenchError {
    BenchError::failed("millrun", error)
}

fn on_tokio(work: impl Future<Output = Result<(), BenchError>>) -> Result<(), BenchError> {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build();
    tokio.map_err(BenchError::Runtime)?.block_on(work)
}

async fn publish(operations: u64) -> Result<(), BenchError> {
    let host = TokioHost::spawn(HostConfig::default()).await.map_err(failed)?;
    let broker = Broker::new(BrokerConfig::default(), host.host());
    let inbox = broker
        .subscribe::<Vec<u8>>("bench.guard", SubscriptionConfig::default())
        .map_err(failed)?;
    let mut publisher = broker
        .topic::<Vec<u8>>("bench.guard")
        .map_err(failed)?
        .publisher();
    let consumer = tokio::spawn(async move {
        let mut receiver = inbox.into_receiver();
        let mut received = 0;
        while received < operations {
            match receiver.recv().await {
                Some(envelope) => received += u64::from(envelope.payload().len() == PAYLOAD_BYTES),
                None => break,
            }
        }
        received
    });
    for _ in 0..operations {
        publisher
            .publish(vec![0x6d; PAYLOAD_BYTES])
            .await
            .map_err(failed)?;
    }
    let received = consumer.await.map_err(failed)?;
    host.shutdown(Duration::from_secs(10)).await.map_err(failed)?;
    is_all(received, operations)
}

fn append(operations: u64) -> Result<(), BenchError> {
    let world = SimHost::new(SimConfig::seeded(1));
    let disk = Arc::new(MemoryDisk::default());
    let journal =
        RedbJournal::open_disk(disk, "memory", JournalConfig::default(), world.host()).map_err(failed)?;
    let all: Vec<_> = (0..Partition::COUNT).filter_map(Partition::from_index).collect();
    let epoch = journal.take_over(&all).map_err(failed)?;
    let ids = (0..TURNS_PER_COMMIT).map(|number| InstanceId::new(&format!("instance-{number}")));
    let ids: Vec<_> = ids.collect::<Result<_, _>>().map_err(failed)?;
    let time = Timestamp::from_micros(1_700_000_000_000_000);
    let mut batch = Batch::new();
    for commit in 0..operations / TURNS_PER_COMMIT {
        batch.clear();
        for (number, id) in (0..).zip(&ids) {
            let mut turn = batch.turn(TurnHeader {
                run: RunId::new(id.partition(), time, number),
                head: Sequence::new(commit),
                epoch,
                time,
                opens: (commit == 0).then_some(id),
            });
            let encode = |body: &mut Vec<u8>| {
                body.extend_from_slice(&[0x6d; BODY_BYTES]);
                Ok::<_, Infallible>(())
            };
            turn.record(1, encode).map_err(failed)?;
            turn.finish(false).map_err(failed)?;
        }
        let enqueued = journal.enqueue(&batch).map_err(failed)?;
        if world.run_until(|| journal.high_watermark() >= enqueued.offset) != SimStop::Reached {
            return Err(failed("a commit did not become durable"));
        }
        is_all(
            batch.turns() as u64 - enqueued.refused.len() as u64,
            TURNS_PER_COMMIT,
        )?;
    }
    is_all(journal.stats().turns, operations)
}

async fn started(builder: RuntimeBuilder) -> Result<Runtime, BenchError> {
    registered(builder).start().await.map_err(failed)
}

async fn one_step(runtime: Runtime, at_a_time: usize, operations: u64) -> Result<(), BenchError> {
    let load = Saturation {
        concurrency: at_a_time,
        warm_up: Duration::ZERO,
        measured: Duration::from_secs(600),
        runs_max: operations,
    };
    let on = runtime.clone();
    let sample = saturate(load, move |number| {
        let runtime = on.clone();
        async move {
            let id = format!("run-{number}");
            let run = runtime.start(ONE_STEP, &id, number).await.map_err(failed)?;
            is_all(run.result().await.map_err(failed)?, number + 1)
        }
    })
    .await?;
    runtime.shutdown().await.map_err(failed)?;
    is_all(sample.completed, operations)
}

fn is_all(found: u64, expected: u64) -> Result<(), BenchError> {
    if found == expected {
        return Ok(());
    }
    Err(BenchError::Wrong {
        contestant: "millrun".into(),
        what: format!("{expected} expected, {found} found"),
    })
}
