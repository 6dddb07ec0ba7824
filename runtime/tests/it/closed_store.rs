//! A store that no process has open is looked at, and not a byte of its file changes.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::Duration;

use millrun::history::Sequence;
use millrun::operating::{AttemptStanding, InstanceStatus, RunSearch, RunStatus, WaitsFor, WorkflowCounts};
use millrun::store::{ClosedStore, StoreConfig, StoreError, UpkeepError};
use millrun::{
    Activity, ActivityContext, ActivityError, OpenError, Retry, RunError, Runtime, RuntimeBuilder, Signal,
    StartError, StopCause, Workflow, WorkflowContext, WorkflowError,
};

use crate::support::{QUADRUPLE, Store};

const GO: Signal<u64> = Signal::named("go");
const WAIT: Workflow<(), u64> = Workflow::named("wait");
const PARENT: Workflow<(), u64> = Workflow::named("parent");
const SLEEPER: Workflow<(), ()> = Workflow::named("sleeper");
const PANICKER: Workflow<(), ()> = Workflow::named("panicker");
const STUBBORN: Workflow<(), u64> = Workflow::named("stubborn");
const FAILS: Activity<(), u64> = Activity::named("fails");

async fn wait(cx: WorkflowContext, (): ()) -> Result<u64, WorkflowError> {
    Ok(cx.receive(GO).await?)
}

async fn parent(cx: WorkflowContext, (): ()) -> Result<u64, WorkflowError> {
    Ok(cx.child(STUBBORN, "child", ()).await?)
}

async fn sleeper(cx: WorkflowContext, (): ()) -> Result<(), WorkflowError> {
    // Over long before the store is looked at: nothing fires there.
    cx.sleep(Duration::from_millis(1)).await?;
    Ok(cx.sleep(Duration::from_secs(86_400)).await?)
}

async fn panicker(_cx: WorkflowContext, (): ()) -> Result<(), WorkflowError> {
    panic!("no way on");
}

async fn stubborn(cx: WorkflowContext, (): ()) -> Result<u64, WorkflowError> {
    // What is told of the pause is the same however long a test takes.
    const DAY: Duration = Duration::from_secs(86_400);
    let retry = Retry::default().attempts(9).first_pause(DAY).pause_max(DAY);
    Ok(cx.call(FAILS, ()).retry(retry).await?)
}

async fn fails(_cx: ActivityContext, (): ()) -> Result<u64, ActivityError> {
    Err(ActivityError::retryable("the bank is closed"))
}

fn builder(path: &Path) -> RuntimeBuilder {
    Runtime::open(path)
        .register(WAIT, wait)
        .register(PARENT, parent)
        .register(SLEEPER, sleeper)
        .register(PANICKER, panicker)
        .register(STUBBORN, stubborn)
        .register(FAILS, fails)
}

/// Runs of all kinds: live, parked, with a child that retries, and finished.
async fn lived(store: &Store) -> Runtime {
    let runtime = builder(&store.path())
        .register(QUADRUPLE, crate::support::quadruple)
        .register(crate::support::DOUBLE, crate::support::double)
        .start()
        .await
        .unwrap();
    for number in 0..5 {
        let run = runtime.start(QUADRUPLE, &format!("q-{number}"), 3).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 12);
    }
    runtime.start(WAIT, "waits", ()).await.unwrap();
    let paused = runtime.start(WAIT, "paused", ()).await.unwrap();
    paused.pause("lunch").await.unwrap();
    runtime.start(SLEEPER, "sleeps", ()).await.unwrap();
    let parked = runtime.start(PANICKER, "panics", ()).await.unwrap();
    parked.until_described(|run| run.parked.is_some()).await.unwrap();
    runtime.start(PARENT, "parent", ()).await.unwrap();
    let child = runtime.attach(STUBBORN, "child").unwrap();
    loop {
        match child.why().await {
            Ok(why) if why.to_string().contains("the bank is closed") => break,
            Ok(_) | Err(RunError::NotFound) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    }
    runtime
}

