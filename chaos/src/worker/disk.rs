//! A disk in front of the store's file, on which writes and syncs fail on demand.

use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use millrun_persistence::{Disk, FileDisk};

use crate::dice::Dice;
use crate::wire::Trouble;

/// The file, and what goes wrong with it now.
#[derive(Debug)]
pub(super) struct ChaosDisk {
    file: FileDisk,
    state: Mutex<(Trouble, Dice)>,
}

impl ChaosDisk {
    /// Opens or creates the file.
    ///
    /// # Errors
    /// What the operating system says.
    pub(super) fn open(path: &Path, seed: u64) -> io::Result<Self> {
        Ok(Self {
            file: FileDisk::create(path)?,
            state: Mutex::new((Trouble::None, Dice::new(seed))),
        })
    }

    /// Lets this go wrong from now on.
    pub(super) fn trouble(&self, trouble: Trouble) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).0 = trouble;
    }

    fn check(&self, is_sync: bool) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (trouble, dice) = &mut *state;
        match *trouble {
            Trouble::Full if !is_sync => Err(io::ErrorKind::StorageFull.into()),
            Trouble::Writes { one_in } if !is_sync && dice.one_in(one_in) => {
                Err(io::Error::other("a write failed, as was asked for"))
            }
            Trouble::Syncs { one_in } if is_sync && dice.one_in(one_in) => {
                Err(io::Error::other("a sync failed, as was asked for"))
            }
            Trouble::None | Trouble::Full | Trouble::Writes { .. } | Trouble::Syncs { .. } => Ok(()),
        }
    }
}

impl Disk for ChaosDisk {
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check(false)?;
        self.file.write(offset, data)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if len > self.file.len()? {
            self.check(false)?;
        }
        self.file.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.check(true)?;
        self.file.sync()
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.file.try_lock()
    }
}
