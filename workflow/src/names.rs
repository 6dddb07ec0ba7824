//! Names that are kept for workflows of millrun's own.

/// What they begin with.
const RESERVED_PREFIX: &str = "millrun.";

/// Whether a workflow of this name is one of millrun's own. Its runs are started by millrun alone: their inputs are no
/// interface.
pub(crate) fn is_reserved_name(workflow: &str) -> bool {
    workflow.starts_with(RESERVED_PREFIX)
}

/// Why no run of such a workflow is started.
pub(crate) fn reserved_name(workflow: &str) -> String {
    format!("{workflow:?} is a workflow of millrun's own, and is started by millrun alone: give another name")
}
