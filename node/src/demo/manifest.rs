//! The manifest: one line per file, as GNU `sha256sum` writes and checks it.
//!
//! ```text
//!   <64 hexadecimal digits><space><space><name>\n
//!   \<64 hexadecimal digits><space><space><name with \n, \r and \\ written out>\n
//! ```
//!
//! The file appears whole or not at all: it is written under another name beside its place,
//! synced, and renamed.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::digest::Digest;

/// What the unfinished manifest's name ends with.
const PARTIAL_SUFFIX: &str = ".partial";

/// Where the manifest grows until it is complete.
pub(crate) fn partial_path(manifest: &Path) -> PathBuf {
    let mut name = manifest.as_os_str().to_os_string();
    name.push(PARTIAL_SUFFIX);
    PathBuf::from(name)
}

/// Writes a manifest. Blocks.
///
/// Dropping it before [`ManifestWriter::finish`] leaves the former manifest as it was; the
/// partial file stays until the next writer takes its place.
#[derive(Debug)]
#[must_use = "nothing is visible before `finish`"]
pub(crate) struct ManifestWriter {
    place: PathBuf,
    partial: PathBuf,
    file: BufWriter<File>,
}

impl ManifestWriter {
    /// Begins anew, in place of what an earlier writer left unfinished.
    ///
    /// # Errors
    /// When the file cannot be made there.
    pub(crate) fn create(place: &Path) -> io::Result<Self> {
        let partial = partial_path(place);
        let file = BufWriter::new(File::create(&partial)?);
        Ok(Self {
            place: place.to_path_buf(),
            partial,
            file,
        })
    }

    /// Adds a file under the name a checker shall look for it.
    ///
    /// # Errors
    /// When the disk refuses.
    pub(crate) fn add(&mut self, digest: &Digest, name: &[u8]) -> io::Result<()> {
        self.file.write_all(&line(digest, name))
    }

    /// Makes the manifest visible: it is synced, then renamed, then its directory is synced.
    ///
    /// # Errors
    /// When the disk refuses; the former manifest is then still in place.
    pub(crate) fn finish(self) -> io::Result<()> {
        let file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        drop(file);
        fs::rename(&self.partial, &self.place)?;
        let folder = self
            .place
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

/// One line, its end included.
fn line(digest: &Digest, name: &[u8]) -> Vec<u8> {
    let mut line = Vec::with_capacity(name.len() + 68);
    if name.iter().any(|byte| matches!(byte, b'\\' | b'\n' | b'\r')) {
        line.push(b'\\');
    }
    line.extend_from_slice(digest.to_string().as_bytes());
    line.extend_from_slice(b"  ");
    for &byte in name {
        match byte {
            b'\\' => line.extend_from_slice(b"\\\\"),
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\r' => line.extend_from_slice(b"\\r"),
            _ => line.push(byte),
        }
    }
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::process::Command;

    const NAMES: [&[u8]; 8] = [
        b"plain",
        b"with space",
        b"new\nline",
        b"carriage\rreturn",
        b"back\\slash",
        b"\\\n\r",
        b"caf\xe9",
        b"*star",
    ];

    #[test]
    fn names_with_line_ends_and_backslashes_are_written_out() {
        let digest = Digest::of(b"");
        let text = |name: &[u8]| line(&digest, name);
        assert_eq!(text(b"a b"), format!("{digest}  a b\n").into_bytes());
        assert_eq!(text(b"a\\b"), format!("\\{digest}  a\\\\b\n").into_bytes());
        assert_eq!(text(b"a\nb"), format!("\\{digest}  a\\nb\n").into_bytes());
        assert_eq!(text(b"a\rb"), format!("\\{digest}  a\\rb\n").into_bytes());
    }

    /// Where GNU coreutils is installed, its own program is the judge; since version 9, because
    /// earlier ones did not write out carriage returns.
    #[test]
    fn sha256sum_writes_the_same_lines_and_accepts_ours() {
        let version = Command::new("sha256sum")
            .arg("--version")
            .output()
            .map(|output| output.stdout);
        let version = String::from_utf8(version.unwrap_or_default()).unwrap();
        let number = version.strip_prefix("sha256sum (GNU coreutils) ");
        let major = number.and_then(|number| number.split('.').next()?.parse::<u32>().ok());
        if major.is_none_or(|major| major < 9) {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        for name in NAMES {
            fs::write(folder.path().join(OsStr::from_bytes(name)), name).unwrap();
        }
        let mut manifest = ManifestWriter::create(&folder.path().join("sums")).unwrap();
        for name in NAMES {
            manifest.add(&Digest::of(name), name).unwrap();
        }
        manifest.finish().unwrap();

        let sha256sum = |arguments: &[&OsStr]| {
            Command::new("sha256sum")
                .current_dir(folder.path())
                .args(arguments)
                .output()
        };
        let theirs = sha256sum(&NAMES.map(OsStr::from_bytes)).unwrap();
        assert!(theirs.status.success());
        let ours = fs::read(folder.path().join("sums")).unwrap();
        assert_eq!(
            String::from_utf8_lossy(&ours),
            String::from_utf8_lossy(&theirs.stdout)
        );
        let checked = sha256sum(&["--check", "--strict", "sums"].map(OsStr::new)).unwrap();
        assert!(
            checked.status.success(),
            "{}",
            String::from_utf8_lossy(&checked.stderr)
        );
    }

    #[test]
    fn an_unfinished_manifest_leaves_the_former_one_in_place() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("sums");
        fs::write(&place, "former").unwrap();
        let mut manifest = ManifestWriter::create(&place).unwrap();
        manifest.add(&Digest::of(b"a"), b"a").unwrap();
        drop(manifest);
        assert_eq!(fs::read(&place).unwrap(), b"former");
        ManifestWriter::create(&place).unwrap().finish().unwrap();
        assert_eq!(fs::read(&place).unwrap(), b"");
        assert!(!partial_path(&place).exists());
    }

    #[test]
    fn a_place_that_cannot_be_written_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(ManifestWriter::create(&folder.path().join("missing/sums")).is_err());
    }
}
