//! Histories by pages: what is durable, as those see it who look on.

use std::sync::Arc;

use millrun::history::{Event, ExportedHistory, Fit, HistoryPage, Sequence};
use millrun::store::{ClosedStore, Journal, JournalConfig, MemoryJournal};
use millrun::{
    RunError, RunId, Runtime, RuntimeConfig, Signal, StopCause, Workflow, WorkflowContext, WorkflowError,
};
use millrun_core::{Partition, Timestamp};

use crate::support::Store;
use crate::tapped::Tapped;

const GO: Signal<u64> = Signal::named("go");
const SUM: Workflow<u64, u64> = Workflow::named("sum");

/// Adds up what it is told until that is nothing; after each ten it begins again from the sum.
async fn sum(cx: WorkflowContext, first: u64) -> Result<u64, WorkflowError> {
    let mut sum = cx.checkpointed().transpose()?.unwrap_or(first);
    for _ in 0..10 {
        match cx.receive(GO).await? {
            0 => return Ok(sum),
            number => sum += number,
        }
    }
    Ok(cx.checkpoint(&sum).await?)
}

/// All pages of a history of at most `len_max` events each.
async fn pages(runtime: &Runtime, run: RunId, len_max: usize) -> Vec<HistoryPage> {
    let (mut pages, mut after) = (Vec::new(), Some(Sequence::ZERO));
    while let Some(behind) = after {
        let page = runtime.history(run, behind, len_max).await.unwrap();
        assert!(page.events.len() <= len_max);
        assert_eq!(page.run, run);
        after = page.next();
        pages.push(page);
    }
    pages
}

