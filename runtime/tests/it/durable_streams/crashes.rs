//! A crash at every step of a seeded world: each chunk that was acknowledged is read once and in order by who comes later, and
//! each attempt that has begun has one end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrun::store::{Journal, JournalConfig, MemoryJournal};
use millrun::streams::{AttemptEnd, StreamAttempt, StreamItem, StreamReader};
use millrun::{
    Activity, ActivityContext, ActivityError, OutputStream, Retry, Runtime, RuntimeBuilder, Workflow,
    WorkflowContext, WorkflowError,
};
use millrun_testkit::{SimConfig, SimHost};

use crate::support::{committer, cut_off};

const NUMBERS: OutputStream<u64> = OutputStream::named("numbers");
const WORK: Activity<u64, ()> = Activity::named("work");
const CALL: Workflow<u64, ()> = Workflow::named("call");

/// How many chunks an attempt sends; the first one of a step fails behind the last.
const CHUNKS: u64 = 6;

/// What was acknowledged, by the number of the attempt over all lives: chunks in their order.
type Ledger = Arc<Mutex<BTreeMap<u64, Vec<u64>>>>;

fn coded(builder: RuntimeBuilder, ledger: &Ledger) -> RuntimeBuilder {
    let ledger = Arc::clone(ledger);
    let work = move |cx: ActivityContext, step: u64| {
        let ledger = Arc::clone(&ledger);
        async move {
            let numbers = cx.durable_stream(NUMBERS).await?;
            let tried = {
                let mut ledger = ledger.lock().unwrap();
                let tried = ledger.len() as u64;
                ledger.insert(tried, Vec::new());
                tried
            };
            let chunk = |nth: u64| tried * 1_000 + step * 100 + nth;
            let acknowledge = |nth: u64| {
                let mut ledger = ledger.lock().unwrap();
                ledger.get_mut(&tried).unwrap().push(chunk(nth));
            };
            // One by one, and some at once.
            for nth in 0..CHUNKS / 2 {
                numbers.send(&chunk(nth)).await?;
                acknowledge(nth);
            }
            for nth in CHUNKS / 2..CHUNKS {
                numbers.send_ahead(&chunk(nth)).await?;
            }
            numbers.flush().await?;
            (CHUNKS / 2..CHUNKS).for_each(acknowledge);
            match cx.attempt() {
                1 => Err(ActivityError::retryable("not yet")),
                _ => Ok(()),
            }
        }
    };
    builder.register(CALL, call).register(WORK, work)
}

async fn call(cx: WorkflowContext, steps: u64) -> Result<(), WorkflowError> {
    let retry = Retry::exponential().first_pause(Duration::from_millis(3));
    for step in 0..steps {
        cx.call(WORK, step).retry(retry).await?;
    }
    Ok(())
}

/// All items until the run has ended.
async fn read_all(mut reader: StreamReader<u64>) -> Vec<StreamItem<u64>> {
    let mut items = Vec::new();
    while let Some(item) = reader.next().await.unwrap() {
        items.push(item);
    }
    items
}

/// What was sent, by attempt over all lives. Attempts begin and end alternately, with their chunks in between.
fn judge(items: &[StreamItem<u64>], context: &str) -> BTreeMap<u64, Vec<u64>> {
    let mut sent: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let mut under_way: Option<StreamAttempt> = None;
    let mut ends = Vec::new();
    for item in items {
        match item {
            StreamItem::Began(attempt) => {
                assert_eq!(under_way.replace(*attempt), None, "{context}: {items:?}");
            }
            StreamItem::Chunk(attempt, chunk) => {
                assert_eq!(under_way, Some(*attempt), "{context}: {items:?}");
                sent.entry(chunk / 1_000).or_default().push(*chunk);
            }
            StreamItem::Ended(attempt, end) => {
                assert_eq!(under_way.take(), Some(*attempt), "{context}: {items:?}");
                ends.push(*end);
            }
            other => panic!("{context}: {other:?}"),
        }
    }
    assert_eq!(under_way, None, "{context}: {items:?}");
    let succeeded = ends.iter().filter(|end| **end == AttemptEnd::Succeeded).count();
    // The end of an attempt may be lost in the stream though the history has it.
    assert!(succeeded <= 2, "{context}: {items:?}");
    sent
}

