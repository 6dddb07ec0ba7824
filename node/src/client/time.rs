//! Times as a person reads them.

/// Microseconds since 1970 as a date and time of UTC, by the days of the Gregorian calendar (Howard Hinnant,
/// "chrono-compatible low-level date algorithms", `civil_from_days`).
pub(super) fn date_and_time(micros: u64) -> String {
    let (seconds, millis) = (micros / 1_000_000, micros / 1_000 % 1_000);
    let (days, of_day) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{millis:03}")
}

/// A time between two moments.
pub(super) fn duration(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} us"),
        1_000..1_000_000 => format!("{:.1} ms", micros as f64 / 1e3),
        1_000_000..60_000_000 => format!("{:.2} s", micros as f64 / 1e6),
        60_000_000..3_600_000_000 => format!("{} min {} s", micros / 60_000_000, micros / 1_000_000 % 60),
        _ => format!("{} h {} min", micros / 3_600_000_000, micros / 60_000_000 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_of_the_gregorian_calendar_and_utc() {
        for (micros, shown) in [
            (0, "1970-01-01 00:00:00.000"),
            (951_782_400_000_000, "2000-02-29 00:00:00.000"),
            (1_700_000_000_123_456, "2023-11-14 22:13:20.123"),
            (4_107_542_399_999_999, "2100-02-28 23:59:59.999"),
        ] {
            assert_eq!(date_and_time(micros), shown);
        }
        for (micros, shown) in [
            (7, "7 us"),
            (1_500, "1.5 ms"),
            (2_000_000, "2.00 s"),
            (61_000_000, "1 min 1 s"),
            (7_260_000_000, "2 h 1 min"),
        ] {
            assert_eq!(duration(micros), shown);
        }
    }
}
