//! The end of a runtime: every caller is told, with the cause, and nothing hangs.

mod broker;
mod calls;
mod causes;
mod shutdown;
mod waiting;

use std::sync::Arc;

use millrun::host::{HostConfig, TokioHost};
use millrun::store::{Journal, JournalConfig, MemoryJournal};
use millrun::{
    Query, RunHandle, Runtime, RuntimeBuilder, Signal, StopCause, Topic, Update, Workflow, WorkflowContext,
    WorkflowError,
};
use millrun_persistence::FailureKind;
use tokio::runtime::Builder;

const TALLY: Workflow<u64, u64> = Workflow::named("tally");
const FULL: Query<u64, (), u64> = Query::named("full");
const ADD: Update<u64, u64, u64> = Update::named("add");
const GO: Signal<u64> = Signal::named("go");
const TOPIC: Topic<u64> = Topic::named("orders");
/// The part of a promise's token behind its run's number.
const FIRST_OPERATION: &str = "1";

/// Waits for a signal, unless it begins with zero.
async fn tally(cx: WorkflowContext, first: u64) -> Result<u64, WorkflowError> {
    let state = cx.state(first);
    if first > 0 {
        let more = cx.receive(GO).await?;
        state.change(|sum| *sum += more);
    }
    Ok(state.read(|sum| *sum))
}

fn code(builder: RuntimeBuilder) -> RuntimeBuilder {
    let answering = TALLY.query(FULL, |sum, ()| *sum).update(ADD).change(|sum, more| {
        *sum += more;
        *sum
    });
    builder.register(answering, tally)
}

type Run = RunHandle<u64>;

/// How a runtime comes to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Shutdown,
    JournalFailed,
    PartFailedTooOften,
    /// The tokio runtime is dropped; with a thread of the parts' own, and without.
    HostDropped {
        own_thread: bool,
    },
    HostShutDownInBackground,
    /// The `block_on` of a current-thread runtime returns, and the runtime is dropped.
    CurrentThreadEnded,
    /// A host that the runtime was given is dropped.
    GivenHostDropped,
}

impl Way {
    const ALL: [Self; 8] = [
        Self::Shutdown,
        Self::JournalFailed,
        Self::PartFailedTooOften,
        Self::HostDropped { own_thread: true },
        Self::HostDropped { own_thread: false },
        Self::HostShutDownInBackground,
        Self::CurrentThreadEnded,
        Self::GivenHostDropped,
    ];

    fn is_expected(self, cause: &StopCause) -> bool {
        match self {
            Self::Shutdown => matches!(cause, StopCause::Shutdown),
            Self::JournalFailed => {
                matches!(cause, StopCause::Journal(failure) if failure.to_string() == "the disk is gone")
            }
            Self::PartFailedTooOften => {
                matches!(cause, StopCause::Part { part, .. } if &**part == "shard 0")
            }
            Self::HostDropped { .. }
            | Self::HostShutDownInBackground
            | Self::CurrentThreadEnded
            | Self::GivenHostDropped => matches!(cause, StopCause::HostEnded),
        }
    }

    /// Starts a runtime, has `before` done with it while it lives, and ends it.
    fn go<T>(self, before: impl AsyncFnOnce(&Runtime) -> T) -> (Runtime, T) {
        let tokio = match self {
            Self::CurrentThreadEnded => Builder::new_current_thread().enable_all().build(),
            _ => Builder::new_multi_thread().worker_threads(2).enable_all().build(),
        };
        let tokio = tokio.unwrap();
        let journal = Arc::new(MemoryJournal::new(JournalConfig::default()).unwrap());
        let builder = code(Runtime::volatile()).journal(Arc::clone(&journal) as Arc<dyn Journal>);
        let builder = builder.configure(|config| {
            config.restarts_max = 0;
            config.own_thread = self != Self::HostDropped { own_thread: false };
        });
        let (runtime, before, owner) = tokio.block_on(async {
            let (builder, owner) = if self == Self::GivenHostDropped {
                let owner = TokioHost::spawn(HostConfig::default()).await.unwrap();
                (builder.host(owner.host()), Some(owner))
            } else {
                (builder, None)
            };
            let runtime = builder.start().await.unwrap();
            let before = before(&runtime).await;
            (runtime, before, owner)
        });
        match self {
            Self::Shutdown => drop(tokio.block_on(runtime.shutdown()).unwrap()),
            Self::JournalFailed => {
                journal.fail(FailureKind::Io(std::io::ErrorKind::Other), "the disk is gone");
            }
            Self::PartFailedTooOften => runtime.kill("shard 0").unwrap(),
            Self::HostDropped { .. } | Self::CurrentThreadEnded => return dropping(tokio, runtime, before),
            Self::HostShutDownInBackground => {
                tokio.shutdown_background();
                return (runtime, before);
            }
            Self::GivenHostDropped => drop(owner),
        }
        // The host lives on for as long as the test needs it, and longer.
        std::mem::forget(tokio);
        (runtime, before)
    }
}

fn dropping<T>(tokio: tokio::runtime::Runtime, runtime: Runtime, before: T) -> (Runtime, T) {
    drop(tokio);
    (runtime, before)
}

async fn runs(runtime: &Runtime) -> [Run; 3] {
    let live = runtime.start(TALLY, "live", 1).await.unwrap();
    let finished = runtime.start(TALLY, "finished", 0).await.unwrap();
    finished.result().await.unwrap();
    // Its end was told already: a clone asks.
    let latest = runtime.attach(TALLY, "live").unwrap();
    [live, finished.clone(), latest]
}
