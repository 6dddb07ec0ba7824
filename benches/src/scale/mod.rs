//! How cost grows: with instances that wait, with long histories, with threads, with payloads,
//! with the journal's size, with time.
//!
//! Every store is durable (one fsync per group commit) and lies beside the results.

mod definitions;
mod history;
mod journal;
mod payload;
mod row;
mod sustained;
mod threads;
mod waiting;

pub use history::history;
pub use journal::journal;
pub use payload::payload;
pub use row::{Row, charts, tables};
pub use sustained::sustained;
pub use threads::threads;
pub use waiting::waiting;

use std::fmt::Display;
use std::path::Path;

use millrun::{Runtime, RuntimeBuilder};
use tempfile::TempDir;
use tokio::runtime::Builder;

use crate::{BenchError, resident_bytes};

/// A store of its own in `folder`, gone when dropped.
pub(crate) fn store_in(folder: &Path) -> Result<TempDir, BenchError> {
    tempfile::tempdir_in(folder).map_err(|source| BenchError::File {
        path: folder.to_owned(),
        source,
    })
}

fn open(store: &TempDir) -> RuntimeBuilder {
    definitions::registered(Runtime::open(store.path().join("store.redb")))
}

pub(crate) fn workers(threads: usize) -> Result<tokio::runtime::Runtime, BenchError> {
    Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .map_err(BenchError::Runtime)
}

pub(crate) fn failed(error: impl Display) -> BenchError {
    BenchError::failed("millrun", error)
}
