//! What is measured, and how much of it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use millrun::store::JournalConfig;

use super::acknowledging::acknowledge;
use super::apart::{Apart, Subject};
use super::deciding::{decide_all, decide_as_they_come};
use super::delivering::deliver_for;
use super::jetstream;
use super::publishing::{PUBLISHERS, fill, publish_for};
use super::records::{BODY_BYTES, KEYS};
use super::streaming::{self, Course};
use super::triggering::{AT_A_TIME, start, trigger};
use crate::http::{Row, Summary};
use crate::journal::{self, Appends, append_to_file};
use crate::{BenchError, Measured, Progress, Spread, interleaved, store_in};

/// The groups of rows.
const PUBLISH: &str = "publish";
const DELIVER: &str = "deliver";
const CATCH_UP: &str = "catch up";
const ACKNOWLEDGE: &str = "acknowledge";
const TRIGGER: &str = "trigger";
const DECIDE: &str = "decide";
const STREAM: &str = "stream";
const STUCK: &str = "stuck";
const WAITING: &str = "waiting";
/// Who did it, and beside what.
const MILLRUN: &str = "millrun";
const APPENDS: &str = "the journal's appends alone";
const JETSTREAM: &str = "NATS JetStream, one node, sync always";
const BEYOND: &str = "millrun, less 1.2 of an append alone";
const BY_CALLERS: &str = "started by callers";
const BY_TRIGGER: &str = "started by records";
const SIGNALLED: &str = "runs that a trigger signals";
const RECEIVING: &str = "runs that receive";
const ALONE: &str = "alone";
const ONE_AT_A_TIME: &str = "millrun, one at a time";
const CHANNEL: &str = "a channel of tokio's";
const CHANNEL_ONE_AT_A_TIME: &str = "a channel of tokio's, one at a time";
const BESIDE_STUCK: &str = "beside a stuck subscription";
const FEW_WAIT: &str = "few runs wait";
const MANY_WAIT: &str = "many runs wait";
const MORE_MEMORY: &str = "beside a stuck subscription, less alone";
/// How many runs are few.
const FEW: u64 = 1_000;
/// What may be taken from the time to a reader before the rest is judged, in times of an append alone.
const APPENDS_TAKEN: f64 = 1.2;

/// How much of it.
#[derive(Clone, Debug)]
pub struct Effort {
    /// Worker threads.
    pub threads: usize,
    /// Measured samples of each.
    pub rounds: usize,
    /// How long one takes, of those that have a time.
    pub lasts: Duration,
    /// Records that are caught up with.
    pub catch_up: Vec<u64>,
    /// Records that one consumer acknowledges.
    pub acknowledge: u64,
    /// Records that start a run each.
    pub trigger: u64,
    /// Records on which runs of keys decide.
    pub decide: u64,
    /// Records for which a subscription is stuck.
    pub stuck: u64,
    /// Runs that wait by key while others publish.
    pub waiting: u64,
    /// The program that publishes to JetStream, which is left out without it.
    pub jetstream: Option<PathBuf>,
}

/// Measures what has `only` in its name. What fails has no row; the others have.
#[must_use]
pub fn measure(effort: &Effort, folder: &Path, only: Option<&str>) -> Measured<Row> {
    let wanted = |group: &str| only.is_none_or(|only| group.contains(only));
    let progress = Progress::ticking(0);
    let mut measured = Measured::default();
    if wanted(PUBLISH) {
        progress.running("publishes beside appends");
        measured.keep(PUBLISH, publishes(effort, folder));
    }
    if wanted(DELIVER) {
        progress.running("from a publish to a reader");
        measured.keep(DELIVER, deliveries(effort, folder));
    }
    if wanted(CATCH_UP) {
        for records in &effort.catch_up {
            let name = format!("{CATCH_UP}: {records} records");
            progress.running(&name);
            measured.keep(name, catching_up(effort, folder, *records).map(Some));
        }
    }
    if wanted(ACKNOWLEDGE) {
        progress.running("acknowledgements of one consumer");
        measured.keep(ACKNOWLEDGE, acknowledgements(effort, folder).map(Some));
    }
    if wanted(TRIGGER) {
        progress.running("runs that records start");
        measured.keep(TRIGGER, triggered(effort, folder));
    }
    if wanted(DECIDE) {
        progress.running("runs that decide on records");
        measured.keep(DECIDE, decided(effort, folder));
    }
    if wanted(STREAM) {
        progress.running("chunks of an activity's output stream");
        measured.keep(STREAM, streams(effort));
    }
    if wanted(STUCK) {
        progress.running("publishes beside a stuck subscription");
        measured.keep(STUCK, beside_stuck(effort, folder));
    }
    if wanted(WAITING) {
        progress.running("publishes beside runs that wait");
        measured.keep(WAITING, beside_waiting(effort, folder));
    }
    progress.finish();
    measured
}

