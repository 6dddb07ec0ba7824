//! All that is done with durable topics in one program, and a crash behind each of its commits: before anybody has learned of
//! the commit, and when all that follows from it was done but not committed.
//!
//! ```text
//!   publish ─► placed ─► trigger ─► order ─► receives ◄─ paid ◄─ publish
//!                │                    ├─► activity ─► output stream, failing once
//!                │                    └─► command of an entity ─► counted ─► billing, a subscription
//!                │                          ▲         └─► timer ─► reminded
//!                │          paid ─► trigger ┘
//!                └──────── audit, a subscription of placed and paid ────────────┘
//!
//!   publish ─► jobs, of which few are kept ─► worker, a subscription: acknowledges, gives back, lets leases end
//!                ▲                               └─► dead ─┐
//!                └───────────── sent back ─────────────────┘
//! ```

mod jobs;
mod ledger;
mod orders;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join;
use millrun::host::Host;
use millrun::store::{Journal, JournalConfig, MemoryJournal};
use millrun::{Runtime, RuntimeBuilder};
use millrun_testkit::{SimConfig, SimHost, SimStop};

use self::ledger::{Ledger, Seen};
use crate::support::{Store, cut_off};

/// After how many steps a life that is not cut off is taken for one that hangs.
const STEPS_MAX: u64 = 60_000;

fn coded(builder: RuntimeBuilder, ledger: &Arc<Ledger>) -> RuntimeBuilder {
    jobs::declare(orders::register(builder, ledger))
}

/// One life: what an earlier one has done is done again, under the same ids.
async fn live(builder: RuntimeBuilder, host: Arc<dyn Host>, ledger: Arc<Ledger>) {
    let runtime = builder.start().await.unwrap();
    join(
        orders::live(&runtime, &ledger),
        jobs::live(&runtime, &host, &ledger),
    )
    .await;
    orders::check(&runtime, &ledger).await;
    jobs::check(&runtime, &ledger).await;
}

/// Where a life is cut off.
#[derive(Clone, Copy, Debug)]
struct Cut {
    seed: u64,
    /// What is queued is committed each time when as many steps were made: the fewer, the more commits.
    steps: u64,
    commits: u64,
    /// All that follows from the last commit is done before the crash.
    is_told: bool,
}

/// Runs a life until it ends, or is cut off. Whether it ended.
fn run(sim: &SimHost, journal: &Arc<MemoryJournal>, ledger: &Arc<Ledger>, cut: Cut) -> bool {
    let builder = Runtime::volatile().host(sim.host());
    let builder = builder.journal(Arc::clone(journal) as Arc<dyn Journal>);
    let life = live(coded(builder, ledger), sim.host(), Arc::clone(ledger));
    let has_ended = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&has_ended);
    let life = async move {
        life.await;
        ended.store(true, Ordering::Relaxed);
    };
    let script = sim.host().spawn("script", Box::pin(life));
    let seen = || (journal.high_watermark(), journal.topics().unwrap().list());
    let mut left = cut.commits;
    for _ in 0..STEPS_MAX / cut.steps.min(20) {
        if left == 0 || has_ended.load(Ordering::Relaxed) {
            break;
        }
        if (0..cut.steps).filter(|_| sim.step()).count() == 0 {
            assert_eq!(sim.advance(Duration::from_millis(1)), SimStop::Reached);
        }
        let before = seen();
        journal.commit();
        left -= u64::from(seen() != before);
    }
    if cut.is_told {
        assert_eq!(sim.advance(Duration::from_millis(1)), SimStop::Reached);
    }
    let has_ended = has_ended.load(Ordering::Relaxed);
    assert!(has_ended || left == 0, "a life does not end: {cut:?}");
    sim.crash();
    drop(script);
    has_ended
}

/// A life that is cut off, and one that ends. Whether the first one ended as well.
fn play(cut: Cut, seen: &mut Seen) -> bool {
    let ledger = Arc::new(Ledger::default());
    let sim = SimHost::new(SimConfig::seeded(cut.seed));
    let journal = Arc::new(MemoryJournal::held(JournalConfig::default()).unwrap());
    let has_ended = run(&sim, &journal, &ledger, cut);
    let journal = Arc::new(journal.reopened());
    let commits = u64::MAX;
    assert!(run(&sim, &journal, &ledger, Cut { commits, ..cut }), "{cut:?}");
    ledger.check(&format!("{cut:?}"));
    seen.add(&ledger);
    has_ended
}

/// As [`play`], with a store in a file and a life of as many steps.
fn play_in_file(seed: u64, steps: u64, seen: &mut Seen) -> bool {
    let (store, ledger) = (Store::new(), Arc::new(Ledger::default()));
    let life = |steps| {
        let sim = SimHost::new(SimConfig::seeded(seed + steps));
        let builder = coded(Runtime::open(store.path()).host(sim.host()), &ledger);
        let life = live(builder, sim.host(), Arc::clone(&ledger));
        cut_off(&sim, steps, life)
    };
    let has_ended = life(steps);
    assert!(life(STEPS_MAX), "a life does not end: seed {seed}, {steps} steps");
    ledger.check(&format!("seed {seed}, {steps} steps"));
    seen.add(&ledger);
    has_ended
}

#[test]
fn a_crash_behind_each_commit_loses_nothing_and_does_nothing_twice() {
    let mut seen = Seen::default();
    for (seed, steps, is_told) in [
        (1, 1, false),
        (2, 1, true),
        (3, 3, false),
        (4, 3, true),
        (5, 1_000, false),
        (6, 1_000, true),
    ] {
        let mut commits = 0;
        let cut = |commits| Cut {
            seed,
            steps,
            commits,
            is_told,
        };
        while !play(cut(commits), &mut seen) {
            commits += 1;
        }
        assert!(commits > 15, "a life has {commits} commits");
    }
    seen.check();
}

#[test]
fn a_crash_at_any_step_of_a_runtime_with_a_file_loses_nothing_and_does_nothing_twice() {
    let mut seen = Seen::default();
    for seed in [1_000_000, 2_000_000] {
        let mut steps = seed / 1_000_000;
        while !play_in_file(seed, steps, &mut seen) {
            steps += 60;
        }
        assert!(steps > 500, "a life has {steps} steps");
    }
    seen.check();
}
