//! The stored settings of a schedule: its times, what it starts, and how.

use std::cell::Cell;
use std::time::Duration;

use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use super::calendar::ScheduleCalendar;
use super::error::ScheduleError;
use super::{OverlapPolicy, cron, zone};

/// How many cron lines, intervals and calendars a schedule may have together.
pub const SCHEDULE_TIMES_LEN_MAX: usize = 64;

/// The shortest interval of a schedule.
pub const SCHEDULE_INTERVAL_MIN: Duration = Duration::from_secs(1);

/// The longest catch-up window, interval and jitter: a year.
const WINDOW_MAX: Duration = Duration::from_secs(366 * 86_400);

/// How many due times a schedule may catch up with that came while no process ran.
pub const SCHEDULE_CATCH_UP_LEN_MAX: u32 = 1_000;

/// The default for that.
pub(super) const CATCH_UP_LEN_DEFAULT: u32 = 1_000;

/// How many due times may wait under [`OverlapPolicy::BufferAll`].
pub const SCHEDULE_BUFFER_LEN_MAX: u32 = 1_000;

const SECOND_US: u64 = 1_000_000;

/// When a schedule is due.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum StoredTimes {
    Cron(String),
    Interval { every_s: u64, phase_s: u64 },
    Calendar(ScheduleCalendar),
}

/// All settings of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredSchedule {
    pub(super) workflow: String,
    /// A payload.
    #[serde(with = "serde_bytes")]
    pub(super) input: Vec<u8>,
    pub(super) times: Vec<StoredTimes>,
    pub(super) zone: String,
    pub(super) overlap: OverlapPolicy,
    pub(super) buffer_len_max: u32,
    pub(super) catch_up_us: u64,
    #[serde(default = "catch_up_len")]
    pub(super) catch_up_len_max: u32,
    pub(super) jitter_us: u64,
    /// Not due before.
    pub(super) from_us: u64,
    /// Not due from then on.
    pub(super) until_us: Option<u64>,
    pub(super) actions_len_max: Option<u64>,
}

fn catch_up_len() -> u32 {
    CATCH_UP_LEN_DEFAULT
}

/// The times of a schedule, with the zone data that they need.
pub(super) struct DueTimes {
    calendars: Vec<CalendarTimes>,
    intervals: Vec<(u64, u64)>,
    /// Why this program cannot read them.
    unreadable: Option<String>,
    zone: TimeZone,
    from_us: u64,
    until_us: u64,
}

/// A calendar, with its last question and answer: the second, and the first due time behind it.
struct CalendarTimes {
    calendar: ScheduleCalendar,
    last: Cell<Option<(i64, Option<i64>)>>,
}

impl CalendarTimes {
    fn of(calendar: ScheduleCalendar) -> Self {
        let last = Cell::new(None);
        Self { calendar, last }
    }

    /// The first due time behind this second. It is only computed if the last answer does not hold.
    fn next_behind(&self, zone: &TimeZone, after: i64) -> Option<i64> {
        if let Some((asked, due)) = self.last.get()
            && asked <= after
            && due.is_none_or(|due| due > after)
        {
            return due;
        }
        let due = zone::next_due(&self.calendar, zone, after);
        self.last.set(Some((after, due)));
        due
    }
}

impl StoredSchedule {
    /// Checks all settings, and normalises the zone's name.
    pub(super) fn check(&mut self) -> Result<(), ScheduleError> {
        let len = self.times.len();
        if len == 0 {
            return Err(ScheduleError::NoTimes);
        }
        if len > SCHEDULE_TIMES_LEN_MAX {
            let len_max = SCHEDULE_TIMES_LEN_MAX;
            return Err(ScheduleError::TooManyTimes { len, len_max });
        }
        let zone = zone::zone_of(&self.zone).ok_or_else(|| ScheduleError::UnknownZone {
            zone: self.zone.clone(),
            zone_data: zone::zone_data_version(),
        })?;
        zone::name_of(&zone).clone_into(&mut self.zone);
        for times in &self.times {
            match times {
                StoredTimes::Cron(line) => {
                    cron::parse(line).map_err(|source| ScheduleError::Cron {
                        line: line.clone(),
                        source,
                    })?;
                }
                StoredTimes::Interval { every_s, .. } => {
                    let longest = WINDOW_MAX.as_secs();
                    if *every_s < SCHEDULE_INTERVAL_MIN.as_secs() || *every_s > longest {
                        return Err(setting(
                            "interval",
                            format!("it has {every_s} whole seconds: give 1 to {longest}"),
                        ));
                    }
                }
                StoredTimes::Calendar(calendar) => {
                    if let Some(fault) = &calendar.fault {
                        return Err(setting("calendar", fault.clone()));
                    }
                }
            }
        }
        self.check_settings()
    }

    fn check_settings(&self) -> Result<(), ScheduleError> {
        if let Some(until_us) = self.until_us
            && until_us <= self.from_us
        {
            return Err(ScheduleError::EmptyBounds);
        }
        if self.actions_len_max == Some(0) {
            let why = "a schedule with no action left does nothing: give 1 or more, or pause it";
            return Err(setting("limit of actions", why.into()));
        }
        if !(1..=SCHEDULE_BUFFER_LEN_MAX).contains(&self.buffer_len_max) {
            let why = format!(
                "{} due times: give 1 to {SCHEDULE_BUFFER_LEN_MAX}",
                self.buffer_len_max
            );
            return Err(setting("buffer", why));
        }
        if !(1..=SCHEDULE_CATCH_UP_LEN_MAX).contains(&self.catch_up_len_max) {
            let why = format!(
                "{} due times: give 1 to {SCHEDULE_CATCH_UP_LEN_MAX}",
                self.catch_up_len_max
            );
            return Err(setting("limit of due times to catch up with", why));
        }
        let longest = micros(WINDOW_MAX);
        if self.catch_up_us < SECOND_US || self.catch_up_us > longest {
            let why = "give one second to 366 days: a shorter one would pass over what is due".into();
            return Err(setting("catch-up window", why));
        }
        if self.jitter_us > longest {
            return Err(setting("jitter", "give at most 366 days".into()));
        }
        Ok(())
    }

