//! Finds or creates a store's file, and refuses files that are not stores before it changes anything.
//!
//! A new store is made next to its place, as `<name>.new`, synced, and renamed: after a crash there is either no store or a
//! complete one. On a disk that the caller provides it is made in place: its first page says that it is being created until
//! it is complete, and an incomplete one is created again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millrun_core::{Host, Placement};

use crate::error::{FailureKind, JournalFailure, StoreError};
use crate::redb::config::StoreConfig;
use crate::redb::database::store::Store;
use crate::redb::file::cut_off::until_a_crash;
use crate::redb::file::disk::{Disk, FileDisk};
use crate::redb::file::overlay::OverlayDisk;
use crate::redb::file::system::sync_folder_of;
use crate::redb::file::zero_ahead::ZeroAhead;
use crate::wire::superblock::{self, Superblock, SuperblockError};

/// Opens the store at `path`, creating it if there is no file.
pub(crate) fn open_path(path: &Path, config: &StoreConfig, host: &dyn Host) -> Result<Store, StoreError> {
    let io = |source| StoreError::Io {
        path: path.to_owned(),
        source,
    };
    match FileDisk::open(path) {
        Ok(disk) => open_disk(Arc::new(disk), path, config, host),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let draft = draft(path);
            let store = create_anew(&draft, path, config, host)?;
            fs::rename(&draft, path).map_err(io)?;
            sync_folder_of(path).map_err(io)?;
            Ok(store)
        }
        Err(error) => Err(io(error)),
    }
}

/// Opens the store at `path` without changing its file.
pub(crate) fn open_path_read_only(
    path: &Path,
    config: &StoreConfig,
    host: &dyn Host,
) -> Result<Store, StoreError> {
    let io = |source| StoreError::Io {
        path: path.to_owned(),
        source,
    };
    let disk = OverlayDisk::open(path, config.changed_bytes_max).map_err(io)?;
    open_made(Arc::new(disk), path, config, host)
}

/// Opens the store at `path` for writing, and does not create one.
pub(crate) fn open_path_made(
    path: &Path,
    config: &StoreConfig,
    host: &dyn Host,
) -> Result<Store, StoreError> {
    let disk = FileDisk::open(path).map_err(|source| StoreError::Io {
        path: path.to_owned(),
        source,
    })?;
    open_made(Arc::new(disk), path, config, host)
}

/// Opens the store on `disk`, which must have been created.
fn open_made(
    disk: Arc<dyn Disk>,
    path: &Path,
    config: &StoreConfig,
    host: &dyn Host,
) -> Result<Store, StoreError> {
    let io = |source| StoreError::Io {
        path: path.to_owned(),
        source,
    };
    lock(&*disk, path)?;
    let len = disk.len().map_err(io)?;
    // Such a file would be taken for one in which a store has to be made.
    if len <= superblock::BYTES as u64 || is_being_created(&*disk).map_err(io)? {
        return Err(StoreError::Foreign {
            path: path.to_owned(),
        });
    }
    open_disk(disk, path, config, host)
}

/// Whether the first page says that a store is being created here; the file is longer than that.
fn is_being_created(disk: &dyn Disk) -> io::Result<bool> {
    let mut page = [0; superblock::BYTES];
    disk.read(0, &mut page)?;
    Ok(matches!(
        superblock::decode(&page),
        Err(SuperblockError::Unfinished)
    ))
}

/// Creates a store in the file `draft`, whose old contents are discarded, and which is then moved to `path`.
pub(crate) fn create_anew(
    draft: &Path,
    path: &Path,
    config: &StoreConfig,
    host: &dyn Host,
) -> Result<Store, StoreError> {
    let io = |source| StoreError::Io {
        path: draft.to_owned(),
        source,
    };
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::create_draft(draft, path).map_err(io)?);
    lock(&*disk, draft)?;
    disk.set_len(0).map_err(io)?;
    create(disk, draft, config, host)
}

/// Opens the store on `disk`; errors name it `path`.
pub(crate) fn open_disk(
    disk: Arc<dyn Disk>,
    path: &Path,
    config: &StoreConfig,
    host: &dyn Host,
) -> Result<Store, StoreError> {
    let io = |source| StoreError::Io {
        path: path.to_owned(),
        source,
    };
    lock(&*disk, path)?;
    let len = disk.len().map_err(io)?;
    if len == 0 {
        return create(disk, path, config, host);
    }
    let mut page = [0; superblock::BYTES];
    let there = page.len().min(usize::try_from(len).unwrap_or(usize::MAX));
    disk.read(0, &mut page[..there]).map_err(io)?;
    let superblock = match superblock::decode(&page) {
        Err(error) if is_unfinished(error, &page, len) => {
            disk.set_len(0).map_err(io)?;
            return create(disk, path, config, host);
        }
        superblock => superblock.map_err(|error| refused(&error, path))?,
    };
    // After a valid first page there is always redb's own header; without it redb would take the file for an empty one.
    if len <= page.len() as u64 {
        let cause = "the file ends after its first page".to_owned();
        return Err(StoreError::Corrupted {
            path: path.to_owned(),
            cause,
        });
    }
    let disk = prepared(disk, path, config, host)?;
    let store = Store::open(disk, config.cache_bytes_max).map_err(|failure| failed(&failure, path))?;
    Ok(store.of(superblock))
}