/// A life of `steps` steps that ends with a crash, one of `more` that does as well, and one that ends well. True if the first
/// had nothing left to do.
fn play(seed: u64, steps: u64, more: Option<u64>) -> bool {
    let context = format!("seed {seed}, {steps} steps, then {more:?}");
    let ledger: Ledger = Arc::default();
    let mut journal = Arc::new(MemoryJournal::held(JournalConfig::default()).unwrap());
    let mut is_done = false;
    let lives = [Some(steps), more].into_iter().flatten();
    for (life, steps) in lives.enumerate() {
        let sim = SimHost::new(SimConfig::seeded(seed + life as u64));
        let host = sim.host();
        let commits = host.spawn("committer", Box::pin(committer(sim.host(), Arc::clone(&journal))));
        let builder = Runtime::volatile().host(sim.host());
        let builder = coded(builder.journal(Arc::clone(&journal) as Arc<dyn Journal>), &ledger);
        let is_over = cut_off(&sim, steps, async move {
            let runtime = builder.start().await.unwrap();
            let run = runtime.start(CALL, "run", 2).await.unwrap();
            // A reader beside it, of which the first item may be in another life.
            let reader = run.stream(NUMBERS).await.unwrap();
            drop(read_all(reader).await);
            run.result().await.unwrap();
        });
        is_done |= is_over && life == 0;
        drop(commits);
        journal = Arc::new(journal.reopened());
    }
    let sim = SimHost::new(SimConfig::seeded(seed + 7));
    let commits = sim
        .host()
        .spawn("committer", Box::pin(committer(sim.host(), Arc::clone(&journal))));
    let builder = Runtime::volatile().host(sim.host());
    let builder = coded(builder.journal(Arc::clone(&journal) as Arc<dyn Journal>), &ledger);
    let items = sim.block_on(async move {
        let runtime = builder.start().await.unwrap();
        let run = runtime.start(CALL, "run", 2).await.unwrap();
        let live = read_all(run.stream(NUMBERS).await.unwrap()).await;
        run.result().await.unwrap();
        let again = read_all(run.stream(NUMBERS).await.unwrap()).await;
        assert_eq!(live, again);
        // Behind each position it goes on with the next.
        let mut reader = run.stream(NUMBERS).await.unwrap();
        for nth in 0..again.len() {
            let rest = read_all(run.stream_behind(NUMBERS, reader.position()).await.unwrap()).await;
            assert_eq!(rest, again[nth..]);
            reader.next().await.unwrap();
        }
        drop((reader, run));
        runtime.shutdown().await.unwrap();
        again
    });
    drop(commits);
    let sent = judge(&items.unwrap(), &context);
    for (tried, acknowledged) in &*ledger.lock().unwrap() {
        let empty = Vec::new();
        let sent = sent.get(tried).unwrap_or(&empty);
        // What was not acknowledged may be there too, in its order.
        let nths: Vec<_> = sent.iter().map(|chunk| chunk % 100).collect();
        assert_eq!(
            nths,
            (0..sent.len() as u64).collect::<Vec<_>>(),
            "{context}: {sent:?}"
        );
        assert!(
            sent.starts_with(acknowledged),
            "{context}: {acknowledged:?} in {sent:?}"
        );
    }
    is_done
}

#[test]
fn what_was_acknowledged_is_read_once_and_in_order_whatever_step_a_crash_comes_at() {
    let mut steps = 1;
    while !play(1, steps, None) {
        steps += 1;
        assert!(steps < 5_000, "it does not come to an end");
    }
    assert!(steps > 100, "it was over after {steps} steps");
}

#[test]
fn a_second_crash_in_the_middle_of_a_retry_changes_nothing_of_that() {
    for seed in 2..10 {
        for steps in (40..400).step_by(37) {
            play(seed, steps, Some(30 + steps * seed % 170));
        }
    }
}
