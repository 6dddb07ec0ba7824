//! The price of a commit: one row, one commit, one sync, with redb alone.

use std::path::Path;
use std::time::{Duration, Instant};

use redb::{Database, TableDefinition};

use crate::BenchError;

const ROWS: TableDefinition<u64, &[u8]> = TableDefinition::new("rows");
const ROW_BYTES: usize = 100;

/// Times `commits` commits of one row of 100 bytes each, durable, in a new file at `path`.
///
/// # Errors
/// When redb fails.
pub fn bare_commits(path: &Path, commits: u64) -> Result<Vec<Duration>, BenchError> {
    let failed = |error: redb::Error| BenchError::failed("redb", error);
    let database = Database::create(path).map_err(|error| failed(error.into()))?;
    let mut times = Vec::new();
    for key in 0..commits {
        let started = Instant::now();
        let transaction = database.begin_write().map_err(|error| failed(error.into()))?;
        transaction
            .open_table(ROWS)
            .map_err(|error| failed(error.into()))?
            .insert(key, [0x6d; ROW_BYTES].as_slice())
            .map_err(|error| failed(error.into()))?;
        transaction.commit().map_err(|error| failed(error.into()))?;
        times.push(started.elapsed());
    }
    Ok(times)
}