#[tokio::test]
async fn pages_of_any_size_make_up_the_history_of_a_run_that_is_not_woken() {
    for bytes_max in [0, 500, 1 << 20] {
        let store = Store::new();
        let builder = store.bare().register(SUM, sum).configure(move |config| {
            config.hot_len_max = 0;
            config.keep_history = true;
            config.history_page_bytes_max = bytes_max;
        });
        let runtime = builder.start().await.unwrap();
        let handle = runtime.start(SUM, "s", 7).await.unwrap();
        let run = handle.run_id().unwrap();
        for number in 1..=25 {
            handle.signal(GO, number).await.unwrap();
        }
        for is_finished in [false, true] {
            if is_finished {
                handle.signal(GO, 0).await.unwrap();
                assert_eq!(handle.result().await.unwrap(), 7 + 325);
            }
            let before = runtime.stats();
            let whole: Vec<_> = pages(&runtime, run, 1)
                .await
                .into_iter()
                .flat_map(|page| page.events)
                .collect();
            for len_max in [2, 7, 1_000] {
                let read = pages(&runtime, run, len_max).await;
                assert!(read.iter().all(|page| page.trimmed_before.is_none()));
                assert!(read.iter().all(|page| page.head.get() == whole.len() as u64));
                if bytes_max > 500 && len_max == 1_000 {
                    assert_eq!(read.len(), 1);
                }
                let events: Vec<_> = read.into_iter().flat_map(|page| page.events).collect();
                assert_eq!(events, whole);
            }
            let after = runtime.stats();
            assert_eq!(
                (before.loads, before.hot),
                (after.loads, after.hot),
                "nobody was woken"
            );

            let sequences: Vec<_> = whole.iter().map(|recorded| recorded.sequence.get()).collect();
            assert_eq!(sequences, (1..=whole.len() as u64).collect::<Vec<_>>());
            assert!(whole.is_sorted_by_key(|recorded| recorded.at));
            let Event::Started(started) = &whole[0].event else {
                panic!("{:?}", whole[0])
            };
            assert_eq!((started.id.as_str(), &*started.workflow), ("s", "sum"));
            let told = whole.iter().filter_map(|recorded| match &recorded.event {
                Event::SignalReceived { value, .. } => Some(value.decode::<u64>().unwrap()),
                _ => None,
            });
            let expected = (1..=25).chain(is_finished.then_some(0));
            assert_eq!(told.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
            assert_eq!(whole.last().unwrap().event.is_last(), is_finished);
        }
        runtime.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn pages_of_a_run_that_was_trimmed_say_before_which_event_there_is_none() {
    let store = Store::new();
    let builder = store
        .bare()
        .register(SUM, sum)
        .configure(|config| config.limits.kept_beginning_every = 16);
    let runtime = builder.start().await.unwrap();
    let handle = runtime.start(SUM, "s", 0).await.unwrap();
    for _ in 0..100 {
        handle.signal(GO, 1).await.unwrap();
    }
    let run = handle.run_id().unwrap();
    let pages = pages(&runtime, run, 3).await;
    let before = pages[0].trimmed_before.expect("it was trimmed");
    assert_eq!(pages[0].events[0].sequence, before);
    assert!(before.get() > 50, "{before}");
    assert!(pages[1..].iter().all(|page| page.trimmed_before.is_none()));
    let behind = runtime.history(run, before, 3).await.unwrap();
    assert_eq!(
        (behind.trimmed_before, behind.events[0].sequence.get()),
        (None, before.get() + 1)
    );
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_page_of_no_events_says_where_the_history_ends() {
    let runtime = Runtime::volatile().register(SUM, sum).start().await.unwrap();
    let run = runtime.start(SUM, "s", 0).await.unwrap().run_id().unwrap();
    for (after, len_max) in [(0, 0), (1, 5), (1_000, 5)] {
        let page = runtime.history(run, Sequence::new(after), len_max).await.unwrap();
        assert_eq!((page.events.len(), page.head.get(), page.next()), (0, 1, None));
    }
}

#[tokio::test]
async fn what_has_no_history_is_an_error_that_says_so() {
    let store = Store::new();
    let builder = store.bare().register(SUM, sum);
    let builder = builder.configure(|config| config.journal.retention.len_max = 1);
    let runtime = builder.start().await.unwrap();
    let nobody = RunId::new(Partition::of(b"n"), Timestamp::EPOCH, 1);
    let unknown = runtime.history(nobody, Sequence::ZERO, 10).await;
    assert!(matches!(unknown, Err(RunError::NotFound)), "{unknown:?}");

    let mut runs = Vec::new();
    for number in 0..50 {
        let run = runtime.start(SUM, &format!("s-{number}"), 0).await.unwrap();
        run.signal(GO, 0).await.unwrap();
        run.result().await.unwrap();
        runs.push(run.run_id().unwrap());
    }
    let expired = loop {
        match runtime.history(runs[0], Sequence::ZERO, 10).await {
            Ok(_) => tokio::task::yield_now().await,
            Err(error) => break error,
        }
    };
    assert!(matches!(expired, RunError::Expired), "{expired:?}");
    runtime.shutdown().await.unwrap();
    let stopped = runtime.history(runs[49], Sequence::ZERO, 10).await;
    assert!(
        matches!(stopped, Err(RunError::Stopped(StopCause::Shutdown))),
        "{stopped:?}"
    );
}

/// A page of a history that is slow to read holds up observers, and no run.
#[tokio::test]
async fn those_who_look_on_hold_up_no_run() {
    let inner = MemoryJournal::new(JournalConfig::default()).unwrap();
    let journal = Tapped::new(Arc::new(inner), |journal, batch| journal.enqueue(batch));
    let runtime = Runtime::volatile()
        .journal(Arc::clone(&journal) as Arc<dyn Journal>)
        .configure(|config: &mut RuntimeConfig| {
            config.hot_len_max = 0;
            config.readers_len = 1;
        })
        .register(SUM, sum)
        .start()
        .await
        .unwrap();
    let slow = runtime.start(SUM, "slow", 0).await.unwrap().run_id().unwrap();
    let other = runtime.start(SUM, "other", 0).await.unwrap();
    journal.slow_down(slow);
    let looking = {
        let runtime = runtime.clone();
        tokio::spawn(async move { runtime.history(slow, Sequence::ZERO, 10).await })
    };
    while journal.waiting_reads() == 0 {
        tokio::task::yield_now().await;
    }
    // Each of these wakes the run.
    for _ in 0..5 {
        other.signal(GO, 1).await.unwrap();
    }
    other.signal(GO, 0).await.unwrap();
    assert_eq!(other.result().await.unwrap(), 5);
    assert!(!looking.is_finished());
    journal.let_go();
    assert_eq!(looking.await.unwrap().unwrap().events.len(), 1);
    runtime.shutdown().await.unwrap();
}

/// It is a part like others.
#[tokio::test]
async fn who_looks_on_asks_again_when_the_viewer_was_killed() {
    let runtime = Runtime::volatile().register(SUM, sum).start().await.unwrap();
    let run = runtime.start(SUM, "s", 0).await.unwrap().run_id().unwrap();
    runtime.kill("viewer").unwrap();
    loop {
        match runtime.history(run, Sequence::ZERO, 10).await {
            Ok(page) => break assert_eq!(page.events.len(), 1),
            Err(RunError::Stopped(StopCause::Part { .. })) => {}
            Err(error) => panic!("{error}"),
        }
    }
    let viewer = runtime.parts().into_iter().find(|part| part.name == "viewer");
    assert_eq!(viewer.map(|part| part.restarts), Some(1));
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_history_is_read_to_its_end_while_it_grows_and_the_run_is_not_woken() {
    let store = Store::new();
    let builder = store.bare().register(SUM, sum);
    let runtime = builder
        .configure(|config| config.hot_len_max = 0)
        .start()
        .await
        .unwrap();
    let handle = runtime.start(SUM, "s", 7).await.unwrap();
    let run = handle.run_id().unwrap();
    let reads = async {
        let (mut events, mut after) = (Vec::new(), Sequence::ZERO);
        loop {
            let page = runtime.until_history(run, after, 2).await.unwrap();
            let Some(last) = page.events.last() else {
                return events;
            };
            after = last.sequence;
            events.extend(page.events);
        }
    };
    let tells = async {
        for number in [1, 2, 3, 0] {
            handle.signal(GO, number).await.unwrap();
        }
    };
    let (events, ()) = tokio::join!(reads, tells);
    assert_eq!(
        events,
        runtime.history(run, Sequence::ZERO, 1_000).await.unwrap().events
    );
    assert!(events.last().unwrap().event.is_last());
    let after = Sequence::new(events.len() as u64 + 5);
    let page = runtime.until_history(run, after, 0).await.unwrap();
    assert!(page.events.is_empty(), "it has ended before that");
    let unknown = RunId::new(Partition::of(b"nobody"), Timestamp::EPOCH, 1);
    let unknown = runtime
        .until_history(unknown, Sequence::ZERO, 1)
        .await
        .unwrap_err();
    assert!(matches!(unknown, RunError::NotFound), "{unknown}");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn who_waits_for_more_of_a_history_survives_the_shard_and_is_told_that_the_runtime_stops() {
    let runtime = Runtime::volatile().register(SUM, sum).start().await.unwrap();
    let handle = runtime.start(SUM, "s", 7).await.unwrap();
    let run = handle.run_id().unwrap();
    let fails = async {
        tokio::task::yield_now().await;
        runtime.kill("shard 0").unwrap();
        while handle.signal(GO, 1).await.is_err() {}
    };
    let (page, ()) = tokio::join!(runtime.until_history(run, Sequence::new(1), 9), fails);
    match page {
        Ok(page) => assert_eq!(page.events[0].event.label(), "SignalReceived"),
        // It was about to be listed when the shard failed.
        Err(error) => assert!(error.is_retryable(), "{error}"),
    }
    let head = runtime.history(run, Sequence::ZERO, 1).await.unwrap().head;
    let stops = async {
        tokio::task::yield_now().await;
        runtime.shutdown().await.unwrap();
    };
    let (told, ()) = tokio::join!(runtime.until_history(run, head, 9), stops);
    let told = told.unwrap_err();
    assert!(matches!(told, RunError::Stopped(StopCause::Shutdown)), "{told}");
}

#[tokio::test]
async fn an_exported_history_is_that_of_all_pages_and_fits_the_code_that_made_it_also_trimmed_and_closed() {
    for keep_history in [true, false] {
        let store = Store::new();
        let builder = || {
            store.bare().register(SUM, sum).configure(move |config| {
                config.keep_history = keep_history;
                config.limits.kept_beginning_every = 16;
            })
        };
        let runtime = builder().start().await.unwrap();
        let handle = runtime.start(SUM, "s", 7).await.unwrap();
        for number in 1..=95 {
            handle.signal(GO, number).await.unwrap();
        }
        let live = handle.export_history().await.unwrap();
        handle.signal(GO, 0).await.unwrap();
        assert_eq!(handle.result().await.unwrap(), 7 + 95 * 96 / 2);
        let ended = handle.export_history().await.unwrap();
        assert!(live.head() < ended.head());
        let run = ended.run();
        runtime.shutdown().await.unwrap();
        drop((runtime, handle));

        let store_read = ClosedStore::open(store.path()).await.unwrap();
        let closed = store_read.runtime();
        assert_eq!(closed.export_history(run).await.unwrap(), ended);
        let code = builder().implementations();
        for history in [live, ended] {
            let back: ExportedHistory = history.to_string().parse().unwrap();
            assert_eq!(back, *history);
            let fit = back.fit(Some(&code[0]), RuntimeConfig::default().limits).unwrap();
            assert_eq!(fit, Fit::Fits { changed_values: 0 });
            let first = back.events().next().map(|(sequence, ..)| sequence);
            assert_eq!(first == Some(Sequence::new(1)), keep_history, "{first:?}");
            let after = Sequence::new(first.unwrap_or(back.head().next()).get() - 1);
            let page = closed.history(run, after, back.events().count()).await.unwrap();
            let paged = page.events.iter().map(|one| (one.sequence, &one.event, one.at));
            assert!(paged.eq(back.events()), "the pages have other events");
        }
        let unknown = RunId::new(Partition::of(b"x"), Timestamp::EPOCH, 1);
        let refused = closed.export_history(unknown).await;
        assert!(matches!(refused, Err(RunError::NotFound)), "{refused:?}");
    }
}
