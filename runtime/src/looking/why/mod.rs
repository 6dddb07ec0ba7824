//! Why a run makes no progress: what it waits for, followed through its children to the real obstacles.
//!
//! ```text
//!   order-1 (order) waits
//!   ├─ for the signal confirmed
//!   └─ for the child parcel-1 (ship), which waits
//!        └─ for the activity parcels.book: attempt 3 of 20 comes in 9 min; the last one: the carrier does not answer
//! ```

mod collect;
mod print;

use std::panic::Location;

use millrun_core::{InstanceId, RunId, Timestamp};
use millrun_workflow::{ActivityFailure, OperationId, ParkReason, Payload, RecordFilter, RunTry};

use crate::looking::describe::InstanceStatus;

/// Why a run makes no progress; returned by [`RunHandle::why`](crate::RunHandle::why). It is for people:
/// [printed](std::fmt::Display), it is a tree with a line for each wait.
///
/// At most 64 runs are described: the run, its children, their children, and so on. The others are only named by id. For each
/// run at most 256 waits are listed, with the number of [further](Self::more_len) ones. The last error of an activity is
/// searched in the latest 4,096 events of its run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Why {
    /// When it was asked, by the runtime's clock: printed times are relative to it.
    pub asked_at: Timestamp,
    /// The id of the instance.
    pub id: InstanceId,
    /// Its run; if the run that was asked about has continued as new, the latest.
    pub run: RunId,
    /// The workflow's name.
    pub workflow: String,
    /// What the run does.
    pub status: InstanceStatus,
    /// When the last event was recorded.
    pub last_at: Timestamp,
    /// Its waits. If its code does not run, only that; empty if the run has ended.
    pub waits: Vec<Wait>,
    /// How many further waits there are.
    pub more_len: usize,
}

/// One wait of a run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Wait {
    /// The operation, if it is one: waits for signals, conditions and the request to cancel are not.
    pub operation: Option<OperationId>,
    /// Since when, if that is known.
    pub since: Option<Timestamp>,
    /// Where in the code of the workflow, while that is in memory.
    pub at: Option<&'static Location<'static>>,
    /// For what.
    pub what: WaitsFor,
}

/// What a run waits for.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum WaitsFor {
    /// Its code does not run.
    Parked {
        /// The reason, with the difference if the code does not fit the history. `None` if it could not be found out.
        reason: Option<ParkReason>,
        /// When its code is brought back by itself.
        resumes_at: Option<Timestamp>,
    },
    /// No workflow of its name is registered in this program.
    Registration,
    /// Its code is on disk and waits for a signal, a condition or the request to cancel:
    /// [`why_awake`](crate::RunHandle::why_awake) tells which.
    Asleep,
    /// Its code awaits something foreign, or was woken by it: it will be parked.
    Foreign {
        /// With this reason, if it is known already.
        reason: Option<ParkReason>,
    },
    /// The result of an activity.
    Activity(ActivityWait),
    /// The end of a child.
    Child {
        /// Its workflow.
        workflow: String,
        /// Its id.
        id: InstanceId,
        /// Why it makes no progress. `None` while it is being started, if it has ended and the news is on its way, or if the
        /// limit of described runs is reached.
        why: Option<Box<Why>>,
    },
    /// Room in a topic.
    Publish {
        /// The topic.
        topic: String,
        /// Whether it is registered in this program; if not, the value waits until a program that has it is opened.
        is_registered: bool,
        /// The subscriptions of the topic that are full, and make its publishers wait.
        full: Vec<FullInbox>,
    },
    /// A record of a durable topic.
    Record {
        /// The topic.
        topic: String,
        /// The filter for the record.
        filter: RecordFilter,
        /// Whether the topic is registered in this program; if not, the run waits until a program that has it is opened.
        is_registered: bool,
    },
    /// The confirmation that a signal is recorded in another instance's history.
    Delivery {
        /// The workflow of that instance.
        workflow: String,
        /// Its id.
        id: InstanceId,
        /// The name of the signal.
        name: String,
    },
    /// The time at which it begins: its start is [delayed](crate::builders::Start::delayed_by), or it is [another
    /// try](crate::builders::Start::retried).
    StartTime {
        /// That time.
        at: Timestamp,
        /// The number and policy of its try, if it has a retry policy.
        run_try: Option<RunTry>,
    },
    /// A promise that code outside of the run has to keep or break.
    Promise,
    /// A timer.
    Timer {
        /// When it fires.
        deadline: Timestamp,
    },
    /// A signal that was not sent yet.
    Signal {
        /// Its name.
        name: String,
    },
    /// A condition on its state.
    Condition,
    /// The request to cancel.
    CancelRequest,
}

/// A call of an activity that has not ended.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ActivityWait {
    /// The activity.
    pub activity: String,
    /// Its task queue.
    pub queue: String,
    /// The number of the present or next attempt, from 1. It may skip numbers after a crash.
    pub attempt: u32,
    /// How many attempts have failed.
    pub failures: u32,
    /// How many attempts may fail before the call does; see
    /// [`PendingDescription::Activity`](crate::operating::PendingDescription::Activity).
    pub attempts_max: u32,
    /// The state of the attempt.
    pub standing: AttemptStanding,
    /// The error of the last failed attempt.
    pub last_error: Option<ActivityFailure>,
    /// The details of the last heartbeat; for an attempt under way in this process, of the very last.
    pub heartbeat: Option<Payload>,
    /// When the call fails whatever its attempts do.
    pub close_at: Option<Timestamp>,
}

/// The state of an activity's attempt.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum AttemptStanding {
    /// Its activity is not registered in this program, or its queue has no pool.
    NotRegistered,
    /// The store is [read-only](crate::store::ClosedStore): a program that opens it makes the attempt. One may have been
    /// under way when the last program ended.
    NotOpen,
    /// The last attempt failed, and the pause is not over.
    BackingOff {
        /// Until then.
        until: Timestamp,
    },
    /// It waits for its turn.
    Queued {
        /// How many calls wait in its queue, including itself if it has a place there.
        queued_len: usize,
        /// How many places there are; further calls wait in the histories of their runs.
        queue_len_max: usize,
        /// How many attempts of the queue are under way.
        running_len: usize,
        /// How many may be ([`activities_running_max`](crate::RuntimeConfig::activities_running_max),
        /// [`queue_running_max`](crate::RuntimeConfig::queue_running_max)).
        running_max: usize,
        /// When the call fails unless the attempt has begun.
        start_by: Option<Timestamp>,
    },
    /// It is under way.
    Running {
        /// Since then.
        since: Timestamp,
        /// When it fails unless it has ended.
        close_at: Timestamp,
        /// When it fails unless it sends a heartbeat.
        heartbeat_by: Option<Timestamp>,
    },
}

/// A subscription whose inbox is full.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FullInbox {
    /// Its name, or its filter if it has none.
    pub subscription: String,
    /// How many envelopes wait there, including those that its reader has taken.
    pub queued: usize,
    /// Its capacity.
    pub capacity: usize,
}

impl Why {
    /// The real obstacles: the waits of the run, with a wait for a child replaced by the child's own waits, and so on; each
    /// with the run that waits.
    #[must_use]
    pub fn leaves(&self) -> Vec<(&Self, &Wait)> {
        let mut leaves = Vec::new();
        for wait in &self.waits {
            match &wait.what {
                WaitsFor::Child { why: Some(why), .. } if !why.waits.is_empty() => {
                    leaves.extend(why.leaves())
                }
                _ => leaves.push((self, wait)),
            }
        }
        leaves
    }
}
