//! The workflows around a run that a schedule has started: one waits for its end, others stop the run.
//!
//! ```text
//!   schedule ──► millrun.schedule.action ──► the user's run, as its child
//!      ▲                    │ its end
//!      └────── ended ◄──────┘
//!   schedule ──► millrun.schedule.cancel, .terminate ──► the user's run
//!   schedule ──► millrun.schedule.check ──► is there the .action? else: the user's run ──► ended
//! ```
//!
//! A schedule is an entity, and an entity is not told how its runs end, but a parent is told how its child ends. If that
//! parent was terminated, nothing is told, so a schedule whose due times wait for the run has it checked, rarely. The
//! activities have a built-in task queue: the user's queues may be full of calls that take hours.

use std::time::Duration;

use millrun_workflow::{
    Activity, ActivityError, ChildError, ParentClose, Payload, Retry, Workflow, WorkflowContext,
    WorkflowError,
};
use serde::{Deserialize, Serialize};

use super::ActionEnd;
use super::deciding::{ENDED, EndedOrder, SCHEDULE};
use super::state::ScheduleAction;
use crate::builtin::id_of;
use crate::looking::changes::cut_to;
use crate::looking::describe::{InstanceDescription, InstanceStatus};
use crate::opening::registry::{Definition, Registration};
use crate::{ActivityContext, CommandError, ResultError, RunError, Runtime, UntypedHandle};

pub(super) const FOLLOW: Workflow<FollowOrder, ()> = Workflow::named("millrun.schedule.action");
pub(super) const CANCEL_OTHER: Workflow<StopOrder, ()> = Workflow::named("millrun.schedule.cancel");
pub(super) const TERMINATE_OTHER: Workflow<StopOrder, ()> = Workflow::named("millrun.schedule.terminate");

pub(super) const CHECK_OTHER: Workflow<CheckOrder, ()> = Workflow::named("millrun.schedule.check");

/// The task queue of the activities that follow and stop runs.
const QUEUE: &str = "millrun.schedules";

const TELL_ENDED: Activity<TellEnded, ()> = Activity::named("millrun.schedule.tell").on_queue(QUEUE);
const CANCEL: Activity<StopOrder, ()> = Activity::named("millrun.schedule.cancel-run").on_queue(QUEUE);
const TERMINATE: Activity<StopOrder, ()> = Activity::named("millrun.schedule.terminate-run").on_queue(QUEUE);
const LOOK: Activity<CheckOrder, Option<ActionEnd>> =
    Activity::named("millrun.schedule.look").on_queue(QUEUE);

/// How long one attempt to tell or to stop may take.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(60);

/// How many bytes of the reason are kept when a run was not started.
pub(super) const MESSAGE_BYTES_MAX: usize = 512;

/// How often a run that has to be stopped is looked for: after a crash, its start may still follow.
const STOP_ATTEMPTS_MAX: u32 = 10;

/// The code around the runs of schedules.
pub(super) fn registrations() -> [Registration; 8] {
    [
        Definition::bind(FOLLOW, follow),
        Definition::bind(CANCEL_OTHER, cancel_other),
        Definition::bind(TERMINATE_OTHER, terminate_other),
        Definition::bind(CHECK_OTHER, check_other),
        Definition::bind(LOOK, look),
        Definition::bind(TELL_ENDED, tell_ended),
        Definition::bind(CANCEL, cancel),
        Definition::bind(TERMINATE, terminate),
    ]
}

/// A run that is to be started and waited for.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FollowOrder {
    pub(super) schedule: String,
    pub(super) action: ScheduleAction,
    pub(super) workflow: String,
    pub(super) id: String,
    /// A payload.
    #[serde(with = "serde_bytes")]
    pub(super) input: Vec<u8>,
}

/// A run to be stopped.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct StopOrder {
    pub(super) schedule: String,
    pub(super) id: String,
}

/// A run for which to check whether it is followed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct CheckOrder {
    pub(super) schedule: String,
    pub(super) action: ScheduleAction,
    pub(super) workflow: String,
    pub(super) id: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct TellEnded {
    schedule: String,
    ended: EndedOrder,
}

async fn follow(cx: WorkflowContext, order: FollowOrder) -> Result<(), WorkflowError> {
    // Even if this was cancelled, the schedule must be told.
    let cx = cx.shielded();
    let FollowOrder {
        schedule,
        action,
        workflow,
        id,
        input,
    } = order;
    let run = cx
        .child_untyped(workflow, id, Payload::from_bytes(input.into()))
        .on_close(ParentClose::Abandon);
    let end = match run.await {
        Ok(_) => ActionEnd::Completed,
        // Schedules start runs that may take their time; one that a program has bounded has failed.
        Err(ChildError::Failed(_) | ChildError::TimedOut(_)) => ActionEnd::Failed,
        Err(ChildError::WasCancelled(_)) => ActionEnd::Cancelled,
        Err(ChildError::Terminated { .. }) => ActionEnd::Terminated,
        Err(ChildError::NotStarted { message }) => not_started(message),
        Err(error) => not_started(error.to_string()),
    };
    tell(&cx, schedule, EndedOrder { action, end }).await
}

