//! Folders for stores beside the results: gone when dropped, and when the program is interrupted.
//!
//! ```text
//!   store_in ──► target/bench/store-x7Gq2c/   lock         held as long as its process lives
//!                                             store.redb   what is measured
//!   Ctrl-C, SIGTERM ──► those of this process are removed, and it ends with 130
//!   kill -9         ──► the next program finds the lock free, and removes them
//! ```
//!
//! A signal needs a thread that waits for it. It begins with the first store: programs without one
//! have no thread but their own.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;

use tempfile::TempDir;
use tokio::runtime::Builder;

use crate::BenchError;

const PREFIX: &str = "store-";
const LOCK: &str = "lock";
/// The usual exit code of a program that was interrupted.
const INTERRUPTED: i32 = 130;
/// Whoever still writes into a folder may add a file while it is removed.
const REMOVALS_MAX: usize = 5;

static BEGUN: Once = Once::new();
/// The folders of this process.
static LIVE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// A folder for one store.
#[derive(Debug)]
pub struct StoreFolder {
    folder: TempDir,
    _lock: File,
}

impl StoreFolder {
    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for StoreFolder {
    fn drop(&mut self) {
        live().remove(self.folder.path());
    }
}

/// A folder of its own for a store, in `folder`. The first one also removes what programs that were
/// killed have left there.
///
/// # Errors
/// When it cannot be made.
pub fn store_in(folder: &Path) -> Result<StoreFolder, BenchError> {
    BEGUN.call_once(|| {
        remove_left_over(folder);
        let waiting = thread::Builder::new()
            .name("bench-interrupt".into())
            .spawn(end_when_interrupted);
        if let Err(error) = waiting {
            eprintln!("stores will be left behind if this is interrupted: {error}");
        }
    });
    made(folder).map_err(|source| BenchError::File {
        path: folder.to_owned(),
        source,
    })
}

fn made(folder: &Path) -> io::Result<StoreFolder> {
    let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(folder)?;
    live().insert(folder.path().to_owned());
    let lock = File::create(folder.path().join(LOCK))?;
    lock.lock()?;
    Ok(StoreFolder { folder, _lock: lock })
}

fn live() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the stores in `folder` whose process no longer lives.
fn remove_left_over(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().and_then(|name| name.to_str());
        let is_store = name.is_some_and(|name| name.starts_with(PREFIX));
        let is_free = || File::open(path.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok());
        if is_store && is_free() {
            remove(&path);
        }
    }
}

fn remove(path: &Path) {
    for _ in 0..REMOVALS_MAX {
        match fs::remove_dir_all(path) {
            Ok(()) => return,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(_) => {}
        }
    }
    eprintln!("could not remove {}", path.display());
}

fn end_when_interrupted() {
    let waited = Builder::new_current_thread()
        .enable_all()
        .build()
        .and_then(|runtime| runtime.block_on(interrupted()));
    if let Err(error) = waited {
        eprintln!("stores will be left behind if this is interrupted: {error}");
        return;
    }
    // Kept until the end, so that no other store is made meanwhile.
    let stores = live();
    stores.iter().for_each(|path| remove(path));
    eprintln!("interrupted: nothing was written");
    process::exit(INTERRUPTED);
}

#[cfg(unix)]
async fn interrupted() -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    tokio::select! {
        outcome = tokio::signal::ctrl_c() => outcome,
        _ = terminate.recv() => Ok(()),
        _ = hang_up.recv() => Ok(()),
    }
}

#[cfg(not(unix))]
async fn interrupted() -> io::Result<()> {
    tokio::signal::ctrl_c().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_gone_with_its_folder_and_is_not_taken_from_a_process_that_lives() {
        let folder = tempfile::tempdir().unwrap();
        let store = made(folder.path()).unwrap();
        remove_left_over(folder.path());
        assert!(store.path().join(LOCK).exists());
        let path = store.path().to_owned();
        drop(store);
        assert!(!path.exists() && !live().contains(&path));
    }

    #[test]
    fn what_a_killed_process_has_left_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["store-left", "other"] {
            fs::create_dir(folder.path().join(name)).unwrap();
            File::create(folder.path().join(name).join(LOCK)).unwrap();
        }
        fs::write(folder.path().join("store-left").join("store.redb"), "x").unwrap();
        remove_left_over(folder.path());
        assert!(!folder.path().join("store-left").exists());
        assert!(folder.path().join("other").exists());
    }
}
