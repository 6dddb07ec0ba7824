//! Shows a [`Disk`] to redb.
//!
//! redb's file begins after our first page (see `wire::superblock`). redb's own lock calls are answered with "unsupported":
//! the store has locked the whole file with [`Disk::try_lock`] before redb sees it, and holds the lock until the disk is
//! dropped.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redb::StorageBackend;

use super::disk::Disk;
use crate::wire::superblock;

const SHIFT: u64 = superblock::BYTES as u64;

/// A disk as redb expects it; counts the bytes that redb writes.
#[derive(Debug)]
pub(crate) struct Backend(pub(crate) Arc<dyn Disk>, pub(crate) Arc<AtomicU64>);

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len()?.saturating_sub(SHIFT))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset + SHIFT, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len + SHIFT)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.1.fetch_add(data.len() as u64, Ordering::Relaxed);
        self.0.write(offset + SHIFT, data)
    }
}
