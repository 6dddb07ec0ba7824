//! The bytes of a damaged file: only read, and a part that the device refuses to read reads as zeros.
//!
//! Invariants: nothing is ever written; a read never fails, so a bad sector only costs its own contents.

use std::fs::File;
use std::io;

use crate::redb::file::system;

/// How much is read at once, unless a frame is larger.
const WINDOW_BYTES: usize = 1 << 20;
/// How much is skipped where the device refuses a read.
const BLOCK_BYTES: usize = 4_096;

/// Bytes that can be read at any place.
pub(crate) trait Bytes {
    /// Its length.
    fn len(&self) -> u64;

    /// Fills `out` from `at` on, which lies within the length.
    ///
    /// # Errors
    /// The error of the device.
    fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<()>;
}

/// A file with the length that it had when it was opened.
pub(crate) struct FileBytes {
    pub(crate) file: File,
    pub(crate) len: u64,
}

impl Bytes for FileBytes {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        system::read_exact_at(&self.file, out, at)
    }
}

impl Bytes for [u8] {
    fn len(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(at).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let bytes = self.get(from..).and_then(|rest| rest.get(..out.len()));
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// A part of the bytes in memory, which moves along with the reads.
pub(crate) struct Window<'a, B: Bytes + ?Sized> {
    bytes: &'a B,
    start: u64,
    buffer: Vec<u8>,
    window: usize,
    /// Bytes that the device refused to read; a block that is read twice counts twice.
    pub(crate) refused: u64,
}

impl<'a, B: Bytes + ?Sized> Window<'a, B> {
    pub(crate) fn new(bytes: &'a B) -> Self {
        Self::of(bytes, WINDOW_BYTES)
    }

    /// A window that reads this much at once, for scattered reads.
    pub(crate) fn of(bytes: &'a B, window: usize) -> Self {
        Self {
            bytes,
            start: 0,
            buffer: Vec::new(),
            window,
            refused: 0,
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.bytes.len()
    }

    /// The `len` bytes at `at`, or fewer at the end of the file.
    pub(crate) fn get(&mut self, at: u64, len: usize) -> &[u8] {
        let len = usize::try_from(self.len().saturating_sub(at)).map_or(len, |rest| len.min(rest));
        let is_there = at >= self.start && at + len as u64 <= self.start + self.buffer.len() as u64;
        if !is_there {
            self.fill(at, len);
        }
        let from = usize::try_from(at.saturating_sub(self.start)).unwrap_or(usize::MAX);
        self.buffer
            .get(from..)
            .map_or(&[], |rest| &rest[..len.min(rest.len())])
    }

    fn fill(&mut self, at: u64, len: usize) {
        let rest = usize::try_from(self.len().saturating_sub(at)).unwrap_or(usize::MAX);
        let wanted = len.max(self.window).min(rest);
        if self.buffer.capacity() > 4 * self.window.max(wanted) {
            self.buffer = Vec::new();
        }
        self.start = at;
        self.buffer.clear();
        self.buffer.resize(wanted, 0);
        if self.bytes.read_at(at, &mut self.buffer).is_ok() {
            return;
        }
        self.buffer.fill(0);
        let mut block = at;
        for out in self.buffer.chunks_mut(BLOCK_BYTES) {
            if self.bytes.read_at(block, out).is_err() {
                out.fill(0);
                self.refused += out.len() as u64;
            }
            block += out.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device with one bad block.
    struct Bad(Vec<u8>);

    impl Bytes for Bad {
        fn len(&self) -> u64 {
            self.0.len() as u64
        }

        fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
            let bad = 8_192..12_288;
            if at < bad.end && at + out.len() as u64 > bad.start {
                return Err(io::ErrorKind::Other.into());
            }
            self.0[..].read_at(at, out)
        }
    }

    #[test]
    fn a_block_that_cannot_be_read_is_zeros_and_the_rest_is_there() {
        let bytes: Vec<u8> = (0..20_000_u32).map(|at| at.to_le_bytes()[0] | 1).collect();
        let bad = Bad(bytes.clone());
        let mut window = Window::new(&bad);
        assert_eq!(window.get(0, 8_192), &bytes[..8_192]);
        assert_eq!(window.get(8_192, 4_096), &[0; 4_096]);
        assert_eq!(window.get(12_288, 99_999), &bytes[12_288..]);
        assert_eq!(window.refused, 4_096);
        assert_eq!(window.get(30_000, 5), &[] as &[u8]);
    }
}
