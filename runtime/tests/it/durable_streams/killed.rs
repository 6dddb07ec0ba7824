//! A process that is killed with SIGKILL while an activity sends, again and again: what it was told is durable is read from the
//! store by the next.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use millrun::streams::{AttemptEnd, StreamAttempt, StreamItem};
use millrun::{
    Activity, ActivityContext, ActivityError, OutputStream, Runtime, RuntimeBuilder, Workflow,
    WorkflowContext, WorkflowError,
};

const STORE: &str = "MILLRUN_TEST_STREAM_KILL_STORE";
const LIFE: &str = "MILLRUN_TEST_STREAM_KILL_LIFE";
const KILLS: u64 = 8;

const NUMBERS: OutputStream<u64> = OutputStream::named("numbers");
const WORK: Activity<u64, ()> = Activity::named("work");
const CALL: Workflow<u64, ()> = Workflow::named("call");

/// Sends without end, and says what is durable; without a life it sends nothing, and ends.
async fn work(cx: ActivityContext, _: u64) -> Result<(), ActivityError> {
    let Ok(life) = std::env::var(LIFE) else {
        return Ok(());
    };
    let life: u64 = life.parse()?;
    let numbers = cx.durable_stream(NUMBERS).await?;
    for nth in 0..100_000 {
        let number = life * 1_000_000 + nth;
        if nth % 5 == 0 {
            numbers.send(&number).await?;
            println!("durable {number}");
        } else {
            numbers.send_ahead(&number).await?;
        }
    }
    Ok(())
}

async fn call(cx: WorkflowContext, number: u64) -> Result<(), WorkflowError> {
    Ok(cx.call(WORK, number).await?)
}

fn builder(path: &Path) -> RuntimeBuilder {
    Runtime::open(path).register(CALL, call).register(WORK, work)
}

#[test]
fn child_of_the_kill_test_of_streams() {
    let Ok(path) = std::env::var(STORE) else {
        // Run as an ordinary test, there is nothing to do.
        return;
    };
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    tokio.block_on(async {
        let runtime = builder(Path::new(&path)).start().await.unwrap();
        let run = runtime.start(CALL, "run", 0).await.unwrap();
        run.result().await.unwrap();
    });
}

#[test]
fn what_was_durable_before_a_kill_is_read_from_the_store_by_the_next_process() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    let mut told: Vec<Vec<u64>> = Vec::new();
    for life in 1..=KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "durable_streams::killed::child_of_the_kill_test_of_streams",
                "--nocapture",
            ])
            .env(STORE, &path)
            .env(LIFE, life.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut durable = Vec::new();
        let mut note = |line: &str| {
            // The last line may be torn.
            let number = line.rsplit_once("durable ");
            durable.extend(number.and_then(|(_, number)| number.trim().parse::<u64>().ok()));
        };
        let mut left = 3 + life * 7;
        while left > 0 {
            note(&lines.next().unwrap().unwrap());
            left -= 1;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // What it had said by then.
        lines.map_while(Result::ok).for_each(|line| note(&line));
        told.push(durable);
    }
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (sent, begun, ends) = tokio.block_on(async {
        let runtime = builder(&path).start().await.unwrap();
        let run = runtime.attach(CALL, "run").unwrap();
        let mut reader = run.stream(NUMBERS).await.unwrap();
        let (mut sent, mut begun) = (Vec::<u64>::new(), Vec::new());
        let mut ends: Vec<(StreamAttempt, AttemptEnd)> = Vec::new();
        while let Some(item) = reader.next().await.unwrap() {
            match item {
                StreamItem::Chunk(_, number) => sent.push(number),
                StreamItem::Ended(attempt, end) => ends.push((attempt, end)),
                StreamItem::Began(attempt) => begun.push(attempt),
                other => panic!("{other:?}"),
            }
        }
        runtime.shutdown().await.unwrap();
        (sent, begun, ends)
    });
    // Each attempt ends once, and before the next begins.
    assert!(begun.len() >= told.len(), "{begun:?}");
    let lost: Vec<_> = begun
        .into_iter()
        .map(|attempt| (attempt, AttemptEnd::Lost))
        .collect();
    assert_eq!(ends, lost);
    for (life, durable) in (1..).zip(told) {
        assert!(!durable.is_empty(), "life {life}");
        let of_life: Vec<_> = sent
            .iter()
            .filter(|number| **number / 1_000_000 == life)
            .collect();
        let in_order = of_life
            .iter()
            .enumerate()
            .all(|(nth, number)| **number % 1_000_000 == nth as u64);
        assert!(in_order, "life {life}: {of_life:?}");
        let last = durable.last().unwrap();
        assert!(
            of_life.last().is_some_and(|number| *number >= last),
            "life {life}"
        );
    }
}