/// The length of a file and a hash of its bytes.
fn print_of(path: &Path) -> (usize, u64) {
    let bytes = fs::read(path).unwrap();
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    (bytes.len(), hasher.finish())
}

/// Everything that is told of a store.
async fn told(store: &ClosedStore) -> String {
    let mut told = String::new();
    let mut after = None;
    loop {
        let page = store.find(&RunSearch::new(), after, 3).await.unwrap();
        for found in &page.runs {
            let why = store.why_run(found.run).await.unwrap();
            let leaves: Vec<_> = why
                .leaves()
                .into_iter()
                .map(|(_, wait)| wait.what.clone())
                .collect();
            let described = store.describe_run(found.run).await.unwrap();
            let history = store.history(found.run, Sequence::ZERO, 100).await.unwrap();
            told += &format!("{found:?}\n{leaves:?}\n{described:?}\n{history:?}\n");
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    told + &format!("{:?}", store.counts())
}

#[tokio::test]
async fn a_closed_store_tells_of_its_runs_and_keeps_every_byte() {
    let store = Store::new();
    lived(&store).await.shutdown().await.unwrap();
    let before = print_of(&store.path());
    let closed = ClosedStore::open(store.path()).await.unwrap();
    assert!(!closed.report().is_repaired);

    // Live ones first, the latest begun first; then finished ones.
    let page = closed.find(&RunSearch::new(), None, 100).await.unwrap();
    let ids: Vec<_> = page
        .runs
        .iter()
        .map(|run| (run.id.to_string(), run.status))
        .collect();
    assert_eq!(ids.len(), 11);
    let status_of = |id: &str| ids.iter().find(|(one, _)| one == id).unwrap().1;
    assert_eq!(status_of("waits"), RunStatus::Running);
    assert_eq!(status_of("paused"), RunStatus::Paused);
    assert_eq!(status_of("panics"), RunStatus::Parked);
    assert_eq!(status_of("q-4"), RunStatus::Completed);
    let parked = RunSearch::new().status(RunStatus::Parked);
    assert_eq!(closed.find(&parked, None, 10).await.unwrap().runs.len(), 1);

    let counts = closed.counts();
    let of = |name: &str| {
        let mut all = counts.workflows.iter();
        let found: &WorkflowCounts = all.find(|one| one.workflow == name).unwrap();
        (found.running, found.parked, found.paused)
    };
    assert_eq!((of("wait"), of("panicker")), ((1, 0, 1), (0, 1, 0)));
    assert_eq!(closed.report().finished, 5);

    // What the history tells: the last error and the attempt, of the child that holds its parent up.
    let why = closed.attach("parent").unwrap().why().await.unwrap();
    let text = why.to_string();
    assert!(text.contains("the bank is closed"), "{text}");
    let [(leaf, wait)] = why.leaves()[..] else {
        panic!("{text}")
    };
    assert_eq!(leaf.id.as_str(), "child");
    let WaitsFor::Activity(call) = &wait.what else {
        panic!("{text}")
    };
    let is_told = matches!(
        call.standing,
        AttemptStanding::NotOpen | AttemptStanding::BackingOff { .. }
    );
    assert!(is_told && call.failures > 0 && call.attempts_max == 9, "{call:?}");

    let described = closed.attach("panics").unwrap().describe().await.unwrap();
    assert_eq!(described.status, InstanceStatus::Parked);
    assert!(described.parked.unwrap().to_string().contains("no way on"));
    let result = closed.attach("q-1").unwrap().result().await.unwrap();
    assert_eq!(result.decode::<u64>().unwrap(), 12);
    let waits = closed.attach("waits").unwrap().describe().await.unwrap();
    assert_eq!(closed.result(waits.run).await.unwrap(), None);

    assert_eq!(closed.upkeep().verify().await.unwrap().damaged, []);
    let copy = store.path().with_extension("backup");
    closed.upkeep().backup(&copy).await.unwrap();
    let lines = store.path().with_extension("ndjson");
    assert_eq!(closed.upkeep().export(&lines).await.unwrap().runs, 11);
    closed.upkeep().begin_compact();
    drop(closed);
    assert_eq!(print_of(&store.path()), before);
    let restored = ClosedStore::open(copy).await.unwrap();
    assert_eq!(
        restored
            .find(&RunSearch::new(), None, 100)
            .await
            .unwrap()
            .runs
            .len(),
        11
    );
}

#[tokio::test]
async fn what_would_change_something_is_refused_and_says_what_to_do() {
    let store = Store::new();
    lived(&store).await.shutdown().await.unwrap();
    let before = print_of(&store.path());
    let closed = ClosedStore::open(store.path()).await.unwrap();
    let runtime = closed.runtime();
    let refused = runtime.start(WAIT, "new", ()).await.unwrap_err();
    assert!(
        matches!(refused, StartError::Stopped(StopCause::ReadOnly)),
        "{refused}"
    );
    assert!(
        !refused.is_retryable() && refused.to_string().contains("start the program"),
        "{refused}"
    );
    let run = runtime.attach(WAIT, "waits").unwrap();
    let refused = run.signal(GO, 5).await.unwrap_err();
    assert!(
        matches!(refused, RunError::Stopped(StopCause::ReadOnly)),
        "{refused}"
    );
    let refused = closed.upkeep().upkeep().await.unwrap_err();
    assert!(
        matches!(refused, UpkeepError::Stopped(StopCause::ReadOnly)),
        "{refused}"
    );
    let refused = closed.attach("waits").unwrap().describe_awake().await.unwrap();
    assert!(!refused.is_in_memory);
    drop((closed, run));
    assert_eq!(print_of(&store.path()), before);
}

/// What a kill leaves: the file as it stands while a runtime has it.
async fn killed(store: &Store, to: &Path) {
    let runtime = lived(store).await;
    fs::copy(store.path(), to).unwrap();
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_store_that_needs_repair_is_repaired_in_memory_alone() {
    let store = Store::new();
    let left = store.path().with_extension("left");
    killed(&store, &left).await;
    let before = print_of(&left);
    let closed = ClosedStore::open(&left).await.unwrap();
    assert!(closed.report().is_repaired);
    let first = told(&closed).await;
    drop(closed);
    assert_eq!(print_of(&left), before);
    // Still so, and the same again.
    let closed = ClosedStore::open(&left).await.unwrap();
    assert!(closed.report().is_repaired);
    assert_eq!(told(&closed).await, first);
    drop(closed);
    assert_eq!(print_of(&left), before);
}

/// A store of which more had to be repaired than there was memory for could not be looked at.
#[tokio::test]
async fn a_repair_that_has_no_room_in_memory_tells_the_same() {
    let store = Store::new();
    let left = store.path().with_extension("left");
    killed(&store, &left).await;
    let before = print_of(&left);
    let first = told(&ClosedStore::open(&left).await.unwrap()).await;
    for changed_bytes_max in [0, 8_192] {
        let mut bounds = StoreConfig::default();
        bounds.changed_bytes_max = changed_bytes_max;
        let closed = ClosedStore::open_with(&left, bounds).await.unwrap();
        assert!(closed.report().is_repaired);
        assert_eq!(told(&closed).await, first);
        drop(closed);
        assert_eq!(print_of(&left), before);
    }
}

/// A runtime that opens the store afterwards finds the same runs, with the same histories.
#[tokio::test]
async fn it_tells_what_a_runtime_that_opens_it_afterwards_tells() {
    let store = Store::new();
    let left = store.path().with_extension("left");
    killed(&store, &left).await;
    let closed = ClosedStore::open(&left).await.unwrap();
    // Without code nothing goes on there either; only that is told of each run besides.
    let all = RunSearch::new();
    let page = closed.find(&all, None, 100).await.unwrap();
    let mut histories = Vec::new();
    for found in &page.runs {
        histories.push(closed.history(found.run, Sequence::ZERO, 100).await.unwrap());
    }
    let finished = closed.runtime().list_finished(None, 100).await.unwrap();
    drop(closed);

    let runtime = Runtime::open(&left).start().await.unwrap();
    assert!(runtime.startup_report().is_repaired);
    let opened = runtime.find(&all, None, 100).await.unwrap();
    let names = |page: &millrun::operating::RunsPage| -> Vec<_> {
        let all = page.runs.iter();
        all.map(|run| {
            (
                run.id.clone(),
                run.run,
                run.workflow.clone(),
                run.started_at,
                run.ended_at,
            )
        })
        .collect()
    };
    assert_eq!(names(&opened), names(&page));
    assert_eq!(runtime.list_finished(None, 100).await.unwrap(), finished);
    for (found, before) in opened.runs.iter().zip(&histories) {
        let now = runtime.history(found.run, Sequence::ZERO, 100).await.unwrap();
        assert_eq!(now.events[..before.events.len()], before.events[..]);
    }
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_store_that_somebody_has_is_not_read_and_one_that_is_read_is_not_taken() {
    let store = Store::new();
    let runtime = store.open().start().await.unwrap();
    let taken = ClosedStore::open(store.path()).await.unwrap_err();
    assert!(
        matches!(taken, OpenError::Store(StoreError::AlreadyOpen { .. })),
        "{taken:?}"
    );
    runtime.shutdown().await.unwrap();
    let (one, other) = (
        ClosedStore::open(store.path()).await,
        ClosedStore::open(store.path()).await,
    );
    let taken = store.open().start().await.unwrap_err();
    assert!(
        matches!(taken, OpenError::Store(StoreError::AlreadyOpen { .. })),
        "{taken:?}"
    );
    drop((one.unwrap(), other.unwrap()));
    store.open().start().await.unwrap().shutdown().await.unwrap();
}

#[tokio::test]
async fn what_is_no_store_is_refused_and_left_alone() {
    let store = Store::new();
    let missing = ClosedStore::open(store.path()).await.unwrap_err();
    assert!(
        matches!(missing, OpenError::Store(StoreError::Io { .. })),
        "{missing:?}"
    );
    assert!(!store.path().exists());
    for bytes in [&b""[..], b"something else", &[7; 20_000]] {
        fs::write(store.path(), bytes).unwrap();
        let foreign = ClosedStore::open(store.path()).await.unwrap_err();
        assert!(
            matches!(foreign, OpenError::Store(StoreError::Foreign { .. })),
            "{foreign:?}"
        );
        assert_eq!(fs::read(store.path()).unwrap(), bytes);
    }
}

#[tokio::test]
async fn a_damaged_file_is_an_error_that_leads_to_salvage() {
    let store = Store::new();
    lived(&store).await.shutdown().await.unwrap();
    let mut bytes = fs::read(store.path()).unwrap();
    // All behind the first page and redb's header.
    for byte in &mut bytes[8_192..] {
        *byte ^= 0x5a;
    }
    fs::write(store.path(), &bytes).unwrap();
    let damaged = ClosedStore::open(store.path()).await.unwrap_err();
    let OpenError::Store(damaged @ StoreError::Corrupted { .. }) = damaged else {
        panic!("{damaged:?}")
    };
    assert!(damaged.to_string().contains("millrun salvage"), "{damaged}");
    assert!(fs::read(store.path()).unwrap() == bytes);
}

/// Root may write whatever the mode says; that the folder has no new entry is seen all the same.
#[cfg(unix)]
#[tokio::test]
async fn neither_the_file_nor_its_folder_needs_to_be_writable() {
    use std::os::unix::fs::PermissionsExt;
    let store = Store::new();
    let folder = store.path().parent().unwrap().join("locked");
    fs::create_dir(&folder).unwrap();
    let left = folder.join("left.redb");
    killed(&store, &left).await;
    let before = print_of(&left);
    let names = |folder: &PathBuf| -> Vec<_> {
        fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect()
    };
    fs::set_permissions(&left, fs::Permissions::from_mode(0o444)).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o555)).unwrap();
    let closed = ClosedStore::open(&left).await.unwrap();
    assert_eq!(
        closed
            .find(&RunSearch::new(), None, 100)
            .await
            .unwrap()
            .runs
            .len(),
        11
    );
    assert_eq!(names(&folder), ["left.redb"]);
    drop(closed);
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(print_of(&left), before);
}
