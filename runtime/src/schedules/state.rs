//! The state of a schedule's run: its events, and their fold.

use std::collections::VecDeque;

use millrun_workflow::EntityState;
use serde::{Deserialize, Serialize};

use super::times::StoredSchedule;
use super::{ActionEnd, BACKFILL_LEN_MAX, OverlapPolicy, ScheduleCounts};

/// How many of its latest actions a schedule shows.
pub const RECENT_ACTIONS_LEN_MAX: usize = 10;

/// Why a run is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Occasion {
    #[serde(rename = "d")]
    Due,
    #[serde(rename = "t")]
    Triggered(u64),
    /// The number of the backfill: the time of its request or a little later, so that it is unique.
    #[serde(rename = "b")]
    Backfilled(u64),
}

/// A run that is to be started, or was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ScheduleAction {
    #[serde(rename = "o")]
    pub(super) occasion: Occasion,
    /// The due time, or the time of the trigger.
    #[serde(rename = "d")]
    pub(super) due_us: u64,
}

impl ScheduleAction {
    /// The id of the run's instance, which contains the due time: in UTC, in the form of RFC 3339. The id of a schedule may
    /// have slashes, but a time has none. So the part behind the last slash determines the occasion, and the rest the
    /// schedule: no two actions have the same id.
    pub(super) fn run_id(self, schedule: &str) -> String {
        let time = |micros: u64| {
            let micros = i64::try_from(micros).unwrap_or(i64::MAX);
            jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::MAX)
        };
        let due = time(self.due_us);
        match self.occasion {
            Occasion::Due => format!("{schedule}/{due}"),
            Occasion::Triggered(number) => format!("{schedule}/{due}/trigger-{number}"),
            Occasion::Backfilled(number) => {
                let asked = time(number);
                format!("{schedule}/{due}/backfill-{asked}")
            }
        }
    }
}

/// The next due time, recorded when it was computed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NextAction {
    pub(super) due_us: u64,
    /// When it is used: later by the jitter.
    pub(super) at_us: u64,
    /// The version of the zone data with which it was computed.
    pub(super) zone_data: String,
}

/// One of the latest actions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RecentAction {
    pub(super) action: ScheduleAction,
    pub(super) started_us: u64,
    /// Whether its end is waited for.
    pub(super) is_followed: bool,
    pub(super) end: Option<ActionEnd>,
}

/// A backfill under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BackfillOrder {
    pub(super) number: u64,
    /// The next due times are behind this time.
    pub(super) after_us: u64,
    /// The end of the range.
    pub(super) through_us: u64,
    pub(super) overlap: Option<OverlapPolicy>,
    /// How many more due times it uses.
    #[serde(default = "backfill_left")]
    pub(super) left: u32,
}

fn backfill_left() -> u32 {
    BACKFILL_LEN_MAX
}

/// The progress of a schedule.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct ScheduleProgress {
    /// The note of the pause, if it is paused.
    pub(super) paused: Option<String>,
    /// The note of the last resume.
    pub(super) resumed: Option<String>,
    pub(super) next: Option<NextAction>,
    /// The action whose run's end is waited for.
    pub(super) running: Option<ScheduleAction>,
    /// When to check whether that run is still followed, if something waits for its end.
    #[serde(default)]
    pub(super) check_at_us: Option<u64>,
    /// How often that was checked.
    #[serde(default)]
    pub(super) checks_len: u32,
    /// Actions that wait for its end.
    pub(super) waiting: VecDeque<ScheduleAction>,
    pub(super) backfills: VecDeque<BackfillOrder>,
    /// Due times that have come and are not used yet, in order.
    #[serde(default)]
    pub(super) backlog: VecDeque<u64>,
    /// The latest due time that was used or skipped.
    #[serde(default)]
    pub(super) reached_us: u64,
    pub(super) actions_left: Option<u64>,
    pub(super) triggers_len: u64,
    /// The number of the last backfill.
    pub(super) backfill: u64,
    pub(super) counts: ScheduleCounts,
    /// The latest last.
    pub(super) recent: VecDeque<RecentAction>,
    pub(super) created_us: u64,
    pub(super) updated_us: u64,
}

