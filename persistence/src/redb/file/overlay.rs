//! A disk over a file that is only read: writes stay in memory, or in a temporary file.
//!
//! ```text
//!   read ──► changed pages, where there are some ──► the file
//!   write ─► changed pages: in memory ── as many as may be there ──► in a temporary file
//! ```
//!
//! So redb repairs a store that was not closed, and a damaged index is rebuilt, while the file keeps every byte.
//!
//! Invariants: nothing is written to the file; it is held under a shared lock, so that no other process writes to it either;
//! the pages in memory are bounded, and those in the temporary file by the length that the file had.
//!
//! The temporary file has no name, so that the system frees it with its last handle, also after a kill; where a file cannot
//! be without a name, the system is asked to remove it when it is closed.

use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::disk::Disk;
use super::system;

/// How many changed bytes of a file that is opened only to be read may be in memory by default, before further ones go to a
/// temporary file: see [`StoreConfig::changed_bytes_max`](crate::StoreConfig::changed_bytes_max).
pub const READ_ONLY_BYTES_MAX: u64 = 256 << 20;

const PAGE: usize = 4_096;
const PAGE_LEN: u64 = PAGE as u64;

/// A [`Disk`] over a file that is never written to.
#[derive(Debug)]
pub(crate) struct OverlayDisk {
    file: File,
    pages: Mutex<OverlayPages>,
}

/// The changes on top of the file.
#[derive(Debug)]
struct OverlayPages {
    changed: HashMap<u64, ChangedPage>,
    in_memory_len: u64,
    in_memory_max: u64,
    spill: Spill,
    /// The length that the disk reports.
    len: u64,
    /// Up to where the file's bytes still count: the disk was cut there once, and is zero after it.
    file_len: u64,
}

/// Where the bytes of a changed page are.
#[derive(Debug)]
enum ChangedPage {
    InMemory(Box<[u8; PAGE]>),
    /// At this place of the temporary file.
    Spilled(u64),
}

/// The temporary file, made with the first page that has no room in memory.
#[derive(Debug)]
struct Spill {
    folder: PathBuf,
    file: Option<File>,
    /// How many places there are, with those that are free.
    places_len: u64,
    places_max: u64,
    free: Vec<u64>,
}

impl OverlayDisk {
    /// Opens a file, which must exist and need not be writable.
    pub(crate) fn open(path: &Path, changed_bytes_max: u64) -> io::Result<Self> {
        Self::bounded(File::open(path)?, changed_bytes_max, std::env::temp_dir())
    }

    fn bounded(file: File, changed_bytes_max: u64, folder: PathBuf) -> io::Result<Self> {
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let len = metadata.len();
        let pages = OverlayPages {
            changed: HashMap::new(),
            in_memory_len: 0,
            in_memory_max: changed_bytes_max / PAGE_LEN,
            spill: Spill {
                folder,
                file: None,
                places_len: 0,
                places_max: len.div_ceil(PAGE_LEN),
                free: Vec::new(),
            },
            len,
            file_len: len,
        };
        Ok(Self {
            file,
            pages: Mutex::new(pages),
        })
    }

    fn pages(&self) -> MutexGuard<'_, OverlayPages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of the file itself, and zeros after its end.
    fn read_file(&self, file_len: u64, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let there = file_len.saturating_sub(offset).min(out.len() as u64);
        let there = usize::try_from(there).unwrap_or(out.len());
        let (found, behind) = out.split_at_mut(there);
        behind.fill(0);
        system::read_exact_at(&self.file, found, offset)
    }
}

impl OverlayPages {
    /// The numbers of the pages that hold these bytes.
    fn numbers(offset: u64, len: usize) -> std::ops::Range<u64> {
        offset / PAGE_LEN..(offset + len as u64).div_ceil(PAGE_LEN)
    }

    /// Stores a page that was not changed before.
    fn keep(&mut self, number: u64, page: Box<[u8; PAGE]>) -> io::Result<()> {
        let kept = if self.in_memory_len < self.in_memory_max {
            self.in_memory_len += 1;
            ChangedPage::InMemory(page)
        } else {
            ChangedPage::Spilled(self.spill.add(&page)?)
        };
        self.changed.insert(number, kept);
        Ok(())
    }

