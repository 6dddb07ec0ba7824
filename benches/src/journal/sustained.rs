//! Runs of one step at a fixed pace, for long: what settling costs while it goes on.
//!
//! ```text
//!   this thread: every 2 ms a batch ──► journal ──► disk: each sync is timed
//!                                          │ bell
//!   waiter: woken, notes how long the batches took that are durable now
//! ```
//!
//! Who waits is not who appends: what it costs to frame 600 turns is not the time of a commit.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use millrun_core::{Bell, Host, Offset};
use millrun_persistence::{Batch, Disk, EnqueueError, FileDisk, Journal, JournalConfig, RedbJournal};

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

/// What was measured.
pub(super) struct SustainedRun {
    pub(super) whole: Sample,
    /// The disk's part of it: its syncs alone.
    pub(super) syncs: Sample,
    /// By number.
    pub(super) tenths: Vec<(u32, Sample)>,
}

/// One part of the time.
struct Part {
    started: Instant,
    runs: u64,
    commits: u64,
    written: Option<u64>,
}

impl Part {
    fn begin(journal: &RedbJournal) -> Self {
        Self {
            started: Instant::now(),
            runs: 0,
            commits: journal.stats().commits,
            written: written_bytes(),
        }
    }

    fn end(self, journal: &RedbJournal, latency: Histogram<u64>) -> Sample {
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
            latency,
        }
    }
}

/// A file whose syncs are timed.
#[derive(Debug)]
struct Timed {
    file: FileDisk,
    syncs: Mutex<Histogram<u64>>,
}

impl Disk for Timed {
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write(offset, data)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        let began = Instant::now();
        let outcome = self.file.sync();
        lock(&self.syncs).saturating_record(nanos(began.elapsed()));
        outcome
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.file.try_lock()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Batches that are not durable yet, and how long the others took.
struct Waiting {
    queued: VecDeque<(Offset, Instant)>,
    part: Histogram<u64>,
    whole: Histogram<u64>,
}

/// Notes how long batches take, until it `is_over`.
fn wait_for(journal: &RedbJournal, waiting: &Mutex<Waiting>, is_over: &AtomicBool) {
    let rung = ring_this_thread(journal);
    loop {
        // Read first: what was queued before that is looked at below.
        let is_last = is_over.load(Ordering::SeqCst);
        let watermark = journal.high_watermark();
        let mut waiting = lock(waiting);
        let Waiting { queued, part, whole } = &mut *waiting;
        while let Some((_, since)) = queued.pop_front_if(|(offset, _)| *offset <= watermark) {
            let took = nanos(since.elapsed());
            part.saturating_record(took);
            whole.saturating_record(took);
        }
        let is_idle = waiting.queued.is_empty();
        drop(waiting);
        if is_last && is_idle || journal.failure().is_some() {
            return;
        }
        if !rung.swap(false, Ordering::SeqCst) {
            thread::park();
        }
    }
}

/// Says that it is over however it ends, also by a panic: else nobody would join the waiter.
struct Over<'a>(&'a AtomicBool, Thread);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
        self.1.unpark();
    }
}