async fn tell(cx: &WorkflowContext, schedule: String, ended: EndedOrder) -> Result<(), WorkflowError> {
    let tell = cx.call(TELL_ENDED, TellEnded { schedule, ended });
    tell.start_to_close(ATTEMPT_TIMEOUT)
        .retry(Retry::exponential().attempts(u32::MAX))
        .await?;
    Ok(())
}

fn not_started(message: String) -> ActionEnd {
    let message = cut_to(message, MESSAGE_BYTES_MAX);
    ActionEnd::NotStarted { message }
}

async fn check_other(cx: WorkflowContext, order: CheckOrder) -> Result<(), WorkflowError> {
    let look = cx.call(LOOK, order.clone()).start_to_close(ATTEMPT_TIMEOUT);
    let end = look.retry(Retry::exponential().attempts(u32::MAX)).await?;
    let CheckOrder { schedule, action, .. } = order;
    match end {
        Some(end) => tell(&cx, schedule, EndedOrder { action, end }).await,
        None => Ok(()),
    }
}

async fn cancel_other(cx: WorkflowContext, order: StopOrder) -> Result<(), WorkflowError> {
    stop(cx, CANCEL, order).await
}

async fn terminate_other(cx: WorkflowContext, order: StopOrder) -> Result<(), WorkflowError> {
    stop(cx, TERMINATE, order).await
}

async fn stop(
    cx: WorkflowContext,
    by: Activity<StopOrder, ()>,
    order: StopOrder,
) -> Result<(), WorkflowError> {
    let retry = Retry::exponential().attempts(STOP_ATTEMPTS_MAX);
    let stop = cx.call(by, order).start_to_close(ATTEMPT_TIMEOUT);
    Ok(stop.retry(retry).await?)
}

/// May run twice: a schedule ignores the second.
async fn tell_ended(cx: ActivityContext, tell: TellEnded) -> Result<(), ActivityError> {
    let schedule = runtime_of(&cx)?.entity(SCHEDULE, &tell.schedule);
    match schedule.call(ENDED, tell.ended).await {
        // Rejected, because the schedule was deleted meanwhile.
        Ok(()) | Err(CommandError::Rejected(_)) => Ok(()),
        Err(error) => Err(ActivityError::retryable(error.to_string())),
    }
}

/// How the run of an action has ended; `None` if it is followed, or still going on.
async fn look(cx: ActivityContext, order: CheckOrder) -> Result<Option<ActionEnd>, ActivityError> {
    let runtime = runtime_of(&cx)?;
    let is_live = |found: &InstanceDescription| found.status != InstanceStatus::Finished;
    let follower = runtime.attach_untyped(&id_of(FOLLOW.name(), &order.id))?;
    if known(&follower).await?.as_ref().is_some_and(is_live) {
        return Ok(None);
    }
    let run = runtime.attach_untyped(&order.id)?;
    match known(&run).await? {
        Some(found) if found.workflow != order.workflow => Ok(Some(lost())),
        None => Ok(Some(lost())),
        Some(found) if is_live(&found) => Ok(None),
        Some(_) => match run.result().await {
            Ok(_) => Ok(Some(ActionEnd::Completed)),
            Err(ResultError::Failed(_) | ResultError::TimedOut(_) | ResultError::Payload(_)) => {
                Ok(Some(ActionEnd::Failed))
            }
            Err(ResultError::Cancelled(_)) => Ok(Some(ActionEnd::Cancelled)),
            Err(ResultError::Terminated { .. }) => Ok(Some(ActionEnd::Terminated)),
            Err(ResultError::Run(RunError::NotFound | RunError::Expired)) => Ok(Some(lost())),
            Err(error) => Err(ActivityError::retryable(error.to_string())),
        },
    }
}

fn lost() -> ActionEnd {
    not_started("what follows the run was terminated or lost, and there is no such run".into())
}

/// The instance, live or ended; `None` if it is unknown.
async fn known(instance: &UntypedHandle) -> Result<Option<InstanceDescription>, ActivityError> {
    match instance.describe().await {
        Ok(described) => Ok(Some(described)),
        Err(RunError::NotFound | RunError::Expired) => Ok(None),
        Err(error) => Err(ActivityError::retryable(error.to_string())),
    }
}

async fn cancel(cx: ActivityContext, order: StopOrder) -> Result<(), ActivityError> {
    let handle = runtime_of(&cx)?.attach_untyped(&order.id)?;
    stopped(handle.cancel(&reason(&order)).await)
}

async fn terminate(cx: ActivityContext, order: StopOrder) -> Result<(), ActivityError> {
    let handle = runtime_of(&cx)?.attach_untyped(&order.id)?;
    stopped(handle.terminate(&reason(&order)).await)
}

fn reason(order: &StopOrder) -> String {
    format!("the schedule {:?} is due again", order.schedule)
}

fn stopped(told: Result<(), RunError>) -> Result<(), ActivityError> {
    match told {
        Ok(()) | Err(RunError::Finished | RunError::Expired) => Ok(()),
        Err(error) => Err(ActivityError::retryable(error.to_string())),
    }
}

fn runtime_of(cx: &ActivityContext) -> Result<Runtime, ActivityError> {
    cx.runtime()
        .map_err(|cause| ActivityError::retryable(cause.to_string()))
}