    /// Drops the changed pages from this one on.
    fn forget_from(&mut self, first: u64) {
        let (spill, in_memory_len) = (&mut self.spill, &mut self.in_memory_len);
        self.changed.retain(|number, page| {
            let is_kept = *number < first;
            match page {
                _ if is_kept => {}
                ChangedPage::InMemory(_) => *in_memory_len -= 1,
                ChangedPage::Spilled(place) => spill.free.push(*place),
            }
            is_kept
        });
    }

    /// Writes within a changed page; `false` if the page is not changed yet.
    fn write_in(&mut self, number: u64, at: usize, data: &[u8]) -> io::Result<bool> {
        match self.changed.get_mut(&number) {
            None => return Ok(false),
            Some(ChangedPage::InMemory(page)) => page[at..at + data.len()].copy_from_slice(data),
            Some(ChangedPage::Spilled(place)) => self.spill.write(*place, at, data)?,
        }
        Ok(true)
    }
}

impl Spill {
    /// Writes a page, and returns its place.
    fn add(&mut self, page: &[u8; PAGE]) -> io::Result<u64> {
        let place = match self.free.pop() {
            Some(free) => free,
            None if self.places_len < self.places_max => {
                self.places_len += 1;
                self.places_len - 1
            }
            None => {
                return Err(io::Error::other(format!(
                    "to read it takes more than {} changed pages in a temporary file: copy the file, and open the copy for writing",
                    self.places_max
                )));
            }
        };
        let written = self.write(place, 0, page);
        if written.is_err() {
            self.free.push(place);
        }
        written.map(|()| place)
    }

    fn write(&mut self, place: u64, at: usize, data: &[u8]) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let made = tempfile::tempfile_in(&self.folder);
                none.insert(made.map_err(|error| unmade(&error, &self.folder))?)
            }
        };
        system::write_all_at(file, data, place * PAGE_LEN + at as u64)
    }

    fn read(&self, place: u64, at: usize, out: &mut [u8]) -> io::Result<()> {
        let file = self.file.as_ref().ok_or(io::ErrorKind::NotFound)?;
        system::read_exact_at(file, out, place * PAGE_LEN + at as u64)
    }
}

