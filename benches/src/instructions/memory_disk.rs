//! A disk in memory: what a store costs without the operating system.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use millrun_persistence::Disk;

/// Keeps everything and never fails.
#[derive(Debug, Default)]
pub(super) struct MemoryDisk(Mutex<Vec<u8>>);

impl MemoryDisk {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a range of the file stands in memory.
fn range(offset: u64, len: usize) -> io::Result<std::ops::Range<usize>> {
    let start = usize::try_from(offset).map_err(io::Error::other)?;
    Ok(start..start + len)
}

impl Disk for MemoryDisk {
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let bytes = self.bytes();
        let found = bytes.get(range(offset, out.len())?);
        out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut bytes = self.bytes();
        let place = bytes.get_mut(range(offset, data.len())?);
        place.ok_or(io::ErrorKind::UnexpectedEof)?.copy_from_slice(data);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes().len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.bytes().resize(range(len, 0)?.start, 0);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn try_lock(&self) -> io::Result<bool> {
        Ok(true)
    }
}
