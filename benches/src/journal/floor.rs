//! What the disk and redb alone can do.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use redb::{Database, TableDefinition};

use super::appenders::written_since;
use super::row::Sample;
use crate::{BenchError, written_bytes};

const ROWS: TableDefinition<u64, &[u8]> = TableDefinition::new("rows");
/// Rows of the loop are as large as the journal's: just under a power of two with their overhead.
const ROW_BYTES_MAX: usize = 131_072 - 32;
/// What the journal adds to each body.
const FRAME_BYTES: usize = 48;

/// A file to which `bytes` are appended, and then fdatasync.
pub(super) fn appends_and_syncs(path: &Path, bytes: usize, time: Duration) -> Result<Sample, BenchError> {
    let failed = |source| BenchError::File {
        path: path.to_owned(),
        source,
    };
    let file = File::create(path).map_err(failed)?;
    let data = vec![0x6d; bytes];
    measure(time, 1, |number| {
        file.write_all_at(&data, number * bytes as u64).map_err(failed)?;
        file.sync_data().map_err(failed)
    })
    .map(|sample| Sample {
        file_bytes: sample.events * bytes as u64,
        ..sample
    })
}

/// One thread that commits `per_commit` events at a time, in rows like the journal's.
pub(super) fn commits(
    path: &Path,
    body_bytes: usize,
    per_commit: usize,
    time: Duration,
) -> Result<Sample, BenchError> {
    let failed = |error: redb::Error| BenchError::failed("redb", error);
    let mut builder = Database::builder();
    builder.set_cache_size(128 << 20);
    let database = builder.create(path).map_err(|error| failed(error.into()))?;
    let frames = vec![0x6d; per_commit * (body_bytes + FRAME_BYTES)];
    let commit = |number: u64| -> Result<(), redb::Error> {
        let transaction = database.begin_write()?;
        let mut rows = transaction.open_table(ROWS)?;
        let mut position = number * frames.len() as u64;
        for row in frames.chunks(ROW_BYTES_MAX) {
            rows.insert(position, row)?;
            position += row.len() as u64;
        }
        drop(rows);
        transaction.commit()?;
        Ok(())
    };
    let sample = measure(time, per_commit, |number| commit(number).map_err(failed))?;
    drop(database);
    let file_bytes = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    Ok(Sample { file_bytes, ..sample })
}

fn measure(
    time: Duration,
    events_per_commit: usize,
    mut commit: impl FnMut(u64) -> Result<(), BenchError>,
) -> Result<Sample, BenchError> {
    let mut latency = histogram();
    let (started, written, mut commits) = (Instant::now(), written_bytes(), 0);
    let mut last = started;
    while last - started < time {
        commit(commits)?;
        commits += 1;
        let now = Instant::now();
        latency.saturating_record(u64::try_from((now - last).as_nanos()).unwrap_or(u64::MAX));
        last = now;
    }
    Ok(Sample {
        events: commits * events_per_commit as u64,
        commits,
        took: last - started,
        file_bytes: 0,
        live_bytes: 0,
        written_bytes: written_since(written),
        index_bytes: 0,
        resident_bytes: 0,
        latency,
    })
}

/// Nanoseconds up to ten minutes, with two digits.
pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(600_000_000_000, 2).expect("the bounds are sound")
}