/// Adds to an error what the temporary file was needed for.
fn unmade(error: &io::Error, folder: &Path) -> io::Error {
    let told = format!(
        "to read it takes a temporary file, and none can be made in {}: {error}",
        folder.display()
    );
    io::Error::new(error.kind(), told)
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
            let (in_page, in_out) = overlap(number, offset, out.len());
            match pages.changed.get(&number) {
                Some(ChangedPage::InMemory(page)) => out[in_out].copy_from_slice(&page[in_page]),
                Some(ChangedPage::Spilled(place)) => {
                    pages.spill.read(*place, in_page.start, &mut out[in_out])?;
                }
                None => {}
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut pages = self.pages();
        for number in OverlayPages::numbers(offset, data.len()) {
            let (in_page, in_data) = overlap(number, offset, data.len());
            if pages.write_in(number, in_page.start, &data[in_data.clone()])? {
                continue;
            }
            let mut page = Box::new([0; PAGE]);
            self.read_file(pages.file_len, number * PAGE_LEN, &mut page[..])?;
            page[in_page].copy_from_slice(&data[in_data]);
            pages.keep(number, page)?;
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.pages().len)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut pages = self.pages();
        if len < pages.len {
            pages.forget_from(len.div_ceil(PAGE_LEN));
            let (last, behind) = (len / PAGE_LEN, usize::try_from(len % PAGE_LEN).unwrap_or(0));
            pages.write_in(last, behind, &[0; PAGE][behind..])?;
        }
        pages.file_len = pages.file_len.min(len);
        pages.len = len;
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    /// Locks the file together with other readers.
    fn try_lock(&self) -> io::Result<bool> {
        match self.file.try_lock_shared() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl Drop for OverlayDisk {
    /// Unlocks explicitly, as a [`FileDisk`](super::disk::FileDisk) does.
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

    /// A disk over a file of these bytes, with room for this many changed pages in memory. Its temporary files are in their
    /// own folder.
    fn over(bytes: &[u8], in_memory_max: u64) -> (tempfile::TempDir, OverlayDisk) {
        let folder = tempfile::tempdir().unwrap();
        let (path, spilled) = (folder.path().join("file"), folder.path().join("temporary"));
        fs::write(&path, bytes).unwrap();
        fs::create_dir(&spilled).unwrap();
        let file = File::open(&path).unwrap();
        let disk = OverlayDisk::bounded(file, in_memory_max * PAGE_LEN, spilled).unwrap();
        (folder, disk)
    }

    /// The same writes, cuts and extensions as on a file in memory give the same bytes, and the file keeps its own; where all
    /// changed pages are in memory, where some are, and where none is.
    #[test]
    fn it_reads_as_a_file_that_was_written_to_and_the_file_is_as_it_was() {
        for in_memory_max in [100, 3, 0] {
            let before: Vec<u8> = (0..45_000u32).map(|at| at.to_le_bytes()[0] | 1).collect();
            let (folder, disk) = over(&before, in_memory_max);
            let mut model = before.clone();
            let mut dice = 7u64;
            let mut roll = |below: u64| {
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (dice >> 33) % below
            };
            for step in 0..500u64 {
                if roll(10) == 0 {
                    let len = roll(45_000);
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
                assert!(found == model, "step {step} with {in_memory_max} pages in memory");
                assert_eq!(disk.len().unwrap(), model.len() as u64);
            }
            assert!(fs::read(folder.path().join("file")).unwrap() == before);
            let pages = disk.pages();
            assert!(pages.in_memory_len <= in_memory_max);
            assert_eq!(pages.spill.file.is_some(), in_memory_max < 100);
        }
    }

    /// The process may be killed at any time.
    #[cfg(unix)]
    #[test]
    fn the_temporary_file_has_no_name_and_is_no_longer_than_the_file() {
        let (folder, disk) = over(&[1; 3 * PAGE], 1);
        disk.write(10, &[2; 20]).unwrap();
        disk.set_len(8 * PAGE_LEN).unwrap();
        for number in 1..4 {
            disk.write(number * PAGE_LEN, &[3; PAGE]).unwrap();
        }
        let temporary = folder.path().join("temporary");
        assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
        let refused = disk.write(5 * PAGE_LEN, &[4]).unwrap_err();
        assert!(refused.to_string().contains("3 changed pages"), "{refused}");
        disk.write(3 * PAGE_LEN, &[5; PAGE]).unwrap();
        // A place is free again when its page was cut off.
        disk.set_len(3 * PAGE_LEN).unwrap();
        disk.set_len(8 * PAGE_LEN).unwrap();
        disk.write(5 * PAGE_LEN, &[6]).unwrap();
        let mut found = [0; 2];
        disk.read(5 * PAGE_LEN, &mut found).unwrap();
        assert_eq!(found, [6, 0]);
        disk.read(3 * PAGE_LEN, &mut found).unwrap();
        assert_eq!(found, [0, 0]);
        disk.read(2 * PAGE_LEN, &mut found).unwrap();
        assert_eq!(found, [3, 3]);
    }

    #[test]
    fn without_a_folder_for_temporary_files_it_says_so_and_behind_the_end_nothing_is_read() {
        let (folder, disk) = over(&[1; 3 * PAGE], 0);
        fs::remove_dir(folder.path().join("temporary")).unwrap();
        let refused = disk.write(PAGE_LEN, &[4]).unwrap_err();
        assert!(refused.to_string().contains("none can be made in"), "{refused}");
        let mut found = [0; 1];
        disk.read(PAGE_LEN, &mut found).unwrap();
        assert_eq!(found, [1]);
        let error = disk.read(3 * PAGE_LEN - 1, &mut [0; 2]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn several_read_one_file_and_none_while_somebody_may_write_to_it() {
        use crate::redb::file::disk::FileDisk;
        let (folder, disk) = over(&[1; PAGE], 1);
        let path = folder.path().join("file");
        let other = OverlayDisk::open(&path, 0).unwrap();
        let writer = FileDisk::open(&path).unwrap();
        assert!(disk.try_lock().unwrap() && other.try_lock().unwrap());
        assert!(!writer.try_lock().unwrap());
        drop((disk, other));
        assert!(writer.try_lock().unwrap());
        assert!(!OverlayDisk::open(&path, 0).unwrap().try_lock().unwrap());
    }
}
