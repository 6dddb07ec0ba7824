//! Histories of examples, as each version of their code has left them: the code of today decides the same.

use std::fs;
use std::path::PathBuf;

use millrun::{Payload, Runtime, RuntimeBuilder, UntypedHandle};
use millrun_testkit::replay;

#[path = "../../jury.rs"]
#[allow(dead_code, reason = "its main is not called")]
mod jury;
#[path = "../../parcels.rs"]
#[allow(dead_code, reason = "its main is not called")]
mod parcels;
#[path = "../../trip.rs"]
#[allow(dead_code, reason = "its main is not called")]
pub(crate) mod trip;

fn registered(builder: RuntimeBuilder) -> RuntimeBuilder {
    trip::registered(parcels::registered(jury::registered(builder)))
}

fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "histories"]
        .iter()
        .collect()
}

#[test]
fn the_code_of_today_fits_all_histories_that_were_recorded() {
    let report = replay(folder(), registered(Runtime::volatile()).implementations());
    let report = report.unwrap_or_else(|error| panic!("{error}"));
    let mut workflows: Vec<_> = report.files.iter().map(|file| &*file.workflow).collect();
    workflows.dedup();
    assert_eq!(workflows, ["jury", "parcel", "trip"]);
}

async fn started(runtime: &Runtime, workflow: &str, id: &str, input: &str) -> UntypedHandle {
    let input = Payload::from_json(input).unwrap();
    runtime.start_untyped(workflow, id, input).await.unwrap()
}

async fn told(runtime: &Runtime, id: &str, name: &str, value: &str) {
    let value = Payload::from_json(value).unwrap();
    runtime
        .attach_untyped(id)
        .unwrap()
        .signal(name, value)
        .await
        .unwrap();
}

/// Call it when the code of one of them changes in a way that histories tell, and give the files another number.
#[tokio::test]
#[ignore = "writes the files that are missing"]
async fn record_the_histories() {
    let runtime = registered(Runtime::volatile()).start().await.unwrap();
    let ada = started(&runtime, "trip", "ada", r#"["flight","hotel"]"#).await;
    told(&runtime, "ada", "paid", "null").await;
    let alan = started(&runtime, "trip", "alan", r#"["flight","hotel","car"]"#).await;
    let parcel = started(&runtime, "parcel", "grace", "2").await;
    told(&runtime, "grace", "ordered", r#""ink""#).await;
    told(&runtime, "grace", "ordered", r#""pens""#).await;
    let jury = started(&runtime, "jury", "case-1", r#"["barbara","edsger","donald"]"#).await;
    for name in ["barbara", "edsger"] {
        while runtime.attach_untyped(name).unwrap().describe().await.is_err() {
            tokio::task::yield_now().await;
        }
        told(&runtime, name, "vote", "true").await;
    }
    let folder = folder();
    fs::create_dir_all(&folder).unwrap();
    for (name, run) in [
        ("jury-1", jury),
        ("parcel-1", parcel),
        ("trip-1-paid", ada),
        ("trip-1-full", alan),
    ] {
        run.result().await.ok();
        let path = folder.join(format!("{name}.jsonl"));
        if !path.exists() {
            fs::write(path, run.export_history().await.unwrap().to_string()).unwrap();
        }
    }
    runtime.shutdown().await.unwrap();
}
