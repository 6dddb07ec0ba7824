//! The regular files below a directory, in an order that is the same every time.
//!
//! ```text
//!   root ──► names of one directory, sorted by their bytes ──► file: given to the caller
//!              ▲                                          └──► directory: its names come next
//!              └──────────────── depth first ─────────────────┘
//! ```
//!
//! Symbolic links are not followed and not listed; neither are sockets, pipes and devices. A
//! directory that cannot be read is reported and passed over. Held in memory: the names in the
//! directories from the root to the current one.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::vec;

use serde::{Deserialize, Serialize};

use crate::output::shown;
use crate::path_bytes::PathBytes;

/// How many unreadable directories are named; further ones are only counted.
const UNREADABLE_NAMED_MAX: usize = 100;

/// The files that the program itself writes, which may lie in the tree it lists.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeftOut {
    exact: Vec<PathBuf>,
    families: Vec<PathBytes>,
}

impl LeftOut {
    /// Leaves out the file at this absolute path.
    pub(crate) fn file(mut self, path: &Path) -> Self {
        self.exact.push(path.to_path_buf());
        self
    }

    /// Leaves out the file at this absolute path, and all whose paths continue it with a dot:
    /// `app.redb` and `app.redb.list`, say.
    pub(crate) fn family(mut self, path: &Path) -> Self {
        self.families.push(PathBytes::from(path));
        self
    }

    fn holds(&self, path: &Path) -> bool {
        let bytes = PathBytes::from(path);
        let is_kin = |family: &PathBytes| {
            let rest = bytes.as_bytes().strip_prefix(family.as_bytes());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."))
        };
        self.exact.iter().any(|exact| exact == path) || self.families.iter().any(is_kin)
    }
}

/// What a walk came by, besides the files it gave to its caller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Survey {
    pub(crate) files: u64,
    /// Their sizes when they were listed, added up.
    pub(crate) bytes: u64,
    /// Symbolic links, which are not followed.
    pub(crate) links: u64,
    /// Sockets, pipes and devices.
    pub(crate) specials: u64,
    /// Names that were in their directory and then could not be found.
    #[serde(default)]
    pub(crate) vanished: u64,
    /// Files whose names have control characters other than line ends. Manifests hold them as they are,
    /// since the format of `sha256sum` has no other way to write them.
    #[serde(default)]
    pub(crate) control_names: u64,
    /// Directories that could not be read: how many, and the first hundred by name.
    pub(crate) unreadable: u64,
    pub(crate) unreadable_named: Vec<Unreadable>,
}

/// A directory that could not be read, or a name that could not be looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Unreadable {
    pub(crate) path: PathBytes,
    pub(crate) reason: String,
}

/// Why a walk ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WalkError<E> {
    #[error("the directory {} cannot be read", shown(root))]
    Root {
        root: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The caller refused a file.
    #[error("the list could not be taken")]
    Refused(E),
}

/// Gives the path of each regular file below `root`, relative to it, to `each`, in order. Blocks.
///
/// `root` is absolute and without symbolic links, as are the paths of `left_out`.
///
/// # Errors
/// When the root itself cannot be read, or `each` refuses a file. What vanishes or cannot be
/// read further down does not end the walk.
pub(crate) fn walk<E>(
    root: &Path,
    left_out: &LeftOut,
    mut each: impl FnMut(&Path) -> Result<(), E>,
) -> Result<Survey, WalkError<E>> {
    let mut survey = Survey::default();
    let names = sorted_names(root).map_err(|source| WalkError::Root {
        root: root.to_path_buf(),
        source,
    })?;
    let mut levels: Vec<vec::IntoIter<OsString>> = vec![names];
    let mut here = PathBuf::new();
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.next() else {
            levels.pop();
            here.pop();
            continue;
        };
        let path = here.join(name);
        let absolute = root.join(&path);
        if left_out.holds(&absolute) {
            continue;
        }
        match look(&absolute) {
            Ok(Kind::File { bytes }) => {
                survey.files += 1;
                survey.bytes += bytes;
                survey.control_names += u64::from(has_control(&path));
                each(&path).map_err(WalkError::Refused)?;
            }
            Ok(Kind::Directory { names }) => {
                here = path;
                levels.push(names);
            }
            Ok(Kind::Link) => survey.links += 1,
            Ok(Kind::Special) => survey.specials += 1,
            Err(error) if error.kind() == io::ErrorKind::NotFound => survey.vanished += 1,
            Err(error) => survey.note_unreadable(&path, &error),
        }
    }
    Ok(survey)
}

impl Survey {
    fn note_unreadable(&mut self, path: &Path, error: &io::Error) {
        self.unreadable += 1;
        if self.unreadable_named.len() < UNREADABLE_NAMED_MAX {
            self.unreadable_named.push(Unreadable {
                path: PathBytes::from(path),
                reason: error.to_string(),
            });
        }
    }
}

