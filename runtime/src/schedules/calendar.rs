//! Calendars: the wall-clock times that they select, as sets of seconds, minutes, hours, days and months.

use std::fmt;

use jiff::Timestamp as Instant;
use jiff::civil::Date;
use jiff::tz::Offset;
use serde::{Deserialize, Serialize};

/// A day of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Weekday {
    Sunday,
    Monday,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
}

/// Wall-clock times that match: those whose second, minute, hour, day and month are all selected. A new calendar selects
/// midnight of each day.
///
/// For a time that the zone skips or repeats, see [`Schedule`](crate::builders::Schedule).
///
/// ```
/// use millrun::schedules::{ScheduleCalendar, Weekday};
///
/// // The last day of each quarter, at 18:30.
/// let quarters = ScheduleCalendar::new().last_day_of_month().months([3, 6, 9, 12]).hours([18]).minutes([30]);
/// // Each quarter of an hour on workdays, from nine to five.
/// let office = ScheduleCalendar::new()
///     .minutes([0, 15, 30, 45])
///     .hours(9..17)
///     .weekdays([Weekday::Monday, Weekday::Tuesday, Weekday::Wednesday, Weekday::Thursday, Weekday::Friday]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleCalendar {
    pub(super) seconds: u64,
    pub(super) minutes: u64,
    pub(super) hours: u64,
    /// Bit 1 is the first.
    pub(super) days: u64,
    #[serde(default)]
    pub(super) has_last_day: bool,
    /// Bit 1 is January.
    pub(super) months: u64,
    /// Bit 0 is Sunday.
    pub(super) weekdays: u64,
    /// Whether a matching day of the month or of the week is enough, as in a cron line that has both.
    #[serde(default)]
    pub(super) is_either_day: bool,
    /// A given value that is not valid for its field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) fault: Option<String>,
}

/// All values of a field: bits from `first` through `last`.
pub(super) fn bits(first: u32, last: u32) -> u64 {
    (first..=last).fold(0, |all, bit| all | 1 << bit)
}

fn has(set: u64, value: i8) -> bool {
    set >> value & 1 == 1
}

/// The first value of the set from this one on.
fn next(set: u64, from: u32) -> Option<u32> {
    let rest = set.checked_shr(from).unwrap_or(0);
    (rest != 0).then(|| from + rest.trailing_zeros())
}

/// How many years ahead a time is looked for. February 29 on a given weekday comes every 28 years, and once after 40.
const YEARS_MAX: i16 = 41;

const DAY_SECS: i64 = 86_400;

impl Default for ScheduleCalendar {
    fn default() -> Self {
        Self::new()
    }
}

impl ScheduleCalendar {
    /// Midnight of each day.
    #[must_use]
    pub fn new() -> Self {
        Self {
            seconds: 1,
            minutes: 1,
            hours: 1,
            days: bits(1, 31),
            has_last_day: false,
            months: bits(1, 12),
            weekdays: bits(0, 6),
            is_either_day: false,
            fault: None,
        }
    }

    /// These seconds of a minute, 0 to 59, in place of 0.
    #[must_use]
    pub fn seconds(mut self, seconds: impl IntoIterator<Item = u32>) -> Self {
        self.seconds = self.select("second", seconds, 0, 59);
        self
    }

    /// These minutes of an hour, 0 to 59, in place of 0.
    #[must_use]
    pub fn minutes(mut self, minutes: impl IntoIterator<Item = u32>) -> Self {
        self.minutes = self.select("minute", minutes, 0, 59);
        self
    }

    /// These hours of a day, 0 to 23, in place of 0.
    #[must_use]
    pub fn hours(mut self, hours: impl IntoIterator<Item = u32>) -> Self {
        self.hours = self.select("hour", hours, 0, 23);
        self
    }

    /// These days of a month, 1 to 31, in place of all. In months without such a day it is skipped.
    #[must_use]
    pub fn days_of_month(mut self, days: impl IntoIterator<Item = u32>) -> Self {
        self.days = self.select("day of the month", days, 1, 31);
        self
    }

    /// The last day of a month, beside those that [`days_of_month`](Self::days_of_month) has named.
    #[must_use]
    pub fn last_day_of_month(mut self) -> Self {
        if self.days == bits(1, 31) {
            self.days = 0;
        }
        self.has_last_day = true;
        self
    }

    /// These months, 1 to 12, in place of all.
    #[must_use]
    pub fn months(mut self, months: impl IntoIterator<Item = u32>) -> Self {
        self.months = self.select("month", months, 1, 12);
        self
    }

    /// These days of the week, in place of all. A day must be selected both here and by its date.
    #[must_use]
    pub fn weekdays(mut self, days: impl IntoIterator<Item = Weekday>) -> Self {
        let days = days.into_iter().map(|day| day as u32);
        self.weekdays = self.select("day of the week", days, 0, 6);
        self
    }

