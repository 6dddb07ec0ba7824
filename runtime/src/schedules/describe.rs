//! The description of a schedule.

use std::time::Duration;

use millrun_core::Timestamp;

use super::deciding::ScheduleView;
use super::state::{RecentAction, ScheduleAction};
use super::times::StoredTimes;
use super::{ActionEnd, OverlapPolicy, ScheduleCalendar, ScheduleCounts};

/// A cron line, an interval or a calendar of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScheduleTimes {
    /// A cron line, as it was given.
    Cron(String),
    /// An interval.
    Every {
        /// How long it is.
        interval: Duration,
        /// The offset of each due time.
        phase: Duration,
    },
    /// A calendar.
    Calendar(ScheduleCalendar),
}

/// A run that a schedule has started.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunningAction {
    /// The id of its instance.
    pub id: String,
    /// The due time for which it was started, or the time of its trigger.
    pub due: Timestamp,
    /// When it was started.
    pub started_at: Timestamp,
    /// How it ended, if that is known: under [`OverlapPolicy::Allow`] its end is not waited for.
    pub end: Option<ActionEnd>,
}

/// The settings of a schedule, its due times, and its results.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScheduleDescription {
    /// Its id.
    pub id: String,
    /// The workflow of the runs that it starts.
    pub workflow: String,
    /// Its cron lines, intervals and calendars.
    pub times: Vec<ScheduleTimes>,
    /// The zone of its cron lines and calendars, by its name in the zone data.
    pub zone: String,
    /// What it does at a due time while a run is going on.
    pub overlap: OverlapPolicy,
    /// How many due times may wait under [`OverlapPolicy::BufferAll`].
    pub buffer_len_max: u32,
    /// How late a due time is still used.
    pub catch_up_window: Duration,
    /// How many due times it catches up with that came while no process ran.
    pub catch_up_len_max: u32,
    /// Each action may be later than its due time by less than this.
    pub jitter: Duration,
    /// Before which time it is not due.
    pub starting_at: Option<Timestamp>,
    /// From which time on it is not due any more.
    pub ending_at: Option<Timestamp>,
    /// How many more due times it uses, if that is limited.
    pub actions_left: Option<u64>,
    /// The note of its pause, if it is paused.
    pub paused: Option<String>,
    /// Why it is not due, if this program cannot read its times: it does not know the zone or a line, which another version
    /// knew. It tries again each hour; an update repairs it at once.
    pub resting: Option<String>,
    /// How many due times have come that it uses next, or when it is resumed.
    pub backlog_len: usize,
    /// The note of its last resume.
    pub resumed: Option<String>,
    /// The next due times, up to ten. The first was computed when it became the next one, and is fixed; the others are
    /// computed with this program's zone data. Empty if it is paused, or not due any more.
    pub upcoming: Vec<Timestamp>,
    /// When it uses the first of these: later by the jitter.
    pub acts_at: Option<Timestamp>,
    /// The zone data's version with which the first of these was computed.
    pub zone_data: Option<String>,
    /// The run whose end it waits for.
    pub running: Option<String>,
    /// The ids of runs that wait for that end, the next first.
    pub waiting: Vec<String>,
    /// How many backfills are under way.
    pub backfills_len: usize,
    /// Counts of its results.
    pub counts: ScheduleCounts,
    /// The runs that it has started, the latest [10](super::RECENT_ACTIONS_LEN_MAX), the latest first.
    pub recent: Vec<RunningAction>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was changed last.
    pub updated_at: Timestamp,
}

impl ScheduleDescription {
    pub(super) fn of(id: &str, view: ScheduleView) -> Option<Self> {
        let ScheduleView {
            described,
            progress,
            upcoming_us,
            resting,
        } = view;
        let described = described?;
        let run_id = |action: &ScheduleAction| action.run_id(id);
        let next = progress.next;
        Some(Self {
            id: id.to_owned(),
            workflow: described.workflow,
            times: described.times.into_iter().map(ScheduleTimes::from).collect(),
            zone: described.zone,
            overlap: described.overlap,
            buffer_len_max: described.buffer_len_max,
            catch_up_window: Duration::from_micros(described.catch_up_us),
            catch_up_len_max: described.catch_up_len_max,
            jitter: Duration::from_micros(described.jitter_us),
            starting_at: (described.from_us > 0).then(|| Timestamp::from_micros(described.from_us)),
            ending_at: described.until_us.map(Timestamp::from_micros),
            actions_left: progress.actions_left,
            paused: progress.paused,
            resting,
            backlog_len: progress.backlog.len(),
            resumed: progress.resumed,
            upcoming: upcoming_us.into_iter().map(Timestamp::from_micros).collect(),
            acts_at: next.as_ref().map(|next| Timestamp::from_micros(next.at_us)),
            zone_data: next.map(|next| next.zone_data),
            running: progress.running.as_ref().map(run_id),
            waiting: progress.waiting.iter().map(run_id).collect(),
            backfills_len: progress.backfills.len(),
            counts: progress.counts,
            recent: progress
                .recent
                .iter()
                .rev()
                .map(|recent| recent.told(id))
                .collect(),
            created_at: Timestamp::from_micros(progress.created_us),
            updated_at: Timestamp::from_micros(progress.updated_us),
        })
    }
}

impl From<StoredTimes> for ScheduleTimes {
    fn from(stored: StoredTimes) -> Self {
        match stored {
            StoredTimes::Cron(line) => Self::Cron(line),
            StoredTimes::Interval { every_s, phase_s } => Self::Every {
                interval: Duration::from_secs(every_s),
                phase: Duration::from_secs(phase_s),
            },
            StoredTimes::Calendar(calendar) => Self::Calendar(calendar),
        }
    }
}

impl RecentAction {
    fn told(&self, schedule: &str) -> RunningAction {
        RunningAction {
            id: self.action.run_id(schedule),
            due: Timestamp::from_micros(self.action.due_us),
            started_at: Timestamp::from_micros(self.started_us),
            end: self.end.clone(),
        }
    }
}