    /// The times, ready for lookup. Settings that were checked once may be read by a later version that does not know a line
    /// or the zone any more: then none of them is due.
    pub(super) fn due_times(&self) -> DueTimes {
        let (mut calendars, mut intervals) = (Vec::new(), Vec::new());
        let mut unreadable = None;
        for times in &self.times {
            match times {
                StoredTimes::Cron(line) => match cron::parse(line) {
                    Ok(calendar) => calendars.push(CalendarTimes::of(calendar)),
                    Err(error) => {
                        unreadable = Some(format!("the cron line {line:?} cannot be read any more: {error}"));
                    }
                },
                StoredTimes::Interval { every_s, phase_s } => intervals.push((*every_s, *phase_s)),
                StoredTimes::Calendar(calendar) => {
                    calendars.push(CalendarTimes::of(calendar.clone()));
                }
            }
        }
        let zone = zone::zone_of(&self.zone).unwrap_or_else(|| {
            let zone_data = zone::zone_data_version();
            unreadable = Some(format!(
                "there is no time zone {:?} in the zone data ({zone_data})",
                self.zone
            ));
            TimeZone::UTC
        });
        DueTimes {
            calendars,
            intervals,
            unreadable,
            zone,
            from_us: self.from_us,
            until_us: self.until_us.unwrap_or(u64::MAX),
        }
    }
}

impl DueTimes {
    /// Why this program cannot read the times, if it cannot.
    pub(super) fn unreadable(&self) -> Option<&str> {
        self.unreadable.as_deref()
    }

    /// Whether each calendar has a due time behind this one, in microseconds since 1970.
    pub(super) fn are_all_due_behind(&self, after_us: u64) -> bool {
        let after_us = after_us.max(self.from_us.saturating_sub(1));
        let Ok(after) = i64::try_from(after_us / SECOND_US) else {
            return false;
        };
        let mut calendars = self.calendars.iter();
        calendars.all(|calendar| calendar.next_behind(&self.zone, after).is_some())
    }

    /// The first due time behind this one, both in microseconds since 1970; `None` if there is none within the bounds.
    pub(super) fn next_behind(&self, after_us: u64) -> Option<u64> {
        if self.unreadable.is_some() {
            return None;
        }
        let after_us = after_us.max(self.from_us.saturating_sub(1));
        let after = after_us / SECOND_US;
        let signed = i64::try_from(after).ok()?;
        let by_calendar = self.calendars.iter().filter_map(|calendar| {
            let due = calendar.next_behind(&self.zone, signed)?;
            u64::try_from(due).ok()
        });
        let by_interval = self.intervals.iter().filter_map(|(every, phase)| {
            let phase = phase % every;
            // Due times are those whose remainder is the phase.
            let rest = (after % every + every - phase) % every;
            after.checked_add(every - rest)
        });
        let due = by_calendar.chain(by_interval).min()?;
        let due_us = due.checked_mul(SECOND_US)?;
        (due_us < self.until_us).then_some(due_us)
    }
}

fn setting(setting: &'static str, problem: String) -> ScheduleError {
    ScheduleError::Setting { setting, problem }
}

/// Microseconds, up to the largest number.
pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The delay of a schedule's action after its due time, below this jitter: always the same for the same due time (FNV-1a of
/// 64 bits over the id and the due time, and the finalizer of MurmurHash3).
pub(super) fn jitter_of(id: &str, due_us: u64, jitter_us: u64) -> u64 {
    if jitter_us == 0 {
        return 0;
    }
    let bytes = id.bytes().chain(due_us.to_be_bytes());
    let mut sum = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        sum = (sum ^ sum >> 33).wrapping_mul(factor);
    }
    (sum ^ sum >> 33) % jitter_us
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_due_at_its_phase() {
        let due_times = |every, phase| DueTimes {
            calendars: Vec::new(),
            intervals: vec![(every, phase)],
            unreadable: None,
            zone: TimeZone::UTC,
            from_us: 0,
            until_us: u64::MAX,
        };
        for (every, phase, after, due) in [
            (10, 0, 0, 10),
            (10, 3, 0, 3),
            (10, 3, 3, 13),
            (10, 23, 12, 13),
            (1, 0, 7, 8),
        ] {
            let found = due_times(every, phase).next_behind(after * SECOND_US + 999_999);
            assert_eq!(found, Some(due * SECOND_US), "{every} {phase} {after}");
        }
    }

    #[test]
    fn jitter_is_the_same_each_time_and_within_its_bound() {
        let mut seen = std::collections::BTreeSet::new();
        for due in 0..1_000 {
            let jitter = jitter_of("nightly", due, 60_000_000);
            assert!(jitter < 60_000_000);
            assert_eq!(jitter, jitter_of("nightly", due, 60_000_000));
            seen.insert(jitter / 6_000_000);
        }
        assert_eq!(seen.len(), 10, "it is spread");
        assert_eq!(jitter_of("nightly", 7, 0), 0);
    }
}