/// The state of a schedule's run. Without a description the schedule does not exist: it was never made, or was deleted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct ScheduleState {
    pub(super) described: Option<StoredSchedule>,
    pub(super) progress: ScheduleProgress,
}

/// An event of a schedule.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum ScheduleEvent {
    /// It was made, or its settings were replaced.
    Described {
        schedule: Box<StoredSchedule>,
        at_us: u64,
    },
    Paused {
        note: String,
    },
    Resumed {
        note: String,
    },
    /// The next due time was computed.
    Planned(Option<NextAction>),
    /// Due times were missed: they were before the catch-up window, or too many had come.
    Missed {
        len: u64,
        /// The last of them.
        through_us: u64,
    },
    /// These due times have come, and are used in later turns.
    Backlogged(Vec<u64>),
    /// This many of them are dropped, the oldest.
    BacklogDropped {
        len: usize,
    },
    /// An action was skipped, because another one is running or waiting.
    Skipped(ScheduleAction),
    /// Waiting actions were dropped for a later one.
    Replaced {
        len: u64,
    },
    /// An action waits for the end of another.
    Buffered(ScheduleAction),
    Started {
        action: ScheduleAction,
        at_us: u64,
        is_followed: bool,
    },
    Ended {
        action: ScheduleAction,
        end: ActionEnd,
    },
    /// A run was not started that is not among the latest actions.
    NotStarted,
    /// Something waits for the end of the present run: a check whether that is still followed is planned.
    CheckPlanned {
        at_us: u64,
    },
    /// The check was made.
    Checked,
    BackfillAsked(BackfillOrder),
    BackfillReached {
        after_us: u64,
    },
    BackfillDone,
}

impl EntityState for ScheduleState {
    type Event = ScheduleEvent;

    fn begin(_id: &str) -> Self {
        Self::default()
    }

    fn apply(&mut self, event: ScheduleEvent) {
        self.progress.apply(&event);
        if let ScheduleEvent::Described { schedule, .. } = event {
            self.described = Some(*schedule);
        }
    }
}

impl ScheduleProgress {
    /// Folds an event.
    pub(super) fn apply(&mut self, event: &ScheduleEvent) {
        match event {
            ScheduleEvent::Described { schedule, at_us } => {
                if self.created_us == 0 {
                    self.created_us = *at_us;
                }
                self.updated_us = *at_us;
                self.actions_left = schedule.actions_len_max;
            }
            ScheduleEvent::Paused { note } => self.paused = Some(note.clone()),
            ScheduleEvent::Resumed { note } => {
                self.paused = None;
                self.resumed = Some(note.clone());
            }
            ScheduleEvent::Planned(next) => self.next.clone_from(next),
            ScheduleEvent::Missed { len, through_us } => {
                self.counts.missed_len += len;
                self.reached_us = *through_us;
            }
            ScheduleEvent::Backlogged(due_us) => self.backlog.extend(due_us),
            ScheduleEvent::BacklogDropped { len } => drop(self.backlog.drain(..*len)),
            ScheduleEvent::Skipped(action) => {
                self.counts.skipped_len += 1;
                self.reach(*action);
            }
            ScheduleEvent::Replaced { len } => {
                // A skipped due time does not count for the limit of actions.
                let is_due = |action: &ScheduleAction| action.occasion == Occasion::Due;
                let due_len = self.waiting.drain(..).filter(is_due).count() as u64;
                self.actions_left = self.actions_left.map(|left| left.saturating_add(due_len));
                self.counts.skipped_len += len;
            }
            ScheduleEvent::Buffered(action) => {
                self.waiting.push_back(*action);
                self.count(*action);
            }
            ScheduleEvent::Started {
                action,
                at_us,
                is_followed,
            } => self.start(*action, *at_us, *is_followed),
            ScheduleEvent::Ended { action, end } => self.end(*action, end),
            ScheduleEvent::NotStarted => self.counts.not_started_len += 1,
            ScheduleEvent::CheckPlanned { at_us } => self.check_at_us = Some(*at_us),
            ScheduleEvent::Checked => {
                self.check_at_us = None;
                self.checks_len = self.checks_len.saturating_add(1);
            }
            ScheduleEvent::BackfillAsked(order) => {
                self.backfill = order.number;
                self.backfills.push_back(order.clone());
            }
            ScheduleEvent::BackfillReached { after_us } => {
                if let Some(order) = self.backfills.front_mut() {
                    order.after_us = *after_us;
                    order.left = order.left.saturating_sub(1);
                }
            }
            ScheduleEvent::BackfillDone => drop(self.backfills.pop_front()),
        }
    }

