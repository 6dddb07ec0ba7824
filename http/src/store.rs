//! Upkeep of a runtime's store: its description, and the operations on it.
//!
//! ```text
//!   GET v1/store ──► sizes, what was found at the start
//!   POST v1/store/.. ──► the runtime's store ──► a file beside it, whose name the server makes
//! ```
//!
//! Invariants: a request contains no path; it contains a part of a file name, made of a few safe characters, and no existing
//! file is overwritten.

use std::path::{Path, PathBuf};

use millrun::store::{BackupError, StoreHandle, UpkeepError};
use millrun::{RunError, Runtime};

use crate::body::{CopyBody, EmptyBody, parse};
use crate::operations::Action;
use crate::problem::Problem;
use crate::view::{Json, copied, object, store_told, verified};

/// The longest name of a copy.
const NAME_LEN_MAX: usize = 64;

/// Does one of the operations on the store.
pub(crate) async fn upkeep(runtime: &Runtime, action: Action, body: &[u8]) -> Result<Json, Problem> {
    let store = runtime.store();
    let store = store.ok_or_else(|| {
        Problem::new(
            "no-store",
            "it keeps its runs in memory, or in a journal of its own",
        )
    })?;
    match action {
        Action::StoreVerify => {
            let EmptyBody {} = parse(body)?;
            Ok(verified(&store.verify().await?))
        }
        Action::StoreBackup => {
            let CopyBody { name } = parse(body)?;
            let path = beside(&store, &name, "backup")?;
            store.backup(&path).await?;
            Ok(copied(&path, None))
        }
        Action::StoreExport => {
            let CopyBody { name } = parse(body)?;
            let path = beside(&store, &name, "ndjson")?;
            let exported = store.export(&path).await?;
            Ok(copied(&path, Some(&exported)))
        }
        Action::StoreCompact => {
            let EmptyBody {} = parse(body)?;
            store.begin_compact();
            Ok(object([("begun", true.into())]))
        }
        _ => Ok(store_told(&store, &runtime.stats(), runtime.startup_report())),
    }
}

/// The file for a copy: beside the store, with this name and ending.
fn beside(store: &StoreHandle, name: &str, ending: &str) -> Result<PathBuf, Problem> {
    let is_harmless = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if name.is_empty() || name.len() > NAME_LEN_MAX || !name.bytes().all(is_harmless) {
        let detail = format!("the name has 1 to {NAME_LEN_MAX} letters, digits, hyphens and underscores");
        return Err(Problem::new("invalid-body", detail));
    }
    Ok(named(store.path(), name, ending))
}

fn named(store: &Path, name: &str, ending: &str) -> PathBuf {
    let mut path = store.as_os_str().to_owned();
    path.push(format!(".{name}.{ending}"));
    path.into()
}

impl From<UpkeepError> for Problem {
    fn from(error: UpkeepError) -> Self {
        match error {
            UpkeepError::Stopped(cause) => RunError::Stopped(cause).into(),
            UpkeepError::Backup(BackupError::Exists { .. }) => {
                Self::new("exists", "a copy of this name is there already")
            }
            error => Self::new("store", with_sources(&error)),
        }
    }
}

/// The text of an error with its sources.
fn with_sources(error: &dyn std::error::Error) -> String {
    let mut told = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        told.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_stands_beside_the_store() {
        let path = named(Path::new("/var/lib/app.redb"), "monday", "backup");
        assert_eq!(path, Path::new("/var/lib/app.redb.monday.backup"));
    }
}
