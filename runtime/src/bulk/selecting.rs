//! The activities that select the targets of a bulk. They only read, so they may run twice; the last attempt's result is
//! recorded before any action.

use futures_util::future::join_all;
use millrun_core::{RunId, Timestamp};
use millrun_workflow::{Activity, ActivityError};
use serde::{Deserialize, Serialize};

use super::action::ActionKind;
use super::order::{CHUNK_LEN_MAX, StoredSearch};
use crate::looking::find::{PAGE_LEN_MAX, RunCursor, RunSearch, RunSummary};
use crate::{ActivityContext, RunError, Runtime};

pub(super) const LOOK: Activity<Look, Vec<BulkTarget>> = Activity::named("millrun.bulk.look");
pub(super) const SELECT: Activity<Select, Selected> = Activity::named("millrun.bulk.select");
pub(super) const COUNT: Activity<CountRuns, u64> = Activity::named("millrun.bulk.count");

/// How many pages of the search one attempt of a selection reads: if it finds few runs, its progress is recorded before it
/// continues.
const PAGES_LEN_MAX: usize = 64;

/// Finds the runs for some ids.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Look {
    pub(super) ids: Vec<String>,
    pub(super) action: ActionKind,
}

/// The next runs that a search finds.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Select {
    pub(super) search: StoredSearch,
    pub(super) action: ActionKind,
    /// The cursor behind which the selection begins; without one, at the first run.
    pub(super) after: Option<String>,
    pub(super) len_max: u64,
    /// Only runs that began before this time, in microseconds since 1970.
    pub(super) started_before_us: u64,
}

/// How many runs a search finds.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CountRuns {
    pub(super) search: StoredSearch,
    pub(super) action: ActionKind,
    pub(super) started_before_us: u64,
}

/// What was selected.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Selected {
    pub(super) targets: Vec<BulkTarget>,
    /// Where the next selection begins; `None` if this was the last.
    pub(super) next: Option<String>,
    pub(super) unreadable: u64,
}

/// An instance, with its run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct BulkTarget {
    pub(super) id: String,
    pub(super) run: TargetRun,
}

/// The run of a target.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum TargetRun {
    /// No run to which the action applies.
    Nothing,
    /// It could not be read.
    Unread(String),
    /// This one.
    Found { run: String, parked: Option<SeenParked> },
}

/// How a run was parked when it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SeenParked {
    /// The number of its events.
    pub(super) sequence: u64,
    /// Whether the events include the parking: if code cannot be brought back, that is only recorded with the run's next
    /// event.
    pub(super) is_recorded: bool,
}

impl TargetRun {
    fn found(run: RunId, parked: Option<SeenParked>) -> Self {
        let run = run.to_string();
        Self::Found { run, parked }
    }
}

/// The run of an instance, if the action applies to it.
pub(super) async fn find(runtime: &Runtime, id: &str, action: ActionKind) -> Result<TargetRun, RunError> {
    let Ok(handle) = runtime.attach_untyped(id) else {
        return Ok(TargetRun::Nothing);
    };
    match handle.describe().await {
        Ok(described) if action.applies_to(described.status.clone()) => {
            let parked = (action == ActionKind::Resume).then(|| SeenParked {
                sequence: described.sequence.get(),
                is_recorded: described.parked_since.is_some(),
            });
            Ok(TargetRun::found(described.run, parked))
        }
        Ok(_) | Err(RunError::NotFound | RunError::Expired | RunError::Finished) => Ok(TargetRun::Nothing),
        Err(error) => Err(error),
    }
}

pub(super) async fn look(cx: ActivityContext, look: Look) -> Result<Vec<BulkTarget>, ActivityError> {
    let runtime = runtime_of(&cx)?;
    let found = look.ids.iter().map(|id| find(&runtime, id, look.action));
    let found = join_all(found).await.into_iter().zip(&look.ids);
    found.map(|(found, id)| target(id.clone(), found)).collect()
}

fn target(id: String, found: Result<TargetRun, RunError>) -> Result<BulkTarget, ActivityError> {
    match found {
        Ok(run) => Ok(BulkTarget { id, run }),
        Err(error @ RunError::Stopped(_)) => Err(ActivityError::retryable(error.to_string())),
        Err(error) => {
            let run = TargetRun::Unread(error.to_string());
            Ok(BulkTarget { id, run })
        }
    }
}

