//! Cron lines, parsed into calendars.
//!
//! `*`, lists, ranges, steps and names of months and weekdays, with seconds in front if there are six fields; `L` is the last
//! day of the month, and Sunday is 0 and 7. A line that restricts both kinds of days selects a day that either has, as
//! cron does.

use thiserror::Error;

use super::calendar::{ScheduleCalendar, bits};

/// How many bytes a cron line may have.
pub const CRON_BYTES_MAX: usize = 256;

/// Why a cron line is not valid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CronError {
    /// It has the wrong number of fields.
    #[error(
        "a cron line has 5 fields (minute, hour, day of the month, month, day of the week), or 6 with seconds in front, and this one has {len}"
    )]
    Fields {
        /// How many.
        len: usize,
    },
    /// A field selects a value that does not exist.
    #[error("{text:?} is none for its {field}: give {expected}")]
    Field {
        /// Which field.
        field: &'static str,
        /// The part of it that is wrong.
        text: String,
        /// What is allowed there.
        expected: String,
    },
    /// It begins with `@`, and is not a known shorthand.
    #[error("{text:?} is no shorthand: give @hourly, @daily, @weekly, @monthly or @yearly")]
    Shorthand {
        /// The line.
        text: String,
    },
    /// It is too long.
    #[error("a cron line has at most {bytes_max} bytes, and this one has {bytes}: give several lines")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The bound, [`CRON_BYTES_MAX`].
        bytes_max: usize,
    },
}

/// A field of a line.
struct CronField {
    name: &'static str,
    first: u32,
    last: u32,
    /// Names of the values from `first` on.
    names: &'static [&'static str],
}

const SECOND: CronField = CronField::of("seconds", 0, 59, &[]);
const MINUTE: CronField = CronField::of("minutes", 0, 59, &[]);
const HOUR: CronField = CronField::of("hours", 0, 23, &[]);
const DAY: CronField = CronField::of("days of the month", 1, 31, &[]);
const MONTH: CronField = CronField::of(
    "months",
    1,
    12,
    &[
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ],
);
/// Seven is Sunday, too.
const WEEKDAY: CronField = CronField::of(
    "days of the week",
    0,
    7,
    &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
);

/// The calendar that a line stands for.
pub(super) fn parse(line: &str) -> Result<ScheduleCalendar, CronError> {
    let bytes = line.len();
    if bytes > CRON_BYTES_MAX {
        let bytes_max = CRON_BYTES_MAX;
        return Err(CronError::TooLong { bytes, bytes_max });
    }
    let line = match line.trim() {
        "@hourly" => "0 * * * *",
        "@daily" | "@midnight" => "0 0 * * *",
        "@weekly" => "0 0 * * 0",
        "@monthly" => "0 0 1 * *",
        "@yearly" | "@annually" => "0 0 1 1 *",
        text if text.starts_with('@') => return Err(CronError::Shorthand { text: text.into() }),
        line => line,
    };
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (second, rest) = match fields.len() {
        5 => ("0", &fields[..]),
        6 => (fields[0], &fields[1..]),
        len => return Err(CronError::Fields { len }),
    };
    let &[minute, hour, day, month, weekday] = rest else {
        return Err(CronError::Fields { len: fields.len() });
    };
    let (days, has_last_day) = days_of(day)?;
    let mut weekdays = WEEKDAY.set(weekday)?;
    weekdays = (weekdays | weekdays >> 7) & bits(0, 6);
    Ok(ScheduleCalendar {
        seconds: SECOND.set(second)?,
        minutes: MINUTE.set(minute)?,
        hours: HOUR.set(hour)?,
        days,
        has_last_day,
        months: MONTH.set(month)?,
        weekdays,
        is_either_day: !is_any(day) && !is_any(weekday),
        fault: None,
    })
}

/// Whether cron does not count a field of days as a restriction.
fn is_any(text: &str) -> bool {
    text.starts_with(['*', '?'])
}

fn days_of(text: &str) -> Result<(u64, bool), CronError> {
    let is_last = |part: &str| part.eq_ignore_ascii_case("l");
    let has_last_day = text.split(',').any(is_last);
    let mut days = 0;
    for part in text.split(',').filter(|part| !is_last(part)) {
        days |= DAY.set(part)?;
    }
    Ok((days, has_last_day))
}