/// Whether creation of the file was interrupted by a crash: then nothing was ever acknowledged in it.
fn is_unfinished(error: SuperblockError, page: &[u8], len: u64) -> bool {
    // The file got its length, which a store never has, but not its contents yet.
    let is_bare = len < superblock::BYTES as u64 && page.iter().all(|byte| *byte == 0);
    error == SuperblockError::Unfinished || is_bare
}

fn create(
    disk: Arc<dyn Disk>,
    path: &Path,
    config: &StoreConfig,
    host: &dyn Host,
) -> Result<Store, StoreError> {
    let io = |source| StoreError::Io {
        path: path.to_owned(),
        source,
    };
    disk.set_len(superblock::UNFINISHED.len() as u64).map_err(io)?;
    disk.write(0, superblock::UNFINISHED).map_err(io)?;
    disk.sync().map_err(io)?;
    disk.set_len(superblock::BYTES as u64).map_err(io)?;
    let store_disk = prepared(Arc::clone(&disk), path, config, host)?;
    let store = Store::open(store_disk, config.cache_bytes_max).map_err(|failure| failed(&failure, path))?;
    let superblock = Superblock {
        format: superblock::FORMAT,
        store: host.random(),
    };
    disk.write(0, &superblock::encode_as(superblock)).map_err(io)?;
    disk.sync().map_err(io)?;
    Ok(store.of(superblock))
}

/// The disk as the store writes to it: writes have no effect after a simulated crash, and the file is zeroed ahead of the
/// writes if the configuration says so.
fn prepared(
    disk: Arc<dyn Disk>,
    path: &Path,
    config: &StoreConfig,
    host: &dyn Host,
) -> Result<Arc<dyn Disk>, StoreError> {
    let disk = until_a_crash(disk, host);
    if config.zero_ahead_bytes == 0 {
        return Ok(disk);
    }
    zeroed_ahead(disk, path, config.zero_ahead_bytes, host)
}

/// The disk, zeroed for `bytes` ahead of its writes; errors name it `path`.
pub(crate) fn zeroed_ahead(
    disk: Arc<dyn Disk>,
    path: &Path,
    bytes: u64,
    host: &dyn Host,
) -> Result<Arc<dyn Disk>, StoreError> {
    let wrapped = ZeroAhead::new(disk, bytes);
    let (disk, zeroer, bell) = wrapped.map_err(|source| StoreError::Io {
        path: path.to_owned(),
        source,
    })?;
    // No code waits for the zeroer: it releases the file when the disk is dropped.
    host.spawn_part(
        "millrun-zero-ahead",
        Placement::Thread,
        bell,
        Box::new(zeroer),
        Box::new(|_| {}),
    )?;
    Ok(Arc::new(disk))
}

fn lock(disk: &dyn Disk, path: &Path) -> Result<(), StoreError> {
    match disk.try_lock() {
        Ok(true) => Ok(()),
        Ok(false) => Err(StoreError::AlreadyOpen {
            path: path.to_owned(),
        }),
        Err(source) => Err(StoreError::Io {
            path: path.to_owned(),
            source,
        }),
    }
}

fn refused(error: &SuperblockError, path: &Path) -> StoreError {
    let path = path.to_owned();
    match *error {
        // A file whose creation was interrupted is created again, not refused.
        SuperblockError::Foreign | SuperblockError::Unfinished => StoreError::Foreign { path },
        SuperblockError::Newer { format } => StoreError::NewerFormat {
            path,
            found: format,
            supported: superblock::FORMAT,
        },
        SuperblockError::Checksum => {
            let cause = "its first page does not match its checksum".to_owned();
            StoreError::Corrupted { path, cause }
        }
        SuperblockError::Partitions { found } => {
            let cause = format!("its first page says that it has {found} partitions");
            StoreError::Corrupted { path, cause }
        }
    }
}

/// What a failure of the store means for a caller that wants to open it.
pub(crate) fn failed(failure: &JournalFailure, path: &Path) -> StoreError {
    let path = path.to_owned();
    match failure.kind() {
        FailureKind::Io(kind) => StoreError::Io {
            path,
            source: io::Error::new(kind, failure.clone()),
        },
        _ => StoreError::Corrupted {
            path,
            cause: failure.to_string(),
        },
    }
}

/// Where a file is written before it gets its name.
pub(crate) fn draft(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    path.with_file_name(name)
}
