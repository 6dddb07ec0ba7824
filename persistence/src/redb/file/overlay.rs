//! A disk over a file that is only read: what is written to it stays in memory.
//!
//! ```text
//!   read ──► pages in memory, where there are some ──► the file
//!   write ─► pages in memory
//! ```
//!
//! So redb repairs a store that was not closed, and a damaged index is made anew, while the file keeps every byte.
//!
//! Invariants: nothing is written to the file; it is held under a shared lock, so that nobody else writes to it either;
//! the pages in memory are bounded.

use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::disk::Disk;
use super::system;

/// How many bytes of a file that is opened only to be read may stand changed in memory: what the repair of a store
/// and a new index of finished runs write. A store that needs more is not opened so.
pub const READ_ONLY_BYTES_MAX: u64 = 256 << 20;

const PAGE: usize = 4_096;
const PAGE_LEN: u64 = PAGE as u64;

/// A [`Disk`] that is a file nothing is written to.
#[derive(Debug)]
pub(crate) struct OverlayDisk {
    file: File,
    bytes_max: u64,
    pages: Mutex<OverlayPages>,
}

/// What stands above the file.
#[derive(Debug)]
struct OverlayPages {
    changed: HashMap<u64, Box<[u8; PAGE]>>,
    /// The length that the disk seems to have.
    len: u64,
    /// Up to where the file still counts: it was cut there once, and is zero behind it.
    file_len: u64,
}

impl OverlayDisk {
    /// Opens a file, which must exist and need not be writable.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Self::bounded(File::open(path)?, READ_ONLY_BYTES_MAX)
    }

    fn bounded(file: File, bytes_max: u64) -> io::Result<Self> {
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let len = metadata.len();
        let pages = OverlayPages {
            changed: HashMap::new(),
            len,
            file_len: len,
        };
        Ok(Self {
            file,
            bytes_max,
            pages: Mutex::new(pages),
        })
    }

    fn pages(&self) -> MutexGuard<'_, OverlayPages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the file itself says, and zeros behind its end.
    fn read_file(&self, file_len: u64, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let there = file_len.saturating_sub(offset).min(out.len() as u64);
        let there = usize::try_from(there).unwrap_or(out.len());
        let (found, behind) = out.split_at_mut(there);
        behind.fill(0);
        system::read_exact_at(&self.file, found, offset)
    }
}

impl OverlayPages {
    /// The numbers of the pages that these bytes lie in.
    fn numbers(offset: u64, len: usize) -> std::ops::Range<u64> {
        offset / PAGE_LEN..(offset + len as u64).div_ceil(PAGE_LEN)
    }
}

/// Where a page and some bytes at `offset` overlap: in the page, and in the bytes.
fn overlap(number: u64, offset: u64, len: usize) -> (std::ops::Range<usize>, std::ops::Range<usize>) {
    let begin = number * PAGE_LEN;
    let (from, to) = (offset.max(begin), (offset + len as u64).min(begin + PAGE_LEN));
    // Both lie within the page and within the bytes.
    let at = |from: u64, base: u64| usize::try_from(from - base).unwrap_or(usize::MAX);
    (at(from, begin)..at(to, begin), at(from, offset)..at(to, offset))
}

