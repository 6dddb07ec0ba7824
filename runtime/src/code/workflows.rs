//! The only way to the code of workflows: by what a run's beginning says, and the run's version.
//!
//! ```text
//!   a run begins ────────► code_to_begin: the newest version, or that of a pinned run which it continues
//!   a run is brought back ► code_of: exactly the version that it has
//!                        └► code_to_move: the newest, if the policy has the run tried on it
//! ```

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use millrun_core::InstanceId;
use millrun_workflow::{Implementation, Started, VersionPolicy};

use crate::OpenError;
use crate::builtin::is_clash;

/// The part of a run's beginning that determines its code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beginning<'a> {
    pub(crate) workflow: &'a str,
    /// `None` stands for the newest.
    version: Option<u32>,
    /// Whether it is a user's instance with a reserved name: such a run has no code.
    is_clash: bool,
}

impl<'a> Beginning<'a> {
    /// For a run with this version.
    pub(crate) fn of(started: &'a Started, version: u32) -> Self {
        Self::from((&*started.workflow, version, &started.id))
    }
}

impl<'a> From<(&'a str, u32, &InstanceId)> for Beginning<'a> {
    fn from((workflow, version, id): (&'a str, u32, &InstanceId)) -> Self {
        Self {
            version: Some(version),
            ..Self::from((workflow, id))
        }
    }
}

impl<'a> From<(&'a str, u32)> for Beginning<'a> {
    fn from((workflow, version): (&'a str, u32)) -> Self {
        Self {
            version: Some(version),
            ..Self::from(workflow)
        }
    }
}

impl<'a> From<(&'a str, &InstanceId)> for Beginning<'a> {
    fn from((workflow, id): (&'a str, &InstanceId)) -> Self {
        Self {
            is_clash: is_clash(workflow, id.as_str()),
            ..Self::from(workflow)
        }
    }
}

impl<'a> From<&'a str> for Beginning<'a> {
    fn from(workflow: &'a str) -> Self {
        Self {
            workflow,
            version: None,
            is_clash: false,
        }
    }
}

/// The prefix of reserved names. Users cannot register these, so that a later release can add built-in workflows and
/// activities without taking a name that a program uses.
pub(crate) const RESERVED_PREFIX: &str = "millrun.";

/// Whether users may not register code under this name.
pub(crate) fn is_reserved(name: &str) -> bool {
    name.starts_with(RESERVED_PREFIX)
}

/// The workflows that are registered.
#[derive(Debug, Default)]
pub(crate) struct Workflows(BTreeMap<&'static str, CodeVersions>);

/// The code of one workflow.
#[derive(Debug)]
struct CodeVersions {
    newest: Implementation,
    /// The others, the newest first.
    earlier: Vec<Implementation>,
}

impl CodeVersions {
    #[inline]
    fn exactly(&self, version: u32) -> Option<&Implementation> {
        if self.newest.version() == version {
            return Some(&self.newest);
        }
        self.earlier.iter().find(|code| code.version() == version)
    }

    fn all(&self) -> impl Iterator<Item = &Implementation> {
        std::iter::once(&self.newest).chain(&self.earlier)
    }
}

impl Workflows {
    /// Adds code.
    ///
    /// # Errors
    /// When there is code with its name and version, or with its name if either is an entity's: an entity has only one
    /// version.
    pub(crate) fn insert(&mut self, implementation: Implementation) -> Result<(), OpenError> {
        let (name, version) = (implementation.name(), implementation.version());
        let versions = match self.0.entry(name) {
            Entry::Vacant(vacant) => {
                vacant.insert(CodeVersions {
                    newest: implementation,
                    earlier: Vec::new(),
                });
                return Ok(());
            }
            Entry::Occupied(occupied) => occupied.into_mut(),
        };
        if versions.newest.is_entity() || implementation.is_entity() {
            let kind = "workflow";
            return Err(OpenError::RegisteredTwice { kind, name });
        }
        if versions.exactly(version).is_some() {
            return Err(match version {
                0 => OpenError::RegisteredTwice {
                    kind: "workflow",
                    name,
                },
                version => OpenError::VersionRegisteredTwice { name, version },
            });
        }
        let earlier = match version > versions.newest.version() {
            true => std::mem::replace(&mut versions.newest, implementation),
            false => implementation,
        };
        let behind = |code: &Implementation| code.version() > earlier.version();
        let at = versions.earlier.partition_point(behind);
        versions.earlier.insert(at, earlier);
        Ok(())
    }

    /// The newest version of each, in the order of their names.
    pub(crate) fn newest(&self) -> impl Iterator<Item = &Implementation> {
        self.0.values().map(|versions| &versions.newest)
    }

    /// All versions of all workflows, ordered by name, the newest first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Implementation> {
        self.0.values().flat_map(CodeVersions::all)
    }

    /// The registered versions of a workflow, in order.
    pub(crate) fn versions_of(&self, workflow: &str) -> Vec<u32> {
        let versions = self.0.get(workflow).into_iter().flat_map(CodeVersions::all);
        let mut numbers: Vec<_> = versions.map(Implementation::version).collect();
        numbers.reverse();
        numbers
    }

    fn find(&self, beginning: Beginning<'_>) -> Option<&CodeVersions> {
        self.0.get(beginning.workflow).filter(|_| !beginning.is_clash)
    }

    /// The code of a run with this beginning.
    pub(crate) fn code_of<'a>(&self, beginning: impl Into<Beginning<'a>>) -> Option<&Implementation> {
        let beginning = beginning.into();
        let versions = self.find(beginning)?;
        match beginning.version {
            Some(version) => versions.exactly(version),
            None => Some(&versions.newest),
        }
    }

    /// The code for a run that begins now: the newest version. A run that continues another keeps that one's version, if
    /// `continued`, and if the workflow pins its runs.
    #[inline]
    pub(crate) fn code_to_begin(&self, started: &Started, continued: Option<u32>) -> Option<&Implementation> {
        let versions = self.find(Beginning::from((&*started.workflow, &started.id)))?;
        let newest = &versions.newest;
        match continued {
            Some(version) if newest.version_policy() == VersionPolicy::Pinned => {
                Some(versions.exactly(version).unwrap_or(newest))
            }
            Some(_) | None => Some(newest),
        }
    }

    /// The code with which a run of an earlier version is tried: the newest, if the policy of the workflow lets runs move.
    pub(crate) fn code_to_move<'a>(&self, beginning: impl Into<Beginning<'a>>) -> Option<&Implementation> {
        let beginning = beginning.into();
        let newest = &self.find(beginning)?.newest;
        let is_newer = beginning
            .version
            .is_some_and(|version| version < newest.version());
        (is_newer && newest.version_policy() != VersionPolicy::Pinned).then_some(newest)
    }

    /// Whether there is code for a run with this beginning, or code with which it is tried.
    pub(crate) fn have<'a>(&self, beginning: impl Into<Beginning<'a>>) -> bool {
        let beginning = beginning.into();
        self.code_of(beginning).is_some() || self.code_to_move(beginning).is_some()
    }
}

