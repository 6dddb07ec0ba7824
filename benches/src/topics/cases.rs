//! What is measured, and how long.

use std::path::Path;
use std::time::Duration;

use millrun::store::JournalConfig;

use super::apart::{Apart, Subject};
use super::delivering::deliver_for;
use super::publishing::{PUBLISHERS, fill, publish_for};
use super::records::BODY_BYTES;
use crate::http::{Row, Summary};
use crate::journal::{self, Appends, append_to_file};
use crate::{BenchError, Measured, Progress, Spread, interleaved, store_in};

/// The groups of rows.
const PUBLISH: &str = "publish";
const DELIVER: &str = "deliver";
const CATCH_UP: &str = "catch up";
const STUCK: &str = "stuck";
/// Who did it, and beside what.
const MILLRUN: &str = "millrun";
const APPENDS: &str = "the journal's appends alone";
const BEYOND: &str = "millrun, less 1.2 of an append alone";
const ALONE: &str = "alone";
const BESIDE_STUCK: &str = "beside a stuck reader";
const MORE_MEMORY: &str = "beside a stuck reader, less alone";
/// What may be taken from the time to a reader before the rest is judged, in times of an append alone.
const APPENDS_TAKEN: f64 = 1.2;

/// How much of it.
#[derive(Clone, Debug)]
pub struct Effort {
    /// Worker threads.
    pub threads: usize,
    /// Measured samples of each.
    pub rounds: usize,
    /// How long one takes.
    pub lasts: Duration,
    /// Records that are caught up with.
    pub catch_up: Vec<u64>,
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
    if wanted(STUCK) {
        progress.running("publishes beside a stuck reader");
        measured.keep(STUCK, beside_stuck(effort, folder));
    }
    progress.finish();
    measured
}

fn publishes(effort: &Effort, folder: &Path) -> Result<Vec<Row>, BenchError> {
    let samples = interleaved(2, effort.rounds, |place| match place {
        0 => appends(effort, folder, PUBLISHERS),
        _ => {
            let store = store_in(folder)?;
            publish_for(store.path(), effort.lasts, effort.threads).map(|sample| Summary::from(&sample))
        }
    })?;
    let rows = [APPENDS, MILLRUN].into_iter().zip(samples);
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
    let store = store_in(folder)?;
    fill(store.path(), records, effort.threads)?;
    let mut samples = interleaved(1, effort.rounds, |_| {
        Subject::CatchUp.measure_apart(records, store.path(), effort.threads)
    })?;
    let samples = samples.pop().unwrap_or_default();
    Ok(Row {
        // Nothing was timed one by one.
        p50_us: None,
        p95_us: None,
        p99_us: None,
        ..row_apart(CATCH_UP, MILLRUN, records, &samples)
    })
}

fn beside_stuck(effort: &Effort, folder: &Path) -> Result<Vec<Row>, BenchError> {
    let contestants = [
        (ALONE, Subject::Publish),
        (BESIDE_STUCK, Subject::PublishBesideStuck),
    ];
    let lasts_ms = u64::try_from(effort.lasts.as_millis()).unwrap_or(u64::MAX);
    let samples = interleaved(contestants.len(), effort.rounds, |place| {
        contestants[place]
            .1
            .measure_apart(lasts_ms, folder, effort.threads)
    })?;
    let rows = contestants.iter().zip(&samples);
    let mut rows: Vec<_> = rows
        .map(|((mode, _), samples)| row_apart(STUCK, mode, PUBLISHERS as u64, samples))
        .collect();
    let more = rows[1]
        .resident_bytes_used
        .zip(rows[0].resident_bytes_used)
        .map(|(beside, alone)| beside - alone);
    rows.push(Row {
        resident_bytes_used: more,
        ..Row::empty(STUCK, MORE_MEMORY, PUBLISHERS as u64)
    });
    Ok(rows)
}

/// The row of samples that had processes of their own: the memory is the median.
fn row_apart(group: &str, mode: &str, concurrency: u64, samples: &[Apart]) -> Row {
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
                of(DELIVER, BEYOND, 1),
                of(CATCH_UP, MILLRUN, records),
                of(STUCK, ALONE, many),
                of(STUCK, BESIDE_STUCK, many),
                of(STUCK, MORE_MEMORY, many),
            ];
            Bars::load().unwrap().judge("topics", &rows).unwrap().len()
        };
        assert_eq!(judged(10_000_000), 6);
        assert_eq!(judged(200_000), 5);
    }
}
