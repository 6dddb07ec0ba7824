//! Names that are reserved for built-in workflows.

/// The prefix of reserved names.
const RESERVED_PREFIX: &str = "millrun.";

/// Whether a workflow name is reserved for a built-in workflow. Only millrun starts such runs: their inputs are not a public
/// interface.
pub(crate) fn is_reserved_name(workflow: &str) -> bool {
    workflow.starts_with(RESERVED_PREFIX)
}

/// The error for starting such a workflow.
pub(crate) fn reserved_name(workflow: &str) -> String {
    format!("{workflow:?} is a workflow of millrun's own, and is started by millrun alone: give another name")
}