impl CronField {
    const fn of(name: &'static str, first: u32, last: u32, names: &'static [&'static str]) -> Self {
        Self {
            name,
            first,
            last,
            names,
        }
    }

    fn set(&self, text: &str) -> Result<u64, CronError> {
        text.split(',')
            .try_fold(0, |set, part| Ok(set | self.part(part)?))
    }

    fn part(&self, part: &str) -> Result<u64, CronError> {
        let wrong = || CronError::Field {
            field: self.name,
            text: part.to_owned(),
            expected: self.expected(),
        };
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (
                range,
                Some(number(step).filter(|step| *step > 0).ok_or_else(wrong)?),
            ),
            None => (part, None),
        };
        let (first, last) = match range.split_once('-') {
            Some((first, last)) => (self.value(first), self.value(last)),
            None if matches!(range, "*" | "?") => (Some(self.first), Some(self.last)),
            None => {
                let first = self.value(range);
                // `5/10` means from five on.
                (first, if step.is_some() { Some(self.last) } else { first })
            }
        };
        let (first, last) = first
            .zip(last)
            .filter(|(first, last)| first <= last)
            .ok_or_else(wrong)?;
        let step = usize::try_from(step.unwrap_or(1)).map_err(|_| wrong())?;
        Ok((first..=last)
            .step_by(step)
            .fold(0, |set, value| set | 1 << value))
    }

    fn value(&self, text: &str) -> Option<u32> {
        let by_name = self.names.iter().position(|name| text.eq_ignore_ascii_case(name));
        match by_name {
            Some(place) => Some(self.first + u32::try_from(place).ok()?),
            None => number(text).filter(|value| (self.first..=self.last).contains(value)),
        }
    }

    fn expected(&self) -> String {
        let (first, last) = (self.first, self.last);
        let names = match self.names {
            [one, .., other] => format!(" or {one} to {other}"),
            _ => String::new(),
        };
        format!("{first} to {last}{names}, *, a range as {first}-{last}, a step as */2, or a list of these")
    }
}

/// Only digits: no sign, no spaces.
fn number(text: &str) -> Option<u32> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(values: &[u32]) -> u64 {
        values.iter().fold(0, |set, value| set | 1 << value)
    }

    #[test]
    fn each_form_of_a_field_selects_its_values() {
        for (text, minutes) in [
            ("0", &[0][..]),
            ("5,7", &[5, 7]),
            ("5-8", &[5, 6, 7, 8]),
            ("*/20", &[0, 20, 40]),
            ("50/4", &[50, 54, 58]),
            ("1-9/4,30", &[1, 5, 9, 30]),
        ] {
            let calendar = parse(&format!("{text} * * * *")).unwrap();
            assert_eq!(calendar.minutes, set(minutes), "{text}");
        }
        let named = parse("0 0 * FEB-apr sun,3,7").unwrap();
        assert_eq!((named.months, named.weekdays), (set(&[2, 3, 4]), set(&[0, 3])));
        let week = parse("0 0 * * 5-7").unwrap();
        assert_eq!(week.weekdays, set(&[0, 5, 6]));
        assert_eq!(parse("30 5 * * * *").unwrap().seconds, set(&[30]));
        assert!(parse("0 0 L * *").unwrap().has_last_day);
        assert_eq!(parse("@weekly"), parse("0 0 * * 0"));
    }

    #[test]
    fn both_kinds_of_days_are_either_and_one_kind_is_that() {
        for (line, is_either) in [
            ("0 0 13 * 5", true),
            ("0 0 13 * *", false),
            ("0 0 * * 5", false),
            ("0 0 */2 * 5", false),
        ] {
            assert_eq!(parse(line).unwrap().is_either_day, is_either, "{line}");
        }
    }

    #[test]
    fn what_is_no_cron_line_is_refused_with_what_may_stand_there() {
        for line in [
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * 32 * *",
            "* * * 13 *",
            "* * * * 8",
            "*/0 * * * *",
            "5-3 * * * *",
            "a * * * *",
            "1- * * * *",
            ", * * * *",
            "+1 * * * *",
            "* * * foo *",
            "-1 * * * *",
        ] {
            let error = parse(line).unwrap_err();
            assert!(matches!(error, CronError::Field { .. }), "{line}: {error}");
            assert!(error.to_string().contains("give"), "{error}");
        }
        for (line, len) in [("", 0), ("* * * *", 4), ("* * * * * * *", 7)] {
            assert_eq!(parse(line), Err(CronError::Fields { len }));
        }
        assert!(matches!(parse("@reboot"), Err(CronError::Shorthand { .. })));
        let long = "1,".repeat(CRON_BYTES_MAX);
        assert!(matches!(parse(&long), Err(CronError::TooLong { .. })));
    }
}
