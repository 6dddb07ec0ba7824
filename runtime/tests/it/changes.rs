//! The feed of changes.

use millrun::operating::{BulkAction, ChangeKind, FeedChange, Lost, RunStatus};
use millrun::{
    OnConflict, Runtime, RuntimeBuilder, Signal, StopCause, Workflow, WorkflowContext, WorkflowError,
};
use millrun_testkit::{SimConfig, SimHost};

const GO: Signal<u64> = Signal::named("go");
const WAIT: Workflow<(), u64> = Workflow::named("wait");

async fn wait(cx: WorkflowContext, (): ()) -> Result<u64, WorkflowError> {
    match cx.receive(GO).await? {
        0 => panic!("no code is without mistakes"),
        number => Ok(number),
    }
}

fn builder(world: &SimHost) -> RuntimeBuilder {
    Runtime::volatile().host(world.host()).register(WAIT, wait)
}

/// A change in one word, with the id of its instance.
fn told(change: &FeedChange) -> String {
    match &change.kind {
        ChangeKind::Started(run) => format!("{} started", run.id),
        ChangeKind::Ended { run, status } => format!("{} {}", run.id, status.name()),
        ChangeKind::Parked { run, status, .. } => format!("{} {}", run.id, status.name()),
        ChangeKind::Resumed(run) => format!("{} resumed", run.id),
        ChangeKind::PartFailed { part, .. } => format!("{part} failed"),
        other => format!("{other:?}"),
    }
}

#[test]
fn what_becomes_of_runs_is_told_when_a_caller_can_know_it() {
    let world = SimHost::new(SimConfig::seeded(7));
    world
        .block_on(async {
            let runtime = builder(&world).start().await.unwrap();
            // Nobody is told of this one.
            runtime.start(WAIT, "early", ()).await.unwrap();
            let mut feed = runtime.changes(None);
            let run = runtime.start(WAIT, "a", ()).await.unwrap();
            run.pause("for now").await.unwrap();
            run.resume().await.unwrap();
            run.signal(GO, 7).await.unwrap();
            run.result().await.unwrap();
            runtime
                .start(WAIT, "b", ())
                .on_conflict(OnConflict::Refuse)
                .await
                .unwrap()
                .terminate("enough")
                .await
                .unwrap();
            let mut all = Vec::new();
            while all.len() < 6 {
                let changes = feed.next(2).await.unwrap();
                assert!(changes.changes.len() <= 2 && changes.lost == Lost::Nothing);
                all.extend(changes.changes);
            }
            let of = |id: &str| {
                let of = all.iter().map(told).filter(|told| told.starts_with(id));
                of.collect::<Vec<_>>()
            };
            assert_eq!(of("a"), ["a started", "a paused", "a resumed", "a completed"]);
            assert_eq!(of("b"), ["b started", "b terminated"]);
            assert_eq!(feed.try_next(10), None);
            // A position is that of the change before the next.
            assert_eq!(feed.position(), all.last().unwrap().position);
            let mut again = runtime.changes(Some(all[1].position));
            assert_eq!(again.next(100).await.unwrap().changes, all[2..]);
            runtime.shutdown().await.unwrap();
            assert!(matches!(feed.next(1).await, Err(StopCause::Shutdown)));
        })
        .unwrap();
}

#[test]
fn a_bulk_tells_of_the_runs_it_acts_on_and_not_of_itself() {
    let world = SimHost::new(SimConfig::seeded(5));
    world
        .block_on(async {
            let runtime = builder(&world).start().await.unwrap();
            runtime.start(WAIT, "a", ()).await.unwrap();
            let mut feed = runtime.changes(None);
            let action = BulkAction::Terminate {
                reason: "enough".into(),
            };
            let bulk = runtime.bulk(action).ids(["a"]).start("end-a").await.unwrap();
            bulk.result().await.unwrap();
            let seen: Vec<_> = feed.next(10).await.unwrap().changes.iter().map(told).collect();
            assert_eq!(seen, ["a terminated"]);
            assert_eq!(feed.try_next(10), None);
            runtime.shutdown().await.unwrap();
        })
        .unwrap();
}

#[test]
fn a_run_whose_code_panics_is_told_as_parked_with_the_reason() {
    let world = SimHost::new(SimConfig::seeded(3));
    world
        .block_on(async {
            let runtime = builder(&world).start().await.unwrap();
            let mut feed = runtime.changes(None);
            let run = runtime.start(WAIT, "a", ()).await.unwrap();
            run.signal(GO, 0).await.unwrap();
            let mut seen = Vec::new();
            let reason = 'found: loop {
                for change in feed.next(10).await.unwrap().changes {
                    seen.push(told(&change));
                    if let ChangeKind::Parked { status, reason, .. } = change.kind {
                        assert_eq!(status, RunStatus::Parked);
                        break 'found reason;
                    }
                }
            };
            assert_eq!(seen, ["a started", "a parked"]);
            assert!(reason.contains("no code is without mistakes"), "{reason}");
            runtime.shutdown().await.unwrap();
        })
        .unwrap();
}

#[test]
fn a_part_that_fails_is_told() {
    let world = SimHost::new(SimConfig::seeded(3));
    world
        .block_on(async {
            let runtime = builder(&world).start().await.unwrap();
            let mut feed = runtime.changes(None);
            runtime.kill("timers").unwrap_err();
            let shard = runtime
                .parts()
                .into_iter()
                .find(|part| part.name.starts_with("shard"));
            let shard = shard.unwrap().name;
            runtime.kill(&shard).unwrap();
            let change = feed.next(1).await.unwrap().changes.remove(0);
            assert_eq!(told(&change), format!("{shard} failed"));
            // Its successor tells of its runs.
            runtime.start(WAIT, "a", ()).await.unwrap();
            let change = feed.next(1).await.unwrap().changes.remove(0);
            assert_eq!(told(&change), "a started");
            runtime.shutdown().await.unwrap();
        })
        .unwrap();
}

#[test]
fn a_reader_that_does_not_read_holds_up_no_run_and_is_told_what_it_has_missed() {
    let world = SimHost::new(SimConfig::seeded(3));
    world
        .block_on(async {
            let runtime = builder(&world).start().await.unwrap();
            let mut feed = runtime.changes(None);
            for number in 0..5_000 {
                let run = runtime.start(WAIT, &format!("w-{number}"), ()).await.unwrap();
                run.signal(GO, 1).await.unwrap();
                run.result().await.unwrap();
            }
            let (mut told, mut lost) = (0, 0);
            while let Some(changes) = feed.try_next(1_000) {
                told += changes.changes.len();
                match changes.lost {
                    Lost::Counted(len) => lost += len,
                    other => assert_eq!(other, Lost::Nothing),
                }
            }
            assert_eq!((told, lost), (8_192, 10_000 - 8_192));
            runtime.shutdown().await.unwrap();
        })
        .unwrap();
}
