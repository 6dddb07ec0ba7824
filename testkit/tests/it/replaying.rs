//! Exported histories that a test replays with the code of today.

use std::fs;
use std::path::Path;
use std::time::Duration;

use millrun::history::Fit;
use millrun::{Runtime, RuntimeBuilder, Workflow, WorkflowContext, WorkflowError};
use millrun_testkit::{ReplayRefused, replay, replay_with};
use millrun_workflow::Limits;

const ORDER: Workflow<u64, u64> = Workflow::named("order");
const TRIP: Workflow<u64, u64> = Workflow::named("trip");

async fn order(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    cx.sleep(Duration::from_micros(1)).await?;
    Ok(number * 2)
}

/// The code of another day: with a wait that is new.
async fn changed(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    let _bought = cx.local(|| Ok::<_, WorkflowError>(1_u64)).await?;
    order(cx, number).await
}

/// The same with another result.
async fn dearer(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    Ok(order(cx, number).await? + 1)
}

fn registered(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder.register(ORDER, order).register(TRIP, order)
}

/// Runs so many orders and a trip, and keeps their histories.
async fn recorded(folder: &Path, orders: u64) {
    let runtime = registered(Runtime::volatile()).start().await.unwrap();
    for number in 0..orders {
        let run = runtime
            .start(ORDER, &format!("order-{number}"), number)
            .await
            .unwrap();
        run.result().await.unwrap();
        let text = run.export_history().await.unwrap().to_string();
        fs::write(folder.join(format!("order-{number}.jsonl")), text).unwrap();
    }
    let run = runtime.start(TRIP, "trip", 1).await.unwrap();
    run.result().await.unwrap();
    let text = run.export_history().await.unwrap().to_string();
    fs::write(folder.join("trip.jsonl"), text).unwrap();
    fs::write(folder.join("README"), "not a history").unwrap();
}

#[tokio::test]
async fn histories_are_replayed_with_the_code_that_is_registered() {
    let folder = tempfile::tempdir().unwrap();
    recorded(folder.path(), 3).await;
    let code = || registered(Runtime::volatile()).implementations();
    let report = replay(folder.path(), code()).unwrap();
    let names: Vec<_> = report.files.iter().map(|file| file.workflow.as_str()).collect();
    assert_eq!(names, ["order", "order", "order", "trip"]);
    let fits = Fit::Fits { changed_values: 0 };
    assert!(report.files.iter().all(|file| file.fit.as_ref() == Ok(&fits)));
    let one = replay(folder.path().join("order-1.jsonl"), code()).unwrap();
    assert_eq!(one.files.len(), 1);
}

#[tokio::test]
async fn code_that_does_not_fit_fails_the_test_with_one_entry_for_each_difference() {
    let folder = tempfile::tempdir().unwrap();
    recorded(folder.path(), 10).await;
    fs::write(folder.path().join("cut.jsonl"), "{").unwrap();
    let code = Runtime::volatile().register(ORDER, changed).implementations();
    let refused = replay(folder.path(), code).unwrap_err();
    let ReplayRefused::Unfit(report) = &refused else {
        panic!("{refused}");
    };
    assert!(report.files.iter().all(|file| !file.is_fit()));
    let told = refused.to_string();
    assert!(told.starts_with("0 of 12 histories fit the code"), "{told}");
    assert!(
        told.contains("order-0.jsonl, and 9 more\nthe code of order decides otherwise:"),
        "{told}"
    );
    assert_eq!(told.matches("event | recorded").count(), 1, "{told}");
    assert!(told.contains("there is no code for trip"), "{told}");
    assert!(told.contains("millrun history ID --export"), "{told}");
}

#[tokio::test]
async fn another_value_is_a_difference_with_strict_limits_only() {
    let folder = tempfile::tempdir().unwrap();
    recorded(folder.path(), 1).await;
    let code = || {
        Runtime::volatile()
            .register(ORDER, dearer)
            .register(TRIP, order)
            .implementations()
    };
    let report = replay(folder.path(), code()).unwrap();
    assert_eq!(report.files[0].fit, Ok(Fit::Fits { changed_values: 1 }));
    let mut limits = Limits::default();
    limits.strict = true;
    let refused = replay_with(folder.path(), code(), limits)
        .unwrap_err()
        .to_string();
    assert!(refused.contains("with another value"), "{refused}");
}

#[test]
fn a_place_without_a_history_is_an_error_and_not_a_test_that_passes() {
    let folder = tempfile::tempdir().unwrap();
    let code = || registered(Runtime::volatile()).implementations();
    assert!(matches!(
        replay(folder.path(), code()),
        Err(ReplayRefused::Nothing { .. })
    ));
    let missing = replay(folder.path().join("none.jsonl"), code());
    assert!(matches!(missing, Err(ReplayRefused::Unreadable { .. })));
    fs::create_dir(folder.path().join("inner.jsonl")).unwrap();
    let refused = replay(folder.path(), code()).unwrap_err();
    assert!(matches!(refused, ReplayRefused::Nothing { .. }), "{refused}");
    // As `unwrap` prints it.
    assert_eq!(format!("{refused:?}"), refused.to_string());
    fs::write(folder.path().join("odd.jsonl"), [0xff, 0xfe]).unwrap();
    let Err(ReplayRefused::Unfit(report)) = replay(folder.path(), code()) else {
        panic!("it is no history");
    };
    assert!(report.files[0].fit.is_err(), "{report}");
}
