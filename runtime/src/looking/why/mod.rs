//! Why a run does not go on: what it waits for, followed through its children to what holds them up.
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

/// Why a run does not go on; given by [`RunHandle::why`](crate::RunHandle::why). It is for people:
/// [printed](std::fmt::Display), it is a tree with a line for each thing that is waited for.
///
/// At most 64 runs are described: the one that was asked about, its children, their children, and so on. Of the rest
/// only the ids are told. Of each run at most 256 waits are told, and how many [more](Self::more_len) there are. The
/// last error of an activity is looked for in the latest 4,096 events of its run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Why {
    /// When it was asked, by the runtime's clock: printed times count from then.
    pub asked_at: Timestamp,
    /// The id of the instance.
    pub id: InstanceId,
    /// Its run; if the one that was asked about has continued as new, the latest.
    pub run: RunId,
    /// The workflow's name.
    pub workflow: String,
    /// What the run does.
    pub status: InstanceStatus,
    /// When the last event was recorded: since then nothing has happened to it.
    pub last_at: Timestamp,
    /// What it waits for. If its code does not run, that alone; empty if the run has ended.
    pub waits: Vec<Wait>,
    /// How many more waits there are than are told.
    pub more_len: usize,
}

/// One thing that a run waits for.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Wait {
    /// The operation, if it is one: signals, conditions and the request to cancel are none.
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
        /// Why, with the difference if it does not fit its history. `None` if that could not be found out.
        reason: Option<ParkReason>,
        /// When its code is brought back by itself.
        resumes_at: Option<Timestamp>,
    },
    /// No workflow of its name is registered in this program.
    Registration,
    /// Its code is on disk and waits for a signal, a condition or the request to cancel: for which,
    /// [`why_awake`](crate::RunHandle::why_awake) tells.
    Asleep,
    /// Its code awaits something that is none of the context's, or was woken by such: it will be parked.
    Foreign {
        /// With this reason, if it is known by now.
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
        /// Why it does not go on. `None` while it is being started, if it has ended and its end is on the way, or if
        /// more runs would have to be described than are.
        why: Option<Box<Why>>,
    },
    /// Room in a topic.
    Publish {
        /// The topic.
        topic: String,
        /// Whether it is registered in this program; if not, the value waits until one is opened that has it.
        is_registered: bool,
        /// The subscriptions of the topic that are full, and make its publishers wait.
        full: Vec<FullInbox>,
    },
    /// A record of a durable topic.
    Record {
        /// The topic.
        topic: String,
        /// What the record has.
        filter: RecordFilter,
        /// Whether the topic is registered in this program; if not, the run waits until one is opened that has it.
        is_registered: bool,
    },
    /// That a signal is recorded in the history of another instance.
    Delivery {
        /// The workflow of that instance.
        workflow: String,
        /// Its id.
        id: InstanceId,
        /// The name of the signal.
        name: String,
    },
    /// The time at which it begins: its start is [delayed](crate::builders::Start::delayed_by), or it is
    /// [tried again](crate::builders::Start::retried).
    StartTime {
        /// That time.
        at: Timestamp,
        /// Which try it is, if it is tried again when it fails.
        run_try: Option<RunTry>,
    },
    /// That code outside of the run keeps or breaks a promise.
    Promise,
    /// A timer.
    Timer {
        /// When it fires.
        deadline: Timestamp,
    },
    /// A signal that nobody has sent.
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
    /// The attempt under way or next, from 1. Numbers grow by more than one where a crash came between.
    pub attempt: u32,
    /// How many attempts have failed.
    pub failures: u32,
    /// How many attempts may fail before the call does; see
    /// [`PendingDescription::Activity`](crate::operating::PendingDescription::Activity).
    pub attempts_max: u32,
    /// Where the attempt stands.
    pub standing: AttemptStanding,
    /// What the last attempt that failed ended with.
    pub last_error: Option<ActivityFailure>,
    /// What the last heartbeat said; of an attempt under way in this process, the very last.
    pub heartbeat: Option<Payload>,
    /// When the call fails whatever its attempts do.
    pub close_at: Option<Timestamp>,
}

/// Where an attempt of an activity stands.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum AttemptStanding {
    /// Its activity, or one on its queue, is not registered in this program.
    NotRegistered,
    /// The store is [only read](crate::store::ClosedStore): a program that opens it makes the attempt. One may have been
    /// under way when the last one ended.
    NotOpen,
    /// The one before failed, and a pause is kept.
    BackingOff {
        /// Until then.
        until: Timestamp,
    },
    /// It waits for its turn.
    Queued {
        /// How many calls wait in its queue, itself among them if it has a place there.
        queued_len: usize,
        /// How many have a place there; what is beyond that waits in the histories of its runs.
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
        /// When it fails unless a heartbeat has been given.
        heartbeat_by: Option<Timestamp>,
    },
}

/// A subscription whose inbox is full.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FullInbox {
    /// Its name, or what it selects if it has none.
    pub subscription: String,
    /// How many envelopes wait there, those in its reader's hand among them.
    pub queued: usize,
    /// How many have room.
    pub capacity: usize,
}

impl Why {
    /// What holds the run up in the end: its own waits, with those of a child in the place of the wait for that child,
    /// and so on. Each with the run that waits.
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
