//! A store, and the results of operations on it, as JSON.

use std::path::Path;

use millrun::operating::{RuntimeStats, StartupReport};
use millrun::store::{Exported, StoreHandle, Verified};

use super::{Json, list, object};

/// The description and the content of a store.
pub(crate) fn store_told(store: &StoreHandle, stats: &RuntimeStats, found: &StartupReport) -> Json {
    let journal = &stats.journal;
    object([
        ("path", path(store.path())),
        ("file_bytes", journal.file_bytes.into()),
        ("log_bytes", journal.log_bytes.into()),
        ("live_bytes", journal.live_bytes.into()),
        ("format", u64::from(store.format()).into()),
        ("live_runs", journal.live_runs.into()),
        ("parked_runs", stats.parked.into()),
        ("finished_runs", journal.finished_runs.into()),
        ("was_repaired", found.is_repaired.into()),
        ("was_index_rebuilt", found.is_index_rebuilt.into()),
        (
            "damaged",
            list(&found.damaged, |(_, cause)| cause.as_str().into()),
        ),
        ("is_compacting", journal.is_compacting.into()),
        ("compactions", journal.compactions.into()),
    ])
}

/// The result of reading every record.
pub(crate) fn verified(verified: &Verified) -> Json {
    object([
        ("records", verified.records.into()),
        ("bytes", verified.bytes.into()),
        ("trimmed_runs", verified.trimmed.len().into()),
        ("is_sound", verified.damaged.is_empty().into()),
        (
            "damaged",
            list(&verified.damaged, |damage| damage.to_string().into()),
        ),
    ])
}

/// The place of a copy.
pub(crate) fn copied(at: &Path, exported: Option<&Exported>) -> Json {
    let mut fields = vec![("path", path(at))];
    if let Some(exported) = exported {
        fields.push(("runs", exported.runs.into()));
        fields.push(("records", exported.records.into()));
    }
    Json::Object(fields)
}

/// A path on the machine of the program, made absolute.
fn path(path: &Path) -> Json {
    let whole = std::path::absolute(path);
    whole.as_deref().unwrap_or(path).display().to_string().into()
}
