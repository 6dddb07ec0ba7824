use std::convert::Infallible;

use millrun_core::Timestamp;

use super::*;
use crate::batch::TurnHeader;
use crate::config::Retention;

/// One whole run.
fn finish(journal: &MemoryJournal, number: u64) -> RunId {
    begin(journal, number, true)
}

/// The first turn of a run, or all of it.
fn begin(journal: &MemoryJournal, number: u64, closes: bool) -> RunId {
    let id = InstanceId::new(&format!("order-{number}")).expect("a sound id");
    let time = Timestamp::from_micros(1_700_000_000_000_000);
    let run = RunId::new(id.partition(), time, number);
    let mut batch = Batch::new();
    let mut turn = batch.turn(TurnHeader {
        run,
        head: Sequence::ZERO,
        epoch: Epoch::new(1),
        time,
        opens: Some(&id),
    });
    let body = |buffer: &mut Vec<u8>| {
        buffer.extend_from_slice(&number.to_le_bytes());
        Ok::<_, Infallible>(())
    };
    turn.record(1, body).expect("the encoder cannot fail");
    turn.finish(closes).expect("the turn is sound");
    let enqueued = journal.enqueue(&batch).expect("there is room");
    assert_eq!(enqueued.refused, []);
    run
}

#[test]
fn finished_runs_are_found_by_their_own_ids_however_many_finish_between_two_questions() {
    let config = JournalConfig {
        retention: Retention {
            len_max: 3_000,
            expired_len_max: 2_000,
            ..Retention::default()
        },
        ..JournalConfig::default()
    };
    let journal = MemoryJournal::new(config).expect("sound bounds");
    let mut runs = Vec::new();
    // More between two questions than are entered at a time, and more than are remembered.
    for finished in [1, 2_500, 20, 7_000, 500, 1_023, 1_025] {
        for _ in 0..finished {
            runs.push(finish(&journal, runs.len() as u64));
        }
        for (age, run) in runs.iter().rev().enumerate() {
            let history = journal.history(*run);
            match age {
                0..3_000 => assert_eq!(
                    history.expect("it is retained").records[0].body,
                    (runs.len() - 1 - age).to_le_bytes().as_slice()
                ),
                3_000..5_000 => assert_eq!(history, Err(ReadError::Expired { run: *run })),
                _ => assert_eq!(history, Err(ReadError::UnknownRun { run: *run })),
            }
        }
        let listed = journal.list_finished(Some(runs[runs.len() - 1]), 10);
        assert_eq!(listed, Ok(Vec::new()));
    }
}

#[test]
fn a_page_behind_a_run_that_has_finished_and_begun_again_is_the_one_behind_it() {
    let journal = MemoryJournal::new(JournalConfig::default()).expect("sound bounds");
    let runs: Vec<_> = (0..4).map(|number| finish(&journal, number)).collect();
    assert_eq!(begin(&journal, 2, false), runs[2]);
    let listed = journal.list_finished(Some(runs[2]), 10).expect("it is open");
    assert_eq!(listed.iter().map(|one| one.run).collect::<Vec<_>>(), [runs[3]]);
}

#[test]
fn of_a_finished_run_that_begins_again_nothing_is_seen_until_that_is_durable() {
    let journal = MemoryJournal::held(JournalConfig::default()).expect("sound bounds");
    let run = finish(&journal, 0);
    journal.commit();
    assert_eq!(begin(&journal, 0, false), run);
    // Only what is durable is seen: as long as the second beginning is not, nothing of either.
    assert_eq!(journal.history(run), Err(ReadError::UnknownRun { run }));
    journal.commit();
    assert_eq!(journal.history(run).expect("it is live").records.len(), 1);
}