/// Starts and finishes `runs_per_s` for `time`; retention keeps 100,000 of them. An event of a
/// sample is a run; its latency is the time from enqueueing a batch to its durability.
pub(super) fn sustain(
    folder: &Path,
    runs_per_s: u64,
    time: Duration,
    host: &Arc<dyn Host>,
    each: &mut dyn FnMut(&str),
) -> Result<SustainedRun, BenchError> {
    let failed = |error: &dyn std::fmt::Display| BenchError::failed("millrun", error);
    let mut config = JournalConfig::default();
    config.retention.len_max = RETAINED;
    let path = folder.join("sustained.redb");
    let file = FileDisk::create(&path).map_err(|source| BenchError::File { path, source })?;
    let disk = Arc::new(Timed {
        file,
        syncs: Mutex::new(histogram()),
    });
    let journal = RedbJournal::open_disk(disk.clone(), "sustained", config, Arc::clone(host))
        .map_err(|error| failed(&error))?;
    let waiting = Mutex::new(Waiting {
        queued: VecDeque::new(),
        part: histogram(),
        whole: histogram(),
    });
    let is_over = AtomicBool::new(false);
    lock(&disk.syncs).reset();
    let (whole, tenths) = thread::scope(|scope| {
        let waiter = scope.spawn(|| wait_for(&journal, &waiting, &is_over));
        let over = Over(&is_over, waiter.thread().clone());
        let appended = append(&journal, runs_per_s, time, &waiting, each);
        drop(over);
        waiter.join().expect("the waiter does not panic");
        appended
    })?;
    let syncs = lock(&disk.syncs).clone();
    let whole_latency = lock(&waiting).whole.clone();
    let (mut tenths, last, tenth) = tenths;
    tenths.push((tenth, last.end(&journal, lock(&waiting).part.clone())));
    let whole = whole.end(&journal, whole_latency);
    journal.close().map_err(|error| failed(&error))?;
    let syncs = Sample {
        events: syncs.len(),
        commits: syncs.len(),
        latency: syncs,
        ..whole.clone()
    };
    Ok(SustainedRun { whole, syncs, tenths })
}

/// The parts that have ended, and the last one with its number.
type Tenths = (Vec<(u32, Sample)>, Part, u32);

/// Appends for `time`; gives the whole and its tenths, of which the last has not ended.
fn append(
    journal: &RedbJournal,
    runs_per_s: u64,
    time: Duration,
    waiting: &Mutex<Waiting>,
    each: &mut dyn FnMut(&str),
) -> Result<(Part, Tenths), BenchError> {
    let failed = |error: &dyn std::fmt::Display| BenchError::failed("millrun", error);
    let epoch = journal.take_over(&partitions()).map_err(|error| failed(&error))?;
    let per_tick = runs_per_s * u64::try_from(TICK.as_micros()).unwrap_or(u64::MAX) / 1_000_000;
    let started = Instant::now();
    let (mut next_tick, mut number) = (started, 0);
    let mut half_way: Vec<Author> = Vec::new();
    let (mut whole, mut part) = (Part::begin(journal), Part::begin(journal));
    let (mut tenths, mut tenth) = (Vec::new(), 1);
    let mut batch = Batch::new();
    loop {
        let now = Instant::now();
        if now - started >= time {
            return Ok((whole, (tenths, part, tenth)));
        }
        // A stall may pass over whole tenths; what it kept waiting counts in the next.
        let now_in = (1..=10)
            .find(|tenth| now - started < time * *tenth / 10)
            .unwrap_or(10);
        if now_in > tenth {
            let latency = std::mem::replace(&mut lock(waiting).part, histogram());
            let ended = std::mem::replace(&mut part, Part::begin(journal)).end(journal, latency);
            tenths.push((std::mem::replace(&mut tenth, now_in), ended));
            each(&format!("sustained, tenth {tenth}"));
        }
        if now >= next_tick {
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
            loop {
                // A waiter must not look between the two, and miss it.
                let mut waiting = lock(waiting);
                match journal.enqueue(&batch) {
                    Err(EnqueueError::Full) => {
                        drop(waiting);
                        thread::yield_now();
                    }
                    outcome => {
                        let offset = outcome.map_err(|error| failed(&error))?.offset;
                        waiting.queued.push_back((offset, Instant::now()));
                        break;
                    }
                }
            }
        }
        thread::sleep(next_tick.saturating_duration_since(Instant::now()));
    }
}

/// Has the journal wake the calling thread; the flag says that it did.
fn ring_this_thread(journal: &RedbJournal) -> Arc<AtomicBool> {
    let rung = Arc::new(AtomicBool::new(false));
    let bell = Bell::new();
    let (flag, waiter) = (Arc::clone(&rung), thread::current());
    let answer = bell.clone();
    bell.connect(move || {
        answer.answer();
        flag.store(true, Ordering::SeqCst);
        waiter.unpark();
    });
    journal.watch(bell);
    rung
}