    /// Notes that a due time is used or skipped.
    fn reach(&mut self, action: ScheduleAction) {
        if action.occasion == Occasion::Due {
            self.reached_us = action.due_us;
            if self.backlog.front() == Some(&action.due_us) {
                self.backlog.pop_front();
            }
        }
    }

    /// Notes that an action is taken: at once, or when another one has ended.
    fn count(&mut self, action: ScheduleAction) {
        self.reach(action);
        match action.occasion {
            Occasion::Due => self.actions_left = self.actions_left.map(|left| left.saturating_sub(1)),
            Occasion::Triggered(number) => self.triggers_len = number,
            Occasion::Backfilled(_) => {}
        }
    }

    fn start(&mut self, action: ScheduleAction, started_us: u64, is_followed: bool) {
        if self.waiting.front() == Some(&action) {
            self.waiting.pop_front();
        } else {
            self.count(action);
        }
        self.counts.started_len += 1;
        if is_followed {
            self.running = Some(action);
        }
        if self.recent.len() == RECENT_ACTIONS_LEN_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(RecentAction {
            action,
            started_us,
            is_followed,
            end: None,
        });
    }

    fn end(&mut self, action: ScheduleAction, end: &ActionEnd) {
        if self.running == Some(action) {
            self.running = None;
            (self.check_at_us, self.checks_len) = (None, 0);
        }
        match end {
            ActionEnd::Completed => self.counts.completed_len += 1,
            ActionEnd::NotStarted { .. } => self.counts.not_started_len += 1,
            ActionEnd::Failed | ActionEnd::Cancelled | ActionEnd::Terminated => {
                self.counts.failed_len += 1;
            }
        }
        let mut recent = self.recent.iter_mut().rev();
        if let Some(recent) = recent.find(|recent| recent.action == action) {
            recent.end = Some(end.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Regression: the schedule `s/backfill-1` had runs with the ids of the first backfill of `s`.
    #[test]
    fn no_two_actions_have_one_id_whatever_slashes_are_in_those_of_their_schedules() {
        let due_us = 1_780_000_000_000_000;
        let action = |occasion, due_us| ScheduleAction { occasion, due_us };
        let mut schedules = BTreeSet::from(["s".to_owned(), "s/backfill-1".into(), "s/trigger-1".into()]);
        let occasions = [
            Occasion::Due,
            Occasion::Triggered(1),
            Occasion::Triggered(2),
            Occasion::Backfilled(1),
            Occasion::Backfilled(due_us),
        ];
        for _ in 0..2 {
            let ids = schedules
                .iter()
                .flat_map(|schedule| occasions.map(|occasion| action(occasion, due_us).run_id(schedule)));
            let ids: Vec<_> = ids.collect();
            let once: BTreeSet<_> = ids.iter().cloned().collect();
            assert_eq!(ids.len(), once.len());
            // The id of a run may be the id of a schedule.
            schedules.extend(once);
        }
    }
}
