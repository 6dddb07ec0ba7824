//! Starts that are refused, and runs whose end is told by nobody: the schedule goes on.

use millrun::schedules::{ActionEnd, OverlapPolicy};

use super::{END, HOUR, MINUTE, SECOND, WORK, World, at, ids_of, live, live_as};

/// A due time that came while there were as many live instances as may be left the schedule waiting for a run that had
/// never begun: it started nothing any more.
#[test]
fn a_due_time_that_finds_no_room_is_told_and_the_next_starts_its_run() {
    for policy in [
        OverlapPolicy::Skip,
        OverlapPolicy::BufferAll,
        OverlapPolicy::Allow,
    ] {
        let change = |builder: millrun::RuntimeBuilder| builder.configure(|config| config.live_len_max = 3);
        live_as("2026-06-05T12:00:30Z", 7, change, async |runtime, world| {
            let schedule = runtime.schedule("s", WORK, ()).every(MINUTE).overlap(policy);
            let schedule = schedule.await.unwrap();
            for id in ["a", "b"] {
                runtime.start(WORK, id, ()).await.unwrap();
            }
            world.pass(MINUTE * 2).await;
            let described = schedule.describe().await.unwrap();
            assert_eq!(described.counts.not_started_len, 2, "{policy:?}: {described:?}");
            assert_eq!((described.running, described.waiting), (None, vec![]));
            for recent in &described.recent {
                assert!(
                    matches!(&recent.end, Some(ActionEnd::NotStarted { message }) if message.contains("limit")),
                    "{recent:?}"
                );
            }
            for id in ["a", "b"] {
                runtime.attach(WORK, id).unwrap().signal(END, 0).await.unwrap();
            }
            world.pass(MINUTE).await;
            let ids = ids_of(&runtime, "work").await;
            assert_eq!(ids, ["a", "b", "s/2026-06-05T12:03:00Z"], "{policy:?}");
        });
    }
}

async fn end(runtime: &millrun::Runtime, id: &str) {
    let run = runtime.attach(WORK, id).unwrap();
    run.signal(END, 1).await.unwrap();
    run.result().await.unwrap();
}

/// The follower of a run is an instance as any other: an operator may terminate it. The schedule waited for ever for what
/// it would have told.
#[test]
fn a_run_whose_follower_was_terminated_is_followed_by_the_next_when_it_has_ended() {
    let script = async |runtime: millrun::Runtime, world: World| {
        let schedule = runtime
            .schedule("s", WORK, ())
            .every(MINUTE)
            .actions_len_max(2)
            .overlap(OverlapPolicy::BufferAll);
        let schedule = schedule.await.unwrap();
        world.pass(MINUTE).await;
        let first = "s/2026-06-05T12:01:00Z";
        let follower = format!("millrun.schedule.action/{first}");
        let follower = runtime.attach_untyped(&follower).unwrap();
        follower.terminate("by mistake").await.unwrap();
        world.pass(HOUR).await;
        assert_eq!(ids_of(&runtime, "work").await, [first], "it goes on");
        let described = schedule.describe().await.unwrap();
        assert_eq!(described.running.as_deref(), Some(first));
        end(&runtime, first).await;
        world.pass(HOUR + MINUTE).await;
        let second = "s/2026-06-05T12:02:00Z";
        assert_eq!(ids_of(&runtime, "work").await, [first, second]);
        let described = schedule.describe().await.unwrap();
        assert_eq!(described.running.as_deref(), Some(second));
        assert_eq!(described.recent[1].end, Some(ActionEnd::Completed));
        end(&runtime, second).await;
        world.pass(SECOND).await;
        assert_eq!(schedule.describe().await.unwrap().counts.completed_len, 2);
    };
    live("2026-06-05T12:00:30Z", script);
}

#[test]
fn a_run_that_was_lost_with_its_follower_is_told_and_holds_up_no_due_time() {
    live("2026-06-05T12:00:30Z", async |runtime, world| {
        let schedule = runtime.schedule("s", WORK, ()).every(HOUR).await.unwrap();
        world.pass(HOUR).await;
        let first = "s/2026-06-05T13:00:00Z";
        for id in [format!("millrun.schedule.action/{first}"), first.to_owned()] {
            runtime
                .attach_untyped(&id)
                .unwrap()
                .terminate("all")
                .await
                .unwrap();
        }
        world.pass(HOUR * 2).await;
        let described = schedule.describe().await.unwrap();
        assert_eq!(
            (described.counts.skipped_len, described.counts.started_len),
            (1, 2)
        );
        assert_eq!(described.recent[1].end, Some(ActionEnd::Terminated));
        assert_eq!(ids_of(&runtime, "work").await, [first, "s/2026-06-05T15:00:00Z"]);
    });
}

#[test]
fn a_backfill_of_a_schedule_that_was_made_again_is_not_held_up_by_runs_of_the_former() {
    live("2026-06-05T12:00:30Z", async |runtime, world| {
        let (from, through) = (at("2026-06-05T10:00:00Z"), at("2026-06-05T11:00:00Z"));
        for _ in 0..2 {
            let schedule = runtime.schedule("s", WORK, ()).every(HOUR).await.unwrap();
            schedule
                .backfill(from, through)
                .overlap(OverlapPolicy::BufferAll)
                .await
                .unwrap();
            world.pass(SECOND).await;
            let described = schedule.describe().await.unwrap();
            assert!(described.running.is_some());
            schedule.delete().await.unwrap();
        }
        let schedule = runtime.schedule("s", WORK, ()).every(HOUR).await.unwrap();
        world.pass(HOUR).await;
        let described = schedule.describe().await.unwrap();
        assert_eq!(described.running.as_deref(), Some("s/2026-06-05T13:00:00Z"));
        let ids = ids_of(&runtime, "work").await;
        let backfilled = ids
            .iter()
            .filter(|id| id.starts_with("s/2026-06-05T10:00:00Z/backfill-"));
        assert_eq!(
            backfilled.count(),
            2,
            "each backfill has started its own: {ids:?}"
        );
    });
}

/// What tells the end of a run waited behind what the user's activities were doing.
#[test]
fn the_end_of_a_run_is_told_also_while_the_activities_of_the_user_are_all_at_work() {
    use millrun::{Activity, ActivityContext, ActivityError, Workflow, WorkflowContext, WorkflowError};
    const LONG: Activity<(), ()> = Activity::named("long");
    const BUSY: Workflow<(), ()> = Workflow::named("busy");
    async fn long(cx: ActivityContext, (): ()) -> Result<(), ActivityError> {
        std::future::pending::<()>().await;
        drop(cx);
        Ok(())
    }
    async fn busy(cx: WorkflowContext, (): ()) -> Result<(), WorkflowError> {
        Ok(cx.call(LONG, ()).await?)
    }
    let change = |builder: millrun::RuntimeBuilder| {
        let builder = builder.register(LONG, long).register(BUSY, busy);
        builder.configure(|config| config.activities_running_max = 2)
    };
    live_as("2026-06-05T12:00:30Z", 7, change, async |runtime, world| {
        for number in 0..10 {
            runtime.start(BUSY, &format!("busy-{number}"), ()).await.unwrap();
        }
        let schedule = runtime
            .schedule("s", super::REPORT, 1)
            .every(MINUTE)
            .await
            .unwrap();
        world.pass(MINUTE * 3).await;
        let described = schedule.describe().await.unwrap();
        assert_eq!(
            (described.counts.completed_len, described.counts.skipped_len),
            (3, 0)
        );
    });
}