/// Whether a terminal would obey part of this name. Line ends are written out in a manifest.
fn has_control(path: &Path) -> bool {
    let is_control = |byte: &u8| byte.is_ascii_control() && !matches!(byte, b'\n' | b'\r');
    PathBytes::from(path).as_bytes().iter().any(is_control)
}

enum Kind {
    File { bytes: u64 },
    Directory { names: vec::IntoIter<OsString> },
    Link,
    Special,
}

fn look(path: &Path) -> io::Result<Kind> {
    let metadata = fs::symlink_metadata(path)?;
    Ok(if metadata.is_file() {
        Kind::File {
            bytes: metadata.len(),
        }
    } else if metadata.is_dir() {
        Kind::Directory {
            names: sorted_names(path)?,
        }
    } else if metadata.is_symlink() {
        Kind::Link
    } else {
        Kind::Special
    })
}

/// The names in a directory. On Unix the order of `OsString` is that of its bytes.
fn sorted_names(directory: &Path) -> io::Result<vec::IntoIter<OsString>> {
    let mut names = fs::read_dir(directory)?
        .map(|entry| Ok(entry?.file_name()))
        .collect::<io::Result<Vec<_>>>()?;
    names.sort_unstable();
    Ok(names.into_iter())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn with(files: &[&[u8]]) -> Self {
            let folder = tempfile::tempdir().unwrap();
            for file in files {
                let path = folder.path().join(OsStr::from_bytes(file));
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, file).unwrap();
            }
            Self(folder)
        }

        fn root(&self) -> PathBuf {
            self.0.path().canonicalize().unwrap()
        }

        fn files(&self, left_out: &LeftOut) -> (Vec<Vec<u8>>, Survey) {
            let mut files = Vec::new();
            let survey = walk::<Infallible>(&self.root(), left_out, |path| {
                files.push(path.as_os_str().as_bytes().to_vec());
                Ok(())
            });
            (files, survey.unwrap())
        }
    }

    #[test]
    fn files_come_depth_first_in_the_order_of_their_bytes_whatever_their_names() {
        let tree = Tree::with(&[b"b", b"a/2", b"a/1/x", b"new\nline", b"caf\xe9", b"-", b"a.txt"]);
        let (files, survey) = tree.files(&LeftOut::default());
        let expected: [&[u8]; 7] = [b"-", b"a/1/x", b"a/2", b"a.txt", b"b", b"caf\xe9", b"new\nline"];
        assert_eq!(files, expected);
        assert_eq!(
            (survey.files, survey.bytes),
            (7, expected.iter().map(|name| name.len() as u64).sum())
        );
    }

    #[test]
    fn links_are_counted_and_not_followed() {
        let tree = Tree::with(&[b"real/file"]);
        std::os::unix::fs::symlink(tree.root(), tree.root().join("loop")).unwrap();
        std::os::unix::fs::symlink("real/file", tree.root().join("alias")).unwrap();
        let (files, survey) = tree.files(&LeftOut::default());
        assert_eq!(files, [b"real/file".to_vec()]);
        assert_eq!(survey.links, 2);
    }

    #[test]
    fn sockets_are_counted_and_not_listed() {
        let tree = Tree::with(&[b"file"]);
        let _socket = std::os::unix::net::UnixListener::bind(tree.root().join("socket")).unwrap();
        let (files, survey) = tree.files(&LeftOut::default());
        assert_eq!((files.len(), survey.specials), (1, 1));
    }

    #[test]
    fn what_the_program_writes_is_left_out() {
        let tree = Tree::with(&[b"app.redb", b"app.redb.list", b"app.redbx", b"sums", b"sums.txt"]);
        let root = tree.root();
        let left_out = LeftOut::default()
            .family(&root.join("app.redb"))
            .file(&root.join("sums"));
        assert_eq!(
            tree.files(&left_out).0,
            [b"app.redbx".to_vec(), b"sums.txt".to_vec()]
        );
    }

    #[test]
    fn a_tree_deeper_than_any_stack_is_walked() {
        let tree = Tree::with(&[]);
        // As deep as one path may be long, which is what the system lets us name.
        let deep = "d/".repeat(1_500);
        fs::create_dir_all(tree.root().join(&deep)).unwrap();
        fs::write(tree.root().join(&deep).join("file"), "x").unwrap();
        assert_eq!(tree.files(&LeftOut::default()).1.files, 1);
    }

    #[test]
    fn a_root_that_is_no_directory_is_refused() {
        let tree = Tree::with(&[b"file"]);
        for root in ["file", "missing"] {
            let walked = walk::<Infallible>(&tree.root().join(root), &LeftOut::default(), |_| Ok(()));
            assert!(matches!(walked, Err(WalkError::Root { .. })), "{root}");
        }
    }

    #[test]
    fn a_refused_file_ends_the_walk() {
        let tree = Tree::with(&[b"a", b"b"]);
        let mut given = 0;
        let walked = walk(&tree.root(), &LeftOut::default(), |_| {
            given += 1;
            Err("full")
        });
        assert!(matches!(walked, Err(WalkError::Refused("full"))));
        assert_eq!(given, 1);
    }
}
