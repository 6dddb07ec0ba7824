//! The one door to the code of workflows: it is asked with what the beginning of a run says of it.

use std::collections::BTreeMap;

use millrun_core::InstanceId;
use millrun_workflow::{Implementation, Started};

use crate::builtin::is_clash;

/// What a run's beginning says of the code that it needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beginning<'a> {
    pub(crate) workflow: &'a str,
    /// Whether it is an instance of a user's under a name that is millrun's own: such a run has no code.
    is_clash: bool,
}

impl<'a> From<&'a Started> for Beginning<'a> {
    fn from(started: &'a Started) -> Self {
        Self::from((&*started.workflow, &started.id))
    }
}

impl<'a> From<(&'a str, &InstanceId)> for Beginning<'a> {
    fn from((workflow, id): (&'a str, &InstanceId)) -> Self {
        let is_clash = is_clash(workflow, id.as_str());
        Self { workflow, is_clash }
    }
}

impl<'a> From<&'a str> for Beginning<'a> {
    fn from(workflow: &'a str) -> Self {
        let is_clash = false;
        Self { workflow, is_clash }
    }
}

/// How names begin that are millrun's own. Users register none of them, so that a later release can bring workflows
/// and activities without taking a name that a program uses.
pub(crate) const RESERVED_PREFIX: &str = "millrun.";

/// Whether users may not register code under this name.
pub(crate) fn is_reserved(name: &str) -> bool {
    name.starts_with(RESERVED_PREFIX)
}

/// The workflows that are registered.
#[derive(Debug, Default)]
pub(crate) struct Workflows(BTreeMap<&'static str, Implementation>);

impl Workflows {
    /// Adds one. Whether there was none of its name.
    pub(crate) fn insert(&mut self, implementation: Implementation) -> bool {
        self.0.insert(implementation.name(), implementation).is_none()
    }

    /// All of them, in the order of their names.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Implementation> {
        self.0.values()
    }

    /// The code of a run that began so.
    pub(crate) fn code_of<'a>(&self, beginning: impl Into<Beginning<'a>>) -> Option<&Implementation> {
        let Beginning { workflow, is_clash } = beginning.into();
        self.0.get(workflow).filter(|_| !is_clash)
    }

    /// Whether there is code for a run that began so.
    pub(crate) fn have<'a>(&self, beginning: impl Into<Beginning<'a>>) -> bool {
        self.code_of(beginning).is_some()
    }
}
