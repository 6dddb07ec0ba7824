//! Programs of the operating system as activities.

use std::path::{Path, PathBuf};
use std::time::Duration;

use millrun::process::{Process, ProcessError, ProcessOutput};
use millrun::workflow::TimeoutKind;
use millrun::{
    Activity, ActivityContext, CallError, ResultError, Retry, RunHandle, Runtime, Workflow, WorkflowContext,
    WorkflowError,
};

use crate::support::Store;

const RUN: Activity<Process, ProcessOutput, ProcessError> = Activity::named("run");
const CALL_RUN: Workflow<(Process, Duration), String> = Workflow::named("call-run");

/// A program may take this long where its time is not what is tried.
const PATIENCE: Duration = Duration::from_secs(3_600);

async fn call_run(
    cx: WorkflowContext,
    (process, patience): (Process, Duration),
) -> Result<String, WorkflowError> {
    let call = cx.call(RUN, process).retry(Retry::never());
    Ok(match call.start_to_close(patience).await {
        Ok(output) => format!(
            "{} ({} dropped)",
            String::from_utf8_lossy(&output.stdout),
            output.dropped_bytes
        ),
        Err(CallError::TimedOut(TimeoutKind::StartToClose)) => "timed out".into(),
        Err(CallError::Cancelled(cancelled)) => return Err(cancelled.into()),
        Err(error) => error.to_string(),
    })
}

async fn open(store: &Store) -> Runtime {
    let run = |_: ActivityContext, process: Process| process.run();
    let builder = store.bare().register(CALL_RUN, call_run).register(RUN, run);
    let builder = builder.configure(|config| config.shutdown_grace = Duration::ZERO);
    builder.start().await.unwrap()
}

fn sh(script: &str) -> Process {
    Process::new("sh").args(["-c", script])
}

#[tokio::test]
async fn a_program_runs_with_its_input_and_its_output_is_bounded() {
    let store = Store::new();
    let runtime = open(&store).await;
    let zeros = vec![b'0'; 300_000];
    let both = sh("head -c 200000 /dev/zero | tr '\\0' o; head -c 100000 /dev/zero >&2");
    let cases = [
        (Process::new("cat").stdin("hello"), "hello (0 dropped)"),
        (
            Process::new("cat").stdin(zeros).output_bytes_max(3),
            "000 (299997 dropped)",
        ),
        (both.output_bytes_max(5), "ooooo (299990 dropped)"),
        (
            sh("echo out; echo no luck >&2; exit 3"),
            "the activity failed: the program ended with code 3: no luck",
        ),
        (
            sh("kill -9 $$"),
            "the activity failed: the program was ended by a signal",
        ),
    ];
    for (number, (process, expected)) in cases.into_iter().enumerate() {
        let id = number.to_string();
        let run = runtime.start(CALL_RUN, &id, (process, PATIENCE)).await.unwrap();
        assert_eq!(run.result().await.unwrap(), expected);
    }
    let nothing = Process::new("/no/such/program");
    let run = runtime
        .start(CALL_RUN, "nothing", (nothing, PATIENCE))
        .await
        .unwrap();
    let error = run.result().await.unwrap();
    assert!(error.contains("/no/such/program"), "{error}");
    runtime.shutdown().await.unwrap();
}

/// What a program writes its process id to.
struct PidFile {
    path: PathBuf,
    _directory: tempfile::TempDir,
}

impl PidFile {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self {
            path: directory.path().join("pid"),
            _directory: directory,
        }
    }

    /// A program that runs this script, where `PID` stands for the file.
    fn program(&self, script: &str) -> Process {
        sh(&script.replace("PID", &self.path.display().to_string()))
    }

    /// The state of the process whose id is there, if the id is there.
    fn process(&self) -> Option<PathBuf> {
        let pid = std::fs::read_to_string(&self.path).ok()?;
        let pid = pid.strip_suffix('\n')?;
        Some(Path::new("/proc").join(pid).join("stat"))
    }

    async fn running(&self) -> PathBuf {
        loop {
            if let Some(stat) = self.process() {
                assert!(stat.exists(), "the program runs");
                return stat;
            }
            tokio::task::yield_now().await;
        }
    }
}

/// Waits until a process is gone, or dead and not yet waited for.
async fn dead(stat: &Path) {
    while std::fs::read_to_string(stat).is_ok_and(|stat| !stat.contains(") Z ")) {
        tokio::task::yield_now().await;
    }
}

/// Scripts that write the id of a process which goes on for an hour.
const ITSELF: &str = "echo $$ > PID; exec sleep 3600";
#[cfg(unix)]
const ITS_CHILD: &str = "sh -c 'echo $$ > PID; exec sleep 3600' & wait";
/// It has ended itself, and its child holds its output open.
#[cfg(unix)]
const ITS_ORPHAN: &str = "sh -c 'echo $$ > PID; exec sleep 3600' &";
/// As [`ITS_CHILD`], and both write without end.
#[cfg(unix)]
const LOUD: &str = "sh -c 'echo $$ > PID; exec yes >&2' & exec yes";

#[cfg(unix)]
const ALL: [&str; 4] = [ITSELF, ITS_CHILD, ITS_ORPHAN, LOUD];
#[cfg(not(unix))]
const ALL: [&str; 1] = [ITSELF];

type Run = RunHandle<String>;

/// Ends each program in this way once it runs, and waits until what it says is dead.
async fn are_killed(end: impl AsyncFn(&Runtime, &Run)) {
    for script in ALL {
        let store = Store::new();
        let runtime = open(&store).await;
        let file = PidFile::new();
        let input = (file.program(script).output_bytes_max(10), PATIENCE);
        let run = runtime.start(CALL_RUN, "p", input).await.unwrap();
        let stat = file.running().await;
        end(&runtime, &run).await;
        dead(&stat).await;
        runtime.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn what_a_program_has_started_is_killed_with_it() {
    are_killed(async |_, run| run.terminate("test").await.unwrap()).await;
}

#[tokio::test]
async fn a_cancelled_call_kills_its_program_and_all_that_one_has_started() {
    are_killed(async |_, run| {
        run.cancel("test").await.unwrap();
        assert!(matches!(run.result().await, Err(ResultError::Cancelled(_))));
    })
    .await;
}

#[tokio::test]
async fn a_runtime_that_goes_takes_its_programs_and_all_they_have_started_with_it() {
    are_killed(async |runtime, _| {
        runtime.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_timeout_kills_the_program_and_all_it_has_started() {
    for script in ALL {
        let store = Store::new();
        let runtime = open(&store).await;
        // One that was killed before it said who it is tells nothing: then it gets more time.
        for round in 0.. {
            let file = PidFile::new();
            let patience = Duration::from_millis(50 << round);
            let input = (file.program(script).output_bytes_max(10), patience);
            let id = round.to_string();
            let run = runtime.start(CALL_RUN, &id, input).await.unwrap();
            assert_eq!(run.result().await.unwrap(), "timed out");
            if let Some(stat) = file.process() {
                dead(&stat).await;
                break;
            }
        }
        runtime.shutdown().await.unwrap();
    }
}
