//! SHA-256 digests and the blocking loop that computes one.

use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// How much of a file is read at a time, in bytes. It is the memory one file in progress takes.
const BLOCK_BYTES: usize = 128 * 1024;

/// A SHA-256 digest; written as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(crate) struct Digest([u8; 32]);

impl Digest {
    /// The digest of a few bytes in memory.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl FromStr for Digest {
    type Err = DigestTextError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.as_bytes();
        if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(DigestTextError);
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| DigestTextError)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| DigestTextError)?;
        }
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestTextError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// A text that is not 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a SHA-256 digest has 64 hexadecimal digits")]
pub(crate) struct DigestTextError;

/// What the digest of one file turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileDigest {
    pub(crate) digest: Digest,
    /// How many bytes went into it.
    pub(crate) bytes: u64,
}

/// Why a file has no digest. Stored in histories as the activity's error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub(crate) enum DigestError {
    /// It was listed and is gone, or is no regular file any more.
    #[error("it vanished after it was listed")]
    Vanished,
    /// It changed while it was read: the digest would belong to no state of it.
    #[error("it kept changing while it was read")]
    Changed,
    /// This user may not read it.
    #[error("permission denied")]
    Denied,
    /// The disk or the network behind it failed.
    #[error("{0}")]
    Io(String),
    /// Nobody waits for the digest any longer.
    #[error("the attempt was stopped")]
    Stopped,
}

impl DigestError {
    /// Whether another attempt may succeed.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Vanished | Self::Denied => false,
            Self::Changed | Self::Io(_) | Self::Stopped => true,
        }
    }
}

impl From<io::Error> for DigestError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => {
                Self::Vanished
            }
            io::ErrorKind::PermissionDenied => Self::Denied,
            _ => Self::Io(error.to_string()),
        }
    }
}

/// Reads a regular file from its beginning to its end. Blocks; call it off the async threads.
///
/// `is_stopped` is asked between blocks, and ends the work early.
///
/// # Errors
/// As [`DigestError`] lists them. A symbolic link is not followed: a name that has become one
/// counts as vanished.
pub(crate) fn digest_file(path: &Path, is_stopped: impl Fn() -> bool) -> Result<FileDigest, DigestError> {
    // Looked at before it is opened: opening a named pipe would wait for a writer.
    let named = fs::symlink_metadata(path)?;
    if !named.is_file() {
        return Err(DigestError::Vanished);
    }
    let mut file = File::open(path)?;
    let opened = file.metadata()?;
    if (named.dev(), named.ino()) != (opened.dev(), opened.ino()) {
        return Err(DigestError::Changed);
    }
    let mut hasher = Sha256::new();
    let mut block = vec![0; BLOCK_BYTES];
    let mut bytes = 0;
    loop {
        if is_stopped() {
            return Err(DigestError::Stopped);
        }
        match file.read(&mut block) {
            Ok(0) => break,
            Ok(read) => {
                hasher.update(&block[..read]);
                bytes += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    // The name is looked at again as well: what was read may have been replaced or removed.
    let (read, named) = (file.metadata()?, fs::symlink_metadata(path)?);
    if bytes != opened.len() || state(&read) != state(&opened) || state(&named) != state(&opened) {
        return Err(DigestError::Changed);
    }
    Ok(FileDigest {
        digest: Digest(hasher.finalize().into()),
        bytes,
    })
}

/// What differs when a file was written to, also where its time was set back, or is another file.
fn state(metadata: &Metadata) -> [i128; 7] {
    [
        metadata.dev().into(),
        metadata.ino().into(),
        metadata.len().into(),
        metadata.mtime().into(),
        metadata.mtime_nsec().into(),
        metadata.ctime().into(),
        metadata.ctime_nsec().into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::io::Write;

    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn file_with(content: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        file
    }

    #[test]
    fn a_digest_is_that_of_the_standard_and_survives_its_text_form() {
        let file = file_with(b"abc");
        let found = digest_file(file.path(), || false).unwrap();
        assert_eq!(found.bytes, 3);
        assert_eq!(found.digest.to_string(), ABC);
        assert_eq!(ABC.parse(), Ok(found.digest));
        assert_eq!(Digest::of(b"abc"), found.digest);
    }

    #[test]
    fn a_text_that_is_no_digest_is_refused() {
        for text in ["", "abc", &"g".repeat(64), &"é".repeat(32), &"+f".repeat(32)] {
            assert_eq!(text.parse::<Digest>(), Err(DigestTextError), "{text}");
        }
    }

    #[test]
    fn a_file_longer_than_a_block_is_read_to_its_end() {
        let content = vec![7; BLOCK_BYTES * 2 + 1];
        let file = file_with(&content);
        let found = digest_file(file.path(), || false).unwrap();
        assert_eq!(
            (found.bytes, found.digest),
            (content.len() as u64, Digest::of(&content))
        );
    }

    #[test]
    fn what_is_gone_or_no_regular_file_has_vanished() {
        let folder = tempfile::tempdir().unwrap();
        let (gone, link) = (folder.path().join("gone"), folder.path().join("link"));
        std::os::unix::fs::symlink("/etc/hostname", &link).unwrap();
        for path in [gone.as_path(), link.as_path(), folder.path()] {
            assert_eq!(
                digest_file(path, || false),
                Err(DigestError::Vanished),
                "{path:?}"
            );
        }
        assert!(!DigestError::Vanished.may_pass());
    }

    #[test]
    fn a_file_written_to_while_it_is_read_has_changed() {
        let mut file = file_with(b"before");
        let path = file.path().to_path_buf();
        let asked = Cell::new(false);
        let found = digest_file(&path, || {
            if !asked.replace(true) {
                let longer = fs::OpenOptions::new().append(true).open(&path);
                longer.unwrap().write_all(b" and after").unwrap();
            }
            false
        });
        assert_eq!(found, Err(DigestError::Changed));
        assert!(DigestError::Changed.may_pass());
        file.flush().unwrap();
    }

    /// A file that was removed, replaced by another of its size, or cut and filled again while it was read
    /// went into the manifest as if it had stood still: only the length and the time of the open file were
    /// compared.
    #[test]
    fn a_file_that_vanishes_or_is_replaced_while_it_is_read_has_no_digest() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let meanwhile = |act: &dyn Fn()| {
            fs::write(&path, b"before").unwrap();
            let asked = Cell::new(false);
            digest_file(&path, || {
                if !asked.replace(true) {
                    act();
                }
                false
            })
        };
        let removed = meanwhile(&|| fs::remove_file(&path).unwrap());
        assert_eq!(removed, Err(DigestError::Vanished));
        let replaced = meanwhile(&|| {
            let other = folder.path().join("other");
            fs::write(&other, b"behind").unwrap();
            fs::rename(other, &path).unwrap();
        });
        assert_eq!(replaced, Err(DigestError::Changed));
        let set_back = meanwhile(&|| {
            let time = fs::metadata(&path).unwrap().modified().unwrap();
            fs::write(&path, b"behind").unwrap();
            let file = File::options().write(true).open(&path).unwrap();
            file.set_modified(time).unwrap();
        });
        assert_eq!(set_back, Err(DigestError::Changed));
    }

    #[test]
    fn a_stopped_attempt_ends_between_blocks() {
        let file = file_with(b"abc");
        assert_eq!(digest_file(file.path(), || true), Err(DigestError::Stopped));
    }
}
