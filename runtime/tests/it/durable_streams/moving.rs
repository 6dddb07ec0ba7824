//! Partitions that move between two runtimes while an activity sends.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use millrun::store::{Journal, JournalConfig, MemoryJournal, Partition};
use millrun::streams::{StreamAttempt, StreamItem};
use millrun::{ActivityContext, ActivityError, Runtime};
use tokio::sync::Notify;

use super::coded;
use crate::streams::{CALL, NUMBERS, started};

/// How often the partitions move: an even number.
const TURNS: usize = 200;

/// What all lives of the activity know.
#[derive(Default)]
struct Ledger {
    sent: AtomicU64,
    is_done: AtomicBool,
    acknowledged: Mutex<Vec<u64>>,
    grown: Notify,
}

/// Sends until it is told to end; each attempt opens the stream again when it is told that it cannot send.
async fn send_all(cx: ActivityContext, ledger: Arc<Ledger>) -> Result<(), ActivityError> {
    let mut numbers = cx.durable_stream(NUMBERS).await?;
    while !ledger.is_done.load(Ordering::SeqCst) {
        let number = ledger.sent.fetch_add(1, Ordering::SeqCst);
        match numbers.send(&number).await {
            Ok(()) => {
                ledger.acknowledged.lock().unwrap().push(number);
                ledger.grown.notify_one();
            }
            Err(_) => numbers = cx.durable_stream(NUMBERS).await?,
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_while_partitions_move_is_read_once_and_each_attempt_ends_once() {
    let journal = Arc::new(MemoryJournal::new(JournalConfig::default()).unwrap());
    let ledger = Arc::new(Ledger::default());
    let open = |claimed: Option<Vec<Partition>>| {
        let known = Arc::clone(&ledger);
        let builder = Runtime::volatile().journal(Arc::clone(&journal) as Arc<dyn Journal>);
        let builder = builder.configure(|config| config.claimed_at_open = claimed);
        coded(builder, move |cx, _| send_all(cx, Arc::clone(&known))).start()
    };
    let runtimes = [open(None).await.unwrap(), open(Some(Vec::new())).await.unwrap()];
    let all_partitions: Vec<_> = (0..Partition::COUNT).filter_map(Partition::from_index).collect();
    let run = started(&runtimes[0], 1).await;
    let acknowledged = || ledger.acknowledged.lock().unwrap().len();
    for turn in 1..=TURNS {
        let enough = acknowledged() + turn % 4;
        while acknowledged() < enough {
            ledger.grown.notified().await;
        }
        runtimes[turn % 2]
            .partitions()
            .take(&all_partitions)
            .await
            .unwrap();
        // A reader that looks in and goes.
        drop(
            runtimes[turn % 2]
                .attach(CALL, "run")
                .unwrap()
                .stream(NUMBERS)
                .await,
        );
    }
    drop(run);
    let enough = acknowledged() + 5;
    while acknowledged() < enough {
        ledger.grown.notified().await;
    }
    ledger.is_done.store(true, Ordering::SeqCst);
    let run = runtimes[0].attach(CALL, "run").unwrap();
    run.result().await.unwrap();

    let mut reader = run.stream(NUMBERS).await.unwrap();
    let (mut chunks, mut under_way) = (Vec::new(), BTreeSet::new());
    let name = |attempt: StreamAttempt| (attempt.operation.get(), attempt.attempt);
    let mut ended = BTreeSet::new();
    while let Some(item) = reader.next().await.unwrap() {
        match item {
            StreamItem::Began(attempt) => assert!(under_way.insert(name(attempt)), "{attempt:?} began twice"),
            StreamItem::Chunk(attempt, number) => {
                assert!(under_way.contains(&name(attempt)), "{number} of {attempt:?}");
                chunks.push(number);
            }
            StreamItem::Ended(attempt, _) => {
                assert!(
                    under_way.remove(&name(attempt)),
                    "{attempt:?} ended and had not begun"
                );
                assert!(ended.insert(name(attempt)), "{attempt:?} ended twice");
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(under_way.is_empty(), "{under_way:?}");
    assert!(chunks.is_sorted_by(|one, next| one < next), "{chunks:?}");
    let there: BTreeSet<_> = chunks.into_iter().collect();
    let lost: Vec<_> = ledger
        .acknowledged
        .lock()
        .unwrap()
        .iter()
        .filter(|number| !there.contains(number))
        .copied()
        .collect();
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
}