pub(super) async fn select(cx: ActivityContext, select: Select) -> Result<Selected, ActivityError> {
    let runtime = runtime_of(&cx)?;
    let mut selected = Selected {
        targets: Vec::new(),
        next: None,
        unreadable: 0,
    };
    let Some(search) = runs_of(&select.search, select.action, select.started_before_us)? else {
        return Ok(selected);
    };
    let cursor = select.after.as_deref().map(str::parse::<RunCursor>).transpose();
    let mut after = cursor.map_err(|error| ActivityError::fatal(error.to_string()))?;
    let len_max = usize::try_from(select.len_max).unwrap_or(CHUNK_LEN_MAX);
    for _ in 0..PAGES_LEN_MAX {
        let left = len_max - selected.targets.len();
        let page = runtime.find(&search, after, left).await.map_err(retryable)?;
        selected.unreadable += page.unreadable;
        let targets = page
            .runs
            .into_iter()
            .map(|run| target_of(&runtime, run, select.action));
        for target in join_all(targets).await {
            selected.targets.extend(target?);
        }
        after = page.next;
        if after.is_none() || selected.targets.len() == len_max {
            break;
        }
    }
    selected.next = after.map(|after| after.to_string());
    Ok(selected)
}

/// A found run as a target; `None` if the action does not apply to it.
async fn target_of(
    runtime: &Runtime,
    found: RunSummary,
    action: ActionKind,
) -> Result<Option<BulkTarget>, ActivityError> {
    let id = String::from(found.id.as_str());
    let run = match action {
        ActionKind::Cancel | ActionKind::Terminate | ActionKind::Signal => {
            Ok(TargetRun::found(found.run, None))
        }
        // A search tells neither which run of an instance is the latest, nor since when a run is parked.
        ActionKind::Resume | ActionKind::StartAgain => find(runtime, &id, action).await,
    };
    let digits = found.run.to_string();
    match target(id, run)? {
        BulkTarget {
            run: TargetRun::Nothing,
            ..
        } => Ok(None),
        BulkTarget {
            run: TargetRun::Found { run, .. },
            ..
        } if run != digits => Ok(None),
        target => Ok(Some(target)),
    }
}

pub(super) async fn count(cx: ActivityContext, count: CountRuns) -> Result<u64, ActivityError> {
    let runtime = runtime_of(&cx)?;
    let search = runs_of(&count.search, count.action, count.started_before_us)?;
    match search {
        Some(search) => reached(&runtime, &search, count.action).await.map_err(retryable),
        None => Ok(0),
    }
}

/// The number of runs, among those that a narrowed search finds, to which the action applies.
pub(super) async fn reached(
    runtime: &Runtime,
    search: &RunSearch,
    action: ActionKind,
) -> Result<u64, RunError> {
    let (mut reached, mut after) = (0, None);
    loop {
        let page = runtime.find(search, after, PAGE_LEN_MAX).await?;
        if action == ActionKind::StartAgain {
            for some in page.runs.chunks(CHUNK_LEN_MAX) {
                let latest = some.iter().map(|found| is_latest(runtime, found));
                for latest in join_all(latest).await {
                    reached += u64::from(latest?);
                }
            }
        } else {
            reached += page.runs.len() as u64;
        }
        after = page.next;
        if after.is_none() {
            return Ok(reached);
        }
    }
}

/// Whether a finished run is the latest of its instance.
async fn is_latest(runtime: &Runtime, found: &RunSummary) -> Result<bool, RunError> {
    match find(runtime, found.id.as_str(), ActionKind::StartAgain).await {
        Ok(TargetRun::Found { run, .. }) => Ok(run == found.run.to_string()),
        Err(error @ RunError::Stopped(_)) => Err(error),
        // A run that cannot be read will count as a failure.
        Ok(TargetRun::Nothing | TargetRun::Unread(_)) | Err(_) => Ok(false),
    }
}

/// The search for targets among the runs that existed when the bulk began.
fn runs_of(
    search: &StoredSearch,
    action: ActionKind,
    started_before_us: u64,
) -> Result<Option<RunSearch>, ActivityError> {
    let search = search.search();
    let search = search.ok_or_else(|| ActivityError::fatal("its filter is of a later version of millrun"))?;
    Ok(action.narrowed(&search).map(|mut search| {
        let before = Timestamp::from_micros(started_before_us);
        search.started.until = search.started.until.min(before);
        search
    }))
}

fn retryable(error: RunError) -> ActivityError {
    ActivityError::retryable(error.to_string())
}

pub(super) fn runtime_of(cx: &ActivityContext) -> Result<Runtime, ActivityError> {
    cx.runtime()
        .map_err(|cause| ActivityError::retryable(cause.to_string()))
}
