//! What is retained and remembered, against two separate lists.

use std::time::Duration;

use millrun_core::Partition;

use super::*;
use crate::finished::{Expired, Finished, FinishedIndex};

fn run(number: u64) -> RunId {
    RunId::new(Partition::from_index(0).unwrap(), Timestamp::EPOCH, number)
}

/// The same as an index of all that are retained, and one of names.
struct Model {
    retention: Retention,
    finished: FinishedIndex<Vec<u8>>,
    expired: Expired,
}

impl Model {
    fn add(&mut self, closed: Closed, frames: &[u8]) {
        self.finished.add(Finished {
            run: closed.run,
            id: closed.id,
            closed_at: closed.closed_at,
            head: closed.head,
            bytes: frames.len() as u64,
            place: frames.to_vec(),
        });
    }

    fn trim(&mut self, now: Timestamp) -> u64 {
        let mut dropped = 0;
        while let Some(earliest) = self.finished.earliest()
            && !self.retention.retains(
                now,
                earliest.closed_at,
                self.finished.len(),
                self.finished.bytes(),
            )
            && let Some(gone) = self.finished.drop_earliest()
        {
            self.expired.add(gone.run, gone.id);
            dropped += 1;
        }
        dropped
    }

    fn known(found: Option<&Finished<Vec<u8>>>, expired: Option<RunId>) -> Option<Known<'_>> {
        let retained = found.map(|finished| Known::Retained(closed(finished), &finished.place));
        retained.or(expired.map(Known::Expired))
    }
}

fn closed(finished: &Finished<Vec<u8>>) -> Closed {
    Closed {
        run: finished.run,
        id: finished.id,
        closed_at: finished.closed_at,
        head: finished.head,
    }
}

fn compare(retention: Retention, frames_len: impl Fn(u64) -> usize) {
    let mut retained = RetainedRuns::new(retention);
    let mut model = Model {
        retention,
        finished: FinishedIndex::new(0),
        expired: Expired::new(retention.expired_len_max),
    };
    for number in 0..400 {
        // Of each id several runs follow each other, not far apart and far apart.
        let id = IdHash::of(&format!("{}", number % 13 * (number / 100)));
        let now = Timestamp::from_micros(1_000 * number);
        let closed_run = Closed {
            run: run(number),
            id,
            closed_at: now,
            head: Sequence::new(number),
        };
        let frames = vec![u8::try_from(number % 251).unwrap(); frames_len(number)];
        retained.add(closed_run, &frames);
        model.add(closed_run, &frames);
        assert_eq!(retained.trim(now), model.trim(now));
        assert_eq!(
            (retained.len(), retained.bytes()),
            (model.finished.len(), model.finished.bytes())
        );
        for other in 0..=number + 1 {
            let (found, expired) = (model.finished.run(run(other)), model.expired.has_run(run(other)));
            let expected = Model::known(found, expired.then_some(run(other)));
            assert_eq!(retained.run(run(other)), expected, "{other} at {number}");
            assert_eq!(retained.number(run(other)), model.finished.number(run(other)));
        }
        for name in 0..40 {
            let id = IdHash::of(&format!("{name}"));
            let expected = Model::known(model.finished.latest(id), model.expired.latest(id));
            assert_eq!(retained.latest(id), expected, "{name} at {number}");
        }
        for from in [0, number / 2, number, number + 1] {
            let expected = model.finished.list(from);
            let expected = expected.map(|finished| (closed(finished), &finished.place[..]));
            assert!(retained.list(from).eq(expected), "from {from} at {number}");
        }
    }
}

#[test]
fn what_is_retained_and_what_is_remembered_is_that_of_two_separate_lists() {
    let retention = Retention {
        age_max: Duration::MAX,
        len_max: 50,
        bytes_max: u64::MAX,
        expired_len_max: 30,
    };
    compare(retention, |number| 100 + index(number % 7));
    // Blocks of some runs, and of one.
    compare(retention, |number| match number % 9 {
        0 => BLOCK_BYTES + 1,
        1 => 0,
        _ => 40_000,
    });
    let by_bytes = Retention {
        len_max: usize::MAX,
        bytes_max: 1_000_000,
        ..retention
    };
    compare(by_bytes, |number| 30_000 + 20_000 * index(number / 50));
    let by_age = Retention {
        len_max: usize::MAX,
        age_max: Duration::from_millis(20),
        expired_len_max: 0,
        ..retention
    };
    compare(by_age, |_| 100_000);
    let none = Retention {
        len_max: 0,
        ..retention
    };
    compare(none, |_| 10);
}

#[test]
fn blocks_go_as_soon_as_none_of_their_runs_is_retained() {
    let retention = Retention {
        len_max: 10,
        ..Retention::default()
    };
    let mut retained = RetainedRuns::new(retention);
    for number in 0..200 {
        let closed = Closed {
            run: run(number),
            id: IdHash::of("a"),
            closed_at: Timestamp::EPOCH,
            head: Sequence::new(1),
        };
        retained.add(closed, &[0; 50_000]);
        retained.trim(Timestamp::EPOCH);
        // Five fit in a block: two of those that are retained stand in parts of blocks at most.
        assert!(retained.blocks.len() <= 3, "{number}");
        assert!(
            retained
                .blocks
                .iter()
                .all(|block| block.bytes.capacity() == BLOCK_BYTES)
        );
    }
}

#[test]
fn a_run_that_has_closed_twice_is_the_later_one_until_its_name_is_forgotten() {
    let retention = Retention {
        len_max: 1,
        expired_len_max: 1,
        ..Retention::default()
    };
    let mut retained = RetainedRuns::new(retention);
    let mut close = |number: u64, frames: &[u8]| {
        let closed = Closed {
            run: run(number),
            id: IdHash::of(&format!("{number}")),
            closed_at: Timestamp::EPOCH,
            head: Sequence::new(1),
        };
        retained.add(closed, frames);
        retained.trim(Timestamp::EPOCH);
        let (by_run, by_id) = (retained.run(run(0)), retained.latest(IdHash::of("0")));
        assert_eq!(by_run, by_id);
        by_run.map(|known| match known {
            Known::Retained(_, frames) => frames.to_vec(),
            Known::Expired(expired) => {
                assert_eq!(expired, run(0));
                Vec::new()
            }
        })
    };
    assert_eq!(close(0, b"earlier"), Some(b"earlier".to_vec()));
    assert_eq!(close(0, b"later"), Some(b"later".to_vec()));
    // Retention has dropped both, and the name of the earlier one is forgotten.
    assert_eq!(close(1, b""), Some(Vec::new()));
    assert_eq!(close(2, b""), None);
}
