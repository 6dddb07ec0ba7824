//! Folders for stores beside the results: gone when dropped, and when the program is interrupted.
//!
//! ```text
//!   store_in ──► target/bench/millrun-bench-store-x7Gq2c/   lock         held as long as its process lives
//!                                                           store.redb   what is measured
//!   Ctrl-C, SIGTERM ──► those of this process are removed, and it ends with 130
//!   kill -9         ──► the next program finds the lock free, and removes them
//! ```
//!
//! A folder gets that name when its lock is held, and loses its lock last: so whatever has the name is
//! in use, or may be removed. What was killed before that leaves a folder with no store in it.
//!
//! A signal needs a thread that waits for it. It begins with the first store: programs without one
//! have no thread but their own.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;

use crate::BenchError;

const PREFIX: &str = "millrun-bench-store-";
/// Until the lock is held.
const NEW_PREFIX: &str = "millrun-bench-new-";
const LOCK: &str = "lock";
/// What a lock holds: a folder without it belongs to another program.
const MARK: &str = "A store of millrun's benchmarks. It may be removed when its process has ended.\n";
/// The usual exit code of a program that was interrupted.
const INTERRUPTED: i32 = 130;
/// A process that still writes into a folder may add a file while it is removed.
const REMOVALS_MAX: usize = 5;

static BEGUN: Once = Once::new();
/// The folders of this process.
static LIVE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// A folder for one store.
#[derive(Debug)]
pub struct StoreFolder {
    path: PathBuf,
    _lock: File,
}

impl StoreFolder {
    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for StoreFolder {
    fn drop(&mut self) {
        remove(&self.path);
        // Only now: an interruption meanwhile removes the rest of it.
        live().remove(&self.path);
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
    // An interruption waits until it is there.
    let mut live = live();
    let new = tempfile::Builder::new().prefix(NEW_PREFIX).tempdir_in(folder)?;
    let mut lock = File::create(new.path().join(LOCK))?;
    lock.write_all(MARK.as_bytes())?;
    lock.lock()?;
    let name = new.path().file_name().and_then(|name| name.to_str());
    let own = name
        .and_then(|name| name.strip_prefix(NEW_PREFIX))
        .unwrap_or_default();
    let path = folder.join(format!("{PREFIX}{own}"));
    fs::rename(new.path(), &path)?;
    // It is no longer where it would be removed from.
    drop(new.keep());
    live.insert(path.clone());
    Ok(StoreFolder { path, _lock: lock })
}

fn live() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the stores in `folder` whose process no longer lives.
fn remove_left_over(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let is_named = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(PREFIX));
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_named && is_folder && is_left_over(&entry.path()) {
            remove(&entry.path());
        }
    }
}

/// Whether the lock is one of these and nobody holds it, or the folder is empty: then the process that removed it
/// was killed after the lock.
fn is_left_over(path: &Path) -> bool {
    let lock = path.join(LOCK);
    if fs::read_to_string(&lock).is_ok_and(|text| text == MARK) {
        return File::open(lock).is_ok_and(|lock| lock.try_lock().is_ok());
    }
    fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

fn remove(path: &Path) {
    for _ in 0..REMOVALS_MAX {
        match remove_lock_last(path) {
            Ok(()) => return,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !path.exists() => return,
            Err(_) => {}
        }
    }
    eprintln!("could not remove {}", path.display());
}

/// As long as there is a store, there is the lock that says whose it is.
fn remove_lock_last(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else if entry.file_name() != LOCK {
            fs::remove_file(entry.path())?;
        }
    }
    match fs::remove_file(path.join(LOCK)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::remove_dir(path)
}

/// Removes the stores of this process and ends it, with failure, if it still runs after so long.
pub fn end_after(limit: Duration) {
    let waiting = thread::Builder::new().name("bench-limit".into()).spawn(move || {
        thread::sleep(limit);
        end(&format!("it did not end within {limit:?}"), 1);
    });
    if let Err(error) = waiting {
        eprintln!("there is no limit to the time this takes: {error}");
    }
}

fn end(why: &str, code: i32) {
    // Kept until the end, so that no other store is made meanwhile.
    let stores = live();
    stores.iter().for_each(|path| remove(path));
    eprintln!("{why}");
    process::exit(code);
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
    end("interrupted: nothing was written", INTERRUPTED);
}

#[cfg(unix)]
async fn interrupted() -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        outcome = tokio::signal::ctrl_c() => outcome,
        _ = terminate.recv() => Ok(()),
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
        let left = [format!("{PREFIX}left"), format!("{PREFIX}empty")];
        let others = [format!("{PREFIX}foreign"), "other".into(), "store-other".into()];
        for name in left.iter().chain(&others) {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        for (name, text) in [
            (&left[0], MARK),
            (&others[0], ""),
            (&others[1], MARK),
            (&others[2], MARK),
        ] {
            fs::write(folder.path().join(name).join(LOCK), text).unwrap();
        }
        fs::create_dir(folder.path().join(&left[0]).join("data")).unwrap();
        fs::write(folder.path().join(&left[0]).join("store.redb"), "x").unwrap();
        remove_left_over(folder.path());
        for name in left {
            assert!(!folder.path().join(&name).exists(), "{name}");
        }
        for name in others {
            assert!(folder.path().join(&name).join(LOCK).exists(), "{name}");
        }
    }
}
