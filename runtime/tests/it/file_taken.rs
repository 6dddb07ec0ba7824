//! The file of an open store is taken from outside.
//!
//! A store's file had been deleted, replaced or cut while its runtime was open: 500 of 500 further runs were
//! acknowledged, and the shutdown said that all was well. Nothing looked at the path after the opening.

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::time::Duration;

use millrun::store::FailureKind;
use millrun::{
    RunError, Runtime, RuntimeBuilder, StartError, StopCause, Workflow, WorkflowContext, WorkflowError,
};
use millrun_testkit::{SimConfig, SimHost};

const DOUBLE: Workflow<u64, u64> = Workflow::named("double");

async fn double(_cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    Ok(number * 2)
}

fn store(path: &Path) -> RuntimeBuilder {
    Runtime::open(path).register(DOUBLE, double)
}

/// What is done to a file, and what the runtime calls it.
type Deed = (fn(&Path), FailureKind);

const DEEDS: [Deed; 3] = [
    (|path| fs::remove_file(path).unwrap(), FailureKind::FileGone),
    (
        |path| {
            let other = path.with_extension("backup");
            fs::copy(path, &other).unwrap();
            fs::rename(other, path).unwrap();
        },
        FailureKind::FileReplaced,
    ),
    (
        |path| {
            let file = OpenOptions::new().write(true).open(path).unwrap();
            file.set_len(4_096).unwrap();
        },
        FailureKind::FileTruncated,
    ),
];

fn kind(cause: &StopCause) -> Option<FailureKind> {
    match cause {
        StopCause::Journal(failure) => Some(failure.kind()),
        _ => None,
    }
}

#[tokio::test]
async fn nothing_is_acknowledged_once_the_file_was_taken_and_the_cause_is_at_every_handle() {
    for (take, expected) in DEEDS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.redb");
        let runtime = store(&path).start().await.unwrap();
        let first = runtime.start(DOUBLE, "first", 4).await.unwrap();
        assert_eq!(first.result().await.unwrap(), 8);
        take(&path);
        match runtime.start(DOUBLE, "second", 5).await {
            Err(StartError::Stopped(cause)) => assert_eq!(kind(&cause), Some(expected), "{cause}"),
            other => panic!("{expected:?}: {other:?}"),
        }
        let attached = runtime.attach(DOUBLE, "third").unwrap().describe().await;
        assert!(matches!(attached, Err(RunError::Stopped(cause)) if kind(&cause) == Some(expected)));
        let cause = runtime.shutdown().await.expect_err("the file was taken");
        assert_eq!(kind(&cause), Some(expected), "{cause}");
    }
}

#[test]
fn an_idle_runtime_notices_within_a_second_and_wakes_nobody_for_it() {
    for (take, expected) in DEEDS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.redb");
        let world = SimHost::new(SimConfig::seeded(7));
        let host = world.host();
        let builder = store(&path).host(world.host());
        world
            .block_on(async move {
                let runtime = builder.start().await.unwrap();
                let run = runtime.start(DOUBLE, "first", 4).await.unwrap();
                assert_eq!(run.result().await.unwrap(), 8);
                host.sleep_until(host.now() + Duration::from_secs(3_600)).await;
                assert!(runtime.stop_cause().is_none());
                take(&path);
                // Two looks fall due while this sleeps; the first may have been under way.
                host.sleep_until(host.now() + Duration::from_secs(1)).await;
                host.sleep_until(host.now() + Duration::from_secs(1)).await;
                let cause = runtime.stop_cause().unwrap();
                assert_eq!(kind(&cause), Some(expected), "{cause}");
            })
            .unwrap();
    }
}
