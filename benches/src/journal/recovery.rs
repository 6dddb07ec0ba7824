//! Filling a store, killing it, and opening it again.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use millrun_core::Host;
use millrun_persistence::{Batch, EnqueueError, Journal, JournalConfig, Reads, RecordView, RedbJournal};

use super::appenders::{Author, partitions, written_since};
use super::floor::histogram;
use super::row::Sample;
use crate::{BenchError, resident_bytes, written_bytes};

const LIVE_RUNS: u64 = 100_000;
const TURNS_PER_BATCH: usize = 2_000;
const BODY: [u8; 100] = [0x6d; 100];

/// What filling and opening came to.
pub(crate) struct RecoveryRun {
    /// The filling, tenth by tenth.
    pub(crate) tenths: Vec<Sample>,
    /// From the call that opens the file to the last record handed out.
    pub(crate) recovery: Sample,
}

/// Writes `events` of 100 bytes into a store in `folder`, copies it as a kill would leave it, and
/// opens the copy.
pub(crate) fn fill_and_recover(
    folder: &Path,
    events: u64,
    host: &Arc<dyn Host>,
    each: &mut dyn FnMut(&str),
) -> Result<RecoveryRun, BenchError> {
    let failed = |error: &dyn std::fmt::Display| BenchError::failed("millrun", error);
    let path = folder.join("fill.redb");
    let config = JournalConfig::default();
    let journal =
        RedbJournal::open(&path, config.clone(), Arc::clone(host)).map_err(|error| failed(&error))?;
    let epoch = journal.take_over(&partitions()).map_err(|error| failed(&error))?;
    let runs = LIVE_RUNS.min(events / 10);
    let mut authors: Vec<_> = (0..runs).map(|number| Author::new(number, epoch)).collect();
    let mut tenths = Vec::new();
    let mut written = 0;
    for tenth in 1..=10 {
        each(&format!("filling, tenth {tenth}"));
        let (started, before, commits) = (Instant::now(), written, journal.stats().commits);
        let disk = written_bytes();
        let mut batch = Batch::new();
        while written < events * tenth / 10 {
            let author = usize::try_from(written % runs).expect("there are few runs");
            authors[author].put(&mut batch, &BODY);
            written += 1;
            if batch.turns() == TURNS_PER_BATCH {
                enqueue(&journal, &batch)?;
                batch.clear();
            }
        }
        enqueue(&journal, &batch)?;
        let stats = journal.stats();
        tenths.push(Sample {
            events: written - before,
            commits: stats.commits - commits,
            took: started.elapsed(),
            file_bytes: stats.file_bytes / written.max(1) * (written - before),
            live_bytes: 0,
            written_bytes: written_since(disk),
            index_bytes: stats.index_bytes,
            resident_bytes: resident_bytes().unwrap_or(0),
            latency: histogram(),
        });
    }
    // Everything is durable once the queue is empty; the copy is what a kill leaves.
    while journal.stats().queued_bytes > 0 {
        if let Some(failure) = journal.failure() {
            return Err(failed(&failure));
        }
        std::thread::yield_now();
    }
    let copy = folder.join("killed.redb");
    // What was acknowledged was on the disk when the process was killed; here it has to get there.
    std::fs::copy(&path, &copy)
        .and_then(|_| File::open(&copy)?.sync_all())
        .map_err(|source| BenchError::File {
            path: copy.clone(),
            source,
        })?;
    journal.close().map_err(|error| failed(&error))?;
    drop(journal);

    each("recovery");
    let started = Instant::now();
    let journal = RedbJournal::open(&copy, config, Arc::clone(host)).map_err(|error| failed(&error))?;
    let (mut one, mut two) = (0_u64, 0_u64);
    let mut count_one = |_: RecordView<'_>| one += 1;
    let mut count_two = |_: RecordView<'_>| two += 1;
    let report = journal
        .recover(&mut [&mut count_one, &mut count_two], &mut |_| {})
        .map_err(|error| failed(&error))?;
    let took = started.elapsed();
    if one + two != events || !report.is_repaired || !report.damaged.is_empty() {
        let what = format!("{events} events were written, {} found, {report:?}", one + two);
        return Err(BenchError::Wrong {
            contestant: "millrun".to_owned(),
            what,
        });
    }
    let stats = journal.stats();
    let recovery = Sample {
        events,
        commits: 0,
        took,
        file_bytes: stats.file_bytes,
        live_bytes: stats.live_bytes,
        written_bytes: 0,
        index_bytes: stats.index_bytes,
        resident_bytes: resident_bytes().unwrap_or(0),
        latency: histogram(),
    };
    journal.close().map_err(|error| failed(&error))?;
    Ok(RecoveryRun { tenths, recovery })
}

/// Enqueues, waiting while the journal is full.
fn enqueue(journal: &RedbJournal, batch: &Batch) -> Result<(), BenchError> {
    loop {
        match journal.enqueue(batch) {
            Ok(enqueued) if enqueued.refused.is_empty() => return Ok(()),
            Ok(enqueued) => {
                let what = format!("refused: {:?}", enqueued.refused);
                return Err(BenchError::Wrong {
                    contestant: "millrun".to_owned(),
                    what,
                });
            }
            Err(EnqueueError::Full) => std::thread::yield_now(),
            Err(error) => return Err(BenchError::failed("millrun", error)),
        }
    }
}
