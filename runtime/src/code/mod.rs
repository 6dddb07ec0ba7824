//! The code of workflows, as shards use it: how the code of a run is found, and replays.

pub(crate) mod changed_values;
pub(crate) mod replays;
pub(crate) mod version_trials;
pub(crate) mod workflows;
