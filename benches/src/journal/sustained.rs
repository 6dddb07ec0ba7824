//! Runs of one step at a fixed pace, for long: what settling costs while it goes on.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use millrun_core::{Bell, Host};
use millrun_persistence::{Batch, EnqueueError, Journal, JournalConfig, RedbJournal};

use super::appenders::{Author, partitions};
use super::floor::histogram;
use super::row::Sample;
use crate::BenchError;

/// How often a batch is enqueued.
const TICK: Duration = Duration::from_millis(2);
/// Records of one run: started, step scheduled; step completed, finished.
const FIRST: [&[u8]; 2] = [&[0x6d; 100], &[0x6d; 60]];
const SECOND: [&[u8]; 2] = [&[0x6d; 60], &[0x6d; 40]];

/// Starts and finishes `runs_per_s` for `time`; retention keeps 100,000 of them. An event of the
/// sample is a run; its latency is the time from enqueueing a batch to its durability.
pub(super) fn sustain(
    folder: &Path,
    runs_per_s: u64,
    time: Duration,
    host: &Arc<dyn Host>,
) -> Result<Sample, BenchError> {
    let failed = |error: &dyn std::fmt::Display| BenchError::failed("millrun", error);
    let mut config = JournalConfig::default();
    config.retention.len_max = 100_000;
    let journal = RedbJournal::open(folder.join("sustained.redb"), config, Arc::clone(host))
        .map_err(|error| failed(&error))?;
    let epoch = journal.take_over(&partitions()).map_err(|error| failed(&error))?;
    let rung = Arc::new(AtomicBool::new(false));
    let bell = Bell::new();
    let (flag, driver) = (Arc::clone(&rung), std::thread::current());
    let answer = bell.clone();
    bell.connect(move || {
        answer.answer();
        flag.store(true, Ordering::SeqCst);
        driver.unpark();
    });
    journal.watch(bell);

    let per_tick = runs_per_s * u64::try_from(TICK.as_micros()).unwrap_or(u64::MAX) / 1_000_000;
    let started = Instant::now();
    let (mut next_tick, mut number, mut runs) = (started, 0, 0);
    let mut half_way: Vec<Author> = Vec::new();
    let mut waiting = std::collections::VecDeque::new();
    let mut latency = histogram();
    let mut batch = Batch::new();
    while started.elapsed() < time || !waiting.is_empty() {
        let now = Instant::now();
        if now >= next_tick && now - started < time {
            next_tick += TICK;
            batch.clear();
            for mut author in half_way.drain(..) {
                author.turn(&mut batch, &SECOND, true);
                runs += 1;
            }
            for _ in 0..per_tick {
                let mut author = Author::new(number, epoch);
                author.turn(&mut batch, &FIRST, false);
                half_way.push(author);
                number += 1;
            }
            let enqueued = loop {
                match journal.enqueue(&batch) {
                    Err(EnqueueError::Full) => std::thread::yield_now(),
                    outcome => break outcome.map_err(|error| failed(&error))?,
                }
            };
            waiting.push_back((enqueued.offset, Instant::now()));
        }
        let watermark = journal.high_watermark();
        while waiting.front().is_some_and(|(offset, _)| *offset <= watermark) {
            let (_, since) = waiting.pop_front().expect("there is a first");
            latency.saturating_record(u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
        if !rung.swap(false, Ordering::SeqCst) {
            std::thread::park_timeout(next_tick.saturating_duration_since(Instant::now()));
        }
    }
    let took = started.elapsed();
    let stats = journal.stats();
    journal.close().map_err(|error| failed(&error))?;
    Ok(Sample {
        events: runs,
        commits: stats.commits,
        took,
        file_bytes: stats.file_bytes,
        index_bytes: stats.index_bytes,
        latency,
    })
}
