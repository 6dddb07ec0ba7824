//! A runtime on a file system that is full, and has room again.
//!
//! A full disk stopped the runtime: every request failed, nothing was logged, and only a restart of the process
//! brought it back. Now requests wait for room.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use millrun::store::{FailureKind, StoreError};
use millrun::{OpenError, Runtime, RuntimeBuilder, StopCause, Workflow, WorkflowContext, WorkflowError};

const LEN: Workflow<Vec<u8>, usize> = Workflow::named("len");

async fn len(_cx: WorkflowContext, bytes: Vec<u8>) -> Result<usize, WorkflowError> {
    Ok(bytes.len())
}

/// A file system of 8 MiB in memory.
struct Small(tempfile::TempDir);

impl Small {
    /// `None`, and a word about it, where this user may not mount one.
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=8m", "none"]);
        match mount.arg(folder.path()).output() {
            Ok(output) if output.status.success() => Some(Self(folder)),
            refused => {
                println!("skipped, because nothing can be mounted here: {refused:?}");
                None
            }
        }
    }

    /// Takes all the room there is.
    fn fill(&self) {
        let mut bytes = 1 << 20;
        for number in 0.. {
            if fs::write(self.filler(number), vec![1; bytes]).is_err() {
                bytes /= 2;
            }
            if bytes < 512 {
                return;
            }
        }
    }

    fn make_room(&self) {
        for number in 0.. {
            if fs::remove_file(self.filler(number)).is_err() {
                return;
            }
        }
    }

    fn filler(&self, number: u32) -> std::path::PathBuf {
        self.0.path().join(format!("filler-{number}"))
    }

    fn store(&self) -> RuntimeBuilder {
        store(&self.0.path().join("a.redb"))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        Command::new("umount").arg(self.0.path()).output().unwrap();
    }
}

fn store(path: &Path) -> RuntimeBuilder {
    Runtime::open(path).register(LEN, len)
}

/// More than the file has room for without growing, in a few runs.
async fn begin_more_than_fits(runtime: &Runtime) -> Vec<tokio::task::JoinHandle<usize>> {
    let mut begun = Vec::new();
    for number in 0..6 {
        let runtime = runtime.clone();
        begun.push(tokio::spawn(async move {
            let id = format!("large-{number}");
            match runtime.start(LEN, &id, vec![7; 300_000]).await {
                Ok(run) => run.result().await.unwrap_or_default(),
                Err(_) => 0,
            }
        }));
    }
    while !runtime.stats().journal.is_disk_full {
        assert!(runtime.stop_cause().is_none());
        tokio::task::yield_now().await;
    }
    begun
}

fn is_full(cause: &StopCause) -> bool {
    matches!(cause, StopCause::Journal(failure) if failure.kind() == FailureKind::Io(ErrorKind::StorageFull))
}

#[tokio::test]
async fn requests_wait_on_a_full_disk_and_are_answered_when_it_has_room() {
    let Some(small) = Small::mount() else { return };
    let runtime = small.store().start().await.unwrap();
    let first = runtime.start(LEN, "first", vec![1, 2]).await.unwrap();
    assert_eq!(first.result().await.unwrap(), 2);
    small.fill();
    let begun = begin_more_than_fits(&runtime).await;
    assert!(begun.iter().any(|run| !run.is_finished()), "somebody waits");
    small.make_room();
    for run in begun {
        assert_eq!(run.await.unwrap(), 300_000);
    }
    assert!(!runtime.stats().journal.is_disk_full);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_shutdown_on_a_full_disk_ends_with_the_cause_and_the_next_start_says_it_at_once() {
    let Some(small) = Small::mount() else { return };
    let runtime = small
        .store()
        .configure(|config| {
            config.shutdown_grace = Duration::from_millis(10);
            config.shutdown_wait_max = Duration::from_secs(1);
        })
        .start()
        .await
        .unwrap();
    small.fill();
    let begun = begin_more_than_fits(&runtime).await;
    let cause = runtime.shutdown().await.expect_err("what is queued does not fit");
    assert!(is_full(&cause), "{cause}");
    for run in begun {
        run.await.unwrap();
    }
    drop(runtime);
    match small.store().start().await {
        Err(OpenError::Store(StoreError::Io { source, .. })) => {
            assert_eq!(source.kind(), ErrorKind::StorageFull);
        }
        other => panic!("{other:?}"),
    }
    small.make_room();
    small.store().start().await.unwrap().shutdown().await.unwrap();
}
