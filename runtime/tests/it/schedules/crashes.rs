//! A crash behind each commit of a life: each due time starts one run in the end, and so do triggers and ends that are
//! waited for.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millrun::schedules::OverlapPolicy;
use millrun::store::{Journal, JournalConfig, MemoryJournal};
use millrun::{Runtime, RuntimeBuilder, Timestamp, Workflow, WorkflowContext, WorkflowError};
use millrun_testkit::{SimConfig, SimHost, SimStop};

use super::{SECOND, coded, ids_of, world_at};

/// Takes longer than the interval.
const SLOW: Workflow<(), ()> = Workflow::named("slow");
const DUE_LEN: u64 = 3;

async fn slow(cx: WorkflowContext, (): ()) -> Result<(), WorkflowError> {
    Ok(cx.sleep(Duration::from_millis(1_300)).await?)
}

fn open(sim: &SimHost, journal: &Arc<MemoryJournal>) -> RuntimeBuilder {
    let builder = Runtime::volatile().host(sim.host());
    coded(builder.journal(Arc::clone(journal) as Arc<dyn Journal>)).register(SLOW, slow)
}

/// One life: what an earlier one has made is made again.
async fn live(builder: RuntimeBuilder, policy: OverlapPolicy, sim: Arc<dyn millrun::host::Host>) {
    let runtime = builder.start().await.unwrap();
    let schedule = runtime
        .schedule("s", SLOW, ())
        .every(SECOND)
        .overlap(policy)
        .actions_len_max(DUE_LEN);
    let schedule = schedule.await.unwrap();
    loop {
        let described = schedule.describe().await.unwrap();
        let counts = described.counts;
        let are_over = match policy {
            OverlapPolicy::Allow => {
                let mut are_over = counts.started_len == DUE_LEN;
                for recent in &described.recent {
                    let run = runtime.attach(SLOW, &recent.id).unwrap();
                    are_over = are_over && run.result().await.is_ok();
                }
                are_over
            }
            _ => counts.completed_len + counts.failed_len == DUE_LEN,
        };
        if are_over {
            assert_eq!(
                (counts.started_len, counts.missed_len),
                (DUE_LEN, 0),
                "{described:?}"
            );
            assert_eq!((described.running, described.waiting), (None, vec![]));
            break;
        }
        sim.sleep_until(sim.now() + Duration::from_millis(50)).await;
    }
    let ids = ids_of(&runtime, "slow").await;
    let once: BTreeSet<_> = ids.iter().collect();
    assert_eq!((ids.len(), once.len()), (3, 3), "{ids:?}");
    if policy != OverlapPolicy::Skip {
        let seconds: Vec<i64> = ids
            .iter()
            .map(|id| {
                let due = id.strip_prefix("s/").unwrap();
                due.parse::<chrono::DateTime<chrono::Utc>>().unwrap().timestamp()
            })
            .collect();
        assert_eq!(
            (seconds[1] - seconds[0], seconds[2] - seconds[1]),
            (1, 1),
            "{ids:?}"
        );
    }
}

/// Where a life is cut off.
#[derive(Clone, Copy, Debug)]
struct Cut {
    seed: u64,
    policy: OverlapPolicy,
    /// What is queued is committed each time when as many steps were made.
    steps: usize,
    commits: u64,
    /// All that follows from the last commit is done before the crash.
    is_told: bool,
}

/// Runs a life until it ends or is cut off. Whether it ended, and when.
fn run(journal: &Arc<MemoryJournal>, starts_at: Timestamp, cut: Cut) -> (bool, Timestamp) {
    let sim = world_at(starts_at, cut.seed);
    let has_ended = Arc::new(AtomicBool::new(false));
    let (life, ended) = (
        live(open(&sim, journal), cut.policy, sim.host()),
        Arc::clone(&has_ended),
    );
    let script = sim.host().spawn(
        "script",
        Box::pin(async move {
            life.await;
            ended.store(true, Ordering::Relaxed);
        }),
    );
    let mut left = cut.commits;
    for _ in 0..20_000 {
        if left == 0 || has_ended.load(Ordering::Relaxed) {
            break;
        }
        if (0..cut.steps).filter(|_| sim.step()).count() == 0 {
            assert_eq!(sim.advance(Duration::from_millis(10)), SimStop::Reached);
        }
        let before = journal.high_watermark();
        journal.commit();
        left -= u64::from(journal.high_watermark() != before);
    }
    if cut.is_told {
        assert_eq!(sim.advance(Duration::from_millis(1)), SimStop::Reached);
    }
    let has_ended = has_ended.load(Ordering::Relaxed);
    assert!(has_ended || left == 0, "a life does not end: {cut:?}");
    sim.crash();
    drop(script);
    (has_ended, sim.now())
}

/// A life that is cut off, and one that ends. Whether the first one ended as well.
fn play(cut: Cut) -> bool {
    let journal = Arc::new(MemoryJournal::held(JournalConfig::default()).unwrap());
    let (has_ended, now) = run(&journal, SimConfig::seeded(0).starts_at, cut);
    let journal = Arc::new(journal.reopened());
    let commits = u64::MAX;
    assert!(run(&journal, now, Cut { commits, ..cut }).0, "{cut:?}");
    has_ended
}

#[test]
fn a_crash_behind_each_commit_starts_each_due_time_once() {
    for (seed, policy, steps, is_told) in [
        (1, OverlapPolicy::BufferAll, 1, false),
        (2, OverlapPolicy::BufferAll, 3, true),
        (3, OverlapPolicy::Skip, 3, false),
        (4, OverlapPolicy::CancelOther, 1, false),
        (5, OverlapPolicy::TerminateOther, 3, true),
        (6, OverlapPolicy::Allow, 1, true),
        (7, OverlapPolicy::Allow, 1_000, false),
    ] {
        let mut commits = 0;
        let cut = |commits| Cut {
            seed,
            policy,
            steps,
            commits,
            is_told,
        };
        while !play(cut(commits)) {
            commits += 1;
        }
        assert!(commits > 10, "a life has {commits} commits");
    }
}
