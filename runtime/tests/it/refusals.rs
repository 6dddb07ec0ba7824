//! Turns that the journal refuses: of a run that is not what its shard takes it for, and of a shard that is not the
//! owner any more.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millrun::operating::NamedHistogram;
use millrun::store::MemoryJournal;
use millrun::{InstanceId, ResultError, RunError, RunId, Runtime, StartError, StopCause, Timestamp};
use millrun_core::{Partition, Sequence};
use millrun_persistence::{Batch, Journal, JournalConfig, TurnHeader};

use crate::support::{DOUBLE, QUADRUPLE, double, quadruple};
use crate::tapped::{Tapped, intrude};

fn memory() -> Arc<MemoryJournal> {
    Arc::new(MemoryJournal::new(JournalConfig::default()).unwrap())
}

/// Each refusal was a panic of the shard, which counts towards `restarts_max`: after five of them in a minute,
/// or one and four real failures, the runtime stopped. A refused turn concerns its run alone: the run is read
/// again, and what it was told is told to it again.
#[tokio::test]
async fn a_run_whose_turn_was_refused_is_read_again_and_no_part_is_restarted() {
    for ahead in [0, 1_000] {
        let (calls, refused) = (AtomicU64::new(0), Arc::new(AtomicU64::new(0)));
        let refusals = Arc::clone(&refused);
        let journal = Tapped::new(memory(), move |journal, batch| {
            if !batch.is_empty() && calls.fetch_add(1, Ordering::Relaxed) % 4 == 3 {
                intrude(journal, batch, ahead);
            }
            let enqueued = journal.enqueue(batch)?;
            refusals.fetch_add(enqueued.refused.len() as u64, Ordering::Relaxed);
            Ok(enqueued)
        });
        let builder = Runtime::volatile()
            .register(DOUBLE, double)
            .register(QUADRUPLE, quadruple)
            .configure(|config| {
                config.restarts_max = 0;
                config.replay_check_every = 1;
            });
        let runtime = builder.journal(journal).start().await.unwrap();
        assert!(runtime.durations().runs.is_empty());
        for number in 0..50 {
            let run = runtime.start(QUADRUPLE, &format!("q-{number}"), number).await;
            let value = loop {
                match run.as_ref().unwrap().result().await {
                    // The turn with its end was refused: nobody is told of it.
                    Err(ResultError::Run(RunError::Stopped(StopCause::Part { .. }))) => {
                        assert!(runtime.stop_cause().is_none());
                    }
                    value => break value.unwrap(),
                }
            };
            assert_eq!(value, number * 4);
        }
        assert!(refused.load(Ordering::Relaxed) >= 5, "{refused:?}");
        assert!(runtime.parts().iter().all(|part| part.restarts == 0));
        let stats = runtime.stats();
        assert_eq!(
            (stats.live, stats.parked, stats.finished),
            (0, 0, 50),
            "{stats:?}"
        );
        // What a refused turn said is counted once, with the turn that is taken in its place.
        let durations = runtime.durations();
        let told = |rows: &[NamedHistogram]| -> Vec<_> {
            rows.iter()
                .map(|row| (row.name.clone(), row.histogram.len()))
                .collect()
        };
        assert_eq!(told(&durations.runs), [("quadruple".to_owned(), 50)]);
        assert_eq!(told(&durations.attempts), [("double".to_owned(), 100)]);
        runtime.shutdown().await.unwrap();
    }
}

/// A shard whose turns were fenced failed like any other, and its successor took the partitions back from the
/// owner that had replaced it, who then did the same. Later the loss ended the whole runtime.
#[tokio::test]
async fn a_shard_that_another_owner_has_replaced_goes_on_without_and_takes_nothing_back() {
    let journal = memory();
    let builder = Runtime::volatile().register(QUADRUPLE, quadruple);
    let builder = builder.journal(Arc::clone(&journal) as Arc<dyn Journal>);
    let runtime = builder.start().await.unwrap();
    // Its activity is not registered, so this one waits.
    let waiting = runtime.start(QUADRUPLE, "waits", 1).await.unwrap();
    let waiting = tokio::spawn(async move { waiting.result().await });
    let all: Vec<_> = (0..Partition::COUNT).filter_map(Partition::from_index).collect();
    let epoch = journal.take_over(&all).unwrap();
    for round in 0..2 {
        let late = runtime.start(QUADRUPLE, "late", 1).await.unwrap_err();
        let of: InstanceId = "late".parse().unwrap();
        assert!(
            matches!(&late, StartError::Moved { partition, .. } if *partition == of.partition()),
            "{late:?}"
        );
        if round == 0 {
            // Nor does its successor.
            runtime.kill("shard 0").unwrap();
        }
    }
    let answer = waiting.await.unwrap();
    assert!(
        matches!(&answer, Err(ResultError::Run(RunError::Moved { .. }))),
        "{answer:?}"
    );
    assert!(runtime.stop_cause().is_none());
    assert!(runtime.partitions().owned().is_empty());
    // The other owner goes on.
    let id: InstanceId = "other".parse().unwrap();
    let header = TurnHeader {
        run: RunId::new(id.partition(), Timestamp::EPOCH, 1),
        head: Sequence::ZERO,
        epoch,
        time: Timestamp::EPOCH,
        opens: Some(&id),
    };
    let mut batch = Batch::new();
    let mut turn = batch.turn(header);
    turn.record(1, |_| Ok::<_, Infallible>(())).unwrap();
    turn.finish(false).unwrap();
    assert_eq!(journal.enqueue(&batch).unwrap().refused, []);
    runtime.shutdown().await.unwrap();
}
