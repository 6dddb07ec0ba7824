//! Built-in workflows and activities, which every runtime has.
//!
//! ```text
//!   start of a runtime ──► registrations() ──► the code that users registered, and this
//!   user: start, signal ──► a reserved name ──► refused
//!   user: list, catalogue ──► without what is reserved
//! ```
//!
//! Their names begin with `millrun.`, which users cannot register. An instance of such a workflow is built in if its id
//! begins with the workflow's name and a slash; ids of users' instances may have that form, too. An older store may have
//! instances of a user's workflow with such a name: their ids have another form, and they find no code, so built-in code
//! never runs on a user's history.

mod entity_commands;

use millrun_workflow::ENTITY_COMMAND;

use crate::bulk;
use crate::code::workflows::is_reserved;
use crate::opening::registry::{Definition, Registration};

/// All registrations besides the user's code. New built-in workflows are added here.
pub(crate) fn registrations() -> impl Iterator<Item = Registration> {
    let commands = Definition::bind(ENTITY_COMMAND, entity_commands::command);
    let registrations = bulk::registrations().into_iter().chain([commands]);
    #[cfg(feature = "schedules")]
    let registrations = registrations.chain(crate::schedules::registrations());
    registrations
}

/// The id of an instance of a built-in workflow, from the name that the user gives it.
pub(crate) fn id_of(workflow: &str, name: &str) -> String {
    format!("{workflow}/{name}")
}

/// The name that the user gave to the instance with this id.
pub(crate) fn name_of<'a>(workflow: &str, id: &'a str) -> Option<&'a str> {
    id.strip_prefix(workflow)?.strip_prefix('/')
}

/// Whether this may be the id of a built-in instance. A user's id may have the same form: the name of its workflow decides.
pub(crate) fn is_own_id(id: &str) -> bool {
    is_reserved(id) && id.contains('/')
}

/// Whether an instance belongs to a workflow with a reserved name that is not a built-in one.
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
