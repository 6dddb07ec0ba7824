//! The activity by which a bulk acts. It may run twice, but its acts have no second effect.
//!
//! | act | why it has no second effect |
//! |---|---|
//! | cancel | asking twice is asking once |
//! | terminate | a run ends once |
//! | resume | only while the run is parked as it was when it was looked at: its history shows what has happened since |
//! | signal | it has a request name, made of the bulk's run and the signalled run |
//! | start again | only as the successor of the run that was found, which the shard checks as it begins the run: if another one has the id, it was done before |

use futures_util::future::join_all;
use millrun_core::{RunId, Sequence};
use millrun_workflow::{Activity, ActivityError, Event, ParkReason};
use serde::{Deserialize, Serialize};

use super::BulkAction;
use super::order::{StoredAction, cut};
use super::selecting::{BulkTarget, SeenParked, TargetRun, runtime_of};
use crate::looking::describe::{InstanceDescription, InstanceStatus};
use crate::{ActivityContext, RunError, Runtime, StartError, UntypedHandle};

pub(super) const ACT: Activity<Act, Vec<Became>> = Activity::named("millrun.bulk.act");

/// How many later events of a run are read at once.
const EVENTS_LEN_MAX: usize = 1_000;

/// An action on some runs.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Act {
    /// The run of the bulk.
    pub(super) key: String,
    pub(super) targets: Vec<BulkTarget>,
    pub(super) action: StoredAction,
}

/// The result for a target.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Became {
    Done,
    PassedOver,
    Failed(String),
}

pub(super) async fn act(cx: ActivityContext, act: Act) -> Result<Vec<Became>, ActivityError> {
    let runtime = runtime_of(&cx)?;
    let Act { key, targets, action } = act;
    let (action, key) = (action.into(), key.as_str());
    let acts = targets.iter().map(|target| {
        let (runtime, action) = (&runtime, &action);
        async move {
            let (run, parked) = match &target.run {
                TargetRun::Nothing => return Ok(Became::PassedOver),
                TargetRun::Unread(message) => return Ok(Became::Failed(cut(message.clone()))),
                TargetRun::Found { run, parked } => (run, *parked),
            };
            let request = format!("{key}/{run}");
            let bits = u128::from_str_radix(run, 16).ok();
            let Some(run) = bits.and_then(RunId::from_bits) else {
                return Ok(Became::Failed("it could not be read".into()));
            };
            match act_on(runtime, run, parked, action, &request).await {
                Ok(became) => Ok(became),
                Err(Undone::Stopped(message)) => Err(ActivityError::retryable(message)),
                Err(Undone::Refused(message)) => Ok(Became::Failed(cut(message))),
            }
        }
    });
    join_all(acts).await.into_iter().collect()
}

/// Why an action was not performed.
enum Undone {
    /// No answer came: it may have been performed.
    Stopped(String),
    Refused(String),
}

impl From<RunError> for Undone {
    fn from(error: RunError) -> Self {
        match error {
            error @ RunError::Stopped(_) => Self::Stopped(error.to_string()),
            error => Self::Refused(error.to_string()),
        }
    }
}

impl From<StartError> for Undone {
    fn from(error: StartError) -> Self {
        match error {
            error @ StartError::Stopped(_) => Self::Stopped(error.to_string()),
            error => Self::Refused(error.to_string()),
        }
    }
}

async fn act_on(
    runtime: &Runtime,
    run: RunId,
    parked: Option<SeenParked>,
    action: &BulkAction,
    request: &str,
) -> Result<Became, Undone> {
    let described = match runtime.describe_run(run).await {
        Ok(described) => described,
        Err(RunError::NotFound | RunError::Expired) => return Ok(Became::PassedOver),
        Err(error) => return Err(error.into()),
    };
    let handle: UntypedHandle = runtime.attach_described(&described);
    let told = match action {
        BulkAction::Cancel { .. } if described.is_cancel_requested => Ok(()),
        BulkAction::Cancel { reason } => handle.cancel(reason).await,
        BulkAction::Terminate { reason } => handle.terminate(reason).await,
        BulkAction::Resume => match park_since(runtime, &described, parked).await? {
            Park::Same => handle.resume().await,
            Park::Left => Ok(()),
            Park::Paused => return Ok(Became::PassedOver),
        },
        BulkAction::Signal { name, value } => handle.signal_as(name, request, value.clone()).await,
        BulkAction::StartAgain => return start_again(runtime, run, described.id.as_str()).await,
    };
    match told {
        Ok(()) => Ok(Became::Done),
        // It was performed before this, or by an attempt whose answer was lost.
        Err(RunError::Finished | RunError::NotFound | RunError::Expired) => match action {
            BulkAction::Cancel { .. } | BulkAction::Terminate { .. } => Ok(Became::Done),
            _ => Ok(Became::PassedOver),
        },
        Err(error) => Err(error.into()),
    }
}

/// The present state of a run that was parked when it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Park {
    /// It has been parked since then.
    Same,
    /// Its code has run since; if it is parked again, that is another time.
    Left,
    /// It was paused since.
    Paused,
}

async fn park_since(
    runtime: &Runtime,
    described: &InstanceDescription,
    seen: Option<SeenParked>,
) -> Result<Park, RunError> {
    let Some(seen) = seen else {
        return Ok(Park::Same);
    };
    if described.status == InstanceStatus::Finished {
        return Ok(Park::Left);
    }
    let mut walk = ParkWalk::new(seen);
    let mut after = Sequence::new(seen.sequence);
    while after < described.sequence {
        let page = runtime.history(described.run, after, EVENTS_LEN_MAX).await?;
        let gone_before = page.trimmed_before.map_or(0, Sequence::get);
        // Only code makes a checkpoint, so the code has run.
        if gone_before > after.get() + 1 {
            return Ok(Park::Left);
        }
        let Some(last) = page.events.last() else {
            break;
        };
        after = last.sequence;
        for recorded in &page.events {
            walk.pass(&recorded.event);
        }
        if walk.park != Park::Same {
            break;
        }
    }
    Ok(walk.park)
}

