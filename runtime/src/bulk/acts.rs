//! The activities of a bulk. Both may run twice: one only looks, and what the other does has no second effect.
//!
//! | act | why it has none |
//! |---|---|
//! | cancel, resume | asking twice is asking once |
//! | terminate | a run ends once |
//! | signal | it has a request, made of the bulk's run and the index of the id |
//! | start again | only in the place of the run that was found: when another has taken the id, it was done |

use futures_util::future::join_all;
use millrun_core::{RunId, Sequence};
use millrun_workflow::{Activity, ActivityError, Event};
use serde::{Deserialize, Serialize};

use super::BulkAction;
use super::order::StoredAction;
use crate::{ActivityContext, OnConflict, RunError, Runtime, StartError, UntypedHandle};

pub(super) const LOOK: Activity<Look, Vec<Option<String>>> = Activity::named("millrun.bulk.look");
pub(super) const ACT: Activity<Act, Vec<Became>> = Activity::named("millrun.bulk.act");

/// How many bytes of a failure's message are kept.
const MESSAGE_BYTES_MAX: usize = 512;

/// Which runs some ids stand for.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Look {
    pub(super) ids: Vec<String>,
    pub(super) action: StoredAction,
}

/// What is to be done to some runs.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Act {
    /// The run of the bulk.
    pub(super) key: String,
    /// The index of the first among all ids.
    pub(super) first: u64,
    /// The run of each id; `None` where there is none to which the action applies.
    pub(super) runs: Vec<Option<String>>,
    pub(super) action: StoredAction,
}

/// What became of an id.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Became {
    Done,
    PassedOver,
    Failed(String),
}

/// The run of an instance, if the action applies to it.
pub(super) async fn find(
    runtime: &Runtime,
    id: &str,
    action: &BulkAction,
) -> Result<Option<RunId>, RunError> {
    let Ok(handle) = runtime.attach_untyped(id) else {
        return Ok(None);
    };
    match handle.describe().await {
        Ok(described) => Ok(action.applies_to(described.status).then_some(described.run)),
        Err(RunError::NotFound | RunError::Expired | RunError::Finished) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) async fn look(cx: ActivityContext, look: Look) -> Result<Vec<Option<String>>, ActivityError> {
    let runtime = runtime_of(&cx)?;
    let action = look.action.into();
    let found = look.ids.iter().map(|id| find(&runtime, id, &action));
    let found = join_all(found).await.into_iter().map(|found| match found {
        Ok(run) => Ok(run.map(|run| run.to_string())),
        Err(error @ RunError::Stopped(_)) => Err(ActivityError::retryable(error.to_string())),
        // What is wrong with it is said by the act.
        Err(_) => Ok(Some(String::new())),
    });
    found.collect()
}

pub(super) async fn act(cx: ActivityContext, act: Act) -> Result<Vec<Became>, ActivityError> {
    let runtime = runtime_of(&cx)?;
    let Act {
        key,
        first,
        runs,
        action,
    } = act;
    let action = action.into();
    let acts = (first..).zip(&runs).map(|(index, run)| {
        let (runtime, action, request) = (&runtime, &action, format!("{key}/{index}"));
        async move {
            let Some(run) = run else {
                return Ok(Became::PassedOver);
            };
            let bits = u128::from_str_radix(run, 16).ok();
            let Some(run) = bits.and_then(RunId::from_bits) else {
                return Ok(Became::Failed("it could not be read".into()));
            };
            match act_on(runtime, run, action, &request).await {
                Ok(became) => Ok(became),
                Err(Undone::Stopped(message)) => Err(ActivityError::retryable(message)),
                Err(Undone::Refused(message)) => Ok(Became::Failed(cut(message))),
            }
        }
    });
    join_all(acts).await.into_iter().collect()
}

fn runtime_of(cx: &ActivityContext) -> Result<Runtime, ActivityError> {
    cx.runtime()
        .map_err(|cause| ActivityError::retryable(cause.to_string()))
}

/// Why something was not done.
enum Undone {
    /// Nobody answered: it may have been done.
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

async fn act_on(runtime: &Runtime, run: RunId, action: &BulkAction, request: &str) -> Result<Became, Undone> {
    let described = match runtime.describe_run(run).await {
        Ok(described) => described,
        Err(RunError::NotFound | RunError::Expired) => return Ok(Became::PassedOver),
        Err(error) => return Err(error.into()),
    };
    let handle: UntypedHandle = runtime.attach_described(&described);
    let told = match action {
        BulkAction::Cancel { reason } => handle.cancel(reason).await,
        BulkAction::Terminate { reason } => handle.terminate(reason).await,
        BulkAction::Resume => handle.resume().await,
        BulkAction::Signal { name, value } => handle.signal_as(name, request, value.clone()).await,
        BulkAction::StartAgain => return start_again(runtime, run, described.id.as_str()).await,
    };
    match told {
        Ok(()) => Ok(Became::Done),
        // Before this, or by an attempt of this whose answer nobody has.
        Err(RunError::Finished | RunError::NotFound | RunError::Expired) => match action {
            BulkAction::Cancel { .. } | BulkAction::Terminate { .. } => Ok(Became::Done),
            _ => Ok(Became::PassedOver),
        },
        Err(error) => Err(error.into()),
    }
}

/// Starts another run of an instance in the place of this one.
async fn start_again(runtime: &Runtime, run: RunId, id: &str) -> Result<Became, Undone> {
    let latest = runtime
        .attach_untyped(id)
        .map_err(|error| Undone::Refused(error.to_string()))?
        .describe()
        .await?;
    if latest.run != run {
        return Ok(Became::Done);
    }
    let page = runtime.history(run, Sequence::ZERO, 1).await?;
    let Some(Event::Started(started)) = page.events.first().map(|first| &first.event) else {
        return Err(Undone::Refused("its input was trimmed".into()));
    };
    let start = runtime.start_untyped(started.workflow.to_string(), id, started.input.clone());
    start.on_conflict(OnConflict::RestartFinished).await?;
    Ok(Became::Done)
}

/// The beginning of a message that is too long.
fn cut(mut message: String) -> String {
    if message.len() > MESSAGE_BYTES_MAX {
        let end = message.floor_char_boundary(MESSAGE_BYTES_MAX);
        message.truncate(end);
    }
    message
}
