//! Cron lines against a naive oracle on another calendar library, which looks at each minute by itself.

use std::collections::BTreeSet;

use chrono::{DateTime, Datelike, NaiveDateTime, TimeDelta, TimeZone as _, Timelike, Utc};
use chrono_tz::Tz;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::cron::parse;
use super::zone::{next_due, zone_of};

const ZONES: [&str; 8] = [
    "UTC",
    "Europe/Berlin",
    "Europe/Dublin",
    "America/New_York",
    // Half an hour.
    "Australia/Lord_Howe",
    // At midnight.
    "America/Sao_Paulo",
    // Skipped a day.
    "Pacific/Apia",
    "Asia/Kolkata",
];

/// Some days, in minutes.
const WINDOW: i64 = 12 * 1_440;

/// A cron line as the sets that its fields name; `None` is `*`.
#[derive(Clone, Debug)]
struct NaiveLine {
    minutes: Vec<u32>,
    hours: Option<Vec<u32>>,
    days: Option<Vec<u32>>,
    months: Option<Vec<u32>>,
    weekdays: Option<Vec<u32>>,
}

impl NaiveLine {
    fn text(&self) -> String {
        let list = |values: &[u32]| {
            let values: Vec<_> = values.iter().map(u32::to_string).collect();
            values.join(",")
        };
        let field = |values: &Option<Vec<u32>>| values.as_deref().map_or_else(|| "*".to_owned(), list);
        format!(
            "{} {} {} {} {}",
            list(&self.minutes),
            field(&self.hours),
            field(&self.days),
            field(&self.months),
            field(&self.weekdays)
        )
    }

    fn has_all_hours(&self) -> bool {
        self.hours.as_ref().is_none_or(|hours| hours.len() == 24)
    }

    fn matches(&self, local: NaiveDateTime) -> bool {
        let has = |field: &Option<Vec<u32>>, value| field.as_ref().is_none_or(|all| all.contains(&value));
        let by_date = has(&self.days, local.day());
        let by_weekday = has(&self.weekdays, local.weekday().num_days_from_sunday());
        let by_day = match (&self.days, &self.weekdays) {
            (Some(_), Some(_)) => by_date || by_weekday,
            _ => by_date && by_weekday,
        };
        self.minutes.contains(&local.minute())
            && has(&self.hours, local.hour())
            && has(&self.months, local.month())
            && by_day
    }

    /// Whether it is due at this minute.
    fn is_due(&self, zone: Tz, minute: DateTime<Utc>) -> bool {
        let local = minute.with_timezone(&zone).naive_local();
        if self.has_all_hours() {
            return self.matches(local);
        }
        let first = zone.from_local_datetime(&local).earliest();
        if self.matches(local) && first.is_some_and(|first| first == minute) {
            return true;
        }
        let step = TimeDelta::minutes(1);
        let mut skipped = (minute - step).with_timezone(&zone).naive_local() + step;
        while skipped < local {
            if self.matches(skipped) {
                return true;
            }
            skipped += step;
        }
        false
    }
}

fn line() -> impl Strategy<Value = NaiveLine> {
    let some = |first: u32, last: u32, len: usize| {
        let values: Vec<u32> = (first..=last).collect();
        prop_oneof![
            2 => Just(None),
            3 => subsequence(values, 1..=len).prop_map(Some),
        ]
    };
    (
        subsequence((0..60).collect::<Vec<u32>>(), 1..=4),
        some(0, 23, 6),
        some(1, 31, 8),
        some(1, 12, 8),
        some(0, 6, 3),
    )
        .prop_map(|(minutes, hours, days, months, weekdays)| NaiveLine {
            minutes,
            hours,
            days,
            months,
            weekdays,
        })
}

/// A time; mostly shortly before the clocks of some zone are changed.
fn begin() -> impl Strategy<Value = i64> {
    let at = |year, month, day| {
        Utc.with_ymd_and_hms(year, month, day, 0, 0, 0)
            .unwrap()
            .timestamp()
    };
    let (first, last) = (at(2005, 1, 1), at(2024, 1, 1));
    let changes = vec![
        at(2011, 12, 25),
        at(2016, 3, 8),
        at(2016, 3, 22),
        at(2016, 10, 1),
        at(2016, 10, 10),
        at(2016, 10, 24),
        at(2017, 2, 14),
        at(2017, 11, 1),
        at(2018, 3, 28),
    ];
    prop_oneof![first..last, select(changes)]
}

fn check(line: &NaiveLine, zone: &str, begin: i64) {
    let begin = begin - begin.rem_euclid(60);
    let (calendar, ours) = (parse(&line.text()).unwrap(), zone_of(zone).unwrap());
    let theirs: Tz = zone.parse().unwrap();
    let minutes = (0..WINDOW).map(|minute| begin + 60 * minute);
    let expected: BTreeSet<i64> = minutes
        .filter(|minute| line.is_due(theirs, DateTime::from_timestamp(*minute, 0).unwrap()))
        .collect();
    let mut found = BTreeSet::new();
    let mut after = begin - 1;
    while let Some(due) = next_due(&calendar, &ours, after)
        && due < begin + 60 * WINDOW
    {
        assert!(due > after, "{due} is not behind {after}");
        found.insert(due);
        after = due;
    }
    assert_eq!(found, expected, "{} in {zone} from {begin}", line.text());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_cron_line_is_due_at_the_minutes_at_which_a_naive_oracle_says_so(
        line in line(),
        zone in select(&ZONES[..]),
        begin in begin(),
    ) {
        check(&line, zone, begin);
    }

    #[test]
    fn the_next_due_time_is_the_same_from_each_second_before_it(
        line in line(),
        zone in select(&ZONES[..]),
        begin in begin(),
        ahead in 1..100_000_i64,
    ) {
        let (calendar, zone) = (parse(&line.text()).unwrap(), zone_of(zone).unwrap());
        if let Some(due) = next_due(&calendar, &zone, begin) {
            let between = begin + ahead % (due - begin);
            prop_assert_eq!(next_due(&calendar, &zone, between), Some(due));
        }
    }

    #[test]
    fn any_text_is_a_cron_line_or_an_error_that_says_why(text in "[0-9*,/ A-Za-z?@-]{0,40}|.{0,40}") {
        match parse(&text) {
            Ok(calendar) => drop(next_due(&calendar, &zone_of("Europe/Berlin").unwrap(), 0)),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}
