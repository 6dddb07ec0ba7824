//! What a schedule does when it is due while a run of it goes on.

use millrun::operating::InstanceStatus;
use millrun::schedules::{ActionEnd, OverlapPolicy, ScheduleHandle};
use millrun::{ResultError, Runtime};

use super::{END, MINUTE, SECOND, WORK, World, ids_of, live};

/// A schedule of each minute under a policy, and the time at which its third due time has been.
fn check(policy: OverlapPolicy, script: impl AsyncFnOnce(Runtime, ScheduleHandle, World)) {
    live("2026-06-05T12:00:00Z", async |runtime, world| {
        let schedule = runtime
            .schedule("s", WORK, ())
            .every(MINUTE)
            .overlap(policy)
            .buffer_len_max(3);
        let schedule = schedule.await.unwrap();
        world.pass(MINUTE * 3 + SECOND).await;
        script(runtime, schedule, world).await;
    });
}

fn id(minute: u32) -> String {
    format!("s/2026-06-05T12:{minute:02}:00Z")
}

async fn end(runtime: &Runtime, minute: u32) {
    let run = runtime.attach(WORK, &id(minute)).unwrap();
    run.signal(END, u64::from(minute)).await.unwrap();
    assert_eq!(run.result().await.unwrap(), u64::from(minute));
}

#[test]
fn skip_passes_over_what_is_due_while_a_run_goes_on() {
    check(OverlapPolicy::Skip, async |runtime, schedule, world| {
        assert_eq!(ids_of(&runtime, "work").await, [id(1)]);
        end(&runtime, 1).await;
        world.pass(MINUTE).await;
        assert_eq!(ids_of(&runtime, "work").await, [id(1), id(4)]);
        assert_eq!(schedule.describe().await.unwrap().counts.skipped_len, 2);
    });
}

#[test]
fn buffer_one_keeps_the_first_that_is_due_and_starts_it_at_the_end() {
    check(OverlapPolicy::BufferOne, async |runtime, schedule, world| {
        let described = schedule.describe().await.unwrap();
        assert_eq!((described.running, described.waiting), (Some(id(1)), vec![id(2)]));
        assert_eq!(described.counts.skipped_len, 1);
        end(&runtime, 1).await;
        world.pass(SECOND).await;
        assert_eq!(ids_of(&runtime, "work").await, [id(1), id(2)]);
        end(&runtime, 2).await;
        world.pass(SECOND).await;
        assert_eq!(ids_of(&runtime, "work").await.len(), 2);
    });
}

#[test]
fn buffer_all_keeps_as_many_as_it_may_and_starts_them_in_order() {
    check(OverlapPolicy::BufferAll, async |runtime, schedule, world| {
        world.pass(MINUTE * 3).await;
        let described = schedule.describe().await.unwrap();
        assert_eq!(described.waiting, [id(2), id(3), id(4)]);
        assert_eq!(
            described.counts.skipped_len, 2,
            "of the fifth and the sixth minute"
        );
        for minute in 1..=4 {
            end(&runtime, minute).await;
            world.pass(SECOND).await;
        }
        assert_eq!(ids_of(&runtime, "work").await, [id(1), id(2), id(3), id(4)]);
        let described = schedule.describe().await.unwrap();
        assert_eq!((described.running, described.waiting), (None, vec![]));
    });
}

#[test]
fn cancel_other_asks_the_run_to_cancel_and_follows_it() {
    check(OverlapPolicy::CancelOther, async |runtime, schedule, _| {
        assert_eq!(ids_of(&runtime, "work").await, [id(1), id(2), id(3)]);
        for minute in [1, 2] {
            let outcome = runtime.attach(WORK, &id(minute)).unwrap().result().await;
            assert!(matches!(outcome, Err(ResultError::Cancelled(_))), "{outcome:?}");
        }
        let described = schedule.describe().await.unwrap();
        assert_eq!(described.running, Some(id(3)));
        assert_eq!(described.recent[1].end, Some(ActionEnd::Cancelled));
    });
}

#[test]
fn terminate_other_ends_the_run_and_follows_it() {
    check(OverlapPolicy::TerminateOther, async |runtime, schedule, _| {
        let outcome = runtime.attach(WORK, &id(1)).unwrap().result().await;
        assert!(
            matches!(&outcome, Err(ResultError::Terminated { reason }) if reason.contains("\"s\"")),
            "{outcome:?}"
        );
        let described = schedule.describe().await.unwrap();
        assert_eq!((described.running, described.waiting), (Some(id(3)), vec![]));
        assert_eq!(described.recent[1].end, Some(ActionEnd::Terminated));
    });
}

#[test]
fn allow_starts_runs_beside_each_other() {
    check(OverlapPolicy::Allow, async |runtime, schedule, _| {
        assert_eq!(ids_of(&runtime, "work").await, [id(1), id(2), id(3)]);
        for minute in 1..=3 {
            let described = runtime
                .attach(WORK, &id(minute))
                .unwrap()
                .describe()
                .await
                .unwrap();
            assert_eq!(described.status, InstanceStatus::Running);
        }
        let described = schedule.describe().await.unwrap();
        assert_eq!((described.running, described.counts.skipped_len), (None, 0));
        assert_eq!(described.recent.len(), 3);
    });
}

#[test]
fn each_policy_has_a_name_of_its_own() {
    for policy in OverlapPolicy::ALL {
        assert_eq!(OverlapPolicy::of_name(policy.name()), Some(policy));
    }
    assert_eq!(OverlapPolicy::of_name("never"), None);
}

/// A due time that was passed over for a later one counted as if it had started a run.
#[test]
fn a_due_time_that_is_replaced_is_none_of_those_that_a_schedule_may_act_on() {
    use millrun::{Workflow, WorkflowContext, WorkflowError};
    const STUBBORN: Workflow<(), u64> = Workflow::named("stubborn");
    async fn stubborn(cx: WorkflowContext, (): ()) -> Result<u64, WorkflowError> {
        Ok(cx.shielded().receive(END).await?)
    }
    let change = |builder: millrun::RuntimeBuilder| builder.register(STUBBORN, stubborn);
    super::live_as("2026-06-05T12:00:00Z", 9, change, async |runtime, world| {
        let schedule = runtime
            .schedule("s", STUBBORN, ())
            .every(MINUTE)
            .overlap(OverlapPolicy::CancelOther)
            .actions_len_max(3);
        let schedule = schedule.await.unwrap();
        world.pass(MINUTE * 4 + SECOND).await;
        let described = schedule.describe().await.unwrap();
        assert_eq!(
            (described.actions_left, described.counts.skipped_len),
            (Some(1), 2)
        );
        assert_eq!(described.waiting, [id(4)]);
    });
}
