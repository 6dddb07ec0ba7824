//! File names as the bytes they are.
//!
//! A Unix file name is any sequence of bytes without NUL and slash; it need not be text. The
//! workflows carry names as bytes, so that no file is lost to a failed conversion.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// How many characters of a path a person is shown at each end of one that is too long.
const SHOWN_END_CHARS: usize = 120;

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
    /// For people: control characters are escaped, bytes that are no text are replaced, and the
    /// middle of a path that would flood the screen is left out, with its length.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = String::from_utf8_lossy(&self.0);
        let chars_len = text.chars().count();
        let left_out = chars_len.saturating_sub(2 * SHOWN_END_CHARS);
        for (index, character) in text.chars().enumerate() {
            if left_out > 0 && index == SHOWN_END_CHARS {
                write!(f, "[{left_out} characters]")?;
            }
            if left_out > 0 && (SHOWN_END_CHARS..chars_len - SHOWN_END_CHARS).contains(&index) {
                continue;
            }
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

    /// A path of 6,000 bytes filled the screen, and one with an escape sequence coloured it.
    #[test]
    fn a_path_is_shown_on_a_line_or_two_and_does_nothing_to_the_terminal() {
        let long = PathBytes::from([b"/begin/".repeat(400), b"\x1b[31m/end".to_vec()].concat());
        let shown = long.to_string();
        assert!(shown.len() < 300, "{shown}");
        assert!(
            shown.starts_with("/begin/") && shown.ends_with("\\u{1b}[31m/end"),
            "{shown}"
        );
        assert!(shown.contains("[2569 characters]"), "{shown}");
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
