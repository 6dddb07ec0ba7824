//! Where a run is reset to, and why it cannot be.
//!
//! ```text
//!   1 Started ─ 2 call of a ─ 3 a completed ─ 4 call of b ─ 5 b failed ─ 6 Failed      the history
//!                             ▲               ▲
//!                             │               └─ to 4: b runs again
//!                             └─ to 3: the code is shown that a has completed, and decides again what follows
//! ```

use millrun_core::{InstanceId, RunId, Sequence, Timestamp};
use serde::{Deserialize, Serialize};

use crate::event::{Event, Nondeterminism};

/// How far back a run is reset, and what becomes of what it was told since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ResetPoint {
    /// The last event that is kept.
    pub to: Sequence,
    /// The run whose event that is; `None` for the latest run of the instance.
    pub run: Option<RunId>,
    /// What becomes of the signals and updates behind that event.
    pub later: LaterSignals,
    /// Why the run is reset; it stands in the last event of the former run.
    pub reason: String,
}

/// What becomes of the signals and updates that a run was told behind the event to which it is reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LaterSignals {
    /// The new run knows nothing of them: a signal or update that is sent again under the same request is taken again.
    #[default]
    Drop,
    /// The new run is told them again in their order, as soon as it has begun. An update is performed again, and may be answered
    /// otherwise; one that the run rejects as it is now is left out.
    Keep,
}

impl LaterSignals {
    /// Whether the new run is told this event again, if it stands behind the point.
    #[must_use]
    pub fn keeps(self, event: &Event) -> bool {
        let is_told = matches!(
            event,
            Event::SignalReceived { .. } | Event::RunSignalReceived { .. } | Event::UpdateAccepted { .. }
        );
        self == Self::Keep && is_told
    }
}

impl ResetPoint {
    /// The point behind the event of this number, as a history numbers them from 1. If it is one that is shown to the code, as the
    /// end of an activity is, the code decides again what follows it; if it is a decision, the last of its turn, all decisions up
    /// to it stay.
    #[must_use]
    pub fn to_event(number: u64) -> Self {
        Self {
            to: Sequence::new(number),
            run: None,
            later: LaterSignals::Drop,
            reason: String::new(),
        }
    }

    /// As it is, of this run: if another is the latest of the instance by then, nothing is reset.
    #[must_use]
    pub fn of_run(mut self, run: RunId) -> Self {
        self.run = Some(run);
        self
    }

    /// As it is, with the signals and updates behind the event [kept](LaterSignals::Keep).
    #[must_use]
    pub fn keep_signals(mut self) -> Self {
        self.later = LaterSignals::Keep;
        self
    }

    /// As it is, for this reason.
    #[must_use]
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.reason = reason.into();
        self
    }
}

