//! The shop's book: a record, outside the store, of the effects that have really happened.
//!
//! An activity may run twice, after a crash for instance. The book records each effect under the idempotency key of its step,
//! and only once: it plays the part of a payment provider or a warehouse, which turns *at least once* into *once*.
//!
//! The book is a file with one effect a line, `key TAB effect`, each synced before it counts. An incomplete last line was
//! never counted, and is cut off when the book is opened.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// The book, open for writing. Its keys are in memory: about 100 bytes for each effect ever recorded.
#[derive(Debug)]
pub(crate) struct Book(Mutex<Open>);

#[derive(Debug)]
struct Open {
    file: File,
    keys: HashSet<String>,
}

/// Whether this call or an earlier one has recorded the effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entered {
    Now,
    Before,
}

impl Book {
    /// Opens or makes the book. Blocks.
    ///
    /// # Errors
    /// When the file cannot be read or written, or is not a book.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(path)?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let mut keys = HashSet::new();
        for line in text[..whole].lines() {
            let (key, _) = line.split_once('\t').ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("{line:?} is no entry of a shop's book"),
                )
            })?;
            keys.insert(key.to_owned());
        }
        file.set_len(whole as u64)?;
        Ok(Self(Mutex::new(Open { file, keys })))
    }

    /// Records an effect, unless its key is in the book already. Blocks until it is on the disk.
    ///
    /// # Errors
    /// When the disk refuses; the effect may or may not have been recorded.
    pub(crate) fn enter(&self, key: &str, effect: &str) -> io::Result<Entered> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if open.keys.contains(key) {
            return Ok(Entered::Before);
        }
        open.file.write_all(format!("{key}\t{effect}\n").as_bytes())?;
        open.file.sync_data()?;
        open.keys.insert(key.to_owned());
        Ok(Entered::Now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn an_effect_is_made_once_even_across_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("book");
        let book = Book::open(&path).unwrap();
        assert_eq!(book.enter("k1", "charge 10").unwrap(), Entered::Now);
        assert_eq!(book.enter("k1", "charge 10").unwrap(), Entered::Before);
        drop(book);
        let book = Book::open(&path).unwrap();
        assert_eq!(book.enter("k1", "charge 10").unwrap(), Entered::Before);
        assert_eq!(book.enter("k2", "charge 20").unwrap(), Entered::Now);
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            "k1\tcharge 10\nk2\tcharge 20\n"
        );
    }

    #[test]
    fn a_torn_entry_was_never_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("book");
        fs::write(&path, "k1\tcharge 10\nk2\tcha").unwrap();
        let book = Book::open(&path).unwrap();
        assert_eq!(book.enter("k2", "charge 20").unwrap(), Entered::Now);
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            "k1\tcharge 10\nk2\tcharge 20\n"
        );
    }

    #[test]
    fn a_file_that_is_no_book_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("book");
        fs::write(&path, "dear diary\n").unwrap();
        assert_eq!(Book::open(&path).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(fs::read_to_string(&path).unwrap(), "dear diary\n");
    }
}