fn publishes(effort: &Effort, folder: &Path) -> Result<Vec<Row>, BenchError> {
    let program = effort.jetstream.as_deref();
    let modes = [Some(APPENDS), Some(MILLRUN), program.map(|_| JETSTREAM)];
    let modes: Vec<_> = modes.into_iter().flatten().collect();
    let samples = interleaved(modes.len(), effort.rounds, |place| match (place, program) {
        (0, _) => appends(effort, folder, PUBLISHERS),
        (2, Some(program)) => jetstream::publish_for(program, folder, effort.lasts, effort.threads),
        _ => {
            let store = store_in(folder)?;
            publish_for(store.path(), effort.lasts, effort.threads).map(|sample| Summary::from(&sample))
        }
    })?;
    let rows = modes.into_iter().zip(samples);
    Ok(rows
        .map(|(mode, samples)| Row::new(PUBLISH, mode, PUBLISHERS as u64, &samples))
        .collect())
}

fn deliveries(effort: &Effort, folder: &Path) -> Result<Vec<Row>, BenchError> {
    let samples = interleaved(2, effort.rounds, |place| match place {
        0 => appends(effort, folder, 1),
        _ => {
            let store = store_in(folder)?;
            deliver_for(store.path(), effort.lasts, effort.threads).map(|sample| Summary::from(&sample))
        }
    })?;
    let modes = [APPENDS, MILLRUN].into_iter().zip(samples);
    let mut rows: Vec<_> = modes
        .map(|(mode, samples)| Row::new(DELIVER, mode, 1, &samples))
        .collect();
    let beyond = rows[1]
        .p50_us
        .zip(rows[0].p50_us)
        .map(|(ours, append)| ours - APPENDS_TAKEN * append);
    rows.push(Row {
        p50_us: beyond,
        ..Row::empty(DELIVER, BEYOND, 1)
    });
    Ok(rows)
}

/// Appends to a journal alone, as `bench-journal` measures them.
fn appends(effort: &Effort, folder: &Path, appenders: usize) -> Result<Summary, BenchError> {
    let store = store_in(folder)?;
    let load = Appends {
        threads: effort.threads,
        appenders,
        body_bytes: BODY_BYTES,
        time: effort.lasts,
    };
    let sample = append_to_file(&store.path().join("store.redb"), JournalConfig::default(), load)?;
    Ok(summary_of(&sample))
}

fn summary_of(sample: &journal::Sample) -> Summary {
    let micros = |quantile| sample.latency.value_at_quantile(quantile) as f64 / 1e3;
    Summary {
        per_s: sample.events as f64 / sample.took.as_secs_f64(),
        p50_us: micros(0.5),
        p95_us: micros(0.95),
        p99_us: micros(0.99),
    }
}

fn catching_up(effort: &Effort, folder: &Path, records: u64) -> Result<Row, BenchError> {
    let mut samples = interleaved(1, effort.rounds, |_| {
        let store = store_in(folder)?;
        fill(store.path(), records, KEYS, effort.threads)?;
        Subject::CatchUp.measure_apart(records, store.path(), effort.threads)
    })?;
    let samples = samples.pop().unwrap_or_default();
    Ok(row_apart(CATCH_UP, MILLRUN, records, &samples))
}

fn acknowledgements(effort: &Effort, folder: &Path) -> Result<Row, BenchError> {
    let records = effort.acknowledge;
    let store = store_in(folder)?;
    fill(store.path(), records, KEYS, effort.threads)?;
    let mut round = 0;
    let mut samples = interleaved(1, effort.rounds, |_| {
        round += 1;
        acknowledge(
            store.path(),
            &format!("consumer-{round}"),
            records,
            effort.threads,
        )
    })?;
    let samples = samples.pop().unwrap_or_default();
    Ok(untimed(Row::new(ACKNOWLEDGE, MILLRUN, records, &samples)))
}

fn triggered(effort: &Effort, folder: &Path) -> Result<Vec<Row>, BenchError> {
    let records = effort.trigger;
    let samples = interleaved(2, effort.rounds, |place| {
        let store = store_in(folder)?;
        if place == 0 {
            return start(store.path(), records, effort.threads);
        }
        // A key of its own for each: those of one key would wait for each other.
        fill(store.path(), records, records, effort.threads)?;
        trigger(store.path(), records, effort.threads)
    })?;
    let rows = [BY_CALLERS, BY_TRIGGER].into_iter().zip(samples);
    Ok(rows
        .map(|(mode, samples)| untimed(Row::new(TRIGGER, mode, AT_A_TIME as u64, &samples)))
        .collect())
}

fn decided(effort: &Effort, folder: &Path) -> Result<Vec<Row>, BenchError> {
    let records = effort.decide;
    let samples = interleaved(2, effort.rounds, |place| {
        let store = store_in(folder)?;
        if place == 1 {
            return decide_as_they_come(store.path(), records, effort.threads);
        }
        fill(store.path(), records, KEYS, effort.threads)?;
        decide_all(store.path(), records, effort.threads)
    })?;
    let rows = [SIGNALLED, RECEIVING].into_iter().zip(samples);
    Ok(rows
        .map(|(mode, samples)| untimed(Row::new(DECIDE, mode, KEYS, &samples)))
        .collect())
}