/// Why a run was not reset, or is not shown as it was at an event: nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ResetRefused {
    /// The history has no event of this number.
    #[error("the history has events 1 to {head}, and no event {to}: choose one of them")]
    NoEvent {
        /// The number that was asked for.
        to: Sequence,
        /// That of the last event.
        head: Sequence,
    },
    /// The event is the run's end, behind which nothing can follow.
    #[error("event {to} is the end of the run: reset to an event before it")]
    End {
        /// Its number.
        to: Sequence,
    },
    /// The event stands among the decisions that the code made at once, which are kept or dropped together.
    #[error(
        "event {to} stands among the decisions that follow event {input} at once: reset to {input}, and the code decides them \
         again{}", or_keep_all(.last)
    )]
    AmongDecisions {
        /// Its number.
        to: Sequence,
        /// The number of the event that led to the decisions.
        input: Sequence,
        /// The number of the last of them, unless that ends the run.
        last: Option<Sequence>,
    },
    /// The first events are gone, without which none can be decided again: a checkpoint has taken their place.
    #[error(
        "the history was trimmed, and begins with event {first}: the run cannot be reset, nor shown as it was before that; start it \
         anew, and let runs to come keep theirs (keep_history)"
    )]
    Trimmed {
        /// The number that was asked for.
        to: Sequence,
        /// That of the first event that is left.
        first: Sequence,
    },
    /// The code of the run did not run at that event.
    #[error(
        "at event {to} the run was parked, by event {parked}: reset to an event before that, or behind its Resumed"
    )]
    Parked {
        /// The number that was asked for.
        to: Sequence,
        /// That of the event that says so.
        parked: Sequence,
    },
    /// A child was waited for at that event, and belongs to the former run.
    #[error(
        "at event {to} the run waits for its child {:?}, which it called with event {call}: reset to an event before that, or to \
         one at which the child has ended", .child.as_str()
    )]
    ChildRuns {
        /// The number that was asked for.
        to: Sequence,
        /// The child.
        child: InstanceId,
        /// The number of the event that called it.
        call: Sequence,
    },
    /// A child of the run, which is live, still runs.
    #[error(
        "the child {:?} of the run still runs: wait until it has ended, or end it, so that the run which begins can call it \
         again", .child.as_str()
    )]
    ChildLives {
        /// The child.
        child: InstanceId,
    },
    /// A promise was waited for at that event, whose token names the former run.
    #[error(
        "at event {to} the run waits for the promise of event {made}, whose token names this run: reset to an event before that, so \
         that another promise is made, or to one at which it was kept or broken"
    )]
    PromiseWaits {
        /// The number that was asked for.
        to: Sequence,
        /// That of the event that made the promise.
        made: Sequence,
    },
    /// A call of an activity was waited for at that event, and the time that it had since it was issued is over.
    #[error(
        "at event {to} the run waits for the call of event {call}, whose schedule-to-close or schedule-to-start timeout has passed \
         since: reset to an event before that, so that it is issued anew"
    )]
    CallTimedOut {
        /// The number that was asked for.
        to: Sequence,
        /// That of the event that issued the call.
        call: Sequence,
    },
    /// The time of the run's chain is over, which goes on from the start of the instance.
    #[error(
        "the chain timeout of the run passed at {at} (seconds since 1970), so that it would be out of time at once: start it anew"
    )]
    ChainTimedOut {
        /// When it passed.
        at: Timestamp,
    },
    /// The code does not decide again what the history has up to that event.
    #[error("nothing was reset: {0}")]
    DoesNotFit(Box<Nondeterminism>),
    /// The code panics or gets stuck as it goes on from there.
    #[error("nothing was reset, for the code does not go on from there: {reason}")]
    Fails {
        /// What it does.
        reason: String,
    },
    /// The code of the run's workflow is not registered.
    #[error("version {version} of the workflow {workflow:?} is not registered: register it, and reset then")]
    NoCode {
        /// The name of the workflow.
        workflow: String,
        /// The version that the run needs.
        version: u32,
    },
    /// The run is an entity's, or one of a workflow of millrun's own.
    #[error("runs of {workflow:?} cannot be reset: only those of workflows can, and not millrun's own")]
    NoWorkflow {
        /// The name.
        workflow: String,
    },
    /// One of the signals that were to be kept cannot be told to the new run.
    #[error("the signal {name:?} that came later cannot be kept: {problem}")]
    Signal {
        /// Its name.
        name: String,
        /// Why.
        problem: String,
    },
    /// One of the updates that were to be kept cannot be told to the new run, for another reason than that it is rejected.
    #[error("the update {name:?} that came later cannot be kept: {problem}")]
    Update {
        /// Its name.
        name: String,
        /// Why.
        problem: String,
    },
    /// The events that are kept, with what the code makes of them, are more than one turn may have.
    #[error(
        "the events to keep have {bytes} bytes at least, and a turn may have {bytes_max}: raise journal.turn_bytes_max, or reset \
         further back"
    )]
    TooLarge {
        /// Their size, as far as they were read.
        bytes: usize,
        /// The limit, `journal.turn_bytes_max`.
        bytes_max: usize,
    },
    /// Another run is the latest of the instance by now, and only that can be reset.
    #[error("the latest run of the instance is {latest}: reset that, by the numbers of its own events")]
    NotLatest {
        /// That run.
        latest: RunId,
    },
    /// The run was a child and has ended, which its parent knows.
    #[error(
        "the run was a child and has ended, which its parent, run {parent}, was told: reset the parent, or start it by itself"
    )]
    EndedChild {
        /// The run of its parent.
        parent: RunId,
    },
    /// There are as many live runs as there may be, and the run that is reset has ended.
    #[error("there are {len_max} live runs, as many as live_len_max allows: reset it when some have ended")]
    TooManyLive {
        /// The limit.
        len_max: usize,
    },
}

fn or_keep_all(last: &Option<Sequence>) -> String {
    last.map_or_else(String::new, |last| {
        format!(", or to {last}, the last of them, and all are kept")
    })
}

/// How a history is cut at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResetCut {
    /// How many events are kept as they are.
    pub(crate) kept_len: usize,
    /// Whether the next event is kept too, and shown to the code anew.
    pub(crate) shows_next: bool,
}

impl ResetCut {
    /// Where events, numbered from 1, are cut.
    ///
    /// # Errors
    /// When there is nothing to be cut there.
    pub(crate) fn at(to: Sequence, events: &[Event]) -> Result<Self, ResetRefused> {
        let head = Sequence::new(events.len() as u64);
        let index = usize::try_from(to.get()).ok().and_then(|to| to.checked_sub(1));
        let Some((index, event)) = index.and_then(|index| Some((index, events.get(index)?))) else {
            return Err(ResetRefused::NoEvent { to, head });
        };
        if event.is_last() {
            return Err(ResetRefused::End { to });
        }
        let is_followed = events.get(index + 1).is_some_and(Event::is_decision);
        if event.is_decision() && is_followed {
            let before = events[..index].iter().rposition(|event| !event.is_decision());
            let behind = events[index..].iter().take_while(|event| event.is_decision());
            let last = behind.clone().last().is_some_and(|last| !last.is_last());
            return Err(ResetRefused::AmongDecisions {
                to,
                input: number(before.unwrap_or_default()),
                last: last.then(|| number(index + behind.count() - 1)),
            });
        }
        let shows_next = is_shown(event);
        Ok(Self {
            kept_len: index + usize::from(!shows_next),
            shows_next,
        })
    }
}

/// The number of the event at an index.
pub(crate) fn number(index: usize) -> Sequence {
    Sequence::new(index as u64 + 1)
}

/// Whether the code is shown an event, and may decide something of it.
fn is_shown(event: &Event) -> bool {
    let is_note = matches!(
        event,
        Event::AttemptFailed { .. }
            | Event::AttemptStarted { .. }
            | Event::AttemptHeartbeat { .. }
            | Event::ChildStarted { .. }
            | Event::PublishParked { .. }
            | Event::Parked { .. }
            | Event::VersionChanged { .. }
    );
    !is_note && !event.is_decision() && !event.is_last()
}
