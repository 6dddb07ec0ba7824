//! Workflows and activities of millrun's own, which every runtime has.
//!
//! ```text
//!   start of a runtime ──► registrations() ──► the code that users registered, and this
//!   user: start, signal ──► a reserved name ──► refused
//!   user: list, catalogue ──► without what is reserved
//! ```
//!
//! Their names begin with `millrun.`, which users cannot register. An instance of such a workflow is one of millrun's own
//! if its id begins with that name and a slash; ids of a user's own instances may begin so, too. An older store may have instances of a user's workflow under such a name:
//! their ids begin otherwise, and they find no code, so that millrun's own never runs on a history of a user.

mod entity_commands;

use millrun_workflow::ENTITY_COMMAND;

use crate::bulk;
use crate::code::workflows::is_reserved;
use crate::opening::registry::{Definition, Registration};

/// All that is registered beside the user's code. A new workflow of millrun's own is added here.
pub(crate) fn registrations() -> impl Iterator<Item = Registration> {
    let commands = Definition::bind(ENTITY_COMMAND, entity_commands::command);
    let registrations = bulk::registrations().into_iter().chain([commands]);
    #[cfg(feature = "schedules")]
    let registrations = registrations.chain(crate::schedules::registrations());
    registrations
}

/// The id of an instance of one of millrun's own workflows, by the name that the user gives it.
pub(crate) fn id_of(workflow: &str, name: &str) -> String {
    format!("{workflow}/{name}")
}

/// The name that the user gave the instance with this id.
pub(crate) fn name_of<'a>(workflow: &str, id: &'a str) -> Option<&'a str> {
    id.strip_prefix(workflow)?.strip_prefix('/')
}

/// Whether this may be the id of an instance of millrun's own. A user's may have the same form: the name of its workflow
/// decides.
pub(crate) fn is_own_id(id: &str) -> bool {
    is_reserved(id) && id.contains('/')
}

/// Whether an instance is of a workflow with a reserved name and none of millrun's own.
pub(crate) fn is_clash(workflow: &str, id: &str) -> bool {
    is_reserved(workflow) && name_of(workflow, id).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_of_millruns_own_is_known_by_its_id() {
        let id = id_of("millrun.bulk", "cleanup");
        assert_eq!(name_of("millrun.bulk", &id), Some("cleanup"));
        assert!(!is_clash("millrun.bulk", &id));
        assert!(is_clash("millrun.bulk", "cleanup"));
        assert!(is_clash("millrun.other", "millrun.bulk/cleanup"));
        assert!(!is_clash("order", "cleanup"));
    }
}