/// Reads the later events of a run.
struct ParkWalk {
    is_recorded: bool,
    park: Park,
}

impl ParkWalk {
    fn new(seen: SeenParked) -> Self {
        Self {
            is_recorded: seen.is_recorded,
            park: Park::Same,
        }
    }

    fn pass(&mut self, event: &Event) {
        self.park = match (self.park, event) {
            (Park::Same, Event::Resumed) => Park::Left,
            (Park::Same, Event::Parked { reason }) => match reason {
                ParkReason::Paused { .. } => Park::Paused,
                // It was resumed early, and waits for its time.
                ParkReason::Delayed { .. } => Park::Left,
                _ => Park::Same,
            },
            // The history of a run whose code does not run says so with its next event.
            (Park::Same, _) if !self.is_recorded => Park::Left,
            (park, _) => park,
        };
        self.is_recorded = true;
    }
}

/// Starts another run of an instance, as the successor of this one.
async fn start_again(runtime: &Runtime, run: RunId, id: &str) -> Result<Became, Undone> {
    let page = runtime.history(run, Sequence::ZERO, 1).await?;
    let Some(Event::Started(started)) = page.events.first().map(|first| &first.event) else {
        return Err(Undone::Refused("its input was trimmed".into()));
    };
    let start = runtime.start_untyped(started.workflow.to_string(), id, started.input.clone());
    match start.only_after(run).await {
        Ok(_) => Ok(Became::Done),
        Err(StartError::AlreadyRunning { run: other } | StartError::AlreadyFinished { run: other }) => {
            Ok(if other == run {
                Became::PassedOver
            } else {
                Became::Done
            })
        }
        Err(StartError::NotRetained { .. }) => Ok(Became::PassedOver),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use millrun_core::Timestamp;
    use millrun_workflow::{Signal, Workflow, WorkflowContext, WorkflowError};

    use super::super::action::ActionKind;
    use super::super::selecting::find;
    use super::*;

    const WAIT: Workflow<(), ()> = Workflow::named("wait");
    const GO: Signal<()> = Signal::named("go");

    async fn wait(cx: WorkflowContext, (): ()) -> Result<(), WorkflowError> {
        loop {
            cx.receive(GO).await?;
        }
    }

    /// Regression: an attempt whose answer was lost was repeated after the run had been resumed by it and paused again by an
    /// operator.
    #[tokio::test]
    async fn a_resume_that_is_repeated_leaves_a_run_alone_that_was_paused_meanwhile() {
        let runtime = Runtime::volatile().register(WAIT, wait).start().await.unwrap();
        let run = runtime.start(WAIT, "w", ()).await.unwrap();
        run.pause("first").await.unwrap();
        let found = find(&runtime, "w", ActionKind::Resume).await.unwrap();
        let TargetRun::Found {
            parked: Some(seen), ..
        } = found
        else {
            panic!("{found:?}");
        };
        let resume = async || {
            let run = run.run_id().unwrap();
            let became = act_on(&runtime, run, Some(seen), &BulkAction::Resume, "r").await;
            became.unwrap_or_else(|_| panic!("it is refused"))
        };
        let status = async || run.describe().await.unwrap().status;
        run.signal(GO, ()).await.unwrap();
        assert!(matches!(resume().await, Became::Done));
        assert_eq!(status().await, InstanceStatus::Running);
        assert!(matches!(resume().await, Became::Done));
        run.pause("again").await.unwrap();
        assert!(matches!(resume().await, Became::Done), "it was");
        assert_eq!(status().await, InstanceStatus::Parked, "and is not again");
        runtime.shutdown().await.unwrap();
    }

    #[test]
    fn a_run_is_parked_as_it_was_seen_until_its_history_says_otherwise() {
        let parked = || Event::Parked {
            reason: ParkReason::Stuck {
                message: "a timer of tokio".into(),
            },
        };
        let paused = || Event::Parked {
            reason: ParkReason::Paused {
                reason: "later".into(),
            },
        };
        let told = || Event::CancelRequested {
            reason: "no".into(),
            is_shown: false,
        };
        let delayed = || Event::Parked {
            reason: ParkReason::Delayed {
                until: Timestamp::from_micros(1),
            },
        };
        for (is_recorded, events, expected) in [
            (true, vec![], Park::Same),
            (true, vec![delayed()], Park::Left),
            (true, vec![told(), delayed(), paused()], Park::Left),
            (true, vec![told()], Park::Same),
            (true, vec![told(), Event::Resumed], Park::Left),
            (true, vec![Event::Resumed, paused()], Park::Left),
            (true, vec![paused(), Event::Resumed], Park::Paused),
            (false, vec![parked(), told()], Park::Same),
            (false, vec![parked(), Event::Resumed], Park::Left),
            (false, vec![told(), parked()], Park::Left),
            (false, vec![paused()], Park::Paused),
        ] {
            let mut walk = ParkWalk::new(SeenParked {
                sequence: 3,
                is_recorded,
            });
            for event in &events {
                walk.pass(event);
            }
            assert_eq!(walk.park, expected, "{is_recorded}: {events:?}");
        }
    }
}
