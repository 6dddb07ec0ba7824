use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::config::JournalConfig;
use crate::journal::{Journal, Reads};
use crate::memory::MemoryJournal;

fn id() -> InstanceId {
    InstanceId::new("a").expect("a sound id")
}

fn header(id: &InstanceId) -> TurnHeader<'_> {
    let time = Timestamp::from_micros(1_700_000_000_000_000);
    TurnHeader {
        run: RunId::new(id.partition(), time, 1),
        head: Sequence::ZERO,
        epoch: Epoch::new(1),
        time,
        opens: Some(id),
    }
}

fn write(turn: &mut TurnWriter<'_>, body: &[u8]) {
    let encode = |buffer: &mut Vec<u8>| {
        buffer.extend_from_slice(body);
        Ok::<_, Infallible>(())
    };
    turn.record(1, encode).expect("the encoder cannot fail");
}

fn panic_in_the_middle(turn: &mut TurnWriter<'_>) {
    let half = |buffer: &mut Vec<u8>| -> Result<(), Infallible> {
        buffer.extend_from_slice(b"half-written");
        panic!("the encoder gives up")
    };
    let caught = catch_unwind(AssertUnwindSafe(|| turn.record(2, half)));
    assert!(caught.is_err());
}

/// What a journal reads back of the batch's only run.
fn bodies(batch: &Batch) -> Vec<Vec<u8>> {
    let journal = MemoryJournal::new(JournalConfig::default()).expect("sound bounds");
    let enqueued = journal.enqueue(batch).expect("the batch is taken");
    assert_eq!(enqueued.refused, []);
    let history = journal.history(header(&id()).run).expect("it has records");
    let bodies = history.records.iter().map(|record| record.body.to_vec());
    bodies.collect()
}

#[test]
fn what_an_encoder_that_panics_has_written_is_in_no_frame() {
    let id = id();
    // Before the first record, between two, and behind the last.
    for panics in [
        [true, false, false],
        [false, true, false],
        [false, false, true],
        [true; 3],
    ] {
        let mut batch = Batch::new();
        let mut turn = batch.turn(header(&id));
        for (panics, body) in panics.into_iter().zip([Some(b"first"), Some(b"other"), None]) {
            if panics {
                panic_in_the_middle(&mut turn);
            }
            if let Some(body) = body {
                write(&mut turn, body);
            }
        }
        turn.finish(true).expect("the turn is sound");
        let mut expected = Batch::new();
        let mut turn = expected.turn(header(&id));
        write(&mut turn, b"first");
        write(&mut turn, b"other");
        turn.finish(true).expect("the turn is sound");
        assert_eq!(batch.bytes, expected.bytes, "{panics:?}");
        assert_eq!(bodies(&batch), [b"first", b"other"], "{panics:?}");
    }
}

#[test]
fn a_turn_whose_only_encoder_panics_is_empty() {
    let id = id();
    let mut batch = Batch::new();
    let mut turn = batch.turn(header(&id));
    panic_in_the_middle(&mut turn);
    assert_eq!(turn.finish(false), Err(TurnError::Empty));
    assert_eq!((batch.turns(), batch.bytes()), (0, 0));
}

#[test]
fn a_turn_whose_encoder_removes_what_is_not_its_own_is_not_finished() {
    let id = id();
    let mut batch = Batch::new();
    let mut turn = batch.turn(header(&id));
    write(&mut turn, b"first");
    let clear = |buffer: &mut Vec<u8>| {
        buffer.clear();
        Ok::<_, Infallible>(())
    };
    assert!(catch_unwind(AssertUnwindSafe(|| turn.record(1, clear))).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| turn.finish(false))).is_err());
    assert!(batch.is_empty());
}

#[test]
fn a_batch_without_checksums_gets_those_that_any_other_has() {
    let id = id();
    let filled = |mut batch: Batch| {
        for (head, opens) in [(0, Some(&id)), (2, None)] {
            let mut turn = batch.turn(TurnHeader {
                head: Sequence::new(head),
                opens,
                ..header(&id)
            });
            write(&mut turn, b"first");
            write(&mut turn, b"");
            turn.finish(head > 0).expect("the turn is sound");
        }
        batch
    };
    let (any, unsealed) = (filled(Batch::new()), filled(Batch::unsealed(1_000)));
    assert_ne!(any.bytes, unsealed.bytes);
    let digests = |batch: &Batch| -> Vec<u32> { batch.turns.iter().map(|turn| turn.digest).collect() };
    let mut joined = Batch::new();
    joined.join(&unsealed);
    for sealed in [&*unsealed.sealed(), &*any.sealed(), &joined] {
        assert!(sealed.is_sealed);
        assert_eq!((&sealed.bytes, digests(sealed)), (&any.bytes, digests(&any)));
    }
}

