//! Partitions that move between two runtimes while entities there are commanded and read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use millrun::store::{Journal, JournalConfig, MemoryJournal, Partition};
use millrun::{CommandError, QueryError, RunError, Runtime};

use super::{PUT, PUTS, SUM, TILL, till};

/// Each request is performed once, and a read that is answered shows all that was answered before.
#[tokio::test]
async fn commands_and_reads_hold_while_partitions_move() {
    const CALLERS: u64 = 10;
    const COMMANDS: u64 = 20;
    let journal = Arc::new(MemoryJournal::new(JournalConfig::default()).unwrap());
    let open = |claimed: Option<Vec<Partition>>| {
        let builder = Runtime::volatile().journal(Arc::clone(&journal) as Arc<dyn Journal>);
        let builder = builder.entity(till().snapshot_every(7)).durable_topic(PUTS);
        builder
            .configure(|config| config.claimed_at_open = claimed)
            .start()
    };
    let runtimes = [open(None).await.unwrap(), open(Some(Vec::new())).await.unwrap()];
    let partitions: Vec<_> = (0..Partition::COUNT).filter_map(Partition::from_index).collect();
    let is_done = Arc::new(AtomicBool::new(false));
    let callers = (0..CALLERS).map(|caller| {
        let runtimes = runtimes.clone();
        async move {
            let (key, mut owner) = (format!("till-{}", caller % 3), 0);
            for number in 0..COMMANDS {
                let answer = loop {
                    let till = runtimes[owner].entity(TILL, &key);
                    let call = till.call(PUT, 1);
                    match call.request(format!("{caller}-{number}")).await {
                        Ok(answer) => break answer,
                        Err(CommandError::Run(RunError::Moved { .. })) => owner = 1 - owner,
                        Err(error) => panic!("{error:?}"),
                    }
                };
                let sum = loop {
                    match runtimes[owner].entity(TILL, &key).read(SUM, ()).await {
                        Ok(sum) => break sum,
                        Err(QueryError::Run(RunError::Moved { .. })) => owner = 1 - owner,
                        Err(error) => panic!("{error:?}"),
                    }
                };
                assert!(sum >= answer, "{sum} was read behind {answer}");
            }
        }
    });
    let moves = async {
        let mut taker = 1;
        while !is_done.load(Ordering::Relaxed) {
            runtimes[taker].partitions().take(&partitions).await.unwrap();
            taker = 1 - taker;
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
        }
    };
    let calls = async {
        join_all(callers).await;
        is_done.store(true, Ordering::Relaxed);
    };
    tokio::join!(calls, moves);
    runtimes[0].partitions().take(&partitions).await.unwrap();
    let mut sum = 0;
    for key in 0..3 {
        let till = runtimes[0].entity(TILL, &format!("till-{key}"));
        sum += till.read(SUM, ()).await.unwrap();
    }
    assert_eq!(sum, CALLERS * COMMANDS);
}