#[cfg(test)]
mod tests {
    use millrun_workflow::{Payload, Workflow, WorkflowContext, WorkflowError};

    use super::*;

    fn code(version: u32, policy: VersionPolicy) -> Implementation {
        let workflow = Workflow::<u64, u64>::named("flow")
            .version(version)
            .policy(policy);
        let code = async |_cx: WorkflowContext, input: u64| Ok::<_, WorkflowError>(input);
        Implementation::new(workflow, code)
    }

    fn workflows(versions: &[u32], policy: VersionPolicy) -> Workflows {
        let mut workflows = Workflows::default();
        for version in versions {
            workflows.insert(code(*version, policy)).unwrap();
        }
        workflows
    }

    fn version_of(code: Option<&Implementation>) -> Option<u32> {
        code.map(Implementation::version)
    }

    #[test]
    fn versions_are_found_by_number_in_whatever_order_they_were_registered() {
        for versions in [[0, 3, 7], [7, 3, 0], [3, 7, 0], [7, 0, 3]] {
            let workflows = workflows(&versions, VersionPolicy::Pinned);
            assert_eq!(workflows.versions_of("flow"), [0, 3, 7]);
            for version in [0, 3, 7] {
                assert_eq!(version_of(workflows.code_of(("flow", version))), Some(version));
            }
            assert_eq!(version_of(workflows.code_of(("flow", 1))), None);
            assert_eq!(version_of(workflows.code_of("flow")), Some(7));
            assert_eq!(version_of(workflows.code_of("other")), None);
        }
    }

    #[test]
    fn a_second_code_of_a_version_is_refused_and_the_first_stays() {
        let mut workflows = workflows(&[0, 3], VersionPolicy::Pinned);
        let refused = workflows.insert(code(3, VersionPolicy::MustMove));
        assert!(matches!(
            refused,
            Err(OpenError::VersionRegisteredTwice {
                name: "flow",
                version: 3
            })
        ));
        let refused = workflows.insert(code(0, VersionPolicy::MustMove));
        assert!(matches!(refused, Err(OpenError::RegisteredTwice { .. })));
        let kept = workflows.code_of("flow").map(Implementation::version_policy);
        assert_eq!(kept, Some(VersionPolicy::Pinned));
    }

    #[test]
    fn a_run_is_tried_on_newer_code_alone_and_only_if_the_newest_says_so() {
        for (policy, expected) in [
            (VersionPolicy::Pinned, [None, None, None, None]),
            (VersionPolicy::MoveIfFits, [Some(3), Some(3), None, None]),
            (VersionPolicy::MustMove, [Some(3), Some(3), None, None]),
        ] {
            let workflows = workflows(&[1, 3], policy);
            let tried = [0, 1, 3, 4].map(|version| version_of(workflows.code_to_move(("flow", version))));
            assert_eq!(tried, expected, "{policy:?}");
        }
    }

    #[test]
    fn a_run_that_continues_another_keeps_its_version_if_it_is_pinned() {
        let started = Started::new("flow", "x".parse().unwrap(), Payload::encode(&1).unwrap());
        for (policy, expected) in [
            (VersionPolicy::Pinned, [Some(3), Some(1), Some(3)]),
            (VersionPolicy::MoveIfFits, [Some(3), Some(3), Some(3)]),
        ] {
            let workflows = workflows(&[1, 3], policy);
            let begun = [None, Some(1), Some(2)]
                .map(|continued| version_of(workflows.code_to_begin(&started, continued)));
            assert_eq!(begun, expected, "{policy:?}");
        }
    }
}