#[test]
fn turns_are_read_as_they_were_written_with_checksums_and_without() {
    let mut batches = [Batch::new(), Batch::unsealed(TURN_BYTES_MAX_DEFAULT)];
    for batch in &mut batches {
        let id = InstanceId::new("order-42").unwrap();
        let time = Timestamp::from_micros(7);
        let run = RunId::new(id.partition(), time, 1);
        let header = TurnHeader {
            run,
            head: Sequence::ZERO,
            epoch: Epoch::of(3, 1),
            time,
            opens: Some(&id),
        };
        let mut turn = batch.turn(header);
        for (kind, body) in [(4, &b"began"[..]), (5, b"")] {
            let encode = |bytes: &mut Vec<u8>| {
                bytes.extend_from_slice(body);
                Ok::<_, Infallible>(())
            };
            turn.record(kind, encode).unwrap();
        }
        turn.finish(false).unwrap();
        let header = TurnHeader {
            head: Sequence::new(2),
            opens: None,
            ..header
        };
        let mut turn = batch.turn(header);
        turn.record(6, |_| Ok::<_, Infallible>(())).unwrap();
        turn.finish(true).unwrap();
        batch.tie_last();

        let heads = batch.iter().map(|turn| (turn.head().get(), turn.last().get()));
        assert_eq!(heads.collect::<Vec<_>>(), [(0, 2), (2, 3)]);
        let [first, last] = [0, 1].map(|turn| batch.turn_at(turn).unwrap());
        assert!(batch.turn_at(2).is_none());
        assert_eq!(
            (first.run(), first.epoch(), first.time()),
            (run, Epoch::of(3, 1), time)
        );
        assert_eq!((first.opens(), last.opens()), (Some("order-42"), None));
        assert_eq!((first.closes(), last.closes()), (false, true));
        assert_eq!((first.is_tied(), last.is_tied()), (false, true));
        assert_eq!(first.bytes() + last.bytes(), batch.bytes());
        let records = batch.iter().flat_map(|turn| turn.records());
        let records: Vec<_> = records
            .map(|record| (record.sequence.get(), record.kind, record.body, record.closes))
            .collect();
        let expected: [(_, _, &[u8], _); 3] =
            [(1, 4, b"began", false), (2, 5, b"", false), (3, 6, b"", true)];
        assert_eq!(records, expected);
    }
}

fn opening(id: &InstanceId, unique: u64) -> TurnHeader<'_> {
    let time = Timestamp::from_micros(5);
    TurnHeader {
        run: RunId::new(id.partition(), time, unique),
        head: Sequence::ZERO,
        epoch: Epoch::new(1),
        time,
        opens: Some(id),
    }
}

fn put(mut turn: TurnWriter<'_>, len: usize) -> Result<usize, TurnError> {
    let encode = |bytes: &mut Vec<u8>| {
        bytes.resize(bytes.len() + len, 1);
        Ok::<_, Infallible>(())
    };
    turn.record(1, encode).unwrap();
    turn.finish(false)
}

/// What stands in a batch: the indexes of the turns of each group.
fn groups(batch: &Batch) -> Vec<Vec<usize>> {
    let indexes = |group: GroupView<'_>| group.turns().map(|(index, _)| index).collect();
    batch.groups().map(indexes).collect()
}

#[test]
fn a_batch_is_read_as_turns_and_as_groups() {
    let id = InstanceId::new("order-42").unwrap();
    let mut batch = Batch::new();
    put(batch.turn(opening(&id, 1)), 10).unwrap();
    for (from, len) in [(2, 3), (5, 2)] {
        let mut group = batch.group();
        for unique in from..from + len {
            put(group.turn(opening(&id, unique)), 10).unwrap();
        }
        group.finish().unwrap();
    }
    batch.tie_last();
    let mut group = batch.group();
    put(group.turn(opening(&id, 7)), 10).unwrap();
    assert_eq!(group.finish(), Ok(6..7));
    assert_eq!(groups(&batch), [vec![0], vec![1, 2, 3], vec![4, 5], vec![6]]);
    let tied: Vec<_> = batch.groups().map(|group| group.is_tied()).collect();
    assert_eq!(tied, [false, false, true, false]);
    let bytes: usize = batch.groups().map(|group| group.bytes()).sum();
    assert_eq!(bytes, batch.bytes());
    batch.clear();
    batch.tie_last();
    assert_eq!(groups(&batch), Vec::<Vec<usize>>::new());
}

#[test]
fn a_group_that_is_not_sound_leaves_no_trace() {
    let id = InstanceId::new("order-42").unwrap();
    let mut batch = Batch::with_turn_bytes_max(200);
    put(batch.turn(opening(&id, 1)), 10).unwrap();
    let before = batch.bytes();
    assert_eq!(batch.group().finish(), Err(TurnError::Empty));
    let mut group = batch.group();
    put(group.turn(opening(&id, 2)), 10).unwrap();
    drop(group);
    let mut group = batch.group();
    put(group.turn(opening(&id, 2)), 10).unwrap();
    drop(group.turn(opening(&id, 3)));
    put(group.turn(opening(&id, 4)), 10).unwrap();
    assert_eq!(group.finish(), Err(TurnError::GroupNotWhole));
    let mut group = batch.group();
    for unique in [2, 3, 2] {
        put(group.turn(opening(&id, unique)), 1).unwrap();
    }
    let run = opening(&id, 2).run;
    assert_eq!(group.finish(), Err(TurnError::RunTwice { run }));
    // Each by itself would be small enough.
    let mut group = batch.group();
    put(group.turn(opening(&id, 2)), 60).unwrap();
    let refused = put(group.turn(opening(&id, 3)), 60);
    assert!(
        matches!(refused, Err(TurnError::TooLarge { bytes: 232, max: 200 })),
        "{refused:?}"
    );
    assert_eq!(group.finish(), Err(TurnError::GroupNotWhole));
    assert_eq!((batch.turns(), batch.bytes()), (1, before));
}
