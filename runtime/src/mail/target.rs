//! Which run a request is for.

use std::sync::Arc;

use millrun_core::{InstanceId, Partition, RunId};
use millrun_workflow::Name;

use crate::RunError;

/// The run that a request is for.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// The latest run of an instance. Behind a pointer, so that most messages stay small.
    Latest(Arc<Latest>),
    /// This run.
    Run(RunId),
}

impl Target {
    /// The partition of the run.
    #[inline]
    pub(crate) fn partition(&self) -> Partition {
        match self {
            Self::Latest(latest) => latest.id.partition(),
            Self::Run(run) => run.partition(),
        }
    }
}

/// An instance. If a workflow is named, the instance must have begun as that.
#[derive(Debug)]
pub(crate) struct Latest {
    pub(crate) id: InstanceId,
    pub(crate) workflow: Option<Name>,
}

/// Refuses a request for an instance that began as another workflow.
pub(crate) fn check_workflow(expected: &Name, began_as: &str) -> Result<(), RunError> {
    // Most names are the same static string, so comparing pointers comes first.
    if std::ptr::eq(&**expected, began_as) || expected == began_as {
        return Ok(());
    }
    Err(RunError::OtherWorkflow {
        expected: expected.clone(),
        workflow: began_as.to_owned(),
    })
}