impl Disk for OverlayDisk {
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let pages = self.pages();
        let end = offset.checked_add(out.len() as u64);
        if end.is_none_or(|end| end > pages.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.read_file(pages.file_len, offset, out)?;
        if pages.changed.is_empty() {
            return Ok(());
        }
        for number in OverlayPages::numbers(offset, out.len()) {
            if let Some(page) = pages.changed.get(&number) {
                let (in_page, in_out) = overlap(number, offset, out.len());
                out[in_out].copy_from_slice(&page[in_page]);
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut pages = self.pages();
        for number in OverlayPages::numbers(offset, data.len()) {
            if !pages.changed.contains_key(&number) {
                if (pages.changed.len() as u64 + 1) * PAGE_LEN > self.bytes_max {
                    return Err(io::Error::other(format!(
                        "to read it takes more than {} changed bytes in memory: copy the file, and open the copy for writing",
                        self.bytes_max
                    )));
                }
                let mut page = Box::new([0; PAGE]);
                self.read_file(pages.file_len, number * PAGE_LEN, &mut page[..])?;
                pages.changed.insert(number, page);
            }
            let (in_page, in_data) = overlap(number, offset, data.len());
            if let Some(page) = pages.changed.get_mut(&number) {
                page[in_page].copy_from_slice(&data[in_data]);
            }
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.pages().len)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut pages = self.pages();
        if len < pages.len {
            pages.changed.retain(|number, _| number * PAGE_LEN < len);
            let (last, behind) = (len / PAGE_LEN, usize::try_from(len % PAGE_LEN).unwrap_or(0));
            if let Some(page) = pages.changed.get_mut(&last) {
                page[behind..].fill(0);
            }
        }
        pages.file_len = pages.file_len.min(len);
        pages.len = len;
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    /// Takes the file together with others who only read it.
    fn try_lock(&self) -> io::Result<bool> {
        match self.file.try_lock_shared() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl Drop for OverlayDisk {
    /// Lets go of the lock by name, as a [`FileDisk`](super::disk::FileDisk) does.
    fn drop(&mut self) {
        if let Err(error) = self.file.unlock() {
            tracing::debug!(%error, "the lock of a store goes with its file");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A disk over a file of these bytes.
    fn over(bytes: &[u8], bytes_max: u64) -> (tempfile::TempDir, OverlayDisk) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, bytes).unwrap();
        let disk = OverlayDisk::bounded(File::open(&path).unwrap(), bytes_max).unwrap();
        (folder, disk)
    }

    /// The same writes, cuts and extensions as of a file in memory give the same bytes, and the file keeps its own.
    #[test]
    fn it_reads_as_a_file_that_was_written_to_and_the_file_is_as_it_was() {
        let before: Vec<u8> = (0..20_000u32).map(|at| at.to_le_bytes()[0] | 1).collect();
        let (folder, disk) = over(&before, 1 << 20);
        let mut model = before.clone();
        let mut dice = 7u64;
        let mut roll = |below: u64| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (dice >> 33) % below
        };
        for step in 0..500u64 {
            if roll(10) == 0 {
                let len = roll(40_000);
                disk.set_len(len).unwrap();
                model.resize(usize::try_from(len).unwrap(), 0);
            } else if !model.is_empty() {
                let at = roll(model.len() as u64);
                let room = model.len() as u64 - at;
                let len = usize::try_from(roll(room.min(9_000) + 1)).unwrap();
                let data = vec![u8::try_from(step % 256).unwrap(); len];
                disk.write(at, &data).unwrap();
                let at = usize::try_from(at).unwrap();
                model[at..at + len].copy_from_slice(&data);
            }
            let mut found = vec![0; model.len()];
            disk.read(0, &mut found).unwrap();
            assert!(found == model, "step {step}");
            assert_eq!(disk.len().unwrap(), model.len() as u64);
        }
        assert!(fs::read(folder.path().join("file")).unwrap() == before);
    }

    #[test]
    fn what_does_not_fit_in_memory_is_refused_and_behind_the_end_nothing_is_read() {
        let (_folder, disk) = over(&[1; 3 * PAGE], PAGE_LEN);
        disk.write(10, &[2; 20]).unwrap();
        disk.write(0, &[3; PAGE]).unwrap();
        let refused = disk.write(PAGE_LEN, &[4]).unwrap_err();
        assert!(refused.to_string().contains("4096 changed bytes"), "{refused}");
        let error = disk.read(3 * PAGE_LEN - 1, &mut [0; 2]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn several_read_one_file_and_none_while_somebody_may_write_to_it() {
        use crate::redb::file::disk::FileDisk;
        let (folder, disk) = over(&[1; PAGE], PAGE_LEN);
        let path = folder.path().join("file");
        let other = OverlayDisk::open(&path).unwrap();
        let writer = FileDisk::open(&path).unwrap();
        assert!(disk.try_lock().unwrap() && other.try_lock().unwrap());
        assert!(!writer.try_lock().unwrap());
        drop((disk, other));
        assert!(writer.try_lock().unwrap());
        assert!(!OverlayDisk::open(&path).unwrap().try_lock().unwrap());
    }
}