fn streams(effort: &Effort) -> Result<Vec<Row>, BenchError> {
    let (flood, one) = (Course::Flood(effort.lasts), Course::OneAtATime(effort.lasts));
    let samples = interleaved(4, effort.rounds, |place| match place {
        0 => streaming::channel(flood, effort.threads),
        1 => streaming::stream(flood, effort.threads),
        2 => streaming::channel(one, effort.threads),
        _ => streaming::stream(one, effort.threads),
    })?;
    let modes = [CHANNEL, MILLRUN, CHANNEL_ONE_AT_A_TIME, ONE_AT_A_TIME];
    let rows = modes.into_iter().zip(samples).enumerate();
    Ok(rows
        .map(|(place, (mode, samples))| {
            let row = Row::new(STREAM, mode, 1, &samples);
            if place < 2 { untimed(row) } else { row }
        })
        .collect())
}

fn beside_stuck(effort: &Effort, folder: &Path) -> Result<Vec<Row>, BenchError> {
    let contestants = [
        (ALONE, Subject::Publish),
        (BESIDE_STUCK, Subject::PublishBesideStuck),
    ];
    let records = effort.stuck;
    let samples = interleaved(contestants.len(), effort.rounds, |place| {
        contestants[place]
            .1
            .measure_apart(records, folder, effort.threads)
    })?;
    let rows = contestants.iter().zip(&samples);
    let mut rows: Vec<_> = rows
        .map(|((mode, _), samples)| row_apart(STUCK, mode, records, samples))
        .collect();
    let more = rows[1]
        .resident_bytes_used
        .zip(rows[0].resident_bytes_used)
        .map(|(beside, alone)| beside - alone);
    rows.push(Row {
        resident_bytes_used: more,
        ..Row::empty(STUCK, MORE_MEMORY, records)
    });
    Ok(rows)
}

fn beside_waiting(effort: &Effort, folder: &Path) -> Result<Vec<Row>, BenchError> {
    let contestants = [(FEW_WAIT, FEW), (MANY_WAIT, effort.waiting)];
    let samples = interleaved(contestants.len(), effort.rounds, |place| {
        Subject::PublishBesideWaiting.measure_apart(contestants[place].1, folder, effort.threads)
    })?;
    let rows = contestants.iter().zip(&samples);
    Ok(rows
        .map(|((mode, runs), samples)| row_with_memory(WAITING, mode, *runs, samples))
        .collect())
}

/// Nothing was timed one by one.
fn untimed(row: Row) -> Row {
    Row {
        p50_us: None,
        p95_us: None,
        p99_us: None,
        ..row
    }
}

/// The row of samples that had processes of their own, of which nothing was timed one by one.
fn row_apart(group: &str, mode: &str, concurrency: u64, samples: &[Apart]) -> Row {
    untimed(row_with_memory(group, mode, concurrency, samples))
}

/// The row of samples that had processes of their own: the memory is the median.
fn row_with_memory(group: &str, mode: &str, concurrency: u64, samples: &[Apart]) -> Row {
    let summaries: Vec<Summary> = samples.iter().map(|sample| sample.summary).collect();
    let resident: Vec<f64> = samples
        .iter()
        .map(|sample| sample.resident_bytes as f64)
        .collect();
    Row {
        resident_bytes_used: Spread::of(&resident).map(|spread| spread.median),
        ..Row::new(group, mode, concurrency, &summaries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bars;

    /// A bar whose row has another name than it looks for judges nothing, and nobody would see it.
    #[test]
    fn each_bar_finds_its_rows_and_memory_is_judged_at_the_full_number_only() {
        let summary = Summary {
            per_s: 1.0,
            ..Summary::default()
        };
        let of = |group, mode, level| Row {
            resident_bytes_used: Some(0.0),
            ..Row::new(group, mode, level, &[summary])
        };
        let many = PUBLISHERS as u64;
        let judged = |records| {
            let rows = [
                of(PUBLISH, MILLRUN, many),
                of(PUBLISH, APPENDS, many),
                of(PUBLISH, JETSTREAM, many),
                of(DELIVER, BEYOND, 1),
                of(CATCH_UP, MILLRUN, records),
                of(ACKNOWLEDGE, MILLRUN, records),
                of(TRIGGER, BY_CALLERS, AT_A_TIME as u64),
                of(TRIGGER, BY_TRIGGER, AT_A_TIME as u64),
                of(DECIDE, SIGNALLED, KEYS),
                of(DECIDE, RECEIVING, KEYS),
                of(STREAM, MILLRUN, 1),
                of(STREAM, CHANNEL, 1),
                Row::new(STREAM, ONE_AT_A_TIME, 1, &[summary]),
                of(STUCK, ALONE, records),
                of(STUCK, BESIDE_STUCK, records),
                of(STUCK, MORE_MEMORY, records),
                of(WAITING, FEW_WAIT, FEW),
                of(WAITING, MANY_WAIT, records / 10),
            ];
            Bars::load().unwrap().judge("topics", &rows).unwrap().len()
        };
        assert_eq!(judged(10_000_000), 20);
        assert_eq!(judged(200_000), 16);
    }
}
