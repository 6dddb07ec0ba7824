//! What is retained and remembered, against plain maps.

use std::collections::BTreeMap;
use std::time::Duration;

use millrun_core::Partition;

use super::*;

fn run(number: u64) -> RunId {
    RunId::new(Partition::from_index(0).unwrap(), Timestamp::EPOCH, number)
}

fn close(number: u64, id: &str, closed_at: Timestamp) -> Close {
    Close {
        run: run(number),
        id: IdHash::of(id),
        closed_at,
        head: Sequence::new(number),
        kind: 1,
    }
}

/// Maps in which nothing but what retention drops is ever removed.
#[derive(Default)]
struct Model {
    /// The number of the latest under each name.
    by_run: BTreeMap<RunId, u64>,
    by_id: BTreeMap<u64, u64>,
    retained: BTreeMap<u64, (Close, Vec<u8>)>,
    expired: BTreeMap<u64, RunId>,
}

impl Model {
    fn add(&mut self, number: u64, close: Close, frames: &[u8]) {
        self.by_run.insert(close.run, number);
        self.by_id.insert(close.id.bits(), number);
        self.retained.insert(number, (close, frames.to_vec()));
    }

    fn bytes(&self) -> u64 {
        let lens = self.retained.values().map(|(_, frames)| frames.len() as u64);
        lens.sum()
    }

    fn trim(&mut self, retention: &Retention, now: Timestamp) -> u64 {
        let mut dropped = 0;
        while let Some((number, (close, _))) = self.retained.first_key_value()
            && !retention.retains(now, close.closed_at, self.retained.len() as u64, self.bytes())
        {
            self.expired.insert(*number, close.run);
            self.retained.pop_first();
            dropped += 1;
        }
        while self.expired.len() > retention.expired_len_max {
            self.expired.pop_first();
        }
        dropped
    }

    fn known(&self, number: Option<&u64>) -> Option<KnownRun<'_>> {
        let retained = self.retained.get(number?);
        let retained = retained.map(|(close, frames)| KnownRun::Retained(*close, frames));
        retained.or_else(|| self.expired.get(number?).copied().map(KnownRun::Expired))
    }
}

fn compare(retention: Retention, frames_len: impl Fn(u64) -> usize) {
    // The lower halves of numbers begin anew after the fiftieth run of the second.
    for first in [0, u64::from(u32::MAX) - 50] {
        compare_from(first, retention, &frames_len);
    }
}

fn compare_from(first: u64, retention: Retention, frames_len: impl Fn(u64) -> usize) {
    let mut retained = RetainedRuns::new(retention);
    (retained.forgotten, retained.first, retained.end) = (first, first, first);
    let mut model = Model::default();
    for count in 0..400 {
        // Of each id several runs follow each other, not far apart and far apart.
        let id = format!("{}", count % 13 * (count / 100));
        let now = Timestamp::from_micros(1_000 * count);
        let close = close(count, &id, now);
        let frames = vec![u8::try_from(count % 251).unwrap(); frames_len(count)];
        model.add(first + count, close, &frames);
        retained.add(close, frames);
        assert_eq!(retained.trim(now), model.trim(&retention, now));
        assert_eq!(
            (retained.len(), retained.bytes()),
            (model.retained.len() as u64, model.bytes())
        );
        // Now and then some are asked for by their own names, and only some are entered then.
        if count % 40 < 7 {
            retained.index_runs(first + count, 5);
        }
        for other in 0..=count + 1 {
            if count % 3 > 0 {
                break;
            }
            while !retained.index_runs(retained.end(), 3) {}
            let number = model.by_run.get(&run(other));
            assert_eq!(
                retained.run(run(other)),
                model.known(number),
                "{other} at {count}"
            );
            let number = number.filter(|number| model.retained.contains_key(number));
            assert_eq!(retained.number(run(other)), number.copied());
        }
        for name in 0..40 {
            let id = IdHash::of(&format!("{name}"));
            let number = model.by_id.get(&id.bits());
            assert_eq!(retained.latest(id), model.known(number), "{name} at {count}");
        }
        for from in [0, first + count / 2, first + count, first + count + 1] {
            let expected = model.retained.range(from..);
            let expected = expected.map(|(_, (close, frames))| (*close, &frames[..]));
            assert!(retained.list(from).eq(expected), "from {from} at {count}");
        }
    }
}

