use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::config::JournalConfig;
use crate::journal::Journal;
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
