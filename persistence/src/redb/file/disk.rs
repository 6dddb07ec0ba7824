//! What a store needs of a disk, and a file that provides it.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::loss::FileLoss;
use super::system::{self, Identity};

/// One random-access file. Zero-ahead, fault injection and simulated power cuts implement this.
///
/// What a store assumes of an implementation: a write that was followed by a successful [`sync`](Self::sync) survives
/// everything; other writes may survive in part, in any order. Bytes that were never written read as zero.
#[expect(
    clippy::len_without_is_empty,
    reason = "nobody asks a disk whether it is empty"
)]
pub trait Disk: Send + Sync + fmt::Debug + 'static {
    /// Fills `out` from `offset` on.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file ends before; otherwise the error of the device.
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;

    /// Writes all of `data` at `offset`, within the file's length.
    ///
    /// # Errors
    /// The error of the device. Part of the data may have been written.
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// The length of the file in bytes.
    ///
    /// # Errors
    /// The error of the device.
    fn len(&self) -> io::Result<u64>;

    /// Cuts or extends the file. New bytes are zero.
    ///
    /// # Errors
    /// The error of the device.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Returns when everything written before is on stable storage.
    ///
    /// # Errors
    /// The error of the device. Nothing may be assumed of unsynced writes afterwards.
    fn sync(&self) -> io::Result<()>;

    /// Locks the file for this process until the disk is dropped; `false` if another process has locked it. Never waits.
    ///
    /// # Errors
    /// The error of the operating system.
    fn try_lock(&self) -> io::Result<bool>;

    /// Whether other programs can take the file away, so that [`loss`](Self::loss) is worth calling. By default not.
    fn can_be_lost(&self) -> bool {
        false
    }

    /// What other programs have done to the file, if anything: asked before each acknowledgement, and from time to time while
    /// nothing is written. By default nothing.
    ///
    /// # Errors
    /// When that cannot be found out because of the file itself.
    fn loss(&self) -> io::Result<Option<FileLoss>> {
        Ok(None)
    }
}

/// A [`Disk`] that is a file of the operating system.
///
/// It is [lost](Disk::loss) when no file is at its path any more, or another one (told by device and inode number; on Windows
/// by the time of creation), or when it is shorter than it was made here. If the path cannot be examined (a folder without
/// permission, say), that proves nothing and is ignored. Once the file was found shortened, nothing is written to it.
#[derive(Debug)]
pub struct FileDisk {
    file: File,
    /// The path of the file, or its later path if it is a draft.
    path: PathBuf,
    /// Distinguishes it from other files.
    identity: Identity,
    /// The length that it was given here.
    len: AtomicU64,
    /// Set once it was found shortened.
    cut: OnceLock<FileLoss>,
}

impl FileDisk {
    /// Opens a file, which must exist.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::of(OpenOptions::new().read(true).write(true).open(path)?, path)
    }

    /// Opens a file, or creates an empty one.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn create(path: &Path) -> io::Result<Self> {
        Self::create_draft(path, path)
    }

    /// As [`create`](Self::create), for a file that is moved to `path` before it is used.
    pub(crate) fn create_draft(draft: &Path, path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        Self::of(options.open(draft)?, path)
    }

    fn of(file: File, path: &Path) -> io::Result<Self> {
        let found = file.metadata()?;
        Ok(Self {
            file,
            // The process may change its working directory.
            path: std::path::absolute(path)?,
            identity: system::identity(&found),
            len: AtomicU64::new(found.len()),
            cut: OnceLock::new(),
        })
    }

    /// Refuses to write to a file that was found shortened.
    fn check_cut(&self) -> io::Result<()> {
        match self.cut.get() {
            None => Ok(()),
            Some(cut) => Err(io::Error::other(cut.clone())),
        }
    }

    /// Whether it was shortened, as far as its length shows.
    fn cut(&self, len: u64) -> Option<FileLoss> {
        let expected = self.len.load(Ordering::Acquire);
        let path = self.path.clone();
        (len < expected).then(|| {
            let cut = FileLoss::Truncated { path, len, expected };
            self.cut.get_or_init(|| cut).clone()
        })
    }
}

impl Disk for FileDisk {
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        system::read_exact_at(&self.file, out, offset)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check_cut()?;
        // A write at the end would restore the length of a shortened file, and nobody would notice.
        if offset + data.len() as u64 >= self.len.load(Ordering::Acquire) {
            self.cut(self.file.metadata()?.len());
            self.check_cut()?;
        }
        system::write_all_at(&self.file, data, offset)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.cut(self.file.metadata()?.len());
        self.check_cut()?;
        // A thread that checks for a loss meanwhile must not take this for one.
        self.len.fetch_min(len, Ordering::AcqRel);
        self.file.set_len(len)?;
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn try_lock(&self) -> io::Result<bool> {
        match self.file.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn can_be_lost(&self) -> bool {
        true
    }

    fn loss(&self) -> io::Result<Option<FileLoss>> {
        let own = self.file.metadata()?;
        if let Some(cut) = self.cut(own.len()) {
            return Ok(Some(cut));
        }
        let path = || self.path.clone();
        Ok(match fs::metadata(&self.path) {
            Ok(found) if system::identity(&found) != self.identity => {
                Some(FileLoss::Replaced { path: path() })
            }
            Ok(_) => None,
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory if !system::has_name(&own) => {
                    Some(FileLoss::Deleted { path: path() })
                }
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                    Some(FileLoss::Moved { path: path() })
                }
                _ => None,
            },
        })
    }
}

impl Drop for FileDisk {
    /// Unlocks explicitly. A child process that is being spawned holds all open files until its own program begins, so
    /// closing the file here alone would leave it locked for that long.
    fn drop(&mut self) {
        if let Err(error) = self.file.unlock() {
            tracing::debug!(%error, "the lock of a store goes with its file");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_disk_is_free_though_a_child_has_inherited_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store");
        let disk = FileDisk::create(&path).unwrap();
        // The same open file twice, as between fork and exec.
        let _inherited = disk.file.try_clone().unwrap();
        assert!(disk.try_lock().unwrap());
        let other = FileDisk::open(&path).unwrap();
        assert!(!other.try_lock().unwrap());
        drop(disk);
        assert!(other.try_lock().unwrap());
        // A process without the lock does not release the lock of the one that has it.
        drop(FileDisk::open(&path).unwrap());
        assert!(!FileDisk::open(&path).unwrap().try_lock().unwrap());
    }
}
