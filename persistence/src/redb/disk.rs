//! What we ask of a disk, and a file that gives it.

use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// One random-access file. Zero-ahead, fault injection and simulated power cuts implement this.
///
/// What a store assumes of an implementation: a write that was followed by a successful
/// [`sync`](Self::sync) survives everything; one that was not may survive in part, in any order.
/// Bytes never written read as zero.
#[expect(
    clippy::len_without_is_empty,
    reason = "nobody asks a disk whether it is empty"
)]
pub trait Disk: Send + Sync + fmt::Debug + 'static {
    /// Fills `out` from `offset` on.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file ends before; otherwise what the device says.
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;

    /// Writes all of `data` at `offset`, within the file's length.
    ///
    /// # Errors
    /// What the device says. Part of the data may have been written.
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// The length of the file in bytes.
    ///
    /// # Errors
    /// What the device says.
    fn len(&self) -> io::Result<u64>;

    /// Cuts or extends the file. New bytes are zero.
    ///
    /// # Errors
    /// What the device says.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Returns when everything written before is on stable storage.
    ///
    /// # Errors
    /// What the device says. Nothing may be assumed of unsynced writes afterwards.
    fn sync(&self) -> io::Result<()>;

    /// Takes the file for this process alone until the disk is dropped; `false` if somebody else
    /// has it. Never waits.
    ///
    /// # Errors
    /// What the operating system says.
    fn try_lock(&self) -> io::Result<bool>;
}

/// A [`Disk`] that is a file of the operating system.
#[derive(Debug)]
pub struct FileDisk(File);

impl FileDisk {
    /// Opens a file, which must exist.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn open(path: &Path) -> io::Result<Self> {
        OpenOptions::new().read(true).write(true).open(path).map(Self)
    }

    /// Opens a file, or creates an empty one.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map(Self)
    }
}

impl Disk for FileDisk {
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(out, offset)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn try_lock(&self) -> io::Result<bool> {
        match self.0.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl Drop for FileDisk {
    /// Lets go of the lock by name. A child that is being spawned holds whatever is open until its own
    /// program begins, and closing the file here alone would leave the lock with it for that long.
    fn drop(&mut self) {
        if let Err(error) = self.0.unlock() {
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
        let _inherited = disk.0.try_clone().unwrap();
        assert!(disk.try_lock().unwrap());
        let other = FileDisk::open(&path).unwrap();
        assert!(!other.try_lock().unwrap());
        drop(disk);
        assert!(other.try_lock().unwrap());
        // Whoever has not got the lock does not take it from whoever has.
        drop(FileDisk::open(&path).unwrap());
        assert!(!FileDisk::open(&path).unwrap().try_lock().unwrap());
    }
}
