//! How old a finished run is, whatever the machine's clock says.
//!
//! A machine had started with its clock 30 days ahead. The first run that closed had that time, all results were
//! older than retention allows by then, and their ids were free: a start that was repeated after the clock had
//! been put right began a second run. Retention believed the time of whichever turn came last.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use millrun_core::Timestamp;
use millrun_persistence::contract::Author;
use millrun_persistence::{Journal, ReadError, Reads, RedbConfig, RedbJournal};

use crate::host::HandHost;

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

/// How an opening ends, and what is settled on disk by then.
#[derive(Clone, Copy, Debug)]
struct Kind {
    is_crash: bool,
    unsettled_len_max: usize,
}

const KINDS: [Kind; 4] = [
    Kind {
        is_crash: false,
        unsettled_len_max: 1,
    },
    Kind {
        is_crash: false,
        unsettled_len_max: 1_000,
    },
    Kind {
        is_crash: true,
        unsettled_len_max: 1,
    },
    Kind {
        is_crash: true,
        unsettled_len_max: 1_000,
    },
];

/// The time on the `hours`-th hour of these tests.
fn at(hours: i64) -> Timestamp {
    let hours = u64::try_from(100_000 + hours).unwrap();
    Timestamp::from_micros(hours * 3_600_000_000)
}

struct Store {
    folder: tempfile::TempDir,
    kind: Kind,
    begun: u64,
}

/// One opening of a store.
struct Opening {
    journal: RedbJournal,
    host: Arc<HandHost>,
}

impl Store {
    fn new(kind: Kind) -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            kind,
            begun: 0,
        }
    }

    fn open(&self) -> Opening {
        self.open_at(&self.folder.path().join("a.redb"))
    }

    fn open_at(&self, path: &Path) -> Opening {
        let host = HandHost::new();
        let mut config = RedbConfig::default();
        config.store.unsettled_len_max = self.kind.unsettled_len_max;
        let journal = RedbJournal::open(path, config, host.clone()).unwrap();
        host.run();
        Opening { journal, host }
    }

    /// A run that begins and closes, on a machine whose clock shows this time.
    fn finish(&mut self, opening: &Opening, time: Timestamp) -> Author {
        self.begun += 1;
        let mut author = Author::new(&opening.journal, &format!("run-{}", self.begun), self.begun);
        author.time = time;
        let batch = author.batch(&[b"done"], true);
        assert_eq!(opening.journal.enqueue(&batch).unwrap().refused, []);
        opening.host.run();
        author
    }

    fn end(&self, opening: Opening) {
        if self.kind.is_crash {
            opening.host.end_parts();
        } else {
            opening.journal.begin_close();
            opening.host.run();
            assert!(opening.journal.is_closed());
        }
    }
}

/// Whether a run's result can be asked for, and its id is taken.
fn is_retained(opening: &Opening, author: &Author) -> bool {
    match opening.journal.finished(&author.id) {
        Ok(found) => found.is_some_and(|found| found.run == author.run),
        Err(ReadError::Expired { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_clock_that_is_30_days_ahead_for_one_opening_lets_no_result_expire_and_frees_no_id() {
    for kind in KINDS {
        let mut store = Store::new(kind);
        let opening = store.open();
        let mut authors: Vec<_> = (0..3).map(|hour| store.finish(&opening, at(hour))).collect();
        store.end(opening);
        let ahead = store.open();
        for minute in 0..10 {
            authors.push(store.finish(&ahead, at(720) + Duration::from_secs(60 * minute)));
            ahead.host.advance(Duration::from_secs(60));
        }
        assert!(
            authors.iter().all(|author| is_retained(&ahead, author)),
            "{kind:?}"
        );
        store.end(ahead);
        let right = store.open();
        authors.push(store.finish(&right, at(4)));
        assert!(
            authors.iter().all(|author| is_retained(&right, author)),
            "{kind:?}"
        );
        // Nor in a copy.
        let copy = store.folder.path().join("copy.redb");
        right.journal.backup(&copy).unwrap();
        let copied = store.open_at(&copy);
        authors.push(store.finish(&copied, at(720)));
        assert!(
            authors[1..].iter().all(|author| is_retained(&copied, author)),
            "{kind:?}"
        );
        store.end(copied);
        store.end(right);
    }
}

#[test]
fn a_clock_that_jumps_ahead_while_the_store_is_open_is_believed_at_twice_the_pace_of_time() {
    let mut store = Store::new(KINDS[0]);
    let opening = store.open();
    let first = store.finish(&opening, at(0));
    // Six hours for the opening, and two for each that passes.
    for hour in 0..=33 {
        store.finish(&opening, at(720 + hour));
        assert!(is_retained(&opening, &first), "after {hour} hours");
        opening.host.advance(HOUR);
    }
    store.finish(&opening, at(754));
    assert_eq!(opening.journal.stats().dropped_runs, 1);
    assert!(!is_retained(&opening, &first));
    store.end(opening);
}

#[test]
fn after_a_month_without_a_process_results_expire_a_few_with_each_opening_and_hour() {
    for kind in KINDS {
        let mut store = Store::new(kind);
        let opening = store.open();
        let first = store.finish(&opening, at(0));
        store.end(opening);
        let mut openings = 0;
        loop {
            let opening = store.open();
            openings += 1;
            // It is closed again after an hour.
            store.finish(&opening, at(720 + openings * 2));
            opening.host.advance(HOUR);
            store.finish(&opening, at(721 + openings * 2));
            let is_over = !is_retained(&opening, &first);
            store.end(opening);
            if is_over {
                break;
            }
        }
        assert_eq!(openings, 10, "{kind:?}: 72 hours at eight an opening, and one");
    }
}

#[test]
fn what_closes_while_the_clock_is_behind_is_as_old_as_it_is() {
    for kind in KINDS {
        let mut store = Store::new(kind);
        let opening = store.open();
        store.finish(&opening, at(0));
        store.end(opening);
        let behind = store.open();
        let late = store.finish(&behind, at(-720));
        assert!(is_retained(&behind, &late), "{kind:?}");
        store.end(behind);
        let right = store.open();
        for hour in 1..=72 {
            right.host.advance(HOUR);
            store.finish(&right, at(hour));
            assert!(is_retained(&right, &late), "{kind:?}: {hour} hours later");
        }
        right.host.advance(DAY);
        store.finish(&right, at(97));
        assert!(!is_retained(&right, &late), "{kind:?}");
        store.end(right);
    }
}