    fn select(&mut self, field: &str, values: impl IntoIterator<Item = u32>, first: u32, last: u32) -> u64 {
        let mut set = 0;
        for value in values {
            if value < first || value > last {
                self.fault
                    .get_or_insert_with(|| format!("{value} is no {field}: give {first} to {last}"));
            } else {
                set |= 1 << value;
            }
        }
        if set == 0 {
            self.fault
                .get_or_insert_with(|| format!("no {field} is selected"));
        }
        set
    }

    /// Whether each hour is selected: then elapsed time is meant, not a time of day.
    pub(super) fn has_all_hours(&self) -> bool {
        self.hours == bits(0, 23)
    }

    /// The first matching wall-clock time, from this one on; both in seconds since 1970 as if there were no zones.
    pub(super) fn next_from(&self, wall: i64) -> Option<i64> {
        let mut date = date_of(wall)?;
        let mut second = u32::try_from(wall.rem_euclid(DAY_SECS)).ok()?;
        let last_year = date.year().saturating_add(YEARS_MAX).min(9_998);
        while date.year() <= last_year {
            if !has(self.months, date.month()) {
                date = first_of_next_month(date)?;
                second = 0;
                continue;
            }
            if self.has_day(date)
                && let Some(second) = self.next_second(second)
            {
                let midnight = date.to_datetime(jiff::civil::Time::midnight());
                let midnight = Offset::UTC.to_timestamp(midnight).ok()?.as_second();
                return Some(midnight + i64::from(second));
            }
            date = date.tomorrow().ok()?;
            second = 0;
        }
        None
    }

    fn has_day(&self, date: Date) -> bool {
        let is_last = self.has_last_day && date.day() == date.days_in_month();
        let by_date = has(self.days, date.day()) || is_last;
        let by_weekday = has(self.weekdays, date.weekday().to_sunday_zero_offset());
        if self.is_either_day {
            by_date || by_weekday
        } else {
            by_date && by_weekday
        }
    }

    /// The first second of a day that matches, from this one on.
    fn next_second(&self, from: u32) -> Option<u32> {
        let (hour, minute, second) = (from / 3_600, from / 60 % 60, from % 60);
        let (first_minute, first_second) = (next(self.minutes, 0)?, next(self.seconds, 0)?);
        let at = |hour: u32, minute: u32, second: u32| Some(hour * 3_600 + minute * 60 + second);
        if next(self.hours, hour) == Some(hour) {
            if next(self.minutes, minute) == Some(minute)
                && let Some(second) = next(self.seconds, second)
            {
                return at(hour, minute, second);
            }
            if let Some(minute) = next(self.minutes, minute + 1) {
                return at(hour, minute, first_second);
            }
        }
        let hour = next(self.hours, hour + 1)?;
        at(hour, first_minute, first_second)
    }
}

/// Its fields as text: `hours 18; minutes 30; days L; months 3,6,9,12`. Fields with default values are left out.
impl fmt::Display for ScheduleCalendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = |set: u64| (0..64).filter(move |bit| set >> bit & 1 == 1);
        let mut days: Vec<String> = values(self.days).map(|day| day.to_string()).collect();
        if self.days == bits(1, 31) {
            days.clear();
        }
        days.extend(self.has_last_day.then(|| "L".to_owned()));
        let of = |name: &str, set: u64, first: u64| {
            let values: Vec<String> = values(set).map(|value| value.to_string()).collect();
            (set != first).then(|| format!("{name} {}", values.join(",")))
        };
        let fields = [
            Some(format!(
                "hours {}",
                values(self.hours)
                    .map(|hour| hour.to_string())
                    .collect::<Vec<_>>()
                    .join(",")
            )),
            of("minutes", self.minutes, 1),
            of("seconds", self.seconds, 1),
            (!days.is_empty()).then(|| format!("days {}", days.join(","))),
            of("months", self.months, bits(1, 12)),
            of("weekdays", self.weekdays, bits(0, 6)),
        ];
        let fields: Vec<String> = fields.into_iter().flatten().collect();
        f.write_str(&fields.join("; "))
    }
}

fn date_of(wall: i64) -> Option<Date> {
    let instant = Instant::from_second(wall).ok()?;
    Some(Offset::UTC.to_datetime(instant).date())
}

fn first_of_next_month(date: Date) -> Option<Date> {
    let (year, month) = match date.month() {
        12 => (date.year().checked_add(1)?, 1),
        month => (date.year(), month + 1),
    };
    Date::new(year, month, 1).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_calendar_tells_what_it_selects() {
        let midnight = ScheduleCalendar::new();
        assert_eq!(midnight.to_string(), "hours 0");
        let quarters = midnight
            .hours([18])
            .minutes([30])
            .last_day_of_month()
            .months([3, 6]);
        assert_eq!(quarters.to_string(), "hours 18; minutes 30; days L; months 3,6");
        let days = ScheduleCalendar::new()
            .days_of_month([1])
            .last_day_of_month()
            .weekdays([Weekday::Monday]);
        assert_eq!(days.to_string(), "hours 0; days 1,L; weekdays 1");
    }
}
