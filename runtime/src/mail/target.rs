//! Which run a request is for.

use std::sync::Arc;

use millrun_core::{InstanceId, Partition, RunId};
use millrun_workflow::Name;

use crate::RunError;

/// Which run is meant.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// The latest of an instance. Behind a pointer, so that messages stay as small as most need.
    Latest(Arc<Latest>),
    /// This one.
    Run(RunId),
}

impl Target {
    /// The partition that it is in.
    #[inline]
    pub(crate) fn partition(&self) -> Partition {
        match self {
            Self::Latest(latest) => latest.id.partition(),
            Self::Run(run) => run.partition(),
        }
    }
}

/// An instance, which must have begun as that workflow if one is named.
#[derive(Debug)]
pub(crate) struct Latest {
    pub(crate) id: InstanceId,
    pub(crate) workflow: Option<Name>,
}

/// Refuses what is meant for an instance that began as another workflow.
pub(crate) fn check_workflow(expected: &Name, began_as: &str) -> Result<(), RunError> {
    // Most names stand in the program once.
    if std::ptr::eq(&**expected, began_as) || expected == began_as {
        return Ok(());
    }
    Err(RunError::OtherWorkflow {
        expected: expected.clone(),
        workflow: began_as.to_owned(),
    })
}
