//! Where the tree, the store and the manifest lie.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::workflows::TreeOrder;
use crate::cli::Demo;
use crate::digest::Digest;
use crate::output::shown;
use crate::path_bytes::PathBytes;

/// Absolute paths without symbolic links, except what is shown as the user wrote it.
#[derive(Debug)]
pub(crate) struct Places {
    pub(crate) root: PathBuf,
    pub(crate) store: PathBuf,
    pub(crate) manifest: PathBuf,
    /// The directory as the user wrote it.
    pub(crate) root_as_given: PathBuf,
}

/// Why a place cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlaceError {
    #[error("the directory {} cannot be used", shown(path))]
    Root {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("no file can be written to {}", shown(path))]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("store and manifest are both {}", shown(path))]
    SameFile { path: PathBuf },
}

impl Places {
    /// Finds the places that the command line names.
    ///
    /// # Errors
    /// When the directory cannot be read, or a file's directory does not exist.
    pub(crate) fn of(options: &Demo) -> Result<Self, PlaceError> {
        let root = fs::canonicalize(&options.dir).and_then(|root| fs::read_dir(&root).map(|_| root));
        let root = root.map_err(|source| PlaceError::Root {
            path: options.dir.clone(),
            source,
        })?;
        let (store, manifest) = (file(&options.store)?, file(&options.manifest)?);
        if store == manifest {
            return Err(PlaceError::SameFile { path: store });
        }
        Ok(Self {
            root,
            store,
            manifest,
            root_as_given: options.dir.clone(),
        })
    }

    /// The id of the instance that makes this manifest of this tree.
    pub(crate) fn id(&self) -> String {
        let mut key = Vec::new();
        for path in [&self.root, &self.store, &self.manifest, &self.root_as_given] {
            key.extend_from_slice(PathBytes::from(path.as_path()).as_bytes());
            key.push(0);
        }
        format!("tree-{:.16}", Digest::of(&key).to_string())
    }

    /// What that instance is started with.
    pub(crate) fn order(&self) -> TreeOrder {
        TreeOrder {
            root: self.root.as_path().into(),
            store: self.store.as_path().into(),
            manifest: self.manifest.as_path().into(),
            list: self
                .store
                .with_added_extension(self.id())
                .with_added_extension("list")
                .as_path()
                .into(),
            shown_as: self.root_as_given.as_path().into(),
        }
    }
}

/// The absolute path of a file that need not exist, in a directory that must.
fn file(path: &Path) -> Result<PathBuf, PlaceError> {
    let refused = |source| PlaceError::File {
        path: path.to_path_buf(),
        source,
    };
    if path.is_dir() {
        return Err(refused(io::ErrorKind::IsADirectory.into()));
    }
    if let Ok(existing) = fs::canonicalize(path) {
        return Ok(existing);
    }
    let name = path
        .file_name()
        .ok_or_else(|| refused(io::ErrorKind::InvalidInput.into()))?;
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    Ok(fs::canonicalize(folder).map_err(refused)?.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(dir: &Path, store: &Path, manifest: &Path) -> Demo {
        use clap::Parser;
        let words = ["millrun", "demo"].map(Into::into).into_iter();
        let words = words.chain([
            dir.into(),
            "--store".into(),
            store.into(),
            "--manifest".into(),
            manifest.into(),
        ]);
        match crate::cli::Cli::parse_from::<_, std::ffi::OsString>(words).command {
            crate::cli::Command::Demo(options) => options,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn places_are_absolute_and_the_same_ones_have_the_same_id() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let places =
            |manifest: &str| Places::of(&options(&root, &root.join("a.redb"), &root.join(manifest))).unwrap();
        assert_eq!(places("sums").store, root.join("a.redb"));
        assert_eq!(places("sums").id(), places("./sums").id());
        assert_ne!(places("sums").id(), places("others").id());
    }

    #[test]
    fn places_that_cannot_be_used_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let refused = |dir: &str, store: &str, manifest: &str| {
            Places::of(&options(&root.join(dir), &root.join(store), &root.join(manifest))).unwrap_err()
        };
        assert!(matches!(refused("missing", "a", "b"), PlaceError::Root { .. }));
        assert!(matches!(refused("", "missing/a", "b"), PlaceError::File { .. }));
        assert!(matches!(refused("", "a", ""), PlaceError::File { .. }));
        assert!(matches!(refused("", "a", "a"), PlaceError::SameFile { .. }));
    }
}
