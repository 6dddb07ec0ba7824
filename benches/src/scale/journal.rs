//! The journal as it grows: what an event costs late in a large file, and what opening that costs.

use std::path::Path;
use std::time::Duration;

use millrun::host::{HostConfig, TokioHost};

use super::{Row, failed};
use crate::journal::fill_and_recover;
use crate::{BenchError, store_in, workers};

/// Appends `events` events of 100 bytes, a row for each tenth; the last row also has the time from
/// opening the file, as a kill leaves it, to the last of its records.
///
/// # Errors
/// When anything fails, or an event is missing afterwards.
pub fn journal(
    folder: &Path,
    events: u64,
    threads: usize,
    mut each: impl FnMut(&str),
) -> Result<Vec<Row>, BenchError> {
    let store = store_in(folder)?;
    let tokio = workers(threads)?;
    let owner = tokio
        .block_on(TokioHost::spawn(HostConfig::default()))
        .map_err(failed)?;
    let outcome = fill_and_recover(store.path(), events, &owner.host(), &mut each)?;
    tokio
        .block_on(owner.shutdown(Duration::from_secs(10)))
        .map_err(failed)?;
    let mut rows: Vec<_> = (1..)
        .zip(&outcome.tenths)
        .map(|(tenth, sample)| Row {
            resident_bytes_used: Some(sample.resident_bytes as f64),
            ..Row::new(
                "journal",
                "events in the journal",
                events / 10 * tenth,
                sample.events as f64 / sample.took.as_secs_f64(),
            )
        })
        .collect();
    if let Some(last) = rows.last_mut() {
        last.reopen_us = Some(outcome.recovery.took.as_secs_f64() * 1e6);
        last.file_bytes_used = Some(outcome.recovery.file_bytes as f64);
    }
    Ok(rows)
}
