//! How cost grows: with instances that wait, with schedules, with long histories, with checkpoints, with threads, with payloads,
//! with the journal's size, with time.
//!
//! Every store is durable (one fsync per group commit) and lies beside the results.

mod checkpoints;
mod definitions;
mod finding;
mod history;
mod journal;
mod payload;
mod preflight;
mod row;
mod schedules;
mod sustained;
mod threads;
mod waiting;

pub use checkpoints::checkpoints;
pub use finding::{finding_failed, finding_live};
pub use history::history;
pub use journal::journal;
pub use payload::payload;
pub use preflight::preflight;
pub use row::{Row, charts, tables};
pub use schedules::schedules;
pub use sustained::sustained;
pub use threads::threads;
pub use waiting::waiting;

use std::error::Error;
use std::time::Duration;

use millrun::{Runtime, RuntimeBuilder};

use crate::{BenchError, StoreFolder, resident_bytes};

/// How often a stop of the runtime is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Waits, but not for what a runtime that has stopped, on a full disk say, will never do.
pub(crate) async fn unless_stopped<T>(
    runtime: &Runtime,
    wait: impl Future<Output = T>,
) -> Result<T, BenchError> {
    let stopped = async {
        loop {
            if let Some(cause) = runtime.stop_cause() {
                return cause;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::select! {
        outcome = wait => Ok(outcome),
        cause = stopped => Err(failed(cause)),
    }
}

fn open(store: &StoreFolder) -> RuntimeBuilder {
    definitions::registered(Runtime::open(store.path().join("store.redb")))
}

/// With all causes of the error: that a disk is full is said by the last.
pub(crate) fn failed(error: impl Into<Box<dyn Error + Send + Sync>>) -> BenchError {
    let error = error.into();
    let mut why = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        why.push_str(&format!(": {error}"));
        cause = error.source();
    }
    BenchError::failed("millrun", why)
}
