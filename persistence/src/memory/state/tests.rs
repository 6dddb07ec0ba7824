use std::convert::Infallible;

use millrun_core::{InstanceId, Sequence, Timestamp};

use super::*;
use crate::batch::TurnHeader;

/// Takes one turn of `bytes` bytes, by a run of this number.
fn turn(state: &mut MemoryState, number: u64, head: u64, bytes: usize, closes: bool) -> RunId {
    let id = InstanceId::new("a").expect("a sound id");
    let time = Timestamp::from_micros(1_700_000_000_000_000);
    let run = RunId::new(id.partition(), time, number);
    let mut batch = Batch::new();
    let mut turn = batch.turn(TurnHeader {
        run,
        head: Sequence::new(head),
        epoch: Epoch::new(1),
        time,
        opens: (head == 0).then_some(&id),
    });
    let body = |buffer: &mut Vec<u8>| {
        buffer.resize(buffer.len() + bytes, 7);
        Ok::<_, Infallible>(())
    };
    turn.record(1, body).expect("the encoder cannot fail");
    turn.finish(closes).expect("the turn is sound");
    assert!(state.admit(&batch).is_empty());
    state.commit();
    run
}

fn state() -> MemoryState {
    MemoryState::new(&JournalConfig::default(), false, Epoch::new(1))
}

/// Length and capacity of what is held for a live run.
fn held(state: &MemoryState, run: RunId) -> (usize, usize) {
    let bytes = &state.conditions.head(run).expect("it is live").place.bytes;
    (bytes.len(), bytes.capacity())
}

#[test]
fn a_run_that_stays_open_does_not_hold_a_buffer_out_of_proportion() {
    let mut state = state();
    for number in (0..1_000).step_by(2) {
        turn(&mut state, number, 0, 3_000, true);
        let open = turn(&mut state, number + 1, 0, 250, false);
        let (len, capacity) = held(&state, open);
        assert!(capacity <= 4 * len, "{number}: {len} in {capacity}");
    }
}

#[test]
fn a_run_opens_in_the_buffer_of_one_like_it_that_has_closed() {
    let mut state = state();
    turn(&mut state, 1, 0, 300, false);
    turn(&mut state, 2, 0, 1_500, false);
    turn(&mut state, 1, 1, 300, true);
    turn(&mut state, 2, 1, 300, true);
    // One that is too large for it is no obstacle for long.
    assert_eq!(state.spare.len(), 2);
    turn(&mut state, 3, 0, 300, false);
    assert_eq!(state.spare.len(), 1);
    let capacity = state.spare[0].capacity();
    let open = turn(&mut state, 4, 0, 300, false);
    assert_eq!((held(&state, open).1, state.spare.len()), (capacity, 0));
}

#[test]
fn a_large_history_is_retained_without_a_copy() {
    let mut state = state();
    let run = turn(&mut state, 1, 0, 100_000, false);
    let bytes = &mut state.conditions.head_mut(run).expect("it is live").place.bytes;
    bytes.reserve(10_000);
    let before = bytes.as_ptr();
    assert_eq!(turn(&mut state, 1, 1, 1_000, true), run);
    let end = state.finished.end();
    assert!(state.finished.index_runs(end, 1));
    let after = state.known_frames(run).expect("it is retained");
    assert!(after.len() > 101_000);
    assert_eq!(after.as_ptr(), before);
    assert!(state.spare.is_empty());
}
