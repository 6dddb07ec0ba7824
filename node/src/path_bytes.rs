//! File names as the bytes they are.
//!
//! A Unix file name is any sequence of bytes without NUL and slash; it need not be text. The
//! workflows carry names as bytes, so that no file is lost to a failed conversion.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A path as bytes, for histories and for files that list names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct PathBytes(#[serde(with = "serde_bytes")] Vec<u8>);

impl PathBytes {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    /// `name` below this directory.
    pub(crate) fn join(&self, name: &Self) -> Self {
        let mut bytes = self.0.clone();
        if !bytes.ends_with(b"/") {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(&name.0);
        Self(bytes)
    }
}

impl From<&Path> for PathBytes {
    fn from(path: &Path) -> Self {
        Self(path.as_os_str().as_bytes().to_vec())
    }
}

impl From<Vec<u8>> for PathBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl From<PathBytes> for PathBuf {
    fn from(path: PathBytes) -> Self {
        Self::from(OsString::from_vec(path.0))
    }
}

impl fmt::Display for PathBytes {
    /// For people: control characters are escaped, bytes that are no text are replaced.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in String::from_utf8_lossy(&self.0).chars() {
            if character.is_control() {
                write!(f, "{}", character.escape_default())?;
            } else {
                write!(f, "{character}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for PathBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_no_text_keeps_its_bytes() {
        let name = PathBytes::from(b"caf\xe9\n".to_vec());
        assert_eq!(PathBytes::from(name.as_path()), name);
        let json = serde_json::to_string(&name).unwrap();
        assert_eq!(serde_json::from_str::<PathBytes>(&json).unwrap(), name);
        assert_eq!(name.to_string(), "caf\u{fffd}\\n");
    }

    #[test]
    fn a_joined_path_has_one_slash_in_between() {
        let joined = |directory: &str| {
            PathBytes::from(Path::new(directory))
                .join(&Path::new("a").into())
                .to_string()
        };
        assert_eq!([joined("."), joined("d/"), joined("/")], ["./a", "d/a", "/a"]);
    }
}
