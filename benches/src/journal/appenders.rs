//! Many tasks, each with a run of its own, each waiting for its event before it writes the next.
//!
//! The tasks of a thread encode into one batch, which is free again once it is gathered: a batch of its
//! own for each of 16,384 tasks would be out of the processor's cache whenever its turn comes.

use std::cell::RefCell;
use std::convert::Infallible;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use millrun::host::{HostConfig, TokioHost};
use millrun_core::{Epoch, Host, InstanceId, Partition, RunId, Sequence, Timestamp};
use millrun_persistence::appender::Appender;
use millrun_persistence::{Batch, EnqueueError, Journal, JournalConfig, RedbJournal, TurnHeader};

use super::floor::histogram;
use super::row::Sample;
use crate::{BenchError, resident_bytes, workers, written_bytes};

thread_local! {
    static LATENCY: RefCell<Histogram<u64>> = RefCell::new(histogram());
    static BATCH: RefCell<Batch> = RefCell::new(Batch::new());
}

/// How many append, what, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Appends {
    /// Worker threads of the tokio runtime.
    pub(crate) threads: usize,
    /// Tasks that append, each waiting for its event.
    pub(crate) appenders: usize,
    /// Size of each event's body.
    pub(crate) body_bytes: usize,
    /// How long.
    pub(crate) time: Duration,
}

/// Appends to the journal in this file, which is opened for it, on a tokio runtime of its own.
pub(crate) fn append_to_file(
    path: &Path,
    config: JournalConfig,
    load: Appends,
) -> Result<Sample, BenchError> {
    let open = |host: &Arc<dyn Host>| {
        let journal = RedbJournal::open(path, config, Arc::clone(host));
        let journal = journal.map_err(|error| BenchError::failed("millrun", error))?;
        Ok(Arc::new(journal) as Arc<dyn Journal>)
    };
    append_to(open, load)
}

/// Appends to the journal that `open` gives, on a tokio runtime of its own.
pub(super) fn append_to(
    open: impl FnOnce(&Arc<dyn Host>) -> Result<Arc<dyn Journal>, BenchError>,
    load: Appends,
) -> Result<Sample, BenchError> {
    workers(load.threads)?.block_on(async {
        let owner = TokioHost::spawn(HostConfig::default()).await;
        let owner = owner.map_err(|error| BenchError::failed("millrun", error))?;
        let host = owner.host();
        let journal = open(&host)?;
        let sample = append(Arc::clone(&journal), &*host, load).await?;
        journal
            .close()
            .map_err(|error| BenchError::failed("millrun", error))?;
        Ok(sample)
    })
}

async fn append(journal: Arc<dyn Journal>, host: &dyn Host, load: Appends) -> Result<Sample, BenchError> {
    let Appends {
        appenders,
        body_bytes,
        time,
        ..
    } = load;
    let failed = |error: &dyn std::fmt::Display| BenchError::failed("millrun", error);
    let epoch = journal.take_over(&partitions()).map_err(|error| failed(&error))?;
    let appender = Appender::new(Arc::clone(&journal), host).map_err(|error| failed(&error))?;
    let before = journal.stats();
    let latency = Arc::new(Mutex::new(histogram()));
    let (started, written) = (Instant::now(), written_bytes());
    let body: Arc<[u8]> = vec![0x6d; body_bytes].into();
    let tasks: Vec<_> = (0..appenders)
        .map(|number| {
            let (appender, latency) = (appender.clone(), Arc::clone(&latency));
            let body = Arc::clone(&body);
            tokio::spawn(async move {
                let mut author = Author::new(number as u64, epoch);
                let mut last = Instant::now();
                while last - started < time {
                    let queued = BATCH.with_borrow_mut(|batch| {
                        batch.clear();
                        author.put(batch, &body);
                        match appender.gather(batch) {
                            Err(EnqueueError::Full) => Err(batch.clone()),
                            outcome => Ok(outcome),
                        }
                    });
                    let refused = match queued {
                        Ok(outcome) => outcome?.await?,
                        // There was no room: it waits with a batch of its own.
                        Err(batch) => appender.append(&batch).await?.refused,
                    };
                    assert!(refused.is_empty(), "every turn has the right head");
                    let now = Instant::now();
                    let nanos = u64::try_from((now - last).as_nanos()).unwrap_or(u64::MAX);
                    LATENCY.with_borrow_mut(|latency| latency.saturating_record(nanos));
                    last = now;
                }
                LATENCY.with_borrow_mut(|own| {
                    if !own.is_empty() {
                        let mut all = latency.lock().unwrap_or_else(PoisonError::into_inner);
                        all.add(&*own).expect("both have the same bounds");
                        own.reset();
                    }
                });
                Ok::<_, EnqueueError>(author.head)
            })
        })
        .collect();
    let mut events = 0;
    for task in tasks {
        events += task
            .await
            .map_err(|error| failed(&error))?
            .map_err(|error| failed(&error))?;
    }
    let took = started.elapsed();
    let after = journal.stats();
    let latency = latency.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(Sample {
        events,
        commits: after.commits - before.commits,
        took,
        file_bytes: after.file_bytes,
        live_bytes: after.live_bytes,
        written_bytes: written_since(written),
        index_bytes: after.index_bytes,
        resident_bytes: resident_bytes().unwrap_or(0),
        latency,
    })
}

/// Bytes written since the count stood at `before`; zero where that is not known.
pub(super) fn written_since(before: Option<u64>) -> u64 {
    written_bytes()
        .zip(before)
        .map_or(0, |(now, before)| now.saturating_sub(before))
}

/// All partitions.
pub(super) fn partitions() -> Vec<Partition> {
    (0..Partition::COUNT).filter_map(Partition::from_index).collect()
}

/// Writes one run.
pub(super) struct Author {
    id: InstanceId,
    run: RunId,
    epoch: Epoch,
    time: Timestamp,
    /// Sequence of the last record.
    pub(super) head: u64,
}

impl Author {
    pub(super) fn new(number: u64, epoch: Epoch) -> Self {
        let id = InstanceId::new(&format!("instance-{number}")).expect("the id is short");
        let time = Timestamp::from_micros(1_700_000_000_000_000 + number);
        let run = RunId::new(id.partition(), time, number);
        Self {
            id,
            run,
            epoch,
            time,
            head: 0,
        }
    }

    /// A turn of one event.
    pub(super) fn put(&mut self, batch: &mut Batch, body: &[u8]) {
        self.turn(batch, &[body], false);
    }

    /// A turn of some events; `closes` ends the run.
    pub(super) fn turn(&mut self, batch: &mut Batch, bodies: &[&[u8]], closes: bool) {
        let mut turn = batch.turn(TurnHeader {
            run: self.run,
            head: Sequence::new(self.head),
            epoch: self.epoch,
            time: self.time,
            opens: (self.head == 0).then_some(&self.id),
        });
        for body in bodies {
            let encode = |buffer: &mut Vec<u8>| {
                buffer.extend_from_slice(body);
                Ok::<_, Infallible>(())
            };
            turn.record(1, encode).expect("the encoder cannot fail");
        }
        turn.finish(closes)
            .expect("the turn is small and its header sound");
        self.head += bodies.len() as u64;
    }
}
