//! A store in a temporary directory, and definitions that several tests use.

use std::path::PathBuf;

use millrun::{
    Activity, ActivityContext, ActivityError, Runtime, RuntimeBuilder, Workflow, WorkflowContext,
    WorkflowError,
};
use tempfile::TempDir;

pub(crate) const DOUBLE: Activity<u64, u64> = Activity::named("double");
pub(crate) const QUADRUPLE: Workflow<u64, u64> = Workflow::named("quadruple");

pub(crate) async fn double(_cx: ActivityContext, number: u64) -> Result<u64, ActivityError> {
    Ok(number * 2)
}

pub(crate) async fn quadruple(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    let twice = cx.call(DOUBLE, number).await?;
    Ok(cx.call(DOUBLE, twice).await?)
}

/// A store that is gone with the test.
pub(crate) struct Store {
    directory: TempDir,
}

impl Store {
    pub(crate) fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("store.redb")
    }

    /// A builder that has the common definitions.
    pub(crate) fn open(&self) -> RuntimeBuilder {
        Runtime::open(self.path())
            .register(DOUBLE, double)
            .register(QUADRUPLE, quadruple)
    }
}
