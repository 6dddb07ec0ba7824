//! Runs of one step at a fixed pace, for long: what settling costs while it goes on.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use millrun_core::{Bell, Host};
use millrun_persistence::{Batch, EnqueueError, Journal, JournalConfig, RedbJournal};

use super::appenders::{Author, partitions, written_since};
use super::floor::histogram;
use super::row::Sample;
use crate::{BenchError, resident_bytes, written_bytes};

/// How often a batch is enqueued.
const TICK: Duration = Duration::from_millis(2);
/// Records of one run: started, step scheduled; step completed, finished.
const FIRST: [&[u8]; 2] = [&[0x6d; 100], &[0x6d; 60]];
const SECOND: [&[u8]; 2] = [&[0x6d; 60], &[0x6d; 40]];

/// How many finished runs retention keeps.
const RETAINED: usize = 100_000;

/// One part of the time.
struct Part {
    started: Instant,
    runs: u64,
    commits: u64,
    written: Option<u64>,
    latency: Histogram<u64>,
}

impl Part {
    fn begin(journal: &RedbJournal) -> Self {
        Self {
            started: Instant::now(),
            runs: 0,
            commits: journal.stats().commits,
            written: written_bytes(),
            latency: histogram(),
        }
    }

    fn end(self, journal: &RedbJournal) -> Sample {
        let stats = journal.stats();
        Sample {
            events: self.runs,
            commits: stats.commits - self.commits,
            took: self.started.elapsed(),
            file_bytes: stats.file_bytes,
            live_bytes: stats.live_bytes,
            written_bytes: written_since(self.written),
            index_bytes: stats.index_bytes,
            resident_bytes: resident_bytes().unwrap_or(0),
            latency: self.latency,
        }
    }
}

/// Starts and finishes `runs_per_s` for `time`; retention keeps 100,000 of them. An event of a
/// sample is a run; its latency is the time from enqueueing a batch to its durability. Gives the
/// whole, and its tenths by number.
pub(super) fn sustain(
    folder: &Path,
    runs_per_s: u64,
    time: Duration,
    host: &Arc<dyn Host>,
    each: &mut dyn FnMut(&str),
) -> Result<(Sample, Vec<(u32, Sample)>), BenchError> {
    let failed = |error: &dyn std::fmt::Display| BenchError::failed("millrun", error);
    let mut config = JournalConfig::default();
    config.retention.len_max = RETAINED;
    let journal = RedbJournal::open(folder.join("sustained.redb"), config, Arc::clone(host))
        .map_err(|error| failed(&error))?;
    let epoch = journal.take_over(&partitions()).map_err(|error| failed(&error))?;
    let rung = ring_this_thread(&journal);

    let per_tick = runs_per_s * u64::try_from(TICK.as_micros()).unwrap_or(u64::MAX) / 1_000_000;
    let started = Instant::now();
    let (mut next_tick, mut number) = (started, 0);
    let mut half_way: Vec<Author> = Vec::new();
    let mut waiting = VecDeque::new();
    let (mut whole, mut part) = (Part::begin(&journal), Part::begin(&journal));
    let (mut tenths, mut tenth) = (Vec::new(), 1);
    let mut batch = Batch::new();
    while started.elapsed() < time || !waiting.is_empty() {
        let now = Instant::now();
        // A stall may pass over whole tenths; what it kept waiting counts in the next.
        let now_in = (1..=10)
            .find(|tenth| now - started < time * *tenth / 10)
            .unwrap_or(10);
        if now_in > tenth {
            let ended = std::mem::replace(&mut part, Part::begin(&journal)).end(&journal);
            tenths.push((std::mem::replace(&mut tenth, now_in), ended));
            each(&format!("sustained, tenth {tenth}"));
        }
        if now >= next_tick && now - started < time {
            next_tick += TICK;
            batch.clear();
            for mut author in half_way.drain(..) {
                author.turn(&mut batch, &SECOND, true);
                part.runs += 1;
                whole.runs += 1;
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
            let nanos = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
            part.latency.saturating_record(nanos);
            whole.latency.saturating_record(nanos);
        }
        if !rung.swap(false, Ordering::SeqCst) {
            std::thread::park_timeout(next_tick.saturating_duration_since(Instant::now()));
        }
    }
    tenths.push((tenth, part.end(&journal)));
    let whole = whole.end(&journal);
    journal.close().map_err(|error| failed(&error))?;
    Ok((whole, tenths))
}

/// Has the journal wake the calling thread; the flag says that it did.
fn ring_this_thread(journal: &RedbJournal) -> Arc<AtomicBool> {
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
    rung
}
