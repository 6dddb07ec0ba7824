//! A disk on which nothing has an effect once its process has ended.
//!
//! In a simulation a crash drops values, and dropping a database closes it properly. A killed process leaves its file
//! unclosed; this disk does the same.

use std::fmt;
use std::io;
use std::sync::Arc;

use millrun_core::{CrashCheck, Host};

use super::disk::Disk;
use super::loss::FileLoss;

struct CutOff {
    disk: Arc<dyn Disk>,
    has_crashed: CrashCheck,
}

/// The disk for code that runs on `host`.
pub(crate) fn until_a_crash(disk: Arc<dyn Disk>, host: &dyn Host) -> Arc<dyn Disk> {
    match host.crash_check() {
        Some(has_crashed) => Arc::new(CutOff { disk, has_crashed }),
        None => disk,
    }
}

impl CutOff {
    fn check(&self) -> io::Result<()> {
        if (self.has_crashed)() {
            return Err(io::Error::other("the process has crashed"));
        }
        Ok(())
    }
}

impl fmt::Debug for CutOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.disk.fmt(f)
    }
}

impl Disk for CutOff {
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.disk.read(offset, out)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check()?;
        self.disk.write(offset, data)
    }

    fn len(&self) -> io::Result<u64> {
        self.disk.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check()?;
        self.disk.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.check()?;
        self.disk.sync()
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.disk.try_lock()
    }

    fn can_be_lost(&self) -> bool {
        self.disk.can_be_lost()
    }

    fn loss(&self) -> io::Result<Option<FileLoss>> {
        self.disk.loss()
    }
}
