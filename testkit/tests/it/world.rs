//! A whole runtime in a seeded world: shards, timers, pools, the journal's writer and a client,
//! killed between any two of their steps and started again on the same file.
//!
//! A crash here drops the store as any value, so it is closed better than a process that is
//! killed would close it. What a disk may do to a store is shown where the store is tested.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrun::host::Host;
use millrun::{
    Activity, ActivityContext, ActivityError, RunId, Runtime, Workflow, WorkflowContext, WorkflowError,
};
use millrun_testkit::{SimConfig, SimHost, SimStop, Trace};

const DRAW: Activity<(), u64> = Activity::named("draw");
const DRAW_TWICE: Workflow<(), (u64, u64)> = Workflow::named("draw-twice");

/// Two steps whose results differ with each attempt, and a timer between them.
async fn draw_twice(cx: WorkflowContext, (): ()) -> Result<(u64, u64), WorkflowError> {
    let first = cx.call(DRAW, ()).await?;
    cx.sleep(Duration::from_secs(60)).await?;
    let second = cx.call(DRAW, ()).await?;
    Ok((first, second))
}

/// What the client was told. It is outside the world, so no crash reaches it.
#[derive(Default)]
struct Witness {
    /// Numbers for the activity: none is given twice.
    drawn: AtomicU64,
    said: Mutex<Said>,
}

#[derive(Default)]
struct Said {
    started: BTreeMap<String, RunId>,
    results: BTreeMap<String, (u64, u64)>,
    contradictions: Vec<String>,
}

impl Witness {
    fn draw(&self) -> u64 {
        self.drawn.fetch_add(1, Ordering::Relaxed)
    }

    /// A start was acknowledged, perhaps once more.
    fn started(&self, id: &str, run: RunId) {
        let mut said = self.said.lock().unwrap();
        let known = *said.started.entry(id.to_owned()).or_insert(run);
        if known != run {
            said.contradictions
                .push(format!("{id} was {known}, now it is {run}"));
        }
    }

    /// A result was given, perhaps once more.
    fn finished(&self, id: &str, result: (u64, u64)) {
        let mut said = self.said.lock().unwrap();
        let known = *said.results.entry(id.to_owned()).or_insert(result);
        if known != result {
            said.contradictions
                .push(format!("{id} gave {known:?}, now it gives {result:?}"));
        }
    }
}

/// One life of a process: it opens the store, starts all instances and waits for their results.
async fn process(host: Arc<dyn Host>, store: PathBuf, witness: Arc<Witness>) {
    let drawer = Arc::clone(&witness);
    let draw = move |_: ActivityContext, (): ()| {
        let drawer = Arc::clone(&drawer);
        async move { Ok::<_, ActivityError>(drawer.draw()) }
    };
    let runtime = Runtime::open(store)
        .configure(|config| config.shards_len = 2)
        .host(host)
        .register(DRAW, draw)
        .register(DRAW_TWICE, draw_twice)
        .start()
        .await
        .unwrap();
    let mut runs = Vec::new();
    for number in 0..6 {
        let id = format!("draw-{number}");
        let run = runtime.start(DRAW_TWICE, &id, ()).await.unwrap();
        witness.started(&id, run.run_id().unwrap());
        runs.push((id, run));
    }
    for (id, run) in runs {
        witness.finished(&id, run.result().await.unwrap());
    }
}

/// Three lives that a crash ends after some steps, then one that ends by itself.
fn play(seed: u64, folder: &Path) -> Trace {
    let store = folder.join("store.redb");
    let world = SimHost::new(SimConfig::seeded(seed));
    let witness = Arc::new(Witness::default());
    for _ in 0..3 {
        let host = world.host();
        let mut steps_left = host.random() % 150;
        let life = process(Arc::clone(&host), store.clone(), Arc::clone(&witness));
        host.spawn("process", Box::pin(life));
        let ended = world.run_until(|| {
            let is_over = steps_left == 0;
            steps_left = steps_left.saturating_sub(1);
            is_over
        });
        assert_ne!(ended, SimStop::StepsSpent, "seed {seed}");
        world.crash();
    }
    let last_life = process(world.host(), store, Arc::clone(&witness));
    world
        .block_on(last_life)
        .unwrap_or_else(|stuck| panic!("{stuck}"));
    let said = witness.said.lock().unwrap();
    assert_eq!(
        said.contradictions,
        Vec::<String>::new(),
        "seed {seed}\n{}",
        world.trace()
    );
    assert_eq!(said.results.len(), 6, "seed {seed}");
    world.trace()
}

fn play_in_a_folder_of_its_own(seed: u64) -> Trace {
    let folder = tempfile::tempdir().unwrap();
    play(seed, folder.path())
}

#[test]
fn what_was_acknowledged_survives_crashes_between_any_steps() {
    for seed in 0..50 {
        play_in_a_folder_of_its_own(seed);
    }
}

#[test]
fn a_runtime_with_crashes_runs_the_same_way_twice() {
    for seed in 100..110 {
        let (first, second) = (
            play_in_a_folder_of_its_own(seed),
            play_in_a_folder_of_its_own(seed),
        );
        assert!(
            first == second,
            "seed {seed}\n{first}\n--- and then ---\n{second}"
        );
    }
}
