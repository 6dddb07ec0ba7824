//! A moment as a person writes it.

use std::str::FromStr;
use std::time::SystemTime;

/// Microseconds since 1970, written as a date and time of UTC, or as so long ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment(pub(crate) u64);

/// Microseconds since 1970, written as a date and time of UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DateTime(pub(crate) u64);

impl FromStr for DateTime {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        date_and_time(text)
            .map(Self)
            .ok_or("write 2026-11-25, or 2026-11-25T05:30:00 in UTC")
    }
}

/// A stretch of time in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pause(pub(crate) u64);

impl FromStr for Pause {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        ago(text).map(Self).ok_or("write 90s, 15m, 2h, 7d or 2w")
    }
}

/// How a moment is written; told when one is written otherwise.
const FORMS: &str =
    "write 90s, 15m, 2h, 7d or 2w for so long ago, or 2026-11-25, or 2026-11-25T05:30:00 in UTC";

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_micros();
        let now = u64::try_from(now).unwrap_or(u64::MAX);
        let ago = ago(text).map(|ago| now.saturating_sub(ago));
        ago.or_else(|| date_and_time(text))
            .map(Self)
            .ok_or_else(|| FORMS.to_owned())
    }
}

/// A duration in microseconds.
fn ago(text: &str) -> Option<u64> {
    let unit = text.chars().last()?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        'w' => 604_800,
        _ => return None,
    };
    number(text.strip_suffix(unit)?)?.checked_mul(seconds * 1_000_000)
}

/// A date of the Gregorian calendar, and a time of UTC (Howard Hinnant, "chrono-compatible low-level date algorithms",
/// `days_from_civil`).
fn date_and_time(text: &str) -> Option<u64> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00:00"));
    let [year, month, day] = parts(date, '-')?;
    let [hour, minute, second] = parts(time, ':').or_else(|| {
        let [hour, minute] = parts(time, ':')?;
        Some([hour, minute, 0])
    })?;
    let is_time = (1_970..10_000).contains(&year)
        && (1..=12).contains(&month)
        && (1..=days_of(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !is_time {
        return None;
    }
    let year = if month > 2 { year } else { year - 1 };
    let (era, year_of_era) = (year / 400, year % 400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = era * 146_097 + day_of_era - 719_468;
    Some((days * 86_400 + hour * 3_600 + minute * 60 + second) * 1_000_000)
}

fn days_of(year: u64, month: u64) -> u64 {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn parts<const N: usize>(text: &str, between: char) -> Option<[u64; N]> {
    let parts: Option<Vec<_>> = text.split(between).map(number).collect();
    parts?.try_into().ok()
}

fn number(text: &str) -> Option<u64> {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_digits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::time;

    #[test]
    fn a_date_is_read_back_from_what_is_shown() {
        for micros in [
            0,
            951_782_400_000_000,
            951_868_800_000_000,
            1_700_000_000_000_000,
            4_107_542_399_000_000,
        ] {
            assert_eq!(date_and_time(&time::date_and_time(micros)[..19]), Some(micros));
        }
        assert_eq!(date_and_time("1970-01-02"), Some(86_400_000_000));
        assert_eq!(date_and_time("1970-01-02T01:02Z"), Some(90_120_000_000));
        for wrong in [
            "",
            "1970",
            "1970-1",
            "1970-13-01",
            "2001-02-29",
            "1900-02-01",
            "2001-01-01T24:00",
            "2001-01-01T1:2:3:4",
            "+2001-01-01",
        ] {
            assert!(wrong.parse::<Moment>().is_err(), "{wrong}");
        }
        // So long ago is no time at which to begin.
        assert_eq!("1970-01-02".parse(), Ok(DateTime(86_400_000_000)));
        assert!("2h".parse::<Moment>().is_ok() && "2h".parse::<DateTime>().is_err());
    }

    #[test]
    fn so_long_ago_is_before_now() {
        for (text, seconds) in [
            ("0s", 0),
            ("90s", 90),
            ("15m", 900),
            ("2h", 7_200),
            ("7d", 604_800),
            ("1w", 604_800),
        ] {
            assert_eq!(ago(text), Some(seconds * 1_000_000), "{text}");
        }
        for wrong in ["s", "1", "1y", "-1s", "1.5h", "18446744073709551615w"] {
            assert!(wrong.parse::<Moment>().is_err(), "{wrong}");
        }
        assert!("99999d".parse::<Moment>().unwrap().0 < u64::MAX / 2);
    }
}