#[test]
fn what_is_retained_and_what_is_remembered_is_that_of_plain_maps() {
    let retention = Retention {
        age_max: Duration::MAX,
        age_step_max: Duration::MAX,
        len_max: 50,
        bytes_max: u64::MAX,
        expired_len_max: 30,
    };
    compare(retention, |number| 100 + index(number % 7));
    // Large ones, none, and what is just not large, among others.
    compare(retention, |number| match number % 9 {
        0 | 3 | 4 => COPY_BYTES_MAX + 1,
        1 => 0,
        2 => COPY_BYTES_MAX,
        _ => 40_000,
    });
    compare(retention, |_| COPY_BYTES_MAX + 1);
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
        let given_back = retained.add(close(number, "a", Timestamp::EPOCH), vec![0; 50_000]);
        assert_eq!(given_back.map(|frames| frames.len()), Some(50_000));
        retained.trim(Timestamp::EPOCH);
        // Five fit in a block: two of those that are retained stand in parts of blocks at most.
        assert!(retained.blocks.len() - retained.dropped <= 3, "{number}");
    }
    assert_sound(&retained);
}

#[test]
fn blocks_never_grow_and_hold_a_bounded_number_of_runs() {
    let retention = Retention {
        len_max: 5_000,
        ..Retention::default()
    };
    let mut retained = RetainedRuns::new(retention);
    for number in 0..20_000 {
        retained.add(close(number, "a", Timestamp::EPOCH), vec![0; index(number % 2)]);
        retained.trim(Timestamp::EPOCH);
        assert!(retained.blocks.len() - retained.dropped <= 3, "{number}");
        // Names stay with their blocks: 10,000 of them, in up to 4,096 each.
        assert!(retained.dropped <= 4, "{number}");
    }
    assert_sound(&retained);
    assert!(retained.spare.bytes.capacity() > 0);
    assert!(retained.spare.runs.capacity() > 0);
}

fn assert_sound(retained: &RetainedRuns) {
    let room = Vec::<u8>::with_capacity(BLOCK_BYTES).capacity();
    for (place, block) in retained.blocks.iter().enumerate() {
        let is_dropped = place < retained.dropped;
        assert_eq!(block.bytes.capacity(), if is_dropped { 0 } else { room });
        assert!(block.runs.len() <= BLOCK_LEN_MAX);
    }
    assert!([0, room].contains(&retained.spare.bytes.capacity()));
}

#[test]
fn large_frames_go_with_their_run_and_leave_the_rest_of_the_block_to_others() {
    let retention = Retention {
        len_max: 3,
        ..Retention::default()
    };
    let mut retained = RetainedRuns::new(retention);
    for number in 0..100 {
        let is_large = number % 2 == 1;
        let frames = vec![0; if is_large { 1_000_000 } else { 1_000 }];
        let memory = frames.as_ptr();
        let given_back = retained.add(close(number, "a", Timestamp::EPOCH), frames);
        assert_eq!(given_back.is_none(), is_large);
        retained.trim(Timestamp::EPOCH);
        assert!(retained.index_runs(number + 1, 1));
        let Some(KnownRun::Retained(_, kept)) = retained.run(run(number)) else {
            panic!("{number} is retained");
        };
        assert_eq!(kept.as_ptr() == memory, is_large, "it is not copied");
        let large = retained.blocks.iter().map(|block| block.large.len());
        assert!(large.sum::<usize>() <= 2, "{number}");
        assert_eq!(retained.blocks.len(), 1, "{number}");
    }
    assert_sound(&retained);
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
        let close = close(number, &format!("{number}"), Timestamp::EPOCH);
        retained.add(close, frames.to_vec());
        retained.trim(Timestamp::EPOCH);
        assert!(retained.index_runs(retained.end(), 1));
        let (by_run, by_id) = (retained.run(run(0)), retained.latest(IdHash::of("0")));
        assert_eq!(by_run, by_id);
        by_run.map(|known| match known {
            KnownRun::Retained(_, frames) => frames.to_vec(),
            KnownRun::Expired(expired) => {
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
